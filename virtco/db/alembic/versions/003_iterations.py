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

"""Coflows that are sent several times."""

from alembic import op
import sqlalchemy as sa

revision = '003'
down_revision = '002'


def upgrade() -> None:
    for name, default in (('iterations', '1'), ('iteration', '0')):
        op.add_column('coflows', sa.Column(
            name, sa.Integer, nullable=False, server_default=default))
    # What began before began for the first time.
    op.execute(sa.text('UPDATE coflows SET iteration = 1 '
                       "WHERE state IN ('active', 'done', 'retired')"))
