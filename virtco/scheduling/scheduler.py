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

"""Order and rates of all live coflows at one moment (VirtCO Algorithm 1)."""

from collections.abc import Collection
from collections.abc import Sequence
import math

import numpy as np

from virtco import exception
from virtco.model import live
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import kernels
from virtco.scheduling import ordering
from virtco.scheduling import policies
from virtco.scheduling import rates
from virtco.scheduling import starvation
from virtco import units

#: A flow with less than this left has ended.
NOTHING_BYTES = 1e-6


def schedule(coflows: Sequence[live.LiveCoflow],
             ports: Sequence[live.Port], *, policy: str = 'mrtf',
             now_s: float, theta_s: float = math.inf,
             fifo_plus_share: float = 0.03,
             policing_beta: float = math.inf,
             in_debt: Collection[str] = ()) -> live.Schedule:
    """Rank every coflow and give every host pair of it a rate.

    :param coflows: what is unfinished; ids must be unique.
    :param ports: every host that a flow names, once.
    :param policy: a name of :data:`virtco.scheduling.policies.POLICIES`.
    :param now_s: on the clock of the coflows' times.
    :param theta_s: a coflow without progress for this long goes first.
    :param fifo_plus_share: of each port, for each coflow behind the head,
        under ``fifo+``; all of them together get half of it at most.
    :param policing_beta: a coflow that sent more than its claim times
        1 + policing_beta goes behind the honest ones; inf: no policing.
    :param in_debt: ids of coflows that still pay for an earlier overrun;
        they go before those that are in the midst of one.
    :returns: all coflows by rank; every flow that has bytes left has a rate,
        possibly 0. Rates of a port never exceed it; none is idle that a flow
        could use.
    :raises virtco.exception.Invalid: for bad input.
    """
    chosen = policies.get(policy)
    starvation.check_theta(theta_s)
    if not 0 <= fifo_plus_share <= 1:
        raise exception.Invalid(field='fifo_plus_share',
                                value=fifo_plus_share,
                                limit='between 0 and 1')
    fabric, pairs = _lay_out(coflows, _index(ports), ports)
    n_coflows = len(coflows)
    alone_s = np.zeros(n_coflows)
    kernels.bottlenecks(fabric, alone_s)
    lifted = np.array([len(pairs[i]) > 0 and starvation.is_starving(
        coflow, now_s, theta_s) for i, coflow in enumerate(coflows)], bool)
    order = _order(coflows, chosen, alone_s, lifted, np.array(
        [_offence(coflow, policing_beta, in_debt) for coflow in coflows],
        np.int64))
    flow_rates = _rate(fabric, chosen, order, int(lifted.sum()), alone_s,
                       coflows, fifo_plus_share)
    remaining = fabric.base
    ends_s = _ends(fabric, chosen, order, flow_rates, remaining)
    names = [port.host for port in ports]
    return live.Schedule(now_s, tuple(
        live.CoflowSchedule(
            coflow_id=coflows[c].coflow_id, rank=rank,
            remaining_cct_s=float(alone_s[c]),
            predicted_end_s=now_s + float(ends_s[c]),
            flow_rates=_flow_rates(names, pairs[c], flow_rates[
                fabric.flow_ptr[c]:fabric.flow_ptr[c + 1]]),
            starving=bool(lifted[c]))
        for rank, c in enumerate(order)))


def _index(ports: Sequence[live.Port]) -> dict[str, int]:
    index: dict[str, int] = {}
    for port in ports:
        for field, rate_bps in (('egress_bps', port.egress_bps),
                                ('ingress_bps', port.ingress_bps)):
            if not (math.isfinite(rate_bps) and rate_bps >= 0):
                raise exception.Invalid(
                    field=f'{field} of {port.host}', value=rate_bps,
                    limit='a finite rate, at least 0')
        if port.host in index:
            raise exception.Invalid(field='ports', value=port.host,
                                    limit='each host once')
        index[port.host] = len(index)
    return index


def _lay_out(coflows: Sequence[live.LiveCoflow], index: dict[str, int],
             ports: Sequence[live.Port]
             ) -> tuple[fabric_model.Fabric, list[np.ndarray]]:
    """Arrays, and per coflow its host pairs in the arrays' order.

    A pair is one number, source * len(ports) + destination.
    """
    seen: set[str] = set()
    demands = []
    pairs = []
    for coflow in coflows:
        if coflow.coflow_id in seen:
            raise exception.Invalid(field='coflow_id',
                                    value=coflow.coflow_id,
                                    limit='each coflow once')
        seen.add(coflow.coflow_id)
        used, bits = _pairs(coflow, index)
        weight = max(1, coflow.n_flows) / max(1, len(used))
        demands.append(fabric_model.Demand(
            *np.divmod(used, max(1, len(index))), bits,
            np.full(len(used), weight)))
        pairs.append(used)
    cap = np.array([port.egress_bps for port in ports]
                   + [port.ingress_bps for port in ports], np.float64)
    return fabric_model.build(cap, demands), pairs


def _pairs(coflow: live.LiveCoflow, index: dict[str, int]
           ) -> tuple[np.ndarray, np.ndarray]:
    """Host pairs of a coflow, ascending, and the bits left of each."""
    if not (math.isfinite(coflow.weight) and coflow.weight > 0):
        raise exception.Invalid(field=f'weight of coflow {coflow.coflow_id}',
                                value=coflow.weight,
                                limit='a finite number above 0')
    total: dict[int, float] = {}
    n_hosts = len(index)
    for flow in coflow.flows:
        src, dst = index.get(flow.src_host), index.get(flow.dst_host)
        if src is None or dst is None:
            raise exception.Invalid(
                field=f'host of coflow {coflow.coflow_id}',
                value=flow.src_host if src is None else flow.dst_host,
                limit='one of the ports')
        size_bytes = flow.remaining_bytes
        if not 0 <= size_bytes < math.inf:
            raise exception.Invalid(
                field=f'remaining_bytes of coflow {coflow.coflow_id}',
                value=size_bytes,
                limit='a finite number of bytes, at least 0')
        if src != dst and size_bytes >= NOTHING_BYTES:
            pair = src * n_hosts + dst
            total[pair] = total.get(pair, 0.0) + size_bytes
    pairs = np.fromiter(total, np.int64, len(total))
    sizes_bytes = np.fromiter(total.values(), np.float64, len(total))
    order = np.argsort(pairs)
    return pairs[order], sizes_bytes[order] * units.BITS_PER_BYTE


def _offence(coflow: live.LiveCoflow, policing_beta: float,
             in_debt: Collection[str]) -> int:
    allowed_bytes = coflow.claimed_bytes * (1 + policing_beta)
    if coflow.claimed_bytes > 0 and coflow.sent_bytes > allowed_bytes:
        return 2
    return 1 if coflow.coflow_id in in_debt else 0


def _order(coflows: Sequence[live.LiveCoflow], policy: policies.Policy,
           alone_s: np.ndarray, lifted: np.ndarray, demoted: np.ndarray
           ) -> np.ndarray:
    arrival_s = np.array([coflow.arrival_s for coflow in coflows])
    key = arrival_s.astype(np.float64)
    if policy.key == policies.BY_REMAINING:
        key = alone_s.copy()
    elif policy.key == policies.BY_WHOLE:
        key = np.array([_whole_s(coflow, alone_s[c])
                        for c, coflow in enumerate(coflows)], np.float64)
    classes = np.array([coflow.priority_class for coflow in coflows],
                       np.int64)
    level = ordering.levels(policy, classes, demoted)
    for c in np.flatnonzero(lifted).tolist():
        level[c] = -1
        key[c] = max(coflows[c].served_s, coflows[c].arrival_s)
    # Ties go to the earlier arrival: the sort is stable.
    order = np.lexsort((arrival_s, key, level))
    return order.astype(np.int64)


def _whole_s(coflow: live.LiveCoflow, alone_s: float) -> float:
    """Time of the whole coflow alone, what it has sent included.

    MADD keeps the flows' proportions, so the whole stands to the rest as the
    bytes do.
    """
    remaining = sum(flow.remaining_bytes for flow in coflow.flows)
    if remaining <= 0:
        return alone_s
    return alone_s * (remaining + max(0.0, coflow.sent_bytes)) / remaining


def _rate(fabric: fabric_model.Fabric, policy: policies.Policy,
          order: np.ndarray, n_lifted: int, alone_s: np.ndarray,
          coflows: Sequence[live.LiveCoflow], trickle: float) -> np.ndarray:
    n_coflows, n_flows, n_ports = (len(coflows), len(fabric.base),
                                   len(fabric.cap))
    residual = np.zeros(n_ports)
    pace = np.zeros(n_coflows)
    extra_flow = np.zeros(n_flows + n_ports, np.int64)
    extra_rate = np.zeros(n_flows + n_ports)
    n_extra = rates.allocate(
        fabric, order, n_lifted, policy.sharing, policies.BACKFILL_MAX_MIN,
        trickle if policy.trickle else 0.0,
        np.array([coflow.weight for coflow in coflows], np.float64),
        alone_s, residual, pace, np.zeros(n_flows, np.int64), extra_flow,
        extra_rate)
    rate_bps = fabric.base * np.repeat(pace, np.diff(fabric.flow_ptr))
    np.add.at(rate_bps, extra_flow[:n_extra], extra_rate[:n_extra])
    return rate_bps


def _ends(fabric: fabric_model.Fabric, policy: policies.Policy,
          order: np.ndarray, rate_bps: np.ndarray, remaining: np.ndarray
          ) -> np.ndarray:
    """Seconds until each coflow's end.

    Under an order by what is ahead of it; under sharing by the present rates,
    which only rise while nothing arrives.
    """
    ends_s = np.zeros(len(order))
    if policy.sharing == policies.SHARE_MADD:
        kernels.prefix_times(fabric, order, ends_s)
        return ends_s
    with np.errstate(divide='ignore'):
        flow_s = remaining / rate_bps
    for c in order:
        flows = flow_s[fabric.flow_ptr[c]:fabric.flow_ptr[c + 1]]
        ends_s[c] = flows.max(initial=0.0)
    return ends_s


def _flow_rates(names: Sequence[str], pairs: np.ndarray,
                rate_bps: np.ndarray) -> tuple[live.FlowRate, ...]:
    src, dst = np.divmod(pairs, max(1, len(names)))
    return tuple(live.FlowRate(names[s], names[d], rate) for s, d, rate
                 in zip(src.tolist(), dst.tolist(), rate_bps.tolist()))
