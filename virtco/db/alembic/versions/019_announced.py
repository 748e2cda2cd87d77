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

"""Coflows that are announced for running VMs; a secret for opaque ids."""

import secrets

from alembic import op
import sqlalchemy as sa

revision = '019'
down_revision = '018'


def upgrade() -> None:
    op.add_column('coflows', sa.Column('expires_at', sa.Double))
    op.add_column('cluster', sa.Column(
        'secret', sa.String(64), nullable=False, server_default=''))
    op.execute(sa.table('cluster', sa.column('secret')).update().values(
        secret=secrets.token_hex(32)))
