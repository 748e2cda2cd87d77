# SPDX-License-Identifier: Apache-2.0

"""Trees of switches."""

from alembic import op
import sqlalchemy as sa

from virtco.db import models

revision = '008'
down_revision = '007'


def upgrade() -> None:
    op.create_table(
        'topology_planes',
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('document', models.LongText, nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('changed_at', sa.Double, nullable=False))
