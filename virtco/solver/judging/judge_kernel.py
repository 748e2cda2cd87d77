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

"""Compiled: the schedule that known coflows will get, as a fluid.

The scheduler's rules (:mod:`virtco.scheduling`): minimum remaining CCT
first, MADD in that order, then each flow in order takes what both of its
ports have left; rates are set anew when a flow ends.
"""

import cython

#: A port with less than this fraction of its rate left counts as full.
FULL = cython.declare(cython.double, 1e-9)
#: What is left of a flow that ends, relative to its size.
ENDED = cython.declare(cython.double, 1e-12)
INFINITE = cython.declare(cython.double, float('inf'))


def total_s(start: cython.longlong[::1], src: cython.longlong[::1],
            dst: cython.longlong[::1], left: cython.double[::1],
            rate_of: cython.double[::1], grain_s: cython.double,
            most: cython.double, stop: cython.longlong[::1],
            order: cython.longlong[::1], alone_s: cython.double[::1],
            rate: cython.double[::1], load: cython.double[::1],
            room: cython.double[::1], work: cython.double[::1]) -> float:
    """Sum of the coflows' remaining CCTs; -1 when it takes too long.

    :param start: flows of coflow c are start[c] to start[c + 1] - 1.
    :param src: egress port of each flow; ``dst`` its ingress port.
    :param left: bytes of each flow; changed, as all that follow ``most``.
    :param rate_of: bytes per second of each port.
    :param grain_s: rates are not set anew sooner than this.
    :param most: looks at a flow that may be taken.
    :param stop: scratch, shape (C,), as ``order`` and ``alone_s``.
    :param rate: scratch, shape (F,).
    :param load: scratch, zeros, shape (P,); ``room`` as well.
    :param work: the looks taken are added here, shape (1,).
    """
    with cython.nogil:
        result = run(start, src, dst, left, rate_of, grain_s, most, stop,
                     order, alone_s, rate, load, room, work)
    return result


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def run(start: cython.longlong[::1], src: cython.longlong[::1],
        dst: cython.longlong[::1], left: cython.double[::1],
        rate_of: cython.double[::1], grain_s: cython.double,
        most: cython.double, stop: cython.longlong[::1],
        order: cython.longlong[::1], alone_s: cython.double[::1],
        rate: cython.double[::1], load: cython.double[::1],
        room: cython.double[::1], work: cython.double[::1]) -> cython.double:
    i: cython.Py_ssize_t
    f: cython.Py_ssize_t
    c: cython.Py_ssize_t
    kept: cython.Py_ssize_t
    n_live: cython.Py_ssize_t = 0
    now_s: cython.double = 0.0
    total: cython.double = 0.0
    looks: cython.double = 0.0
    dt_s: cython.double
    for c in range(start.shape[0] - 1):
        stop[c] = start[c + 1]
        if stop[c] > start[c]:
            order[n_live] = c
            n_live += 1
    while n_live > 0:
        for i in range(n_live):
            c = order[i]
            alone_s[c] = slowest(start[c], stop[c], src, dst, left, load,
                                 rate_of)
            looks += stop[c] - start[c]
            work[0] += stop[c] - start[c]
        if looks > most:
            return -1.0
        sort(order, n_live, alone_s)
        for i in range(room.shape[0]):
            room[i] = rate_of[i]
        for i in range(n_live):
            c = order[i]
            madd(start[c], stop[c], src, dst, left, load, room, rate_of,
                 rate)
        dt_s = INFINITE
        for i in range(n_live):
            c = order[i]
            for f in range(start[c], stop[c]):
                fill(f, src[f], dst[f], room, rate_of, rate)
                if rate[f] > 0.0:
                    dt_s = min(dt_s, left[f] / rate[f])
        if dt_s == INFINITE:
            return INFINITE
        dt_s = max(dt_s, grain_s)
        now_s += dt_s
        kept = 0
        for i in range(n_live):
            c = order[i]
            stop[c] = move(start[c], stop[c], src, dst, left, rate, dt_s)
            if stop[c] > start[c]:
                order[kept] = c
                kept += 1
            else:
                total += now_s
        n_live = kept
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def slowest(first: cython.Py_ssize_t, last: cython.Py_ssize_t,
            src: cython.longlong[::1], dst: cython.longlong[::1],
            left: cython.double[::1], load: cython.double[::1],
            rate_of: cython.double[::1]) -> cython.double:
    """Time of a coflow alone on its slowest port."""
    f: cython.Py_ssize_t
    i: cython.Py_ssize_t
    p: cython.longlong
    worst: cython.double = 0.0
    for f in range(first, last):
        load[src[f]] += left[f]
        load[dst[f]] += left[f]
    for f in range(first, last):
        for i in range(2):
            p = dst[f] if i else src[f]
            if rate_of[p] <= 0.0:
                worst = INFINITE
            elif load[p] > worst * rate_of[p]:
                worst = load[p] / rate_of[p]
    for f in range(first, last):
        load[src[f]] = 0.0
        load[dst[f]] = 0.0
    return worst


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def sort(order: cython.longlong[::1], n: cython.Py_ssize_t,
         key: cython.double[::1]) -> cython.void:
    """By rising key, then number; nearly sorted already, as a rule."""
    i: cython.Py_ssize_t
    j: cython.Py_ssize_t
    c: cython.longlong
    for i in range(1, n):
        c = order[i]
        j = i
        while j > 0 and (key[order[j - 1]] > key[c] or (
                key[order[j - 1]] == key[c] and order[j - 1] > c)):
            order[j] = order[j - 1]
            j -= 1
        order[j] = c


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def madd(first: cython.Py_ssize_t, last: cython.Py_ssize_t,
         src: cython.longlong[::1], dst: cython.longlong[::1],
         left: cython.double[::1], load: cython.double[::1],
         room: cython.double[::1], rate_of: cython.double[::1],
         rate: cython.double[::1]) -> cython.void:
    """All flows of a coflow end together; none where a port is full."""
    f: cython.Py_ssize_t
    i: cython.Py_ssize_t
    p: cython.longlong
    gamma: cython.double = 0.0
    for f in range(first, last):
        load[src[f]] += left[f]
        load[dst[f]] += left[f]
    for f in range(first, last):
        for i in range(2):
            p = dst[f] if i else src[f]
            if room[p] <= FULL * rate_of[p]:
                gamma = INFINITE
            elif load[p] > gamma * room[p]:
                gamma = load[p] / room[p]
    for f in range(first, last):
        load[src[f]] = 0.0
        load[dst[f]] = 0.0
        rate[f] = left[f] / gamma if gamma < INFINITE else 0.0
    for f in range(first, last):
        room[src[f]] = max(0.0, room[src[f]] - rate[f])
        room[dst[f]] = max(0.0, room[dst[f]] - rate[f])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill(f: cython.Py_ssize_t, p: cython.longlong, q: cython.longlong,
         room: cython.double[::1], rate_of: cython.double[::1],
         rate: cython.double[::1]) -> cython.void:
    """Give a flow what both of its ports have left."""
    more: cython.double
    if room[p] > FULL * rate_of[p] and room[q] > FULL * rate_of[q]:
        more = min(room[p], room[q])
        rate[f] += more
        room[p] -= more
        room[q] -= more


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def move(first: cython.Py_ssize_t, last: cython.Py_ssize_t,
         src: cython.longlong[::1], dst: cython.longlong[::1],
         left: cython.double[::1], rate: cython.double[::1],
         dt_s: cython.double) -> cython.Py_ssize_t:
    """Let time pass; keeps the flows that have not ended, in order."""
    f: cython.Py_ssize_t
    kept: cython.Py_ssize_t = first
    after: cython.double
    for f in range(first, last):
        after = left[f] - rate[f] * dt_s
        if after > ENDED * left[f]:
            src[kept] = src[f]
            dst[kept] = dst[f]
            left[kept] = after
            kept += 1
    return kept
