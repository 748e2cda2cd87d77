# SPDX-License-Identifier: Apache-2.0

"""What projects owe."""

from alembic import op
import sqlalchemy as sa

revision = '004'
down_revision = '003'


def upgrade() -> None:
    op.add_column('projects', sa.Column(
        'debt_bytes', sa.Double, nullable=False, server_default='0'))
