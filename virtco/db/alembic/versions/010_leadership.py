# SPDX-License-Identifier: Apache-2.0

"""Which scheduler leads, and the policies that its peers may read."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '010'
down_revision = '009'


def upgrade() -> None:
    leader = op.create_table(
        'leader',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('epoch', sa.BigInteger, nullable=False),
        sa.Column('beat', sa.BigInteger, nullable=False),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('address', sa.String(320), nullable=False))
    op.bulk_insert(leader, [{'id': 1, 'epoch': 0, 'beat': 0, 'name': '',
                             'address': ''}])
    op.create_table(
        'policies',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('epoch', sa.BigInteger, nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('document', sa.Text().with_variant(
            mysql.MEDIUMTEXT(), 'mysql', 'mariadb'), nullable=False))
