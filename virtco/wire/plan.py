# SPDX-License-Identifier: Apache-2.0

"""Plans without consequences, and moves of VMs that would pay."""

from typing import Annotated
from typing import Literal

import msgspec

from virtco.wire import fields
from virtco.wire import operation
from virtco.wire import placement
from virtco.wire import setting
from virtco.wire import topology


class Group(operation.Request, frozen=True, kw_only=True):
    """VMs that would be launched.

    :ivar name: name of the group.
    :ivar tm: matrix as for ``virtco:tm``; a VM for each row.
    :ivar flavor: resources that each VM takes.
    """

    name: fields.Name
    tm: fields.Matrix
    flavor: fields.Resources


class GivenHost(topology.Room, frozen=True, kw_only=True):
    """A host that takes VMs.

    :ivar host: name of the host.
    :ivar free: resources that are left on it.
    :ivar egress_bps: rate of its uplink out of the host; the known one where
        it is not given.
    :ivar ingress_bps: rate of its uplink into the host; the known one where it
        is not given.
    """

    egress_bps: fields.LinkRate | None = None
    ingress_bps: fields.LinkRate | None = None


class PlanRequest(operation.Request, frozen=True, kw_only=True):
    """Groups to plan together.

    :ivar groups: groups to plan.
    :ivar hosts: hosts that take VMs; those of Nova where none are given.
    :ivar planner: planner to choose hosts; the operator's choice where it is
        not given.
    :ivar objective: objective that the planner minimises; the operator's
        choice where it is not given.
    :ivar respect_active: whether running coflows keep their rates.
    :ivar alone: whether to plan as if no other group were in the cloud, to see
        the most that waiting could gain; given ``hosts`` keep their room.
    :ivar budget_s: time for the search, in seconds; the configured one where
        it is not given.
    :ivar seed: seed of the search.
    :ivar within: wish as in the hint ``virtco:within``.
    :ivar spread: wish as in the hint ``virtco:spread``.
    :ivar deadline: deadline as in the hint ``virtco:deadline``.
    """

    groups: Annotated[list[Group], msgspec.Meta(min_length=1,
                                                max_length=100)]
    hosts: Annotated[list[GivenHost], msgspec.Meta(
        min_length=1, max_length=10_000)] | None = None
    planner: setting.Planner | None = None
    objective: setting.Objective | None = None
    respect_active: bool = True
    alone: bool = False
    budget_s: fields.Budget | None = None
    seed: fields.Count = 0
    within: fields.LongText | None = None
    spread: fields.LongText | None = None
    deadline: str | float | None = None


class Vm(operation.Response, frozen=True):
    """Host of a VM in a plan.

    :ivar group: name of the group.
    :ivar row: row of the group's matrix.
    :ivar host: host that the plan chose.
    """

    group: str
    row: int
    host: str


class PlannedCoflow(operation.Response, frozen=True):
    """Completion time of a coflow of a plan.

    :ivar name: name of the coflow.
    :ivar cct_s: its completion time, with the coflows that run and the least
        remaining time first; null: it would not end.
    """

    name: str
    cct_s: float | None


class Delay(operation.Response, frozen=True, kw_only=True):
    """A running coflow that would end later.

    :ivar coflow_id: id of the coflow.
    :ivar before_s: time until it ends without the plan.
    :ivar after_s: time until it ends with the plan.
    :ivar name: name of the coflow; null: it is gone.
    :ivar project_id: project of the coflow.
    """

    coflow_id: str
    before_s: float | None
    after_s: float | None
    name: str | None = None
    project_id: str | None = None


class Plan(operation.Response, frozen=True, kw_only=True):
    """A plan that nobody carries out: hosts, times and bounds.

    :ivar vms: VMs of all groups.
    :ivar cct_s: time until the last of the new coflows would end if they alone
        were sent.
    :ivar coflows: the new ones.
    :ivar objective: objective that was minimised.
    :ivar objective_s: its value.
    :ivar lower_bound_s: ``cct_s`` is at least that in ``bound_scope``; it is
        0 where nothing is known.
    :ivar bound_scope: placements that ``lower_bound_s`` and ``gap`` cover: any
        placement under these constraints or, where no VM can move, this
        placement.
    :ivar gap: distance of ``cct_s`` from the bound, as a fraction.
    :ivar method: method that found the plan.
    :ivar bottleneck: port that decides ``cct_s``.
    :ivar notes: remarks on the plan.
    :ivar delays: delays of running coflows.
    :ivar deadline: whether it would be promised.
    :ivar n_hosts: hosts among which was chosen.
    :ivar seconds: duration of the search.
    """

    vms: list[Vm]
    cct_s: float | None
    coflows: list[PlannedCoflow]
    objective: str
    objective_s: float | None
    lower_bound_s: float | None
    bound_scope: str
    gap: float | None
    method: str
    bottleneck: str
    notes: list[str]
    delays: list[Delay]
    deadline: placement.Promise | None
    n_hosts: int
    seconds: float


class Move(operation.Response, frozen=True, kw_only=True):
    """A running VM that should be on another host.

    :ivar instance_uuid: id of the server.
    :ivar row: row of the matrix.
    :ivar group: id of its group.
    :ivar group_name: name of its group.
    :ivar project_id: project of the group.
    :ivar host: host that the VM is on.
    :ivar to_host: host that the VM should be on.
    :ivar saved_s: seconds that all coflows together would save.
    :ivar cost_s: seconds that the migration takes.
    :ivar cct_s: CCT of its group without the move.
    :ivar then_cct_s: CCT of its group after the move.
    :ivar at: time, in seconds since the epoch.
    :ivar reason: its host is drained, or it saves time.
    :ivar state: proposed, migrating or refused.
    """

    instance_uuid: str
    row: int
    group: str
    group_name: str
    project_id: str
    host: str
    to_host: str
    saved_s: float
    cost_s: float
    cct_s: float | None
    then_cct_s: float | None
    at: float
    reason: Literal['drain', 'saves']
    state: Literal['proposed', 'migrating', 'refused'] = 'proposed'


class Moves(operation.Response, frozen=True):
    """Moves of running VMs.

    :ivar moves: the best first, one of each group at most.
    """

    moves: list[Move]


class Look(operation.Request, frozen=True):
    """Effort of a search for moves.

    :ivar budget_s: time for the search, in seconds; the configured one
        where it is not given.
    """

    budget_s: fields.Budget | None = None


PLAN = operation.Operation(
    'plan', 'POST', '/v1/plans', Plan,
    'Plan groups that nobody launches: what would come of it.',
    body=PlanRequest, conflict='No placement is valid.')
MOVES = operation.Operation(
    'listMoves', 'GET', '/v1/advice', Moves,
    'List the moves of running VMs that were found last.')
LOOK = operation.Operation(
    'findMoves', 'POST', '/v1/advice', Moves,
    'Find moves of running VMs that would pay now.', body=Look)
