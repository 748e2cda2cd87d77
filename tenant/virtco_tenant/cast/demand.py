# SPDX-License-Identifier: Apache-2.0

"""What a cast sends between each two members: its coflow. Pure.

Blocks fall into classes by the gates that fetch them (:class:`.peers.Share`).
A class enters each cluster once and spreads there from its gate. A member
takes a class in equal parts from those neighbours that are not farther from
where it enters than itself. What enters a cluster and what a member receives
is exact; who gives what within a swarm is decided as it runs, here estimated.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import itertools

from virtco_tenant.cast import peers

#: Shares divide so many blocks as they divide all, within a few in a hundred.
_SAMPLE = 512

Demand = dict[tuple[str, str], float]


def demand(source: str, parts: Mapping[str, peers.Part],
           size_bytes: float) -> Demand:
    """Bytes from member to member; each other than the source takes all once.

    :param parts: of :func:`.peers.plan` or another plan.
    """
    shares = {name: part.share for name, part in parts.items()
              if part.share is not None}
    found: Demand = {}
    if not shares:
        _spread(found, parts, peers.WITHIN, source, parts, size_bytes)
        return found
    fetched: dict[str, float] = collections.defaultdict(float)
    for (gates, first), blocks in _classes(shares).items():
        class_bytes = size_bytes * blocks / _SAMPLE
        _add(found, source, first, class_bytes)
        _spread(found, parts, peers.BETWEEN, first, gates, class_bytes)
        for name in gates:
            fetched[name] += class_bytes
    for name, gate_bytes in fetched.items():
        _spread(found, parts, peers.WITHIN, name, parts, gate_bytes)
    return found


def _classes(shares: Mapping[str, peers.Share]
             ) -> collections.Counter[tuple[frozenset[str], str]]:
    """How many blocks of the sample have these gates, and which of them takes
    them from the source.
    """
    return collections.Counter(
        (frozenset(gates), next(name for name in gates
                                if shares[name].is_first(block)))
        for block in range(_SAMPLE)
        for gates in [[name for name, share in shares.items()
                       if share.has(block)]])


def _spread(found: Demand, parts: Mapping[str, peers.Part], level: int,
            origin: str, among: Iterable[str], size_bytes: float) -> None:
    """From one member to all that its links reach."""
    among = set(among)

    def neighbours(name: str) -> Iterator[str]:
        return (other for other in parts[name].links[level] if other in among)

    steps = {origin: 0}
    ring = [origin]
    for step in itertools.count(1):
        ring = sorted({other for name in ring for other in neighbours(name)}
                      - steps.keys())
        if not ring:
            break
        steps |= dict.fromkeys(ring, step)
    for name in steps.keys() - {origin}:
        givers = [other for other in neighbours(name)
                  if steps[other] <= steps[name]]
        for giver in givers:
            _add(found, giver, name, size_bytes / len(givers))


def _add(found: Demand, src: str, dst: str, size_bytes: float) -> None:
    found[src, dst] = found.get((src, dst), 0.0) + size_bytes
