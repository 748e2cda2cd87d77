# SPDX-License-Identifier: Apache-2.0

"""Coflows as tenants and operators see and change them, and their events."""

from typing import Annotated
from typing import Literal

import msgspec

from virtco.wire import fields
from virtco.wire import host
from virtco.wire import operation

State = Literal['registered', 'planned', 'active', 'done', 'retired']


class PlannedPort(operation.Response, frozen=True, kw_only=True):
    """The port that decides the planned completion time.

    :ivar level: ``host``, ``rack``, ``pair`` or ``vm``.
    :ivar port: name of the host or switch, or the cap of a VM.
    :ivar direction: ``egress``, ``ingress``, ``up`` or ``down``.
    """

    level: str
    port: str
    direction: str


class Bottleneck(operation.Response, frozen=True, kw_only=True):
    """The port, or the cap of a VM, at which a coflow waits longest.

    :ivar host: host of the port.
    :ivar direction: ``egress`` or ``ingress``.
    :ivar busy_s: time until the port has served the coflow and those before
        it.
    :ivar capped_vm: the instance whose cap it is; null: it is the host's port.
    """

    host: str
    direction: str
    busy_s: float | None
    capped_vm: str | None = None


class Member(operation.Response, frozen=True, kw_only=True):
    """A VM of the coflow's group.

    :ivar row: row of the matrix.
    :ivar instance_uuid: null: no server was launched for the row yet.
    :ivar display_name: name of the server.
    :ivar state: vacant, planned, reserved or running.
    :ivar host: host that it is on, or is being built on; null: none, or
        hidden.
    :ivar planned_host: host in the plan; null: none, or hidden.
    :ivar expires_at: end of a reservation, in seconds since the epoch.
    """

    row: int
    instance_uuid: str | None
    display_name: str | None
    state: str
    host: str | None
    planned_host: str | None
    expires_at: float | None


class HostClass(host.ClassRates, frozen=True, kw_only=True):
    """The class of a coflow on one of its hosts.

    :ivar host: name of the host.
    """

    host: str


class Event(operation.Response, frozen=True, kw_only=True):
    """Something that a tenant should know of a group.

    :ivar at: time, in seconds since the epoch.
    :ivar kind: such as ``hint_ignored``.
    :ivar project_id: project of the group.
    :ivar group_name: name of the group.
    :ivar group: id of the group.
    :ivar instance_uuid: server that it is about.
    :ivar detail: reason, as a sentence.
    """

    at: float
    kind: str
    project_id: str
    group_name: str | None
    group: str | None
    instance_uuid: str | None
    detail: str


class Events(operation.Response, frozen=True):
    """The latest events.

    :ivar events: the newest first.
    """

    events: list[Event]


class Coflow(operation.Response, frozen=True, kw_only=True, gc=False):
    """A coflow and its progress.

    The fields stand in the order of its life: the hint, the plan, the hosts,
    the classes, the progress, and the planned beside the measured time.

    :ivar id: id of the coflow; of a registered one: ``virtco:tm_ref``.
    :ivar name: name of the coflow.
    :ivar project_id: project of the coflow.
    :ivar group: id of its group.
    :ivar group_name: name of its group.
    :ivar state: in the life of the coflow.
    :ivar why: planned and measured completion time and the reason of the end,
        in one line.
    :ivar dst_port: TCP or UDP port that tells its packets from others.
    :ivar n_vms: rows of the matrix.
    :ivar n_flows: pairs of VMs with bytes.
    :ivar size_bytes: bytes of an iteration.
    :ivar iterations: how often it is sent; 0: no end is known.
    :ivar period_s: between beginnings, by the hint.
    :ivar compute_s: between an end and the next beginning, by the hint.
    :ivar order: order in which its pairs are served, by the hint.
    :ivar rank_hint: whether rows are given to VMs by the planner.
    :ivar deadline: time, in seconds since the epoch.
    :ivar expires: time until which an announced coflow waits.
    :ivar lower_bound_s: ``cct_s`` is at least that in ``bound_scope``, where
        the group has no other coflow.
    :ivar bound_scope: placements that ``lower_bound_s`` and ``gap`` cover,
        such as any placement under these constraints; null where there is no
        bound.
    :ivar gap: distance of the group's plan from the bound, as a fraction.
    :ivar planned_bottleneck: port that decides ``cct_s``.
    :ivar plan_notes: limits and compromises of the plan, in one line; empty
        where hosts are hidden.
    :ivar promise: ``yes`` or ``no``, then ``kept`` or ``missed``.
    :ivar hosts: host of each VM, null for a VM on none; empty where hosts are
        hidden.
    :ivar n_elsewhere: VMs that are not where they were planned.
    :ivar members: VMs of its group; only of one coflow by itself.
    :ivar priority_class: the lowest is served first.
    :ivar weight: share beside other coflows.
    :ivar in_debt: whether its project owes bytes, so that it comes last.
    :ivar rank: in the order of service, 0 is the first.
    :ivar rate_bps: rate that it is allocated now.
    :ivar classes: its class on each host; empty where hosts are hidden; only
        of one coflow by itself.
    :ivar bottleneck: port at which it waits now.
    :ivar n_before: coflows that are served there before it.
    :ivar waits_for: their ids; only of one coflow by itself.
    :ivar iteration: number of the iteration that is under way, or was the
        last, from 0.
    :ivar created: time of the plan or of the announcement, in seconds since
        the epoch.
    :ivar arrival: arrival of the iteration, in seconds since the epoch.
    :ivar sent_bytes: counted in this iteration.
    :ivar remaining_bytes: bytes of this iteration that are not sent.
    :ivar predicted_end: time, in seconds since the epoch.
    :ivar first_byte: time, in seconds since the epoch.
    :ivar last_byte: time, in seconds since the epoch.
    :ivar ended: time, in seconds since the epoch.
    :ivar measured_period_s: between beginnings, as counted.
    :ivar counted_compute_s: between an end and the next beginning, as
        counted.
    :ivar cct_s: planned completion time.
    :ivar measured_cct_s: completion time, as counted.
    :ivar measured_cct_error_s: largest error of ``measured_cct_s``.
    :ivar warnings: number of events about its group.
    :ivar events: about its group; only of one coflow by itself.
    """

    id: str
    name: str
    project_id: str
    group: str | None
    group_name: str | None
    state: str
    why: str
    dst_port: int | None
    n_vms: int
    n_flows: int
    size_bytes: float
    iterations: int
    period_s: float | None
    compute_s: float | None
    order: str | None
    rank_hint: bool
    deadline: float | None
    expires: float | None
    lower_bound_s: float | None
    bound_scope: str | None
    gap: float | None
    planned_bottleneck: PlannedPort | None
    plan_notes: str
    promise: Literal['yes', 'no', 'kept', 'missed'] | None
    hosts: list[str | None]
    n_elsewhere: int
    members: list[Member] | msgspec.UnsetType = msgspec.UNSET
    priority_class: int
    weight: float
    in_debt: bool
    rank: int | None
    rate_bps: float
    classes: list[HostClass] | msgspec.UnsetType = msgspec.UNSET
    bottleneck: Bottleneck | None | msgspec.UnsetType = msgspec.UNSET
    n_before: int | None | msgspec.UnsetType = msgspec.UNSET
    waits_for: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    iteration: int
    created: float | None = None
    arrival: float | None
    sent_bytes: float
    remaining_bytes: float
    predicted_end: float | None
    first_byte: float | None
    last_byte: float | None
    ended: float | None
    measured_period_s: float | None
    counted_compute_s: float | None
    cct_s: float | None
    measured_cct_s: float | None
    measured_cct_error_s: float | None
    warnings: int
    events: list[Event] | msgspec.UnsetType = msgspec.UNSET


class Coflows(operation.Response, frozen=True):
    """A list of coflows.

    :ivar coflows: coflows of the selected projects and state.
    """

    coflows: list[Coflow]


class Registration(operation.Request, frozen=True, kw_only=True):
    """A matrix to keep; its id is the hint ``virtco:tm_ref``.

    :ivar name: name of the coflow.
    :ivar tm: matrix as for ``virtco:tm``, as JSON or as its text.
    :ivar project_id: project of the coflow; the caller's own where it is not
        given.
    """

    name: fields.Name
    tm: fields.Matrix
    project_id: fields.Name | None = None


class Announcement(operation.Request, frozen=True, kw_only=True):
    """A coflow over the VMs of a group that runs.

    :ivar name: name of the coflow.
    :ivar tm: matrix as for ``virtco:tm``, over the rows of the group.
    :ivar expires_s: how long it waits for its bytes.
    """

    name: fields.Name
    tm: fields.Matrix
    expires_s: Annotated[float, msgspec.Meta(gt=0, le=7 * 86400)] = 3600.0


class CoflowChange(operation.Request, frozen=True, kw_only=True):
    """Fields of a coflow to change; at least one.

    :ivar state: ``done``, to declare that it is.
    :ivar priority_class: the lowest is served first.
    :ivar weight: share beside other coflows.
    """

    state: Literal['done'] | msgspec.UnsetType = msgspec.UNSET
    priority_class: fields.PriorityClass | msgspec.UnsetType = msgspec.UNSET
    weight: fields.Weight | msgspec.UnsetType = msgspec.UNSET


#: Coflows of an answer: 1,000 take 18 ms of a processor with SQLite, and 64
#: with MariaDB.
MOST_LISTED = 500


class CoflowQuery(fields.ProjectQuery, frozen=True, kw_only=True):
    """Selection of coflows.

    :ivar project_id: project of the coflows; where it is not given, the
        caller's own, or for an operator all projects.
    :ivar state: state of the coflows that are meant; any where it is not
        given.
    :ivar retired: false to leave retired coflows out where no state is
        given.
    :ivar server: name of a server of the coflows' group; any where it is not
        given.
    :ivar limit: most coflows of the answer, which are the newest.
    :ivar marker: id of a coflow; only older ones are meant. The first of an
        answer is the marker of the next one.
    """

    state: State | None = None
    retired: bool = True
    server: fields.Asked | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_LISTED)] = MOST_LISTED
    marker: fields.Asked | None = None


LIST = operation.Operation(
    'listCoflows', 'GET', '/v1/coflows', Coflows,
    'List coflows and how far they are.', query=CoflowQuery)
REGISTER = operation.Operation(
    'registerCoflow', 'POST', '/v1/coflows', Coflow,
    'Register a matrix; its id is the hint virtco:tm_ref.',
    body=Registration, status=201, conflict=operation.OVERTAKEN)
SHOW = operation.Operation(
    'showCoflow', 'GET', '/v1/coflows/{coflow_id}', Coflow,
    'Show a coflow, the VMs of its group and its events.')
CHANGE = operation.Operation(
    'changeCoflow', 'PATCH', '/v1/coflows/{coflow_id}', Coflow,
    'Declare a coflow done, or set its class or weight.', body=CoflowChange,
    conflict=operation.OVERTAKEN)
DELETE = operation.Operation(
    'deleteCoflow', 'DELETE', '/v1/coflows/{coflow_id}', operation.NOTHING,
    'Forget a registered matrix, or give up a coflow; its VMs stay.',
    status=204, conflict=operation.OVERTAKEN)
ANNOUNCE = operation.Operation(
    'announceCoflow', 'POST', '/v1/groups/{group}/coflows', Coflows,
    'Announce a coflow over the VMs of a group that runs.',
    body=Announcement, query=fields.ProjectQuery, status=201,
    conflict=operation.OVERTAKEN)
EVENTS = operation.Operation(
    'listEvents', 'GET', '/v1/events', Events,
    'List events: ignored hints, other hosts, expiries.',
    query=fields.ProjectQuery)
