# SPDX-License-Identifier: Apache-2.0

"""The problem of each group's plan."""

from alembic import op
import sqlalchemy as sa

from virtco.db import models

revision = '012'
down_revision = '011'


def upgrade() -> None:
    op.create_table(
        'decisions',
        sa.Column('group_id', sa.String(36), primary_key=True),
        sa.Column('document', models.LongBytes, nullable=False))
