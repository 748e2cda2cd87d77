# SPDX-License-Identifier: Apache-2.0

"""What a hint says of the iterations of a job."""

from alembic import op
import sqlalchemy as sa

revision = '005'
down_revision = '004'


def upgrade() -> None:
    op.add_column('coflows', sa.Column('period_s', sa.Double))
    op.add_column('coflows', sa.Column('compute_s', sa.Double))
    op.add_column('coflows', sa.Column(
        'rank_hint', sa.Boolean, nullable=False, server_default=sa.false()))
