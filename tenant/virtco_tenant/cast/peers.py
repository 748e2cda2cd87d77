# SPDX-License-Identifier: Apache-2.0

"""Neighbours and shares of the members (Orchestra §5.2 and §5.3). Pure.

Topology-aware Cornet makes each cluster, a host or a rack, a swarm of its own.
With three swarms of the same blocks, a block crosses each link about once:

- ``FIRST``: the source gives each block to one member, whose share it is;
- ``BETWEEN``: each cluster takes each block once from others, through the
  member whose share it is there (a *gate*);
- ``WITHIN``: the members of a cluster give each other everything.

Mutualcast (Li, Chou, Zhang 2005) shows that such shares fill the upload of all
members; here each share is fetched rarest block first, and a gate that has its
own share helps with the others.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import itertools
import random

FIRST, BETWEEN, WITHIN = LEVELS = range(3)

#: Most neighbours of a member in one swarm: further connections share the link
#: and add no speed (Orchestra §5.2, the cap on connections).
MAX_NEIGHBOURS = 12
#: Members of a cluster that fetch shares from outside, at most. Others have
#: nothing of their own to give, so their uploads are used less.
MAX_GATES = 32
#: Clusters that take from the source itself, at most.
MAX_FIRST_CLUSTERS = 4
#: Steps of Roberts' R2 sequence: multiples modulo 1 fill a square evenly. The
#: first assigns a block to a gate of each cluster, the second to the cluster
#: that takes it from the source.
_GATE_STEP, _FIRST_STEP = 0.7548776662466927, 0.5698402909980532


@dataclasses.dataclass(frozen=True)
class Member:
    """A member of a cast.

    :ivar cluster: name of its cluster; None where nothing is known.
    """

    name: str
    cluster: str | None = None


@dataclasses.dataclass(frozen=True)
class Share:
    """Blocks that a gate fetches for its cluster.

    :ivar gate: number of this gate, from 0.
    :ivar gates: number of gates of the cluster.
    :ivar first: interval of 0 … 1 of the blocks that the cluster takes from
        the source itself.
    """

    gate: int
    gates: int
    first: tuple[float, float] = (0.0, 0.0)

    def has(self, block: int) -> bool:
        """Return whether this gate fetches a block for its cluster."""
        return int(block * _GATE_STEP % 1 * self.gates) == self.gate

    def is_first(self, block: int) -> bool:
        """Return whether this gate takes a block from the source itself."""
        return self.has(block) and self.is_clusters_first(block)

    def is_clusters_first(self, block: int) -> bool:
        """Return whether a gate of the cluster takes a block from the source.
        """
        low, high = self.first
        return low <= block * _FIRST_STEP % 1 < high

    def overlaps(self, other: 'Share') -> bool:
        """Return whether two shares have blocks in common."""
        return (self.gate * other.gates < (other.gate + 1) * self.gates
                and other.gate * self.gates < (self.gate + 1) * other.gates)


@dataclasses.dataclass(frozen=True)
class Part:
    """Role of one member in a plan.

    :ivar links: names of the neighbours it may connect to, for each of
        ``LEVELS``.
    :ivar share: None for the source and for members that are no gates.
    """

    links: tuple[frozenset[str], ...]
    share: Share | None = None


def plan(source: str, members: Sequence[Member], seed: int) -> dict[str, Part]:
    """Return the links and the share of each member, with topology.

    Links are symmetric.

    :param source: name of the member that has all blocks at first.
    :param members: in the order of their arrival, so that a new member changes
        few existing links.
    :param seed: seed of random choices.
    """
    clusters: dict[str | None, list[str]] = {}
    for member in members:
        if member.name != source:
            clusters.setdefault(member.cluster, []).append(member.name)
    shares = _shares(list(clusters.values()))
    links = [_Links(member.name for member in members) for _ in LEVELS]
    for name, share in shares.items():
        if share.first[0] < share.first[1]:
            links[FIRST].add(source, name)
    for one, other in _pairs(list(clusters.values()), seed):
        for name, taken in itertools.product(one, other):
            if name in shares and taken in shares and shares[name].overlaps(
                    shares[taken]):
                links[BETWEEN].add(name, taken)
    for names in clusters.values():
        links[WITHIN].join(names, str(seed))
    return {member.name: Part(tuple(level.of(member.name) for level in links),
                              shares.get(member.name)) for member in members}


def plan_plain(source: str, members: Sequence[Member],
               seed: int) -> dict[str, Part]:
    """Return a plan of Cornet without topology: one swarm, random links."""
    names = _source_first(source, members)
    links = _Links(names)
    links.join(names, str(seed))
    return _one_swarm(links, names)


def plan_star(source: str, members: Sequence[Member],
              seed: int) -> dict[str, Part]:
    """Return a plan in which the source sends to every member directly."""
    return plan_tree(source, members, seed, len(members))


def plan_chain(source: str, members: Sequence[Member],
               seed: int) -> dict[str, Part]:
    """Return a plan in which each member sends to the next one to arrive."""
    return plan_tree(source, members, seed, 1)


def plan_tree(source: str, members: Sequence[Member], seed: int,
              children: int = 2) -> dict[str, Part]:
    """Return a plan of a tree in which each member sends to its children.

    :param children: most children of a member.
    """
    names = _source_first(source, members)
    links = _Links(names)
    for place, name in enumerate(names[1:]):
        links.add(name, names[place // children])
    return _one_swarm(links, names)


def _source_first(source: str, members: Sequence[Member]) -> list[str]:
    return [source, *(member.name for member in members
                      if member.name != source)]


def _one_swarm(links: '_Links', names: Iterable[str]) -> dict[str, Part]:
    return {name: Part((frozenset(), frozenset(), links.of(name)))
            for name in names}


def _pairs(clusters: Sequence[list[str]], seed: int
           ) -> Iterable[tuple[list[str], list[str]]]:
    """Yield pairs of clusters that exchange blocks, as lists of members."""
    first = {names[0]: names for names in clusters}
    links = _Links(first)
    links.join(list(first), str(seed))
    for name, names in first.items():
        for other in sorted(links.of(name)):
            yield names, first[other]


def _shares(clusters: Sequence[Sequence[str]]) -> dict[str, Share]:
    """Return the share of each gate.

    The first MAX_FIRST_CLUSTERS clusters take the source's blocks, in
    proportion to their numbers of members.
    """
    first = clusters[:MAX_FIRST_CLUSTERS]
    ends = list(itertools.accumulate(map(len, first), initial=0))
    parts = [(low / ends[-1], high / ends[-1])
             for low, high in itertools.pairwise(ends)]
    parts += [(0.0, 0.0)] * (len(clusters) - len(first))
    return {
        name: Share(gate, gates, part)
        for names, part in zip(clusters, parts)
        for gates in [min(len(names), MAX_GATES)]
        for gate, name in enumerate(names[:gates])}


class _Links:
    """An undirected graph of members."""

    def __init__(self, names: Iterable[str]):
        self._links: dict[str, set[str]] = {name: set() for name in names}

    def of(self, name: str) -> frozenset[str]:
        return frozenset(self._links[name])

    def add(self, one: str, other: str) -> None:
        if one != other:
            self._links[one].add(other)
            self._links[other].add(one)

    def join(self, names: Sequence[str], seed: str) -> None:
        """Link members in a chain, which connects them, and at random."""
        half = MAX_NEIGHBOURS // 2
        for place, name in enumerate(names):
            before = names[:place]
            if len(before) > half:
                drawn = random.Random(f'{seed} {name}')
                before = [before[-1], *drawn.sample(before[:-1], half - 1)]
            for other in before:
                self.add(name, other)
