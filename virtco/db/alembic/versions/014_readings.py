# SPDX-License-Identifier: Apache-2.0

"""The last measurements of each pair of hosts."""

from alembic import op
import sqlalchemy as sa

revision = '014'
down_revision = '013'


def upgrade() -> None:
    op.create_table(
        'readings',
        sa.Column('src', sa.String(255), primary_key=True),
        sa.Column('dst', sa.String(255), primary_key=True),
        sa.Column('slot', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('rate_bps', sa.Double, nullable=False),
        sa.Column('lower_bound', sa.Boolean, nullable=False),
        sa.Column('rtt_s', sa.Double),
        sa.Column('measured_at', sa.Double, nullable=False, index=True))
