# SPDX-License-Identifier: Apache-2.0

"""What happened beside what was planned."""

from alembic import op
import sqlalchemy as sa

revision = '007'
down_revision = '006'


def upgrade() -> None:
    for name in ('first_byte_at', 'last_byte_at', 'measured_cct_s',
                 'measured_cct_error_s'):
        op.add_column('coflows', sa.Column(name, sa.Double))
    op.add_column('members', sa.Column('planned_host', sa.String(255)))
    op.add_column('groups', sa.Column('bottleneck', sa.String(520)))
    # Rows that wait for their VM are where the plan wants them.
    op.execute(sa.text('UPDATE members SET planned_host = host '
                       "WHERE state IN ('planned', 'reserved')"))
