# SPDX-License-Identifier: Apache-2.0

"""Compiled: one node tried on many hosts, by the ports that change.

With the node *elsewhere* - on a host without any of its peers, in no subtree -
all other ports carry what they carry wherever it goes. Going to host h
changes the ports of h, its uplinks and the pairs (h, peer) alone. So a trial
is a list of *slots*, a port and the bytes that each own coflow has there,
beside tables that all trials share.

Arrays of a trial: ``slot_port[t, i]``, -1 for none, and
``slot_bytes[t, c, i]``. The first ``n_base`` slots may carry less than
elsewhere, so the tables list one more than that many ports.
"""

import cython


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def time_s(load: cython.double, s_per_byte: cython.double) -> cython.double:
    """Compute load * s_per_byte with 0 * inf = 0."""
    return load * s_per_byte if load > 0.0 else 0.0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_slot(slot_port: cython.longlong[:, ::1], t: cython.Py_ssize_t,
            n_base: cython.Py_ssize_t, port: cython.longlong
            ) -> cython.bint:
    """Tell whether a port is among the first ``n_base`` slots of trial t."""
    i: cython.Py_ssize_t
    for i in range(n_base):
        if slot_port[t, i] == port:
            return True
    return False


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def slowest_other(top_port: cython.longlong[:, :, ::1],
                  table: cython.Py_ssize_t, row: cython.Py_ssize_t,
                  slot_port: cython.longlong[:, ::1], t: cython.Py_ssize_t,
                  n_base: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Find the slowest port of a row of tops that is outside the trial."""
    i: cython.Py_ssize_t = 0
    while i < n_base and is_slot(slot_port, t, n_base,
                                 top_port[table, row, i]):
        i += 1
    return i


def fill_slots(first: cython.Py_ssize_t, last: cython.Py_ssize_t,
               host: cython.longlong[::1],
               port_out: cython.longlong[:, ::1],
               n_uplinks: cython.longlong, pipe: cython.bint,
               peer: cython.longlong[::1], out: cython.double[:, ::1],
               into: cython.double[:, ::1], absent: cython.double[:, ::1],
               slot_port: cython.longlong[:, ::1],
               slot_bytes: cython.double[:, :, ::1]) -> None:
    """Fill the slots of trials first to last - 1.

    :param host: the host of each trial.
    :param port_out: port of each row, hosts first, and host; -1 for none.
    :param peer: hosts that the node exchanges bytes with, shape (S,).
    :param out: bytes to each of them per coflow, shape (C, S).
    :param into: bytes from each of them.
    :param absent: own bytes per coflow and port without the node's.
    """
    i: cython.Py_ssize_t
    n_rows: cython.Py_ssize_t = port_out.shape[0]
    n_base: cython.Py_ssize_t = 2 * n_rows
    m: cython.longlong = port_out.shape[1]
    pairs: cython.longlong = 2 * (m + n_uplinks)
    p: cython.longlong
    for t in range(first, last):
        h = host[t]
        for d in range(n_rows):
            p = port_out[d, h]
            slot_port[t, 2 * d] = p
            slot_port[t, 2 * d + 1] = (
                -1 if p < 0 else p + (n_uplinks if d else m))
        if pipe:
            for i in range(peer.shape[0]):
                b = peer[i]
                slot_port[t, n_base + 2 * i] = (
                    pairs + h * m + b if b != h else -1)
                slot_port[t, n_base + 2 * i + 1] = (
                    pairs + b * m + h if b != h else -1)
        for c in range(absent.shape[0]):
            for i in range(slot_port.shape[1]):
                p = slot_port[t, i]
                slot_bytes[t, c, i] = absent[c, p] if p >= 0 else 0.0
            for i in range(peer.shape[0]):
                b = peer[i]
                if b == h:
                    continue
                for d in range(n_rows):
                    p = port_out[d, h]
                    if p >= 0 and port_out[d, b] != p:
                        slot_bytes[t, c, 2 * d] += out[c, i]
                        slot_bytes[t, c, 2 * d + 1] += into[c, i]
                if pipe:
                    slot_bytes[t, c, n_base + 2 * i] += out[c, i]
                    slot_bytes[t, c, n_base + 2 * i + 1] += into[c, i]


def own_times(first: cython.Py_ssize_t, last: cython.Py_ssize_t,
              n_base: cython.Py_ssize_t, s_per_byte: cython.double[::1],
              slot_port: cython.longlong[:, ::1],
              slot_bytes: cython.double[:, :, ::1],
              top_port: cython.longlong[:, :, ::1],
              top_s: cython.double[:, :, ::1], own_s: cython.double[:, ::1],
              port: cython.longlong[::1]) -> None:
    """Compute isolated CCTs of each own coflow and of all together, per trial.

    :param top_port: slowest ports elsewhere of each own coflow and, in the
        last row, of all together; shape (1, C + 1, n_base + 1).
    :param own_s: filled, shape (T, C + 1).
    :param port: filled: the port that decides the last; -1 for none.
    """
    i: cython.Py_ssize_t
    n: cython.Py_ssize_t = slot_bytes.shape[1]
    p: cython.longlong
    load: cython.double
    for t in range(first, last):
        for c in range(n + 1):
            i = slowest_other(top_port, 0, c, slot_port, t, n_base)
            own_s[t, c] = top_s[0, c, i]
            if c == n:
                port[t] = top_port[0, c, i] if own_s[t, c] > 0.0 else -1
            for i in range(slot_port.shape[1]):
                p = slot_port[t, i]
                if p < 0:
                    continue
                if c < n:
                    load = slot_bytes[t, c, i]
                else:
                    load = 0.0
                    for d in range(n):
                        load += slot_bytes[t, d, i]
                time = time_s(load, s_per_byte[p])
                if time > own_s[t, c] or (
                        c == n and time > 0.0 and time == own_s[t, c]
                        and p < port[t]):
                    own_s[t, c] = time
                    if c == n:
                        port[t] = p


def prefix_sums(trials: cython.longlong[::1], n_base: cython.Py_ssize_t,
                s_per_byte: cython.double[::1],
                slot_port: cython.longlong[:, ::1],
                slot_bytes: cython.double[:, :, ::1],
                order: cython.longlong[::1], before: cython.longlong[:, ::1],
                entry_start: cython.longlong[::1],
                entry_rank: cython.longlong[::1],
                entry_bytes: cython.double[::1],
                top_port: cython.longlong[:, :, ::1],
                top_s: cython.double[:, :, ::1], floor_s: cython.double[::1],
                running_s: cython.double[::1], running: cython.double[::1],
                own: cython.double[::1], result: cython.double[::1]) -> None:
    """Sum up all prefix CCTs of trials whose own coflows have one order.

    :param order: own coflows by rising isolated CCT, shape (C,).
    :param before: running coflows served before each of them, per trial.
    :param entry_start: running entries port by port, then their coflow's
        rank and bytes.
    :param top_port: slowest ports elsewhere after 0 ... A running coflows
        and the first 0 ... C own ones in this order;
        shape (C + 1, A + 1, n_base + 1).
    :param running_s: sum of the running ones' first prefix CCTs, nobody's
        own among them; shape (A + 1,).
    :param running: scratch, zeros, shape (A,).
    :param own: scratch, zeros, shape (C,).
    """
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    e: cython.Py_ssize_t
    n: cython.Py_ssize_t = order.shape[0]
    n_running: cython.Py_ssize_t = running.shape[0]
    p: cython.longlong
    load: cython.double
    slowest: cython.double
    total: cython.double
    for u in range(trials.shape[0]):
        t = trials[u]
        for i in range(slot_port.shape[1]):
            p = slot_port[t, i]
            if p < 0:
                continue
            load = 0.0
            stage = 0
            for e in range(entry_start[p], entry_start[p + 1]):
                k = entry_rank[e]
                while stage < n and before[t, stage] <= k:
                    load += slot_bytes[t, order[stage], i]
                    own[stage] = max(own[stage],
                                     time_s(load, s_per_byte[p]))
                    stage += 1
                load += entry_bytes[e]
                running[k] = max(running[k], time_s(load, s_per_byte[p]))
            while stage < n:
                load += slot_bytes[t, order[stage], i]
                own[stage] = max(own[stage], time_s(load, s_per_byte[p]))
                stage += 1
        k = before[t, 0] if n else n_running
        total = running_s[k]
        slowest = 0.0
        for i in range(k):
            slowest = max(slowest, running[i])
            running[i] = 0.0
        stage = 0
        while True:
            while stage < n and before[t, stage] == k:
                slowest = max(slowest, own[stage])
                own[stage] = 0.0
                stage += 1
                i = slowest_other(top_port, stage, k, slot_port, t, n_base)
                total += max(top_s[stage, k, i], slowest, floor_s[k])
            if k == n_running:
                break
            slowest = max(slowest, running[k])
            running[k] = 0.0
            k += 1
            i = slowest_other(top_port, stage, k, slot_port, t, n_base)
            total += max(top_s[stage, k, i], slowest, floor_s[k])
        result[t] = total
