# SPDX-License-Identifier: Apache-2.0

"""Groups that are placed and not yet built: what planning them again gains.

``python -m benchmarks.replanning [--utilisations U,…] [--build-s S,…]
[--ways WAY,…] [--seeds A..B] [--budget S] [--jobs N] [--table FILE] [--json]``

The stationary cloud of ``benchmarks.online``. A group's coflow starts
``--build-s`` after its placement, when its VMs are built. Ways of planning:

* *once*: each group when it comes, as the controller does;
* *again*: a new group together with the newest eight that are being built.
  All VMs may move, at no cost;
* *all but one*: likewise, but the first VM of each older group stays;
* *the rest*: halfway through its building, the second half of a group's VMs is
  planned again, alone.

Nothing moves where the sum of CCTs would not fall. *Saved* is of the mean
response (from the request to the end of the coflow, less the time of building)
of the first way, with its 95 % interval over paired seeds.
"""

import argparse
from collections.abc import Sequence
import concurrent.futures
import dataclasses
import itertools
import math
import sys
from typing import Any

import numpy as np

from benchmarks import online
from virtco import exception
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver import together
from virtco_lab.sim import cloud
from virtco_lab.sim import groups as group_model
from virtco_lab.sim.figures import document

#: Groups that are planned together at most, as in the controller's window.
MOST_GROUPS = 8
WAYS = ('once', 'again', 'all but one', 'the rest')


@dataclasses.dataclass(eq=False, slots=True)
class _Building:
    """A group that is placed and whose VMs are being built.

    :ivar next_s: time of what comes next: the second half of its VMs is
        planned again, or its coflow starts.
    :ivar until_s: time at which its coflow starts.
    """

    group: group_model.Group
    plan: snapshot.Plan
    next_s: float
    until_s: float

    def take(self, free: dict[str, np.ndarray], sign: int) -> None:
        """Take its room on its hosts (1), or give it back (-1)."""
        for host, demand in zip(self.plan.hosts, self.group.vm_demands):
            free[host] = free[host] - sign * np.array(demand)

    def loads(self) -> list[snapshot.ActiveCoflow]:
        """List its coflows on its hosts."""
        hosts = self.plan.hosts
        return [cloud.active_of(f'{self.group.name}/{coflow.name}', [
            (hosts[flow.src], hosts[flow.dst], flow.size_bytes)
            for flow in coflow.flows if hosts[flow.src] != hosts[flow.dst]])
            for coflow in self.group.coflows]


class _Cloud(cloud._Cloud):
    """A cloud in which VMs are built for a while after they were placed."""

    def __init__(self, *args: Any, build_s: float, way: str):
        super().__init__(*args)
        self._build_s, self._way = build_s, way
        self._building: list[_Building] = []

    def run(self, until_s: float, stop_at_end: bool = False) -> None:
        """Let time pass; what is built by then starts."""
        while (one := min(self._building, key=lambda one: one.next_s,
                          default=None)) and one.next_s <= until_s:
            super().run(one.next_s, stop_at_end)
            if self.sim.now_s < one.next_s:
                return
            one.take(self.free, -1)
            if one.next_s < one.until_s:
                one.next_s = one.until_s
                self._again([one], len(one.group.vms) // 2)
                one.take(self.free, 1)
                continue
            self._building.remove(one)
            self.start(one.group, one.plan)
        super().run(until_s, stop_at_end)

    def next_room_s(self) -> float:
        return min(super().next_room_s(),
                   *(one.until_s for one in self._building), math.inf)

    def _active(self) -> tuple[snapshot.ActiveCoflow, ...]:
        return super()._active() + tuple(
            load for one in self._building for load in one.loads())

    def place(self, batch: Sequence[group_model.Group]) -> None:
        (group,), movable = batch, []
        if self._way in WAYS[1:3]:
            movable = self._building[-MOST_GROUPS:]
        plan, = self.plan(batch)
        until_s = self.sim.now_s + self._build_s
        new = _Building(group, plan, until_s, until_s)
        if self._way == WAYS[3]:
            new.next_s -= self._build_s / 2
        for one in movable:
            one.take(self.free, -1)
        if movable:
            self._again([*movable, new], int(self._way == WAYS[2]))
        for one in [*movable, new]:
            one.take(self.free, 1)
        self._building.append(new)

    def _again(self, chosen: Sequence[_Building], n_fixed: int) -> None:
        """Plan some groups together, which have no room now.

        :param n_fixed: VMs that stay, of each group that is not new.
        """
        mine = {id(one) for one in chosen}
        hosts = tuple(dataclasses.replace(
            host, free=tuple(self.free[name].tolist()))
            for name, host in self.hosts.items())
        active = super()._active() + tuple(
            load for one in self._building if id(one) not in mine
            for load in one.loads())
        problems = []
        for one in chosen:
            n = n_fixed if one in self._building else 0
            vms = [*(dataclasses.replace(vm, pinned=host, counted=False)
                     for vm, host in zip(one.group.vms[:n], one.plan.hosts)),
                   *one.group.vms[n:]]
            problems.append(snapshot.PlacementProblem(
                hosts, tuple(vms), one.group.coflows, active=active))
        joined = together.join(problems)
        clock = budgets.Counter()
        budget_s = self.budget_s * len(chosen)
        before = planner.evaluate(joined, dataclasses.replace(
            chosen[-1].plan, hosts=tuple(
                host for one in chosen for host in one.plan.hosts)),
            budgets.Budget(budgets.clock_of(budgets.Counter()), budget_s))
        try:
            after = planner.plan(
                joined, objective=self.scheme.objective, seed=self.seed,
                budget_s=budget_s, clock=clock)
        except exception.PlacementInfeasible:
            after = before
        if after.objective_s < before.objective_s:
            left = iter(after.hosts)
            for one in chosen:
                one.plan = dataclasses.replace(one.plan, hosts=tuple(
                    next(left) for _ in one.plan.hosts))


def run(column: online.Column, seed: int, budget_s: float, build_s: float,
        way: str) -> float:
    """Return the mean response of one simulation, less the building."""
    hosts, its_groups = column.workload(seed)
    scheme = online.SCHEMES[online.OURS]
    return cloud.serve(_Cloud(
        hosts, scheme, seed, scheme.config(), True, budget_s,
        build_s=build_s, way=way), its_groups).mean_response_s - build_s


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The table for the documentation."""
    return document.table(
        ('utilisation', 'built in, s', 'planned', 'response, s', 'saved, %'),
        [(f'{row["utilisation"]:g}', f'{row["build_s"]:g}', row['way'],
          row['response_s'], online.shown(row)) for row in rows])


def _options() -> argparse.Namespace:
    parser = online.options_of(__doc__, 0.05)
    parser.add_argument('--jobs', type=int, default=1, help='processes')
    parser.add_argument('--utilisations', type=online.numbers,
                        default=[0.7, 0.9])
    parser.add_argument('--build-s', type=online.numbers,
                        default=[2.0, 10.0, 60.0])
    parser.add_argument('--ways', default=','.join(WAYS),
                        type=lambda text: text.split(','))
    return parser.parse_args()


def main() -> int:
    options = _options()
    columns = [online.Column('stationary', f'{value:g}', value)
               for value in options.utilisations]
    rows = []
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for column, build_s in itertools.product(columns, options.build_s):
            found: list[list[float]] = []
            for way in options.ways:
                found.append(list(pool.map(run, *zip(*(
                    (column, seed, options.budget, build_s, way)
                    for seed in options.seeds)))))
                rows.append({
                    'utilisation': column.number, 'build_s': build_s,
                    'way': way, **online.saved(found[-1], found[0])})
                if not options.json:
                    print('{utilisation:<5g} {build_s:5g} s {way:12s} '
                          '{response_s:8.3f} s'.format(**rows[-1]),
                          online.shown(rows[-1]), '%', flush=True)
    online.write(options, 'replanning', table(rows), rows)
    return 0


if __name__ == '__main__':
    sys.exit(main())
