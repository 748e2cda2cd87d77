# SPDX-License-Identifier: Apache-2.0

"""Bytes that a cast sends between each pair of members: its coflow. Pure.

Blocks fall into classes by the gates that fetch them (:class:`.peers.Share`).
A class enters each cluster once and spreads there from its gate. A member
takes a class in equal parts from the neighbours that are not farther from the
gate than itself. The bytes that enter a cluster and that a member receives are
exact. Their division among the neighbours of a member is an estimate: a swarm
decides it while it runs.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import itertools

from virtco_tenant.cast import peers

#: Number of blocks in the sample from which the sizes of classes are
#: estimated, within a few percent.
_SAMPLE = 512

Demand = dict[tuple[str, str], float]


def demand(source: str, parts: Mapping[str, peers.Part],
           size_bytes: float) -> Demand:
    """Return the bytes by (sender, receiver); each receiver gets all once.

    :param parts: result of :func:`.peers.plan` or another plan.
    :param size_bytes: size of all files.
    """
    shares = {name: part.share for name, part in parts.items()
              if part.share is not None}
    found: Demand = collections.defaultdict(float)
    if not shares:
        _spread(found, parts, peers.WITHIN, source, parts, size_bytes)
        return found
    fetched: dict[str, float] = collections.defaultdict(float)
    for (gates, first), blocks in _classes(shares).items():
        class_bytes = size_bytes * blocks / _SAMPLE
        found[source, first] += class_bytes
        _spread(found, parts, peers.BETWEEN, first, gates, class_bytes)
        for name in gates:
            fetched[name] += class_bytes
    for name, gate_bytes in fetched.items():
        _spread(found, parts, peers.WITHIN, name, parts, gate_bytes)
    return found


def _classes(shares: Mapping[str, peers.Share]
             ) -> collections.Counter[tuple[frozenset[str], str]]:
    """Count the blocks of the sample by their class.

    A class is the set of gates that fetch the block, and the one of them that
    takes it from the source.
    """
    return collections.Counter(
        (frozenset(gates), next(name for name in gates
                                if shares[name].is_first(block)))
        for block in range(_SAMPLE)
        for gates in [[name for name, share in shares.items()
                       if share.has(block)]])


def _spread(found: Demand, parts: Mapping[str, peers.Part], level: int,
            origin: str, among: Iterable[str], size_bytes: float) -> None:
    """Add the bytes of a class that spreads from one member in a swarm.

    :param found: the result, changed in place.
    :param origin: member from which the class spreads.
    :param among: members that take it.
    """
    among = set(among)

    def neighbours(name: str) -> Iterator[str]:
        return (other for other in parts[name].links[level] if other in among)

    steps = {origin: 0}
    ring = [origin]
    for step in itertools.count():
        ring = sorted({other for name in ring for other in neighbours(name)}
                      - steps.keys())
        if not ring:
            break
        steps |= dict.fromkeys(ring, step)
    for name in steps.keys() - {origin}:
        givers = [other for other in neighbours(name)
                  if steps[other] <= steps[name]]
        for giver in givers:
            found[giver, name] += size_bytes / len(givers)
