# SPDX-License-Identifier: Apache-2.0

"""State of a run of simulated coflows, compiled.

See :mod:`virtco.fluid.event_kernels` for what the events are.
"""

from typing import Any

import cython
import numpy as np

from virtco.scheduling import policies

if cython.compiled:
    from cython.cimports.virtco.scheduling.order_kernel import bottleneck
    from cython.cimports.virtco.scheduling.rater_kernel import end_in_row
    from cython.cimports.virtco.scheduling.rater_kernel import enter_port
    from cython.cimports.virtco.scheduling.rater_kernel import leave_port
    from cython.cimports.virtco.scheduling.rater_kernel import Rater
    from cython.cimports.virtco.scheduling.rater_kernel import start_in_row
else:
    from virtco.scheduling.order_kernel import bottleneck
    from virtco.scheduling.rater_kernel import end_in_row
    from virtco.scheduling.rater_kernel import enter_port
    from virtco.scheduling.rater_kernel import leave_port
    from virtco.scheduling.rater_kernel import Rater
    from virtco.scheduling.rater_kernel import start_in_row

INF = cython.declare(cython.double, float('inf'))
NAN = cython.declare(cython.double, float('nan'))
#: Events closer together than this fraction of the clock are one.
SAME_TIME = cython.declare(cython.double, 1e-12)
#: Values of Run.touched: served by back-fill, also at its bottleneck.
TOUCHED = cython.declare(cython.int, 1)
BOUND_TOUCHED = cython.declare(cython.int, 2)
#: A port this near to a coflow's bottleneck may be it.
NEARLY = cython.declare(cython.double, 1.0 - 1e-9)
BY_QUEUE = cython.declare(cython.int, policies.BY_QUEUE)
SHARE_FLOWS = cython.declare(cython.int, policies.SHARE_FLOWS)
SHARE_IN_ORDER = cython.declare(cython.int, policies.SHARE_IN_ORDER)

#: Python's own buffers give plain kernels Python's own numbers.
view: Any = memoryview


@cython.final
@cython.cclass
class Run:
    """A policy as numbers, the state of the run, and scratch.

    The arrays are shared with those given; shapes (C,).
    """

    def __init__(self, rater: Rater, state: Any, rules: Any) -> None:
        """Take the arrays of a simulation.

        :param state: a :class:`virtco.fluid.engine.State`.
        :param rules: a :class:`virtco.fluid.engine.Rules`.
        """
        (self.by, self.sharing, self.backfill, self.each_flow, self.swaps,
         self.trickle, self.theta_s, self.quantum_s) = rules
        (self.bound, self.left, self.whole_s, self.arrival_s, self.served_s,
         self.credit_s, self.lifted_s, self.end_s, self.sent_bits, self.level,
         self.weight, self.intensity) = map(view, state)
        n_coflows = len(state.left)
        self.alone_s, self.key, self.last_s = map(
            view, np.zeros((3, n_coflows)))
        self.rank_level, self.n_served = map(
            view, np.zeros((2, n_coflows), np.int64))
        self.ends_s = view(np.zeros(rater.extra_flow.shape[0]))
        self.touched = view(np.zeros(n_coflows, np.uint8))
        self.now_s = 0.0
        self.n_live = 0


def release(rater: Rater, run: Run, c: cython.Py_ssize_t,
            base: cython.double[::1], load: cython.double[::1],
            alive: cython.int[::1]) -> None:
    """Give a coflow that has ended all of its flows back.

    :param base: ``base`` of all flows at the beginning, shape (F,).
    :param load: load of all entries at the beginning, shape (E,), and
        ``alive``.
    """
    for f in range(rater.flow_ptr[c], rater.flow_ptr[c + 1]):
        rater.base[f] = base[f]
        rater.skip[f] = f
        start_in_row(rater, f)
    for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
        rater.load[e] = load[e]
        rater.alive[e] = alive[e]
        enter_port(rater, c, rater.port[e])
    rater.scale[c] = 1.0
    rater.pace[c] = 0.0
    run.left[c] = rater.flow_ptr[c + 1] - rater.flow_ptr[c]
    run.end_s[c] = NAN
    run.sent_bits[c] = run.credit_s[c] = 0.0
    run.lifted_s[c] = -INF
    run.bound[c] = bottleneck(rater, c)


def move(rater: Rater, run: Run, order: cython.longlong[::1],
         dt_s: cython.double) -> cython.void:
    """Let dt_s pass up to run.now_s; flows that end are taken out."""
    slack_s = dt_s + run.now_s * SAME_TIME
    # Sharing between flows goes without loads.
    loads: cython.bint = (run.sharing != SHARE_FLOWS
                          and run.sharing != SHARE_IN_ORDER)
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
            run.bound[c] = bottleneck(rater, c)
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
        if run.touched[c] == 0:
            run.touched[c] = TOUCHED
        if run.by == BY_QUEUE:
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
            if rater.has_up:
                for k in range(rater.up_ptr[f], rater.up_ptr[f + 1]):
                    unload(rater, run, c, rater.up[k], less)
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
    if run.touched[c] != BOUND_TOUCHED and (
            rater.load[e] >= run.bound[c] * rater.cap[rater.port[e]] * NEARLY):
        run.touched[c] = BOUND_TOUCHED
    rater.load[e] -= bits


def end_flow(rater: Rater, run: Run, c: cython.Py_ssize_t,
             f: cython.Py_ssize_t) -> cython.void:
    """Take flow f, which has ended, out of the state of its coflow c."""
    e = rater.src[f]
    end_at(rater, run, c, e, rater.base[f])
    end_at(rater, run, c, rater.dst[f], rater.base[f])
    if rater.has_up:
        for k in range(rater.up_ptr[f], rater.up_ptr[f + 1]):
            end_at(rater, run, c, rater.up[k], rater.base[f])
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


def end_coflow(rater: Rater, run: Run, c: cython.Py_ssize_t) -> cython.void:
    """Clear the flows and loads of coflow c; its end is ``run.now_s``."""
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
