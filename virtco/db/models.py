# SPDX-License-Identifier: Apache-2.0

"""Tables of the controller.

Portable SQL only: SQLite embedded, PostgreSQL and MariaDB in production.
Times are seconds since the epoch, sizes bytes, rates bits per second.
"""

import functools
from typing import Annotated
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql
from sqlalchemy.ext import hybrid
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from virtco.model import states

# MariaDB's TEXT ends at 64 KB, the others have one kind without an end.
LongText = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
LongBytes = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql',
                                          'mariadb')


def short_text(length: int) -> sa.String:
    """Return the type of a column for text that is compared as bytes.

    MariaDB has a collation per table instead, see
    :mod:`virtco.db.collation`.
    """
    return sa.String(length).with_variant(
        sa.String(length, collation='C'), 'postgresql')


# Texts by the most characters that a column takes, in MariaDB at least.
Word = Annotated[str, mapped_column(short_text(16))]
Kind = Annotated[str, mapped_column(short_text(32))]
Id = Annotated[str, mapped_column(short_text(36))]
Key = Annotated[str, mapped_column(short_text(64))]
Name = Annotated[str, mapped_column(short_text(255))]
Address = Annotated[str, mapped_column(short_text(320))]
Port = Annotated[str, mapped_column(short_text(520))]
Text = Annotated[str, mapped_column(sa.Text())]
Document = Annotated[str, mapped_column(LongText)]
Big = Annotated[int, mapped_column(sa.BigInteger())]


class Base(orm.DeclarativeBase):
    """Base of all tables: each column has a default, or must be given."""

    type_annotation_map = {float: sa.Double(), bytes: LongBytes}

    def __init__(self, **values: Any):
        """Set every column, those that are not named to their defaults."""
        self.registry.constructor(self, **_defaults(type(self)) | values)

    def columns(self) -> dict[str, Any]:
        """Return the values of a row that is not stored yet."""
        return {name: getattr(self, name) for name in _defaults(type(self))}


@functools.cache
def _defaults(model: type[Base]) -> dict[str, Any]:
    return {column.key: column.default.arg if column.default else None
            for column in model.__table__.columns}


class Cluster(Base):
    """The only row: the generation of all reservations together.

    A plan is committed only if this is still what its snapshot saw.
    """

    __tablename__ = 'cluster'

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    generation: Mapped[Big]
    #: Key of ids that tell nothing to those who do not have it.
    secret: Mapped[Key] = mapped_column(default='')


class Group(Base):
    """VMs with one or more coflows over them.

    ``live_key`` is empty while the group lives and its id afterwards, so that
    a name is unique among the living and free again after that.
    """

    __tablename__ = 'groups'
    __table_args__ = (
        sa.UniqueConstraint('project_id', 'name', 'live_key',
                            name='uniq_groups_project_name'),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    project_id: Mapped[Name]
    name: Mapped[Name]
    live_key: Mapped[Id] = mapped_column(default='')
    n_vms: Mapped[int]
    created_at: Mapped[float]
    retired_at: Mapped[float | None] = mapped_column(index=True)
    bottleneck: Mapped[Port | None]
    cct_s: Mapped[float | None]
    lower_bound_s: Mapped[float | None]
    gap: Mapped[float | None]
    objective_s: Mapped[float | None]
    method: Mapped[Name] = mapped_column(default='')
    why: Mapped[Text] = mapped_column(default='')
    #: See :class:`virtco.objects.group_rules.Rules`.
    rules: Mapped[Text] = mapped_column(default='')
    app: Mapped[Name] = mapped_column(default='')


class Member(Base):
    """A row of a group's matrices and the VM that fills it.

    :ivar planned_host: host of the last plan; ``host`` may be another one once
        Nova has built the VM.
    :ivar event_at: time at which Nova sent the latest event that was applied.
    :ivar placed_at: time at which it was reserved on its host or built there.
    :ivar egress_cap_bps: the most that its VM sends by its flavor; None: no
        limit.
    :ivar egress_burst_bytes: bytes that it may send beyond the cap, after a
        pause.
    :ivar egress_limit_bps: the most that its VM sends by Neutron's rules for
        its ports; None: no limit, or not known.
    :ivar addresses: addresses of its VM's ports, as Nova told them, by spaces.
    :ivar room_vcpus: vCPUs that the host had for members when it was reserved,
        as far as Nova showed, like the two columns after it.
    """

    __tablename__ = 'members'

    group_id: Mapped[str] = mapped_column(
        sa.ForeignKey('groups.id', ondelete='CASCADE'), primary_key=True)
    row_index: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False)
    instance_uuid: Mapped[Id | None] = mapped_column(unique=True)
    display_name: Mapped[Name] = mapped_column(default='')
    reservation_id: Mapped[Name] = mapped_column(default='')
    state: Mapped[Word]
    host: Mapped[Name | None] = mapped_column(index=True)
    planned_host: Mapped[Name | None]
    event_at: Mapped[float | None]
    expires_at: Mapped[float | None] = mapped_column(index=True)
    vcpus: Mapped[float] = mapped_column(default=0.0)
    memory_mb: Mapped[float] = mapped_column(default=0.0)
    disk_gb: Mapped[float] = mapped_column(default=0.0)
    egress_cap_bps: Mapped[float | None]
    ingress_cap_bps: Mapped[float | None]
    egress_burst_bytes: Mapped[float] = mapped_column(default=0.0)
    ingress_burst_bytes: Mapped[float] = mapped_column(default=0.0)
    egress_limit_bps: Mapped[float | None]
    ingress_limit_bps: Mapped[float | None]
    placed_at: Mapped[float | None] = mapped_column(index=True)
    addresses: Mapped[Text | None]
    room_vcpus: Mapped[float | None]
    room_memory_mb: Mapped[float | None]
    room_disk_gb: Mapped[float | None]


class Claim(Base):
    """Room of a VM on a host that no row of a member has.

    :ivar is_member: a member on its way to the host. Otherwise a VM without a
        group that came lately; without demand once Nova's numbers have it.
    """

    __tablename__ = 'claims'

    instance_uuid: Mapped[Id] = mapped_column(primary_key=True)
    host: Mapped[Name] = mapped_column(index=True)
    is_member: Mapped[bool]
    vcpus: Mapped[float]
    memory_mb: Mapped[float]
    disk_gb: Mapped[float]
    expires_at: Mapped[float] = mapped_column(index=True)


class Coflow(Base):
    """A matrix. Without a group it is registered for later use.

    :ivar iterations: how often the matrix is sent, 0 = without end.
    :ivar iteration: the one that is or was under way, from 1; 0 before.
    :ivar period_s: hinted seconds from one iteration's start to the next's.
    :ivar compute_s: hinted seconds of an iteration without traffic.
    :ivar served_by: the order that the tenant chose, None = by what it hints.
    :ivar rank_hint: whether the tenant wants an order of ranks proposed.
    :ivar is_estimated: nobody said the sizes; they follow what is counted.
    :ivar cct_s: planned CCT.
    :ivar expires_at: time at which a coflow that was announced for running VMs
        is given up; None for those of the group's hint.
    :ivar deadline_at: time by which the tenant wants all bytes sent, None =
        never said.
    :ivar is_promised: whether that was promised at the launch.
    :ivar first_byte_at: time of the first byte of the iteration under way or
        the last one, like the three columns after it.
    :ivar measured_cct_s: time from the first byte to the last one so far.
    :ivar measured_cct_error_s: the true value is at most so far away.
    """

    __tablename__ = 'coflows'
    __table_args__ = (
        sa.Index('ix_coflows_age', 'created_at', 'position'),
        sa.Index('ix_coflows_project_age', 'project_id', 'created_at',
                 'position'))

    id: Mapped[Id] = mapped_column(primary_key=True)
    group_id: Mapped[str | None] = mapped_column(
        sa.ForeignKey('groups.id', ondelete='CASCADE'), index=True)
    project_id: Mapped[Name]
    name: Mapped[Name]
    position: Mapped[int] = mapped_column(default=0)
    state: Mapped[Word] = mapped_column(index=True)
    n_vms: Mapped[int]
    n_flows: Mapped[int]
    size_bytes: Mapped[float]
    dst_port: Mapped[int | None]
    iterations: Mapped[int] = mapped_column(default=1)
    iteration: Mapped[int] = mapped_column(default=0)
    period_s: Mapped[float | None]
    compute_s: Mapped[float | None]
    served_by: Mapped[Word | None]
    rank_hint: Mapped[bool] = mapped_column(default=False)
    is_estimated: Mapped[bool] = mapped_column(default=False)
    tm: Mapped[Document]
    progress: Mapped[Document] = mapped_column(default='[]')
    sent_bytes: Mapped[float] = mapped_column(default=0.0)
    priority_class: Mapped[int] = mapped_column(default=0)
    weight: Mapped[float] = mapped_column(default=1.0)
    cct_s: Mapped[float | None]
    why: Mapped[Text] = mapped_column(default='')
    created_at: Mapped[float]
    arrival: Mapped[float | None]
    ended_at: Mapped[float | None]
    expires_at: Mapped[float | None]
    deadline_at: Mapped[float | None] = mapped_column(index=True)
    is_promised: Mapped[bool] = mapped_column(default=False)
    first_byte_at: Mapped[float | None]
    last_byte_at: Mapped[float | None]
    measured_cct_s: Mapped[float | None]
    measured_cct_error_s: Mapped[float | None]

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
    """Bytes that the pairs of VMs of a group sent in one hour.

    :ivar hour: hour since the epoch.
    :ivar app: application of the group, or empty.
    :ivar pairs: pairs as :mod:`virtco.profiles.pairs` encodes them.
    """

    __tablename__ = 'profile_hours'

    group_id: Mapped[Id] = mapped_column(primary_key=True)
    hour: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, index=True)
    project_id: Mapped[Name] = mapped_column(index=True)
    group_name: Mapped[Name] = mapped_column(index=True)
    app: Mapped[Name] = mapped_column(default='')
    n_vms: Mapped[int]
    pairs: Mapped[Document]


class Placement(Base):
    """The last question of Nova about an instance, and the answer."""

    __tablename__ = 'placements'

    instance_uuid: Mapped[Id] = mapped_column(primary_key=True)
    project_id: Mapped[Name]
    group_id: Mapped[Id | None] = mapped_column(index=True)
    fingerprint: Mapped[Key]
    answer: Mapped[Document]
    updated_at: Mapped[float] = mapped_column(index=True)


class Decision(Base):
    """Problem of a group's last plan, kept for explanations.

    :ivar document: document as :mod:`virtco.place.decisions` packs it.
    """

    __tablename__ = 'decisions'

    group_id: Mapped[Id] = mapped_column(primary_key=True)
    document: Mapped[bytes]


class Host(Base):
    """The last report of an edge module."""

    __tablename__ = 'hosts'

    host: Mapped[Name] = mapped_column(primary_key=True)
    first_seen: Mapped[float]
    last_report: Mapped[float | None]
    report: Mapped[Document] = mapped_column(default='{}')
    minors: Mapped[Document] = mapped_column(default='{}')


class Reading(Base):
    """A recent measurement from one host to another.

    The newest one is the pair's rate.

    :ivar slot: its place among a fixed number of them; the next measurement
        takes the place of the oldest one.
    """

    __tablename__ = 'readings'

    src: Mapped[Name] = mapped_column(primary_key=True)
    dst: Mapped[Name] = mapped_column(primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rate_bps: Mapped[float]
    lower_bound: Mapped[bool]
    loss: Mapped[float]
    rtt_s: Mapped[float | None]
    rtt_median_s: Mapped[float | None]
    rtt_p99_s: Mapped[float | None]
    method: Mapped[Key]
    measured_at: Mapped[float] = mapped_column(index=True)


class Event(Base):
    """Something an operator or a tenant should be able to read later."""

    __tablename__ = 'events'
    __table_args__ = (
        sa.Index('ix_events_project_age', 'project_id', 'id'),
        sa.Index('ix_events_project_group', 'project_id', 'group_name'))

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    project_id: Mapped[Name]
    group_name: Mapped[Name] = mapped_column(default='')
    group_id: Mapped[Id | None] = mapped_column(index=True)
    instance_uuid: Mapped[Id] = mapped_column(default='', index=True)
    kind: Mapped[Kind]
    detail: Mapped[Text]
    created_at: Mapped[float] = mapped_column(index=True)


class Project(Base):
    """Priority class, weight and debt of a project.

    :ivar debt_bytes: sent beyond the hints of its coflows, not yet paid.
    """

    __tablename__ = 'projects'

    project_id: Mapped[Name] = mapped_column(primary_key=True)
    priority_class: Mapped[int] = mapped_column(default=0)
    weight: Mapped[float] = mapped_column(default=1.0)
    debt_bytes: Mapped[float] = mapped_column(default=0.0)


class Setting(Base):
    """A run-time choice of the operator."""

    __tablename__ = 'settings'

    name: Mapped[Key] = mapped_column(primary_key=True)
    value: Mapped[Text]


class Advice(Base):
    """A move that was proposed; JSON of :mod:`virtco.place.adviser`."""

    __tablename__ = 'advice'

    instance_uuid: Mapped[Id] = mapped_column(primary_key=True)
    document: Mapped[Document]


class Drain(Base):
    """A host that takes no new group."""

    __tablename__ = 'drains'

    host: Mapped[Name] = mapped_column(primary_key=True)
    reason: Mapped[Text]
    drained_at: Mapped[float]


class Change(Base):
    """A change that an operator made."""

    __tablename__ = 'changes'

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    changed_at: Mapped[float]
    who: Mapped[Name]
    what: Mapped[Address]
    before: Mapped[Text]
    after: Mapped[Text]


class Order(Base):
    """A measurement that somebody ordered, and its result.

    :ivar kind: check or probe, or schedule for what the leader measures by
        itself.
    :ivar state: waiting, running, done or failed.
    :ivar expires_at: no leader takes it up later.
    :ivar document: JSON of :mod:`virtco.decide.measurement_orders`.
    """

    __tablename__ = 'orders'

    id: Mapped[Id] = mapped_column(primary_key=True)
    kind: Mapped[Word]
    state: Mapped[Word] = mapped_column(index=True)
    ordered_at: Mapped[float]
    expires_at: Mapped[float]
    document: Mapped[Document]


class Finding(Base):
    """A poor host or switch, until a later check finds it well.

    :ivar subject: host or switch.
    :ivar document: JSON of :class:`virtco.wire.check.Finding`.
    """

    __tablename__ = 'findings'

    subject: Mapped[Name] = mapped_column(primary_key=True)
    kind: Mapped[Kind] = mapped_column(primary_key=True)
    found_at: Mapped[float]
    document: Mapped[Document]


class TopologyPlane(Base):
    """The tree of switches of one network.

    :ivar document: JSON as :mod:`virtco.topology.formats.plain` reads it.
    :ivar generation: above that of every plane before it.
    """

    __tablename__ = 'topology_planes'

    name: Mapped[Name] = mapped_column(primary_key=True)
    document: Mapped[Document]
    generation: Mapped[Big]
    changed_at: Mapped[float]


class Leader(Base):
    """The only row: the scheduler that leads.

    :ivar epoch: counts how often the leadership was taken over.
    :ivar beat: counts up while the leader is there.
    :ivar name: name of the leader, for the operator's eyes.
    :ivar address: ``host:port`` of its stream server.
    """

    __tablename__ = 'leader'

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[Big]
    beat: Mapped[Big]
    name: Mapped[Name]
    address: Mapped[Address]
