# SPDX-License-Identifier: Apache-2.0

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
