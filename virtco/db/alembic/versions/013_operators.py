# SPDX-License-Identifier: Apache-2.0

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
