# SPDX-License-Identifier: Apache-2.0

"""Runs a workload under its schemes, on the testbed or simulated."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import itertools
import os
import time

import psutil

from virtco import hints
from virtco import units
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco_lab.emulation import nova_client
from virtco_lab.emulation import patience
from virtco_lab.emulation import prediction
from virtco_lab.emulation import results
from virtco_lab.emulation import scenario
from virtco_lab.emulation import starvation
from virtco_lab.emulation import testbed as testbed_module
from virtco_lab.emulation import traffic
from virtco_lab.emulation import transfers
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim import schemes

_DEFAULT_PORT = 5001
Servers = dict[str, list[nova_client.Server]]
#: Group -> host of each VM.
Placement = Mapping[str, Sequence[str]]
OnResult = Callable[[results.SchemeResult], object]


class Observer:
    """Is told how a run goes; this one ignores it."""

    def step(self, what: str) -> None:
        """Note that a step begins."""

    def count(self, what: str, done: int, total: int) -> None:
        """Note that ``done`` of the step's ``total`` servers are done."""

    def moved(self, done_bytes: int, total_bytes: int) -> None:
        """Note the bytes that have arrived, of all."""


def run_emulated(testbed: testbed_module.Testbed, workload: scenario.Workload,
                 scheme: schemes.Scheme, observer: Observer,
                 keep: bool = False, local_bytes: int | None = None,
                 hosts: Placement | None = None,
                 on_result: OnResult = lambda result: None
                 ) -> results.SchemeResult:
    """Place the groups through Nova, send their bytes, take them away.

    :param keep: do not take them away; the testbed ends next.
    :param local_bytes: most that a flow inside of a host sends, and then
        without a pace; None sends all of it, at a pace.
    :param hosts: hosts of each group's VMs; None: those that Nova chooses.
    :param on_result: gets the result as soon as the last byte has arrived.
    """
    n_vms = sum(group.n_vms for group in workload.groups)
    observer.step(f'placing {n_vms} VMs')
    testbed.change_settings(scheme.settings())
    began_s = time.monotonic()
    servers = _launch(testbed, workload, scheme, observer, n_vms, hosts or {})
    placing_s = time.monotonic() - began_s
    at = {name: tuple(str(server.host) for server in group)
             for name, group in servers.items()}
    placed = prediction.placed_coflows(workload, at)
    usable_bps = prediction.usable_bps(testbed.usable_rates_bps(), scheme)
    local_bps = None
    if workload.local_pace is not None and local_bytes is None:
        local_bps = workload.local_pace * scenario.goodput_bps(
            testbed.bed.link_bps)
    observer.step('waiting for the edge modules')
    coflows = [(coflow, servers[group.name]) for group in workload.groups
               for coflow in group.coflows]
    job = job_of(testbed, coflows, (0.0,) * len(coflows), local_bytes,
                 local_bps)
    testbed.wait_enforced(coflows)
    total_bytes = sum(flow.size_bytes for flow in job.flows)
    observer.step(f'sending {units.format_size(total_bytes)}')
    outcome, usage, busy_fraction = send(
        testbed, job, scheme,
        lambda progress: observer.moved(sum(progress.received), total_bytes))
    unpaced_s = prediction.simulate_as_taken(
        placed, usable_bps, scheme.order, outcome.ccts_s)
    result = results.SchemeResult(
        scheme.name, scheme.label, _coflow_results(
            workload, _paced(placed, unpaced_s, local_bps), outcome.ccts_s,
            unpaced_s, prediction.ties(placed, usable_bps, scheme.order)),
        at, prediction.uplink_bytes(placed, testbed.bed.hosts),
        outcome.timeline, outcome.bin_s, outcome.retransmits,
        busy_fraction, placing_s, usage.waited, {
            host: usage.ran_by(pids)
            for host, pids in testbed.edge_pids().items()})
    on_result(result)
    if not keep:
        observer.step(f'deleting {n_vms} VMs')
        testbed.delete(
            [s for group in servers.values() for s in group],
            lambda left: observer.count('deleting', n_vms - left, n_vms))
        testbed.wait_enforced()
    return result


def send(testbed: testbed_module.Testbed, job: traffic.Job,
         scheme: schemes.Scheme, on_progress: Callable[
             [traffic.Progress], object] = lambda progress: None,
         beside: contextlib.AbstractContextManager[object]
         = contextlib.nullcontext()
         ) -> tuple[traffic.Outcome, starvation.Usage, float]:
    """Send a job's bytes; the edges are left out where the order is fair.

    :param beside: is entered while the bytes are sent.
    :returns: also the use of processors by the testbed and the senders, and
        the busy share of all processors.
    """
    with (testbed.without_enforcement() if scheme.order == 'fair'
          else contextlib.nullcontext(),
          transfers.Transfer(job, testbed.bed.logs / 'traffic.log',
                             testbed.say) as transfer):
        watch = starvation.Watch(children)
        psutil.cpu_percent()  # from here …
        with beside:
            outcome = transfer.run(on_progress)
        return outcome, watch.read(), psutil.cpu_percent() / 100  # … to here


def children() -> list[int]:
    """Return the ids of all descendants: the testbed and the senders."""
    return [pid for pid in patience.family() if pid != os.getpid()]


def _launch(testbed: testbed_module.Testbed, workload: scenario.Workload,
            scheme: schemes.Scheme, observer: Observer,
            n_vms: int, hosts: Placement) -> Servers:
    """Launch group after group, each where those before leave room."""
    servers: Servers = {}
    placed = 0
    for group in workload.groups:
        servers[group.name] = testbed.launch(
            f'{group.name}-{scheme.name}', group.n_vms,
            testbed_module.flavor(group.vm_slots), hints.encode(hints.Hint(
                coflow_name=f'{group.name}-{scheme.name}',
                coflows=group.coflows)),
            lambda count, before=placed: observer.count(  # type: ignore[misc]
                'placing', before + count, n_vms), hosts.get(group.name))
        placed += group.n_vms
    return servers


def run_simulated(workload: scenario.Workload, scheme: schemes.Scheme,
                  rates_bps: dict[str, float], slots: int, seed: int,
                  observer: Observer = Observer()) -> results.SchemeResult:
    """Run the same workload through planner, scheduler and simulator."""
    began_s = time.monotonic()
    n_vms = sum(group.n_vms for group in workload.groups)
    observer.step(f'placing {n_vms} VMs')
    usable_bps = prediction.usable_bps(rates_bps, scheme)
    n_placed = itertools.accumulate(group.n_vms for group in workload.groups)
    # Groups are placed in turn, as by the controller.
    hosts = cloud.simulate(
        [cluster.Host(name, (float(slots),), rate_bps, rate_bps)
         for name, rate_bps in rates_bps.items()],
        [groups.of_slots(group.name, group.coflows, vm_slots=group.vm_slots)
         for group in workload.groups], scheme, seed=seed, leave=False,
        on_planned=lambda: observer.count('placing', next(n_placed), n_vms)
    ).hosts
    placing_s = time.monotonic() - began_s
    placed = prediction.placed_coflows(workload, hosts)
    predicted_s = prediction.expect(placed, usable_bps, scheme.order)
    return results.SchemeResult(
        scheme.name, scheme.label, _coflow_results(
            workload, predicted_s,
            prediction.simulate(placed, usable_bps, scheme.order),
            predicted_s, prediction.ties(placed, usable_bps, scheme.order)),
        hosts, prediction.uplink_bytes(placed, rates_bps),
        placing_s=placing_s)


def _paced(placed: list[prediction.Placed], unpaced_s: list[float],
           local_bps: float | None) -> list[float]:
    """Compute completion times when local traffic takes time, too."""
    if local_bps is None:
        return unpaced_s
    return [max(both) for both in zip(
        unpaced_s, prediction.simulate_local(placed, local_bps))]


def job_of(testbed: testbed_module.Testbed,
           coflows: Iterable[tuple[coflow_model.Coflow, nova_client.Servers]],
           starts_s: tuple[float, ...], local_bytes: int | None = None,
           local_bps: float | None = None) -> traffic.Job:
    """Build the traffic of coflows; their VMs learn each other's addresses.

    :param coflows: each with the server of each of its VMs.
    :param local_bytes: most that a flow inside of a host sends.
    """
    flows = []
    ends = []
    for number, (coflow, servers) in enumerate(coflows):
        ports = testbed.ports(servers)
        for flow in coflow.flows:
            src, dst = ports[flow.src], ports[flow.dst]
            local, size_bytes = src.host == dst.host, flow.size_bytes
            if local and local_bytes is not None:
                size_bytes = min(size_bytes, local_bytes)
            ends.append((src, dst))
            flows.append(traffic.FlowSpec(
                number, src.namespace, dst.namespace, dst.address,
                coflow.dst_port or _DEFAULT_PORT, max(1, round(size_bytes)),
                src.host if local else None))
    testbed.fabric.introduce(ends)
    return traffic.Job(
        starts_s, tuple(flows), local_bps=local_bps,
        window_bytes=traffic.window_bytes(
            ((src.host, dst.host) for src, dst in ends),
            testbed.bed.link_bps))


def _coflow_results(workload: scenario.Workload, predicted_s: Sequence[float],
                    measured_s: Sequence[float], unpaced_s: Sequence[float],
                    ties: list[list[int]]) -> tuple[results.CoflowResult, ...]:
    tied = {index for group in ties for index in group}
    named = [(group, coflow) for group in workload.groups
             for coflow in group.coflows]
    return tuple(results.CoflowResult(
        coflow.name, group.name, group.n_vms, coflow.size_bytes,
        predicted_s[index], measured_s[index], unpaced_s[index],
        index in tied) for index, (group, coflow) in enumerate(named))
