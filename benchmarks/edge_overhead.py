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
network namespaces.

*Kernel*: 18 VMs send 45 Mbit/s each over connections that stay, while
enforcement (a class per VM) is switched on and off under them. perf(1),
Debian's linux-perf, samples what every processor does two thousand times a
second; the samples inside qdiscs, classification and their timers, but not in
the transmission below them, are what enforcement takes. Differences of the
machine's total load would say less: on a virtual machine it changes more from
one second to the next than enforcement takes in all. Without enforcement the
share must be nothing.

*Agent*: processor time of the real ``virtco-edge`` beside the same traffic,
from the scheduler's clock. (VirtCO Fig. 5b: both together less than 2 % in
80 % of the time.)

Both are given as mean and 95 % confidence interval over slices of time, in
percent of one core.

*Packets*: cost of one packet with 10 to 50,000 entries, with nftables and
with BPF.

It takes three minutes; a busy machine makes everything dearer.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import ctypes
import json
import math
import multiprocessing
import multiprocessing.sharedctypes
import os
import pathlib
import re
import selectors
import signal
import socket
import statistics
import tempfile
import time
from typing import Any

from scipy import stats

from edge_module.classify import base as classify
from edge_module.classify import bpf
from edge_module.classify import nft
from edge_module import enforcer
from edge_module.privileged import kernel
from edge_module.qdisc import htb
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process
from virtco.table import edge_policy

VMS = 18
RATE_BPS = 45e6
LINK_BPS = 1e9
ENTRIES = (0, 10, 1000, 10_000, 50_000)
NONE = 'none'
_SETTLE_S = 1.0
_SAMPLES_HZ = 1999
_CPUS = os.cpu_count() or 1
_BLOCK_BYTES = 1 << 16
_fork = multiprocessing.get_context('fork')


# -- helpers in processes of their own --------------------------------------

@contextlib.contextmanager
def _beside(bodies: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Run functions that never end in processes of their own."""
    made = [_fork.Process(target=body, daemon=True) for body in bodies]
    try:
        for item in made:
            item.start()
        yield
    finally:
        for item in made:
            item.kill()
            item.join()


class _Traffic:
    """Connections that one process feeds and another one empties."""

    def __init__(self, flows: list[beds.Flow]):
        self.flows = flows
        self._received = multiprocessing.sharedctypes.RawValue(
            ctypes.c_uint64, 0)

    def bodies(self) -> list[Callable[[], None]]:
        return [self._send, self._receive]

    def _send(self) -> None:
        data = bytes(_BLOCK_BYTES)
        for ready in _ready([flow.sender for flow in self.flows],
                            selectors.EVENT_WRITE):
            with contextlib.suppress(BlockingIOError):
                ready.send(data)

    def _receive(self) -> None:
        for flow in self.flows:
            flow.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT,
                                     _BLOCK_BYTES)
        buffer = bytearray(4 * _BLOCK_BYTES)
        for ready in _ready([flow.receiver for flow in self.flows],
                            selectors.EVENT_READ):
            with contextlib.suppress(BlockingIOError):
                self._received.value += ready.recv_into(buffer)

    @property
    def received_bytes(self) -> int:
        return int(self._received.value)

    def retransmits(self) -> int:
        return sum(flow.total_retransmits() for flow in self.flows)


def _ready(socks: list[socket.socket], event: int) -> Iterator[Any]:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    selector = selectors.EpollSelector()
    for sock in socks:
        sock.setblocking(False)
        selector.register(sock, event)
    while True:
        for key, _ in selector.select():
            yield key.fileobj


# -- the kernel's part and the agent's --------------------------------------

class _Site:
    """18 VMs at h1 that send to one at h2."""

    def __init__(self) -> None:
        self.bed = beds.Bed(2)
        self.sink = self.bed.add_vm('h2')
        self.senders = [self.bed.add_vm('h1') for _ in range(VMS)]

    def policy(self) -> edge_policy.EdgePolicy:
        builder = policies.PolicyBuilder('h1', LINK_BPS)
        for index, sender in enumerate(self.senders):
            builder.coflow(f'C{index}', 1.1 * RATE_BPS,
                           [(sender, self.sink, 1)])
        return builder.build()

    def traffic(self) -> _Traffic:
        return _Traffic([
            beds.Flow(sender, self.sink, 5001 + index, pacing_bps=RATE_BPS)
            for index, sender in enumerate(self.senders)])

    def here(self, function: Callable[..., Any], *args: Any) -> Any:
        return beds.in_netns(self.bed.ns('h1'), function, *args)

    def enforcers(self, directory: pathlib.Path
                  ) -> dict[str, enforcer.Enforcer]:
        ports = self.here(lambda: [classify.VmPort(
            vm.uuid, vm.dev, socket.if_nametoindex(vm.dev), '', (vm.ip,))
            for vm in self.senders])
        made = {}
        for item in (nft.NftClassifier(kernel),
                     bpf.BpfClassifier(kernel, str(directory / 'virtco'))):
            made[item.name] = enforcer.Enforcer(
                htb.Uplink(kernel, 'uplink0'), item, LINK_BPS,
                0.02 * LINK_BPS)
            made[item.name].ports = tuple(ports)
        return made


# Frames of a stack from the innermost one outwards: whichever comes first.
_OURS = re.compile(
    r'(htb|tbf|bfifo|fifo|qdisc|__qdisc|psched|nft|tcf|tc|cls_bpf)_'
    r'|bpf_prog_|sch_direct_xmit|sch_handle|net_tx_action|__dev_xmit_skb')
_BELOW = re.compile(r'dev_hard_start_xmit|validate_xmit_skb|veth_|br_'
                    r'|__netif_receive_skb|tcp_|ip6?_')


def _is_ours(stack: Sequence[str]) -> bool:
    for symbol in stack:
        if _BELOW.match(symbol):
            return False
        if _OURS.match(symbol):
            return True
    return False


def _sampled_shares(for_s: int, slice_s: float = 1.0) -> list[float]:
    """Shares of one core inside enforcement, by slices of time."""
    with tempfile.TemporaryDirectory() as directory:
        data = f'{directory}/perf.data'
        beds.run('perf', 'record', '-q', '-e', 'cpu-clock', '-F', _SAMPLES_HZ,
                 '-a', '-g', '-o', data, '--', 'sleep', for_s)
        text = beds.run('perf', 'script', '-i', data, '-F', 'time,ip,sym')
    ours: dict[int, int] = {}
    all_: dict[int, int] = {}
    for sample in text.split('\n\n'):
        head, _, stack = sample.strip().partition(':')
        if not head:
            continue
        at = int(float(head) / slice_s)
        frames = [line.split()[1] for line in stack.splitlines()
                  if len(line.split()) > 1]
        all_[at] = all_.get(at, 0) + 1
        ours[at] = ours.get(at, 0) + _is_ours(frames)
    # The first and the last slice are not whole.
    return [ours[at] * _CPUS / all_[at] for at in sorted(all_)[1:-1]]


def kernel_part(site: _Site, traffic: _Traffic, directory: pathlib.Path,
                for_s: int) -> dict[str, Any]:
    """What enforcement takes of the kernel's time, as shares of a core."""
    made = site.enforcers(directory)
    policy = site.policy()
    found = {}
    for name in (NONE, *made):
        if name != NONE:
            site.here(made[name].set_policy, policy, time.monotonic())
        time.sleep(_SETTLE_S)
        start_s, received, resent = (
            time.monotonic(), traffic.received_bytes, traffic.retransmits())
        shares = _sampled_shares(for_s)
        found[name] = _estimate(shares) | {
            'rate_bps': 8 * (traffic.received_bytes - received)
            / (time.monotonic() - start_s),
            'retransmits': traffic.retransmits() - resent}
        if name != NONE:
            site.here(made[name].cleanup)
    return found


def _estimate(values: list[float]) -> dict[str, float]:
    """Mean and half of its 95 % confidence interval."""
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(
        values) / math.sqrt(len(values))
    return {'mean': statistics.mean(values), 'ci95': half}


def agent_part(site: _Site, controller: controllers.Controller, for_s: int,
               **options: object) -> dict[str, float]:
    """Processor time of the agent, as a share of a core, by seconds."""
    with tempfile.TemporaryDirectory() as directory:
        # Its defaults, where the test's are more eager.
        edge = process.EdgeProcess(
            site.bed, 'h1', directory, LINK_BPS, report_interval_s=1,
            pairs_interval_s=5, poll_wait_s=30, grace_s=5, **options)
        seen = len(controller.reports)
        edge.start()
        try:
            beds.wait_for(lambda: any(report['coflows'] for report
                                      in controller.reports[seen:]), 20,
                          'enforcement')
            time.sleep(2)
            shares = []
            for _ in range(for_s):
                start_s, before = time.monotonic(), _cpu_s(edge.process.pid)
                time.sleep(1)
                shares.append((_cpu_s(edge.process.pid) - before)
                              / (time.monotonic() - start_s))
        finally:
            edge.stop()
            edge.once('--cleanup')
    return _estimate(shares)


def _cpu_s(pid: int) -> float:
    """Of all threads of a process, to the nanosecond."""
    return sum(int(path.read_text().split()[0]) for path in
               pathlib.Path(f'/proc/{pid}/task').glob('*/schedstat')) / 1e9


def overhead(kernel_s: int, agent_s: int) -> dict[str, Any]:
    """Shares of one core that enforcement takes of kernel and agent."""
    site = _Site()
    traffic = site.traffic()
    try:
        with beds.bpf_mount() as directory, _beside(traffic.bodies()):
            time.sleep(2)
            found = {'kernel': kernel_part(site, traffic, directory,
                                           kernel_s)}
            controller = controllers.Controller(site.bed.ns('h1'))
            controller.set_policy(site.policy().to_dict())
            try:
                found['agent'] = {name: agent_part(
                    site, controller, agent_s, classifier=name,
                    bpf_dir=directory / 'virtco')
                    for name in ('nft', 'bpf')}
            finally:
                controller.stop()
        return found
    finally:
        site.bed.close()


# -- the cost of a packet ----------------------------------------------------

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
    parser.add_argument('--kernel-seconds', type=int, default=22)
    parser.add_argument('--agent-seconds', type=int, default=15)
    parser.add_argument('--rounds', type=int, default=4)
    parser.add_argument('--packets', type=int, default=100_000)
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    found = overhead(arguments.kernel_seconds, arguments.agent_seconds)
    packets = per_packet(arguments.rounds, arguments.packets)
    if arguments.json:
        print(json.dumps({**found, 'ns_per_packet': packets}))
        return
    print('\n'.join(_lines(found)))
    for name, costs in packets.items():
        print(f'{name:4} ns per packet by entries:', costs)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """For humans: rates in Mbit/s, CPU in percent of a core."""
    for part, by_name in found.items():
        for name, seen in by_name.items():
            line = (f'{part} {name:4} {100 * seen["mean"]:.2f} '
                    f'± {100 * seen["ci95"]:.2f} % of a core')
            if 'rate_bps' in seen:
                line += (f' at {seen["rate_bps"] / 1e6:.0f} Mbit/s, '
                         f'{seen["retransmits"]} retransmissions')
            yield line


if __name__ == '__main__':
    main()
