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

"""Hosts that take no new groups, and what operators changed."""

from alembic import op
import sqlalchemy as sa

revision = '013'
down_revision = '012'


def upgrade() -> None:
    op.create_table(
        'drains',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('reason', sa.Text, nullable=False),
        sa.Column('drained_at', sa.Double, nullable=False))
    op.create_table(
        'changes',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=True),
        sa.Column('changed_at', sa.Double, nullable=False),
        sa.Column('who', sa.String(255), nullable=False),
        sa.Column('what', sa.String(320), nullable=False),
        sa.Column('before', sa.Text, nullable=False),
        sa.Column('after', sa.Text, nullable=False))
