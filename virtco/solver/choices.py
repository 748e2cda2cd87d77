# SPDX-License-Identifier: Apache-2.0

"""Search where VMs have to share a switch: branch on which one it is.

Every choice of switches is a problem of its own, with fewer hosts. All of
them are annealed for a short while, the best third of them for longer, and so
on; the last one is searched. No placement is better than the least of all
choices' bounds, whatever became of a choice.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import itertools
import logging
import math

import numpy as np

from virtco import exception
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import search
from virtco.solver.model import instance as instances
from virtco.solver.stages import annealing
from virtco.solver.stages import proofs
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


def run(whole: instances.Prepared, task: states.Task
        ) -> tuple[instances.Instance, states.Outcome]:
    """Search a problem; the instance that the best placement is of.

    :raises virtco.exception.PlacementInfeasible: when nothing fits.
    """
    if not whole.together:
        state = states.State(whole.instance(task.budget), task)
        search.run(state, task.budget)
        return state.inst, search.outcome(state)
    return _Race(whole, task).run()


def parts(whole: instances.Prepared) -> Iterator[instances.Prepared]:
    """Yield the problem per choice of switches, those with most room first."""
    rows = []
    for wish in whole.together:
        room = {number: whole.free[wish.switch == number, 0].sum()
                for number in np.unique(wish.switch[wish.switch >= 0]).tolist()
                if _may_hold(whole, wish.nodes, wish.switch == number)}
        rows.append(sorted(room, key=lambda number: -room[number]))
    for numbers in itertools.product(*rows):
        part = whole.below(numbers)
        if part.allowed.any(axis=1).all():
            yield part


def _may_hold(whole: instances.Prepared, nodes: np.ndarray,
              below: np.ndarray) -> bool:
    """Return whether capacities and allowed hosts alone do not rule it out."""
    if not whole.allowed[nodes][:, below].any(axis=1).all():
        return False
    need = whole.demand[nodes].sum(axis=0)
    free = np.maximum(whole.free[below], 0.0).sum(axis=0)
    return bool((need <= free * (1 + CLOSED) + CLOSED).all())


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
        self.told = task.on_incumbent
        self.task = dataclasses.replace(task, on_incumbent=self._tell)
        self.budget = task.budget
        #: The search of each choice.
        self.choices: list[states.State] = []
        #: Bound of the choices that are not looked at.
        self.rest_s = math.inf

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
            racing = sorted(racing, key=_promise)[:-(-len(racing) // STAY)]
        for choice in sorted(self.choices, key=_promise):
            alone = all(self._is_beaten(other) for other in self.choices
                        if other is not choice)
            self._search(choice, self.budget if alone else self.budget.slice(
                LAST_SHARE))
            if choice.best is not None:
                break
        self._refute()
        return self._best()

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
                choice = states.State(inst, self.task)
                proofs.bound(choice, self.budget.slice(BOUND_SHARE))
                self.choices.append(choice)

    def _anneal(self, choice: states.State, budget: budgets.Budget) -> None:
        """Run the local search from the best placement or from any."""
        moves = MOST_MOVES
        if choice.best is None:
            if not budget.in_time():
                return
            try:
                search.begin(choice, budget)
            except exception.PlacementInfeasible:
                return
            moves = FIRST_MOVES * choice.inst.n_nodes
        choice.stage = 'race'
        choice.anneal(choice.answer.assign, moves, annealing.hot(choice),
                      annealing.power(choice, 0), budget)

    def _search(self, choice: states.State, budget: budgets.Budget) -> None:
        # It may turn out that nothing fits below this switch.
        with contextlib.suppress(exception.PlacementInfeasible):
            search.run(choice, budget)

    def _tell(self, progress: snapshot.Progress) -> object:
        """Tell the listener, if any, of the overall best and bound."""
        if self.told is None or self._least_s() < progress.objective_s:
            return None
        return self.told(dataclasses.replace(progress, bound_s=min(
            progress.bound_s, self.rest_s,
            *(choice.floor_s for choice in self.choices))))

    def _least_s(self) -> float:
        return min((choice.best.value.objective_s for choice in self.choices
                    if choice.best is not None), default=math.inf)

    def _refute(self) -> None:
        """Prove that the other choices are no better, while there is time."""
        best = min(self.choices, key=_promise, default=None)
        if best is None or best.best is None:
            return
        left = [choice for choice in self.choices if choice is not best
                and not self._is_beaten(choice)]
        left.sort(key=lambda choice: choice.floor_s)
        for n, choice in enumerate(left):
            if not self.budget.in_time():
                break
            budget = self.budget.slice(1 / (len(left) - n))
            if choice.local.is_single():
                proofs.narrow(choice, best.best.value.cct_s, budget)
            else:
                self._search(choice, budget)

    def _is_beaten(self, choice: states.State) -> bool:
        """Return whether a choice cannot be better than the best so far."""
        return choice.floor_s * (1 + CLOSED) >= self._least_s()

    def _best(self) -> tuple[instances.Instance, states.Outcome]:
        choice = min(self.choices, key=_promise, default=None)
        if choice is None or choice.best is None:
            raise _nowhere(self.whole)
        choice.lower_s = min(self.rest_s, *(
            one.lower_s for one in self.choices))
        choice.floor_s = min(self.rest_s, *(
            one.floor_s for one in self.choices))
        return choice.inst, dataclasses.replace(
            search.outcome(choice), moves=sum(
                one.local.moves_done for one in self.choices))


def _promise(choice: states.State) -> tuple[float, ...]:
    """Return a key of a choice; less is more promising."""
    if choice.best is None:
        return True, choice.lower_s
    return (False, *choice.best.value.key, choice.lower_s)


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
