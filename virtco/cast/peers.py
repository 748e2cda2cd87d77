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
Its members share all blocks with each other; a few of them, the gates, also
take blocks from other clusters, so that fewer copies cross the uplinks.
Without clusters all members are one swarm, where each has a bounded number of
random neighbours.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import random

#: Neighbours of a member in one swarm: beyond, connections share the link
#: without being faster (Orchestra §5.2, the cap on connections).
MAX_NEIGHBOURS = 8
#: Members of a cluster that reach out of it. One gate has the rate of its own
#: NIC, which is less than its rack's uplink at usual oversubscriptions.
GATES = 3


@dataclasses.dataclass(frozen=True)
class Member:
    """:ivar cluster: opaque; None where nothing is known."""

    name: str
    cluster: str | None = None


def neighbours(source: str, members: Sequence[Member], seed: int,
               max_neighbours: int = MAX_NEIGHBOURS,
               gates: int = GATES) -> dict[str, frozenset[str]]:
    """Symmetric: what each may connect to.

    :param source: name of the member that has all blocks at first.
    :param members: in the order in which they came, which does not change, so
        that newcomers change little of what was there.
    :param seed: of the choice among equals.
    """
    clusters: dict[str | None, list[str]] = {}
    for member in members:
        clusters.setdefault(member.cluster, []).append(member.name)
    links: dict[str, set[str]] = {member.name: set() for member in members}

    def link(one: str, other: str) -> None:
        if one != other:
            links[one].add(other)
            links[other].add(one)

    for names in clusters.values():
        for one, others in _random_graph(names, seed,
                                         max_neighbours).items():
            for other in others:
                link(one, other)
    _link_clusters(source, members, clusters, gates, link)
    return {name: frozenset(found) for name, found in links.items()}


def _link_clusters(source: str, members: Sequence[Member],
                   clusters: Mapping[str | None, Sequence[str]], gates: int,
                   link: Callable[[str, str], None]) -> None:
    """Let gates of each cluster take from the source and the one before.

    What the source gives to one cluster comes to the others from there, so it
    has to send each block about once.
    """
    home = next(member.cluster for member in members
                if member.name == source)
    before = [name for name in clusters[home] if name != source]
    for cluster in clusters:
        if cluster == home:
            continue
        for place, gate in enumerate(clusters[cluster][:gates]):
            link(gate, source)
            if before:
                link(gate, before[place % len(before)])
        before = list(clusters[cluster])


def _random_graph(names: Sequence[str], seed: int,
                  max_neighbours: int) -> Mapping[str, Sequence[str]]:
    """A ring, which keeps it connected, and random links beside it."""
    chosen: dict[str, Sequence[str]] = {}
    for place, name in enumerate(names):
        before = list(names[:place])
        drawn = random.Random(f'{seed} {name}')
        chosen[name] = before if len(before) <= max_neighbours // 2 else (
            [before[-1], *drawn.sample(before[:-1],
                                       max_neighbours // 2 - 1)])
    return chosen
