# SPDX-License-Identifier: Apache-2.0

"""All tables, as the first release has them."""

import secrets
from typing import Any

from alembic import op
import sqlalchemy as sa

from virtco.db import collation
from virtco.db import models

revision = 'initial'
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    _one_row()
    _groups()
    _coflows()
    _hosts()
    _operators()


def _table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    return op.create_table(name, *columns,
                           **collation.of_tables(op.get_bind().dialect))


def _some(kind: Any, *names: str,
          nullable: bool = False) -> list[sa.Column[Any]]:
    """Build columns of a type that no index and no key has."""
    return [sa.Column(name, kind, nullable=nullable) for name in names]


def _one_row() -> None:
    cluster = _table(
        'cluster',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        *_some(sa.BigInteger, 'generation'),
        *_some(models.short_text(64), 'secret'))
    op.bulk_insert(cluster, [{'id': 1, 'generation': 1,
                              'secret': secrets.token_hex(32)}])
    leader = _table(
        'leader',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        *_some(sa.BigInteger, 'epoch', 'beat'),
        *_some(models.short_text(255), 'name'),
        *_some(models.short_text(320), 'address'))
    op.bulk_insert(leader, [{'id': 1, 'epoch': 0, 'beat': 0, 'name': '',
                             'address': ''}])


def _groups() -> None:
    _table(
        'groups',
        sa.Column('id', models.short_text(36), primary_key=True),
        *_some(models.short_text(255), 'project_id', 'name', 'method', 'app'),
        *_some(models.short_text(36), 'live_key'),
        *_some(sa.Integer, 'n_vms'),
        *_some(sa.Double, 'created_at'),
        sa.Column('retired_at', sa.Double, index=True),
        *_some(models.short_text(520), 'bottleneck', nullable=True),
        *_some(sa.Double, 'cct_s', 'lower_bound_s', 'gap', 'objective_s',
               nullable=True),
        *_some(sa.Text, 'why', 'rules'),
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
        *_some(models.short_text(255), 'display_name', 'reservation_id'),
        *_some(models.short_text(16), 'state'),
        sa.Column('host', models.short_text(255), index=True),
        *_some(models.short_text(255), 'planned_host', nullable=True),
        *_some(sa.Double, 'event_at', 'room_vcpus', 'room_memory_mb',
               'room_disk_gb', 'egress_cap_bps', 'ingress_cap_bps',
               nullable=True),
        sa.Column('expires_at', sa.Double, index=True),
        *_some(sa.Double, 'egress_burst_bytes', 'ingress_burst_bytes',
               'vcpus', 'memory_mb', 'disk_gb'),
        sa.Column('placed_at', sa.Double, index=True))
    _table(
        'claims',
        sa.Column('instance_uuid', models.short_text(36), primary_key=True),
        sa.Column('host', models.short_text(255), index=True,
                  nullable=False),
        *_some(sa.Boolean, 'is_member'),
        *_some(sa.Double, 'vcpus', 'memory_mb', 'disk_gb'),
        sa.Column('expires_at', sa.Double, index=True, nullable=False))
    _table(
        'placements',
        sa.Column('instance_uuid', models.short_text(36), primary_key=True),
        *_some(models.short_text(255), 'project_id'),
        sa.Column('group_id', models.short_text(36), index=True),
        *_some(models.short_text(64), 'fingerprint'),
        *_some(models.LongText, 'answer'),
        sa.Column('updated_at', sa.Double, index=True, nullable=False))
    _table(
        'decisions',
        sa.Column('group_id', models.short_text(36), primary_key=True),
        *_some(models.LongBytes, 'document'))
    _table(
        'profile_hours',
        sa.Column('group_id', models.short_text(36), primary_key=True),
        sa.Column('hour', sa.Integer, primary_key=True, autoincrement=False,
                  index=True),
        sa.Column('project_id', models.short_text(255), index=True,
                  nullable=False),
        sa.Column('group_name', models.short_text(255), index=True,
                  nullable=False),
        *_some(models.short_text(255), 'app'),
        *_some(sa.Integer, 'n_vms'),
        *_some(models.LongText, 'pairs'))
    _table(
        'events',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=True),
        sa.Column('project_id', models.short_text(255), index=True,
                  nullable=False),
        *_some(models.short_text(255), 'group_name'),
        sa.Column('group_id', models.short_text(36), index=True),
        sa.Column('instance_uuid', models.short_text(36), index=True,
                  nullable=False),
        *_some(models.short_text(32), 'kind'),
        *_some(sa.Text, 'detail'),
        sa.Column('created_at', sa.Double, index=True, nullable=False),
        sa.Index('ix_events_project_group', 'project_id', 'group_name'))


def _coflows() -> None:
    _table(
        'coflows',
        sa.Column('id', models.short_text(36), primary_key=True),
        sa.Column('group_id', models.short_text(36),
                  sa.ForeignKey('groups.id', ondelete='CASCADE'), index=True),
        sa.Column('project_id', models.short_text(255), index=True,
                  nullable=False),
        *_some(models.short_text(255), 'name'),
        *_some(sa.Integer, 'position', 'n_vms', 'n_flows', 'iterations',
               'iteration', 'priority_class'),
        sa.Column('state', models.short_text(16), index=True, nullable=False),
        *_some(sa.Double, 'size_bytes', 'sent_bytes', 'weight'),
        sa.Column('created_at', sa.Double, index=True, nullable=False),
        sa.Column('deadline_at', sa.Double, index=True),
        *_some(sa.Integer, 'dst_port', nullable=True),
        *_some(sa.Double, 'period_s', 'compute_s', 'cct_s', 'arrival',
               'ended_at', 'expires_at', 'first_byte_at',
               'last_byte_at', 'measured_cct_s', 'measured_cct_error_s',
               nullable=True),
        *_some(models.short_text(16), 'served_by', nullable=True),
        *_some(sa.Boolean, 'rank_hint', 'is_estimated', 'is_promised'),
        *_some(models.LongText, 'tm', 'progress'),
        *_some(sa.Text, 'why'))


def _hosts() -> None:
    _table(
        'hosts',
        sa.Column('host', models.short_text(255), primary_key=True),
        *_some(sa.Double, 'first_seen'),
        *_some(sa.Double, 'last_report', nullable=True),
        *_some(models.LongText, 'report', 'minors'))
    _table(
        'readings',
        sa.Column('src', models.short_text(255), primary_key=True),
        sa.Column('dst', models.short_text(255), primary_key=True),
        sa.Column('slot', sa.Integer, primary_key=True, autoincrement=False),
        *_some(sa.Double, 'rate_bps', 'loss'),
        *_some(sa.Boolean, 'lower_bound'),
        *_some(sa.Double, 'rtt_s', 'rtt_median_s', 'rtt_p99_s', nullable=True),
        *_some(models.short_text(64), 'method'),
        sa.Column('measured_at', sa.Double, index=True, nullable=False))
    _table(
        'advice',
        sa.Column('instance_uuid', models.short_text(36), primary_key=True),
        *_some(models.LongText, 'document'))
    _table(
        'orders',
        sa.Column('id', models.short_text(36), primary_key=True),
        *_some(models.short_text(16), 'kind'),
        sa.Column('state', models.short_text(16), index=True, nullable=False),
        *_some(sa.Double, 'ordered_at', 'expires_at'),
        *_some(models.LongText, 'document'))
    _table(
        'findings',
        sa.Column('subject', models.short_text(255), primary_key=True),
        sa.Column('kind', models.short_text(32), primary_key=True),
        *_some(sa.Double, 'found_at'),
        *_some(models.LongText, 'document'))
    _table(
        'topology_planes',
        sa.Column('name', models.short_text(255), primary_key=True),
        *_some(models.LongText, 'document'),
        *_some(sa.BigInteger, 'generation'),
        *_some(sa.Double, 'changed_at'))


def _operators() -> None:
    _table(
        'drains',
        sa.Column('host', models.short_text(255), primary_key=True),
        *_some(sa.Text, 'reason'),
        *_some(sa.Double, 'drained_at'))
    _table(
        'changes',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=True),
        *_some(sa.Double, 'changed_at'),
        *_some(models.short_text(255), 'who'),
        *_some(models.short_text(320), 'what'),
        *_some(sa.Text, 'before', 'after'))
    _table(
        'projects',
        sa.Column('project_id', models.short_text(255), primary_key=True),
        *_some(sa.Integer, 'priority_class'),
        *_some(sa.Double, 'weight', 'debt_bytes'))
    _table(
        'settings',
        sa.Column('name', models.short_text(64), primary_key=True),
        *_some(sa.Text, 'value'))
