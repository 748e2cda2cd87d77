# SPDX-License-Identifier: Apache-2.0

"""Caps of VMs that the flows of a coflow pass. Pure.

A host reports what it enforces at a VM's port, which is the cap of the VM;
before it reports the VM, the cap of its flavor counts. A limit by Neutron's
rules counts beside both: OVN's meters are at no device.
"""

from collections.abc import Sequence
import math

import numpy as np

from virtco import units
from virtco.model import live
from virtco.state import inflight
from virtco.state import route as routes


def find(tracked: inflight.Tracked, addresses: inflight.Addresses
         ) -> routes.CappedFlows | None:
    """Find the caps of the coflow's VMs; None where none has one."""
    route, matrix = tracked.route, tracked.model.matrix
    found_bps = {row: caps_bps(member, addresses)
                for row, member in tracked.members.items()}
    rates_bps: dict[live.Cap, float] = {}
    passed = np.full((len(route.crossing), 2), -1)
    for column, (ends, direction) in enumerate((
            (matrix.src, 'egress'), (matrix.dst, 'ingress'))):
        rows = np.asarray(ends)[route.crossing]
        for row in np.unique(rows).tolist():
            rate_bps, member = found_bps[row][column], tracked.members[row]
            if rate_bps < math.inf:
                passed[rows == row, column] = len(rates_bps)
                rates_bps[live.Cap(member.host or '', direction,
                                   member.instance_uuid or '')] = rate_bps
    if not rates_bps:
        return None
    parts, part_of = np.unique(
        np.column_stack((route.crossing_pair, passed)), axis=0,
        return_inverse=True)
    return routes.CappedFlows(route.crossing, part_of.reshape(-1), parts[:, 0],
                       parts[:, 1:], rates_bps)


def busy_s(tracked: inflight.Tracked, addresses: inflight.Addresses
           ) -> float:
    """Return how long the slowest cap of its VMs is busy with the bytes left.

    Planned VMs count as well.
    """
    crossing, matrix = tracked.planned_route.crossing, tracked.model.matrix
    left_bits = (tracked.counting.left_bytes()[crossing]
                 * units.BITS_PER_BYTE)
    return _slowest_s(tracked, addresses, [
        np.bincount(np.asarray(ends)[crossing], left_bits, matrix.n_vms)
        for ends in (matrix.src, matrix.dst)])


def least_s(tracked: inflight.Tracked, addresses: inflight.Addresses
            ) -> float:
    """Return how long the slowest cap of its VMs takes for all bytes, by the
    VMs that also send or receive inside a host; 0 without such a cap.

    No uplink counts bytes inside a host, so that nobody knows what is left.
    """
    route, matrix = tracked.route, tracked.model.matrix
    if not route.local.size:
        return 0.0
    flows = np.concatenate((route.crossing, route.local))
    bits = tracked.counting.sizes_bytes[flows] * units.BITS_PER_BYTE
    return _slowest_s(tracked, addresses, [
        np.bincount(np.asarray(ends)[flows], bits, matrix.n_vms)
        * (np.bincount(np.asarray(ends)[route.local],
                       minlength=matrix.n_vms) > 0)
        for ends in (matrix.src, matrix.dst)])


def _slowest_s(tracked: inflight.Tracked, addresses: inflight.Addresses,
               load_bits: Sequence[np.ndarray]) -> float:
    """Return how long a load keeps the slowest cap busy.

    :param load_bits: bits that each VM sends, and receives, shape (n_vms,).
    """
    return max((float(load_bits[end][row] / rate_bps)
                for row, member in tracked.members.items()
                for end, rate_bps in enumerate(caps_bps(member, addresses))),
               default=0.0)


def caps_bps(member: routes.Member, addresses: inflight.Addresses
             ) -> tuple[float, float]:
    """Return the most that a VM sends and receives, inf for no limit."""
    host, _, reported_bps, _ = addresses.get(
        member.instance_uuid or '', (None, (), member.caps_bps, ()))
    egress_bps, ingress_bps = (
        reported_bps if host == member.host else member.caps_bps)
    return (min(egress_bps, member.limits_bps[0]),
            min(ingress_bps, member.limits_bps[1]))
