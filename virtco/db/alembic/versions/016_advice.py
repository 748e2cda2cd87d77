# SPDX-License-Identifier: Apache-2.0

"""Moves that the re-evaluation proposes."""

from alembic import op
import sqlalchemy as sa

from virtco.db import models

revision = '016'
down_revision = '015'


def upgrade() -> None:
    op.create_table(
        'advice',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('advised_at', sa.Double, nullable=False),
        sa.Column('document', models.LongText, nullable=False))
