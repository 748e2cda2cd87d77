# SPDX-License-Identifier: Apache-2.0

"""Builds a PlacementProblem from Nova's offers and the known state. Pure."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import types

from virtco.model import booking
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import snapshot

# Egress and ingress per host, bits of payload per second.
Rates = Mapping[str, tuple[float, float]]


def sum_by_host(demands: Iterable[tuple[str, booking.Vector]]
                ) -> dict[str, booking.Vector]:
    """Sum the resources that are demanded of each host."""
    total: dict[str, booking.Vector] = {}
    for host, demand in demands:
        before = total.get(host, booking.NOTHING)
        total[host] = tuple(a + b for a, b in
                            zip(before, demand, strict=True))
    return total


def build(vms: tuple[cluster.Vm, ...],
          coflows: tuple[coflow_model.Coflow, ...],
          free: Mapping[str, booking.Vector], capacities: Rates,
          tree: cluster.Tree = cluster.Tree(),
          loads: tuple[snapshot.ActiveCoflow, ...] = (),
          pairs_bps: Mapping[tuple[str, str], float] = (
              types.MappingProxyType({}))) -> snapshot.PlacementProblem:
    """Build the problem of a group's VMs, of which those that stay are pinned.

    :param free: candidate host -> what may be booked on it, see
        :class:`virtco.model.booking.Ledger`.
    :param tree: the fabric above the hosts.
    :param pairs_bps: payload rates of the pairs that are slower than their
        hosts.
    """
    free = {vm.pinned: booking.NOTHING for vm in vms
            if vm.pinned is not None} | dict(free)
    return snapshot.PlacementProblem(
        hosts=tuple([cluster.Host(name, free[name], *capacities[name])
                     for name in sorted(free)]),
        vms=vms, coflows=coflows, tree=tree,
        # Bytes between two other hosts pass uplinks, too.
        active=loads if tree.subtrees else _known_loads(loads, free),
        pair_rate_bps={
            pair: rate_bps for pair, rate_bps in pairs_bps.items()
            if pair[0] in free and pair[1] in free} or None, hose_limits=True,
        resources=booking.RESOURCES)


def among(coflows: Iterable[coflow_model.Coflow], kept: Sequence[int]
          ) -> tuple[coflow_model.Coflow, ...]:
    """Restrict coflows to some of their VMs, numbered in this order."""
    number_of = {vm: number for number, vm in enumerate(kept)}
    return tuple(coflow.renumbered(len(kept), [
        number_of.get(vm, -1) for vm in range(coflow.n_vms)])
        for coflow in coflows)


def _known_loads(loads: Sequence[snapshot.ActiveCoflow],
                 hosts: Mapping[str, booking.Vector]
                 ) -> tuple[snapshot.ActiveCoflow, ...]:
    """Keep the loads on the problem's hosts; others change nothing."""
    known = hosts.keys()
    if all(dict(load.out_bytes).keys() <= known
           and dict(load.in_bytes).keys() <= known for load in loads):
        return tuple(loads)
    return tuple(snapshot.ActiveCoflow(
        load.coflow_id,
        tuple((h, b) for h, b in load.out_bytes if h in hosts),
        tuple((h, b) for h, b in load.in_bytes if h in hosts),
        tuple(pair for pair in load.pairs
              if pair[0] in hosts or pair[1] in hosts))
        for load in loads)
