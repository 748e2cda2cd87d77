# SPDX-License-Identifier: Apache-2.0

"""Per-flow fair sharing of a whole trace by pairs of ports, compiled.

See :mod:`virtco_lab.sim.pairs`.
"""

from typing import Any

import cython
import numpy as np

#: See virtco.scheduling.kernels and virtco.fluid.event_kernels.
FULL = cython.declare(cython.double, 1e-9)
SAME_TIME = cython.declare(cython.double, 1e-12)
INF = cython.declare(cython.double, float('inf'))


#: Python's own buffers give plain kernels Python's own numbers.
view: Any = memoryview


@cython.final
@cython.cclass
class Sharing:
    """The arrays of a fabric and its pairs, results and scratch.

    :ivar at: live pairs of port p, ascending, are at[start[p]:end[p]].
    :ivar weight_at: weight of all live pairs of each port, shape (P,).
    :ivar live: all live pairs, ascending; n_pairs of them.
    :ivar due: ``served`` at which each pair's next flow ends, shape (K,).
    :ivar end_s: when each coflow's last flow ended, NaN before, shape (C,).
    """

    cap: cython.double[::1]
    flow_ptr: cython.longlong[::1]
    owner: cython.int[::1]
    base: cython.double[::1]
    flow_weight: cython.double[::1]
    of_flow: cython.longlong[::1]
    src: cython.longlong[::1]
    dst: cython.longlong[::1]
    weight: cython.double[::1]
    n_live: cython.longlong[::1]
    served: cython.double[::1]
    head: cython.longlong[::1]
    next: cython.longlong[::1]
    ends_at: cython.double[::1]
    rate: cython.double[::1]
    left: cython.longlong[::1]
    end_s: cython.double[::1]
    residual: cython.double[::1]
    demand: cython.double[::1]
    count: cython.longlong[::1]
    rising: cython.uchar[::1]
    start: cython.longlong[::1]
    end: cython.longlong[::1]
    weight_at: cython.double[::1]
    at: cython.longlong[::1]
    live: cython.longlong[::1]
    n_pairs: cython.Py_ssize_t
    due: cython.double[::1]
    ports: cython.longlong[::1]
    now_s: cython.double

    def __init__(self, fabric: Any, pairs: Any, end_s: Any) -> None:
        """Take the arrays.

        :param fabric: a :class:`virtco.scheduling.fabric.Fabric`.
        :param pairs: a :class:`virtco_lab.sim.pairs.Pairs`.
        """
        self.cap, self.flow_ptr = view(fabric.cap), view(fabric.flow_ptr)
        self.owner, self.base = view(fabric.owner), view(fabric.base)
        self.flow_weight = view(fabric.weight)
        self.of_flow = view(pairs.of_flow)
        self.src, self.dst = view(pairs.src), view(pairs.dst)
        self.weight, self.n_live = view(pairs.weight), view(pairs.n_live)
        self.served, self.head = view(pairs.served), view(pairs.head)
        self.next, self.ends_at = view(pairs.next), view(pairs.ends_at)
        self.rate, self.left = view(pairs.rate), view(pairs.left)
        self.end_s = view(end_s)
        n_ports, n_pairs = len(fabric.cap), len(pairs.src)
        self.start = view(np.searchsorted(
            np.sort(np.concatenate((pairs.src, pairs.dst))),
            np.arange(n_ports)))
        self.end = view(np.zeros(n_ports, np.int64))
        self.weight_at = view(np.zeros(n_ports))
        self.at = view(np.zeros(2 * n_pairs, np.int64))
        self.live = view(np.zeros(n_pairs, np.int64))
        self.n_pairs = 0
        self.due = view(np.zeros(n_pairs))
        self.residual = view(np.zeros(n_ports))
        self.demand = view(np.zeros(n_ports))
        self.count = view(np.zeros(n_ports, np.int64))
        self.ports = view(np.zeros(n_ports, np.int64))
        self.rising = view(np.zeros(n_pairs, np.uint8))
        self.now_s = 0.0


@cython.ccall
@cython.nogil
@cython.exceptval(check=False)
def start(sharing: Sharing, c: cython.Py_ssize_t) -> cython.void:
    """Make the flows of coflow c live."""
    for f in range(sharing.flow_ptr[c], sharing.flow_ptr[c + 1]):
        k = sharing.of_flow[f]
        if sharing.n_live[k] == 0:
            sharing.served[k] = 0.0
            sharing.weight[k] = 0.0
        sharing.n_live[k] += 1
        sharing.weight[k] += sharing.flow_weight[f]
        ends_at = (sharing.served[k]
                   + sharing.base[f] / sharing.flow_weight[f])
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
    list_live(sharing)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def list_live(sharing: Sharing) -> cython.void:
    """List the live pairs again, all and by port."""
    for p in range(sharing.cap.shape[0]):
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
    for p in range(sharing.cap.shape[0]):
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


@cython.ccall
def advance(sharing: Sharing, now_s: cython.double, until_s: cython.double,
            max_events: cython.Py_ssize_t) -> tuple[Any, ...]:
    """Run live flows until ``until_s``, their end, or max_events events.

    :returns: the time reached and the events used.
    """
    events: cython.Py_ssize_t
    sharing.now_s = now_s
    with cython.nogil:
        events = pass_time(sharing, until_s, max_events)
    return sharing.now_s, events


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pass_time(sharing: Sharing, until_s: cython.double,
              max_events: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Run events as :func:`advance` does; change sharing.now_s."""
    events = 0
    while sharing.now_s < until_s and events < max_events:
        share(sharing)
        dt_s = next_end_s(sharing)
        if sharing.now_s + dt_s > until_s:
            dt_s = until_s - sharing.now_s
            sharing.now_s = until_s
        elif dt_s == INF:
            break
        else:
            sharing.now_s += dt_s
        slack_s = sharing.now_s * SAME_TIME
        serve(sharing, dt_s, slack_s)
        events += 1
    return events


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def serve(sharing: Sharing, dt_s: cython.double, slack_s: cython.double
          ) -> cython.void:
    """Let all pairs send for dt_s."""
    kept = 0
    for i in range(sharing.n_pairs):
        k = sharing.live[i]
        sharing.served[k] += sharing.rate[k] * dt_s
        served = sharing.served[k] + sharing.rate[k] * slack_s
        if sharing.due[k] <= served:
            end_flows(sharing, k, served)
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
def share(sharing: Sharing) -> cython.void:
    """Set max-min rates by progressive filling; see rate_kernel.fill_max_min.
    """
    n_open = begin(sharing)
    level = 0.0
    while n_open > 0:
        step = INF
        for i in range(n_open):
            p = sharing.ports[i]
            # Rounding may leave a demand of 0 or less.
            if sharing.demand[p] > 0.0:
                step = min(step, sharing.residual[p] / sharing.demand[p])
        if step == INF:
            return
        level += step
        for i in range(n_open):
            p = sharing.ports[i]
            sharing.residual[p] = max(
                0.0, sharing.residual[p] - step * sharing.demand[p])
        for i in range(n_open):
            p = sharing.ports[i]
            if (sharing.count[p] > 0
                    and sharing.residual[p] <= FULL * sharing.cap[p]):
                stop_at(sharing, p, level)
        kept = 0
        for i in range(n_open):
            if sharing.count[sharing.ports[i]] > 0:
                sharing.ports[kept] = sharing.ports[i]
                kept += 1
        n_open = kept


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def begin(sharing: Sharing) -> cython.Py_ssize_t:
    """Let all live pairs rise; sharing.ports lists those that they use.

    Returns their number.
    """
    n_open = 0
    for p in range(sharing.cap.shape[0]):
        sharing.residual[p] = sharing.cap[p]
        sharing.demand[p] = sharing.weight_at[p]
        sharing.count[p] = sharing.end[p] - sharing.start[p]
        if sharing.count[p] > 0:
            sharing.ports[n_open] = p
            n_open += 1
    for i in range(sharing.n_pairs):
        sharing.rising[sharing.live[i]] = 1
    return n_open


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def stop_at(sharing: Sharing, p: cython.Py_ssize_t, level: cython.double
            ) -> cython.void:
    """Stop the rise of the pairs at port p, which is full."""
    for i in range(sharing.start[p], sharing.end[p]):
        k = sharing.at[i]
        if sharing.rising[k]:
            sharing.rising[k] = 0
            sharing.rate[k] = level
            q = sharing.src[k] + sharing.dst[k] - p
            sharing.demand[q] -= sharing.weight[k]
            sharing.count[q] -= 1
    sharing.count[p] = 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def end_flows(sharing: Sharing, k: cython.Py_ssize_t, served: cython.double
              ) -> cython.void:
    """Take the flows of pair k out that end by ``served``."""
    f = sharing.head[k]
    while f >= 0 and sharing.ends_at[f] <= served:
        sharing.weight[k] -= sharing.flow_weight[f]
        sharing.n_live[k] -= 1
        c = sharing.owner[f]
        sharing.left[c] -= 1
        if sharing.left[c] == 0:
            sharing.end_s[c] = sharing.now_s
        f = sharing.next[f]
    sharing.head[k] = f
    if f >= 0:
        sharing.due[k] = sharing.ends_at[f]
