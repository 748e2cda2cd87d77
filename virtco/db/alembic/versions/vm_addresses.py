# SPDX-License-Identifier: Apache-2.0

"""Addresses of VMs, as Nova tells them."""

from alembic import op
import sqlalchemy as sa

revision = 'vm_addresses'
down_revision = 'initial'


def upgrade() -> None:
    """Add the column of addresses, NULL in rows from before."""
    op.add_column('members', sa.Column('addresses', sa.Text))
