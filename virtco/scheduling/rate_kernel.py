# SPDX-License-Identifier: Apache-2.0

"""The compiled core: who gets which rate. Arrays in, rates out.

Rates come in two parts. ``pace[c]`` is the rate at which coflow c's scale
shrinks, so each of its flows sends ``base * pace``: MADD, all flows end
together. ``extra_flow`` and ``extra_rate`` list flows with a rate on top of
it: back-fill and per-flow sharing. ``residual`` is what is left of every port.

One module, so that the compiler inlines what is asked of a port: with max-min
in a module of its own an allocation took 10 to 20 % longer.
"""

import cython

from virtco.scheduling import policies

if cython.compiled:
    from cython.cimports.virtco.scheduling.rater_kernel import clear
    from cython.cimports.virtco.scheduling.rater_kernel import Rater
else:
    from virtco.scheduling.rater_kernel import clear
    from virtco.scheduling.rater_kernel import popcount
    from virtco.scheduling.rater_kernel import Rater

    def lowest(word: int) -> int:
        return (word & -word).bit_length() - 1

#: A port with less than this fraction of its rate left counts as full.
FULL = cython.declare(cython.double, 1e-9)
#: FIFO+ leaves the head of the queue at least this fraction of each port.
HEAD_SHARE = cython.declare(cython.double, 0.5)
INF = cython.declare(cython.double, float('inf'))
SHARE_COFLOWS = cython.declare(cython.int, policies.SHARE_COFLOWS)
SHARE_FLOWS = cython.declare(cython.int, policies.SHARE_FLOWS)
SHARE_GREEDY = cython.declare(cython.int, policies.SHARE_GREEDY)
SHARE_IN_ORDER = cython.declare(cython.int, policies.SHARE_IN_ORDER)
BACKFILL_GREEDY = cython.declare(cython.int, policies.BACKFILL_GREEDY)
BACKFILL_MAX_MIN = cython.declare(cython.int, policies.BACKFILL_MAX_MIN)
BACKFILL_IN_ORDER = cython.declare(cython.int, policies.BACKFILL_IN_ORDER)


def allocate(rater: Rater, order: cython.longlong[::1],
             n_lifted: cython.Py_ssize_t, sharing: cython.int,
             backfill: cython.int, horizon_s: cython.double,
             trickle: cython.double, weights: cython.double[::1],
             alone_s: cython.double[::1]) -> cython.void:
    """Rate every coflow of ``order``: the one place that hands out rates.

    :param rater: its residual, pace and extra list are written.
    :param order: coflow indices, the first n_lifted of them starving: they
        share the fabric among themselves before anyone else is served.
    :param sharing: policies.SHARE_…
    :param backfill: policies.BACKFILL_…
    :param horizon_s: BACKFILL_IN_ORDER hands a flow at first no more than it
        sends in this time; 0 for flows that are rated anew when they end.
    :param trickle: share of each port for each coflow behind the head.
    :param weights: weight of each coflow, for SHARE_COFLOWS.
    :param alone_s: each coflow's remaining time alone on the fabric.
    """
    n = order.shape[0]
    for w in range(rater.all_words):
        rater.open_ports[w] = rater.all_open[w]
    for p in range(rater.cap.shape[0]):
        rater.residual[p] = rater.cap[p]
    # Other coflows have ended or not begun: they have none.
    for i in range(n):
        rater.pace[order[i]] = 0.0
    rater.n_extra = 0
    guarantee(rater, order)
    if sharing == SHARE_FLOWS:
        fill_max_min(rater, open_flows(rater, order, 0, n), False, INF)
        return
    if sharing == SHARE_IN_ORDER:
        for i in range(n):
            fill_max_min(rater, open_flows(rater, order, i, i + 1), False,
                         INF)
        return
    if n_lifted > 1:
        reserve(rater, order, 0, n_lifted, INF, 1.0)
    if sharing == SHARE_COFLOWS:
        weighted_fair(rater, order, weights, alone_s)
    elif sharing != SHARE_GREEDY:
        if trickle > 0.0 and n > 1:
            reserve(rater, order, 1, n, trickle, 1.0 - HEAD_SHARE)
        madd(rater, order)
    if backfill == BACKFILL_GREEDY:
        backfill_greedy(rater, order)
    elif backfill == BACKFILL_MAX_MIN:
        fill_max_min(rater, open_flows(rater, order, 0, n), False, INF)
    elif backfill == BACKFILL_IN_ORDER:
        if horizon_s > 0.0:
            fill_in_order(rater, order, 1.0 / horizon_s)
        fill_in_order(rater, order, INF)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def set_left(rater: Rater, p: cython.Py_ssize_t, left_bps: cython.double
             ) -> cython.void:
    """Set the residual of port p, in bit/s; close the port where it is full.
    """
    rater.residual[p] = left_bps
    if left_bps <= FULL * rater.cap[p]:
        rater.open_ports[rater.word[p]] &= ~rater.bit[p]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def is_full(rater: Rater, p: cython.Py_ssize_t) -> cython.bint:
    """Return whether port p has no rate left, or never had one."""
    return rater.residual[p] <= FULL * rater.cap[p]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def is_blocked(rater: Rater, c: cython.Py_ssize_t) -> cython.bint:
    """Return whether a port that coflow c uses is full."""
    if not rater.has_sets:
        for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
            if rater.alive[e] > 0 and is_full(rater, rater.port[e]):
                return True
        return False
    at = c * rater.all_words
    for w in range(rater.all_words):
        if rater.used_ports[at + w] & ~rater.open_ports[w] != 0:
            return True
    return False


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def can_receive(rater: Rater, c: cython.Py_ssize_t) -> cython.bint:
    """Return whether coflow c uses an ingress that is not full."""
    if not rater.has_sets:
        for e in range(rater.split[c], rater.entry_ptr[c + 1]):
            if rater.alive[e] > 0 and not is_full(rater, rater.port[e]):
                return True
        return False
    at = c * rater.all_words
    for w in range(rater.n_words, 2 * rater.n_words):
        if rater.used_ports[at + w] & rater.open_ports[w] != 0:
            return True
    return False


def next_alive(rater: Rater, f: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Find the first flow from f on that has not ended (F when there is none).

    Ended flows point past themselves; looking shortens the path.
    """
    while rater.skip[f] != f:
        rater.skip[f] = rater.skip[rater.skip[f]]
        f = rater.skip[f]
    return f


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill_in_order(rater: Rater, order: cython.longlong[::1],
                  most: cython.double) -> cython.void:
    """Hand residual rates to the coflows in order.

    :param most: largest part of a flow's remaining bytes, per second.
    """
    for i in range(order.shape[0]):
        if can_receive(rater, order[i]):
            fill_max_min(rater, open_flows(rater, order, i, i + 1), True,
                         most)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def madd(rater: Rater, order: cython.longlong[::1]) -> cython.void:
    """Give each coflow, in order, its minimum allocation for desired time.

    A coflow that needs a full port gets nothing here (back-fill may still
    serve some of its flows).
    """
    for i in range(order.shape[0]):
        c = order[i]
        if is_blocked(rater, c):
            continue
        gamma = 0.0
        for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
            load = rater.load[e]
            if load > 0.0:
                gamma = max(gamma, load / rater.residual[rater.port[e]])
        if gamma > 0.0:
            take(rater, c, 1.0 / gamma)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def take(rater: Rater, c: cython.Py_ssize_t, rate: cython.double
         ) -> cython.void:
    """Add ``rate`` to coflow c's pace and take it from its ports."""
    rater.pace[c] += rate
    for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
        p = rater.port[e]
        set_left(rater, p, max(
            0.0, rater.residual[p] - rater.load[e] * rate))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def guarantee(rater: Rater, order: cython.longlong[::1]) -> cython.void:
    """Give each coflow its floor, or as much of it as its ports have left.

    Floors that were admitted together fit (:mod:`virtco.scheduling.deadlines`)
    unless a port has become slower since.
    """
    for i in range(order.shape[0]):
        c = order[i]
        rate = rater.floor[c]
        if rate <= 0.0:
            continue
        for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
            if rater.load[e] > 0.0:
                rate = min(rate, rater.residual[rater.port[e]]
                           / rater.load[e])
        if rate > 0.0:
            take(rater, c, rate)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def reserve(rater: Rater, order: cython.longlong[::1],
            begin: cython.Py_ssize_t, end: cython.Py_ssize_t,
            most: cython.double, room: cython.double) -> cython.void:
    """Give order[begin:end] MADD within a small share of every port.

    At a port that n of them still load it is ``room / n`` of the port's rate,
    ``most`` at the most.
    """
    clear(rater)
    for i in range(begin, end):
        c = order[i]
        for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
            if rater.load[e] > 0.0:
                rater.count[rater.port[e]] += 1
    for p in range(rater.cap.shape[0]):
        rater.share[p] = min(most, room / max(1, rater.count[p]))
    for i in range(begin, end):
        c = order[i]
        gamma = 0.0
        for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
            if rater.load[e] > 0.0:
                p = rater.port[e]
                limit_bps = min(rater.share[p] * rater.cap[p],
                                rater.residual[p])
                gamma = max(gamma, rater.load[e] / limit_bps
                            if limit_bps > 0.0 else INF)
        if gamma > 0.0 and gamma < INF:
            take(rater, c, 1.0 / gamma)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def weighted_fair(rater: Rater, order: cython.longlong[::1],
                  weights: cython.double[::1], alone_s: cython.double[::1]
                  ) -> cython.void:
    """Share the fabric between coflows in proportion to their weights.

    Progressive filling over whole coflows: x_c, coflow c's speed as a
    fraction of its speed alone, rises as weight * level for all at once; a
    full port stops the coflows that use it. The flows of a coflow keep the
    MADD proportions (Orchestra section 4 over section 6.3's weights).
    """
    n_open = 0
    for i in range(order.shape[0]):
        c = order[i]
        if alone_s[c] > 0.0 and alone_s[c] < INF:
            rater.chosen[n_open] = c
            n_open += 1
    while n_open > 0:
        clear(rater)
        for i in range(n_open):
            c = rater.chosen[i]
            speed = weights[c] * rater.scale[c] / alone_s[c]
            for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
                rater.demand[rater.port[e]] += rater.load[e] * speed
        step = INF
        for p in range(rater.cap.shape[0]):
            if rater.demand[p] > 0.0:
                step = min(step, rater.residual[p] / rater.demand[p])
        for i in range(n_open):
            c = rater.chosen[i]
            take(rater, c, step * weights[c] * rater.scale[c] / alone_s[c])
        kept = 0
        for i in range(n_open):
            c = rater.chosen[i]
            if not is_blocked(rater, c):
                rater.chosen[kept] = c
                kept += 1
        n_open = kept


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def backfill_greedy(rater: Rater, order: cython.longlong[::1]) -> cython.void:
    """Hand residual rates to the flows in order.

    Each flow that gets some fills a port, so there are at most P of them.
    """
    usable: cython.ulonglong
    bit: cython.ulonglong
    for i in range(order.shape[0]):
        c = order[i]
        at = c * rater.all_words
        for w in range(rater.n_words):
            usable = rater.used_ports[at + w] & rater.open_ports[w]
            while usable != 0 and can_receive(rater, c):
                bit = usable & -usable
                usable ^= bit
                p = 64 * w + lowest(bit)
                e = (rater.entry_ptr[c] + rater.ports_before[at + w]
                     + popcount(rater.had_ports[at + w] & (bit - 1)))
                if rater.row_at[e] >= 0:
                    fill_set(rater, e, p)
                else:
                    fill_row(rater, e)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill_set(rater: Rater, e: cython.Py_ssize_t, p: cython.Py_ssize_t
             ) -> cython.void:
    """Hand the rest of entry e at port p to its flows to open ingresses."""
    usable: cython.ulonglong
    bit: cython.ulonglong
    row = rater.row_at[e]
    for w in range(rater.n_words):
        usable = rater.row_alive[row + w] & rater.open_ports[rater.n_words + w]
        while usable != 0:
            bit = usable & -usable
            usable ^= bit
            add_extra(rater, (rater.first[e] + rater.row_before[row + w]
                              + popcount(rater.row_had[row + w] & (bit - 1))),
                      p, rater.n_hosts + 64 * w + lowest(bit))
            if is_full(rater, p):
                return


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill_row(rater: Rater, e: cython.Py_ssize_t) -> cython.void:
    """Hand the rest of egress entry e to its flows that have not ended."""
    p = rater.port[e]
    f = next_alive(rater, rater.first[e])
    while f < rater.last[e]:
        if is_path_open(rater, f):
            add_extra(rater, f, p, rater.port[rater.dst[f]])
            if is_full(rater, p):
                return
        f = next_alive(rater, f + 1)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def add_extra(rater: Rater, f: cython.Py_ssize_t, p: cython.Py_ssize_t,
              q: cython.Py_ssize_t) -> cython.void:
    """Give flow f from port p to port q all that its path has left."""
    rate = min(rater.residual[p], rater.residual[q])
    for k in range(n_up(rater, f)):
        rate = min(rate, rater.residual[up_port(rater, f, k)])
    # Uplinks are not looked at before: one may be full.
    if rate <= 0.0:
        return
    rater.extra_flow[rater.n_extra] = f
    rater.extra_rate[rater.n_extra] = rate
    rater.n_extra += 1
    for k in range(n_up(rater, f)):
        at = up_port(rater, f, k)
        set_left(rater, at, rater.residual[at] - rate)
    set_left(rater, q, rater.residual[q] - rate)
    set_left(rater, p, rater.residual[p] - rate)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def n_up(rater: Rater, f: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Count the uplinks and caps that flow f passes."""
    return rater.up_ptr[f + 1] - rater.up_ptr[f] if rater.has_up else 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def up_port(rater: Rater, f: cython.Py_ssize_t, k: cython.Py_ssize_t
            ) -> cython.Py_ssize_t:
    """Return the port of the k-th uplink or cap that flow f passes."""
    return rater.port[rater.up[rater.up_ptr[f] + k]]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def path_length(rater: Rater, f: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Count the ports that flow f passes: both hosts' and uplinks."""
    return 2 + n_up(rater, f)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def port_on_path(rater: Rater, f: cython.Py_ssize_t, k: cython.Py_ssize_t
                 ) -> cython.Py_ssize_t:
    """Return the k-th port that flow f passes."""
    if k == 0:
        return rater.port[rater.src[f]]
    if k == 1:
        return rater.port[rater.dst[f]]
    return up_port(rater, f, k - 2)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def is_path_open(rater: Rater, f: cython.Py_ssize_t) -> cython.bint:
    """Return whether nothing behind the sender's port is full."""
    if is_full(rater, rater.port[rater.dst[f]]):
        return False
    for k in range(n_up(rater, f)):
        if is_full(rater, up_port(rater, f, k)):
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def open_flows(rater: Rater, order: cython.longlong[::1],
               begin: cython.Py_ssize_t, end: cython.Py_ssize_t
               ) -> cython.Py_ssize_t:
    """List the flows of order[begin:end] with room at both ends.

    They go into rater.flows; returns their number.
    """
    n_open = 0
    for i in range(begin, end):
        c = order[i]
        for e in range(rater.entry_ptr[c], rater.split[c]):
            if rater.alive[e] == 0 or is_full(rater, rater.port[e]):
                continue
            f = next_alive(rater, rater.first[e])
            while f < rater.last[e]:
                if is_path_open(rater, f):
                    rater.flows[n_open] = f
                    n_open += 1
                f = next_alive(rater, f + 1)
    return n_open


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill_max_min(rater: Rater, n_open: cython.Py_ssize_t,
                 by_size: cython.bint, most: cython.double) -> cython.void:
    """Share residual rates by weighted max-min among rater.flows[:n_open].

    Progressive filling: all rise together (in proportion to their weights)
    until a port is full; its flows stop there, the others rise on.

    :param by_size: a flow's weight is what it has left, so that those of one
        port end together.
    :param most: a flow's rate per weight at most.
    """
    if n_open == 0:
        return
    for i in range(n_open):
        f = rater.flows[i]
        rater.rising_weight[i] = rater.base[f] if by_size else rater.weight[f]
        rater.stopped[i] = 0
    n_rising = sort_by_port(rater, n_open)
    level = 0.0
    while n_rising > 0:
        step = rise(rater, n_rising, most - level)
        if step == INF:
            return
        level = level + step if step < most - level else most
        for i in range(n_rising):
            p = rater.rising[i]
            if is_full(rater, p) or level >= most:
                stop_all_at(rater, p, level)
        n_rising = still_rising(rater, n_rising)


def rise(rater: Rater, n_rising: cython.Py_ssize_t, most: cython.double
         ) -> cython.double:
    """Raise the level of all flows until a port in rater.rising is full.

    :param most: largest rise, bps per weight.
    :returns: rise, bps per weight; inf where nothing rises.
    """
    step = INF
    for i in range(n_rising):
        p = rater.rising[i]
        # Rounding may leave a demand of 0 or less.
        if rater.demand[p] > 0.0:
            step = min(step, rater.residual[p] / rater.demand[p])
    if step == INF:
        return INF
    step = min(step, most)
    for i in range(n_rising):
        p = rater.rising[i]
        set_left(rater, p, max(
            0.0, rater.residual[p] - step * rater.demand[p]))
    return step


def still_rising(rater: Rater, n_rising: cython.Py_ssize_t
                 ) -> cython.Py_ssize_t:
    """Drop the ports from rater.rising at which no flow rises any more.

    Returns the number of those that are left.
    """
    kept = 0
    for i in range(n_rising):
        if rater.count[rater.rising[i]] > 0:
            rater.rising[kept] = rater.rising[i]
            kept += 1
    return kept


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def stop_all_at(rater: Rater, p: cython.Py_ssize_t, level: cython.double
                ) -> cython.void:
    """Stop the flows of port p, which is full."""
    for k in range(rater.start[p], rater.place[p]):
        i = rater.at_port[k]
        if rater.stopped[i]:
            continue
        rater.stopped[i] = 1
        f = rater.flows[i]
        for j in range(path_length(rater, f)):
            q = port_on_path(rater, f, j)
            rater.demand[q] -= rater.rising_weight[i]
            rater.count[q] -= 1
        rater.extra_flow[rater.n_extra] = f
        rater.extra_rate[rater.n_extra] = rater.rising_weight[i] * level
        rater.n_extra += 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def sort_by_port(rater: Rater, n_open: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Count and weigh the open flows of each port, and list them by port.

    Those of port p are rater.at_port[start[p]:place[p]], as positions in
    rater.flows. Returns the number of ports with any, which rater.rising
    lists. Only these are touched: one coflow uses few ports of a cloud.
    """
    for i in range(n_open):
        f = rater.flows[i]
        for k in range(path_length(rater, f)):
            rater.count[port_on_path(rater, f, k)] = 0
    n_rising = 0
    for i in range(n_open):
        f = rater.flows[i]
        for k in range(path_length(rater, f)):
            p = port_on_path(rater, f, k)
            if rater.count[p] == 0:
                rater.demand[p] = 0.0
                rater.rising[n_rising] = p
                n_rising += 1
            rater.demand[p] += rater.rising_weight[i]
            rater.count[p] += 1
    at = 0
    for i in range(n_rising):
        p = rater.rising[i]
        rater.start[p] = rater.place[p] = at
        at += rater.count[p]
    for i in range(n_open):
        f = rater.flows[i]
        for k in range(path_length(rater, f)):
            p = port_on_path(rater, f, k)
            rater.at_port[rater.place[p]] = i
            rater.place[p] += 1
    return n_rising
