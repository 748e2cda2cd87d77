# SPDX-License-Identifier: Apache-2.0

"""Indexes in the order of lists: of all coflows, and of a project's rows."""

from alembic import op

revision = 'list_order'
down_revision = 'vm_limits'


def upgrade() -> None:
    """Replace indexes by which databases sorted or read all rows."""
    # MariaDB keeps the indexes of an upgrade that was cut off after them.
    for name, table, columns, before in (
            ('ix_coflows_age', 'coflows', ['created_at', 'position'],
             'ix_coflows_created_at'),
            ('ix_coflows_project_age', 'coflows',
             ['project_id', 'created_at', 'position'],
             'ix_coflows_project_id'),
            ('ix_events_project_age', 'events', ['project_id', 'id'],
             'ix_events_project_id')):
        op.create_index(name, table, columns, if_not_exists=True)
        op.drop_index(before, table, if_exists=True)
