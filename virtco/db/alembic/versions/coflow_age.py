# SPDX-License-Identifier: Apache-2.0

"""An index of coflows in the order of lists."""

from alembic import op

revision = 'coflow_age'
down_revision = 'vm_limits'


def upgrade() -> None:
    """Replace the index of times, by which MariaDB sorted all rows."""
    op.create_index('ix_coflows_age', 'coflows', ['created_at', 'position'])
    op.drop_index('ix_coflows_created_at', 'coflows')
