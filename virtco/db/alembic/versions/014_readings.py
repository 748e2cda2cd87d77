# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The last measurements of each pair of hosts."""

from alembic import op
import sqlalchemy as sa

revision = '014'
down_revision = '013'


def upgrade() -> None:
    op.create_table(
        'readings',
        sa.Column('src', sa.String(255), primary_key=True),
        sa.Column('dst', sa.String(255), primary_key=True),
        sa.Column('slot', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('rate_bps', sa.Double, nullable=False),
        sa.Column('lower_bound', sa.Boolean, nullable=False),
        sa.Column('rtt_s', sa.Double),
        sa.Column('measured_at', sa.Double, nullable=False, index=True))
