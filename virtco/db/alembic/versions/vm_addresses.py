# SPDX-License-Identifier: Apache-2.0

"""Addresses of VMs, as Nova tells them."""

from alembic import op
import sqlalchemy as sa

revision = 'vm_addresses'
down_revision = 'initial'


def upgrade() -> None:
    """Add the column of addresses, NULL in rows from before."""
    # MariaDB keeps the column of an upgrade that was cut off after it.
    if 'addresses' not in {column['name'] for column in sa.inspect(
            op.get_bind()).get_columns('members')}:
        op.add_column('members', sa.Column('addresses', sa.Text))
