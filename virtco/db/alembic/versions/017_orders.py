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

"""Ordered measurements, and what checks found."""

from alembic import op
import sqlalchemy as sa

from virtco.db import models

revision = '017'
down_revision = '016'


def upgrade() -> None:
    op.create_table(
        'orders',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('kind', sa.String(16), nullable=False),
        sa.Column('state', sa.String(16), nullable=False, index=True),
        sa.Column('ordered_at', sa.Double, nullable=False),
        sa.Column('expires_at', sa.Double, nullable=False),
        sa.Column('document', models.LongText, nullable=False))
    op.create_table(
        'findings',
        sa.Column('subject', sa.String(255), primary_key=True),
        sa.Column('kind', sa.String(32), primary_key=True),
        sa.Column('found_at', sa.Double, nullable=False),
        sa.Column('document', models.LongText, nullable=False))
