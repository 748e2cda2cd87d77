# SPDX-License-Identifier: Apache-2.0

"""Compiled: the loads of running coflows, entry by entry.

Entries are (port, bytes); those of coflow c are ``start[c]`` to
``start[c + 1] - 1``, each port at most once.
"""

from typing import Any

import cython

from virtco import exception


def read(active: tuple[Any, ...], index: dict[str, int],
         start: cython.longlong[::1], port: cython.longlong[::1],
         size_bytes: cython.double[::1], place: cython.longlong[::1]) -> int:
    """Read running coflows; returns the number of entries.

    :param active: :class:`virtco.model.snapshot.ActiveCoflow` of each.
    :param index: host name -> its egress port; loads elsewhere are left out.
    :param place: -1 per port; scratch.
    :raises virtco.exception.Invalid: for bytes that are no size.
    """
    n: cython.Py_ssize_t = 0
    p: cython.longlong
    size: cython.double
    n_hosts: cython.longlong = len(place) // 2
    c: cython.Py_ssize_t = 0
    for coflow in active:
        first = n
        for way in range(2):
            for name, value in (coflow.in_bytes if way else
                                coflow.out_bytes):
                size = value
                if not 0.0 <= size < float('inf'):
                    raise exception.Invalid(
                        field=f'{coflow.coflow_id}.bytes', value=value,
                        limit='a finite number, at least 0')
                host = index.get(name)
                if host is None or size == 0.0:
                    continue
                p = host
                p += way * n_hosts
                if place[p] >= first:
                    size_bytes[place[p]] += size
                    continue
                place[p] = n
                port[n] = p
                size_bytes[n] = size
                n += 1
        c += 1
        start[c] = n
    return n


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def time_s(load: cython.double, s_per_byte: cython.double) -> cython.double:
    """Return load * s_per_byte with 0 * inf = 0: no bytes take no time."""
    return load * s_per_byte if load > 0.0 else 0.0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def rise(top_port: cython.longlong[:, ::1], top_s: cython.double[:, ::1],
         row: cython.Py_ssize_t, p: cython.longlong, t: cython.double
         ) -> cython.void:
    """Insert port p with t seconds into a row's slowest ports, kept in order.
    """
    i: cython.Py_ssize_t = 0
    last: cython.Py_ssize_t = top_s.shape[1] - 1
    while i < last and top_port[row, i] != p:
        i += 1
    if top_s[row, i] >= t:
        return
    while i > 0 and top_s[row, i - 1] < t:
        top_s[row, i] = top_s[row, i - 1]
        top_port[row, i] = top_port[row, i - 1]
        i -= 1
    top_s[row, i] = t
    top_port[row, i] = p


def prefix_tops(start: cython.longlong[::1], port: cython.longlong[::1],
                size_bytes: cython.double[::1],
                s_per_byte: cython.double[::1], load: cython.double[::1],
                top_port: cython.longlong[:, ::1],
                top_s: cython.double[:, ::1]) -> None:
    """Find the slowest ports after the first 0, 1, ... A coflows.

    :param load: bytes per port before the first; changed.
    :param top_port: the ports per prefix, slowest first, -1 for none;
        shape (A + 1, K).
    :param top_s: their times.
    """
    p: cython.Py_ssize_t
    width: cython.Py_ssize_t = top_s.shape[1]
    for i in range(width):
        top_port[0, i] = -1
        top_s[0, i] = 0.0
    for p in range(load.shape[0]):
        if load[p] > 0.0:
            rise(top_port, top_s, 0, p, time_s(load[p], s_per_byte[p]))
    for k in range(start.shape[0] - 1):
        for i in range(width):
            top_port[k + 1, i] = top_port[k, i]
            top_s[k + 1, i] = top_s[k, i]
        for e in range(start[k], start[k + 1]):
            p = port[e]
            load[p] += size_bytes[e]
            rise(top_port, top_s, k + 1, p,
                 time_s(load[p], s_per_byte[p]))


def by_port(start: cython.longlong[::1], port: cython.longlong[::1],
            size_bytes: cython.double[::1], first: cython.longlong[::1],
            rank: cython.longlong[::1], at_port: cython.double[::1]) -> None:
    """Group the entries by port, each port's in the coflows' order.

    :param first: shape (P + 1,), zeros; port p's are first[p] to
        first[p + 1] - 1.
    :param rank: the coflow of each.
    """
    p: cython.Py_ssize_t
    for e in range(port.shape[0]):
        first[port[e] + 1] += 1
    for p in range(first.shape[0] - 1):
        first[p + 1] += first[p]
    for k in range(start.shape[0] - 1):
        for e in range(start[k], start[k + 1]):
            p = port[e]
            place = first[p]
            first[p] = place + 1
            rank[place] = k
            at_port[place] = size_bytes[e]
    for p in range(first.shape[0] - 1, 0, -1):
        first[p] = first[p - 1]
    first[0] = 0
