# SPDX-License-Identifier: Apache-2.0

"""All tables, as the first release has them."""

import secrets

from alembic import op
import sqlalchemy as sa

from virtco.db import models

revision = 'initial'
down_revision = None


def upgrade() -> None:
    _one_row()
    _groups()
    _coflows()
    _hosts()
    _operators()


def _one_row() -> None:
    cluster = op.create_table(
        'cluster',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('secret', sa.String(64), nullable=False))
    op.bulk_insert(cluster, [{'id': 1, 'generation': 1,
                              'secret': secrets.token_hex(32)}])
    leader = op.create_table(
        'leader',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('epoch', sa.BigInteger, nullable=False),
        sa.Column('beat', sa.BigInteger, nullable=False),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('address', sa.String(320), nullable=False))
    op.bulk_insert(leader, [{'id': 1, 'epoch': 0, 'beat': 0, 'name': '',
                             'address': ''}])


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
        sa.Column('bottleneck', sa.String(520)),
        sa.Column('cct_s', sa.Double),
        sa.Column('lower_bound_s', sa.Double),
        sa.Column('gap', sa.Double),
        sa.Column('objective_s', sa.Double),
        sa.Column('method', sa.String(255), nullable=False),
        sa.Column('why', sa.Text, nullable=False),
        sa.Column('app', sa.String(255), nullable=False),
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
        sa.Column('host', sa.String(255), index=True),
        sa.Column('planned_host', sa.String(255)),
        sa.Column('event_at', sa.Double),
        sa.Column('expires_at', sa.Double, index=True),
        sa.Column('vcpus', sa.Double, nullable=False),
        sa.Column('memory_mb', sa.Double, nullable=False),
        sa.Column('disk_gb', sa.Double, nullable=False),
        sa.Column('placed_at', sa.Double, index=True),
        sa.Column('room_vcpus', sa.Double),
        sa.Column('room_memory_mb', sa.Double),
        sa.Column('room_disk_gb', sa.Double))
    op.create_table(
        'placements',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('group_id', sa.String(36), index=True),
        sa.Column('fingerprint', sa.String(64), nullable=False),
        sa.Column('answer', models.LongText, nullable=False),
        sa.Column('updated_at', sa.Double, index=True, nullable=False))
    op.create_table(
        'decisions',
        sa.Column('group_id', sa.String(36), primary_key=True),
        sa.Column('document', models.LongBytes, nullable=False))
    op.create_table(
        'profile_hours',
        sa.Column('group_id', sa.String(36), primary_key=True),
        sa.Column('hour', sa.Integer, primary_key=True, autoincrement=False,
                  index=True),
        sa.Column('project_id', sa.String(255), index=True,
                  nullable=False),
        sa.Column('group_name', sa.String(255), nullable=False),
        sa.Column('app', sa.String(255), nullable=False),
        sa.Column('n_vms', sa.Integer, nullable=False),
        sa.Column('pairs', models.LongText, nullable=False))
    op.create_table(
        'events',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=True),
        sa.Column('project_id', sa.String(255), index=True,
                  nullable=False),
        sa.Column('group_name', sa.String(255), nullable=False),
        sa.Column('group_id', sa.String(36), index=True),
        sa.Column('instance_uuid', sa.String(36), nullable=False),
        sa.Column('kind', sa.String(32), nullable=False),
        sa.Column('detail', sa.Text, nullable=False),
        sa.Column('created_at', sa.Double, nullable=False))


def _coflows() -> None:
    op.create_table(
        'coflows',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('group_id', sa.String(36),
                  sa.ForeignKey('groups.id', ondelete='CASCADE'), index=True),
        sa.Column('project_id', sa.String(255), index=True,
                  nullable=False),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('position', sa.Integer, nullable=False),
        sa.Column('state', sa.String(16), index=True, nullable=False),
        sa.Column('n_vms', sa.Integer, nullable=False),
        sa.Column('n_flows', sa.Integer, nullable=False),
        sa.Column('size_bytes', sa.Double, nullable=False),
        sa.Column('dst_port', sa.Integer),
        sa.Column('iterations', sa.Integer, nullable=False),
        sa.Column('iteration', sa.Integer, nullable=False),
        sa.Column('period_s', sa.Double),
        sa.Column('compute_s', sa.Double),
        sa.Column('served_by', sa.String(16)),
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
    op.create_table(
        'hosts',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('first_seen', sa.Double, nullable=False),
        sa.Column('last_report', sa.Double),
        sa.Column('report', models.LongText, nullable=False),
        sa.Column('generation_lease', sa.BigInteger, nullable=False),
        sa.Column('minors', models.LongText, nullable=False))
    op.create_table(
        'rates',
        sa.Column('src', sa.String(255), primary_key=True),
        sa.Column('dst', sa.String(255), primary_key=True),
        sa.Column('rate_bps', sa.Double, nullable=False),
        sa.Column('lower_bound', sa.Boolean, nullable=False),
        sa.Column('loss', sa.Double, nullable=False),
        sa.Column('rtt_s', sa.Double),
        sa.Column('rtt_median_s', sa.Double),
        sa.Column('rtt_p99_s', sa.Double),
        sa.Column('method', sa.String(64), nullable=False),
        sa.Column('measured_at', sa.Double, nullable=False))
    op.create_table(
        'readings',
        sa.Column('src', sa.String(255), primary_key=True),
        sa.Column('dst', sa.String(255), primary_key=True),
        sa.Column('slot', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('rate_bps', sa.Double, nullable=False),
        sa.Column('lower_bound', sa.Boolean, nullable=False),
        sa.Column('rtt_s', sa.Double),
        sa.Column('measured_at', sa.Double, index=True, nullable=False))
    op.create_table(
        'advice',
        sa.Column('instance_uuid', sa.String(36), primary_key=True),
        sa.Column('document', models.LongText, nullable=False))
    op.create_table(
        'orders',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('kind', sa.String(16), nullable=False),
        sa.Column('state', sa.String(16), index=True, nullable=False),
        sa.Column('ordered_at', sa.Double, nullable=False),
        sa.Column('expires_at', sa.Double, nullable=False),
        sa.Column('document', models.LongText, nullable=False))
    op.create_table(
        'findings',
        sa.Column('subject', sa.String(255), primary_key=True),
        sa.Column('kind', sa.String(32), primary_key=True),
        sa.Column('found_at', sa.Double, nullable=False),
        sa.Column('document', models.LongText, nullable=False))
    op.create_table(
        'topology_planes',
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('document', models.LongText, nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('changed_at', sa.Double, nullable=False))
    op.create_table(
        'policies',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('epoch', sa.BigInteger, nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('document', models.LongText, nullable=False))


def _operators() -> None:
    op.create_table(
        'drains',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('reason', sa.Text, nullable=False),
        sa.Column('drained_at', sa.Double, nullable=False))
    op.create_table(
        'changes',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=True),
        sa.Column('changed_at', sa.Double, nullable=False),
        sa.Column('who', sa.String(255), nullable=False),
        sa.Column('what', sa.String(320), nullable=False),
        sa.Column('before', sa.Text, nullable=False),
        sa.Column('after', sa.Text, nullable=False))
    op.create_table(
        'projects',
        sa.Column('project_id', sa.String(255), primary_key=True),
        sa.Column('priority_class', sa.Integer, nullable=False),
        sa.Column('weight', sa.Double, nullable=False),
        sa.Column('debt_bytes', sa.Double, nullable=False))
    op.create_table(
        'settings',
        sa.Column('name', sa.String(64), primary_key=True),
        sa.Column('value', sa.Text, nullable=False))
