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

"""The event loop of the fluid simulator, compiled.

Between two events every rate is constant. An event is the end of a flow or of
a coflow, a coflow that crosses into another queue, one that starts to starve,
or the time at which the caller wants control back. At each event the same
kernels as in production order the coflows and rate them anew.
"""

from typing import Any

import cython
import numpy as np

from virtco.scheduling import policies
if cython.compiled:
    from cython.cimports.virtco.scheduling.kernels import allocate
    from cython.cimports.virtco.scheduling.kernels import end_in_row
    from cython.cimports.virtco.scheduling.kernels import leave_port
    from cython.cimports.virtco.scheduling.kernels import Rater
    from cython.cimports.virtco.scheduling.kernels import sort
    from cython.cimports.virtco.scheduling.kernels import swap_neighbours
else:
    from virtco.scheduling.kernels import allocate
    from virtco.scheduling.kernels import end_in_row
    from virtco.scheduling.kernels import leave_port
    from virtco.scheduling.kernels import Rater
    from virtco.scheduling.kernels import sort
    from virtco.scheduling.kernels import swap_neighbours

#: Events closer together than this fraction of the clock are one.
SAME_TIME = cython.declare(cython.double, 1e-12)
#: First queue's limit, growth and number of the queues of Aalo (NSDI-style
#: discretised least attained service): 10 MB, times ten, ten queues.
QUEUE_BITS = cython.declare(cython.double, 8e7)
QUEUE_GROWTH = cython.declare(cython.double, 10.0)
N_QUEUES = cython.declare(cython.int, 10)

INF = cython.declare(cython.double, float('inf'))
BY_REMAINING = cython.declare(cython.int, policies.BY_REMAINING)
BY_WHOLE = cython.declare(cython.int, policies.BY_WHOLE)
BY_QUEUE = cython.declare(cython.int, policies.BY_QUEUE)
#: Values of Run.touched: served by back-fill, also at its bottleneck.
TOUCHED = cython.declare(cython.int, 1)
BOUND_TOUCHED = cython.declare(cython.int, 2)
#: A port this near to a coflow's bottleneck may be it.
NEARLY = cython.declare(cython.double, 1.0 - 1e-9)
SHARE_MADD = cython.declare(cython.int, policies.SHARE_MADD)
SHARE_COFLOWS = cython.declare(cython.int, policies.SHARE_COFLOWS)


#: Python's own buffers give plain kernels Python's own numbers.
view: Any = memoryview


@cython.final
@cython.cclass
class Run:
    """A policy as numbers, what changes while coflows run, and scratch.

    The arrays are shared with those given; shapes (C,).
    """

    def __init__(self, rater: Rater, state: Any, rules: Any) -> None:
        """Take the arrays of a simulation.

        :param state: a :class:`virtco.lab.sim.engine.State`.
        :param rules: a :class:`virtco.lab.sim.engine.Rules`.
        """
        self.by, self.sharing = rules.key, rules.sharing
        self.backfill, self.each_flow = rules.backfill, rules.each_flow
        self.swaps = rules.swaps
        self.trickle, self.theta_s = rules.trickle, rules.theta_s
        self.quantum_s = rules.quantum_s
        self.bound, self.left = view(state.bound), view(state.left)
        self.whole_s = view(state.whole_s)
        self.arrival_s, self.end_s = view(state.arrival_s), view(state.end_s)
        self.served_s, self.credit_s = (
            view(state.served_s), view(state.credit_s))
        self.lifted_s, self.level = view(state.lifted_s), view(state.level)
        self.sent_bits, self.weight = view(state.sent_bits), view(state.weight)
        n_coflows = len(state.left)
        self.alone_s = view(np.zeros(n_coflows))
        self.key = view(np.zeros(n_coflows))
        self.rank_level = view(np.zeros(n_coflows, np.int64))
        self.last_s = view(np.zeros(n_coflows))
        self.ends_s = view(np.zeros(rater.extra_flow.shape[0]))
        self.n_served = view(np.zeros(n_coflows, np.int64))
        self.touched = view(np.zeros(n_coflows, np.uint8))
        self.now_s = 0.0
        self.n_live = 0


@cython.ccall
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
    events: cython.Py_ssize_t
    run.now_s, run.n_live = now_s, n_live
    with cython.nogil:
        events = pass_time(rater, run, live, until_s, max_events, stop_at_end)
    return run.now_s, run.n_live, events


@cython.ccall
@cython.nogil
@cython.exceptval(check=False)
def rerate(rater: Rater, run: Run, order: cython.longlong[::1],
           now_s: cython.double) -> cython.void:
    """Order coflows, in place, and rate them anew."""
    n_lifted = put_in_order(rater, run, order, now_s)
    allocate(rater, order, n_lifted, run.sharing, run.backfill, 0.0,
             run.trickle, run.weight, run.alone_s)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pass_time(rater: Rater, run: Run, live: cython.longlong[::1],
              until_s: cython.double, max_events: cython.Py_ssize_t,
              stop_at_end: cython.bint) -> cython.Py_ssize_t:
    """See :func:`advance`; changes run.now_s and run.n_live."""
    events = 0
    rate_anew: cython.bint = True
    is_turn: cython.bint
    ended: cython.bint
    # A turn depends on what each flow has sent.
    by_flow: cython.bint = (run.each_flow or run.by == BY_QUEUE
                            or run.theta_s < INF)
    while run.n_live > 0 and run.now_s < until_s:
        order: cython.longlong[::1] = live[:run.n_live]
        if rate_anew:
            if events >= max_events:
                break
            rerate(rater, run, order, run.now_s)
        turn_s = next_turn_s(rater, run, order)
        dt_s = (next_flow_end_s(rater, run, order) if by_flow
                else next_coflow_end_s(rater, run, order))
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
    return events


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def queue_of(sent_bits: cython.double) -> cython.int:
    """Queue by attained service, and 0 is served first."""
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
    for i in range(order.shape[0]):
        c = order[i]
        run.alone_s[c] = run.bound[c] * rater.scale[c]
        run.rank_level[c] = run.level[c]
        if run.by == BY_REMAINING:
            run.key[c] = run.alone_s[c]
        elif run.by == BY_WHOLE:
            run.key[c] = run.whole_s[c]
        else:
            run.key[c] = run.arrival_s[c]
            if run.by == BY_QUEUE:
                run.rank_level[c] = queue_of(run.sent_bits[c])
        waited_s = now_s - max(run.served_s[c], run.arrival_s[c])
        if waited_s >= run.theta_s * (1.0 - 1e-9):
            run.lifted_s[c] = now_s + run.quantum_s
        if run.lifted_s[c] > now_s:
            n_lifted += 1
            run.rank_level[c] = -1
            run.key[c] = run.served_s[c]
    sort(order, order.shape[0], run.rank_level, run.key)
    if run.swaps:
        swap_neighbours(rater, order, run.rank_level)
    return n_lifted


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def next_flow_end_s(rater: Rater, run: Run, order: cython.longlong[::1]
                    ) -> cython.double:
    """Seconds until a flow ends, inf when nothing moves."""
    dt_s = INF
    for i in range(order.shape[0]):
        c = order[i]
        if rater.pace[c] > 0.0:
            dt_s = min(dt_s, rater.scale[c] / rater.pace[c])
    for i in range(rater.n_extra):
        run.ends_s[i] = flow_end_s(rater, i)
        dt_s = min(dt_s, run.ends_s[i])
    return dt_s


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def next_coflow_end_s(rater: Rater, run: Run, order: cython.longlong[::1]
                      ) -> cython.double:
    """Seconds until a coflow's last flow ends at rates that do not change.

    Where only that matters, all flows that end before make one event.
    """
    dt_s = INF
    for i in range(order.shape[0]):
        run.last_s[order[i]] = 0.0
        run.n_served[order[i]] = 0
    for i in range(rater.n_extra):
        c = rater.owner[rater.extra_flow[i]]
        run.ends_s[i] = flow_end_s(rater, i)
        run.last_s[c] = max(run.last_s[c], run.ends_s[i])
        run.n_served[c] += 1
    for i in range(order.shape[0]):
        c = order[i]
        if run.n_served[c] < run.left[c]:
            run.last_s[c] = (rater.scale[c] / rater.pace[c]
                             if rater.pace[c] > 0.0 else INF)
        dt_s = min(dt_s, run.last_s[c])
    return dt_s


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def flow_end_s(rater: Rater, i: cython.Py_ssize_t) -> cython.double:
    """Seconds until flow i of the extra list ends."""
    f = rater.extra_flow[i]
    c = rater.owner[f]
    rate = rater.extra_rate[i] + rater.base[f] * rater.pace[c]
    return rater.base[f] * rater.scale[c] / rate if rate > 0.0 else INF


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def next_turn_s(rater: Rater, run: Run, order: cython.longlong[::1]
                ) -> cython.double:
    """Seconds until a queue or starvation changes the order."""
    dt_s = INF
    if run.by == BY_QUEUE:
        dt_s = next_queue_s(rater, run, order)
    if run.theta_s < INF:
        for i in range(order.shape[0]):
            run.touched[order[i]] = 0
        for i in range(rater.n_extra):
            if rater.extra_rate[i] > 0.0:
                run.touched[rater.owner[rater.extra_flow[i]]] = 1
        for i in range(order.shape[0]):
            c = order[i]
            if run.lifted_s[c] > run.now_s:
                dt_s = min(dt_s, run.lifted_s[c] - run.now_s)
            elif rater.pace[c] > 0.0 or run.touched[c]:
                dt_s = min(dt_s, run.quantum_s - run.credit_s[c])
            else:
                dt_s = min(dt_s, max(0.0, (
                    max(run.served_s[c], run.arrival_s[c]) + run.theta_s
                    - run.now_s)))
    return dt_s


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def next_queue_s(rater: Rater, run: Run, order: cython.longlong[::1]
                 ) -> cython.double:
    """Seconds until a coflow has sent so much that its queue changes."""
    dt_s = INF
    for i in range(order.shape[0]):
        run.last_s[order[i]] = 0.0
    for i in range(rater.n_extra):
        run.last_s[rater.owner[rater.extra_flow[i]]] += rater.extra_rate[i]
    for i in range(order.shape[0]):
        c = order[i]
        queue = queue_of(run.sent_bits[c])
        if run.last_s[c] > 0.0 and queue < N_QUEUES - 1:
            limit = QUEUE_BITS * QUEUE_GROWTH ** queue
            dt_s = min(dt_s, (limit - run.sent_bits[c]) / run.last_s[c])
    return dt_s


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def move(rater: Rater, run: Run, order: cython.longlong[::1],
         dt_s: cython.double) -> cython.void:
    """Let dt_s pass up to run.now_s; flows that end are taken out."""
    slack_s = dt_s + run.now_s * SAME_TIME
    # Loads matter to MADD only; sharing between flows goes without them.
    loads: cython.bint = (run.sharing == SHARE_MADD
                          or run.sharing == SHARE_COFLOWS)
    for i in range(order.shape[0]):
        run.touched[order[i]] = 0
    move_extra(rater, run, dt_s, slack_s, loads)
    for i in range(order.shape[0]):
        c = order[i]
        if rater.pace[c] > 0.0 or run.touched[c]:
            run.credit_s[c] += dt_s
            # Scraps between two others are no progress to speak of.
            if run.credit_s[c] >= run.quantum_s * (1.0 - 1e-9):
                run.served_s[c] = run.now_s
                run.credit_s[c] = 0.0
        if rater.pace[c] > 0.0:
            ends_s = rater.scale[c] / rater.pace[c]
            rater.scale[c] -= rater.pace[c] * dt_s
            if ends_s <= slack_s:
                end_coflow(rater, run, c)
        if loads and run.touched[c] == BOUND_TOUCHED and run.left[c] > 0:
            rebound(rater, run, c)
        if run.left[c] == 0 and run.end_s[c] != run.end_s[c]:
            end_coflow(rater, run, c)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def move_extra(rater: Rater, run: Run, dt_s: cython.double,
               slack_s: cython.double, loads: cython.bint) -> cython.void:
    """Let the flows of the extra list send for dt_s; marks their coflows."""
    kept = 0
    for i in range(rater.n_extra):
        f = rater.extra_flow[i]
        rate = rater.extra_rate[i]
        c = rater.owner[f]
        run.touched[c] = max(run.touched[c], TOUCHED)
        run.sent_bits[c] += rate * dt_s
        after = rater.scale[c] - rater.pace[c] * dt_s
        if run.ends_s[i] <= slack_s or after <= 0.0:
            end_flow(rater, run, c, f)
            continue
        less = rate * dt_s / after
        rater.base[f] -= less
        if loads:
            unload(rater, run, c, rater.src[f], less)
            unload(rater, run, c, rater.dst[f], less)
        rater.extra_flow[kept] = f
        # Its part of the pace shrinks with its base; its rate does not.
        rater.extra_rate[kept] = rate + less * rater.pace[c]
        kept += 1
    rater.n_extra = kept


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def unload(rater: Rater, run: Run, c: cython.Py_ssize_t,
           e: cython.Py_ssize_t, bits: cython.double) -> cython.void:
    """Take ``bits`` from entry e of coflow c."""
    if rater.load[e] >= run.bound[c] * rater.cap[rater.port[e]] * NEARLY:
        run.touched[c] = BOUND_TOUCHED
    rater.load[e] -= bits


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def end_flow(rater: Rater, run: Run, c: cython.Py_ssize_t,
             f: cython.Py_ssize_t) -> cython.void:
    e = rater.src[f]
    end_at(rater, run, c, e, rater.base[f])
    end_at(rater, run, c, rater.dst[f], rater.base[f])
    rater.base[f] = 0.0
    rater.skip[f] = f + 1
    end_in_row(rater, f)
    run.left[c] -= 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def end_at(rater: Rater, run: Run, c: cython.Py_ssize_t,
           e: cython.Py_ssize_t, base: cython.double) -> cython.void:
    """Take one flow out of entry e of coflow c."""
    unload(rater, run, c, e, base)
    rater.alive[e] -= 1
    if rater.alive[e] == 0:
        rater.load[e] = 0.0
        leave_port(rater, c, rater.port[e])
    elif rater.load[e] < 0.0:
        rater.load[e] = 0.0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def end_coflow(rater: Rater, run: Run, c: cython.Py_ssize_t) -> cython.void:
    for f in range(rater.flow_ptr[c], rater.flow_ptr[c + 1]):
        rater.base[f] = 0.0
        rater.skip[f] = f + 1
    for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
        rater.load[e] = 0.0
        rater.alive[e] = 0
        leave_port(rater, c, rater.port[e])
    run.left[c] = 0
    run.bound[c] = 0.0
    rater.pace[c] = 0.0
    rater.scale[c] = 0.0
    run.end_s[c] = run.now_s


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def rebound(rater: Rater, run: Run, c: cython.Py_ssize_t) -> cython.void:
    """Recompute coflow c's bottleneck time at scale 1."""
    longest = 0.0
    for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
        if rater.load[e] > 0.0:
            cap = rater.cap[rater.port[e]]
            longest = max(longest, rater.load[e] / cap if cap > 0.0 else INF)
    run.bound[c] = longest
