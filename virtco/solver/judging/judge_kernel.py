# SPDX-License-Identifier: Apache-2.0

"""Compiled: the schedule that known coflows will get, as a fluid.

A flow takes a path of ports, all of them at its rate. Paths are of one
length; a port without a limit fills up the shorter ones.

The scheduler's rules (:mod:`virtco.scheduling`): minimum remaining CCT
first, MADD in that order, then each flow in order takes what all of
its ports have left; rates are set anew when a flow ends.
"""

import cython

if cython.compiled:
    from cython.cimports.virtco.scheduling.order_kernel import sort
else:
    from virtco.scheduling.order_kernel import sort

#: A port with less than this fraction of its rate left counts as full.
FULL = cython.declare(cython.double, 1e-9)
#: What is left of a flow that ends, relative to its size.
ENDED = cython.declare(cython.double, 1e-12)
INFINITE = cython.declare(cython.double, float('inf'))


def total_s(start: cython.longlong[::1], path: cython.longlong[:, ::1],
            left: cython.double[::1], rate_of: cython.double[::1],
            grain_s: cython.double, most: cython.double,
            stop: cython.longlong[::1], order: cython.longlong[::1],
            level: cython.longlong[::1], alone_s: cython.double[::1],
            rate: cython.double[::1], load: cython.double[::1],
            room: cython.double[::1], work: cython.double[::1]) -> float:
    """Sum up the coflows' remaining CCTs; return -1 when it takes too long.

    :param start: flows of coflow c are start[c] to start[c + 1] - 1.
    :param path: ports of each flow, shape (F, L); changed, as all that
        follow ``most``.
    :param left: bytes of each flow; changed.
    :param rate_of: bytes per second of each port.
    :param grain_s: rates are not set anew sooner than this.
    :param most: looks at a flow that may be taken.
    :param stop: scratch, shape (C,), as ``order`` and ``alone_s``.
    :param level: zeros, shape (C,): all coflows are of one class.
    :param rate: scratch, shape (F,).
    :param load: scratch, zeros, shape (P,); ``room`` as well.
    :param work: the looks taken are added here, shape (1,).
    """
    n_live: cython.Py_ssize_t = 0
    now_s = 0.0
    total = 0.0
    looks = 0.0
    with cython.nogil:
        for c in range(start.shape[0] - 1):
            stop[c] = start[c + 1]
            if stop[c] > start[c]:
                order[n_live] = c
                n_live += 1
        while n_live > 0:
            for i in range(n_live):
                c = order[i]
                alone_s[c] = slowest_s(start[c], stop[c], path, left, load,
                                       rate_of, rate_of)
                looks += stop[c] - start[c]
            if looks > most:
                total = -1.0
                break
            sort(order, n_live, level, alone_s)
            room[:] = rate_of
            for i in range(n_live):
                c = order[i]
                madd(start[c], stop[c], path, left, load, room, rate_of,
                     rate)
            dt_s = INFINITE
            for i in range(n_live):
                c = order[i]
                for f in range(start[c], stop[c]):
                    fill(f, path, room, rate_of, rate)
                    if rate[f] > 0.0:
                        dt_s = min(dt_s, left[f] / rate[f])
            if dt_s == INFINITE:
                total = INFINITE
                break
            now_s += max(dt_s, grain_s)
            kept: cython.Py_ssize_t = 0
            for i in range(n_live):
                c = order[i]
                stop[c] = move(start[c], stop[c], path, left, rate,
                               max(dt_s, grain_s))
                if stop[c] > start[c]:
                    order[kept] = c
                    kept += 1
                else:
                    total += now_s
            n_live = kept
    work[0] += looks
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def slowest_s(first: cython.Py_ssize_t, last: cython.Py_ssize_t,
              path: cython.longlong[:, ::1], left: cython.double[::1],
              load: cython.double[::1], room: cython.double[::1],
              rate_of: cython.double[::1]) -> cython.double:
    """Compute a coflow's time on the slowest of its ports, by their room."""
    worst: cython.double = 0.0
    for f in range(first, last):
        for i in range(path.shape[1]):
            load[path[f, i]] += left[f]
    for f in range(first, last):
        for i in range(path.shape[1]):
            p = path[f, i]
            if room[p] <= FULL * rate_of[p]:
                worst = INFINITE
            elif load[p] > worst * room[p]:
                worst = load[p] / room[p]
    for f in range(first, last):
        for i in range(path.shape[1]):
            load[path[f, i]] = 0.0
    return worst


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def madd(first: cython.Py_ssize_t, last: cython.Py_ssize_t,
         path: cython.longlong[:, ::1], left: cython.double[::1],
         load: cython.double[::1], room: cython.double[::1],
         rate_of: cython.double[::1], rate: cython.double[::1]
         ) -> cython.void:
    """Rate a coflow's flows to end together, at 0 where a port is full."""
    gamma: cython.double = slowest_s(first, last, path, left, load, room,
                                     rate_of)
    for f in range(first, last):
        rate[f] = left[f] / gamma if gamma < INFINITE else 0.0
        for i in range(path.shape[1]):
            p = path[f, i]
            room[p] = max(0.0, room[p] - rate[f])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill(f: cython.Py_ssize_t, path: cython.longlong[:, ::1],
         room: cython.double[::1], rate_of: cython.double[::1],
         rate: cython.double[::1]) -> cython.void:
    """Give a flow what all of its ports have left."""
    more: cython.double = INFINITE
    for i in range(path.shape[1]):
        p = path[f, i]
        if room[p] <= FULL * rate_of[p]:
            return
        more = min(more, room[p])
    rate[f] += more
    for i in range(path.shape[1]):
        room[path[f, i]] -= more


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def move(first: cython.Py_ssize_t, last: cython.Py_ssize_t,
         path: cython.longlong[:, ::1], left: cython.double[::1],
         rate: cython.double[::1], dt_s: cython.double) -> cython.Py_ssize_t:
    """Let time pass; keeps the flows that have not ended, in order."""
    kept: cython.Py_ssize_t = first
    for f in range(first, last):
        after = left[f] - rate[f] * dt_s
        if after > ENDED * left[f]:
            for i in range(path.shape[1]):
                path[kept, i] = path[f, i]
            left[kept] = after
            kept += 1
    return kept
