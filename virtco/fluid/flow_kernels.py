# SPDX-License-Identifier: Apache-2.0

"""Flows with guarantees that borrow, or share as TCP does, compiled.

Between two events every rate is constant. Links are shared in one of three
ways:

* By rank: each flow first gets its guarantee, in proportion where not all of
  them fit. What is left goes to the flows of the lowest rank number, by
  weight, until each has its ceil or a full link, then to the next rank.
* By rank at senders, while receivers' links are TCP's, which shares them
  equally. A sender offers by rank, the receivers cut the offers, and the
  sender offers what that frees to the next ranks: a fixed point.
* Without borrowing: flows have their guarantees, and free ones share the rest
  as TCP does. Flows with equal windows and without losses have the rates
  ``window / (delay at the source's link + delay at the destination's)``,
  where a link's delay is such that it is full, or nothing. That is
  proportional fairness with the delays as prices (F. Kelly, A. Maulloo and
  D. Tan, *Rate control for communication networks*, 1998).
"""

from typing import Any

import cython
from cython.cimports.libc import math
import numpy as np

INF = cython.declare(cython.double, float('inf'))
BITS_PER_BYTE = cython.declare(cython.double, 8.0)
#: A flow with fewer bytes left has ended.
ENDED_BYTES = cython.declare(cython.double, 1.0)
#: Shortest time between two events.
LEAST_S = cython.declare(cython.double, 1e-6)
#: Less of a link's rate, or of a flow's ceil, is nothing.
NOTHING = cython.declare(cython.double, 1e-9)
#: How exactly receivers' links are full, as a share; the steps to that point,
#: and the steps after which levels move half of the way, not in circles.
CLOSE = cython.declare(cython.double, 1e-3)
MAX_STEPS = cython.declare(cython.int, 60)
DAMPED_STEPS = cython.declare(cython.int, 15)
#: The same for prices, and the smallest price.
TCP_CLOSE = cython.declare(cython.double, 1e-4)
TCP_MAX_STEPS = cython.declare(cython.int, 5000)
LEAST_PRICE = cython.declare(cython.double, 1e-8)
#: Free flows have at least this share of a link.
LEAST_SHARE = cython.declare(cython.double, 1e-3)

#: Python's own buffers give plain kernels Python's own numbers.
view: Any = memoryview


@cython.final
@cython.cclass
class Flows:
    """F flows of K classes, over two of P links each: sender's, receiver's.

    Where ``is_rated`` is False, users set ``guarantee``, ``ceil``, ``weight``,
    ``rank``, ``is_free`` and ``stuck`` before the next step.

    :ivar guarantee: bit/s, shape (F,), like ``ceil`` and ``weight``.
    :ivar rank: 0 borrows first, shape (F,).
    :ivar is_free: whether a flow is in no class, shape (F,).
    :ivar stuck: bytes of a flow that still wait where it has no class.
    :ivar is_live: whether a flow sends now, shape (F,), and ``n_live`` of
        each class, shape (K,).
    :ivar left: bytes, shape (F,), and ``sent``.
    :ivar in_class: bytes that each class has sent, shape (K,).
    :ivar end_s: end of each flow, shape (F,).
    :ivar n_left: number of flows that have not ended.
    """

    def __init__(self, cap: Any, src: Any, dst: Any, of: Any,
                 n_classes: cython.Py_ssize_t, size_bytes: Any, start_s: Any,
                 receiver: str = '') -> None:
        """Lay out flows.

        :param cap: rates of the links in bit/s, shape (P,).
        :param src: link of each flow's sender, shape (F,), and ``dst``.
        :param of: class of each flow, where it has one.
        :param receiver: how a receiver's link is shared: by 'order' of rank
            or, as 'tcp' shares it, equally; '' where nothing is borrowed.
        """
        self.in_order, self.over_tcp = receiver == 'order', receiver == 'tcp'
        self.n_flows, self.n_links = len(src), len(cap)
        self.cap, self.of = view(cap), view(of)
        self.src, self.dst = view(src), view(dst)
        self.start_s, self.end_s = view(start_s), view(np.array(start_s))
        self.left = view(np.array(size_bytes, float))
        (self.sent, self.stuck, self.rate, self.guarantee, self.ceil,
         self.weight, self.wish, self.pace) = map(
             view, np.zeros((8, self.n_flows)))
        self.in_class, self.n_live = map(view, np.zeros((2, n_classes)))
        self.rank = view(np.zeros(self.n_flows, np.int64))
        self.is_live, self.is_free = map(
            view, np.zeros((2, self.n_flows), np.uint8))
        self.load, self.room, self.n_to, self.n_bound = map(
            view, np.zeros((4, self.n_links)))
        self.price = view(np.ones(self.n_links))
        self.level = view(np.full(self.n_links, INF))
        self.n_left, self.is_rated = 0, False
        self.now_s = self.next_start_s = 0.0
        find_live(self)


def step(flows: Flows, until_s: cython.double) -> None:
    """Let time pass to ``until_s`` or to the next event of the flows.

    That is the start or the end of a flow, or that its class serves it.
    """
    if not flows.is_rated:
        if flows.in_order:
            share_by_rank(flows)
        elif flows.over_tcp:
            share_over_tcp(flows)
        else:
            share_as_tcp(flows)
        flows.is_rated = True
    dt_s = INF
    for f in range(flows.n_flows):
        if flows.rate[f] > 0.0:
            size = flows.stuck[f] or flows.left[f]
            dt_s = min(dt_s, size * BITS_PER_BYTE / flows.rate[f])
    until_s = min(until_s, flows.next_start_s,
                  flows.now_s + max(LEAST_S, dt_s))
    dt_s = until_s - flows.now_s
    flows.now_s = until_s
    for f in range(flows.n_flows):
        size = min(flows.left[f], flows.rate[f] / BITS_PER_BYTE * dt_s)
        flows.left[f] -= size
        flows.sent[f] += size
        if not flows.is_free[f]:
            flows.in_class[flows.of[f]] += size
        elif flows.stuck[f] > 0.0:
            flows.stuck[f] -= size
            if flows.stuck[f] < ENDED_BYTES:
                flows.stuck[f] = 0.0
                flows.is_rated = False
    find_live(flows)


def find_live(flows: Flows) -> cython.void:
    """Find the flows that send now, and when the next one starts."""
    flows.n_left = 0
    flows.next_start_s = INF
    clear(flows.n_live)
    for f in range(flows.n_flows):
        is_live = flows.left[f] >= ENDED_BYTES
        flows.n_left += is_live
        if flows.start_s[f] > flows.now_s:
            is_live = False
            flows.next_start_s = min(flows.next_start_s, flows.start_s[f])
        if is_live != flows.is_live[f]:
            flows.is_live[f] = is_live
            flows.end_s[f] = flows.now_s
            flows.is_rated = False
        flows.n_live[flows.of[f]] += is_live


def clear(column: cython.double[::1]) -> cython.void:
    """Set all numbers to 0."""
    for p in range(column.shape[0]):
        column[p] = 0.0


def add_up(flows: Flows) -> cython.void:
    """Add up the rates of the flows at each link."""
    clear(flows.load)
    for f in range(flows.n_flows):
        flows.load[flows.src[f]] += flows.rate[f]
        flows.load[flows.dst[f]] += flows.rate[f]


def share_by_rank(flows: Flows) -> cython.void:
    """Share links by guarantees, then by rank, under the receivers' levels."""
    last = 0
    for p in range(flows.n_links):
        flows.room[p] = flows.cap[p]
    for f in range(flows.n_flows):
        if flows.over_tcp:
            flows.room[flows.dst[f]] = INF
        flows.rate[f] = 0.0
        flows.wish[f] = flows.pace[f] = flows.is_live[f] * min(
            flows.guarantee[f], flows.ceil[f], flows.level[flows.dst[f]])
        last = max(last, flows.rank[f] * flows.is_live[f])
    fill(flows)
    for rank in range(last + 1):
        for f in range(flows.n_flows):
            flows.pace[f] = flows.weight[f] * (
                flows.is_live[f] and flows.rank[f] == rank)
            flows.wish[f] = min(flows.ceil[f], flows.level[
                flows.dst[f]]) - flows.rate[f]
        fill(flows)


def fill(flows: Flows) -> cython.void:
    """Raise rates in proportion to their paces (max-min).

    Each round stops a flow, at its wish, or those of a link that is full.
    """
    while True:
        dt = INF
        clear(flows.load)
        for f in range(flows.n_flows):
            p, q = flows.src[f], flows.dst[f]
            if (flows.wish[f] <= NOTHING * flows.ceil[f]
                    or flows.room[p] <= NOTHING * flows.cap[p]
                    or flows.room[q] <= NOTHING * flows.cap[q]):
                flows.pace[f] = 0.0
            if flows.pace[f] > 0.0:
                dt = min(dt, flows.wish[f] / flows.pace[f])
            flows.load[p] += flows.pace[f]
            flows.load[q] += flows.pace[f]
        if dt == INF:
            return
        for p in range(flows.n_links):
            if flows.load[p] > 0.0:
                dt = min(dt, flows.room[p] / flows.load[p])
        for p in range(flows.n_links):
            flows.room[p] -= dt * flows.load[p]
        for f in range(flows.n_flows):
            flows.wish[f] -= dt * flows.pace[f]
            flows.rate[f] += dt * flows.pace[f]


def share_over_tcp(flows: Flows) -> cython.void:
    """Share senders' links by rank and receivers' links equally.

    A level is the rate that no flow to a receiver exceeds. The search begins
    where the last one ended.
    """
    clear(flows.n_to)
    for f in range(flows.n_flows):
        flows.n_to[flows.dst[f]] += flows.is_live[f]
    for n in range(MAX_STEPS):
        for p in range(flows.n_links):
            flows.level[p] = min(flows.cap[p], max(
                flows.level[p], flows.cap[p] / max(1.0, flows.n_to[p])))
        share_by_rank(flows)
        add_up(flows)
        clear(flows.n_bound)
        for f in range(flows.n_flows):
            flows.n_bound[flows.dst[f]] += (
                flows.rate[f] >= (1.0 - CLOSE) * flows.level[flows.dst[f]])
        n_off = 0
        for p in range(flows.n_links):
            cap, level = flows.cap[p], flows.level[p]
            if flows.load[p] > (1.0 + CLOSE) * cap:
                wanted = level_at(flows, p)
            elif flows.load[p] < (1.0 - CLOSE) * cap and level < cap:
                wanted = (level + (cap - flows.load[p]) / flows.n_bound[p]
                          if flows.n_bound[p] > 0.0 else INF)
            else:
                continue
            n_off += 1
            flows.level[p] = (
                (wanted + level) / 2.0 if n >= DAMPED_STEPS else wanted)
        if n_off == 0:
            break
    # Where the search ended early, too, no link carries more than it can.
    for f in range(flows.n_flows):
        q = flows.dst[f]
        flows.rate[f] *= min(1.0, flows.cap[q] / max(1.0, flows.load[q]))


def level_at(flows: Flows, p: cython.Py_ssize_t) -> cython.double:
    """Compute the level that cuts the rates at a receiver to its link."""
    level = -1.0
    found = 0.0
    while found > level:
        level, found, n_cut = found, flows.cap[p], 0
        for f in range(flows.n_flows):
            if flows.dst[f] == p:
                if flows.rate[f] <= level:
                    found -= flows.rate[f]
                else:
                    n_cut += 1
        found /= n_cut
    return level


def share_as_tcp(flows: Flows) -> cython.void:
    """Give each flow its guarantee, and free ones TCP's shares of the rest."""
    n_free = unit = most = 0.0
    for f in range(flows.n_flows):
        flows.rate[f] = flows.is_live[f] * flows.guarantee[f]
        flows.pace[f] = flows.is_live[f] * flows.is_free[f]
        n_free += flows.pace[f]
    add_up(flows)
    if n_free == 0.0:
        return
    # In a unit in which a price is of the order of one.
    for p in range(flows.n_links):
        flows.room[p] = max(flows.cap[p] - flows.load[p],
                            LEAST_SHARE * flows.cap[p])
        unit = max(unit, flows.room[p])
    for _ in range(TCP_MAX_STEPS):
        for f in range(flows.n_flows):
            flows.rate[f] = flows.pace[f] / (
                flows.price[flows.src[f]] + flows.price[flows.dst[f]])
        add_up(flows)
        most = worth = dearest = 0.0
        for p in range(flows.n_links):
            flows.load[p] *= unit / flows.room[p]
            most = max(most, flows.load[p])
            worth = max(worth, flows.price[p] * abs(1.0 - flows.load[p]))
            dearest = max(dearest, flows.price[p])
        if most <= 1.0 + TCP_CLOSE and worth <= TCP_CLOSE * dearest:
            break
        # Half the way on each of a flow's two links.
        for p in range(flows.n_links):
            flows.price[p] = max(
                LEAST_PRICE, flows.price[p] * math.sqrt(flows.load[p]))
    for f in range(flows.n_flows):
        flows.rate[f] *= unit / max(1.0, most)
        if flows.pace[f] == 0.0:
            flows.rate[f] = flows.is_live[f] * flows.guarantee[f]
