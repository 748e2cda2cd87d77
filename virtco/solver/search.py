# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The order of events of one planning: bound, starts, rounds of search."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import random

import numpy as np

from virtco import exception
from virtco.model import snapshot
from virtco.solver import baselines
from virtco.solver import bounds
from virtco.solver import candidates
from virtco.solver import carving
from virtco.solver import choreo
from virtco.solver import feasible
from virtco.solver import foresight
from virtco.solver import instance as instances
from virtco.solver import localsearch
from virtco.solver import objectives
from virtco.solver import partition
from virtco.solver import relaxation
from virtco.solver import rounding
from virtco.solver import sequence
from virtco.solver import smallgroup
from virtco.solver import targets

#: Part of the budget that the first bound may take.
BOUND_SHARE = 0.25
RELAXATION_SHARE = 0.2
#: Moves per node, and how many of the pool's best they are spent on.
ROUNDS = ((500, 5), (1500, 3), (5000, 2))
FEW_ROUNDS = ((500, 4), (1000, 2))
POLISH_MOVES = 300
#: Part of the budget that is kept for the polish.
POLISH_SHARE = 0.05
CUT_MOVES = 300
#: Carvings at the lower bound; a third as many between it and the best t.
CARVINGS = 12
CARVE_BETWEEN = (0.25, 0.6)
#: Looks at a node that set partition may take without ``certify``, and per
#: second of the budget before other things are tried; nodes times hosts
#: beyond which it is not tried. A second is 12 to 25 million looks.
PARTITION_WORK = 20e6
WORK_PER_S = 4e6
MAX_CELLS = 1e6
#: Placements whose sets it starts with.
SEEDS = 4
#: Proven ratios at which no more moves are made, and at which proofs go on
#: before any are made.
CLOSE = 1e-3
PROMISING = 0.1
#: With it, the search ends when its moves are made.
USUAL_BUDGET_S = 4.0
#: Choreo's greedy looks at every path for each flow: slow beyond this.
CHOREO_FLOWS = 1500
#: Nodes with more neighbours than this make dearer moves, so fewer are made.
USUAL_DEGREE = 40
#: Relative closeness at which an answer counts as proven best.
CLOSED = 1e-8
#: What leaving room for groups to come may cost, relative to the objective.
SPARE = 0.1
REHEAT = 0.1
REHEAT_OF_MANY = 0.03


@dataclasses.dataclass
class Outcome:
    """What a search ends with."""

    assign: np.ndarray
    value: objectives.Evaluation
    lower_s: float
    method: str
    moves: int
    notes: tuple[str, ...]


class Search:
    """One planning of one instance.

    :param rounds: moves per node and breadth of every round.
    :param effort: factor on the moves of every round.
    :param certify: use all of the budget to prove the answer or better it.
    """

    def __init__(self, inst: instances.Instance,
                 objective: snapshot.Objective, seed: int, budget_s: float,
                 clock: Callable[[], float],
                 rounds: tuple[tuple[int, int], ...] = ROUNDS,
                 effort: float = 1.0, certify: bool = False):
        self.rounds = rounds
        self.certify = certify
        self.effort = effort
        self.inst = inst
        self.objective = objective
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = clock
        self.budget_s = budget_s
        self.deadline = clock() + budget_s
        self.local = localsearch.Searcher(inst, objective, seed)
        self.best: Outcome | None = None
        self.lower_s = 0.0
        self.critical: tuple[int, ...] = ()
        self.partition: partition.Partition | None = None
        self.sets: tuple[np.ndarray, ...] = ()
        self.pool: list[tuple[float, float, int, str, np.ndarray]] = []
        self.floor_s = 0.0
        self.cut_short = False

    def run(self) -> Outcome:
        """:raises virtco.exception.PlacementInfeasible: when nothing fits.
        """
        self._offer('best fit', feasible.any_placement(
            self.inst, self.seed, self.deadline - self.clock()))
        if not self._is_closed(ahead=True):
            self._set_bounds()
        if not self._is_closed(ahead=True):
            self._solve_small()
        if not self._is_closed():
            self._rounds()
        if not self._is_closed():
            self._lower_targets()
            self._partition_more()
        assert self.best is not None
        self._polish()
        self._settle()
        notes = []
        if self.cut_short:
            notes.append('the time budget cut the search short')
        if not self.local.is_single():
            notes.append(f'objective >= {self.floor_s:.6g} s')
        cct_s = self.best.value.cct_s
        if cct_s <= self.lower_s * (1 + CLOSED):
            self.lower_s = cct_s
        return dataclasses.replace(
            self.best, lower_s=min(self.lower_s, cct_s),
            moves=self.local.moves_done, notes=tuple(notes))

    def _in_time(self) -> bool:
        if self.clock() < self.deadline:
            return True
        self.cut_short = True
        return False

    def _is_closed(self, ratio: float = CLOSED, ahead: bool = False) -> bool:
        """Whether the known coflows cannot end sooner.

        :param ahead: and those to come cannot either.
        """
        if self.best is None:
            return False
        value = self.best.value
        found_s = value.objective_s - (0.0 if ahead else value.ahead_s)
        return found_s <= self.floor_s * (1 + ratio)

    def _offer(self, method: str, assign: np.ndarray | None,
               value: objectives.Evaluation | None = None) -> None:
        if assign is None:
            return
        value = value or self.local.evaluate(assign)
        if self.best is None or _key(value) < _key(self.best.value):
            self.best = Outcome(assign.copy(), value, 0.0, method, 0, ())

    def _set_bounds(self) -> None:
        until = self.clock() + BOUND_SHARE * self.budget_s
        bound = bounds.anchored_sets(self.inst, np.inf,
                                     lambda: self.clock() < until)
        self.lower_s, self.critical = bound.lower_s, bound.order
        self.sets = bound.sets
        if self.local.is_single():
            self.floor_s = self.lower_s
        else:
            self.floor_s = bounds.objective(
                self.inst, lambda: self.clock() < until)
        self.cut_short = self.clock() >= until

    def _solve_small(self) -> None:
        if not self.local.is_single():
            assign = smallgroup.try_all(
                self.inst, lambda trial: _key(self.local.evaluate(trial)))
            if assign is not None:
                self._offer('exhaustive search', assign)
                assert self.best is not None
                self.floor_s = self.best.value.objective_s
        elif smallgroup.applies(self.inst):
            optimum_s, assign = smallgroup.solve(self.inst)
            if assign is not None:
                self._offer('subset dynamic programming', assign)
                self.lower_s = self.floor_s = optimum_s

    def _polish(self) -> None:
        """Spare the network for others where that costs no time.

        When the search ended because the known coflows cannot be faster,
        what others will wait has not been looked at yet.

        ISOLATED is the paper's Algorithm 2, which looks at nobody else.
        """
        assert self.best is not None
        if self.objective == snapshot.Objective.ISOLATED:
            return
        if not np.isfinite(self.best.value.objective_s) or (
                self.clock() >= self.deadline):
            return
        moves = int(POLISH_MOVES * self._slowness() * self.inst.n_nodes)
        found = self.best.assign
        if self._is_closed() and self.best.value.ahead_s > 0:
            found, _value = self.local.anneal(found, moves,
                                              hot=REHEAT_OF_MANY)
        found = self.local.polish(found, moves)
        value = self.local.evaluate(found)
        if _key(value) <= _key(self.best.value):
            self.best = dataclasses.replace(self.best, assign=found,
                                            value=value)

    def _settle(self) -> None:
        """Leave room in larger pieces for groups to come.

        Alone in the cloud a group is never made slower for that.
        """
        assert self.best is not None
        if self.objective != snapshot.Objective.ONLINE or not np.isfinite(
                self.best.value.objective_s) or self.inst.pipe:
            return
        spare = SPARE if len(self.inst.active_bytes) else CLOSED
        limit_s = self.best.value.objective_s * (1 + spare)

        def cost_s(assign: np.ndarray) -> float:
            found_s = self.local.evaluate(assign).objective_s
            return found_s if found_s <= limit_s else np.inf

        found = foresight.settle(self.inst, self.best.assign, cost_s,
                                 self._in_time)
        self.best = dataclasses.replace(self.best, assign=found,
                                        value=self.local.evaluate(found))

    def _enumerate(self) -> None:
        """Prove a small group's answer, or better it, by trying all."""
        assert self.best is not None
        if self.local.is_single() and smallgroup.enumerable(self.inst):
            result = smallgroup.enumerate_all(self.inst,
                                              self.best.value.objective_s)
            if result is not None:
                self._offer('exhaustive search', result[1])
                self.lower_s = self.floor_s = result[0]

    def _relax(self) -> None:
        """The corrected linear relaxation, where it is small."""
        if relaxation.products(self.inst) > relaxation.MAX_PRODUCTS:
            return
        solution = relaxation.solve(self.inst,
                                    RELAXATION_SHARE * self.budget_s)
        if solution is None:
            return
        rounded = rounding.round_shares(self.inst, solution.share)
        if rounded is not None:
            value = self.local.evaluate(rounded)
            self._offer('rounded relaxation', rounded, value)
            self._pool('rounded relaxation', rounded, value)
        self.lower_s = max(self.lower_s, solution.lower_s)
        if self.local.is_single():
            self.floor_s = self.lower_s

    def _carve(self, target_s: float, rounds: int) -> None:
        """Squeaky wheel; the best of it joins the pool."""
        best: tuple[objectives.Evaluation, np.ndarray] | None = None
        for assign in carving.squeaky_wheel(
                self.inst, target_s, self.critical, rounds, self.rng):
            value = self.local.evaluate(assign)
            if best is None or _key(value) < _key(best[0]):
                best = value, assign
            self._offer('cheapest sets', assign, value)
            if self._is_closed() or not self._in_time():
                break
        if best is not None:
            self._pool('cheapest sets', best[1], best[0])

    def _partition(self, work: float) -> None:
        """Prove that nothing is better, or find it, by set partition."""
        assert self.best is not None
        upper_s = self.best.value.cct_s
        if not 0 < upper_s < np.inf or self._is_too_large() or (
                not self._in_time()):
            return
        if self.partition is None:
            self.partition = partition.Partition(
                self.inst, lambda: self.deadline - self.clock())
            for members in self.sets:
                self.partition.pool.add(
                    members, self.partition.within_s(upper_s))
        self.pool.sort(key=lambda row: row[:3])
        for *_key, assign in self.pool[:SEEDS]:
            self.partition.pool.add_placement(
                assign, self.partition.within_s(upper_s))

        def judge(assign: np.ndarray) -> float:
            value = self.local.evaluate(assign)
            self._offer('set partition', assign, value)
            self._pool('set partition', assign, value)
            return value.cct_s

        self.lower_s = max(self.lower_s, self.partition.narrow(
            self.lower_s, upper_s, work, judge))
        if self.local.is_single():
            self.floor_s = self.lower_s

    def _lower_targets(self) -> None:
        """Several coflows: better prefix CCTs by set partition."""
        assert self.best is not None
        if self.local.is_single() or self.inst.pipe or not np.isfinite(
                self.best.value.objective_s) or self._is_too_large():
            return
        until = self.deadline - POLISH_SHARE * self.budget_s
        self._offer('lowered targets', targets.improve(
            self.inst, self.best.assign, lambda: until - self.clock(),
            self.effort * targets.WORK, self.objective))
        self.cut_short |= self.clock() >= until

    def _is_too_large(self) -> bool:
        return self.inst.n_nodes * self.inst.n_hosts > MAX_CELLS

    def _partition_more(self) -> None:
        """With what else was found, and with all time if certify."""
        if self.certify:
            self._partition(np.inf)
        elif self.partition is not None and not self._is_closed(CLOSE):
            self._partition(self.effort * PARTITION_WORK
                            - self.partition.pool.work)

    def _starts(self) -> Iterator[tuple[str, np.ndarray | None]]:
        inst = self.inst
        yield 'one after another', self._one_after_another()
        yield 'min-cut', baselines.min_cut(
            inst, self.seed, int(CUT_MOVES * self._slowness()))
        yield 'pack', candidates.pack(inst)
        if sum(len(arcs[0]) for arcs in inst.arcs) <= CHOREO_FLOWS:
            yield 'choreo', choreo.place(inst)
        yield 'spread', candidates.spread(inst, self.rng)

    def _one_after_another(self) -> np.ndarray | None:
        """Several groups, each placed online after those of lower bound."""
        parts = sequence.groups(self.inst)
        if len(parts) < 2 or self.local.is_single():
            return None

        def place(sub: instances.Instance) -> np.ndarray:
            search = Search(sub, self.objective, self.seed,
                            self.deadline - self.clock(), self.clock,
                            FEW_ROUNDS, self.effort)
            outcome = search.run()
            self.local.moves_done += outcome.moves
            return outcome.assign

        order = sequence.by_bound(self.inst, parts, self._in_time)
        try:
            assign = sequence.place_in_order(self.inst, parts, order, place)
        except exception.PlacementInfeasible:
            return None
        filler = candidates.Filler(self.inst)
        for node in np.flatnonzero((assign >= 0) & (self.inst.fixed < 0)):
            filler.put(int(node), int(assign[node]))
        return candidates.fill(filler, candidates.traffic(self.inst))

    def _rounds(self) -> None:
        """Constructive starts first, then ever longer annealing."""
        self._carve(self.lower_s, CARVINGS)
        if not self._done() and self.local.is_single():
            self._partition(min(self.effort * PARTITION_WORK,
                                WORK_PER_S * self.budget_s))
            if self._is_closed(PROMISING):
                self._partition_more()
        if self._done() or self._is_closed(CLOSE):
            return
        for method, start in self._starts():
            if start is not None:
                value = self.local.evaluate(start)
                self._offer(method, start, value)
                self._pool(method, start, value)
            if self._done():
                return
        self._relax()
        self._enumerate()
        if self._done():
            return
        effort = self.effort * self._slowness()
        for per_node, breadth in self.rounds:
            self.pool.sort(key=lambda row: row[:3])
            moves = int(per_node * effort * self.inst.n_nodes)
            for i, (*_rest, method, start) in enumerate(
                    self.pool[:breadth]):
                self._anneal(method, start, moves, self._heat(i), 3 + i % 2)
                if self._done():
                    return
            if self.local.is_single() and not self.certify:
                self._partition_more()
                if self._is_closed(CLOSE):
                    return
            for share in CARVE_BETWEEN:
                self._carve(self._between(share), CARVINGS // 3)
                if self._done():
                    return

    def _slowness(self) -> float:
        """At most 1, less where moves are dear."""
        degree = len(self.local.adjacency[1]) / max(1, self.inst.n_nodes)
        return min(1.0, USUAL_DEGREE / max(1.0, degree))

    def _heat(self, rank: int) -> float:
        """Start temperature for the pool's rank-th."""
        if self.local.is_single():
            return REHEAT if rank % 2 else localsearch.HOT
        return localsearch.HOT if rank % 2 else REHEAT_OF_MANY

    def _done(self) -> bool:
        return self._is_closed() or not self._in_time()

    def _between(self, share: float) -> float:
        """A target between the bound and the best t."""
        assert self.best is not None
        upper_s = self.best.value.cct_s
        if not np.isfinite(upper_s):
            return self.lower_s
        return self.lower_s + share * (upper_s - self.lower_s)

    def _anneal(self, method: str, start: np.ndarray, moves: int,
                hot: float, power: int) -> None:
        found, value = self.local.anneal(
            start, moves, power=power, hot=hot, in_time=self._in_time,
            floor_s=self.floor_s * (1 + CLOSED))
        self._offer(f'local search from {method}', found, value)
        self._pool(method, found, value)

    def _pool(self, method: str, assign: np.ndarray,
              value: objectives.Evaluation) -> None:
        self.pool.append((*_key(value), len(self.pool), method, assign))


def _key(value: objectives.Evaluation) -> tuple[float, float]:
    return value.objective_s, value.cct_s
