# SPDX-License-Identifier: Apache-2.0

"""The order by which a tenant wants a coflow to be served."""

from alembic import op
import sqlalchemy as sa

revision = '018'
down_revision = '017'


def upgrade() -> None:
    op.add_column('coflows', sa.Column('served_by', sa.String(16)))
