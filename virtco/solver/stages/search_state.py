# SPDX-License-Identifier: Apache-2.0

"""State shared by the stages of a search: answer, bounds, pool of starts."""

from collections.abc import Callable
import dataclasses

import numpy as np

from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives
from virtco.solver.moves import localsearch
from virtco.solver.partition import setpartition

#: Relative closeness at which an answer counts as proven best.
CLOSED = 1e-8
#: Calls of numpy to evaluate a placement, and cells per port and coflow.
EVALUATE_CALLS = 40
EVALUATE_CELLS = 2
#: Nodes with more neighbours than this make dearer moves, so fewer are made.
USUAL_DEGREE = 40

Method = snapshot.Method
OnIncumbent = Callable[[snapshot.Progress], object]


@dataclasses.dataclass(frozen=True)
class Task:
    """Objective, time and listener of a search.

    :ivar budget: budget of the whole search.
    :ivar certify: use all of it to prove the answer or better it.
    :ivar on_incumbent: told of better answers and bounds; stops the search
        by returning something true.
    """

    objective: snapshot.Objective
    seed: int
    budget: budgets.Budget
    certify: bool = False
    on_incumbent: OnIncumbent | None = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of a search.

    :ivar lower_s: bound of t.
    :ivar floor_s: bound of the objective.
    """

    assign: np.ndarray
    value: objectives.Evaluation
    method: snapshot.Method
    lower_s: float = 0.0
    floor_s: float = 0.0
    moves: int = 0
    notes: tuple[str, ...] = ()
    relaxed: snapshot.Relaxed = snapshot.Relaxed.NOT_APPLICABLE


class State:
    """Search of an instance: answer, bounds, pool of starts.

    :ivar stage: name of the one that runs.
    :ivar best: the best answer so far.
    :ivar pool: placements to start from.
    :ivar lower_s: bound of t; floor_s: of the objective.
    :ivar bound: bound with cheap sets of nodes, once it was looked for.
    :ivar partition: the set-partition program once it was begun.
    """

    def __init__(self, inst: instances.Instance, task: Task):
        self.inst = inst
        self.task = task
        self.budget = task.budget
        self.local = localsearch.Searcher(inst, task.objective, task.seed)
        self.stage = ''
        self.best: Outcome | None = None
        self.pool: list[Outcome] = []
        self.lower_s = 0.0
        self.floor_s = 0.0
        self.bound = lowerbounds.Bound(0.0)
        self.partition: setpartition.Partition | None = None
        self.relaxed = False

    @property
    def answer(self) -> Outcome:
        """The best so far; the first stage finds one."""
        assert self.best is not None
        return self.best

    def evaluate(self, assign: np.ndarray) -> objectives.Evaluation:
        """Evaluate an assignment, charged to the budget."""
        self.budget.spend_numpy(EVALUATE_CALLS, EVALUATE_CELLS * len(
            self.inst.s_per_byte) * (1 + len(self.inst.running)))
        return self.local.evaluate(assign)

    def offer(self, method: snapshot.Method, assign: np.ndarray | None,
              value: objectives.Evaluation | None = None) -> None:
        """Make an assignment the answer if it is better than the last one."""
        if assign is None:
            return
        value = value or self.evaluate(assign)
        if self.best is None or value.key < self.best.value.key:
            self.best = Outcome(assign.copy(), value, method)
            self.report()

    def add(self, method: snapshot.Method, assign: np.ndarray,
            value: objectives.Evaluation | None = None) -> None:
        """Offer an assignment as the answer, and put it into the pool."""
        value = value or self.evaluate(assign)
        self.offer(method, assign, value)
        self.pool.append(Outcome(assign, value, method))

    def starts(self, count: int) -> list[Outcome]:
        """Return the best ``count`` starts of the pool."""
        self.pool.sort(key=lambda start: start.value.key)
        return self.pool[:count]

    def raise_bound(self, lower_s: float) -> None:
        """Raise the lower bound of t where this one is higher."""
        if lower_s > self.lower_s:
            self.lower_s = lower_s
            if self.local.is_single():
                self.raise_floor(lower_s)

    def raise_floor(self, floor_s: float) -> None:
        """Raise the lower bound of the objective where this one is higher."""
        if floor_s > self.floor_s:
            self.floor_s = floor_s
            if self.best is not None:
                self.report()

    def report(self) -> None:
        """Tell the caller, who may have enough."""
        if self.task.on_incumbent is not None:
            objective_s = self.answer.value.objective_s
            if self.task.on_incumbent(snapshot.Progress(
                    self.stage, self.budget.spent_s(), objective_s,
                    min(self.floor_s, objective_s),
                    self.inst.to_hosts(self.answer.assign))):
                self.budget.stop()

    def is_closed(self, ratio: float = CLOSED) -> bool:
        """Return whether the known coflows cannot end sooner."""
        if self.best is None:
            return False
        value = self.best.value
        return value.objective_s - value.ahead_s <= self.floor_s * (1 + ratio)

    def is_done(self, budget: budgets.Budget) -> bool:
        """Tell whether the best placement is optimal or the time is up."""
        return self.is_closed() or not budget.in_time()

    def anneal(self, start: np.ndarray, moves: int, hot: float, power: int,
               budget: budgets.Budget) -> None:
        """Search locally from a placement and put the result into the pool."""
        found, value = self.local.anneal(
            start, moves, power=power, hot=hot, budget=budget,
            floor_s=self.floor_s * (1 + CLOSED))
        self.add(Method.LOCAL_SEARCH, found, value)

    def moves(self, per_node: float) -> int:
        """Return ``per_node`` moves for each node, fewer where they are dear.
        """
        degree = len(self.local.adjacency[1]) / max(1, self.inst.n_nodes)
        return int(per_node * self.inst.n_nodes
                   * USUAL_DEGREE / max(USUAL_DEGREE, degree))
