# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
