# SPDX-License-Identifier: Apache-2.0

"""Search where VMs have to share a switch: branch on which one it is.

Every choice of switches is a problem of its own, with fewer hosts. The ones
that promise most by rates and room are annealed for a short while, as many as
there is time for, the better half of them for longer, and so on; the last one
is searched. No placement is better than the least of all choices' bounds; of
those that were not looked at, the bound of the problem without wishes holds.
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
#: Part of the time for a first look at the choices, one after another.
LOOK_SHARE = 0.15
#: Factor by which each round of the race reduces the choices, and the time of
#: the last one's search in rounds.
STAY = 2
LAST_ROUNDS = 2
#: Moves per node of a choice's first run.
FIRST_MOVES = 100
MOST_MOVES = 20_000_000
#: Share of the time left for the best choice while others may still be better.
LAST_SHARE = 0.9
#: Part of the time that the bound without wishes may take, and after which
#: choices have no bounds of their own before the race.
BOUND_SHARE = 0.1
#: Time per byte of a port without a limit, for an estimate.
LEAST_S = 1e-30
#: Relative closeness at which a choice cannot be better.
CLOSED = states.CLOSED


def run(whole: instances.Instance, task: states.Task
        ) -> tuple[instances.Instance, states.Outcome]:
    """Search a problem; the instance that the best placement is of.

    :raises virtco.exception.PlacementInfeasible: when nothing fits.
    """
    if not whole.together:
        state = states.State(whole.reduced(task.budget), task)
        search.run(state, task.budget)
        return state.inst, search.outcome(state)
    return _Race(whole, task).run()


def parts(whole: instances.Instance) -> Iterator[instances.Instance]:
    """Yield the problem per choice of switches, the most promising first."""
    rows = []
    for wish in whole.together:
        time_s = {number: _even_s(whole, wish.nodes, wish.switch == number)
                  for number in np.unique(wish.switch[wish.switch >= 0]
                                          ).tolist()
                  if _may_hold(whole, wish.nodes, wish.switch == number)}
        rows.append(sorted(time_s, key=lambda number: time_s[number]))
    for numbers in itertools.product(*rows):
        part = whole.below(numbers)
        if part.allowed.any(axis=1).all():
            yield part


def _may_hold(whole: instances.Instance, nodes: np.ndarray,
              below: np.ndarray) -> bool:
    """Return whether capacities and allowed hosts alone do not rule it out."""
    if not whole.allowed[nodes][:, below].any(axis=1).all():
        return False
    need = whole.demand[nodes].sum(axis=0)
    free = np.maximum(whole.free[below], 0.0).sum(axis=0)
    return bool((need <= free * (1 + CLOSED) + CLOSED).all())


def _even_s(whole: instances.Instance, nodes: np.ndarray, below: np.ndarray
            ) -> float:
    """Estimate the time of all traffic, in s per byte, below a switch.

    As if hosts took parts of the nodes in proportion to their rates until
    they are full, and all traffic left its host. On 14 instances of 1,000
    hosts in 64 racks the best rack was among the first three by it in 11, by
    room in 9.
    """
    need = whole.demand[nodes].sum(axis=0)
    free = np.maximum(whole.free[below], 0.0)[:, need > 0]
    part = (free / need[need > 0]).min(axis=1, initial=1.0)
    # Rates of pairs would take 10 ms for each switch of 1,000 hosts.
    slow = instances.finite(whole.s_per_byte[:2 * len(below)]).reshape(
        2, -1)[:, below].max(axis=0)
    order = np.argsort(part * slow)
    full = np.cumsum(part[order]) - part[order]
    rate = np.cumsum(1.0 / np.maximum(slow[order], LEAST_S)[::-1])[::-1]
    return float(((1.0 - full) / rate).max())


def any_placement(whole: instances.Instance, seed: int,
                  budget: budgets.Budget) -> np.ndarray:
    """Find some valid placement, as host per node.

    :raises virtco.exception.PlacementInfeasible: when none was found.
    """
    for part in parts(whole):
        try:
            return feasible.any_placement(part, seed, budget)
        except exception.PlacementInfeasible as error:
            if not whole.together:
                raise
            LOG.debug('%s', error)
    raise _nowhere(whole)


def _nowhere(whole: instances.Instance) -> exception.PlacementInfeasible:
    return exception.PlacementInfeasible(
        what=f'{len(whole.node_of_vm)} VMs',
        why='no switch has room for those that have to share one')


class _Race:
    def __init__(self, whole: instances.Instance, task: states.Task):
        self.whole = whole
        self.told = task.on_incumbent
        self.task = dataclasses.replace(task, on_incumbent=self._tell)
        self.budget = task.budget
        #: The search of each choice that was looked at.
        self.choices: list[states.State] = []
        #: The problem without wishes, while a choice was not looked at.
        self.rest: list[states.State] = []
        self._waiting = parts(whole)
        self._seen: set[bytes | None] = set()

    def run(self) -> tuple[instances.Instance, states.Outcome]:
        """Race the choices, search the winner, bound the others."""
        self._bound()
        self._gather(self.budget.slice(LOOK_SHARE))
        racing = sorted(self.choices, key=_promise)
        rounds = math.ceil(math.log(max(1, len(racing)), STAY))
        race = self.budget.slice(rounds / (rounds + LAST_ROUNDS))
        for n in range(rounds):
            whole = race.slice(1 / (rounds - n))
            for i, choice in enumerate(racing):
                if not self._is_beaten(choice):
                    self._anneal(choice, MOST_MOVES,
                                 whole.slice(1 / (len(racing) - i)))
            racing = sorted(racing, key=_promise)[:-(-len(racing) // STAY)]
        best = self._best()
        alone = all(self._is_beaten(other) for other in (
            *self.rest, *self.choices) if other is not best)
        self._search(best, self.budget if alone else self.budget.slice(
            LAST_SHARE))
        self._gather(self.budget)
        self._refute()
        return self._outcome()

    def _bound(self) -> None:
        """Bound all choices at once: a placement below any switches."""
        state = states.State(dataclasses.replace(
            self.whole, together=()).reduced(self.budget), self.task)
        proofs.bound(state, self.budget.slice(BOUND_SHARE))
        self.rest = [state]

    def _gather(self, budget: budgets.Budget) -> None:
        """Look at the choices that differ, until there is no time for more.

        There is always time to find some placement.
        """
        bounding = budget.slice(BOUND_SHARE)
        while self.rest and len(self.choices) < MOST_CHOICES and (
                all(choice.best is None for choice in self.choices)
                or (budget.in_time() and not self._is_beaten(self.rest[0]))):
            part = next(self._waiting, None)
            if part is None:
                self.rest = []
                break
            inst = part.reduced(self.budget)
            signature = _signature(inst)
            if signature is None or signature not in self._seen:
                self._seen.add(signature)
                self._look(states.State(inst, self.task), budget, bounding)

    def _look(self, choice: states.State, budget: budgets.Budget,
              bounding: budgets.Budget) -> None:
        """Bound a choice, find a placement and better it for a moment."""
        choice.raise_bound(self.rest[0].lower_s)
        choice.raise_floor(self.rest[0].floor_s)
        if bounding.in_time():
            proofs.bound(choice, bounding)
        self.choices.append(choice)
        if self._is_beaten(choice):
            return
        with contextlib.suppress(exception.PlacementInfeasible):
            search.begin(choice, budget)
            if not self._is_beaten(choice):
                self._anneal(choice, FIRST_MOVES * choice.inst.n_nodes,
                             budget)

    def _anneal(self, choice: states.State, moves: int,
                budget: budgets.Budget) -> None:
        """Run the local search from the best placement, if there is one."""
        if choice.best is None:
            return
        choice.stage = 'race'
        choice.anneal(choice.answer.assign, moves, annealing.hot(choice),
                      annealing.power(choice, 0), budget)

    def _search(self, choice: states.State, budget: budgets.Budget) -> None:
        # The search may find that nothing fits below this choice's switch.
        with contextlib.suppress(exception.PlacementInfeasible):
            search.run(choice, budget)

    def _tell(self, progress: snapshot.Progress) -> object:
        """Tell the listener, if any, of the overall best and bound."""
        if self.told is None or self._least_s() < progress.objective_s:
            return None
        return self.told(dataclasses.replace(progress, bound_s=min(
            progress.bound_s, *(
                one.floor_s for one in (*self.rest, *self.choices)))))

    def _least_s(self) -> float:
        return min((choice.best.value.objective_s for choice in self.choices
                    if choice.best is not None), default=math.inf)

    def _refute(self) -> None:
        """Prove that the other choices are no better, while there is time."""
        best = self._best()
        left = [choice for choice in self.choices if choice is not best
                and not self._is_beaten(choice)]
        left.sort(key=lambda choice: choice.floor_s)
        for n, choice in enumerate(left):
            if not self.budget.in_time():
                break
            budget = self.budget.slice(1 / (len(left) - n))
            if choice.local.is_single():
                proofs.narrow(choice, best.answer.value.cct_s, budget)
            else:
                self._search(choice, budget)

    def _is_beaten(self, choice: states.State) -> bool:
        """Return whether a choice cannot be better than the best so far.

        An infinite objective, of bytes to a dead port, beats nothing.
        """
        return math.inf > self._least_s() <= choice.floor_s * (1 + CLOSED)

    def _best(self) -> states.State:
        """Return the choice with the best placement.

        :raises virtco.exception.PlacementInfeasible: when none has any.
        """
        choice = min(self.choices, key=_promise, default=None)
        if choice is None or choice.best is None:
            raise _nowhere(self.whole)
        return choice

    def _outcome(self) -> tuple[instances.Instance, states.Outcome]:
        """Return the best choice's answer, with the bounds of all choices."""
        choice, every = self._best(), (*self.rest, *self.choices)
        choice.lower_s = min(one.lower_s for one in every)
        choice.floor_s = min(one.floor_s for one in every)
        return choice.inst, dataclasses.replace(
            search.outcome(choice), moves=sum(
                one.local.moves_done for one in every))


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
