# SPDX-License-Identifier: Apache-2.0

"""Groups arrive in a datacentre, are placed, and run their coflows.

The planner and the scheduler are those of the controller.
"""

import collections
from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from virtco import exception
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.scheduling import fabric as fabric_model
from virtco.solver import budget
from virtco.solver import together
from virtco_lab.placement import baselines
from virtco_lab.sim import demands as demand_model
from virtco_lab.sim import groups as group_model
from virtco_lab.sim import schemes
from virtco_lab.sim import simulation

#: Budget of the planner for each group, in seconds of a counter of work
#: (:mod:`virtco.solver.budget`), so that a plan does not depend on the
#: machine. Groups that are placed together share the sum of theirs.
BUDGET_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class CoflowResult:
    """Result of one coflow.

    :ivar arrival_s: arrival of its group.
    :ivar start_s: time at which its group had been placed; later than the
        arrival only where it had to wait for room.
    :ivar cct_s: time from start to end.
    :ivar alone_s: t of VirtCO Eq. (3) at its placement: no schedule is
        faster.
    :ivar predicted_s: the planner's forecast of cct_s.
    """

    group: str
    name: str
    size_bytes: float
    arrival_s: float
    start_s: float
    cct_s: float
    alone_s: float
    predicted_s: float

    @property
    def response_s(self) -> float:
        """Time from the arrival to the end."""
        return self.start_s - self.arrival_s + self.cct_s


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """A run: coflows in order of their groups, and where the VMs were.

    :ivar plans: one per group.
    :ivar planned_s: time of each planning, by the counter of work.
    """

    coflows: tuple[CoflowResult, ...]
    hosts: dict[str, tuple[str, ...]]
    plans: tuple[snapshot.Plan, ...]
    planned_s: tuple[float, ...]

    @property
    def mean_cct_s(self) -> float:
        """Mean completion time of the coflows, in seconds from their start."""
        return float(np.mean([row.cct_s for row in self.coflows]))

    @property
    def mean_response_s(self) -> float:
        """Mean time from a group's arrival to the end of a coflow."""
        return float(np.mean([row.response_s for row in self.coflows]))


def simulate(hosts: Sequence[cluster.Host],
             groups: Sequence[group_model.Group], scheme: schemes.Scheme, *,
             seed: int = 0, config: simulation.Config | None = None,
             budget_s: float = BUDGET_S, leave: bool = True,
             on_plan: Callable[[], object] = lambda: None,
             on_planned: Callable[[], object] = lambda: None) -> Result:
    """Run groups through a datacentre.

    :param seed: seed of the planner.
    :param config: instead of the scheme's scheduling.
    :param budget_s: budget of the planner for each group, by a counter of
        work.
    :param leave: a group's VMs go when its last coflow has ended and their
        stay is over.
    :param on_plan: called before groups are placed …
    :param on_planned: … and after (progress, timing).
    :raises virtco.exception.PlacementInfeasible: for a group that fits
        nowhere even when all others have gone.
    """
    return serve(_Cloud(hosts, scheme, seed, config or scheme.config(), leave,
                        budget_s), groups, on_plan, on_planned)


def serve(cloud: '_Cloud', groups: Sequence[group_model.Group],
          on_plan: Callable[[], object] = lambda: None,
          on_planned: Callable[[], object] = lambda: None) -> Result:
    """Run groups through a cloud, see :func:`simulate`."""
    window_s = cloud.scheme.window_s
    todo = collections.deque(sorted(groups, key=lambda g: g.arrival_s))
    waiting: collections.deque[group_model.Group] = collections.deque()
    while todo or waiting:
        next_s = todo[0].arrival_s if todo else math.inf
        if waiting:
            held_s = _held_until_s(waiting, window_s)
            next_s = min(next_s, cloud.next_room_s(), held_s
                         if held_s > cloud.sim.now_s else math.inf)
        cloud.run(next_s, stop_at_end=bool(waiting))
        while todo and todo[0].arrival_s <= cloud.sim.now_s:
            waiting.append(todo.popleft())
        while batch := _batch(waiting, window_s, cloud.sim.now_s):
            on_plan()
            try:
                placed = _place(cloud, batch)
            except exception.PlacementInfeasible:
                if not (cloud.sim.n_live or todo
                        or cloud.next_room_s() < math.inf):
                    raise
                break
            on_planned()
            for _ in range(placed):
                waiting.popleft()
    cloud.run(math.inf)
    return cloud.result(groups)


_Queue = collections.deque[group_model.Group]


def _held_until_s(waiting: _Queue, window_s: float | None) -> float:
    """Return when those that wait with the first one are placed."""
    return waiting[0].arrival_s + (window_s or 0.0)


def _batch(waiting: _Queue, window_s: float | None, now_s: float
           ) -> list[group_model.Group]:
    """List the groups placed now: the first, and those within its window."""
    if not waiting or _held_until_s(waiting, window_s) > now_s:
        return []
    return [group for group in waiting
            if group.arrival_s <= _held_until_s(waiting, window_s)][
        :1 if window_s is None else None]


def _place(cloud: '_Cloud', batch: Sequence[group_model.Group]) -> int:
    """Place a batch, or its first group where not all fit.

    Return the number of groups that were placed.

    :raises virtco.exception.PlacementInfeasible: when it does not fit either.
    """
    if len(batch) > 1:
        try:
            cloud.place(batch)
            return len(batch)
        except exception.PlacementInfeasible:
            pass
    cloud.place(batch[:1])
    return 1


@dataclasses.dataclass(slots=True)
class _Running:
    group: group_model.Group
    plan: snapshot.Plan
    coflows: range
    start_s: float
    gone: bool = False

    @property
    def until_s(self) -> float:
        return self.start_s + self.group.stay_s


class _Cloud:
    def __init__(self, hosts: Sequence[cluster.Host], scheme: schemes.Scheme,
                 seed: int, config: simulation.Config, leave: bool,
                 budget_s: float):
        self.hosts = {host.name: host for host in hosts}
        self.index = {name: i for i, name in enumerate(self.hosts)}
        self.free = {host.name: np.array(host.free) for host in hosts}
        self.scheme, self.seed, self.leave = scheme, seed, leave
        self.budget_s = budget_s
        self.sim = simulation.Simulation(np.array(
            [host.egress_bps for host in hosts]
            + [host.ingress_bps for host in hosts]), config)
        self.running: list[_Running] = []
        self.planned_s: list[float] = []

    def run(self, until_s: float, stop_at_end: bool = False) -> None:
        self.sim.run(until_s, stop_at_end)
        for entry in self.running:
            if self.leave and not entry.gone and (
                    self.sim.now_s >= entry.until_s) and all(
                    self.sim.ended(c) for c in entry.coflows):
                entry.gone = True
                for host, demand in zip(entry.plan.hosts,
                                        entry.group.vm_demands):
                    self.free[host] += demand

    def next_room_s(self) -> float:
        """Return when the next stay ends, inf where none will."""
        return min((entry.until_s for entry in self.running
                    if self.leave and entry.until_s > self.sim.now_s),
                   default=math.inf)

    def place(self, batch: Sequence[group_model.Group]) -> None:
        for group, plan in zip(batch, self.plan(batch), strict=True):
            self.start(group, plan)

    def plan(self, batch: Sequence[group_model.Group]) -> list[snapshot.Plan]:
        hosts = tuple(dataclasses.replace(
            host, free=tuple(self.free[name].tolist()))
            for name, host in self.hosts.items())
        active = self._active()
        clock = budget.Counter()
        parts = together.plan(
            [snapshot.PlacementProblem(hosts, group.vms, group.coflows,
                                       active=active) for group in batch],
            objective=self.scheme.objective,
            planner_name=self.scheme.planner, seed=self.seed,
            budget_s=self.budget_s * len(batch), clock=clock,
            plan_one=baselines.plan)
        self.planned_s.append(clock())
        return [part.plan for part in parts]

    def _active(self) -> tuple[snapshot.ActiveCoflow, ...]:
        names = list(self.hosts)
        return tuple(snapshot.ActiveCoflow.of(str(c), (
            (names[src], names[dst], size) for src, dst, size in zip(*(
                part.tolist() for part in self.sim.remaining_flows(c)))))
            for c in self.sim.live[:self.sim.n_live].tolist())

    def start(self, group: group_model.Group, plan: snapshot.Plan) -> None:
        for host, demand in zip(plan.hosts, group.vm_demands):
            self.free[host] = self.free[host] - demand
        places = np.array([self.index[host] for host in plan.hosts])
        indices = self.sim.add([demand_of(coflow, places)
                                for coflow in group.coflows])
        for c in indices:
            self.sim.start(c)
        self.running.append(_Running(group, plan, indices, self.sim.now_s))

    def result(self, groups: Sequence[group_model.Group]) -> Result:
        ccts, alone_s = self.sim.completion_s(), self.sim.state.whole_s
        entries = {entry.group.name: entry for entry in self.running}
        return Result(
            tuple(CoflowResult(
                group.name, coflow.name, coflow.size_bytes, group.arrival_s,
                entries[group.name].start_s, float(ccts[c]),
                float(alone_s[c]), predicted_s)
                for group in groups for coflow, c, predicted_s in zip(
                    group.coflows, entries[group.name].coflows,
                    entries[group.name].plan.coflow_cct_s)),
            {name: entry.plan.hosts for name, entry in entries.items()},
            tuple(entry.plan for entry in self.running),
            tuple(self.planned_s))


def demand_of(coflow: coflow_model.Coflow, places: np.ndarray
              ) -> fabric_model.Demand:
    """Build a coflow's flows between hosts; inside a host they are free.

    :param places: host index of each VM.
    """
    total: dict[tuple[int, int], float] = {}
    count: dict[tuple[int, int], int] = {}
    for flow in coflow.flows:
        pair = int(places[flow.src]), int(places[flow.dst])
        if pair[0] != pair[1] and flow.size_bytes > 0:
            total[pair] = total.get(pair, 0.0) + flow.size_bytes
            count[pair] = count.get(pair, 0) + 1
    return demand_model.of_flows((*pair, total[pair], count[pair])
                            for pair in sorted(total))
