# SPDX-License-Identifier: Apache-2.0

"""Groups that are placed and not yet built: what planning them again gains.

``python -m benchmarks.replanning [--utilisations U,…] [--build-s S,…]
[--ways WAY,…] [--seeds A..B] [--budget S] [--jobs N] [--table FILE] [--json]``

The stationary cloud of ``benchmarks.online``. A group's coflow starts
``--build-s`` after its placement, when its VMs are built. Ways of planning:

* *once*: each group when it comes;
* *again*: a new group together with the newest eight that are being built.
  All VMs may move, at no cost;
* *all but one*: likewise, but the first VM of each older group stays;
* *as asked*: Nova asks for a group's VMs one after another, evenly in the time
  of its building. Only VMs that it has not asked for may move, as in the
  controller, which decides by the same function.

*Saved* is of the mean response (from the request to the end of the coflow,
less the time of building) of the first way, with its 95 % interval over paired
seeds.
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
from virtco.model import snapshot
from virtco.place import replanning
from virtco.solver import budget as budgets
from virtco.solver import together
from virtco_lab.sim import cloud
from virtco_lab.sim import groups as group_model
from virtco_lab.sim.figures import document

WAYS = ('once', 'again', 'all but one', 'as asked')


@dataclasses.dataclass(eq=False, slots=True)
class _Building:
    """A group that is placed and whose VMs are being built.

    :ivar until_s: time at which its coflow starts.
    """

    group: group_model.Group
    plan: snapshot.Plan
    until_s: float

    def take(self, free: dict[str, np.ndarray], sign: int) -> None:
        """Take its room on its hosts (1), or give it back (-1)."""
        for host, demand in zip(self.plan.hosts, self.group.vm_demands):
            free[host] = free[host] - sign * np.array(demand)

    def loads(self) -> list[snapshot.ActiveCoflow]:
        """List its coflows on its hosts."""
        hosts = self.plan.hosts
        return [snapshot.ActiveCoflow.of(f'{self.group.name}/{coflow.name}', (
            (hosts[flow.src], hosts[flow.dst], flow.size_bytes)
            for flow in coflow.flows if hosts[flow.src] != hosts[flow.dst]))
            for coflow in self.group.coflows]


class _Cloud(cloud._Cloud):
    """A cloud in which VMs are built for a while after they were placed."""

    def __init__(self, *args: Any, build_s: float, way: str):
        super().__init__(*args)
        self._build_s, self._way = build_s, way
        self._building: list[_Building] = []

    def run(self, until_s: float, stop_at_end: bool = False) -> None:
        """Let time pass; what is built by then starts."""
        while (one := min(self._building, key=lambda one: one.until_s,
                          default=None)) and one.until_s <= until_s:
            super().run(one.until_s, stop_at_end)
            if self.sim.now_s < one.until_s:
                return
            one.take(self.free, -1)
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
        (group,), (plan,) = batch, self.plan(batch)
        new = _Building(group, plan, self.sim.now_s + self._build_s)
        new.take(self.free, 1)
        self._building.append(new)
        if self._way != WAYS[0] and len(self._building) > 1:
            self._again(self._building[-1 - replanning.MOST_GROUPS:])

    def _n_fixed(self, one: _Building) -> int:
        """Return how many of a group's VMs stay."""
        if self._way == WAYS[3]:
            n_vms = len(one.group.vms)
            return sum(one.until_s - self._build_s * (1 - vm / n_vms)
                       <= self.sim.now_s for vm in range(n_vms))
        return int(self._way == WAYS[2] and one is not self._building[-1])

    def _again(self, chosen: Sequence[_Building]) -> None:
        """Plan some groups together."""
        mine = {id(one) for one in chosen}
        for one in chosen:
            one.take(self.free, -1)
        hosts = tuple(dataclasses.replace(
            host, free=tuple(self.free[name].tolist()))
            for name, host in self.hosts.items())
        active = super()._active() + tuple(
            load for one in self._building if id(one) not in mine
            for load in one.loads())
        problems = [snapshot.PlacementProblem(hosts, (
            *(dataclasses.replace(vm, pinned=host, counted=False)
              for vm, host in zip(one.group.vms[:self._n_fixed(one)],
                                  one.plan.hosts)),
            *one.group.vms[self._n_fixed(one):]),
            one.group.coflows, active=active) for one in chosen]
        parts = together.again(
            problems, [one.plan.hosts for one in chosen],
            objective=self.scheme.objective, seed=self.seed,
            budget_s=self.budget_s * len(chosen), clock=budgets.Counter())
        for one, part in zip(chosen, parts or ()):
            one.plan = part.plan
        for one in chosen:
            one.take(self.free, 1)


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
