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

"""Per-flow fair sharing of a whole trace, by pairs of ports.

All flows from one port to another have the same rate per weight, so they end
in the order of size / weight: what a pair has served tells who is next. Rates
are found for at most P² / 4 pairs instead of for every flow, which is what
makes fair sharing of a large trace affordable. The answer is that of the
general engine, to which a test holds it.
"""

from typing import NamedTuple

import numpy as np

from virtco import jit
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import kernels
from virtco.sim import engine


class Pairs(NamedTuple):
    """K pairs of ports, sorted by source; see the fabric for C, F and P.

    :ivar of_flow: pair of each flow, shape (F,).
    :ivar src: egress port of each pair, shape (K,).
    :ivar dst: ingress port of each pair, shape (K,).
    :ivar start: pairs of port p are at[start[p]] … at[start[p+1]-1],
        shape (P+1,).
    :ivar at: shape (2K,).
    :ivar weight: of the pair's live flows together, shape (K,).
    :ivar n_live: number of its live flows, shape (K,).
    :ivar served: bits per weight so far, shape (K,).
    :ivar head: its live flow that ends first, -1 for none, shape (K,).
    :ivar next: flow after each flow, shape (F,).
    :ivar ends_at: ``served`` at which each flow ends, shape (F,).
    :ivar rate: bps per weight, shape (K,).
    :ivar left: live flows of each coflow, shape (C,).
    """

    of_flow: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    start: np.ndarray
    at: np.ndarray
    weight: np.ndarray
    n_live: np.ndarray
    served: np.ndarray
    head: np.ndarray
    next: np.ndarray
    ends_at: np.ndarray
    rate: np.ndarray
    left: np.ndarray


def build(fabric: fabric_model.Fabric) -> Pairs:
    """The pairs that any flow of the fabric uses; no flow is live."""
    n_ports, n_flows = len(fabric.cap), len(fabric.base)
    keys = (fabric.port[fabric.src].astype(np.int64) * n_ports
            + fabric.port[fabric.dst])
    pairs, of_flow = np.unique(keys, return_inverse=True)
    src, dst = np.divmod(pairs, n_ports)
    ends = np.concatenate((src, dst))
    zeros = np.zeros(len(pairs))
    return Pairs(
        of_flow=of_flow.reshape(-1), src=src, dst=dst,
        start=np.searchsorted(np.sort(ends), np.arange(n_ports + 1)),
        at=np.argsort(ends, kind='stable') % max(1, len(pairs)),
        weight=zeros, n_live=np.zeros(len(pairs), np.int64),
        served=zeros.copy(), head=np.full(len(pairs), -1),
        next=np.full(n_flows, -1), ends_at=np.zeros(n_flows),
        rate=zeros.copy(), left=np.diff(fabric.flow_ptr))


@jit.compiled
def start(fabric: fabric_model.Fabric, pairs: Pairs, c: int) -> None:
    """Make the flows of coflow c live."""
    for f in range(fabric.flow_ptr[c], fabric.flow_ptr[c + 1]):
        k = pairs.of_flow[f]
        if pairs.n_live[k] == 0:
            pairs.served[k] = 0.0
            pairs.weight[k] = 0.0
        pairs.n_live[k] += 1
        pairs.weight[k] += fabric.weight[f]
        ends_at = pairs.served[k] + fabric.base[f] / fabric.weight[f]
        pairs.ends_at[f] = ends_at
        if pairs.head[k] < 0 or ends_at < pairs.ends_at[pairs.head[k]]:
            pairs.next[f] = pairs.head[k]
            pairs.head[k] = f
            continue
        g = pairs.head[k]
        while (pairs.next[g] >= 0
               and pairs.ends_at[pairs.next[g]] <= ends_at):
            g = pairs.next[g]
        pairs.next[f] = pairs.next[g]
        pairs.next[g] = f


@jit.compiled
def share(fabric: fabric_model.Fabric, pairs: Pairs) -> None:
    """Max-min rates by progressive filling; see kernels.fill_max_min."""
    n_ports = len(fabric.cap)
    residual = fabric.cap.copy()
    demand = np.zeros(n_ports)
    count = np.zeros(n_ports, np.int64)
    rising = np.zeros(len(pairs.src), np.bool_)
    for k in range(len(pairs.src)):
        if pairs.n_live[k] > 0:
            rising[k] = True
            for p in (pairs.src[k], pairs.dst[k]):
                demand[p] += pairs.weight[k]
                count[p] += 1
    level = 0.0
    while True:
        step = np.inf
        for p in range(n_ports):
            if count[p] > 0:
                step = min(step, residual[p] / demand[p])
        if step == np.inf:
            return
        level += step
        for p in range(n_ports):
            if count[p] > 0:
                residual[p] = max(0.0, residual[p] - step * demand[p])
        for p in range(n_ports):
            if count[p] == 0 or residual[p] > kernels.FULL * fabric.cap[p]:
                continue
            for i in range(pairs.start[p], pairs.start[p + 1]):
                k = pairs.at[i]
                if rising[k]:
                    rising[k] = False
                    pairs.rate[k] = level
                    for q in (pairs.src[k], pairs.dst[k]):
                        demand[q] -= pairs.weight[k]
                        count[q] -= 1


@jit.compiled
def advance(fabric: fabric_model.Fabric, pairs: Pairs, end_s: np.ndarray,
            now_s: float, until_s: float, max_events: int
            ) -> tuple[float, int]:
    """Run live flows until ``until_s``, their end, or max_events events.

    :returns: the time reached and the events used.
    """
    events = 0
    while now_s < until_s and events < max_events:
        share(fabric, pairs)
        dt_s = np.inf
        for k in range(len(pairs.src)):
            if pairs.n_live[k] > 0 and pairs.rate[k] > 0.0:
                left = pairs.ends_at[pairs.head[k]] - pairs.served[k]
                dt_s = min(dt_s, max(0.0, left) / pairs.rate[k])
        if now_s + dt_s > until_s:
            dt_s = until_s - now_s
            now_s = until_s
        elif dt_s == np.inf:
            break
        else:
            now_s += dt_s
        slack_s = now_s * engine.SAME_TIME
        for k in range(len(pairs.src)):
            if pairs.n_live[k] > 0:
                pairs.served[k] += pairs.rate[k] * dt_s
                end_flows(fabric, pairs, end_s, k,
                          pairs.served[k] + pairs.rate[k] * slack_s, now_s)
        events += 1
    return now_s, events


@jit.compiled
def end_flows(fabric: fabric_model.Fabric, pairs: Pairs, end_s: np.ndarray,
              k: int, served: float, now_s: float) -> None:
    """Take the flows of pair k out that end by ``served``."""
    f = pairs.head[k]
    while f >= 0 and pairs.ends_at[f] <= served:
        pairs.weight[k] -= fabric.weight[f]
        pairs.n_live[k] -= 1
        c = fabric.owner[f]
        pairs.left[c] -= 1
        if pairs.left[c] == 0:
            end_s[c] = now_s
        f = pairs.next[f]
    pairs.head[k] = f
