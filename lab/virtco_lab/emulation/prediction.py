# SPDX-License-Identifier: Apache-2.0

"""Completion times that the models expect of a placement."""

import collections
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import itertools
import math

import numpy as np

from virtco import own_policies
from virtco import scheduling
from virtco import units
from virtco.model import coflow as coflow_model
from virtco.model import live
from virtco.state import schedule_input
from virtco_lab.emulation import scenario
from virtco_lab.sim import controlled
from virtco_lab.sim import demands as demand_model
from virtco_lab.sim import schemes
from virtco_lab.sim import simulation

#: Share of a link that the controller leaves to traffic outside coflows.
DEFAULT_SHARE = 0.02
# Bottlenecks that differ by less are a tie: measured rates differ by more.
_TIE = 0.005
_MAX_ORDERS = 24
# Nothing is reported to a controller that is not told of any coflow.
_UNHEARD = controlled.Timing(math.inf, math.inf, look_s=math.inf)


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A coflow with the host of each of its VMs."""

    coflow: coflow_model.Coflow
    hosts: tuple[str, ...]

    def between_hosts(self) -> dict[tuple[str, str], tuple[float, int]]:
        """Sum up bytes and count flows per pair of different hosts."""
        found: dict[tuple[str, str], tuple[float, int]] = (
            collections.defaultdict(lambda: (0.0, 0)))
        for src, dst, size_bytes in self.flows():
            if src != dst:
                size, n_flows = found[src, dst]
                found[src, dst] = size + size_bytes, n_flows + 1
        return dict(found)

    def flows(self) -> list[tuple[str, str, float]]:
        """List the hosts and bytes of every flow."""
        return [(self.hosts[flow.src], self.hosts[flow.dst], flow.size_bytes)
                for flow in self.coflow.flows]


def usable_bps(rates_bps: dict[str, float],
               scheme: schemes.Scheme) -> dict[str, float]:
    """Compute the payload rate of each uplink that coflows get under a scheme.
    """
    share = 1.0 if scheme.order == 'fair' else 1.0 - DEFAULT_SHARE
    return {host: scenario.goodput_bps(rate_bps) * share
            for host, rate_bps in rates_bps.items()}


def simulate(placed: Sequence[Placed], rates_bps: dict[str, float], order: str
             ) -> list[float]:
    """Simulate coflows that start together; return the CCT of each, in s.

    Under fair sharing every flow counts on its own: when the small flows
    between two hosts have ended, the large ones have fewer shares. Else the
    controller gives rates to pairs of hosts.

    :param rates_bps: rate of each uplink, the same both ways, as payload.
    """
    if order == 'fair':
        sent = [[(src, dst, size, 1) for src, dst, size in entry.flows()
                 if src != dst] for entry in placed]
    else:
        sent = [[(src, dst, size, n_flows) for (src, dst), (size, n_flows)
                 in entry.between_hosts().items()] for entry in placed]
    return _run(sent, rates_bps, order)


def simulate_tcp(placed: Sequence[Placed], rates_bps: dict[str, float]
                 ) -> list[float]:
    """Simulate unscheduled coflows that start together; return CCTs, in s.

    :param rates_bps: rate of each uplink, the same both ways, as payload.
    """
    return controlled.simulate(
        [controlled.Sent(one.coflow, one.coflow, one.hosts, told_s=math.inf)
         for one in placed], rates_bps,
        schedule_input.Options(order='fair', beta=0.0), _UNHEARD)


def ties(placed: Sequence[Placed], rates_bps: dict[str, float], order: str
         ) -> list[list[int]]:
    """Group coflows that the scheme's order holds equal: any may go first.

    All orders but fair sharing begin with the smallest bottleneck.

    :returns: groups of two and more indices.
    """
    if order == 'fair':
        return []
    bounds_s = [(max(units.transfer_time_s(size, rates_bps[host])
                     for host, both in uplink_bytes([entry], rates_bps
                                                    ).items()
                     for size in both), index)
                for index, entry in enumerate(placed)]
    groups: list[list[int]] = []
    before_s = 0.0
    for bound_s, index in sorted(bounds_s):
        if bound_s > 0 and bound_s <= before_s * (1 + _TIE):
            groups[-1].append(index)
        else:
            groups.append([index])
        before_s = bound_s
    return [sorted(group) for group in groups if len(group) > 1]


def simulate_as_taken(placed: Sequence[Placed], rates_bps: dict[str, float],
                      order: str, measured_s: Sequence[float]) -> list[float]:
    """Simulate the order of tied coflows that fits the measured CCTs best.

    See :func:`simulate`. Fair sharing is simulated as TCP shares, which the
    simulator's max-min shares are close to, but not the same.
    """
    if order == 'fair':
        return simulate_tcp(placed, rates_bps)
    orders = [list(range(len(placed)))]
    for group in ties(placed, rates_bps, order):
        orders = [_permuted(before, group, places) for before in orders
                  for places in itertools.permutations(group)
                  ][:_MAX_ORDERS]
    candidates = []
    for taken in orders:
        found = simulate([placed[index] for index in taken], rates_bps, order)
        candidates.append([found[taken.index(index)]
                           for index in range(len(placed))])
    return min(candidates, key=lambda found: sum(
        abs(one - other) for one, other in zip(found, measured_s)))


def _permuted(indices: list[int], group: list[int],
              places: tuple[int, ...]) -> list[int]:
    made = list(indices)
    for old, new in zip(group, places):
        made[old] = new
    return made


def simulate_local(placed: Sequence[Placed], local_bps: float) -> list[float]:
    """Return the CCT of each coflow's flows inside of hosts, in seconds.

    The flows inside of a host share ``local_bps`` equally under any scheme.
    """
    sent = [[(src, dst, size, 1) for src, dst, size in entry.flows()
             if src == dst] for entry in placed]
    hosts = {src for flows in sent for src, *_ in flows}
    return _run(sent, dict.fromkeys(hosts, local_bps), 'fair')


def _run(sent: list[list[tuple[str, str, float, int]]],
         rates_bps: dict[str, float], order: str) -> list[float]:
    """Simulate coflows that start together; return their CCTs, in s.

    :param sent: source, destination, bytes and number of flows per coflow.
    """
    names = sorted(rates_bps)
    index = {name: i for i, name in enumerate(names)}
    run = simulation.Simulation(
        np.array([rates_bps[name] for name in names] * 2),
        simulation.Config(own_policies.named(order), backfill='in-order'),
        [demand_model.of_flows((index[src], index[dst], size_bytes, n_flows)
                          for src, dst, size_bytes, n_flows in flows)
         for flows in sent])
    for number in range(len(sent)):
        run.start(number)
    run.run()
    return [float(cct_s) for cct_s in run.completion_s()]


def expect(placed: Sequence[Placed], rates_bps: dict[str, float], order: str
           ) -> list[float]:
    """Predict CCTs of coflows that start together, as the scheduler does.

    It foretells nothing under fair sharing, where every end changes all
    rates: there the simulator answers.
    """
    if order == 'fair':
        return simulate(placed, rates_bps, order)
    coflows = [
        live.LiveCoflow(str(number), live.Flows(live.Pairs(pairs), np.array(
            [size for size, _ in pairs.values()], float)),
            n_flows=sum(n for _, n in pairs.values()))
        for number, pairs in enumerate(
            entry.between_hosts() for entry in placed)]
    rate_bps = np.array(list(rates_bps.values()), float)
    ports = live.Ports(tuple(rates_bps), rate_bps, rate_bps)
    made = scheduling.schedule(coflows, ports, now_s=0.0,
                               policy=own_policies.named(order))
    ends = {entry.coflow_id: entry.predicted_end_s for entry in made.coflows}
    return [ends[str(number)] for number in range(len(placed))]


def placed_coflows(workload: scenario.Workload,
                   hosts: dict[str, tuple[str, ...]]) -> list[Placed]:
    """List all coflows of a workload, in its order."""
    return [Placed(coflow, hosts[group.name])
            for group in workload.groups for coflow in group.coflows]


def uplink_bytes(placed: Iterable[Placed], hosts: Iterable[str]
                 ) -> dict[str, tuple[float, float]]:
    """Sum up the bytes out of and into each host."""
    found = {host: (0.0, 0.0) for host in hosts}
    for entry in placed:
        for (src, dst), (size, _) in entry.between_hosts().items():
            found[src] = found[src][0] + size, found[src][1]
            found[dst] = found[dst][0], found[dst][1] + size
    return found
