# SPDX-License-Identifier: Apache-2.0

"""Schema of the first release, with which upgrades begin.

:mod:`virtco.db.migration` makes the tables of a new database, all at once.
"""

revision = 'initial'
down_revision = None


def upgrade() -> None:
    """Change nothing: no release had an earlier schema."""
