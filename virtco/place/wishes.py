# SPDX-License-Identifier: Apache-2.0

"""Tenants' wishes about the topology as constraints of a problem. Pure.

The planner keeps them in its search and its bounds. A preferred wish that no
placement keeps is left out; a required one is refused, with how many VMs
would fit.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import math

from virtco import exception
from virtco import hints
from virtco.model import booking
from virtco.model import cluster
from virtco.model import snapshot

# Function that plans a problem.
Solve = Callable[[snapshot.PlacementProblem], snapshot.Plan]
# Name of a hint, and its wish.
_Asked = tuple[str, hints.Wish]


@dataclasses.dataclass(frozen=True, slots=True)
class Met:
    """Problem under the wishes of a group.

    :ivar problem: problem with the wishes that are met.
    :ivar notes: notes on wishes that are not met.
    """

    problem: snapshot.PlacementProblem
    plan: snapshot.Plan
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Fitting:
    """Result of fitting the new VMs below the switches of a level.

    :ivar count: number of them that fit.
    :ivar switch: switch that holds most of them, where they have to share one.
    :ivar limiting: resource that keeps the others out; empty where all fit.
    """

    count: int
    switch: str
    limiting: str


def plan(problem: snapshot.PlacementProblem, wishes: hints.Wishes,
         solve: Solve) -> Met:
    """Plan with all wishes, or without those preferred that nothing keeps.

    :raises virtco.exception.WishRefused: a required wish cannot be met.
    :raises virtco.exception.PlacementInfeasible: nor anything else.
    """
    asked = _asked(wishes)
    why: exception.PlacementInfeasible | None = None
    for kept in _attempts(asked):
        try:
            some = _constrained(problem, kept)
            found = solve(some)
        except exception.PlacementInfeasible as error:
            why = why or error
            continue
        return Met(some, found, tuple(
            f'{key} {wish}: {_reason(problem, key, wish, why)[1]}'
            for key, wish in asked if (key, wish) not in kept))
    assert why is not None
    required = [one for one in asked if one[1].required]
    if not required:
        raise why
    for key, wish in required:
        fitting, text = _reason(problem, key, wish, why)
        if fitting.limiting != 'constraints':
            break
    raise exception.WishRefused(
        what=f'{key} {wish}', why=text, level=wish.level,
        fitting=fitting.count, wanted=len(_movable(problem)),
        limiting=fitting.limiting) from why


def constrained(problem: snapshot.PlacementProblem, wishes: hints.Wishes
                ) -> snapshot.PlacementProblem:
    """Add the wishes about levels that the problem knows."""
    levels = {one.level for one in problem.tree.subtrees}
    return _constrained(problem, [one for one in _asked(wishes)
                                  if one[1].level in levels])


def _asked(wishes: hints.Wishes) -> list[_Asked]:
    return [(key, wish) for key, wish in (
        (hints.WITHIN, wishes.within), (hints.SPREAD, wishes.spread))
        if wish is not None]


def _attempts(asked: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """Yield wishes to keep: all, then without one preferred, two, …"""
    preferred = [one for one in asked if not one[1].required]
    for n in range(len(preferred) + 1):
        for dropped in itertools.combinations(reversed(preferred), n):
            yield [one for one in asked if one not in dropped]


def _constrained(problem: snapshot.PlacementProblem, kept: Sequence[_Asked]
                 ) -> snapshot.PlacementProblem:
    """Add wishes to a problem; they concern all of its VMs."""
    members = tuple(range(len(problem.vms)))
    return dataclasses.replace(
        problem,
        within=tuple(snapshot.Within(wish.level, members)
                     for key, wish in kept if key == hints.WITHIN),
        spread=tuple(snapshot.Spread(wish.level, members, wish.skew)
                     for key, wish in kept if key == hints.SPREAD))


def _reason(problem: snapshot.PlacementProblem, key: str, wish: hints.Wish,
            why: exception.PlacementInfeasible | None
            ) -> tuple[_Fitting, str]:
    """Count by first fit why a wish cannot be met."""
    domains = _below(problem.tree, wish.level,
                     [host.name for host in problem.hosts])
    if not domains:
        levels = sorted({one.level for one in problem.tree.subtrees})
        return _Fitting(0, '', 'topology'), (
            f'no host is below a {wish.level}, levels are '
            + (', '.join(levels) or 'unknown'))
    found = (_below_one(problem, domains) if key == hints.WITHIN
             else _below_all(problem, domains, wish.skew))
    if not found.limiting:
        found = _Fitting(0, '', 'constraints')
    return found, (
        f'{found.count} of {len(_movable(problem))} fit at level '
        f'{wish.level}' + (f' ({found.switch})' if found.switch else '')
        + f'; limiting: {found.limiting}'
        + (f' ({why})' if found.limiting == 'constraints' else ''))


def _below(tree: cluster.Tree, level: str, hosts: Iterable[str]
           ) -> dict[str, list[str]]:
    """Group hosts by the switch of a level above them."""
    chains = tree.chains()
    found: dict[str, list[str]] = {}
    for host in hosts:
        for one in chains[tree.leaf_of[host]] if host in tree.leaf_of else ():
            if one.level == level:
                found.setdefault(one.name, []).append(host)
    return found


def below_the_same(tree: cluster.Tree, level: str, host: str
                   ) -> frozenset[str]:
    """List the hosts below the same switch of a level as this one."""
    return frozenset([host]).union(*(
        below for below in _below(tree, level, tree.leaf_of).values()
        if host in below))


def _movable(problem: snapshot.PlacementProblem) -> list[int]:
    """List the indices of new VMs, the largest first."""
    return sorted((i for i, vm in enumerate(problem.vms)
                   if vm.pinned is None), reverse=True,
                  key=lambda i: problem.vms[i].demand)


class _Room:
    """Free resources on some hosts."""

    def __init__(self, problem: snapshot.PlacementProblem,
                 hosts: Collection[str]):
        self._problem = problem
        self.free = {host.name: list(host.free) for host in problem.hosts
                     if host.name in hosts
                     and host.name not in problem.excluded_hosts}
        # VMs like these find no room, and all of a launch are alike.
        self._refused: set[tuple[object, object]] = set()

    def take(self, vm: int) -> bool:
        """Put a VM onto the first host that has room for it."""
        found = self._problem.vms[vm]
        if (found.demand, found.allowed) in self._refused:
            return False
        for name, free in self.free.items():
            if ((found.allowed is None or name in found.allowed)
                    and all(need <= have for need, have in zip(
                        found.demand, free))):
                self.free[name] = [have - need for need, have in zip(
                    found.demand, free)]
                return True
        self._refused.add((found.demand, found.allowed))
        return False

    def lacking(self, demand: booking.Vector) -> str:
        """Name the resource of which the fewest hosts have enough."""
        names = self._problem.resources
        enough = [sum(free[i] >= need for free in self.free.values())
                  for i, need in enumerate(demand)]
        return names[enough.index(min(enough))] if enough else 'hosts'


def _below_one(problem: snapshot.PlacementProblem,
               domains: Mapping[str, Collection[str]]) -> _Fitting:
    """Fill every switch, or the one below which most of the VMs run."""
    counts = _pinned(problem, domains)
    if any(counts.values()):
        order = [one.name for one in problem.tree.subtrees]
        home = max(counts, key=lambda name: (counts[name],
                                             order.index(name)))
        domains = {home: domains[home]}
    return max((_fit(problem, {name: hosts}, math.inf, name)
                for name, hosts in domains.items()),
               key=lambda one: one.count)


def _below_all(problem: snapshot.PlacementProblem,
               domains: Mapping[str, Collection[str]], skew: int) -> _Fitting:
    """Fill the switches that a VM may use up to their share."""
    names = frozenset().union(*(
        frozenset(host.name for host in problem.hosts)
        if problem.vms[i].allowed is None else problem.vms[i].allowed or ()
        for i in _movable(problem))) - problem.excluded_hosts | {
            vm.pinned for vm in problem.vms if vm.pinned is not None}
    usable = {name: hosts for name, hosts in domains.items()
              if not names.isdisjoint(hosts)}
    return _fit(problem, usable, skew + math.ceil(
        len(problem.vms) / max(1, len(usable))))


def _pinned(problem: snapshot.PlacementProblem,
            domains: Mapping[str, Collection[str]]) -> dict[str, int]:
    """Count the VMs that run below each switch."""
    return {name: sum(vm.pinned in hosts for vm in problem.vms)
            for name, hosts in domains.items()}


def _fit(problem: snapshot.PlacementProblem,
         domains: Mapping[str, Collection[str]], share: float,
         switch: str = '') -> _Fitting:
    """Fill some switches in turn, the emptiest first, up to their share."""
    movable, counts = _movable(problem), _pinned(problem, domains)
    rooms = {name: _Room(problem, hosts) for name, hosts in domains.items()}
    left = []
    for vm in movable:
        name = next((name for name in sorted(rooms, key=counts.__getitem__)
                     if counts[name] < share and rooms[name].take(vm)), None)
        if name is None:
            left.append(vm)
        else:
            counts[name] += 1
    limiting = ''
    if left:
        limiting = rooms[min(rooms, key=counts.__getitem__)].lacking(
            problem.vms[left[0]].demand) if rooms else 'hosts'
    return _Fitting(len(movable) - len(left), switch, limiting)
