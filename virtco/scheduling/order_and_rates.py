# SPDX-License-Identifier: Apache-2.0

"""Order and rates of all live coflows at one moment (VirtCO Algorithm 1)."""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
import itertools
import math
import types
from typing import NamedTuple

import numpy as np

from virtco import units
from virtco.model import live
from virtco.scheduling import capped_parts
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import order_kernel
from virtco.scheduling import ordering
from virtco.scheduling import own_policy
from virtco.scheduling import policies
from virtco.scheduling import rate_kernel
from virtco.scheduling import rater_kernel
from virtco.scheduling import starvation

#: Usual time until the next reports and policies. A flow that is almost at its
#: end gets no more of MADD's rest than it can send until then; the coflows
#: behind would stand still for it.
HORIZON_S = 0.2
#: A flow with less than this left has ended.
NOTHING_BYTES = 1e-6


def schedule(coflows: Sequence[live.LiveCoflow],
             ports: live.Ports, *, policy: str | policies.Policy = 'mrtf',
             now_s: float, theta_s: float = math.inf,
             late: Mapping[str, float] = types.MappingProxyType({}),
             floors: Mapping[str, float] = types.MappingProxyType({}),
             size_factor: float = 1.0,
             first_rank: int = 0) -> live.Schedule:
    """Rank every coflow and give every host pair of it a rate.

    :param coflows: unfinished coflows; ids must be unique.
    :param ports: ports of every host that a flow names, with the uplinks
        above.
    :param policy: a policy, or a name of
        :data:`virtco.scheduling.policies.POLICIES`.
    :param now_s: on the clock of the coflows' times.
    :param theta_s: a coflow without progress for this long goes first.
    :param late: time since which periodic coflows go before the others that
        are served by intensity, by id.
    :param floors: guaranteed paces by id, in fractions of what is left per
        second, as :meth:`virtco.scheduling.deadlines.Plan.floors` has them.
        They come before the order, which shares what they leave.
    :param size_factor: bytes to send for each that is left.
    :param first_rank: rank of the coflow that is served first.
    :returns: all coflows by rank; every flow that has bytes left has a rate,
        possibly 0. Rates of a port, an uplink or a VM's cap never exceed it;
        none is idle that a flow could use.
    """
    chosen = (policies.POLICIES[policy] if isinstance(policy, str)
              else policy)
    index = _numbers(ports.hosts)
    fabric, flows = _lay_out(coflows, ports, index, size_factor)
    n_coflows = len(coflows)
    alone_s = np.zeros(n_coflows)
    # The controller hands nothing over greedily, and rates a fabric once.
    rater = rater_kernel.Rater(fabric, False)
    order_kernel.bottlenecks(rater, alone_s)
    lifted = np.zeros(n_coflows, bool)
    if theta_s < math.inf:
        lifted = np.array([n_left > 0 and starvation.is_starving(
            coflow, now_s, theta_s) for coflow, n_left in zip(
                coflows, np.diff(fabric.flow_ptr).tolist())], bool)
    order = ordering.find(coflows, ports, index, chosen, rater, fabric,
                          alone_s, lifted, late)
    rated_s = alone_s
    if any(coflow.sending is not None for coflow in coflows):
        fabric = fabric_model.resized(fabric, _sending_bits(
            coflows, fabric, flows, size_factor))
        rater = rater_kernel.Rater(fabric, False)
        rated_s = np.zeros(n_coflows)
        order_kernel.bottlenecks(rater, rated_s)
    floor = np.array([floors.get(coflow.coflow_id, 0.0) for coflow in coflows])
    if chosen.own is not None:
        floor = np.maximum(floor, own_policy.floors(
            chosen.own, ordering.told(coflows, fabric), n_coflows))
    np.asarray(rater.floor)[:] = floor
    rate_kernel.allocate(
        rater, order, int(lifted.sum()), chosen.sharing,
        policies.backfill(chosen), HORIZON_S,
        chosen.trickle,
        np.array([coflow.weight for coflow in coflows], np.float64), rated_s)
    flow_bps = _flow_bps(fabric, rater)
    ends_s = np.maximum(
        now_s + _ends(fabric, rater, chosen, order, flow_bps), [
            (now_s if coflow.began_s is None else coflow.began_s)
            + size_factor * coflow.least_s if coflow.least_s else -math.inf
            for coflow in coflows])
    flow_rates = flows.spread(flow_bps)
    return live.Schedule(now_s, tuple(
        live.CoflowSchedule(coflows[c].coflow_id, rank, remaining_cct_s,
                            predicted_end_s, flow_rates[c])
        for rank, (c, remaining_cct_s, predicted_end_s)
        in enumerate(zip(order.tolist(), alone_s[order].tolist(),
                         ends_s[order].tolist()), first_rank)),
        _left(ports, np.asarray(rater.residual), flows.parts))


def _sending_bits(coflows: Sequence[live.LiveCoflow],
                  fabric: fabric_model.Fabric, flows: '_Flows',
                  size_factor: float) -> np.ndarray:
    """Compute the sizes by which flows are rated, bits, shape (F,).

    A silent flow has 0.
    """
    bits = fabric.base.copy()
    for coflow, start, (first, last) in zip(
            coflows, flows.start, itertools.pairwise(
                fabric.flow_ptr.tolist())):
        if coflow.sending is not None:
            kept = flows.kept[first:last]
            size_bytes = coflow.sending.remaining_bytes[
                flows.parts.place[kept] - start] * flows.parts.share[kept]
            bits[first:last] = size_bytes * (
                size_factor * units.BITS_PER_BYTE) * (
                    size_bytes >= NOTHING_BYTES)
    return bits


def _left(ports: live.Ports, residual_bps: np.ndarray,
          parts: capped_parts.Parts) -> live.Ports:
    """Make ports of the residual rates."""
    n_hosts = len(ports.hosts)
    egress_bps, ingress_bps, uplinks_bps, _ = np.split(residual_bps, (
        n_hosts, 2 * n_hosts, 2 * n_hosts + len(ports.uplinks.cap_bps)))
    return live.Ports(ports.hosts, egress_bps, ingress_bps,
                      ports.uplinks._replace(cap_bps=uplinks_bps),
                      {**ports.caps_bps, **parts.left(residual_bps)})


class _Flows(NamedTuple):
    """Flows of all coflows in the order given.

    :ivar pairs: pairs of each coflow.
    :ivar start: index of each coflow's first flow and of none after, shape
        (C+1,).
    :ivar parts: parts of the flows.
    :ivar kept: index of each flow of the fabric among them, shape (F,).
    """

    pairs: list[live.Pairs]
    start: list[int]
    parts: capped_parts.Parts
    kept: np.ndarray

    def spread(self, flow_bps: np.ndarray) -> list[live.FlowRates]:
        """Assign the rates of the fabric's flows to the coflows."""
        # np.bincount returns integers for empty input.
        rate_bps = np.bincount(self.parts.place[self.kept], flow_bps,
                               self.start[-1]).astype(np.float64)
        return [live.FlowRates(pairs, rate_bps[start:end])
                for pairs, (start, end) in zip(
                    self.pairs, itertools.pairwise(self.start))]


@functools.lru_cache(8)
def _numbers(hosts: tuple[str, ...]) -> dict[str, int]:
    """Map each host to its index; equal hosts give the same object.

    See :meth:`live.Pairs.numbers`.
    """
    return {host: number for number, host in enumerate(hosts)}


def _lay_out(coflows: Sequence[live.LiveCoflow], ports: live.Ports,
             index: dict[str, int], size_factor: float
             ) -> tuple[fabric_model.Fabric, _Flows]:
    """Lay out the coflows' remaining flows between hosts as arrays."""
    pairs = [coflow.flows.pairs for coflow in coflows]
    counts = np.array([len(some) for some in pairs], np.int64)
    start = [0, *np.cumsum(counts).tolist()]
    owner = np.repeat(np.arange(len(coflows)), counts)
    ends = np.concatenate([np.zeros((0, 2), np.int64), *(
        some.numbers(index) for some in pairs)])
    src, dst = ends[:, 0], ends[:, 1]
    size_bytes = np.concatenate(
        [np.zeros(0), *(coflow.flows.remaining_bytes for coflow in coflows)])
    parts = capped_parts.split(coflows, start, ports.caps_bps)
    if parts.names:
        owner, src, dst, size_bytes = (
            each[parts.place] for each in (owner, src, dst, size_bytes))
        size_bytes *= parts.share
    kept = np.flatnonzero((src != dst) & (size_bytes >= NOTHING_BYTES))
    owner = owner[kept]
    n_left = np.bincount(owner, minlength=len(coflows))
    weight = np.array([max(1, coflow.n_flows) for coflow in coflows],
                      np.float64) / np.maximum(1, n_left)
    fabric, order = fabric_model.lay_out(
        np.concatenate((ports.egress_bps, ports.ingress_bps)),
        len(coflows), owner, fabric_model.Demand(
            src[kept], dst[kept],
            size_bytes[kept] * (size_factor * units.BITS_PER_BYTE),
            weight[owner]), ports.uplinks, parts.caps._replace(
                passed=parts.caps.passed[kept]) if parts.names
        else parts.caps)
    return fabric, _Flows(pairs, start, parts, kept[order])


def _flow_bps(fabric: fabric_model.Fabric, rater: rater_kernel.Rater
              ) -> np.ndarray:
    """Compute the rate of each flow, bit/s, shape (F,)."""
    rate_bps: np.ndarray = fabric.base * np.repeat(
        rater.pace, np.diff(fabric.flow_ptr))
    np.add.at(rate_bps, rater.extra_flow[:rater.n_extra],
              rater.extra_rate[:rater.n_extra])
    return rate_bps


def _ends(fabric: fabric_model.Fabric, rater: rater_kernel.Rater,
          policy: policies.Policy, order: np.ndarray, rate_bps: np.ndarray
          ) -> np.ndarray:
    """Predict the seconds until each coflow's end, shape (C,).

    Under an order by what is ahead of it; under sharing by the present rates,
    which only rise while nothing arrives.
    """
    ends_s = np.zeros(len(order))
    if policy.sharing in (policies.SHARE_MADD, policies.SHARE_GREEDY):
        order_kernel.prefix_times(rater, order, ends_s)
        return ends_s
    with np.errstate(divide='ignore'):
        flow_s = np.divide(fabric.base, rate_bps,
                           out=np.zeros(len(rate_bps)), where=fabric.base > 0)
    for c in order:
        flows = flow_s[fabric.flow_ptr[c]:fabric.flow_ptr[c + 1]]
        ends_s[c] = flows.max(initial=0.0)
    return ends_s
