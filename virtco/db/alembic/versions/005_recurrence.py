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

"""What a hint says of the iterations of a job."""

from alembic import op
import sqlalchemy as sa

revision = '005'
down_revision = '004'


def upgrade() -> None:
    op.add_column('coflows', sa.Column('period_s', sa.Double))
    op.add_column('coflows', sa.Column('compute_s', sa.Double))
    op.add_column('coflows', sa.Column(
        'rank_hint', sa.Boolean, nullable=False, server_default=sa.false()))
