# SPDX-License-Identifier: Apache-2.0

"""Orders of ranks for NCCL's all-reduce.

NCCL numbers machines as their first ranks come. It joins the numbers to a
ring, and to two binary trees that carry half of the bytes each, up and down
again; which of both it takes it decides by the size, and knows no rates. An
order is therefore as good as the slower one of both on it.
"""

from collections.abc import Iterable

import numpy as np

from virtco import ring_and_tree
from virtco.advise import mappings

Matrix = mappings.Matrix
Indices = mappings.Indices

_SEARCHES = 5


def volumes(n: int, size_bytes: float) -> tuple[Matrix, Matrix]:
    """Compute an all-reduce's bytes between ranks: by ring, by double tree."""
    return (_matrix(n, ring_and_tree.RING['all_reduce'](range(n), size_bytes)),
            _matrix(n, ring_and_tree.tree_all_reduce(n, size_bytes)))


def _matrix(n: int, sends: Iterable[tuple[int, int, float]]) -> Matrix:
    """Add up messages as a matrix of bytes, shape (n, n)."""
    found = np.zeros((n, n))
    for src, dst, size_bytes in sends:
        found[src, dst] += size_bytes
    return found


def advise(size_bytes: float, paths: mappings.Paths,
           work: int = mappings.WORK) -> tuple[mappings.Mapping, ...]:
    """Compute orders and their time, the slower of ring and tree, best first.

    ``rank`` is the order of the rows, ``greedy`` the RPCA paper's mapping,
    ``ring`` and ``tree`` are searched for one of both alone, ``both`` for the
    two together; of few members ``optimum`` is the best of all.

    :param work: work of all searches together.
    """
    n = len(paths.machines)
    ring, tree = volumes(n, size_bytes)
    total = ring + tree

    def took_s(order: Indices) -> float:
        return mappings.slowest_s((ring, tree), order, paths)

    orders = {'rank': np.arange(n),
              'greedy': mappings.greedy(total, paths.finite_bps())}
    if n <= mappings.MOST_ENUMERATED:
        orders['optimum'] = mappings.enumerate_all((ring, tree), paths)
    else:
        begin = min(orders.values(), key=took_s)
        for name, sent in (('ring', ring), ('tree', tree)):
            orders[name] = mappings.search(sent, paths, begin,
                                           work=work // _SEARCHES)
        orders['both'] = min((
            mappings.search(total, paths, start, work=work // _SEARCHES)
            for start in (begin, orders['ring'], orders['tree'])), key=took_s)
    bound_s = (took_s(orders['optimum']) if 'optimum' in orders else
               max(mappings.lower_bound_s(one, paths)
                   for one in (ring, tree)))
    return mappings.ranked(orders, took_s, bound_s)
