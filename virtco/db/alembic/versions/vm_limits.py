# SPDX-License-Identifier: Apache-2.0

"""Limits of VMs by Neutron's rules for their ports."""

from alembic import op
import sqlalchemy as sa

revision = 'vm_limits'
down_revision = 'vm_addresses'


def upgrade() -> None:
    """Add the columns of both limits in bit/s, NULL in rows from before."""
    # MariaDB keeps the columns of an upgrade that was cut off after them.
    known = {column['name'] for column in sa.inspect(
        op.get_bind()).get_columns('members')}
    for name in ('egress_limit_bps', 'ingress_limit_bps'):
        if name not in known:
            op.add_column('members', sa.Column(name, sa.Double))
