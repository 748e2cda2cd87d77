# SPDX-License-Identifier: Apache-2.0

"""Who exchanges blocks with whom (Orchestra §5.2 and §5.3). Pure.

Topology-aware Cornet makes each cluster, a host or a rack, a swarm of its own.
Three swarms of the same blocks see to it that a block crosses each link about
once:

- ``FIRST``: the source gives each block to one member, whose share it is;
- ``BETWEEN``: each cluster takes each block once from others, through the
  member whose share it is there (a *gate*);
- ``WITHIN``: the members of a cluster give each other everything.

Mutualcast (Li, Chou, Zhang 2005) shows that such shares fill the upload of all
members; here each share is fetched by rarest first, and whoever has its own
helps with the others'.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import itertools
import random

FIRST, BETWEEN, WITHIN = LEVELS = range(3)

#: Neighbours of a member in one swarm: beyond, connections share the link
#: without being faster (Orchestra §5.2, the cap on connections).
MAX_NEIGHBOURS = 12
#: Members of a cluster that fetch shares from outside, at most. Others have
#: nothing of their own to give, so their uploads are used less.
MAX_GATES = 32
#: Clusters that take from the source itself, at most.
MAX_FIRST_CLUSTERS = 4
#: Multiples of them, modulo 1, fill a square evenly at each length (Roberts'
#: R2 sequence): who has a block within its cluster, which cluster is first.
_GATE_STEP, _FIRST_STEP = 0.7548776662466927, 0.5698402909980532


@dataclasses.dataclass(frozen=True)
class Member:
    """:ivar cluster: opaque; None where nothing is known."""

    name: str
    cluster: str | None = None


@dataclasses.dataclass(frozen=True)
class Share:
    """Blocks that a gate fetches for its cluster.

    :ivar gate: number of this one, from 0.
    :ivar gates: of the cluster.
    :ivar first: part of 0 … 1 that the cluster takes from the source itself.
    """

    gate: int
    gates: int
    first: tuple[float, float] = (0.0, 0.0)

    def has(self, block: int) -> bool:
        return int(block * _GATE_STEP % 1 * self.gates) == self.gate

    def is_first(self, block: int) -> bool:
        return self.has(block) and self.is_clusters_first(block)

    def is_clusters_first(self, block: int) -> bool:
        """Whether some gate of the cluster takes it from the source."""
        low, high = self.first
        return low <= block * _FIRST_STEP % 1 < high

    def overlaps(self, other: 'Share') -> bool:
        """Whether there are blocks in both."""
        return (self.gate * other.gates < (other.gate + 1) * self.gates
                and other.gate * self.gates < (self.gate + 1) * other.gates)


@dataclasses.dataclass(frozen=True)
class Part:
    """What one member does.

    :ivar links: to whom it may connect, for each of ``LEVELS``.
    :ivar share: None for the source and those that are no gates.
    """

    links: tuple[frozenset[str], ...]
    share: Share | None = None


def plan(source: str, members: Sequence[Member], seed: int) -> dict[str, Part]:
    """Symmetric: what each may connect to, and what it fetches.

    :param source: name of the member that has all blocks at first.
    :param members: in the order in which they came, which does not change, so
        that newcomers change little of what was there.
    :param seed: of the choice among equals.
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
    """Cornet without topology: one swarm of random neighbours."""
    names = _source_first(source, members)
    links = _Links(names)
    links.join(names, str(seed))
    return _one_swarm(links, names)


def plan_star(source: str, members: Sequence[Member],
              seed: int) -> dict[str, Part]:
    """The source gives all to each."""
    return plan_tree(source, members, seed, len(members))


def plan_chain(source: str, members: Sequence[Member],
               seed: int) -> dict[str, Part]:
    """Each gives all to the next, in the order in which they came."""
    return plan_tree(source, members, seed, 1)


def plan_tree(source: str, members: Sequence[Member], seed: int,
              children: int = 2) -> dict[str, Part]:
    """Each gives all to so many others."""
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
    """Clusters that exchange blocks."""
    first = {names[0]: names for names in clusters}
    links = _Links(first)
    links.join(list(first), str(seed))
    for name, names in first.items():
        for other in sorted(links.of(name)):
            yield names, first[other]


def _shares(clusters: Sequence[Sequence[str]]) -> dict[str, Share]:
    """The source's blocks are divided among clusters by their sizes."""
    first = clusters[:MAX_FIRST_CLUSTERS]
    ends = list(itertools.accumulate(map(len, first), initial=0))
    parts = [(low / ends[-1], high / ends[-1])
             for low, high in itertools.pairwise(ends)]
    parts += [(0.0, 0.0)] * (len(clusters) - len(first))
    return {
        name: Share(gate, gates, part)
        for names, part in zip(clusters, parts, strict=True)
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
        """A chain, which keeps it connected, and random links beside it."""
        half = MAX_NEIGHBOURS // 2
        for place, name in enumerate(names):
            before = names[:place]
            if len(before) > half:
                drawn = random.Random(f'{seed} {name}')
                before = [before[-1], *drawn.sample(before[:-1], half - 1)]
            for other in before:
                self.add(name, other)
