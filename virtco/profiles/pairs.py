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


def add(total: Bytes, found: Iterable[tuple[Pair, float]]) -> None:
    """Add bytes of pairs to a sum; a pair that no part has seen is unseen."""
    for pair, size_bytes in found:
        if size_bytes == UNSEEN:
            total.setdefault(pair, UNSEEN)
        else:
            total[pair] = max(0.0, total.get(pair, 0.0)) + size_bytes


def merged(*parts: Mapping[Pair, float]) -> Bytes:
    """Sum bytes per pair; see :func:`add`."""
    total: Bytes = {}
    for part in parts:
        add(total, part.items())
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
