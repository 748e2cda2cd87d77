# SPDX-License-Identifier: Apache-2.0

"""Deadlines of coflows, and whether they were promised."""

from alembic import op
import sqlalchemy as sa

revision = '020'
down_revision = '019'


def upgrade() -> None:
    op.add_column('coflows', sa.Column('deadline_at', sa.Double))
    op.add_column('coflows', sa.Column(
        'is_promised', sa.Boolean, nullable=False,
        server_default=sa.false()))
