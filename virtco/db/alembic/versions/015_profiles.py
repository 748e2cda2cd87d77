# SPDX-License-Identifier: Apache-2.0

"""Bytes per pair and hour, and the application of a group."""

from alembic import op
import sqlalchemy as sa

from virtco.db import models

revision = '015'
down_revision = '014'


def upgrade() -> None:
    op.create_table(
        'profile_hours',
        sa.Column('group_id', sa.String(36), primary_key=True),
        sa.Column('hour', sa.Integer, primary_key=True,
                  autoincrement=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('group_name', sa.String(255), nullable=False),
        sa.Column('app', sa.String(255), nullable=False),
        sa.Column('n_vms', sa.Integer, nullable=False),
        sa.Column('pairs', models.LongText, nullable=False))
    op.create_index('ix_profile_hours_project_id', 'profile_hours',
                    ['project_id'])
    op.create_index('ix_profile_hours_hour', 'profile_hours', ['hour'])
    op.add_column('groups', sa.Column('app', sa.String(255), nullable=False,
                                      server_default=''))
    op.add_column('coflows', sa.Column(
        'is_estimated', sa.Boolean, nullable=False,
        server_default=sa.false()))
