# SPDX-License-Identifier: Apache-2.0

"""Bytes between ranks in NCCL's collectives, by ring or tree. Pure.

Sizes are those of nccl-tests: the buffer that is reduced or broadcast, the
whole output of an all-gather, the whole input of a reduce-scatter, and what
one rank has for all others in an all-to-all.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

Sends = Iterator[tuple[int, int, float]]


def _ring(ranks: Sequence[int], each_bytes: float, steps: int) -> Sends:
    """Yield the first ``steps`` links of the ring."""
    for k in range(steps):
        yield ranks[k], ranks[(k + 1) % len(ranks)], each_bytes


def _all_reduce(ranks: Sequence[int], size_bytes: float) -> Sends:
    n = len(ranks)
    return _ring(ranks, 2 * (n - 1) / n * size_bytes, n)


def _gather_or_scatter(ranks: Sequence[int], size_bytes: float) -> Sends:
    n = len(ranks)
    return _ring(ranks, (n - 1) / n * size_bytes, n)


def _chain(ranks: Sequence[int], size_bytes: float) -> Sends:
    return _ring(ranks, size_bytes, len(ranks) - 1)


def _chain_back(ranks: Sequence[int], size_bytes: float) -> Sends:
    return _chain(ranks[::-1], size_bytes)


def _all_to_all(ranks: Sequence[int], size_bytes: float) -> Sends:
    each_bytes = size_bytes / len(ranks)
    for src in ranks:
        for dst in ranks:
            if src != dst:
                yield src, dst, each_bytes


RING: dict[str, Callable[[Sequence[int], float], Sends]] = {
    'all_reduce': _all_reduce, 'all_gather': _gather_or_scatter,
    'reduce_scatter': _gather_or_scatter, 'broadcast': _chain,
    'reduce': _chain_back, 'all_to_all': _all_to_all}


def double_tree(n: int) -> list[list[int | None]]:
    """Compute each rank's parents in NCCL's two binary trees of ``n`` ranks.

    A leaf of one is an inner rank of the other (Sanders, Speck, Träff, 2009).
    """
    first: list[int | None] = [None]
    for rank in range(1, n):
        bit = rank & -rank
        up = (rank ^ bit) | (bit << 1)
        first.append(up if up < n else rank ^ bit)
    second: list[int | None] = [None] * n
    for rank, parent in enumerate(first):
        if n % 2:  # shifted by one
            second[(rank + 1) % n] = None if parent is None else (
                parent + 1) % n
        else:  # mirrored
            second[n - 1 - rank] = None if parent is None else (
                n - 1 - parent)
    return [first, second]


def tree_all_reduce(n: int, size_bytes: float) -> Sends:
    """Yield sends of half the bytes through each tree, up and down again."""
    for parents in double_tree(n):
        for rank, up in enumerate(parents):
            if up is not None:
                yield rank, up, size_bytes / 2
                yield up, rank, size_bytes / 2
