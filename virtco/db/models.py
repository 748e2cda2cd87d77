# SPDX-License-Identifier: Apache-2.0

"""Tables of the controller.

Portable SQL only: SQLite embedded, PostgreSQL and MariaDB in production.
Times are seconds since the epoch, sizes bytes, rates bits per second.
"""

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql
from sqlalchemy.ext import hybrid

from virtco.model import states

# MariaDB's TEXT ends at 64 KB, the others have one kind without an end.
LongText = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
LongBytes = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql',
                                          'mariadb')


def short_text(length: int) -> sa.String:
    """Type of a column for names, ids and words, compared as bytes.

    MariaDB has a collation per table instead, see
    :mod:`virtco.db.collation`.
    """
    return sa.String(length).with_variant(
        sa.String(length, collation='C'), 'postgresql')


class Base(orm.DeclarativeBase):
    pass


class Cluster(Base):
    """One row: the generation of all reservations together.

    A plan is committed only if this is still what its snapshot saw.
    """

    __tablename__ = 'cluster'

    id: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, primary_key=True, autoincrement=False)
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    #: From which ids are made that tell nothing to those who do not have it.
    secret: orm.Mapped[str] = orm.mapped_column(
        short_text(64), default='')


class Group(Base):
    """VMs with one or more coflows over them.

    ``live_key`` is empty while the group lives and its id afterwards, so that
    a name is unique among the living and free again after that.
    """

    __tablename__ = 'groups'
    __table_args__ = (
        sa.UniqueConstraint('project_id', 'name', 'live_key',
                            name='uniq_groups_project_name'),)

    id: orm.Mapped[str] = orm.mapped_column(short_text(36), primary_key=True)
    project_id: orm.Mapped[str] = orm.mapped_column(short_text(255))
    name: orm.Mapped[str] = orm.mapped_column(short_text(255))
    live_key: orm.Mapped[str] = orm.mapped_column(short_text(36), default='')
    n_vms: orm.Mapped[int] = orm.mapped_column(sa.Integer)
    created_at: orm.Mapped[float] = orm.mapped_column(sa.Double)
    retired_at: orm.Mapped[float | None] = orm.mapped_column(
        sa.Double, index=True)
    bottleneck: orm.Mapped[str | None] = orm.mapped_column(short_text(520))
    cct_s: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    lower_bound_s: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    gap: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    objective_s: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    method: orm.Mapped[str] = orm.mapped_column(short_text(255), default='')
    why: orm.Mapped[str] = orm.mapped_column(sa.Text, default='')
    app: orm.Mapped[str] = orm.mapped_column(
        short_text(255), default='')


class Member(Base):
    """One row of a group's matrices and the VM that fills it.

    :ivar planned_host: of the last plan; ``host`` may be another one once
        Nova has built the VM.
    :ivar event_at: when Nova sent the latest event that was applied.
    :ivar placed_at: when it was reserved on its host or built there.
    :ivar room_vcpus: what the host had for members when it was reserved, as
        far as Nova showed, like the two columns after it.
    """

    __tablename__ = 'members'

    group_id: orm.Mapped[str] = orm.mapped_column(
        sa.ForeignKey('groups.id', ondelete='CASCADE'), primary_key=True)
    row_index: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, primary_key=True, autoincrement=False)
    instance_uuid: orm.Mapped[str | None] = orm.mapped_column(
        short_text(36), unique=True)
    display_name: orm.Mapped[str] = orm.mapped_column(
        short_text(255), default='')
    reservation_id: orm.Mapped[str] = orm.mapped_column(
        short_text(255), default='')
    state: orm.Mapped[str] = orm.mapped_column(short_text(16))
    host: orm.Mapped[str | None] = orm.mapped_column(
        short_text(255), index=True)
    planned_host: orm.Mapped[str | None] = orm.mapped_column(short_text(255))
    event_at: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    expires_at: orm.Mapped[float | None] = orm.mapped_column(
        sa.Double, index=True)
    vcpus: orm.Mapped[float] = orm.mapped_column(sa.Double, default=0.0)
    memory_mb: orm.Mapped[float] = orm.mapped_column(sa.Double, default=0.0)
    disk_gb: orm.Mapped[float] = orm.mapped_column(sa.Double, default=0.0)
    placed_at: orm.Mapped[float | None] = orm.mapped_column(
        sa.Double, index=True)
    room_vcpus: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    room_memory_mb: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    room_disk_gb: orm.Mapped[float | None] = orm.mapped_column(sa.Double)


class Claim(Base):
    """Room that a VM takes on a host beside the rows of members.

    :ivar is_member: a member on its way to the host. Otherwise a VM without a
        group that came lately, which Nova's numbers may lack.
    """

    __tablename__ = 'claims'

    instance_uuid: orm.Mapped[str] = orm.mapped_column(
        short_text(36), primary_key=True)
    host: orm.Mapped[str] = orm.mapped_column(short_text(255), index=True)
    is_member: orm.Mapped[bool] = orm.mapped_column(sa.Boolean)
    vcpus: orm.Mapped[float] = orm.mapped_column(sa.Double)
    memory_mb: orm.Mapped[float] = orm.mapped_column(sa.Double)
    disk_gb: orm.Mapped[float] = orm.mapped_column(sa.Double)
    expires_at: orm.Mapped[float] = orm.mapped_column(sa.Double, index=True)


class Coflow(Base):
    """One matrix. Without a group it is registered for later use.

    :ivar iterations: how often the matrix is sent, 0 = without end.
    :ivar iteration: the one that is or was under way, from 1; 0 before.
    :ivar period_s: hinted seconds from one iteration's start to the next's.
    :ivar compute_s: hinted seconds of an iteration without traffic.
    :ivar served_by: the order that the tenant chose, None = by what it hints.
    :ivar rank_hint: whether the tenant wants an order of ranks proposed.
    :ivar is_estimated: nobody said the sizes; they follow what is counted.
    :ivar cct_s: as planned.
    :ivar expires_at: of one that was announced for VMs that ran already, when
        it is given up; None for those of the group's hint.
    :ivar deadline_at: by when the tenant wants all bytes sent, None = never
        said.
    :ivar is_promised: whether that was promised at the launch.
    :ivar first_byte_at: of the iteration under way or the last one, like the
        three columns after it.
    :ivar measured_cct_s: from the first byte to the last one so far.
    :ivar measured_cct_error_s: the true value is at most so far away.
    """

    __tablename__ = 'coflows'

    id: orm.Mapped[str] = orm.mapped_column(short_text(36), primary_key=True)
    group_id: orm.Mapped[str | None] = orm.mapped_column(
        sa.ForeignKey('groups.id', ondelete='CASCADE'), index=True)
    project_id: orm.Mapped[str] = orm.mapped_column(
        short_text(255), index=True)
    name: orm.Mapped[str] = orm.mapped_column(short_text(255))
    position: orm.Mapped[int] = orm.mapped_column(sa.Integer, default=0)
    state: orm.Mapped[str] = orm.mapped_column(short_text(16), index=True)
    n_vms: orm.Mapped[int] = orm.mapped_column(sa.Integer)
    n_flows: orm.Mapped[int] = orm.mapped_column(sa.Integer)
    size_bytes: orm.Mapped[float] = orm.mapped_column(sa.Double)
    dst_port: orm.Mapped[int | None] = orm.mapped_column(sa.Integer)
    iterations: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, default=1)
    iteration: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, default=0)
    period_s: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    compute_s: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    served_by: orm.Mapped[str | None] = orm.mapped_column(short_text(16))
    rank_hint: orm.Mapped[bool] = orm.mapped_column(
        sa.Boolean, default=False)
    is_estimated: orm.Mapped[bool] = orm.mapped_column(
        sa.Boolean, default=False)
    tm: orm.Mapped[str] = orm.mapped_column(LongText)
    progress: orm.Mapped[str] = orm.mapped_column(LongText, default='[]')
    sent_bytes: orm.Mapped[float] = orm.mapped_column(
        sa.Double, default=0.0)
    priority_class: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, default=0)
    weight: orm.Mapped[float] = orm.mapped_column(sa.Double, default=1.0)
    cct_s: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    why: orm.Mapped[str] = orm.mapped_column(sa.Text, default='')
    created_at: orm.Mapped[float] = orm.mapped_column(sa.Double)
    arrival: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    ended_at: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    expires_at: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    deadline_at: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    is_promised: orm.Mapped[bool] = orm.mapped_column(
        sa.Boolean, default=False)
    first_byte_at: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    last_byte_at: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    measured_cct_s: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    measured_cct_error_s: orm.Mapped[float | None] = orm.mapped_column(
        sa.Double)

    @hybrid.hybrid_property
    def is_live(self) -> bool:
        """Whether it waits for its VMs, sends, or may send once more."""
        return self.state in states.LIVE_STATES or (
            self.state == states.CoflowState.DONE
            and (self.iterations == 0 or self.iteration < self.iterations))

    @is_live.inplace.expression
    @classmethod
    def _is_live(cls) -> sa.ColumnElement[bool]:
        # No IN: it takes a list, which many rows at once do not allow.
        return sa.or_(
            *(cls.state == state for state in states.LIVE_STATES),
            sa.and_(cls.state == states.CoflowState.DONE,
                    sa.or_(cls.iterations == 0,
                           cls.iteration < cls.iterations)))


class ProfileHour(Base):
    """What the pairs of VMs of a group sent in one hour.

    :ivar hour: since the epoch.
    :ivar app: of the group, or empty.
    :ivar pairs: as :mod:`virtco.profiles.pairs` encodes them.
    """

    __tablename__ = 'profile_hours'

    group_id: orm.Mapped[str] = orm.mapped_column(
        short_text(36), primary_key=True)
    hour: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, primary_key=True, autoincrement=False, index=True)
    project_id: orm.Mapped[str] = orm.mapped_column(
        short_text(255), index=True)
    group_name: orm.Mapped[str] = orm.mapped_column(short_text(255))
    app: orm.Mapped[str] = orm.mapped_column(short_text(255), default='')
    n_vms: orm.Mapped[int] = orm.mapped_column(sa.Integer)
    pairs: orm.Mapped[str] = orm.mapped_column(LongText)


class Placement(Base):
    """The last question of Nova about an instance, and the answer."""

    __tablename__ = 'placements'

    instance_uuid: orm.Mapped[str] = orm.mapped_column(
        short_text(36), primary_key=True)
    project_id: orm.Mapped[str] = orm.mapped_column(short_text(255))
    group_id: orm.Mapped[str | None] = orm.mapped_column(
        short_text(36), index=True)
    fingerprint: orm.Mapped[str] = orm.mapped_column(short_text(64))
    answer: orm.Mapped[str] = orm.mapped_column(LongText)
    updated_at: orm.Mapped[float] = orm.mapped_column(sa.Double, index=True)


class Decision(Base):
    """The problem of a group's last plan, for who asks what decided.

    :ivar document: as :mod:`virtco.place.decisions` packs it.
    """

    __tablename__ = 'decisions'

    group_id: orm.Mapped[str] = orm.mapped_column(
        short_text(36), primary_key=True)
    document: orm.Mapped[bytes] = orm.mapped_column(LongBytes)


class Host(Base):
    """What an edge module last said."""

    __tablename__ = 'hosts'

    host: orm.Mapped[str] = orm.mapped_column(
        short_text(255), primary_key=True)
    first_seen: orm.Mapped[float] = orm.mapped_column(sa.Double)
    last_report: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    report: orm.Mapped[str] = orm.mapped_column(LongText, default='{}')
    minors: orm.Mapped[str] = orm.mapped_column(LongText, default='{}')


class Reading(Base):
    """One of the last measurements from one host to another.

    The newest one is the pair's rate.

    :ivar slot: its place among a fixed number of them; the next measurement
        takes the place of the oldest one.
    """

    __tablename__ = 'readings'

    src: orm.Mapped[str] = orm.mapped_column(
        short_text(255), primary_key=True)
    dst: orm.Mapped[str] = orm.mapped_column(
        short_text(255), primary_key=True)
    slot: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, primary_key=True, autoincrement=False)
    rate_bps: orm.Mapped[float] = orm.mapped_column(sa.Double)
    lower_bound: orm.Mapped[bool] = orm.mapped_column(sa.Boolean)
    loss: orm.Mapped[float] = orm.mapped_column(sa.Double)
    rtt_s: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    rtt_median_s: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    rtt_p99_s: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    method: orm.Mapped[str] = orm.mapped_column(short_text(64))
    measured_at: orm.Mapped[float] = orm.mapped_column(sa.Double, index=True)


class Event(Base):
    """Something an operator or a tenant should be able to read later."""

    __tablename__ = 'events'
    __table_args__ = (
        sa.Index('ix_events_project_group', 'project_id', 'group_name'),)

    id: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, primary_key=True, autoincrement=True)
    project_id: orm.Mapped[str] = orm.mapped_column(
        short_text(255), index=True)
    group_name: orm.Mapped[str] = orm.mapped_column(
        short_text(255), default='')
    group_id: orm.Mapped[str | None] = orm.mapped_column(
        short_text(36), index=True)
    instance_uuid: orm.Mapped[str] = orm.mapped_column(
        short_text(36), default='', index=True)
    kind: orm.Mapped[str] = orm.mapped_column(short_text(32))
    detail: orm.Mapped[str] = orm.mapped_column(sa.Text)
    created_at: orm.Mapped[float] = orm.mapped_column(sa.Double)


class Project(Base):
    """What an operator gave a project, with which its coflows begin, and
    what it owes for sending more than it claimed.
    """

    __tablename__ = 'projects'

    project_id: orm.Mapped[str] = orm.mapped_column(
        short_text(255), primary_key=True)
    priority_class: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, default=0)
    weight: orm.Mapped[float] = orm.mapped_column(sa.Double, default=1.0)
    debt_bytes: orm.Mapped[float] = orm.mapped_column(
        sa.Double, default=0.0)


class Setting(Base):
    """A run-time choice of the operator."""

    __tablename__ = 'settings'

    name: orm.Mapped[str] = orm.mapped_column(
        short_text(64), primary_key=True)
    value: orm.Mapped[str] = orm.mapped_column(sa.Text)


class Advice(Base):
    """A move that was proposed; JSON of :mod:`virtco.place.adviser`."""

    __tablename__ = 'advice'

    instance_uuid: orm.Mapped[str] = orm.mapped_column(
        short_text(36), primary_key=True)
    document: orm.Mapped[str] = orm.mapped_column(LongText)


class Drain(Base):
    """A host that takes no new group."""

    __tablename__ = 'drains'

    host: orm.Mapped[str] = orm.mapped_column(
        short_text(255), primary_key=True)
    reason: orm.Mapped[str] = orm.mapped_column(sa.Text)
    drained_at: orm.Mapped[float] = orm.mapped_column(sa.Double)


class Change(Base):
    """What an operator changed."""

    __tablename__ = 'changes'

    id: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, primary_key=True, autoincrement=True)
    changed_at: orm.Mapped[float] = orm.mapped_column(sa.Double)
    who: orm.Mapped[str] = orm.mapped_column(short_text(255))
    what: orm.Mapped[str] = orm.mapped_column(short_text(320))
    before: orm.Mapped[str] = orm.mapped_column(sa.Text)
    after: orm.Mapped[str] = orm.mapped_column(sa.Text)


class Order(Base):
    """A measurement that somebody ordered, and what came of it.

    :ivar kind: check or probe, or schedule for what the leader measures by
        itself.
    :ivar state: waiting, running, done or failed.
    :ivar expires_at: no leader takes it up later.
    :ivar document: JSON of :mod:`virtco.decide.measurement_orders`.
    """

    __tablename__ = 'orders'

    id: orm.Mapped[str] = orm.mapped_column(short_text(36), primary_key=True)
    kind: orm.Mapped[str] = orm.mapped_column(short_text(16))
    state: orm.Mapped[str] = orm.mapped_column(short_text(16), index=True)
    ordered_at: orm.Mapped[float] = orm.mapped_column(sa.Double)
    expires_at: orm.Mapped[float] = orm.mapped_column(sa.Double)
    document: orm.Mapped[str] = orm.mapped_column(LongText)


class Finding(Base):
    """What a check found poor, until a later one finds it well.

    :ivar subject: host or switch.
    :ivar document: JSON of :class:`virtco.measure.preflight.Finding`.
    """

    __tablename__ = 'findings'

    subject: orm.Mapped[str] = orm.mapped_column(
        short_text(255), primary_key=True)
    kind: orm.Mapped[str] = orm.mapped_column(
        short_text(32), primary_key=True)
    found_at: orm.Mapped[float] = orm.mapped_column(sa.Double)
    document: orm.Mapped[str] = orm.mapped_column(LongText)


class TopologyPlane(Base):
    """One network's tree of switches.

    :ivar document: JSON as :mod:`virtco.topology.formats.plain` reads it.
    :ivar generation: above that of every plane before it.
    """

    __tablename__ = 'topology_planes'

    name: orm.Mapped[str] = orm.mapped_column(
        short_text(255), primary_key=True)
    document: orm.Mapped[str] = orm.mapped_column(LongText)
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    changed_at: orm.Mapped[float] = orm.mapped_column(sa.Double)


class Leader(Base):
    """One row: the scheduler that leads.

    :ivar epoch: counts how often the leadership was taken over.
    :ivar beat: counts up while the leader is there.
    :ivar name: of the leader, for the operator's eyes.
    :ivar address: ``host:port`` of its stream server.
    """

    __tablename__ = 'leader'

    id: orm.Mapped[int] = orm.mapped_column(
        sa.Integer, primary_key=True, autoincrement=False)
    epoch: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    beat: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    name: orm.Mapped[str] = orm.mapped_column(short_text(255))
    address: orm.Mapped[str] = orm.mapped_column(short_text(320))
