# SPDX-License-Identifier: Apache-2.0

"""Round-trip times beside the rates."""

from alembic import op
import sqlalchemy as sa

revision = '011'
down_revision = '010'


def upgrade() -> None:
    for name in ('rtt_median_s', 'rtt_p99_s'):
        op.add_column('rates', sa.Column(name, sa.Double))
