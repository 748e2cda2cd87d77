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

"""Runs a workload under its schemes, on the testbed or simulated."""

import collections.abc
import time

import psutil

from virtco.emulation import fabric
from virtco.emulation import nova_client
from virtco.emulation import prediction
from virtco.emulation import results
from virtco.emulation import scenario
from virtco.emulation import testbed as testbed_module
from virtco.emulation import traffic
from virtco.emulation import transfers
from virtco import hints

_DEFAULT_PORT = 5001
#: What the VMs of one host send each other in all, in terms of an uplink. A
#: memory bus is faster, but here it is the processors that carry the uplinks.
LOCAL_PACE = 10

# Gets the bytes that have arrived, and all that will.
OnProgress = collections.abc.Callable[[int, int], object]
OnStep = collections.abc.Callable[[str], object]
Servers = dict[str, list[nova_client.Server]]


def run_emulated(testbed: testbed_module.Testbed,
                 workload: scenario.Workload, scheme: scenario.Scheme,
                 on_step: OnStep, on_progress: OnProgress, keep: bool = False,
                 local_bytes: int | None = None) -> results.SchemeResult:
    """Place the groups through Nova, send their bytes, take them away.

    :param keep: do not take them away; the testbed ends next.
    :param local_bytes: most that a flow inside of a host sends, and then
        without a pace; None sends all of it, at :data:`LOCAL_PACE`.
    """
    on_step('placing')
    testbed.change_settings(scheme.settings())
    began_s = time.monotonic()
    servers: Servers = {}
    for group in workload.groups:
        servers[group.name] = testbed.launch(
            f'{group.name}-{scheme.name}', group.n_vms,
            testbed_module.flavor(group.vm_slots), _hints(group, scheme))
    placing_s = time.monotonic() - began_s
    hosts = {name: tuple(str(server.host) for server in group)
             for name, group in servers.items()}
    placed = prediction.placed_coflows(workload, hosts)
    unpaced_s = prediction.simulate(
        placed, prediction.usable_bps(testbed.usable_rates_bps(), scheme),
        scheme.order)
    local_bps = None if local_bytes is not None else (
        LOCAL_PACE * scenario.goodput_bps(testbed.config.rate_bps))
    on_step('waiting for the edge modules')
    flows = _flows(testbed, workload, servers, local_bytes)
    testbed.fabric.introduce(_pairs(testbed, workload, servers))
    testbed.wait_enforced(_managed(testbed, flows))
    on_step('sending')
    total_bytes = sum(flow.size_bytes for flow in flows)
    job = traffic.Job(
        (0.0,) * len(placed), tuple(flows), local_bps=local_bps,
        window_bytes=traffic.window_bytes(
            flows, {port.namespace: port.host
                    for port in testbed.fabric.vms.values()},
            testbed.config.rate_bps))
    with transfers.Transfer(
            job, testbed.config.logs / 'traffic.log') as transfer:
        psutil.cpu_percent()  # from here …
        outcome = transfer.run(
            lambda received: on_progress(sum(received), total_bytes))
        busy_fraction = psutil.cpu_percent() / 100  # … to here
    if not keep:
        on_step('deleting')
        testbed.delete([s for group in servers.values() for s in group])
        testbed.wait_enforced(set())
    return results.SchemeResult(
        scheme.name, scheme.label,
        _coflow_results(workload, _paced(placed, unpaced_s, local_bps),
                        outcome.ccts_s, unpaced_s), hosts,
        prediction.uplink_bytes(placed, testbed.config.hosts),
        outcome.timeline, outcome.bin_s, outcome.retransmits,
        busy_fraction, placing_s)


def run_simulated(workload: scenario.Workload, scheme: scenario.Scheme,
                  rates_bps: dict[str, float], slots: int,
                  seed: int) -> results.SchemeResult:
    """The same workload through planner, scheduler and simulator."""
    began_s = time.monotonic()
    usable_bps = prediction.usable_bps(rates_bps, scheme)
    hosts = prediction.place(workload, scheme, rates_bps, slots, seed)
    placing_s = time.monotonic() - began_s
    placed = prediction.placed_coflows(workload, hosts)
    return results.SchemeResult(
        scheme.name, scheme.label, _coflow_results(
            workload, prediction.expect(placed, usable_bps, scheme.order),
            prediction.simulate(placed, usable_bps, scheme.order)),
        hosts, prediction.uplink_bytes(placed, rates_bps),
        placing_s=placing_s)


def _paced(placed: list[prediction.Placed], unpaced_s: list[float],
           local_bps: float | None) -> list[float]:
    """Completion times when what stays inside of hosts takes time, too."""
    if local_bps is None:
        return unpaced_s
    return [max(both) for both in zip(
        unpaced_s, prediction.simulate_local(placed, local_bps))]


def _hints(group: scenario.Group, scheme: scenario.Scheme) -> dict[str, str]:
    return hints.encode(hints.Hint(
        coflow_name=f'{group.name}-{scheme.name}', coflows=group.coflows,
        n_vms=group.n_vms))


def _flows(testbed: testbed_module.Testbed, workload: scenario.Workload,
           servers: Servers, local_bytes: int | None
           ) -> list[traffic.FlowSpec]:
    flows = []
    number = 0
    for group in workload.groups:
        vms = [testbed.fabric.vms[s.uuid] for s in servers[group.name]]
        for coflow in group.coflows:
            for flow in coflow.flows:
                src, dst = vms[flow.src], vms[flow.dst]
                local, size_bytes = src.host == dst.host, flow.size_bytes
                if local and local_bytes is not None:
                    size_bytes = min(size_bytes, local_bytes)
                flows.append(traffic.FlowSpec(
                    number, src.namespace, dst.namespace, dst.address,
                    coflow.dst_port or _DEFAULT_PORT,
                    max(1, int(size_bytes)), src.host if local else None))
            number += 1
    return flows


def _pairs(testbed: testbed_module.Testbed, workload: scenario.Workload,
           servers: Servers) -> set[tuple[fabric.VmPort, fabric.VmPort]]:
    """Ports of the VMs that send to each other."""
    found = set()
    for group in workload.groups:
        ports = [testbed.fabric.vms[s.uuid] for s in servers[group.name]]
        found |= {(ports[flow.src], ports[flow.dst])
                  for coflow in group.coflows for flow in coflow.flows}
    return found


def _managed(testbed: testbed_module.Testbed,
             flows: list[traffic.FlowSpec]) -> set[tuple[str, str, str]]:
    """What the edges should classify, if only to count it."""
    by_namespace = {port.namespace: port
                    for port in testbed.fabric.vms.values()}
    return {(by_namespace[flow.src_namespace].host,
             by_namespace[flow.src_namespace].address, flow.dst_address)
            for flow in flows if flow.local_host is None}


def _coflow_results(workload: scenario.Workload,
                    predicted_s: collections.abc.Sequence[float],
                    measured_s: collections.abc.Sequence[float],
                    unpaced_s: collections.abc.Sequence[float] | None = None
                    ) -> tuple[results.CoflowResult, ...]:
    named = [(group, coflow) for group in workload.groups
             for coflow in group.coflows]
    return tuple(results.CoflowResult(
        coflow.name, group.name, group.n_vms, coflow.size_bytes, *times)
        for (group, coflow), *times in zip(
            named, predicted_s, measured_s, unpaced_s or predicted_s))
