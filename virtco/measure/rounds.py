# SPDX-License-Identifier: Apache-2.0

"""When which pair of hosts measures: rounds that do not disturb themselves.

A host takes part in at most one train at a time, so no train shares an
uplink with another one: "at each step N/2 instances send and the other N/2
receive", 2N steps for all links (RPCA section IV-B; Cloud Monitoring
Framework section 3.1 schedules its readings for the same reason).
"""

from collections.abc import Sequence
import functools

from virtco import exception

Pair = tuple[str, str]


def disjoint_rounds(hosts: Sequence[str]) -> tuple[tuple[Pair, ...], ...]:
    """Order every (sender, receiver) pair into rounds of disjoint pairs.

    The circle method: one host stands still, the others walk around it. Each
    round comes twice in a row, the second time with the roles swapped, so
    that two rounds give every host one reading per direction (all but one
    host, when their number is odd).

    :param hosts: names, all different; their order decides who meets whom
        first.
    :returns: 2 (n - 1) rounds of n/2 pairs for an even number n of hosts, 2 n
        rounds of (n - 1)/2 pairs for an odd one.
    :raises virtco.exception.Invalid: for a name that occurs twice.
    """
    seen: set[str] = set()
    for host in hosts:
        if host in seen:
            raise exception.Invalid(field='hosts', value=host,
                                    limit='each host once')
        seen.add(host)
    return _rounds(tuple(hosts))


@functools.lru_cache(maxsize=4)
def _rounds(hosts: tuple[str, ...]) -> tuple[tuple[Pair, ...], ...]:
    if len(hosts) < 2:
        return ()
    circle: list[str | None] = list(hosts)
    if len(circle) % 2:
        circle.append(None)
    rounds = []
    for turn in range(len(circle) - 1):
        forth = _one_turn(circle, turn)
        rounds.append(forth)
        rounds.append(tuple((dst, src) for src, dst in forth))
        circle = circle[:1] + circle[-1:] + circle[1:-1]
    return tuple(rounds)


def _one_turn(circle: Sequence[str | None], turn: int) -> tuple[Pair, ...]:
    half = len(circle) // 2
    pairs = []
    for left, right in zip(circle[:half], reversed(circle[half:]),
                           strict=True):
        if left is not None and right is not None:
            # Alternate, or the standing host would always send first.
            pairs.append((right, left) if turn % 2 else (left, right))
    return tuple(pairs)
