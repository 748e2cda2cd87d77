# SPDX-License-Identifier: Apache-2.0

"""All tables, as the first release has them."""

import secrets

from alembic import op
import sqlalchemy as sa

from virtco.db import collation
from virtco.db import models

revision = 'initial'
down_revision = None


def upgrade() -> None:
    _one_row()
    _groups()
    _coflows()
    _hosts()
    _operators()


def _table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    return op.create_table(name, *columns,
                           **collation.of_tables(op.get_bind().dialect))


def _one_row() -> None:
    cluster = _table(
        'cluster',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('secret', models.short_text(64), nullable=False))
    op.bulk_insert(cluster, [{'id': 1, 'generation': 1,
                              'secret': secrets.token_hex(32)}])
    leader = _table(
        'leader',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('epoch', sa.BigInteger, nullable=False),
        sa.Column('beat', sa.BigInteger, nullable=False),
        sa.Column('name', models.short_text(255), nullable=False),
        sa.Column('address', models.short_text(320), nullable=False))
    op.bulk_insert(leader, [{'id': 1, 'epoch': 0, 'beat': 0, 'name': '',
                             'address': ''}])


def _groups() -> None:
    _table(
        'groups',
        sa.Column('id', models.short_text(36), primary_key=True),
        sa.Column('project_id', models.short_text(255), nullable=False),
        sa.Column('name', models.short_text(255), nullable=False),
        sa.Column('live_key', models.short_text(36), nullable=False),
        sa.Column('n_vms', sa.Integer, nullable=False),
        sa.Column('created_at', sa.Double, nullable=False),
        sa.Column('retired_at', sa.Double, index=True),
        sa.Column('bottleneck', models.short_text(520)),
        sa.Column('cct_s', sa.Double),
        sa.Column('lower_bound_s', sa.Double),
        sa.Column('gap', sa.Double),
        sa.Column('objective_s', sa.Double),
        sa.Column('method', models.short_text(255), nullable=False),
        sa.Column('why', sa.Text, nullable=False),
        sa.Column('app', models.short_text(255), nullable=False),
        sa.UniqueConstraint('project_id', 'name', 'live_key',
                            name='uniq_groups_project_name'))
    _table(
        'members',
        sa.Column('group_id', models.short_text(36),
                  sa.ForeignKey('groups.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('row_index', sa.Integer, primary_key=True,
                  autoincrement=False),
        sa.Column('instance_uuid', models.short_text(36), unique=True),
        sa.Column('display_name', models.short_text(255), nullable=False),
        sa.Column('reservation_id', models.short_text(255), nullable=False),
        sa.Column('state', models.short_text(16), nullable=False),
        sa.Column('host', models.short_text(255), index=True),
        sa.Column('planned_host', models.short_text(255)),
        sa.Column('event_at', sa.Double),
        sa.Column('expires_at', sa.Double, index=True),
        sa.Column('vcpus', sa.Double, nullable=False),
        sa.Column('memory_mb', sa.Double, nullable=False),
        sa.Column('disk_gb', sa.Double, nullable=False),
        sa.Column('placed_at', sa.Double, index=True),
        sa.Column('room_vcpus', sa.Double),
        sa.Column('room_memory_mb', sa.Double),
        sa.Column('room_disk_gb', sa.Double))
    _table(
        'placements',
        sa.Column('instance_uuid', models.short_text(36), primary_key=True),
        sa.Column('project_id', models.short_text(255), nullable=False),
        sa.Column('group_id', models.short_text(36), index=True),
        sa.Column('fingerprint', models.short_text(64), nullable=False),
        sa.Column('answer', models.LongText, nullable=False),
        sa.Column('updated_at', sa.Double, index=True, nullable=False))
    _table(
        'decisions',
        sa.Column('group_id', models.short_text(36), primary_key=True),
        sa.Column('document', models.LongBytes, nullable=False))
    _table(
        'profile_hours',
        sa.Column('group_id', models.short_text(36), primary_key=True),
        sa.Column('hour', sa.Integer, primary_key=True, autoincrement=False,
                  index=True),
        sa.Column('project_id', models.short_text(255), index=True,
                  nullable=False),
        sa.Column('group_name', models.short_text(255), nullable=False),
        sa.Column('app', models.short_text(255), nullable=False),
        sa.Column('n_vms', sa.Integer, nullable=False),
        sa.Column('pairs', models.LongText, nullable=False))
    _table(
        'events',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=True),
        sa.Column('project_id', models.short_text(255), index=True,
                  nullable=False),
        sa.Column('group_name', models.short_text(255), nullable=False),
        sa.Column('group_id', models.short_text(36), index=True),
        sa.Column('instance_uuid', models.short_text(36), nullable=False),
        sa.Column('kind', models.short_text(32), nullable=False),
        sa.Column('detail', sa.Text, nullable=False),
        sa.Column('created_at', sa.Double, nullable=False))


def _coflows() -> None:
    _table(
        'coflows',
        sa.Column('id', models.short_text(36), primary_key=True),
        sa.Column('group_id', models.short_text(36),
                  sa.ForeignKey('groups.id', ondelete='CASCADE'), index=True),
        sa.Column('project_id', models.short_text(255), index=True,
                  nullable=False),
        sa.Column('name', models.short_text(255), nullable=False),
        sa.Column('position', sa.Integer, nullable=False),
        sa.Column('state', models.short_text(16), index=True, nullable=False),
        sa.Column('n_vms', sa.Integer, nullable=False),
        sa.Column('n_flows', sa.Integer, nullable=False),
        sa.Column('size_bytes', sa.Double, nullable=False),
        sa.Column('dst_port', sa.Integer),
        sa.Column('iterations', sa.Integer, nullable=False),
        sa.Column('iteration', sa.Integer, nullable=False),
        sa.Column('period_s', sa.Double),
        sa.Column('compute_s', sa.Double),
        sa.Column('served_by', models.short_text(16)),
        sa.Column('rank_hint', sa.Boolean, nullable=False),
        sa.Column('is_estimated', sa.Boolean, nullable=False),
        sa.Column('tm', models.LongText, nullable=False),
        sa.Column('progress', models.LongText, nullable=False),
        sa.Column('sent_bytes', sa.Double, nullable=False),
        sa.Column('priority_class', sa.Integer, nullable=False),
        sa.Column('weight', sa.Double, nullable=False),
        sa.Column('cct_s', sa.Double),
        sa.Column('why', sa.Text, nullable=False),
        sa.Column('created_at', sa.Double, nullable=False),
        sa.Column('arrival', sa.Double),
        sa.Column('ended_at', sa.Double),
        sa.Column('expires_at', sa.Double),
        sa.Column('deadline_at', sa.Double),
        sa.Column('is_promised', sa.Boolean, nullable=False),
        sa.Column('first_byte_at', sa.Double),
        sa.Column('last_byte_at', sa.Double),
        sa.Column('measured_cct_s', sa.Double),
        sa.Column('measured_cct_error_s', sa.Double))


def _hosts() -> None:
    _table(
        'hosts',
        sa.Column('host', models.short_text(255), primary_key=True),
        sa.Column('first_seen', sa.Double, nullable=False),
        sa.Column('last_report', sa.Double),
        sa.Column('report', models.LongText, nullable=False),
        sa.Column('generation_lease', sa.BigInteger, nullable=False),
        sa.Column('minors', models.LongText, nullable=False))
    _table(
        'readings',
        sa.Column('src', models.short_text(255), primary_key=True),
        sa.Column('dst', models.short_text(255), primary_key=True),
        sa.Column('slot', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('rate_bps', sa.Double, nullable=False),
        sa.Column('lower_bound', sa.Boolean, nullable=False),
        sa.Column('loss', sa.Double, nullable=False),
        sa.Column('rtt_s', sa.Double),
        sa.Column('rtt_median_s', sa.Double),
        sa.Column('rtt_p99_s', sa.Double),
        sa.Column('method', models.short_text(64), nullable=False),
        sa.Column('measured_at', sa.Double, index=True, nullable=False))
    _table(
        'advice',
        sa.Column('instance_uuid', models.short_text(36), primary_key=True),
        sa.Column('document', models.LongText, nullable=False))
    _table(
        'orders',
        sa.Column('id', models.short_text(36), primary_key=True),
        sa.Column('kind', models.short_text(16), nullable=False),
        sa.Column('state', models.short_text(16), index=True, nullable=False),
        sa.Column('ordered_at', sa.Double, nullable=False),
        sa.Column('expires_at', sa.Double, nullable=False),
        sa.Column('document', models.LongText, nullable=False))
    _table(
        'findings',
        sa.Column('subject', models.short_text(255), primary_key=True),
        sa.Column('kind', models.short_text(32), primary_key=True),
        sa.Column('found_at', sa.Double, nullable=False),
        sa.Column('document', models.LongText, nullable=False))
    _table(
        'topology_planes',
        sa.Column('name', models.short_text(255), primary_key=True),
        sa.Column('document', models.LongText, nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('changed_at', sa.Double, nullable=False))
    _table(
        'policies',
        sa.Column('host', models.short_text(255), primary_key=True),
        sa.Column('epoch', sa.BigInteger, nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('document', models.LongText, nullable=False))


def _operators() -> None:
    _table(
        'drains',
        sa.Column('host', models.short_text(255), primary_key=True),
        sa.Column('reason', sa.Text, nullable=False),
        sa.Column('drained_at', sa.Double, nullable=False))
    _table(
        'changes',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=True),
        sa.Column('changed_at', sa.Double, nullable=False),
        sa.Column('who', models.short_text(255), nullable=False),
        sa.Column('what', models.short_text(320), nullable=False),
        sa.Column('before', sa.Text, nullable=False),
        sa.Column('after', sa.Text, nullable=False))
    _table(
        'projects',
        sa.Column('project_id', models.short_text(255), primary_key=True),
        sa.Column('priority_class', sa.Integer, nullable=False),
        sa.Column('weight', sa.Double, nullable=False),
        sa.Column('debt_bytes', sa.Double, nullable=False))
    _table(
        'settings',
        sa.Column('name', models.short_text(64), primary_key=True),
        sa.Column('value', sa.Text, nullable=False))
