# SPDX-License-Identifier: Apache-2.0

"""Coflows that are sent several times."""

from alembic import op
import sqlalchemy as sa

revision = '003'
down_revision = '002'


def upgrade() -> None:
    for name, default in (('iterations', '1'), ('iteration', '0')):
        op.add_column('coflows', sa.Column(
            name, sa.Integer, nullable=False, server_default=default))
    # What began before began for the first time.
    op.execute(sa.text('UPDATE coflows SET iteration = 1 '
                       "WHERE state IN ('active', 'done', 'retired')"))
