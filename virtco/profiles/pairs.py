# SPDX-License-Identifier: Apache-2.0

"""Bytes per pair of VMs, as they are counted and kept. Pure.

A pair is (sending row, receiving row) of a group's matrices. What VMs on one
host say to each other is in no class, and not every classifier counts it:
:data:`UNSEEN` stands for a pair of which nothing is known.
"""

from collections.abc import Iterable
from collections.abc import Mapping

import msgspec

Pair = tuple[int, int]
Bytes = dict[Pair, float]

UNSEEN = -1.0
#: Pairs that are kept of one group and hour, the largest.
MOST_PAIRS = 20_000
_ROWS = msgspec.json.Decoder(list[tuple[int, int, float]])


class Counted:
    """Bytes counted since the last call of :meth:`take`, by group."""

    def __init__(self) -> None:
        self._groups: dict[str, Bytes] = {}

    def add(self, group_id: str, found: Iterable[tuple[Pair, float]],
            unseen: Iterable[Pair] = ()) -> None:
        """Add bytes of pairs of a group.

        :param unseen: pairs of the group that share a host.
        """
        of_group = self._groups.setdefault(group_id, {})
        for pair, size_bytes in found:
            of_group[pair] = max(0.0, of_group.get(pair, 0.0)) + size_bytes
        for pair in unseen:
            of_group.setdefault(pair, UNSEEN)

    def has(self, group_id: str) -> bool:
        """Tell whether the group has counts that nobody took yet."""
        return group_id in self._groups

    def take(self) -> dict[str, Bytes]:
        found, self._groups = self._groups, {}
        return found

    def give_back(self, found: Mapping[str, Bytes]) -> None:
        """Add counts again that could not be stored."""
        for group_id, of_group in found.items():
            self._groups[group_id] = merged(
                of_group, self._groups.get(group_id, {}))


def merged(*parts: Mapping[Pair, float]) -> Bytes:
    """Sum bytes per pair; a pair is unseen if no part has seen it."""
    total: Bytes = {}
    for part in parts:
        for pair, size_bytes in part.items():
            if size_bytes == UNSEEN:
                total.setdefault(pair, UNSEEN)
            else:
                total[pair] = max(0.0, total.get(pair, 0.0)) + size_bytes
    return total


def encode(found: Mapping[Pair, float]) -> str:
    """Encode bytes per pair: about 20 bytes each, 0.5 kB for a pair's 24
    hours.
    """
    largest = sorted(found.items(), key=lambda item: -item[1])[:MOST_PAIRS]
    return msgspec.json.encode([
        (src, dst, round(size_bytes))
        for (src, dst), size_bytes in sorted(largest)]).decode()


def decode(text: str) -> Bytes:
    return {(src, dst): size_bytes
            for src, dst, size_bytes in _ROWS.decode(text)}
