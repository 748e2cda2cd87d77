# SPDX-License-Identifier: Apache-2.0

"""Compiled: swaps of tasks, greedy trees, and messages in segments.

See :mod:`virtco.advise.mappings` and :mod:`virtco.advise.trees`.
"""

import cython

INF = cython.declare(cython.double, float('inf'))
#: A time above this part of another is no gain.
NEARLY = cython.declare(cython.double, 1.0 - 1e-9)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add(ports: cython.double[::1], at: cython.longlong[::1],
        slowness: cython.double[:, ::1], latency_s: cython.double[:, ::1],
        src: cython.Py_ssize_t, dst: cython.Py_ssize_t,
        size_bytes: cython.double, sign: cython.double
        ) -> cython.Py_ssize_t:
    """Add a message's time to both machines' ports; sign -1 takes it off."""
    n_machines: cython.Py_ssize_t = ports.shape[0] // 2
    if size_bytes > 0.0:
        took_s: cython.double = sign * (
            latency_s[src, dst] + slowness[src, dst] * size_bytes)
        ports[at[src]] += took_s
        ports[n_machines + at[dst]] += took_s
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def move(task: cython.Py_ssize_t, but: cython.Py_ssize_t,
         sign: cython.double, order: cython.longlong[::1],
         first: cython.longlong[::1], peer: cython.longlong[::1],
         sent: cython.double[::1], got: cython.double[::1],
         at: cython.longlong[::1], slowness: cython.double[:, ::1],
         latency_s: cython.double[:, ::1], ports: cython.double[::1]
         ) -> cython.Py_ssize_t:
    """Add to the ports, or take off, a task's messages except with one other.
    """
    e: cython.Py_ssize_t
    for e in range(first[task], first[task + 1]):
        if peer[e] != but:
            other: cython.Py_ssize_t = order[peer[e]]
            add(ports, at, slowness, latency_s, order[task], other, sent[e],
                sign)
            add(ports, at, slowness, latency_s, other, order[task], got[e],
                sign)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def swap(task: cython.Py_ssize_t, other: cython.Py_ssize_t,
         order: cython.longlong[::1], first: cython.longlong[::1],
         peer: cython.longlong[::1], sent: cython.double[::1],
         got: cython.double[::1], at: cython.longlong[::1],
         slowness: cython.double[:, ::1], latency_s: cython.double[:, ::1],
         ports: cython.double[::1]) -> cython.Py_ssize_t:
    """Swap the members of two tasks and update the ports' loads."""
    move(task, -1, -1.0, order, first, peer, sent, got, at, slowness,
         latency_s, ports)
    move(other, task, -1.0, order, first, peer, sent, got, at, slowness,
         latency_s, ports)
    order[task], order[other] = order[other], order[task]
    move(task, -1, 1.0, order, first, peer, sent, got, at, slowness,
         latency_s, ports)
    move(other, task, 1.0, order, first, peer, sent, got, at, slowness,
         latency_s, ports)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def restore(task: cython.Py_ssize_t, order: cython.longlong[::1],
            first: cython.longlong[::1], peer: cython.longlong[::1],
            at: cython.longlong[::1], ports: cython.double[::1],
            trial: cython.double[::1]) -> cython.Py_ssize_t:
    """Undo a trial swap on the ports that a task and its peers use."""
    e: cython.Py_ssize_t
    n_machines: cython.Py_ssize_t = ports.shape[0] // 2
    p: cython.Py_ssize_t = at[order[task]]
    trial[p] = ports[p]
    trial[n_machines + p] = ports[n_machines + p]
    for e in range(first[task], first[task + 1]):
        p = at[order[peer[e]]]
        trial[p] = ports[p]
        trial[n_machines + p] = ports[n_machines + p]
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fourth_powers(ports: cython.double[::1]) -> cython.double:
    """Return the sum of the fourth powers of all ports' busy seconds.

    The second criterion of :func:`is_less`: even loads have a lower sum.
    """
    p: cython.Py_ssize_t
    square: cython.double
    total: cython.double = 0.0
    for p in range(ports.shape[0]):
        square = ports[p] * ports[p]
        total += square * square
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_less(top: cython.double, power: cython.double,
            other_top: cython.double, other_power: cython.double
            ) -> cython.bint:
    """Compare costs by the busiest port, and by all ports where it is equal.
    """
    if top < NEARLY * other_top:
        return True
    if other_top < NEARLY * top:
        return False
    return power < NEARLY * other_power


def relieve(order: cython.longlong[::1], n_fixed: cython.Py_ssize_t,
            first: cython.longlong[::1], peer: cython.longlong[::1],
            sent: cython.double[::1], got: cython.double[::1],
            at: cython.longlong[::1], slowness: cython.double[:, ::1],
            latency_s: cython.double[:, ::1], ports: cython.double[::1],
            trial: cython.double[::1], queue: cython.longlong[::1],
            queued: cython.longlong[::1], work: cython.longlong) -> int:
    """Swap tasks as long as that relieves the busiest port.

    Of all swaps of a task the best one is taken.

    :param order: member of each task, changed in place; the first
        ``n_fixed`` tasks stay.
    :param first: the peers of task i are ``peer[first[i]:first[i + 1]]``; it
        sends each one ``sent`` bytes and gets ``got``.
    :param at: machine of each member.
    :param ports: busy seconds of all machines, out and then in.
    :param trial: scratch as long as ``ports``.
    :param queue: scratch as long as ``order``, like ``queued``.
    :param work: messages and ports that may be looked at.
    :returns: what is left of ``work``.
    """
    with cython.nogil:
        left = relieve_all(order, n_fixed, first, peer, sent, got, at,
                           slowness, latency_s, ports, trial, queue, queued,
                           work)
    return left


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def relieve_all(order: cython.longlong[::1], n_fixed: cython.Py_ssize_t,
                first: cython.longlong[::1], peer: cython.longlong[::1],
                sent: cython.double[::1], got: cython.double[::1],
                at: cython.longlong[::1], slowness: cython.double[:, ::1],
                latency_s: cython.double[:, ::1],
                ports: cython.double[::1], trial: cython.double[::1],
                queue: cython.longlong[::1], queued: cython.longlong[::1],
                work: cython.longlong) -> cython.longlong:
    """Run :func:`relieve` without the GIL; return the ``work`` left."""
    n: cython.Py_ssize_t = order.shape[0]
    n_ports: cython.Py_ssize_t = ports.shape[0]
    n_machines: cython.Py_ssize_t = n_ports // 2
    p: cython.Py_ssize_t
    task: cython.Py_ssize_t
    other: cython.Py_ssize_t
    e: cython.Py_ssize_t
    i: cython.Py_ssize_t
    found: cython.Py_ssize_t
    busy: cython.Py_ssize_t
    busiest: cython.Py_ssize_t
    n_queued: cython.Py_ssize_t
    on_it: cython.Py_ssize_t
    has_gained: cython.bint = True
    top: cython.double
    power: cython.double
    best_top: cython.double
    best_power: cython.double
    while has_gained:
        has_gained = False
        busy = 0
        for p in range(n_ports):
            if ports[p] > ports[busy]:
                busy = p
        best_top = ports[busy]
        best_power = fourth_powers(ports)
        busiest = busy % n_machines
        # Tasks on the busiest machine, then their peers: their moves relieve
        # it as well.
        n_queued = 0
        for task in range(n):
            queued[task] = at[order[task]] == busiest
            if queued[task]:
                queue[n_queued] = task
                n_queued += 1
        on_it = n_queued
        for i in range(on_it):
            for e in range(first[queue[i]], first[queue[i] + 1]):
                if not queued[peer[e]]:
                    queued[peer[e]] = 1
                    queue[n_queued] = peer[e]
                    n_queued += 1
        for i in range(n_queued):
            task = queue[i]
            if task < n_fixed:
                continue
            found = -1
            for p in range(n_ports):
                trial[p] = ports[p]
            for other in range(n_fixed, n):
                if work <= 0:
                    break
                if at[order[other]] == at[order[task]]:
                    continue
                work -= 10 * (first[task + 1] - first[task]
                              + first[other + 1] - first[other])
                swap(task, other, order, first, peer, sent, got, at,
                     slowness, latency_s, trial)
                if trial[busy] < NEARLY * ports[busy]:
                    work -= n_ports
                    top = 0.0
                    for p in range(n_ports):
                        top = max(top, trial[p])
                    if NEARLY * top <= best_top:
                        power = fourth_powers(trial)
                        if is_less(top, power, best_top, best_power):
                            best_top = top
                            best_power = power
                            found = other
                restore(task, order, first, peer, at, ports, trial)
                restore(other, order, first, peer, at, ports, trial)
                order[task], order[other] = order[other], order[task]
            if found >= 0:
                swap(task, found, order, first, peer, sent, got, at,
                     slowness, latency_s, ports)
                has_gained = True
                break
        if work <= 0:
            break
    return work


def grow(cost_s: cython.double[:, ::1], at: cython.longlong[::1],
         streams: cython.bint, has_s: cython.double[::1],
         out_s: cython.double[::1], in_s: cython.double[::1],
         member: cython.longlong[::1], parent: cython.longlong[::1],
         key: cython.double[::1], to: cython.longlong[::1]) -> None:
    """Grow a tree by the message that ends first, again and again.

    :param streams: a member passes on what it is still receiving.
    :param has_s: time at which each member has the data: 0 of the root,
        else infinite.
    :param out_s: time at which each machine's port is free: 0; likewise
        ``in_s``.
    :param member: members in the order in which they are reached; the first
        is the root. ``parent[i]`` sends to ``member[i]``.
    :param key: scratch as long as ``member``, like ``to``.
    """
    with cython.nogil:
        grow_all(cost_s, at, streams, has_s, out_s, in_s, member, parent, key,
                 to)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def nearest(sender: cython.Py_ssize_t, cost_s: cython.double[:, ::1],
            at: cython.longlong[::1], has_s: cython.double[::1],
            out_s: cython.double[::1], in_s: cython.double[::1],
            to: cython.longlong[::1], place: cython.Py_ssize_t
            ) -> cython.double:
    """Return when a sender's next message may end; ``to[place]`` gets it."""
    r: cython.Py_ssize_t
    end_s: cython.double
    best_s: cython.double = INF
    free_s: cython.double = max(has_s[sender], out_s[at[sender]])
    to[place] = -1
    for r in range(has_s.shape[0]):
        if has_s[r] < INF:
            continue
        if at[r] == at[sender]:
            end_s = has_s[sender] + cost_s[sender, r]
        else:
            end_s = max(free_s, in_s[at[r]]) + cost_s[sender, r]
        if end_s < best_s or to[place] < 0:
            best_s = end_s
            to[place] = r
    return best_s


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def grow_all(cost_s: cython.double[:, ::1], at: cython.longlong[::1],
             streams: cython.bint, has_s: cython.double[::1],
             out_s: cython.double[::1], in_s: cython.double[::1],
             member: cython.longlong[::1], parent: cython.longlong[::1],
             key: cython.double[::1], to: cython.longlong[::1]
             ) -> cython.Py_ssize_t:
    """Run :func:`grow` without the GIL; return the number of members."""
    # Times only grow, so a key of before is a bound: the least one is
    # renewed until it stays the least.
    n: cython.Py_ssize_t = member.shape[0]
    n_has: cython.Py_ssize_t = 1
    i: cython.Py_ssize_t
    first: cython.Py_ssize_t
    sender: cython.Py_ssize_t
    receiver: cython.Py_ssize_t
    end_s: cython.double
    key[0] = -1.0
    while n_has < n:
        while True:
            first = 0
            for i in range(1, n_has):
                if key[i] < key[first]:
                    first = i
            sender = member[first]
            end_s = nearest(sender, cost_s, at, has_s, out_s, in_s, to,
                            first)
            if end_s == key[first]:
                break
            key[first] = end_s
        receiver = to[first]
        if at[sender] != at[receiver]:
            out_s[at[sender]] = end_s
            in_s[at[receiver]] = end_s
        has_s[receiver] = 0.0 if streams else end_s
        member[n_has] = receiver
        parent[n_has] = sender
        key[n_has] = -1.0
        n_has += 1
    return n_has


def deliver(sender: cython.longlong[::1], receiver: cython.longlong[::1],
            cost_s: cython.double[::1], at: cython.longlong[::1],
            n_segments: cython.Py_ssize_t, has_s: cython.double[::1],
            out_s: cython.double[::1], in_s: cython.double[::1],
            end_s: cython.double[::1]) -> None:
    """Compute when each edge of a tree has delivered the last segment.

    Every member passes on a segment to its children in the order of the
    edges, then the next one.

    :param cost_s: time of a segment on each edge.
    :param has_s: scratch: 0 for each member; ``out_s`` and ``in_s`` 0 for
        each machine.
    :param end_s: the result, of each edge.
    """
    with cython.nogil:
        deliver_all(sender, receiver, cost_s, at, n_segments, has_s, out_s,
                    in_s, end_s)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def deliver_all(sender: cython.longlong[::1],
                receiver: cython.longlong[::1], cost_s: cython.double[::1],
                at: cython.longlong[::1], n_segments: cython.Py_ssize_t,
                has_s: cython.double[::1], out_s: cython.double[::1],
                in_s: cython.double[::1], end_s: cython.double[::1]
                ) -> cython.Py_ssize_t:
    """Run :func:`deliver` without the GIL; return 0."""
    k: cython.Py_ssize_t
    e: cython.Py_ssize_t
    src: cython.Py_ssize_t
    dst: cython.Py_ssize_t
    begin_s: cython.double
    for k in range(n_segments):
        for e in range(sender.shape[0]):
            src = at[sender[e]]
            dst = at[receiver[e]]
            # A parent has its segment before: its edge comes earlier.
            begin_s = has_s[sender[e]]
            if src != dst:
                begin_s = max(begin_s, out_s[src], in_s[dst])
            end_s[e] = begin_s + cost_s[e]
            if src != dst:
                out_s[src] = end_s[e]
                in_s[dst] = end_s[e]
            has_s[receiver[e]] = end_s[e]
    return 0


def serve_sooner(order: cython.longlong[::1], sender: cython.longlong[::1],
                 receiver: cython.longlong[::1],
                 parent: cython.longlong[::1], cost_s: cython.double[:, ::1],
                 at: cython.longlong[::1], n_segments: cython.Py_ssize_t,
                 member: cython.longlong[:, ::1],
                 edge_s: cython.double[:, ::1],
                 busy_s: cython.double[:, ::1],
                 work: cython.longlong) -> None:
    """Swap members until the one that is served last is not served sooner.

    :param order: member of each rank, changed in place; the root stays.
    :param sender: rank of each edge, like ``receiver``.
    :param parent: parent of each rank.
    :param cost_s: time of a segment.
    :param member: scratch, shape (2, n_edges); ``edge_s`` likewise.
    :param busy_s: scratch, shape (3, n).
    :param work: messages that may be passed on.
    """
    with cython.nogil:
        serve_all(order, sender, receiver, parent, cost_s, at, n_segments,
                  member, edge_s, busy_s, work)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def served_s(order: cython.longlong[::1], sender: cython.longlong[::1],
             receiver: cython.longlong[::1], cost_s: cython.double[:, ::1],
             at: cython.longlong[::1], n_segments: cython.Py_ssize_t,
             member: cython.longlong[:, ::1], edge_s: cython.double[:, ::1],
             busy_s: cython.double[:, ::1]) -> cython.Py_ssize_t:
    """Find the edge that delivers last; ``edge_s[1]`` gets when each does."""
    e: cython.Py_ssize_t
    i: cython.Py_ssize_t
    last: cython.Py_ssize_t = 0
    for i in range(busy_s.shape[1]):
        busy_s[0, i] = 0.0
        busy_s[1, i] = 0.0
        busy_s[2, i] = 0.0
    for e in range(sender.shape[0]):
        member[0, e] = order[sender[e]]
        member[1, e] = order[receiver[e]]
        edge_s[0, e] = cost_s[member[0, e], member[1, e]]
    deliver_all(member[0], member[1], edge_s[0], at, n_segments, busy_s[0],
                busy_s[1], busy_s[2], edge_s[1])
    for e in range(1, sender.shape[0]):
        if edge_s[1, e] > edge_s[1, last]:
            last = e
    return last


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def serve_all(order: cython.longlong[::1], sender: cython.longlong[::1],
              receiver: cython.longlong[::1], parent: cython.longlong[::1],
              cost_s: cython.double[:, ::1], at: cython.longlong[::1],
              n_segments: cython.Py_ssize_t,
              member: cython.longlong[:, ::1],
              edge_s: cython.double[:, ::1], busy_s: cython.double[:, ::1],
              work: cython.longlong) -> cython.longlong:
    """Run :func:`serve_sooner` without the GIL; return the ``work`` left."""
    rank: cython.Py_ssize_t
    other: cython.Py_ssize_t
    one: cython.Py_ssize_t
    last: cython.Py_ssize_t = served_s(order, sender, receiver, cost_s, at,
                                       n_segments, member, edge_s, busy_s)
    best_s: cython.double = edge_s[1, last]
    is_better: cython.bint = True
    while is_better:
        is_better = False
        rank = receiver[last]
        while rank > 0 and not is_better:
            for other in range(1, order.shape[0]):
                if work <= 0:
                    return work
                work -= sender.shape[0] * (n_segments + 3)
                order[rank], order[other] = order[other], order[rank]
                one = served_s(order, sender, receiver, cost_s, at,
                               n_segments, member, edge_s, busy_s)
                if edge_s[1, one] < NEARLY * best_s:
                    best_s = edge_s[1, one]
                    last = one
                    is_better = True
                    break
                order[rank], order[other] = order[other], order[rank]
            rank = parent[rank]
    return work
