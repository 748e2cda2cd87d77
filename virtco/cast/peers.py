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
#: Members of a cluster that fetch shares from outside, at most.
MAX_GATES = 8
#: Clusters that take from the source itself, at most.
MAX_FIRST_CLUSTERS = 8
#: Multiples of it, modulo 1, are spread evenly at each length.
_GOLDEN = 0.6180339887498949


@dataclasses.dataclass(frozen=True)
class Member:
    """:ivar cluster: opaque; None where nothing is known."""

    name: str
    cluster: str | None = None


@dataclasses.dataclass(frozen=True)
class Share:
    """Blocks that a gate fetches for its cluster.

    :ivar gates: of the cluster; a power of two, so that shares nest.
    :ivar first: part of 0 … 1 that the cluster takes from the source itself.
    """

    gate: int
    gates: int
    first: tuple[float, float] = (0.0, 0.0)

    def has(self, block: int) -> bool:
        return block % self.gates == self.gate

    def is_first(self, block: int) -> bool:
        low, high = self.first
        return self.has(block) and low <= block * _GOLDEN % 1 < high


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
    gates = [[name for name in names if name in shares]
             for names in clusters.values()]
    links = [_Links(member.name for member in members) for _ in LEVELS]
    for name, share in shares.items():
        if share.first[0] < share.first[1]:
            links[FIRST].add(source, name)
    # Shares nest, so these are all that have blocks in common.
    for residue in range(max(map(len, gates), default=0)):
        links[BETWEEN].join([names[residue % len(names)] for names in gates],
                            f'{seed} {residue}')
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
        for gates in [_power_of_two(min(len(names), MAX_GATES))]
        for gate, name in enumerate(names[:gates])}


def _power_of_two(value: int) -> int:
    """The largest that is not above."""
    return 1 << (value.bit_length() - 1)


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
