# SPDX-License-Identifier: Apache-2.0

"""The event loop of the fluid simulator, compiled.

Between two events every rate is constant. An event is the end of a flow or of
a coflow, a coflow that crosses into another queue, one that starts to starve,
or the time at which the caller wants control back. At each event the same
kernels as in production order the coflows and rate them anew; what then
becomes of flows and coflows is in :mod:`virtco.fluid.run_kernels`.
"""

from typing import Any

import cython

from virtco.scheduling import policies

if cython.compiled:
    from cython.cimports.virtco.fluid.run_kernels import move
    from cython.cimports.virtco.fluid.run_kernels import Run
    from cython.cimports.virtco.scheduling.order_kernel import rank_repeating
    from cython.cimports.virtco.scheduling.order_kernel import round_keys
    from cython.cimports.virtco.scheduling.order_kernel import sort
    from cython.cimports.virtco.scheduling.order_kernel import swap_neighbours
    from cython.cimports.virtco.scheduling.rate_kernel import allocate
    from cython.cimports.virtco.scheduling.rater_kernel import Rater
else:
    from virtco.fluid.run_kernels import move
    from virtco.fluid.run_kernels import Run
    from virtco.scheduling.order_kernel import rank_repeating
    from virtco.scheduling.order_kernel import round_keys
    from virtco.scheduling.order_kernel import sort
    from virtco.scheduling.order_kernel import swap_neighbours
    from virtco.scheduling.rate_kernel import allocate
    from virtco.scheduling.rater_kernel import Rater

#: First queue's limit, growth and number of the queues of Aalo (NSDI-style
#: discretised least attained service): 10 MB, times ten, ten queues.
QUEUE_BITS = cython.declare(cython.double, 8e7)
QUEUE_GROWTH = cython.declare(cython.double, 10.0)
N_QUEUES = cython.declare(cython.int, 10)

INF = cython.declare(cython.double, float('inf'))
BY_REMAINING = cython.declare(cython.int, policies.BY_REMAINING)
BY_WHOLE = cython.declare(cython.int, policies.BY_WHOLE)
BY_QUEUE = cython.declare(cython.int, policies.BY_QUEUE)


def advance(rater: Rater, run: Run, live: cython.longlong[::1],
            n_live: cython.Py_ssize_t, now_s: cython.double,
            until_s: cython.double, max_events: cython.Py_ssize_t,
            stop_at_end: cython.bint) -> tuple[Any, ...]:
    """Run the live coflows until ``until_s`` or for ``max_events`` events.

    :param live: indices of active coflows in its first n_live places; ended
        ones are taken out.
    :param stop_at_end: return as soon as a coflow has ended.
    :returns: the time reached, the number of coflows still live, events used.
    """
    events: cython.Py_ssize_t = 0
    rate_anew: cython.bint = True
    is_turn: cython.bint
    ended: cython.bint
    # A turn depends on the bytes that each flow has sent.
    by_flow: cython.bint = (run.each_flow or run.by == BY_QUEUE
                            or run.theta_s < INF)
    run.now_s, run.n_live = now_s, n_live
    with cython.nogil:
        while run.n_live > 0 and run.now_s < until_s:
            order: cython.longlong[::1] = live[:run.n_live]
            if rate_anew:
                if events >= max_events:
                    break
                rerate(rater, run, order, run.now_s)
            turn_s = next_turn_s(rater, run, order)
            dt_s = next_end_s(rater, run, order, by_flow)
            is_turn = turn_s <= dt_s
            dt_s = min(dt_s, turn_s)
            if run.now_s + dt_s > until_s:
                dt_s = until_s - run.now_s
                run.now_s = until_s
            elif dt_s == INF:
                break
            else:
                run.now_s += dt_s
            move(rater, run, order, dt_s)
            kept = 0
            for i in range(run.n_live):
                if run.left[live[i]] > 0:
                    live[kept] = live[i]
                    kept += 1
            ended = kept < run.n_live
            rate_anew = run.each_flow or ended or is_turn
            run.n_live = kept
            events += 1
            if ended and stop_at_end:
                break
    return run.now_s, run.n_live, events


@cython.ccall
@cython.nogil
@cython.exceptval(check=False)
def rerate(rater: Rater, run: Run, order: cython.longlong[::1],
           now_s: cython.double) -> cython.void:
    """Order coflows, in place, and rate them again."""
    n_lifted = put_in_order(rater, run, order, now_s)
    allocate(rater, order, n_lifted, run.sharing, run.backfill, 0.0,
             run.trickle, run.weight, run.alone_s)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def queue_of(sent_bits: cython.double) -> cython.int:
    """Return the queue by attained service; queue 0 is served first."""
    queue = 0
    limit = QUEUE_BITS
    while sent_bits >= limit * (1.0 - 1e-9) and queue < N_QUEUES - 1:
        limit *= QUEUE_GROWTH
        queue += 1
    return queue


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_in_order(rater: Rater, run: Run, order: cython.longlong[::1],
                 now_s: cython.double) -> cython.Py_ssize_t:
    """Sort ``order``; returns how many starving coflows lead it."""
    n_lifted = 0
    waited_s: cython.double
    repeats: cython.bint = False
    for i in range(order.shape[0]):
        c = order[i]
        repeats = repeats or run.intensity[c] > 0.0
        run.alone_s[c] = run.bound[c] * rater.scale[c]
        run.rank_level[c] = run.level[c]
        if run.by == BY_REMAINING:
            run.key[c] = run.alone_s[c] / run.weight[c]
        elif run.by == BY_WHOLE:
            run.key[c] = run.whole_s[c]
        else:
            run.key[c] = run.arrival_s[c]
            if run.by == BY_QUEUE:
                run.rank_level[c] = queue_of(run.sent_bits[c])
        waited_s = now_s - max(run.served_s[c], run.arrival_s[c])
        if (waited_s >= run.theta_s * (1.0 - 1e-9)
                and run.lifted_s[c] <= now_s):
            run.lifted_s[c] = now_s + run.quantum_s
        if run.lifted_s[c] > now_s:
            n_lifted += 1
            run.rank_level[c] = -1
            run.key[c] = run.served_s[c]
    round_keys(order, run.key)
    if repeats and run.by == BY_REMAINING:
        rank_repeating(order, run.rank_level, run.alone_s, run.weight,
                       run.intensity, run.key)
    sort(order, order.shape[0], run.rank_level, run.key, run.arrival_s)
    if run.swaps:
        swap_neighbours(rater, order, run.rank_level, run.weight)
    return n_lifted


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def next_end_s(rater: Rater, run: Run, order: cython.longlong[::1],
               by_flow: cython.bint) -> cython.double:
    """Compute the seconds until a flow ends, inf when nothing moves.

    :param by_flow: else a coflow's last flow counts alone, and all flows that
        end before make one event.
    """
    dt_s = INF
    for i in range(order.shape[0]):
        run.last_s[order[i]] = 0.0
        run.n_served[order[i]] = 0
    for i in range(rater.n_extra):
        f = rater.extra_flow[i]
        c = rater.owner[f]
        rate = rater.extra_rate[i] + rater.base[f] * rater.pace[c]
        ends_s = (rater.base[f] * rater.scale[c] / rate if rate > 0.0
                  else INF)
        run.ends_s[i] = ends_s
        if by_flow:
            dt_s = min(dt_s, ends_s)
        else:
            run.last_s[c] = max(run.last_s[c], ends_s)
            run.n_served[c] += 1
    for i in range(order.shape[0]):
        c = order[i]
        if by_flow or run.n_served[c] < run.left[c]:
            run.last_s[c] = (rater.scale[c] / rater.pace[c]
                             if rater.pace[c] > 0.0 else INF)
        dt_s = min(dt_s, run.last_s[c])
    return dt_s


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def next_turn_s(rater: Rater, run: Run, order: cython.longlong[::1]
                ) -> cython.double:
    """Compute the seconds until a queue or starvation changes the order."""
    dt_s = INF
    if run.by != BY_QUEUE and run.theta_s == INF:
        return dt_s
    for i in range(order.shape[0]):
        run.last_s[order[i]] = 0.0
    for i in range(rater.n_extra):
        run.last_s[rater.owner[rater.extra_flow[i]]] += rater.extra_rate[i]
    for i in range(order.shape[0]):
        c = order[i]
        queue = queue_of(run.sent_bits[c])
        if (run.by == BY_QUEUE and run.last_s[c] > 0.0
                and queue < N_QUEUES - 1):
            limit = QUEUE_BITS * QUEUE_GROWTH ** queue
            dt_s = min(dt_s, (limit - run.sent_bits[c]) / run.last_s[c])
        if run.theta_s == INF:
            continue
        if run.lifted_s[c] > run.now_s:
            dt_s = min(dt_s, run.lifted_s[c] - run.now_s)
        elif rater.pace[c] > 0.0 or run.last_s[c] > 0.0:
            dt_s = min(dt_s, run.quantum_s - run.credit_s[c])
        else:
            dt_s = min(dt_s, max(0.0, (
                max(run.served_s[c], run.arrival_s[c]) + run.theta_s
                - run.now_s)))
    return dt_s
