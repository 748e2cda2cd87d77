# SPDX-License-Identifier: Apache-2.0

"""Tenants' wishes about the topology, as limits of a problem. Pure.

``virtco:within`` restricts a group to the hosts below one switch of a level:
the planner tries the roomiest switches that hold the group and takes the best
plan. ``virtco:spread`` gives each VM a switch, the emptiest first, so that no
switch has more than its even share. A VM that runs stays; one that is to be
replaced follows the switch of the others.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import NoReturn

from virtco import exception
from virtco import hints
from virtco.model import cluster
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner

#: Seconds that the bound of the whole problem may take.
BOUND_S = 0.05
#: Switches that are tried for a group, which share its time.
MOST_TRIES = 3

# What plans a problem within a part of the time.
Solve = Callable[[snapshot.PlacementProblem, float], snapshot.Plan]
Vector = tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Met:
    """:ivar notes: of wishes that were not, or could not be, met."""

    problem: snapshot.PlacementProblem
    plan: snapshot.Plan
    notes: tuple[str, ...] = ()


def plan(problem: snapshot.PlacementProblem, wishes: hints.Wishes,
         solve: Solve) -> Met:
    """The best plan that keeps to the wishes.

    :raises virtco.exception.WishRefused: a required wish cannot be met.
    :raises virtco.exception.PlacementInfeasible: nor anything else.
    """
    notes: list[str] = []
    tries = [problem]
    try:
        tries = _within(problem, wishes.within)
    except _Unmet as error:
        notes.append(error.text)
    try:
        tries = [_spread(some, wishes.spread) for some in tries]
    except _Unmet as error:
        notes.append(error.text)
    found: list[tuple[snapshot.PlacementProblem, snapshot.Plan]] = []
    infeasible: exception.PlacementInfeasible | None = None
    for some in tries:
        try:
            found.append((some, solve(some, 1 / len(tries))))
        except exception.PlacementInfeasible as error:
            infeasible = error
    if infeasible is not None and not found:
        required = next((wish for wish in (wishes.within, wishes.spread)
                         if wish is not None and wish.required), None)
        if required is not None:
            movable = _movable(problem)
            raise exception.WishRefused(
                what='wishes', why=f'0 of {len(movable)} fit at level '
                f'{required.level}; limiting: constraints ({infeasible})',
                level=required.level, fitting=0, wanted=len(movable),
                limiting='constraints') from infeasible
        if tries == [problem]:
            raise infeasible
        notes.append(f'wishes are not met: {infeasible}')
        found = [(problem, solve(problem, 1.0))]
    tried, best = min(found, key=lambda pair: pair[1].objective_s)
    if tried is not problem:
        best = _bounded(problem, best)
    return Met(tried, best, tuple(notes))


def _bounded(problem: snapshot.PlacementProblem, plan: snapshot.Plan
             ) -> snapshot.Plan:
    """Replace the bound of one restricted problem by that of the whole.

    The wish allows other switches, too, so only a bound of the problem
    without the wish holds for every placement that keeps to it.
    """
    whole = planner.evaluate(problem, plan, budgets.Budget(
        budgets.Counter(), BOUND_S))
    return dataclasses.replace(
        plan, lower_bound_s=whole.lower_bound_s, gap=whole.gap,
        objective_bound_s=whole.objective_bound_s)


class _Unmet(Exception):
    """A preferred wish goes unmet."""

    def __init__(self, text: str):
        self.text = text


def _domains(problem: snapshot.PlacementProblem, level: str
             ) -> dict[str, list[cluster.Host]]:
    """Hosts below each switch of a level."""
    chains = problem.tree.chains()
    found: dict[str, list[cluster.Host]] = {}
    for host in problem.hosts:
        leaf = problem.tree.leaf_of.get(host.name)
        for one in chains[leaf] if leaf is not None else ():
            if one.level == level:
                found.setdefault(one.name, []).append(host)
    return found


def below_the_same(tree: cluster.Tree, level: str, host: str
                   ) -> frozenset[str]:
    """All hosts below the switch of a level that is above this one."""
    chains = tree.chains()
    leaf = tree.leaf_of.get(host)
    names = {one.name for one in (chains[leaf] if leaf is not None else ())
             if one.level == level}
    leaves = {leaf for leaf, chain in chains.items()
              if any(one.name in names for one in chain)}
    return frozenset(name for name, leaf in tree.leaf_of.items()
                     if leaf in leaves) | {host}


def _known(problem: snapshot.PlacementProblem, key: str, wish: hints.Wish
           ) -> dict[str, list[cluster.Host]]:
    """The switches of the wish's level.

    :raises virtco.exception.WishRefused:
    """
    found = _domains(problem, wish.level)
    if not found:
        levels = sorted({one.level for one in problem.tree.subtrees})
        why = (f'no host is below a {wish.level}, levels are '
               + (', '.join(levels) or 'unknown'))
        _refuse(key, wish, why, 0, _movable(problem), 'topology')
    return found


def _refuse(key: str, wish: hints.Wish, why: str, fitting: int,
            wanted: Sequence[int], limiting: str) -> NoReturn:
    if not wish.required:
        raise _Unmet(f'{key} {wish}: {why}')
    raise exception.WishRefused(
        what=f'{key} {wish}', why=why, level=wish.level, fitting=fitting,
        wanted=len(wanted), limiting=limiting)


def _movable(problem: snapshot.PlacementProblem) -> list[int]:
    return [i for i, vm in enumerate(problem.vms) if vm.pinned is None]


class _Room:
    """What is left on the hosts of a domain."""

    def __init__(self, problem: snapshot.PlacementProblem,
                 hosts: Sequence[cluster.Host]):
        self._problem = problem
        self.free = {host.name: list(host.free) for host in hosts
                     if host.name not in problem.excluded_hosts}

    def take(self, vm: int) -> bool:
        """Put a VM onto the first host that has room for it."""
        found = self._problem.vms[vm]
        for name, free in self.free.items():
            if ((found.allowed is None or name in found.allowed)
                    and all(need <= have for need, have in zip(
                        found.demand, free))):
                self.free[name] = [have - need for need, have in zip(
                    found.demand, free)]
                return True
        return False

    def lacking(self, demand: Vector) -> str:
        """The resource of which the fewest hosts have enough."""
        names = self._problem.resources
        enough = [sum(free[i] >= need for free in self.free.values())
                  for i, need in enumerate(demand)]
        return names[enough.index(min(enough))] if enough else 'hosts'


def _fitting(problem: snapshot.PlacementProblem,
             hosts: Sequence[cluster.Host]) -> tuple[int, str]:
    """How many of the VMs fit together, and what limits them."""
    room = _Room(problem, hosts)
    vms = sorted(_movable(problem), reverse=True,
                 key=lambda i: problem.vms[i].demand)
    left_out = [vm for vm in vms if not room.take(vm)]
    return len(vms) - len(left_out), (
        room.lacking(problem.vms[left_out[0]].demand) if left_out else '')


def _within(problem: snapshot.PlacementProblem, wish: hints.Wish | None
            ) -> list[snapshot.PlacementProblem]:
    """The problem below each switch that is worth a try."""
    if wish is None:
        return [problem]
    domains = _known(problem, hints.WITHIN, wish)
    movable = _movable(problem)
    home = _home(problem, domains)
    if home is not None:
        domains = {home: domains[home]}
    fits = {name: _fitting(problem, hosts)
            for name, hosts in domains.items()}
    chosen = [name for name, (count, _why) in fits.items()
              if count == len(movable)]
    if not chosen:
        best = max(fits, key=lambda name: fits[name][0])
        count, limiting = fits[best]
        _refuse(hints.WITHIN, wish,
                f'{count} of {len(movable)} fit at level {wish.level} '
                f'({best}); limiting: {limiting}', count, movable, limiting)
    chosen.sort(key=lambda name: (-_space(domains[name]), name))
    return [_restricted(problem, dict.fromkeys(movable, frozenset(
        host.name for host in domains[name])))
        for name in chosen[:MOST_TRIES]]


def _space(hosts: Sequence[cluster.Host]) -> float:
    return math.fsum(host.free[0] for host in hosts)


def _home(problem: snapshot.PlacementProblem,
          domains: Mapping[str, Sequence[cluster.Host]]) -> str | None:
    """The switch below which most of the VMs run, if any do."""
    pins = [vm.pinned for vm in problem.vms if vm.pinned is not None]
    counts = {name: sum(pins.count(host.name) for host in hosts)
              for name, hosts in domains.items()}
    best = max(counts, key=lambda name: (counts[name], name))
    return best if counts[best] else None


def _spread(problem: snapshot.PlacementProblem, wish: hints.Wish | None
            ) -> snapshot.PlacementProblem:
    """Each VM below a switch of its own, as evenly as can be."""
    if wish is None:
        return problem
    movable = _movable(problem)
    usable = {name: [host for host in hosts if any(
        problem.vms[i].allowed is None
        or host.name in (problem.vms[i].allowed or ()) for i in movable)]
        for name, hosts in _known(problem, hints.SPREAD, wish).items()}
    pins = [vm.pinned for vm in problem.vms if vm.pinned is not None]
    domains = {name: hosts for name, hosts in usable.items() if hosts}
    counts = {name: sum(pins.count(host.name) for host in hosts)
              for name, hosts in domains.items()}
    rooms = {name: _Room(problem, hosts) for name, hosts in domains.items()}
    share = math.ceil(len(problem.vms) / max(1, len(domains)))
    given: dict[int, frozenset[str]] = {}
    for vm in movable:
        order = sorted(domains, key=lambda name: (counts[name], -_space(
            domains[name]), name))
        name = next((name for name in order if counts[name] < share
                     and rooms[name].take(vm)), None)
        if name is None:
            limiting = (rooms[order[0]].lacking(problem.vms[vm].demand)
                        if order else 'hosts')
            _refuse(hints.SPREAD, wish,
                    f'{len(given)} of {len(movable)} fit at level '
                    f'{wish.level}; limiting: {limiting}', len(given),
                    movable, limiting)
        counts[name] += 1
        given[vm] = frozenset(host.name for host in domains[name])
    return _restricted(problem, given)


def _restricted(problem: snapshot.PlacementProblem,
                allowed: Mapping[int, frozenset[str]]
                ) -> snapshot.PlacementProblem:
    """Those VMs go to those hosts only."""
    return dataclasses.replace(problem, vms=tuple(
        vm if i not in allowed else dataclasses.replace(
            vm, allowed=allowed[i] if vm.allowed is None
            else allowed[i] & vm.allowed)
        for i, vm in enumerate(problem.vms)))
