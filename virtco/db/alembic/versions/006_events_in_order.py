# SPDX-License-Identifier: Apache-2.0

"""When the latest event of a VM was sent."""

from alembic import op
import sqlalchemy as sa

revision = '006'
down_revision = '005'


def upgrade() -> None:
    op.add_column('members', sa.Column('event_at', sa.Double))
