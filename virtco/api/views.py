# SPDX-License-Identifier: Apache-2.0

"""Parts of hosts and coflows that several answers share."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator

import msgspec

from virtco.db import codec
from virtco.decide import publisher
from virtco.decide import waiting as waits
from virtco.model import cluster
from virtco.state import host_state
from virtco.wire import coflow_bodies as coflow_wire
from virtco.wire import edge_policy
from virtco.wire import host as wire
from virtco.wire import topology as topology_wire


def host(seen: host_state.View, policy: edge_policy.EdgePolicy | None,
         drained: wire.Drained, now_s: float) -> wire.Host:
    """Show a host by its report, its measured rates and its policy."""
    report, found = seen.report, seen.capacity
    return wire.Host(
        **msgspec.structs.asdict(drained), egress_bps=found.egress_bps,
        ingress_bps=found.ingress_bps,
        link_egress_bps=report.link.egress_bps,
        link_ingress_bps=report.link.ingress_bps,
        measured_egress_bps=found.measured_egress_bps,
        measured_ingress_bps=found.measured_ingress_bps,
        measured_age_s=max(0.0, now_s - found.measured_s)
        if found.measured_s is not None else None,
        rate_source=found.source,
        coflows_bps=sum(seen.observed_bps.values()),
        background_bps=seen.background_bps,
        generation=policy.generation if policy else None,
        generations_behind=publisher.lag(
            policy.generation if policy else None,
            report.applied_generation),
        applied_generation=report.applied_generation
        if seen.last_report_s is not None else None,
        last_report=seen.last_report_s,
        coflows=[c.coflow_id for c in policy.classes] if policy else [],
        vms=sorted({port.vm for port in report.ports}),
        health=report.health, error=report.error, cpu_s=report.cpu_s)


def classes(seen: host_state.View,
            policy: edge_policy.EdgePolicy | None) -> list[wire.Class]:
    """List the classes of a host's policy with their observed rates."""
    backlogs = {counters.coflow_id: counters.backlog_bytes
                for counters in seen.report.coflows}
    return [wire.Class(
        coflow_id=c.coflow_id, name=c.name,
        minor=f'{edge_policy.CLASS_MAJOR:x}:{c.minor:x}',
        prio=c.prio, rate_bps=c.rate_bps, ceil_bps=c.ceil_bps,
        observed_bps=seen.observed_bps.get(c.coflow_id),
        backlog_bytes=backlogs.get(c.coflow_id),
        destinations=[d.host for d in c.destinations],
    ) for c in (policy.classes if policy else ())]


def uplinks(above: cluster.Tree, nominal: cluster.Tree,
            seen: Iterable[tuple[host_state.View,
                                 edge_policy.EdgePolicy | None]]
            ) -> list[topology_wire.Uplink]:
    """List the uplinks of switches with the coflows' observed rates.

    Traffic between two hosts passes the uplinks of the switches that are
    above one of them only.
    """
    chains = {name: {one.name for one in chain}
              for name, chain in above.chains().items()}
    switches = {host: chains[leaf] for host, leaf in above.leaf_of.items()}
    up_bps: dict[str, float] = collections.defaultdict(float)
    down_bps: dict[str, float] = collections.defaultdict(float)
    for one, policy in seen:
        here = switches.get(one.host, set())
        for dst, bps in _towards(one, policy):
            there = switches.get(dst, set())
            for name in here - there:
                up_bps[name] += bps
            for name in there - here:
                down_bps[name] += bps
    said = {one.name: one for one in nominal.subtrees}
    return [topology_wire.Uplink(
        name=one.name, up_bps=codec.finite(one.uplink_out_bps),
        down_bps=codec.finite(one.uplink_in_bps),
        nominal_up_bps=codec.finite(said[one.name].uplink_out_bps),
        nominal_down_bps=codec.finite(said[one.name].uplink_in_bps),
        observed_up_bps=up_bps[one.name],
        observed_down_bps=down_bps[one.name]) for one in above.subtrees]


def _towards(seen: host_state.View, policy: edge_policy.EdgePolicy | None
             ) -> Iterator[tuple[str, float]]:
    """Yield destinations with the observed rates of the coflows to them.

    The last report tells how a coflow's bytes divide among destinations;
    bytes without a destination count in equal parts.
    """
    counted: dict[str, dict[str | None, float]] = collections.defaultdict(dict)
    for delta in seen.deltas:
        counted[delta.coflow_id][delta.dst_host] = delta.wire_bytes
    for c in policy.classes if policy else ():
        parts = dict(counted[c.coflow_id])
        rest = parts.pop(None, 0.0) if parts else 1.0
        others = [d.host for d in c.destinations if d.host not in parts] or [
            d.host for d in c.destinations]
        for dst in others:
            parts[dst] = parts.get(dst, 0.0) + rest / len(others)
        bps = seen.observed_bps.get(c.coflow_id, 0.0) / max(
            sum(parts.values()), 1e-9)
        for host, part in parts.items():
            if host is not None:
                yield host, bps * part


def waiting(coflow: coflow_wire.Coflow, found: waits.Waiting | None
            ) -> coflow_wire.Coflow:
    """Tell where a coflow waits; None: it has nothing to send."""
    return msgspec.structs.replace(
        coflow, bottleneck=coflow_wire.Bottleneck(
            host=found.port.host, direction=found.port.direction,
            busy_s=codec.finite(found.busy_s),
            capped_vm=found.port.vm or None)
        if found is not None else None,
        n_before=found.n_before if found is not None else None)
