# SPDX-License-Identifier: Apache-2.0

"""Per-flow fair sharing of a whole trace by pairs of ports, compiled.

See :mod:`virtco_lab.sim.pairs`.
"""

from typing import Any

import cython

if cython.compiled:
    from cython.cimports.virtco.scheduling.rate_kernel import rise
    from cython.cimports.virtco.scheduling.rate_kernel import still_rising
    from cython.cimports.virtco.scheduling.rater_kernel import Rater
else:
    from virtco.scheduling.rate_kernel import rise
    from virtco.scheduling.rate_kernel import still_rising
    from virtco.scheduling.rater_kernel import Rater

#: See virtco.scheduling.rate_kernel and virtco.fluid.run_kernels.
FULL = cython.declare(cython.double, 1e-9)
SAME_TIME = cython.declare(cython.double, 1e-12)
INF = cython.declare(cython.double, float('inf'))


@cython.dataclasses.dataclass(repr=False, eq=False)
@cython.cclass
class Sharing:
    """K pairs of ports, sorted by source; see the fabric for C, F and P.

    :ivar of_flow: pair of each flow, shape (F,).
    :ivar src: egress port of each pair, shape (K,).
    :ivar dst: ingress port of each pair, shape (K,).
    :ivar weight: total weight of the pair's live flows, shape (K,).
    :ivar n_live: number of its live flows, shape (K,).
    :ivar served: bits per weight so far, shape (K,).
    :ivar due: ``served`` at which its next flow ends, shape (K,).
    :ivar rate: bps per weight, shape (K,).
    :ivar rising: whether its rate still rises, shape (K,).
    :ivar head: its live flow that ends first, -1 for none, shape (K,).
    :ivar next: flow after each flow, shape (F,).
    :ivar ends_at: ``served`` at which each flow ends, shape (F,).
    :ivar left: live flows of each coflow, shape (C,).
    :ivar end_s: end of its last flow, NaN before, shape (C,).
    :ivar at: live pairs of port p, ascending, are at[start[p]:end[p]].
    :ivar weight_at: weight of all live pairs of each port, shape (P,).
    :ivar live: all live pairs, ascending; n_pairs of them.
    """

    of_flow: cython.longlong[::1]
    src: cython.longlong[::1]
    dst: cython.longlong[::1]
    weight: cython.double[::1]
    n_live: cython.longlong[::1]
    served: cython.double[::1]
    due: cython.double[::1]
    rate: cython.double[::1]
    rising: cython.uchar[::1]
    head: cython.longlong[::1]
    next: cython.longlong[::1]
    ends_at: cython.double[::1]
    left: cython.longlong[::1]
    end_s: cython.double[::1]
    at: cython.longlong[::1]
    start: cython.longlong[::1]
    end: cython.longlong[::1]
    weight_at: cython.double[::1]
    live: cython.longlong[::1]
    n_pairs: cython.Py_ssize_t
    now_s: cython.double


def start(rater: Rater, sharing: Sharing, c: cython.Py_ssize_t) -> None:
    """Make the flows of coflow c live."""
    for f in range(rater.flow_ptr[c], rater.flow_ptr[c + 1]):
        k = sharing.of_flow[f]
        if sharing.n_live[k] == 0:
            sharing.served[k] = 0.0
            sharing.weight[k] = 0.0
        sharing.n_live[k] += 1
        sharing.weight[k] += rater.weight[f]
        ends_at = sharing.served[k] + rater.base[f] / rater.weight[f]
        sharing.ends_at[f] = ends_at
        g = sharing.head[k]
        if g < 0 or ends_at < sharing.ends_at[g]:
            sharing.next[f] = g
            sharing.head[k] = f
            continue
        while (sharing.next[g] >= 0
               and sharing.ends_at[sharing.next[g]] <= ends_at):
            g = sharing.next[g]
        sharing.next[f] = sharing.next[g]
        sharing.next[g] = f
    list_live(rater, sharing)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def list_live(rater: Rater, sharing: Sharing) -> cython.void:
    """List the live pairs again, all and by port."""
    for p in range(rater.cap.shape[0]):
        sharing.end[p] = sharing.start[p]
    sharing.n_pairs = 0
    for k in range(sharing.src.shape[0]):
        if sharing.n_live[k] > 0:
            sharing.live[sharing.n_pairs] = k
            sharing.n_pairs += 1
            sharing.due[k] = sharing.ends_at[sharing.head[k]]
            sharing.at[sharing.end[sharing.src[k]]] = k
            sharing.end[sharing.src[k]] += 1
            sharing.at[sharing.end[sharing.dst[k]]] = k
            sharing.end[sharing.dst[k]] += 1
    for p in range(rater.cap.shape[0]):
        relist(sharing, p)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def relist(sharing: Sharing, p: cython.Py_ssize_t) -> cython.void:
    """Drop pairs of port p that are not live, and weigh the others."""
    kept = sharing.start[p]
    weight = 0.0
    for i in range(sharing.start[p], sharing.end[p]):
        k = sharing.at[i]
        if sharing.n_live[k] > 0:
            weight += sharing.weight[k]
            sharing.at[kept] = k
            kept += 1
    sharing.end[p] = kept
    sharing.weight_at[p] = weight


def advance(rater: Rater, sharing: Sharing, now_s: cython.double,
            until_s: cython.double, max_events: cython.Py_ssize_t
            ) -> tuple[Any, ...]:
    """Run live flows until ``until_s``, their end, or max_events events.

    :returns: the time reached and the events used.
    """
    events: cython.Py_ssize_t = 0
    sharing.now_s = now_s
    with cython.nogil:
        while sharing.now_s < until_s and events < max_events:
            share(rater, sharing)
            dt_s = next_end_s(sharing)
            if sharing.now_s + dt_s > until_s:
                dt_s = until_s - sharing.now_s
                sharing.now_s = until_s
            elif dt_s == INF:
                break
            else:
                sharing.now_s += dt_s
            serve(rater, sharing, dt_s, sharing.now_s * SAME_TIME)
            events += 1
    return sharing.now_s, events


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def serve(rater: Rater, sharing: Sharing, dt_s: cython.double,
          slack_s: cython.double) -> cython.void:
    """Let all pairs send for dt_s."""
    kept = 0
    for i in range(sharing.n_pairs):
        k = sharing.live[i]
        sharing.served[k] += sharing.rate[k] * dt_s
        served = sharing.served[k] + sharing.rate[k] * slack_s
        if sharing.due[k] <= served:
            end_flows(rater, sharing, k, served)
            relist(sharing, sharing.src[k])
            relist(sharing, sharing.dst[k])
        if sharing.n_live[k] > 0:
            sharing.live[kept] = k
            kept += 1
    sharing.n_pairs = kept


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def next_end_s(sharing: Sharing) -> cython.double:
    """Compute the seconds until a flow ends, inf when nothing moves."""
    dt_s = INF
    for i in range(sharing.n_pairs):
        k = sharing.live[i]
        if sharing.rate[k] > 0.0:
            left = sharing.due[k] - sharing.served[k]
            dt_s = min(dt_s, max(0.0, left) / sharing.rate[k])
    return dt_s


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def share(rater: Rater, sharing: Sharing) -> cython.void:
    """Set max-min rates by progressive filling; see rate_kernel.fill_max_min.
    """
    n_open = begin(rater, sharing)
    level = 0.0
    while n_open > 0:
        step = rise(rater, n_open, INF)
        if step == INF:
            return
        level += step
        for i in range(n_open):
            p = rater.rising[i]
            if (rater.count[p] > 0
                    and rater.residual[p] <= FULL * rater.cap[p]):
                stop_at(rater, sharing, p, level)
        n_open = still_rising(rater, n_open)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def begin(rater: Rater, sharing: Sharing) -> cython.Py_ssize_t:
    """Let all live pairs rise; rater.rising lists those that they use.

    Returns their number.
    """
    n_open = 0
    for p in range(rater.cap.shape[0]):
        rater.residual[p] = rater.cap[p]
        rater.demand[p] = sharing.weight_at[p]
        rater.count[p] = sharing.end[p] - sharing.start[p]
        if rater.count[p] > 0:
            rater.rising[n_open] = p
            n_open += 1
    for i in range(sharing.n_pairs):
        sharing.rising[sharing.live[i]] = 1
    return n_open


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def stop_at(rater: Rater, sharing: Sharing, p: cython.Py_ssize_t,
            level: cython.double) -> cython.void:
    """Stop the rise of the pairs at port p, which is full."""
    for i in range(sharing.start[p], sharing.end[p]):
        k = sharing.at[i]
        if sharing.rising[k]:
            sharing.rising[k] = 0
            sharing.rate[k] = level
            q = sharing.src[k] + sharing.dst[k] - p
            rater.demand[q] -= sharing.weight[k]
            rater.count[q] -= 1
    rater.count[p] = 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def end_flows(rater: Rater, sharing: Sharing, k: cython.Py_ssize_t,
              served: cython.double) -> cython.void:
    """Take the flows of pair k out that end by ``served``."""
    f = sharing.head[k]
    while f >= 0 and sharing.ends_at[f] <= served:
        sharing.weight[k] -= rater.weight[f]
        sharing.n_live[k] -= 1
        c = rater.owner[f]
        sharing.left[c] -= 1
        if sharing.left[c] == 0:
            sharing.end_s[c] = sharing.now_s
        f = sharing.next[f]
    sharing.head[k] = f
    if f >= 0:
        sharing.due[k] = sharing.ends_at[f]
