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
"""What enforcement costs in CPU.

``python -m benchmarks.edge_overhead`` (root) builds two hypervisors of
network namespaces. Part one: 18 VMs send 45 Mbit/s each, in turns without
and with the edge module (its real process, a class per VM); extra CPU is what
the senders' side of the kernel and the module itself take more, of one core
(VirtCO Fig. 5b: less than 2 % in 80 % of the time). Part two: cost per packet
with 10 to 50,000 entries, with nftables and with BPF. A busy machine blurs
both; the turns alternate so that it blurs all of them alike. The share is an
upper bound: packets that a thread handles itself may be in both of its parts.
"""

import argparse
import json
import pathlib
import socket
import statistics
import tempfile
import time

from edge_module.classify import base as classify
from edge_module.classify import bpf
from edge_module.classify import nft
from edge_module.privileged import kernel
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process

VMS = 18
RATE_BPS = 45e6
LINK_BPS = 1e9
ENTRIES = (0, 10, 1000, 10_000, 50_000)


def _cpu_s(flows: list[beds.Flow]) -> float:
    """Of the threads that send and receive, to the nanosecond."""
    return sum(int(pathlib.Path(
        f'/proc/self/task/{item.native_id}/schedstat').read_text().split()[0])
        / 1e9 for flow in flows for item in flow.threads)


def _softirq_s() -> float:
    """CPU time of the whole machine in softirqs."""
    fields = pathlib.Path('/proc/stat').read_text().split('\n')[0].split()
    return int(fields[7]) / 100


def _window(flows: list[beds.Flow], for_s: float) -> dict[str, float]:
    start = (time.monotonic(), _cpu_s(flows), _softirq_s(),
             sum(flow.received_at(1e9) for flow in flows))
    time.sleep(for_s)
    elapsed_s = time.monotonic() - start[0]
    received = sum(flow.received_at(1e9) for flow in flows) - start[3]
    return {'rate_bps': 8 * received / elapsed_s,
            'cpu': (_cpu_s(flows) - start[1]) / elapsed_s,
            'softirq': (_softirq_s() - start[2]) / elapsed_s}


def overhead(rounds: int, for_s: float, **options: object
             ) -> dict[str, float]:
    """Shares of one core, without and with the edge module.

    :param options: of the edge module.
    """
    bed = beds.Bed(2)
    controller = controllers.Controller(bed.ns('h1'))
    flows: list[beds.Flow] = []
    try:
        sink = bed.add_vm('h2')
        senders = [bed.add_vm('h1') for _ in range(VMS)]
        builder = policies.PolicyBuilder('h1', LINK_BPS)
        for index, sender in enumerate(senders):
            builder.coflow(f'C{index}', 1.1 * RATE_BPS, [(sender, sink, 1)])
        controller.set_policy(builder.build().to_dict())
        flows = [beds.Flow(sender, sink, 5001 + index, pacing_bps=RATE_BPS)
                 for index, sender in enumerate(senders)]
        for flow in flows:
            flow.start()
        with tempfile.TemporaryDirectory() as directory:
            edge = process.EdgeProcess(
                bed, 'h1', directory, LINK_BPS, report_interval_s=1,
                pairs_interval_s=5, **options)
            windows: dict[bool, list[dict[str, float]]] = {
                False: [], True: []}
            agent_cpu = []
            for turn in range(2 * rounds):
                enforced = turn % 2 == 1
                if enforced:
                    seen = len(controller.reports)
                    edge.start()
                    beds.wait_for(lambda: any(
                        report['coflows'] for report
                        in controller.reports[seen:]), 20, 'enforcement')
                    time.sleep(1)
                    first = controller.reports[-1]['cpu_s']
                windows[enforced].append(_window(flows, for_s))
                if enforced:
                    agent_cpu.append(
                        (controller.reports[-1]['cpu_s'] - first) / for_s)
                    edge.stop()
                    edge.once('--cleanup')
        return _summary(windows, agent_cpu)
    finally:
        for flow in flows:
            flow.close()
        controller.stop()
        bed.close()


def _summary(windows: dict[bool, list[dict[str, float]]],
             agent_cpu: list[float]) -> dict[str, float]:
    def middle(enforced: bool, key: str) -> float:
        return statistics.median(item[key] for item in windows[enforced])

    agent = statistics.median(agent_cpu)
    return {
        'rate_bps_without': middle(False, 'rate_bps'),
        'rate_bps_with': middle(True, 'rate_bps'),
        'senders_cpu_without': middle(False, 'cpu'),
        'senders_cpu_with': middle(True, 'cpu'),
        'softirq_without': middle(False, 'softirq'),
        'softirq_with': middle(True, 'softirq'),
        'agent_cpu': agent,
        # Neighbouring turns, so that what else the machine does cancels out.
        'extra_core_share': agent + statistics.median(
            after['cpu'] + after['softirq'] - before['cpu']
            - before['softirq'] for before, after
            in zip(windows[False], windows[True], strict=True))}


def _blast(vm: beds.Vm, address: str, count: int) -> float:
    """CPU time per datagram, in nanoseconds."""
    def send() -> float:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((address, 9))
            data = bytes(64)
            start_s = time.thread_time()
            for _ in range(count):
                try:
                    sock.send(data)
                except ConnectionRefusedError:  # nobody listens
                    pass
            return (time.thread_time() - start_s) / count * 1e9
    found: float = beds.in_netns(vm.netns, send)
    return found


def _table(vm: beds.Vm, sink: beds.Vm, hook: tuple[str, int], entries: int
           ) -> classify.Table:
    if not entries:
        return classify.Table()
    keys = {classify.Key(vm.dev, vm.ip, sink.ip): 0x10}
    for index in range(entries - 1):
        keys[classify.Key(vm.dev, vm.ip, f'10.{100 + (index >> 16)}.'
                          f'{index >> 8 & 255}.{index & 255}')] = 0x10
    return classify.Table(frozenset({hook}), keys)


def per_packet(rounds: int, count: int) -> dict[str, dict[str, float]]:
    """Nanoseconds per datagram that a backend adds, by number of entries."""
    bed = beds.Bed(2)
    try:
        with beds.bpf_mount() as directory:
            return {classifier.name: _added(bed, classifier, rounds, count)
                    for classifier in (
                        nft.NftClassifier(kernel),
                        bpf.BpfClassifier(kernel, str(directory / 'virtco')))}
    finally:
        bed.close()


def _added(bed: beds.Bed, classifier: classify.Classifier, rounds: int,
           count: int) -> dict[str, float]:
    vm, sink = bed.add_vm('h1'), bed.add_vm('h2')
    netns = bed.ns('h1')
    hook = beds.in_netns(netns, lambda: (
        vm.dev, socket.if_nametoindex(vm.dev)))
    _blast(vm, sink.ip, 100)
    costs: dict[int, list[float]] = {}
    for _ in range(rounds):
        for entries in ENTRIES:
            beds.in_netns(netns, classifier.replace,
                          _table(vm, sink, hook, entries))
            costs.setdefault(entries, []).append(_blast(vm, sink.ip, count))
    beds.in_netns(netns, classifier.remove)
    bare = min(costs[0])
    return {str(entries): round(min(seen) - bare)
            for entries, seen in costs.items() if entries}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=8)
    parser.add_argument('--seconds', type=float, default=3)
    parser.add_argument('--packets', type=int, default=100_000)
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    with beds.bpf_mount() as directory:
        shares = {name: overhead(
            arguments.rounds, arguments.seconds, classifier=name,
            bpf_dir=directory / 'virtco') for name in ('nft', 'bpf')}
    packets = per_packet(arguments.rounds, arguments.packets)
    if arguments.json:
        print(json.dumps({'overhead': shares, 'ns_per_packet': packets}))
        return
    for name, found in shares.items():
        for key, value in overhead_lines(found):
            print(f'{name:4} {key:24} {value}')
    for name, costs in packets.items():
        print(f'{name:4} ns per packet by entries:', costs)


def overhead_lines(found: dict[str, float]) -> list[tuple[str, str]]:
    """Human-readable lines: rates in Mbit/s, CPU in percent of a core."""
    return [(key, f'{value / 1e6:.1f} Mbit/s' if 'bps' in key
             else f'{100 * value:.2f} %') for key, value in found.items()]


if __name__ == '__main__':
    main()
