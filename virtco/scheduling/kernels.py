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

"""The compiled core: who gets which rate. Arrays in, rates out.

Rates come in two parts. ``pace[c]`` is the rate at which coflow c's scale
shrinks, so each of its flows sends ``base * pace``: MADD, all flows end
together. ``extra`` is a list of flows with a rate on top of it: back-fill
and per-flow sharing. ``residual`` is what is left of every port.
"""

import numpy as np

from virtco import jit
from virtco.scheduling import fabric as fabric_model

#: A port with less than this fraction of its rate left counts as full.
FULL = 1e-9


@jit.compiled
def bottlenecks(fabric: fabric_model.Fabric, out: np.ndarray) -> None:
    """Write each coflow's remaining time alone on the fabric, seconds.

    t of VirtCO Eq. (3) at a given placement: the most loaded port decides.
    """
    for c in range(len(out)):
        longest = 0.0
        for e in range(fabric.entry_ptr[c], fabric.entry_ptr[c + 1]):
            load = fabric.load[e]
            if load > 0.0:
                cap = fabric.cap[fabric.port[e]]
                time_s = load / cap if cap > 0.0 else np.inf
                longest = max(longest, time_s)
        out[c] = longest * fabric.scale[c] if longest > 0.0 else 0.0


@jit.compiled
def madd(fabric: fabric_model.Fabric, order: np.ndarray, residual: np.ndarray,
         pace: np.ndarray) -> None:
    """Give each coflow, in order, its minimum allocation for desired time.

    A coflow that needs a full port gets nothing here (back-fill may still
    serve some of its flows).
    """
    cap = fabric.cap
    for c in order:
        gamma = 0.0
        for e in range(fabric.entry_ptr[c], fabric.entry_ptr[c + 1]):
            load = fabric.load[e]
            if load > 0.0:
                p = fabric.port[e]
                if residual[p] <= FULL * cap[p]:
                    gamma = np.inf
                    break
                gamma = max(gamma, load / residual[p])
        if gamma > 0.0 and gamma < np.inf:
            take(fabric, c, 1.0 / gamma, residual, pace)


@jit.compiled
def take(fabric: fabric_model.Fabric, c: int, rate: float,
         residual: np.ndarray, pace: np.ndarray) -> None:
    """Add ``rate`` to coflow c's pace and take it from its ports."""
    pace[c] += rate
    for e in range(fabric.entry_ptr[c], fabric.entry_ptr[c + 1]):
        p = fabric.port[e]
        residual[p] = max(0.0, residual[p] - fabric.load[e] * rate)


@jit.compiled
def reserve(fabric: fabric_model.Fabric, coflows: np.ndarray,
            share: np.ndarray, residual: np.ndarray, pace: np.ndarray
            ) -> None:
    """Give each of ``coflows`` MADD within ``share[p]`` of every port p."""
    for c in coflows:
        gamma = 0.0
        for e in range(fabric.entry_ptr[c], fabric.entry_ptr[c + 1]):
            load = fabric.load[e]
            if load > 0.0:
                p = fabric.port[e]
                room = min(share[p] * fabric.cap[p], residual[p])
                gamma = max(gamma, load / room if room > 0.0 else np.inf)
        if gamma > 0.0 and gamma < np.inf:
            take(fabric, c, 1.0 / gamma, residual, pace)


@jit.compiled
def users_per_port(fabric: fabric_model.Fabric, coflows: np.ndarray
                   ) -> np.ndarray:
    """How many of ``coflows`` still load each port."""
    users = np.zeros(len(fabric.cap), np.int64)
    for c in coflows:
        for e in range(fabric.entry_ptr[c], fabric.entry_ptr[c + 1]):
            if fabric.load[e] > 0.0:
                users[fabric.port[e]] += 1
    return users


@jit.compiled
def backfill_greedy(fabric: fabric_model.Fabric, order: np.ndarray,
                    residual: np.ndarray, extra_flow: np.ndarray,
                    extra_rate: np.ndarray) -> int:
    """Hand what is left to the flows in order; returns how many got some.

    Each flow that gets some fills a port, so there are at most P of them.
    """
    n_extra = 0
    word = fabric_model.WORD_BYTES
    open_ = np.zeros(-(-len(fabric.cap) // word) * word, np.uint8)
    open_words = open_.view(np.uint64)
    for c in order:
        split, end = fabric.split[c], fabric.entry_ptr[c + 1]
        n_open = 0
        for e in range(split, end):
            p = fabric.port[e]
            open_[e - split] = (fabric.alive[e] > 0
                                and residual[p] > FULL * fabric.cap[p])
            n_open += open_[e - split]
        for e in range(fabric.entry_ptr[c], split):
            if n_open == 0:
                break
            p = fabric.port[e]
            if fabric.alive[e] == 0 or residual[p] <= FULL * fabric.cap[p]:
                continue
            before = n_extra
            if fabric.row_at[e] >= 0:
                n_extra = fill_whole_row(
                    fabric, c, e, open_, open_words, residual, extra_flow,
                    extra_rate, n_extra)
            else:
                n_extra = fill_row(fabric, e, residual, extra_flow,
                                   extra_rate, n_extra)
            for i in range(before, n_extra):
                d = fabric.dst[extra_flow[i]]
                q = fabric.port[d]
                if residual[q] <= FULL * fabric.cap[q]:
                    open_[d - split] = 0
                    n_open -= 1
        open_[:end - split] = 0
    return n_extra


@jit.compiled
def fill_whole_row(fabric: fabric_model.Fabric, c: int, e: int,
                   open_: np.ndarray, open_words: np.ndarray,
                   residual: np.ndarray, extra_flow: np.ndarray,
                   extra_rate: np.ndarray, n_extra: int) -> int:
    """Hand what egress entry e has left to its flows to open ingresses."""
    p = fabric.port[e]
    word = fabric_model.WORD_BYTES
    split = fabric.split[c]
    row = fabric.row_at[e]
    for w in range(-(-(fabric.entry_ptr[c + 1] - split) // word)):
        if fabric.row_words[row // word + w] & open_words[w] == 0:
            continue
        for j in range(w * word, (w + 1) * word):
            if fabric.row_alive[row + j] & open_[j] == 0:
                continue
            q = fabric.port[split + j]
            rate = min(residual[p], residual[q])
            residual[p] -= rate
            residual[q] -= rate
            extra_flow[n_extra] = fabric.first[e] + j
            extra_rate[n_extra] = rate
            n_extra += 1
            if residual[p] <= FULL * fabric.cap[p]:
                return n_extra
    return n_extra


@jit.compiled
def fill_row(fabric: fabric_model.Fabric, e: int, residual: np.ndarray,
             extra_flow: np.ndarray, extra_rate: np.ndarray, n_extra: int
             ) -> int:
    """Hand what egress entry e has left to its flows that have not ended."""
    p = fabric.port[e]
    f = fabric_model.next_alive(fabric.skip, fabric.first[e])
    while f < fabric.last[e]:
        q = fabric.port[fabric.dst[f]]
        if residual[q] > FULL * fabric.cap[q]:
            rate = min(residual[p], residual[q])
            residual[p] -= rate
            residual[q] -= rate
            extra_flow[n_extra] = f
            extra_rate[n_extra] = rate
            n_extra += 1
            if residual[p] <= FULL * fabric.cap[p]:
                break
        f = fabric_model.next_alive(fabric.skip, f + 1)
    return n_extra


@jit.compiled
def open_flows(fabric: fabric_model.Fabric, order: np.ndarray,
               residual: np.ndarray, flows: np.ndarray) -> int:
    """Collect the flows of ``order`` with room at both ends."""
    cap = fabric.cap
    n_open = 0
    for c in order:
        for e in range(fabric.entry_ptr[c], fabric.split[c]):
            p = fabric.port[e]
            if fabric.alive[e] == 0 or residual[p] <= FULL * cap[p]:
                continue
            f = fabric_model.next_alive(fabric.skip, fabric.first[e])
            while f < fabric.last[e]:
                q = fabric.port[fabric.dst[f]]
                if residual[q] > FULL * cap[q]:
                    flows[n_open] = f
                    n_open += 1
                f = fabric_model.next_alive(fabric.skip, f + 1)
    return n_open


@jit.compiled
def fill_max_min(fabric: fabric_model.Fabric, flows: np.ndarray,
                 n_open: int, residual: np.ndarray, extra_flow: np.ndarray,
                 extra_rate: np.ndarray, n_extra: int) -> int:
    """Weighted max-min rates for ``flows[:n_open]`` over what is left.

    Progressive filling: all rise together (in proportion to their weights)
    until a port is full; its flows stop there, the others rise on. Appends to
    the extra list and returns its new length.
    """
    cap, weight, port = fabric.cap, fabric.weight, fabric.port
    src, dst = fabric.src, fabric.dst
    n_ports = len(cap)
    demand = np.zeros(n_ports)
    count = np.zeros(n_ports, np.int64)
    for i in range(n_open):
        f = flows[i]
        for p in (port[src[f]], port[dst[f]]):
            demand[p] += weight[f]
            count[p] += 1
    start, at_port = flows_by_port(fabric, flows, n_open, count)
    stopped = np.zeros(n_open, np.bool_)
    level = 0.0
    n_left = n_open
    while n_left > 0:
        step = np.inf
        for p in range(n_ports):
            if count[p] > 0:
                step = min(step, max(0.0, residual[p] / demand[p]))
        level += step
        for p in range(n_ports):
            if count[p] > 0:
                residual[p] = max(0.0, residual[p] - step * demand[p])
        for p in range(n_ports):
            if count[p] == 0 or residual[p] > FULL * cap[p]:
                continue
            for k in range(start[p], start[p + 1]):
                i = at_port[k]
                if stopped[i]:
                    continue
                stopped[i] = True
                n_left -= 1
                f = flows[i]
                for e in (src[f], dst[f]):
                    demand[port[e]] -= weight[f]
                    count[port[e]] -= 1
                extra_flow[n_extra] = f
                extra_rate[n_extra] = weight[f] * level
                n_extra += 1
    return n_extra


@jit.compiled
def flows_by_port(fabric: fabric_model.Fabric, flows: np.ndarray,
                  n_open: int, count: np.ndarray
                  ) -> tuple[np.ndarray, np.ndarray]:
    """Positions in ``flows`` of each port's flows, as starts and a list."""
    port, src, dst = fabric.port, fabric.src, fabric.dst
    start = np.zeros(len(count) + 1, np.int64)
    for p in range(len(count)):
        start[p + 1] = start[p] + count[p]
    place = start.copy()
    at_port = np.empty(start[-1], np.int32)
    for i in range(n_open):
        f = flows[i]
        for e in (src[f], dst[f]):
            p = port[e]
            at_port[place[p]] = i
            place[p] += 1
    return start, at_port


@jit.compiled
def weighted_fair(fabric: fabric_model.Fabric, coflows: np.ndarray,
                  weights: np.ndarray, alone_s: np.ndarray,
                  residual: np.ndarray, pace: np.ndarray) -> None:
    """Share the fabric between coflows in proportion to their weights.

    Progressive filling over whole coflows: x_c, coflow c's speed as a
    fraction of its speed alone, rises as weight * level for all at once; a
    full port stops the coflows that use it. The flows of a coflow keep the
    MADD proportions (Orchestra section 4 over section 6.3's weights).
    """
    open_ = coflows.copy()
    n_open = 0
    for c in coflows:
        if alone_s[c] > 0.0 and alone_s[c] < np.inf:
            open_[n_open] = c
            n_open += 1
    while n_open > 0:
        demand = np.zeros(len(fabric.cap))
        for i in range(n_open):
            c = open_[i]
            speed = weights[c] * fabric.scale[c] / alone_s[c]
            for e in range(fabric.entry_ptr[c], fabric.entry_ptr[c + 1]):
                demand[fabric.port[e]] += fabric.load[e] * speed
        step = np.inf
        for p in range(len(demand)):
            if demand[p] > 0.0:
                step = min(step, residual[p] / demand[p])
        for i in range(n_open):
            c = open_[i]
            take(fabric, c, step * weights[c] * fabric.scale[c] / alone_s[c],
                 residual, pace)
        kept = 0
        for i in range(n_open):
            c = open_[i]
            blocked = False
            for e in range(fabric.entry_ptr[c], fabric.entry_ptr[c + 1]):
                p = fabric.port[e]
                if (fabric.load[e] > 0.0
                        and residual[p] <= FULL * fabric.cap[p]):
                    blocked = True
            if not blocked:
                open_[kept] = c
                kept += 1
        n_open = kept


@jit.compiled
def prefix_times(fabric: fabric_model.Fabric, order: np.ndarray,
                 out: np.ndarray) -> None:
    """Seconds until each coflow's last port has served it and all before it.

    An upper estimate of its end under strict order and work conservation at
    its bottleneck: max over ports of the prefix load over the rate.
    """
    prefix = np.zeros(len(fabric.cap))
    for c in order:
        longest = 0.0
        for e in range(fabric.entry_ptr[c], fabric.entry_ptr[c + 1]):
            p = fabric.port[e]
            load = fabric.load[e] * fabric.scale[c]
            prefix[p] += load
            if load > 0.0:
                cap = fabric.cap[p]
                time_s = prefix[p] / cap if cap > 0.0 else np.inf
                longest = max(longest, time_s)
        out[c] = longest
