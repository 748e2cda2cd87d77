# SPDX-License-Identifier: Apache-2.0

"""Groups that wait for better places: what bounded deferral saves and costs.

``python -m benchmarks.deferral [--utilisations U,…] [--patience-s S,…]
[--seeds A..B] [--budget S] [--jobs N] [--table FILE] [--json]``

The stationary cloud of ``benchmarks.online``. A group whose planned CCT is
longer than in an empty cloud is deferred: for a quarter of the difference, as
it is at each later look, and never beyond ``--patience-s``. Looks are at the
ends of coflows and stays. *Before the call* the group is asked for when the
wait is over, so that the planner sees all room there is. *In the call* Nova
has asked already: the hosts that it offers, and their room, are those of the
request. *Saved* is of the mean response (from the request to the end of the
coflow) without deferral, with its 95 % interval over paired seeds.
"""

import argparse
import collections
from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
import contextlib
import dataclasses
import math
import sys
from typing import Any

import numpy as np

from benchmarks import online
from virtco import exception
from virtco.model import snapshot
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim.figures import document

#: Part of what an empty cloud would save for which a group is deferred. With a
#: tenth and with a half the response fell by as much, within 2 %.
SHARE = 0.25
#: Shortest deferral, s.
LEAST_S = 0.05
WHERE = ('before the call', 'in the call')


@dataclasses.dataclass(slots=True)
class _Deferred:
    """:ivar empty_s: CCT in an empty cloud.
    :ivar offered: room of each host when Nova asked; None: not yet asked.
    """

    group: groups.Group
    empty_s: float
    until_s: float
    offered: dict[str, np.ndarray] | None


class _Cloud(cloud._Cloud):
    """A cloud that can be asked where a group would go."""

    @contextlib.contextmanager
    def offering(self, offered: dict[str, np.ndarray] | None
                 ) -> Iterator[None]:
        """Let plans use only what is left of an offer; None: all room."""
        before = self.free
        if offered is not None:
            self.free = {name: np.minimum(left, offered[name])
                         for name, left in before.items()}
        try:
            yield
        finally:
            self.free = before

    def offer(self, group: groups.Group,
              offered: dict[str, np.ndarray] | None = None
              ) -> snapshot.Plan | None:
        """Return the plan that the group has now; None: it has no room."""
        try:
            with self.offering(offered):
                return self.plan([group])[0]
        except exception.PlacementInfeasible:
            return None


def _cct_s(plan: snapshot.Plan | None) -> float:
    return math.inf if plan is None else max(plan.coflow_cct_s)


def simulate(column: online.Column, seed: int, budget_s: float,
             patience_s: float, where: str) -> cloud.Result:
    """Run the column's groups, some of them deferred.

    Those without room wait in the order in which they came.
    """
    hosts, its_groups = column.workload(seed)
    scheme = online.SCHEMES[online.OURS]

    def make() -> _Cloud:
        return _Cloud(hosts, scheme, seed, scheme.config(), True, budget_s)

    at, empty = make(), make()
    todo = collections.deque(its_groups)
    waiting: collections.deque[groups.Group] = collections.deque()
    deferred: list[_Deferred] = []

    def defer(group: groups.Group) -> bool:
        now_s = at.sim.now_s
        if not patience_s or now_s > group.arrival_s:
            return False
        cct_s, empty_s = _cct_s(at.offer(group)), _cct_s(empty.offer(group))
        wait_s = min(patience_s, SHARE * (cct_s - empty_s))
        if cct_s == math.inf or wait_s < LEAST_S:
            return False
        deferred.append(_Deferred(
            group, empty_s, now_s + wait_s,
            {name: left.copy() for name, left in at.free.items()}
            if where == WHERE[1] else None))
        return True

    def look() -> None:
        now_s = at.sim.now_s
        for one in list(deferred):
            plan = at.offer(one.group, one.offered)
            one.until_s = one.group.arrival_s + min(
                patience_s, SHARE * (_cct_s(plan) - one.empty_s))
            if one.until_s > now_s:
                continue
            deferred.remove(one)
            if plan is not None:
                at.start(one.group, plan)
            else:
                waiting.appendleft(one.group)

    while todo or waiting or deferred:
        next_s = min([todo[0].arrival_s if todo else math.inf,
                      *(one.until_s for one in deferred)])
        if waiting or deferred:
            next_s = min(next_s, at.next_room_s())
        at.run(max(next_s, at.sim.now_s),
               stop_at_end=bool(waiting or deferred))
        while todo and todo[0].arrival_s <= at.sim.now_s:
            waiting.append(todo.popleft())
        look()
        while waiting:
            try:
                if not defer(waiting[0]):
                    at.place(list(waiting)[:1])
            except exception.PlacementInfeasible:
                break
            waiting.popleft()
    at.run(math.inf)
    return at.result(its_groups)


def run(column: online.Column, seed: int, budget_s: float,
        patience_s: float, where: str) -> float:
    return simulate(column, seed, budget_s, patience_s, where
                    ).mean_response_s


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The table for the documentation."""
    return document.table(
        ('utilisation', 'deferred', 'at most, s', 'response, s', 'saved, %'),
        [(f'{row["utilisation"]:g}', row['where'],
          f'{row["patience_s"]:g}', row['response_s'], online.shown(row))
         for row in rows])


def _options() -> argparse.Namespace:
    parser = online.options_of(__doc__, 0.05)
    parser.add_argument('--jobs', type=int, default=1, help='processes')
    parser.add_argument('--utilisations', type=online.numbers,
                        default=[0.5, 0.85])
    parser.add_argument('--patience-s', type=online.numbers,
                        default=[10.0, 60.0])
    return parser.parse_args()


def main() -> int:
    options = _options()
    ways = [(0.0, ''), *((patience_s, where) for where in WHERE
                         for patience_s in options.patience_s)]
    columns = [column for column in online.columns(['stationary'])
               if column.number in options.utilisations]
    rows = []
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for column in columns:
            found = {way: list(pool.map(
                run, *zip(*((column, seed, options.budget, *way)
                            for seed in options.seeds)))) for way in ways}
            for (patience_s, where), response_s in found.items():
                rows.append({
                    'utilisation': column.number, 'where': where or 'never',
                    'patience_s': patience_s,
                    **online.saved(response_s, found[ways[0]])})
                if not options.json:
                    print('{utilisation:<5g} {where:16s} {patience_s:5g} s '
                          '{response_s:8.3f} s'.format(**rows[-1]),
                          online.shown(rows[-1]), '%', flush=True)
    online.write(options, 'deferral', table(rows), rows)
    return 0


if __name__ == '__main__':
    sys.exit(main())
