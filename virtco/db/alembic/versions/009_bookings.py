# SPDX-License-Identifier: Apache-2.0

"""When a member came to its host, and what Nova showed there."""

from alembic import op
import sqlalchemy as sa

revision = '009'
down_revision = '008'


def upgrade() -> None:
    for name in ('placed_at', 'room_vcpus', 'room_memory_mb',
                 'room_disk_gb'):
        op.add_column('members', sa.Column(name, sa.Double))
    for name in ('host', 'placed_at'):
        op.create_index(f'ix_members_{name}', 'members', [name])
