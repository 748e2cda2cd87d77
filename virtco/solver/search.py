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
import logging
import random
from typing import NamedTuple

import numpy as np

from virtco import exception
from virtco.model import snapshot
from virtco.solver import baselines
from virtco.solver.bounds import lowerbounds
from virtco.solver import budget as budgets
from virtco.solver.exact import smallgroup
from virtco.solver.judging import foresight
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.moves import localsearch
from virtco.solver.partition import setpartition
from virtco.solver.starts import candidates
from virtco.solver.starts import carving
from virtco.solver.starts import choreo
from virtco.solver.starts import feasible
from virtco.solver.starts import relaxation
from virtco.solver.starts import rounding
from virtco.solver.starts import sequence
from virtco.solver import targets

LOG = logging.getLogger(__name__)

#: Moves per node, and how often, from the best so far.
DEEPER = ((1000, 3), (3000, 2))
RELAXATION_SHARE = 0.2
#: Twice what building its rows takes, before HiGHS reads its time limit.
RELAXATION_LEAST_S = 0.02
#: Moves per node from each of the first starts.
QUICK_MOVES = 500
#: Moves per node, and how many of the pool's best they are spent on.
ROUNDS = ((500, 5), (1500, 3), (5000, 2))
FEW_ROUNDS = ((500, 4), (1000, 2))
POLISH_MOVES = 300
CUT_MOVES = 300
#: Carvings at the lower bound; a third as many between it and the best t.
CARVINGS = 12
CARVE_BETWEEN = (0.25, 0.6)
#: Part of what is left that set partition may take between rounds, and nodes
#: times hosts beyond which it is not tried.
PARTITION_SHARE = 0.3
MAX_CELLS = 1e6
#: Placements whose sets it starts with.
SEEDS = 4
#: Work for each node and host to set it up, and below which it is not worth
#: beginning.
PARTITION_UNITS = 500.0
PARTITION_LEAST_UNITS = 1000.0
#: Calls of numpy to evaluate a placement, and cells per port and coflow.
EVALUATE_CALLS = 40
EVALUATE_CELLS = 2
#: Work of the exact methods for small groups: for a step of the dynamic
#: programme, and for a placement that is tried.
STEP_UNITS = 2.0
VISIT_UNITS = 100.0
#: Proven ratio at which no more moves are made.
CLOSE = 1e-3
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
    """What a search ends with.

    :ivar lower_s: bound of t.
    :ivar floor_s: bound of the objective.
    """

    assign: np.ndarray
    value: objectives.Evaluation
    lower_s: float
    method: str
    moves: int
    notes: tuple[str, ...]
    floor_s: float = 0.0
    set_partition: bool = False


class Search:
    """One planning of one instance.

    :param rounds: moves per node and breadth of every round.
    :param certify: use all of the budget to prove the answer or better it.
    """

    def __init__(self, inst: instances.Instance,
                 objective: snapshot.Objective, seed: int,
                 budget: budgets.Budget,
                 rounds: tuple[tuple[int, int], ...] = ROUNDS,
                 certify: bool = False):
        self.rounds = rounds
        self.certify = certify
        self.inst = inst
        self.objective = objective
        self.seed = seed
        self.rng = random.Random(seed)
        self.budget = budget
        #: Of the stage that runs.
        self.slice = self.budget
        self.local = localsearch.Searcher(inst, objective, seed)
        self.best: Outcome | None = None
        self.lower_s = 0.0
        self.critical: tuple[int, ...] = ()
        self.partition: setpartition.Partition | None = None
        self.sets: tuple[np.ndarray, ...] = ()
        self.pool: list[tuple[float, float, int, str, np.ndarray]] = []
        self.floor_s = 0.0
        self.bounded = False

    def run(self) -> Outcome:
        """:raises virtco.exception.PlacementInfeasible: when nothing fits.
        """
        self._offer('best fit', feasible.any_placement(
            self.inst, self.seed, self.budget))
        for stage in STAGES:
            if self._is_closed(ahead=stage.ahead):
                break
            self.slice = self.budget.slice(stage.share)
            stage.run(self)
            assert self.best is not None
            LOG.debug(
                '%-16s %8.3f s left, objective %.6g s, bound %.6g s: %s',
                stage.name, self.budget.left_s(), self.best.value.objective_s,
                self.floor_s, self.best.method)
        self.slice = self.budget
        assert self.best is not None
        self._polish()
        self._settle()
        notes = []
        if self.budget.asked_late or not self.budget.left_s():
            notes.append('the time budget cut the search short')
        if not self.local.is_single():
            notes.append(f'objective >= {self.floor_s:.6g} s')
        cct_s = self.best.value.cct_s
        if cct_s <= self.lower_s * (1 + CLOSED):
            self.lower_s = cct_s
        return dataclasses.replace(
            self.best, lower_s=min(self.lower_s, cct_s),
            moves=self.local.moves_done, notes=tuple(notes),
            floor_s=self.floor_s, set_partition=self.partition is not None)

    def _in_time(self) -> bool:
        return self.slice.in_time()

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
        value = value or self._evaluate(assign)
        if self.best is None or _key(value) < _key(self.best.value):
            self.best = Outcome(assign.copy(), value, 0.0, method, 0, ())

    def _evaluate(self, assign: np.ndarray) -> objectives.Evaluation:
        self.slice.spend_numpy(EVALUATE_CALLS, EVALUATE_CELLS * len(
            self.inst.s_per_byte) * (1 + len(self.inst.running)))
        return self.local.evaluate(assign)

    def _first_bound(self) -> None:
        """What costs next to nothing and often closes the gap."""
        self._set_bounds(growths=0)
        if not self.local.is_single():
            self.floor_s = lowerbounds.objective(self.inst, self.slice)

    def _better_bound(self) -> None:
        if not self.bounded:
            self._set_bounds(growths=2)

    def _set_bounds(self, growths: int) -> None:
        bound = lowerbounds.anchored_sets(self.inst, np.inf, self.slice,
                                          growths)
        self.bounded = bound.complete
        if bound.lower_s >= self.lower_s:
            self.lower_s, self.critical = bound.lower_s, bound.order
            self.sets = bound.sets
        if self.local.is_single():
            self.floor_s = self.lower_s

    def _quick(self) -> None:
        """Good answers before anything is proven."""
        moves = int(QUICK_MOVES * self._slowness() * self.inst.n_nodes)
        assert self.best is not None
        best_fit = self.best.assign
        starts: tuple[tuple[str, Callable[[], np.ndarray | None]], ...] = (
            ('spread', self._spread),
            ('min-cut', self._min_cut), ('best fit', lambda: best_fit))
        for i, (method, start) in enumerate(starts):
            assign = start()
            if assign is not None:
                self._offer(method, assign)
                self._anneal(method, assign, moves, localsearch.HOT,
                             3 + i % 2)
            if self._done():
                return

    def _deepen(self) -> None:
        """Anneal the best again and again, from a low heat."""
        effort = self._slowness() * self.inst.n_nodes
        for per_node, runs in DEEPER:
            for i in range(runs):
                method, start = min(self.pool, key=lambda row: row[:3])[3:]
                self._anneal(method, start, int(per_node * effort),
                             self._heat(1), 4 - i % 2)
                if self._done():
                    return

    def _min_cut(self) -> np.ndarray | None:
        return baselines.min_cut(self.inst, self.seed, self.slice,
                                 int(CUT_MOVES * self._slowness()))

    def _spread(self) -> np.ndarray | None:
        candidates.spend(self.inst, self.slice)
        return candidates.spread(self.inst, self.rng)

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
            self.slice.spend(STEP_UNITS * smallgroup.steps(self.inst))
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
                not self.budget.in_time()):
            return
        moves = int(POLISH_MOVES * self._slowness() * self.inst.n_nodes)
        found = self.best.assign
        if self._is_closed() and self.best.value.ahead_s > 0:
            found, _value = self.local.anneal(
                found, moves, hot=REHEAT_OF_MANY, budget=self.budget)
        found = self.local.polish(found, moves, self.budget)
        value = self._evaluate(found)
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
                                 self.budget)
        self.best = dataclasses.replace(self.best, assign=found,
                                        value=self.local.evaluate(found))

    def _enumerate(self) -> None:
        """Prove a small group's answer, or better it, by trying all."""
        assert self.best is not None
        if self.local.is_single() and smallgroup.enumerable(self.inst):
            result = smallgroup.enumerate_all(self.inst,
                                              self.best.value.objective_s)
            self.slice.spend(VISIT_UNITS * smallgroup.MAX_VISITS / 10)
            if result is not None:
                self._offer('exhaustive search', result[1])
                self.lower_s = self.floor_s = result[0]

    def _relax(self) -> None:
        """The corrected linear relaxation, where it is small."""
        if relaxation.products(self.inst) > relaxation.MAX_PRODUCTS:
            return
        within = self.slice.slice(RELAXATION_SHARE)
        if within.left_s() < RELAXATION_LEAST_S:
            return
        solution = relaxation.solve(self.inst, within)
        if solution is None:
            return
        rounded = rounding.round_shares(self.inst, solution.share)
        if rounded is not None:
            value = self._evaluate(rounded)
            self._offer('rounded relaxation', rounded, value)
            self._pool('rounded relaxation', rounded, value)
        self.lower_s = max(self.lower_s, solution.lower_s)
        if self.local.is_single():
            self.floor_s = self.lower_s

    def _carve(self, target_s: float, rounds: int) -> None:
        """Squeaky wheel; the best of it joins the pool."""
        best: tuple[objectives.Evaluation, np.ndarray] | None = None
        for assign in carving.squeaky_wheel(
                self.inst, target_s, self.critical, rounds, self.rng,
                self.slice):
            value = self._evaluate(assign)
            if best is None or _key(value) < _key(best[0]):
                best = value, assign
            self._offer('cheapest sets', assign, value)
            if self._is_closed() or not self._in_time():
                break
        if best is not None:
            self._pool('cheapest sets', best[1], best[0])

    def _partition(self) -> None:
        """Prove that nothing is better, or find it, by set partition."""
        assert self.best is not None
        upper_s = self.best.value.cct_s
        if not 0 < upper_s < np.inf or self._is_too_large() or (
                not self._in_time()):
            return
        if self.partition is None:
            cells = self.inst.n_nodes * self.inst.n_hosts
            if not self.slice.holds(PARTITION_LEAST_UNITS * cells):
                return
            self.slice.spend(PARTITION_UNITS * cells)
            self.partition = setpartition.Partition(self.inst, self.slice)
            for members in self.sets:
                self.partition.pool.add(
                    members, self.partition.within_s(upper_s))
        self.partition.budget = self.slice
        self.pool.sort(key=lambda row: row[:3])
        for *_key, assign in self.pool[:SEEDS]:
            self.partition.pool.add_placement(
                assign, self.partition.within_s(upper_s), self.slice)

        def judge(assign: np.ndarray) -> float:
            value = self._evaluate(assign)
            self._offer('set partition', assign, value)
            self._pool('set partition', assign, value)
            return value.cct_s

        self.lower_s = max(self.lower_s, self.partition.narrow(
            self.lower_s, upper_s, judge))
        if self.local.is_single():
            self.floor_s = self.lower_s

    def _lower_targets(self) -> None:
        """Several coflows: better prefix CCTs by set partition."""
        assert self.best is not None
        if self.local.is_single() or self.inst.pipe or not np.isfinite(
                self.best.value.objective_s) or self._is_too_large():
            return
        self._offer('lowered targets', targets.improve(
            self.inst, self.best.assign, self.slice, self.objective))

    def _is_too_large(self) -> bool:
        return self.inst.n_nodes * self.inst.n_hosts > MAX_CELLS

    def _carve_first(self) -> None:
        """In a roomy cloud that is often all it takes."""
        roomy = self.inst.n_hosts >= len(self.inst.movable)
        self._carve(self.lower_s, CARVINGS if roomy else 1)

    def _carve_at_bound(self) -> None:
        self._carve(self.lower_s, CARVINGS)

    def _prove(self) -> None:
        """Set partition for what one coflow takes."""
        if self.local.is_single():
            self._partition()

    def _within(self, share: float, work: Callable[[], None]) -> None:
        """A part of the stage that may take a share of what is left."""
        outer = self.slice
        self.slice = outer.slice(share)
        work()
        self.slice = outer

    def _partition_more(self) -> None:
        """With what else was found."""
        if self.certify or (self.partition is not None
                            and not self._is_closed(CLOSE)):
            self._partition()

    def _starts(self) -> Iterator[tuple[str, np.ndarray | None]]:
        inst = self.inst
        yield 'one after another', self._one_after_another()
        candidates.spend(inst, self.slice)
        yield 'pack', candidates.pack(inst)
        if sum(len(arcs[0]) for arcs in inst.arcs) <= CHOREO_FLOWS:
            yield 'choreo', choreo.place(inst, self.slice)

    def _one_after_another(self) -> np.ndarray | None:
        """Several groups, each placed online after those of lower bound."""
        parts = sequence.groups(self.inst)
        if len(parts) < 2 or self.local.is_single():
            return None

        def place(sub: instances.Instance) -> np.ndarray:
            search = Search(sub, self.objective, self.seed,
                            self.slice.slice(1 / len(parts)), FEW_ROUNDS)
            outcome = search.run()
            self.local.moves_done += outcome.moves
            return outcome.assign

        order = sequence.by_bound(self.inst, parts, self.slice)
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
        if self._is_closed(CLOSE):
            return
        for method, start in self._starts():
            if start is not None:
                value = self._evaluate(start)
                self._offer(method, start, value)
                self._pool(method, start, value)
            if self._done():
                return
        self._relax()
        self._enumerate()
        if self._done():
            return
        effort = self._slowness()
        for per_node, breadth in self.rounds:
            self.pool.sort(key=lambda row: row[:3])
            moves = int(per_node * effort * self.inst.n_nodes)
            for i, (*_rest, method, start) in enumerate(
                    self.pool[:breadth]):
                self._anneal(method, start, moves, self._heat(i), 3 + i % 2)
                if self._done():
                    return
            if self.local.is_single() and not self.certify:
                self._within(PARTITION_SHARE, self._partition_more)
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
            start, moves, power=power, hot=hot, budget=self.slice,
            floor_s=self.floor_s * (1 + CLOSED))
        self._offer(f'local search from {method}', found, value)
        self._pool(method, found, value)

    def _pool(self, method: str, assign: np.ndarray,
              value: objectives.Evaluation) -> None:
        self.pool.append((*_key(value), len(self.pool), method, assign))


class Stage(NamedTuple):
    """A step of the search.

    :ivar share: of the time left that it may take.
    :ivar ahead: skipped only when groups to come need not wait either.
    """

    name: str
    run: Callable[[Search], None]
    share: float
    ahead: bool = False


#: Good answers first, then proofs, then both in turn.
STAGES = (
    Stage('first bound', Search._first_bound, 0.25, ahead=True),
    Stage('small groups', Search._solve_small, 1.0, ahead=True),
    Stage('first carving', Search._carve_first, 0.5),
    Stage('quick search', Search._quick, 0.4),
    Stage('bound', Search._better_bound, 0.15),
    Stage('carving', Search._carve_at_bound, 0.15),
    Stage('local search', Search._deepen, 0.5),
    Stage('set partition', Search._prove, 0.85),
    Stage('rounds', Search._rounds, 0.95),
    Stage('lowered targets', Search._lower_targets, 0.95),
    Stage('more proofs', Search._partition_more, 1.0),
)


def _key(value: objectives.Evaluation) -> tuple[float, float]:
    return value.objective_s, value.cct_s
