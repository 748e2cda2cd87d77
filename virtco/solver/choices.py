# SPDX-License-Identifier: Apache-2.0

"""Search where VMs have to share a switch: branch on which one it is.

Every choice of switches is a problem of its own, with fewer hosts. All of
them are annealed for a short while, the best third of them for longer, and so
on; the last one is searched. No placement is better than the least of all
choices' bounds, whatever became of a choice.
"""

from collections.abc import Iterator
import dataclasses
import itertools
import logging
import math

import numpy as np

from virtco import exception
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import search
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as instances
from virtco.solver.moves import localsearch
from virtco.solver.partition import setpartition
from virtco.solver.stages import search_state as states
from virtco.solver.starts import feasible

LOG = logging.getLogger(__name__)

#: Choices that are searched; of the others a bound without wishes holds.
MOST_CHOICES = 128
#: Part of the time left for the race, in which one of so many stays.
RACE_SHARE = 0.5
STAY = 3
#: Moves per node of a choice's first run.
FIRST_MOVES = 100
MOST_MOVES = 20_000_000
#: Part of what is left for the best one while others may still be better.
LAST_SHARE = 0.7
#: Part of a choice's time that its bound may take before the race.
BOUND_SHARE = 0.1
#: Relative closeness at which a choice cannot be better.
CLOSED = states.CLOSED


@dataclasses.dataclass
class _Choice:
    """Choice of a switch for each wish, with its search so far.

    :ivar found: the best placement, with what a search said of it.
    :ivar lower_s: bound of t below these switches, floor_s: of the
        objective.
    """

    inst: instances.Instance
    local: localsearch.Searcher
    lower_s: float
    floor_s: float = 0.0
    found: states.Outcome | None = None

    @property
    def key(self) -> tuple[bool, float, float, float]:
        """Less is more promising."""
        if self.found is None:
            return True, 0.0, 0.0, self.lower_s
        return (False, *states.key(self.found.value), self.lower_s)


def run(whole: instances.Prepared, task: states.Task
        ) -> tuple[instances.Instance, states.Outcome]:
    """Search a problem; the instance that the best placement is of.

    :raises virtco.exception.PlacementInfeasible: when nothing fits.
    """
    if not whole.together:
        inst = whole.instance(task.budget)
        return inst, search.run(inst, task)
    return _Race(whole, task).run()


def parts(whole: instances.Prepared) -> Iterator[instances.Prepared]:
    """Yield the problem per choice of switches, those with most room first."""
    def room(wish_and_switch: tuple[int, int]) -> float:
        wish, number = wish_and_switch
        below = whole.together[wish].switch == number
        return float(-whole.free[below, 0].sum())

    rows = []
    for i, wish in enumerate(whole.together):
        numbers = np.unique(wish.switch[wish.switch >= 0]).tolist()
        rows.append(sorted((number for number in numbers
                            if _may_hold(whole, wish.nodes,
                                         wish.switch == number)),
                           key=lambda number: room((i, number))))
    for numbers in itertools.product(*rows):
        part = whole.below(numbers)
        if part.allowed.any(axis=1).all():
            yield part


def _may_hold(whole: instances.Prepared, nodes: np.ndarray,
              below: np.ndarray) -> bool:
    """Return whether capacities and allowed hosts alone do not rule it out."""
    if not whole.allowed[nodes][:, below].any(axis=1).all():
        return False
    own = slice(whole.demand.shape[1] - len(whole.sharing))
    need = whole.demand[nodes, own].sum(axis=0)
    free = np.maximum(whole.free[below, own], 0.0).sum(axis=0)
    return bool(((need <= free * (1 + CLOSED) + CLOSED)).all())


def any_placement(whole: instances.Prepared, seed: int,
                  budget: budgets.Budget) -> np.ndarray:
    """Find some valid placement, as host per node.

    :raises virtco.exception.PlacementInfeasible: when none was found.
    """
    for part in parts(whole):
        try:
            return feasible.any_placement(
                part.instance(), seed, budget)
        except exception.PlacementInfeasible as error:
            if not whole.together:
                raise
            LOG.debug('%s', error)
    raise _nowhere(whole)


def _nowhere(whole: instances.Prepared) -> exception.PlacementInfeasible:
    return exception.PlacementInfeasible(
        what=f'{len(whole.node_of_vm)} VMs',
        why='no switch has room for those that have to share one')


class _Race:
    def __init__(self, whole: instances.Prepared, task: states.Task):
        self.whole = whole
        self.task = task
        self.budget = task.budget
        self.choices: list[_Choice] = []
        #: Bound of the choices that are not looked at.
        self.rest_s = math.inf
        self.moves = 0

    def run(self) -> tuple[instances.Instance, states.Outcome]:
        """Race the choices, search the winner, bound the others."""
        self._gather()
        racing = sorted(self.choices, key=lambda choice: choice.lower_s)
        rounds = math.ceil(math.log(max(1, len(racing)), STAY))
        race = self.budget.slice(RACE_SHARE)
        for n in range(rounds):
            whole = race.slice(1 / (rounds - n))
            for i, choice in enumerate(racing):
                if not self._is_beaten(choice):
                    self._anneal(choice, whole.slice(1 / (len(racing) - i)))
            racing = sorted(racing, key=lambda choice: choice.key)[
                :-(-len(racing) // STAY)]
        for choice in sorted(self.choices, key=lambda choice: choice.key):
            alone = all(self._is_beaten(other) for other in self.choices
                        if other is not choice)
            self._search(choice, self.budget if alone else self.budget.slice(
                LAST_SHARE), self.task.certify)
            if choice.found is not None:
                break
        self._refute()
        return self._best()

    def _anneal(self, choice: _Choice, budget: budgets.Budget) -> None:
        """Run the local search from the best placement or from any."""
        local, found = choice.local, choice.found
        moves = MOST_MOVES
        if found is None:
            if not budget.in_time() and self._has_answer():
                return
            try:
                start = feasible.any_placement(
                    choice.inst, self.task.seed, budget)
            except exception.PlacementInfeasible:
                return
            found = states.Outcome(start, local.evaluate(start),
                                   snapshot.Method.BEST_FIT)
            moves = FIRST_MOVES * choice.inst.n_nodes
        assign, value = local.anneal(found.assign, moves, budget=budget)
        if states.key(value) < states.key(found.value):
            found = states.Outcome(assign, value,
                                   snapshot.Method.LOCAL_SEARCH)
        choice.found = found

    def _gather(self) -> None:
        """Find the choices that differ."""
        seen = set()
        for n, part in enumerate(parts(self.whole)):
            if n == MOST_CHOICES or (n and not self.budget.in_time()):
                self.rest_s = 0.0
                break
            inst = part.instance(self.budget)
            signature = _signature(inst)
            if signature is None or signature not in seen:
                seen.add(signature)
                local = localsearch.Searcher(inst, self.task.objective,
                                             self.task.seed)
                lower_s = lowerbounds.anchored_sets(
                    inst, math.inf, self.budget.slice(BOUND_SHARE),
                    growths=0).lower_s
                self.choices.append(_Choice(
                    inst, local, lower_s,
                    lower_s if local.is_single() else 0.0))

    def _search(self, choice: _Choice, budget: budgets.Budget,
                certify: bool = False) -> None:
        try:
            found = search.run(choice.inst, dataclasses.replace(
                self.task, budget=budget, certify=certify,
                on_incumbent=self._telling(choice)), choice.found)
        except exception.PlacementInfeasible:
            return
        self.moves += found.moves
        choice.found = found
        choice.lower_s = max(choice.lower_s, found.lower_s)
        choice.floor_s = max(choice.floor_s, found.floor_s)

    def _telling(self, choice: _Choice) -> states.OnIncumbent | None:
        """Wrap the listener: it hears of the overall best and bound."""
        told = self.task.on_incumbent
        if told is None:
            return None

        def tell(progress: snapshot.Progress) -> object:
            others = [other for other in self.choices if other is not choice]
            if any(other.found is not None
                   and other.found.value.objective_s <= progress.objective_s
                   for other in others):
                return None
            return told(dataclasses.replace(progress, bound_s=min(
                progress.bound_s, self.rest_s,
                *(other.floor_s for other in others))))

        return tell

    def _refute(self) -> None:
        """Prove that the other choices are no better, while there is time."""
        best = min(self.choices, key=lambda choice: choice.key, default=None)
        if best is None or best.found is None:
            return
        left = [choice for choice in self.choices if choice is not best
                and not self._is_beaten(choice)]
        left.sort(key=lambda choice: choice.floor_s)
        for n, choice in enumerate(left):
            if not self.budget.in_time():
                break
            budget = self.budget.slice(1 / (len(left) - n))
            if choice.local.is_single():
                self._narrow(choice, best.found.value.cct_s, budget)
            else:
                self._search(choice, budget)

    def _narrow(self, choice: _Choice, best_s: float,
                budget: budgets.Budget) -> None:
        """Raise the bound of t by set partition, up to the best so far."""
        def judge(assign: np.ndarray) -> float:
            value = choice.local.evaluate(assign)
            if choice.found is None or states.key(value) < states.key(
                    choice.found.value):
                choice.found = states.Outcome(
                    assign, value, snapshot.Method.SET_PARTITION)
            return value.cct_s

        partition = setpartition.Partition(choice.inst, budget)
        if choice.found is not None:
            partition.pool.add_placement(choice.found.assign,
                                         partition.within_s(best_s), budget)
        choice.lower_s = choice.floor_s = max(
            choice.lower_s, partition.narrow(choice.lower_s, best_s, judge))

    def _has_answer(self) -> bool:
        return any(choice.found is not None for choice in self.choices)

    def _is_beaten(self, choice: _Choice) -> bool:
        """Return whether a choice cannot be better than the best so far."""
        best_s = min((other.found.value.objective_s for other in self.choices
                      if other.found is not None), default=math.inf)
        return choice.floor_s * (1 + CLOSED) >= best_s

    def _best(self) -> tuple[instances.Instance, states.Outcome]:
        choice = min(self.choices, key=lambda choice: choice.key,
                     default=None)
        if choice is None or choice.found is None:
            raise _nowhere(self.whole)
        value = choice.found.value
        lower_s = min(self.rest_s, *(one.lower_s for one in self.choices))
        floor_s = min(self.rest_s, *(one.floor_s for one in self.choices))
        if value.cct_s <= lower_s * (1 + CLOSED):
            lower_s = value.cct_s
        return choice.inst, dataclasses.replace(
            choice.found, moves=self.moves + sum(
                one.local.moves_done for one in self.choices), lower_s=min(
                lower_s, value.cct_s), floor_s=floor_s)


def _signature(inst: instances.Instance) -> bytes | None:
    """Compute a key of a choice that leaves out the hosts' names.

    None where equality is not easily told: hosts that are tied to others by
    pins, pairs or uplinks of their own, or loaded.
    """
    if inst.pipe or len(inst.running) or (inst.fixed >= 0).any() or (
            inst.port_out[1:] != inst.port_out[1:, :1]).any() or (
            inst.sharing != inst.sharing[:, :1]).any():
        return None
    m = inst.n_hosts
    rows = np.column_stack([
        inst.free, inst.s_per_byte[:2 * m].reshape(2, m).T, inst.allowed.T])
    return rows[np.lexsort(rows.T)].tobytes()
