# SPDX-License-Identifier: Apache-2.0

"""The first tables."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '001'
down_revision = None

LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade() -> None:
    cluster = op.create_table(
        'cluster',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('generation', sa.BigInteger, nullable=False))
    op.bulk_insert(cluster, [{'id': 1, 'generation': 1}])
    _groups()
    _coflows()
    _records()


def _groups() -> None:
    op.create_table(
        'groups',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('live_key', sa.String(36), nullable=False),
        sa.Column('n_vms', sa.Integer, nullable=False),
        sa.Column('created_at', sa.Double, nullable=False),
        sa.Column('retired_at', sa.Double, index=True),
        sa.Column('cct_s', sa.Double),
        sa.Column('lower_bound_s', sa.Double),
        sa.Column('gap', sa.Double),
        sa.Column('objective_s', sa.Double),
        sa.Column('method', sa.String(255), nullable=False),
        sa.Column('why', sa.Text, nullable=False),
        sa.UniqueConstraint('project_id', 'name', 'live_key',
                            name='uniq_groups_project_name'))
    op.create_table(
        'members',
        sa.Column('group_id', sa.String(36),
                  sa.ForeignKey('groups.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('row_index', sa.Integer, primary_key=True,
                  autoincrement=False),
        sa.Column('instance_uuid', sa.String(36), unique=True),
        sa.Column('display_name', sa.String(255), nullable=False),
        sa.Column('reservation_id', sa.String(255), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('host', sa.String(255)),
        sa.Column('expires_at', sa.Double, index=True),
        sa.Column('vcpus', sa.Double, nullable=False),
        sa.Column('memory_mb', sa.Double, nullable=False),
        sa.Column('disk_gb', sa.Double, nullable=False))


def _coflows() -> None:
    op.create_table(
        'coflows',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('group_id', sa.String(36),
                  sa.ForeignKey('groups.id', ondelete='CASCADE'),
                  index=True),
        sa.Column('project_id', sa.String(255), nullable=False, index=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('position', sa.Integer, nullable=False),
        sa.Column('state', sa.String(16), nullable=False, index=True),
        sa.Column('n_vms', sa.Integer, nullable=False),
        sa.Column('n_flows', sa.Integer, nullable=False),
        sa.Column('size_bytes', sa.Double, nullable=False),
        sa.Column('dst_port', sa.Integer),
        sa.Column('tm', LONG_TEXT, nullable=False),
        sa.Column('progress', LONG_TEXT, nullable=False),
        sa.Column('sent_bytes', sa.Double, nullable=False),
        sa.Column('priority_class', sa.Integer, nullable=False),
        sa.Column('weight', sa.Double, nullable=False),
        sa.Column('cct_s', sa.Double),
        sa.Column('why', sa.Text, nullable=False),
        sa.Column('created_at', sa.Double, nullable=False),
        sa.Column('arrival', sa.Double),
        sa.Column('ended_at', sa.Double))


def _records() -> None:
    op.create_table(
        'placements',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('group_id', sa.String(36), index=True),
        sa.Column('fingerprint', sa.String(64), nullable=False),
        sa.Column('answer', LONG_TEXT, nullable=False),
        sa.Column('updated_at', sa.Double, nullable=False, index=True))
    op.create_table(
        'hosts',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('first_seen', sa.Double, nullable=False),
        sa.Column('last_report', sa.Double),
        sa.Column('report', LONG_TEXT, nullable=False),
        sa.Column('generation_lease', sa.BigInteger, nullable=False),
        sa.Column('minors', LONG_TEXT, nullable=False))
    op.create_table(
        'rates',
        sa.Column('src', sa.String(255), primary_key=True),
        sa.Column('dst', sa.String(255), primary_key=True),
        sa.Column('rate_bps', sa.Double, nullable=False),
        sa.Column('lower_bound', sa.Boolean, nullable=False),
        sa.Column('loss', sa.Double, nullable=False),
        sa.Column('rtt_s', sa.Double),
        sa.Column('method', sa.String(64), nullable=False),
        sa.Column('measured_at', sa.Double, nullable=False))
    op.create_table(
        'events',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=True),
        sa.Column('project_id', sa.String(255), nullable=False, index=True),
        sa.Column('group_name', sa.String(255), nullable=False),
        sa.Column('group_id', sa.String(36), index=True),
        sa.Column('instance_uuid', sa.String(36), nullable=False),
        sa.Column('kind', sa.String(32), nullable=False),
        sa.Column('detail', sa.Text, nullable=False),
        sa.Column('created_at', sa.Double, nullable=False))
    op.create_table(
        'settings',
        sa.Column('name', sa.String(64), primary_key=True),
        sa.Column('value', sa.Text, nullable=False))
