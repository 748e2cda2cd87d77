# SPDX-License-Identifier: Apache-2.0

"""Ordered measurements, and what checks found."""

from alembic import op
import sqlalchemy as sa

from virtco.db import models

revision = '017'
down_revision = '016'


def upgrade() -> None:
    op.create_table(
        'orders',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('kind', sa.String(16), nullable=False),
        sa.Column('state', sa.String(16), nullable=False, index=True),
        sa.Column('ordered_at', sa.Double, nullable=False),
        sa.Column('expires_at', sa.Double, nullable=False),
        sa.Column('document', models.LongText, nullable=False))
    op.create_table(
        'findings',
        sa.Column('subject', sa.String(255), primary_key=True),
        sa.Column('kind', sa.String(32), primary_key=True),
        sa.Column('found_at', sa.Double, nullable=False),
        sa.Column('document', models.LongText, nullable=False))
