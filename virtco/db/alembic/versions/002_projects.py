# SPDX-License-Identifier: Apache-2.0

"""Classes and weights of whole projects."""

from alembic import op
import sqlalchemy as sa

revision = '002'
down_revision = '001'


def upgrade() -> None:
    op.create_table(
        'projects',
        sa.Column('project_id', sa.String(255), primary_key=True),
        sa.Column('priority_class', sa.Integer, nullable=False),
        sa.Column('weight', sa.Double, nullable=False))
