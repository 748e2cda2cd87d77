# SPDX-License-Identifier: Apache-2.0

"""The compiled core: who goes first."""

import cython

if cython.compiled:
    from cython.cimports.virtco.scheduling.rater_kernel import clear
    from cython.cimports.virtco.scheduling.rater_kernel import Rater
else:
    from virtco.scheduling.rater_kernel import clear
    from virtco.scheduling.rater_kernel import Rater

INF = cython.declare(cython.double, float('inf'))
#: Sweeps of swaps through an order; most end after one or two.
MAX_SWEEPS = cython.declare(cython.int, 10)
#: A sum of prefix times above this part of another is no gain.
NEARLY = cython.declare(cython.double, 1.0 - 1e-9)
#: Times this factor, a number loses 13 of its 53 bits when it is taken off
#: again (Veltkamp); larger numbers would overflow.
SPLIT = cython.declare(cython.double, 8193.0)
SPLIT_MOST = cython.declare(cython.double, 1e300)


def bottleneck(rater: Rater, c: cython.Py_ssize_t) -> cython.double:
    """Return coflow c's remaining time alone at scale 1, seconds.

    t of VirtCO Eq. (3) at a given placement: the most loaded port decides.
    """
    longest = 0.0
    for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
        load = rater.load[e]
        if load > 0.0:
            cap = rater.cap[rater.port[e]]
            longest = max(longest, load / cap if cap > 0.0 else INF)
    return longest


def bottlenecks(rater: Rater, out: cython.double[::1]) -> None:
    """Write each coflow's remaining time alone on the fabric, seconds."""
    for c in range(out.shape[0]):
        out[c] = bottleneck(rater, c) * rater.scale[c]


def prefix_times(rater: Rater, order: cython.longlong[::1],
                 out: cython.double[::1]) -> None:
    """Compute when each coflow's last port has served all up to it, in s.

    Max over ports of the prefix load over the rate. It bounds the end from
    neither side: it is too early where a coflow waits at one port and MADD
    holds its other ports back, too late where back-fill serves it early.
    """
    clear(rater)
    for i in range(order.shape[0]):
        c = order[i]
        out[c] = prefix_time(rater, c, -1)
        add_load(rater, c)


def round_keys(order: cython.longlong[::1], key: cython.double[::1]
               ) -> cython.void:
    """Round the coflows' keys to 40 bits.

    Rounding errors would else decide between coflows with equal times.
    """
    for i in range(order.shape[0]):
        c = order[i]
        if key[c] < SPLIT_MOST:
            split = key[c] * SPLIT
            key[c] = split - (split - key[c])


def sort(order: cython.longlong[::1], n: cython.Py_ssize_t,
         level: cython.longlong[::1], key: cython.double[::1],
         arrival_s: cython.double[::1]) -> cython.void:
    """Sort the first n coflows by (level, key, arrival, index), in place.

    Insertion sort: between two events an order hardly changes.
    """
    for i in range(1, n):
        c = order[i]
        j = i - 1
        while j >= 0:
            d = order[j]
            if level[d] != level[c]:
                if level[d] < level[c]:
                    break
            elif key[d] != key[c]:
                if key[d] < key[c]:
                    break
            elif arrival_s[d] < arrival_s[c] or (
                    arrival_s[d] == arrival_s[c] and d < c):
                break
            order[j + 1] = d
            j -= 1
        order[j + 1] = c


def rank_repeating(order: cython.longlong[::1], level: cython.longlong[::1],
                   alone_s: cython.double[::1], weight: cython.double[::1],
                   intensity: cython.double[::1], key: cython.double[::1]
                   ) -> cython.void:
    """Write keys of periodic coflows that keep both goals.

    Among themselves they go by intensity, the highest first (Crux); ordinary
    ones, of intensity 0, by their remaining times over their weights. Of the
    two that lead, the one with less left goes first: so a periodic coflow's
    key is the longest such time of those that go before it and of itself.

    :param order: the coflows, in any order.
    :param level: level of each coflow, shape (C,); below 0 it keeps its key.
    """
    for i in range(order.shape[0]):
        c = order[i]
        if intensity[c] <= 0.0 or level[c] < 0:
            continue
        longest_s = alone_s[c] / weight[c]
        before = 0
        for j in range(order.shape[0]):
            d = order[j]
            if intensity[d] > 0.0 and level[d] == level[c] and (
                    intensity[d] > intensity[c]
                    or (intensity[d] == intensity[c] and d < c)):
                longest_s = max(longest_s, alone_s[d] / weight[d])
                before += 1
        # Different keys for different places.
        key[c] = longest_s * (1.0 + before * 1e-12)


def swap_neighbours(rater: Rater, order: cython.longlong[::1],
                    level: cython.longlong[::1], weight: cython.double[::1]
                    ) -> cython.void:
    """Swap neighbours while that lowers the weighted sum of the prefix times.

    :param order: coflow indices, changed in place.
    :param level: coflows of different levels keep their order, as do starving
        ones, whose level is below 0; shape (C,).
    """
    swapped: cython.bint
    for _ in range(MAX_SWEEPS):
        clear(rater)
        swapped = False
        for i in range(order.shape[0]):
            if i + 1 < order.shape[0]:
                c = order[i]
                d = order[i + 1]
                if 0 <= level[c] == level[d] and gains_by_swap(
                        rater, c, d, weight):
                    order[i] = d
                    order[i + 1] = c
                    swapped = True
            add_load(rater, order[i])
        if not swapped:
            break


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add_load(rater: Rater, c: cython.Py_ssize_t) -> cython.void:
    """Add the bits that coflow c has left at each port to rater.demand."""
    for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
        rater.demand[rater.port[e]] += rater.load[e] * rater.scale[c]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def gains_by_swap(rater: Rater, c: cython.Py_ssize_t, d: cython.Py_ssize_t,
                  weight: cython.double[::1]) -> cython.bint:
    """Return whether d before c is better than c before d behind rater.demand.
    """
    now_s = (weight[c] * prefix_time(rater, c, -1)
             + weight[d] * prefix_time(rater, d, c))
    then_s = (weight[d] * prefix_time(rater, d, -1)
              + weight[c] * prefix_time(rater, c, d))
    return then_s < now_s * NEARLY


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def prefix_time(rater: Rater, c: cython.Py_ssize_t, before: cython.Py_ssize_t
                ) -> cython.double:
    """Compute the prefix time of c behind rater.demand and coflow ``before``.
    """
    longest = 0.0
    for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
        rater.share[rater.port[e]] = 0.0
    if before >= 0:
        for e in range(rater.entry_ptr[before], rater.entry_ptr[before + 1]):
            rater.share[rater.port[e]] = rater.load[e] * rater.scale[before]
    for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
        if rater.load[e] > 0.0:
            p = rater.port[e]
            cap = rater.cap[p]
            ahead = rater.demand[p] + rater.share[p]
            longest = max(longest, (ahead + rater.load[e] * rater.scale[c])
                          / cap if cap > 0.0 else INF)
    return longest
