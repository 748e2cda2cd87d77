# SPDX-License-Identifier: Apache-2.0

"""What enforcement costs in CPU.

``python -m benchmarks.edge_overhead`` (root) builds two hypervisors of
network namespaces, of which one runs the real ``virtco-edge``.

18 VMs send 45 Mbit/s each over connections that stay, a class per VM. For each
second it says what enforcement takes, in percent of one core, as the sum of

* *kernel*: perf(1), Debian's linux-perf, samples what every processor does two
  thousand times a second; those inside qdiscs, classification and their timers
  count, but not those in the transmission below them. Differences of the
  machine's total load would say less: on a virtual machine it changes more
  from one second to the next than enforcement takes in all. Without
  enforcement there must be none.
* *agent*: the processor time of ``virtco-edge``, from the scheduler's clock.

(VirtCO Fig. 5b: less than 2 % in 80 % of the time.) What the
machine does in a reference loop beside the same traffic is said too: a core
that is slow, or shared, makes everything dearer.

*Programs*: what the programs that classify take of a packet by themselves,
run by the kernel a hundred thousand times in a row, with the two capabilities
of the privileged helper and with all. Without CAP_PERFMON the kernel adds
barriers against Spectre to them.

*Packets*: cost of one packet of a coflow with 10 to 50,000 entries, and of an
unmanaged packet to a known or limited address.

*Trees*: what it costs to shape on an intermediate device ahead of the uplink,
where another program may have the uplink's own qdisc, instead of at the
uplink: time per packet, and how much TCP repeats when the queue is full.

It takes four minutes.
"""

import argparse
import bisect
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import contextlib
import ctypes
import dataclasses
import itertools
import json
import math
import multiprocessing
import multiprocessing.sharedctypes
import pathlib
import re
import selectors
import shutil
import signal
import socket
import statistics
import struct
import tempfile
import time
import types
from typing import Any

from edge_module.classify import bpf
from edge_module.classify import bpf_maps
from edge_module.classify import classified as classify
from edge_module.classify import classifier as classifiers
from edge_module.classify import nft
from edge_module.privileged import kernel_calls as kernel
from edge_module.tcplan import minors
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import frames
from tests.netns.edge import policies
from tests.netns.edge import proc
from tests.netns.edge import process
from tests.netns.edge import test_programs
from virtco.wire import edge_policy
from virtco_lab.sim.figures import outcome

VMS = 18
RATE_BPS = 45e6
LINK_BPS = 1e9
ENTRIES = (0, 10, 1000, 10_000, 50_000)
KNOWN, LIMITED = 'known', 'limited'
_PORT = 9
_OTHERS, _NOBODY = ('192.0.2.1', '192.0.2.2'), '02:00:00:00:00:01'
NONE, VIRTCO = 'none', 'virtco'
_SETTLE_S = 1.0
_AIM = 0.02
_USER = 'nobody'
_SAMPLES_HZ = 1999
_BLOCK_BYTES = 1 << 16
UPLINK, _IFB = 'uplink0', 'virtco-out'
_TREE_BPS, UNLIMITED_BPS = 400e6, 90e9
_QUEUE_BYTES = 200_000
_STREAMS = 8
# Of the privileged helper: CAP_NET_ADMIN and CAP_BPF; and CAP_DAC_OVERRIDE, as
# the directory of what is pinned may belong to the helper's user.
_CAPABILITIES = 1 << 12 | 1 << 39 | 1 << 1
_CAPABILITY_VERSION = 0x20080522
HELPER, ROOT = 'helper', 'root'
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


# Frames of a stack from the innermost one outwards: whichever comes first.
_OURS = re.compile(
    r'(htb|tbf|bfifo|fifo|qdisc|__qdisc|psched|nft|tcf|tcx|tc|bpf)_'
    r'|sch_direct_xmit|sch_handle|net_tx_action|__dev_xmit_skb')
_BELOW = re.compile(r'dev_hard_start_xmit|validate_xmit_skb|veth_|br_'
                    r'|__netif_receive_skb|tcp_|ip6?_')


def _is_ours(stack: Sequence[str]) -> bool:
    for symbol in stack:
        if _BELOW.match(symbol):
            return False
        if _OURS.match(symbol):
            return True
    return False


def _sampled(for_s: float, apart: Collection[int]) -> list[float]:
    """Times of the samples inside enforcement, by the monotonic clock.

    :param apart: processes whose samples do not count.
    """
    with tempfile.TemporaryDirectory() as directory:
        data = f'{directory}/perf.data'
        beds.run('perf', 'record', '-q', '-e', 'cpu-clock', '-F', _SAMPLES_HZ,
                 '-k', 'CLOCK_MONOTONIC', '-a', '-g', '-o', data, '--',
                 'sleep', for_s)
        text = beds.run('perf', 'script', '-i', data, '-F', 'pid,time,ip,sym')
    found = []
    for sample in text.split('\n\n'):
        head, _, stack = sample.strip().partition(':')
        if not head:
            continue
        pid, at_s = head.split()
        frames = [line.split()[1] for line in stack.splitlines()
                  if len(line.split()) > 1]
        if int(pid) not in apart and _is_ours(frames):
            found.append(float(at_s))
    return found


@dataclasses.dataclass
class Slices:
    """What enforcement took in each slice of time, as shares of a core."""

    kernel: list[float] = dataclasses.field(default_factory=list)
    agent: list[float] = dataclasses.field(default_factory=list)
    rates_bps: list[float] = dataclasses.field(default_factory=list)
    retransmits: int = 0

    def summary(self) -> dict[str, Any]:
        both = [sum(pair) for pair in zip(self.kernel, self.agent)]
        return {'kernel': _estimate(self.kernel),
                'agent': _estimate(self.agent), 'both': _estimate(both),
                'below_aim': sum(share < _AIM for share in both) / len(both),
                'rate_bps': statistics.mean(self.rates_bps),
                'retransmits': self.retransmits}


def _estimate(values: list[float]) -> dict[str, float]:
    """Mean, median, and half of the mean's 95 % confidence interval."""
    return {'mean': statistics.mean(values),
            'ci95': outcome.half_interval(values),
            'median': statistics.median(values)}


def _observe(traffic: _Traffic, agent: Collection[int], for_s: int,
             found: Slices) -> None:
    """Add a slice per second.

    :param agent: the module's processes.
    """
    readings = []

    def read() -> None:
        readings.append((time.monotonic(), sum(map(proc.cpu_s, agent)),
                         traffic.received_bytes))

    resent = traffic.retransmits()
    with futures.ThreadPoolExecutor(1) as pool:
        sampled = pool.submit(_sampled, for_s + 1, agent)
        time.sleep(0.5)
        read()
        for _ in range(for_s):
            time.sleep(1)
            read()
    times = sorted(sampled.result())
    found.retransmits += traffic.retransmits() - resent
    for (start_s, cpu_s, received), (end_s, cpu_end_s, received_end) in (
            itertools.pairwise(readings)):
        took_s = end_s - start_s
        seen = bisect.bisect(times, end_s) - bisect.bisect(times, start_s)
        # A sample that is missing fell into a pause of the (virtual)
        # processor, when nobody worked.
        found.kernel.append(seen / _SAMPLES_HZ / took_s)
        found.agent.append((cpu_end_s - cpu_s) / took_s)
        found.rates_bps.append(8 * (received_end - received) / took_s)


@contextlib.contextmanager
def _agent(site: _Site, controller: controllers.Controller
           ) -> Iterator[tuple[int, ...]]:
    """The module with its defaults, where those of tests are more eager.

    Yields its processes: it and its privileged helper.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        path.chmod(0o755)
        (path / 'state').mkdir()
        shutil.chown(path / 'state', _USER)
        edge = process.EdgeProcess(
            site.bed, 'h1', directory, LINK_BPS, {}, report_interval_s=1,
            user=_USER)
        seen = len(controller.reports)
        edge.start()
        try:
            beds.wait_for(lambda: any(report['coflows'] for report
                                      in controller.reports[seen:]), 20,
                          'enforcement')
            time.sleep(_SETTLE_S)
            yield edge.process.pid, *proc.children(edge.process.pid)
        finally:
            edge.stop()
            edge.once('--cleanup')
    time.sleep(_SETTLE_S)


def _reference_s() -> float:
    """Processor time of three million additions, the best of some."""
    best_s = math.inf
    for _ in range(3):
        start_s = time.thread_time()
        total = 0
        for number in range(3_000_000):
            total += number
        best_s = min(best_s, time.thread_time() - start_s)
    return best_s


def overhead(rounds: int, slices: int) -> dict[str, Any]:
    """Shares of one core that enforcement takes, by backend.

    :param slices: seconds of each backend in a round.
    """
    site = _Site()
    traffic = site.traffic()
    found = {name: Slices() for name in (NONE, VIRTCO)}
    try:
        with _beside(traffic.bodies()):
            controller = controllers.Controller(site.bed.ns('h1'))
            controller.set_policy(site.policy().to_dict())
            time.sleep(_SETTLE_S)
            try:
                for _ in range(rounds):
                    _observe(traffic, (), slices, found[NONE])
                    with _agent(site, controller) as agent:
                        _observe(traffic, agent, slices, found[VIRTCO])
                reference_s = _reference_s()
            finally:
                controller.stop()
    finally:
        site.bed.close()
    return {'reference_s': reference_s,
            'shares': {name: seen.summary() for name, seen in found.items()}}


# -- as the privileged helper -------------------------------------------------

def as_helper(function: Callable[..., None] = lambda: None,
              *arguments: Any) -> None:
    """Call a function with the capabilities that the privileged helper has.

    The thread keeps no others.
    """
    low, high = _CAPABILITIES & 0xffffffff, _CAPABILITIES >> 32
    if ctypes.CDLL(None).capset(
            struct.pack('=Ii', _CAPABILITY_VERSION, 0),
            struct.pack('=6I', low, low, 0, high, high, 0)):
        raise PermissionError('capset')
    function(*arguments)


# -- the cost of a packet ----------------------------------------------------

def blast(vm: beds.Vm, address: str, count: int, size_bytes: int = 64
          ) -> float:
    """CPU time per datagram, in nanoseconds."""
    def send() -> float:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((address, _PORT))
            data = bytes(size_bytes)
            start_s = time.thread_time()
            for _ in range(count):
                sock.send(data)
            return (time.thread_time() - start_s) / count * 1e9
    found: float = beds.in_netns(vm.netns, send)
    return found


def nobody_reads(vm: beds.Vm) -> socket.socket:
    """A socket at which datagrams end without an answer."""
    def listen() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((vm.ip, _PORT))
        return sock
    found: socket.socket = beds.in_netns(vm.netns, listen)
    return found


def _table(vm: beds.Vm, sink: beds.Vm, hook: tuple[str, int],
           case: int | str) -> classify.Table:
    if not case:
        return classify.Table()
    if isinstance(case, str):
        return _unmanaged(sink, hook, case == LIMITED)
    return _entries(vm, sink, hook, case)


def _unmanaged(sink: beds.Vm, hook: tuple[str, int], limited: bool
               ) -> classify.Table:
    """One entry that matches nothing, and limits by destination."""
    to, limit = (classify.MapKey(hook[1], sink.mac if limited else _NOBODY),
                 minors.of_limited(1, 1))
    return classify.Table(
        frozenset({hook}), {classify.Entry(hook[1], *_OTHERS): 0x10},
        {'to': {to: limit},
         'others': {classify.MapKey(hook[1]): minors.of_limited(0, 1)}})


def _entries(vm: beds.Vm, sink: beds.Vm, hook: tuple[str, int], entries: int
             ) -> classify.Table:
    found = {classify.Entry(hook[1], vm.ip, sink.ip): 0x10}
    for index in range(entries - 1):
        found[classify.Entry(hook[1], vm.ip, f'10.{100 + (index >> 16)}.'
                             f'{index >> 8 & 255}.{index & 255}')] = 0x10
    return classify.Table(frozenset({hook}), found)


def per_packet(rounds: int, pairs: int, count: int
               ) -> dict[str, dict[str, float]]:
    """Nanoseconds per datagram that each classifier adds, by number of
    entries, and for unmanaged datagrams.

    Medians over pairs of measurements: what a port takes that is classified,
    and right after it one that is not. The machine's speed may change between
    the pairs.
    """
    found = {}
    for made in bpf.BpfClassifier(kernel), nft.NftClassifier(kernel):
        bed = beds.Bed(1)
        try:
            found[made.name] = _added(bed, made, rounds, pairs, count)
        finally:
            bed.close()
    return found


def _added(bed: beds.Bed, classifier: classifiers.Classifier, rounds: int,
           pairs: int, count: int) -> dict[str, float]:
    vm, bare, sink = (bed.add_vm('h1') for _ in range(3))
    netns = bed.ns('h1')
    hook = beds.in_netns(netns, lambda: (
        vm.dev, socket.if_nametoindex(vm.dev)))
    cases = (*ENTRIES, KNOWN, LIMITED)
    ratios: dict[int | str, list[float]] = {case: [] for case in cases}
    least_ns = math.inf
    with nobody_reads(sink):
        for case in cases * rounds:
            beds.in_netns(netns, as_helper, classifier.replace,
                          _table(vm, sink, hook, case))
            blast(sink, vm.ip, 1)  # it is no stranger
            for _ in range(pairs):
                with_ns, bare_ns = (blast(sender, sink.ip, count)
                                    for sender in (vm, bare))
                ratios[case].append(with_ns / bare_ns)
                least_ns = min(least_ns, bare_ns)
        beds.in_netns(netns, classifier.remove)
    return {str(case): round((statistics.median(seen) - 1) * least_ns)
            for case, seen in ratios.items()}


# -- the programs by themselves ----------------------------------------------

def paths(rounds: int) -> dict[str, dict[str, int]]:
    """Nanoseconds that a program takes of a packet, by user and path.

    Those of the tenth of the rounds that is fastest, as others work meanwhile.
    A packet that needs nothing has the kernel's own time for a run.
    """
    found = {}
    for user in HELPER, ROOT:
        bed = beds.Bed(0)
        try:
            netns = f'{bed.prefix}paths'
            beds.run('ip', 'netns', 'add', netns)
            bed.namespaces.append(netns)
            found[user] = beds.in_netns(netns, _timed_paths, user, rounds)
        finally:
            bed.close()
    return found


def _datagram(address: str) -> bytes:
    return _frame(address, frames.UDP, frames.udp(_PORT))


def _frame(address: str, protocol: int, body: bytes) -> bytes:
    """What follows the addresses of a frame."""
    ethertype, packet = frames.ipv4(test_programs.IPS[4][0], address,
                                    protocol, body)
    return ethertype.to_bytes(2) + packet


def _timed_paths(user: str, rounds: int) -> dict[str, int]:
    made = test_programs.Programs(
        *[as_helper] if user == HELPER else [])
    try:
        vm, peer, limited = (test_programs.mac_of(name, 1)
                             for name in ('vm', 'peer', 'limited'))
        made.set_up(test_programs.Table(
            {(*test_programs.IPS[4], 0): test_programs.FLOW,
             (*_OTHERS, 80): test_programs.FLOW}, to=(limited,)))
        coflow, other = (_datagram(address) for address in (
            test_programs.IPS[4][1], '10.9.9.9'))
        data = _frame('10.9.9.9', frames.TCP, frames.segment(400))
        for sender in peer, limited:
            made.run('to_vm', vm + sender + other)
        return {name: sorted(made.run_ns(program, frame, priority)
                             for _ in range(rounds))[rounds // 10]
            for name, program, frame, priority in (
                ('of a coflow', 'from_vm', peer + vm + coflow, 0),
                ('unmanaged, reached', 'from_vm', peer + vm + other, 0),
                ('unmanaged, limited', 'from_vm', limited + vm + other, 0),
                ('at the uplink, in a class', 'to_wire', peer + vm + coflow,
                 bpf_maps.classid(test_programs.FLOW)),
                ('received, a datagram', 'to_vm', vm + peer + other, 0),
                ('received, TCP data', 'to_vm', vm + peer + data, 0))}
    finally:
        made.tables.remove()


# -- where the tree stands ---------------------------------------------------

@contextlib.contextmanager
def tree(netns: str, dev: str, rate_bps: float,
         queue_bytes: int = _QUEUE_BYTES) -> Iterator[None]:
    """A tree of one class for all that the uplink sends.

    :param dev: the uplink, or the name of an intermediate device to add.
    """
    def tc(*words: object) -> None:
        beds.run('tc', *words, netns=netns)

    if dev != UPLINK:
        beds.run('ip', 'link', 'add', dev, 'type', 'ifb', netns=netns)
        beds.run('ip', 'link', 'set', 'dev', dev, 'up', netns=netns)
    tc('qdisc', 'replace', 'dev', dev, 'root', 'handle', '1:', 'htb',
       'default', 2)
    tc('class', 'add', 'dev', dev, 'parent', '1:', 'classid', '1:2', 'htb',
       'rate', f'{rate_bps:.0f}', 'quantum', _BLOCK_BYTES)
    tc('qdisc', 'add', 'dev', dev, 'parent', '1:2', 'bfifo', 'limit',
       queue_bytes)
    if dev != UPLINK:
        tc('qdisc', 'add', 'dev', UPLINK, 'clsact')
        tc('filter', 'add', 'dev', UPLINK, 'egress', 'protocol', 'all',
           'u32', 'match', 'u32', 0, 0, 'action', 'mirred', 'egress',
           'redirect', 'dev', dev)
    yield
    if dev == UPLINK:
        tc('qdisc', 'del', 'dev', dev, 'root')
    else:
        tc('qdisc', 'del', 'dev', UPLINK, 'clsact')
        beds.run('ip', 'link', 'del', dev, netns=netns)


def trees(rounds: int, pairs: int, count: int) -> dict[str, dict[str, float]]:
    """Compare a tree at the uplink with one on a device ahead of it.

    :returns: by device: ns per datagram from a VM, median of pairs with the
        uplink's as its base, and rate and retransmissions of eight TCP
        streams of the host, at the uplink itself, which the tree limits.
    """
    bed = beds.Bed(2)
    try:
        vm, sink = bed.add_vm('h1'), bed.add_vm('h2')
        return _compared(bed.ns('h1'), vm, sink, rounds, pairs, count)
    finally:
        bed.close()


def _compared(netns: str, vm: beds.Vm, sink: beds.Vm, rounds: int,
              pairs: int, count: int) -> dict[str, dict[str, float]]:
    took: dict[str, list[float]] = {UPLINK: [], _IFB: []}
    rates: dict[str, list[float]] = {UPLINK: [], _IFB: []}
    resent: dict[str, int] = dict.fromkeys(took, 0)
    with nobody_reads(sink):
        for dev in (UPLINK, _IFB) * pairs:
            with tree(netns, dev, UNLIMITED_BPS):
                took[dev].append(blast(vm, sink.ip, count))
    # A bridge hides from TCP what waits at the uplink; nothing does so here.
    beds.run('ip', 'link', 'set', 'dev', UPLINK, 'nomaster', netns=netns)
    beds.run('ip', 'addr', 'add', '10.77.1.1/16', 'dev', UPLINK, netns=netns)
    host = types.SimpleNamespace(netns=netns)
    for dev in (UPLINK, _IFB) * rounds:
        flows = [beds.Flow(host, sink, 6001 + index)
                 for index in range(_STREAMS)]
        with tree(netns, dev, _TREE_BPS):
            rates[dev].append(sum(beds.measure(flows)))
            resent[dev] += sum(flow.retransmits for flow in flows)
    base_ns = min(took[UPLINK])
    return {dev: {
        'ns_per_packet': base_ns * statistics.median(map(
            lambda here, root: here / root, seen, took[UPLINK])),
        'rate_bps': statistics.mean(rates[dev]),
        'retransmits': resent[dev] / rounds} for dev, seen in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--slices', type=int, default=15)
    parser.add_argument('--pairs', type=int, default=100)
    parser.add_argument('--packets', type=int, default=300)
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    found = overhead(arguments.rounds, arguments.slices)
    programs = paths(arguments.pairs)
    packets = per_packet(arguments.rounds, arguments.pairs, arguments.packets)
    places = trees(arguments.rounds, arguments.pairs // 5,
                   10 * arguments.packets)
    if arguments.json:
        print(json.dumps({**found, 'ns_per_path': programs,
                          'ns_per_packet': packets, 'trees': places}))
        return
    print('\n'.join(_lines(found)))
    for user, runs_ns in programs.items():
        print(f'ns per run of a program, loaded by {user}:', runs_ns)
    for how, took_ns in packets.items():
        print(f'ns per packet, {how}:', took_ns)
    print('tree at or ahead of the uplink:', places)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """For humans: rates in Mbit/s, CPU in percent of a core."""
    yield (f'3 million additions in Python beside the traffic: '
           f'{found["reference_s"]:.2f} s of a core')
    for name, seen in found['shares'].items():
        shares = ', '.join(
            f'{part} {100 * seen[part]["mean"]:.2f} ± '
            f'{100 * seen[part]["ci95"]:.2f} '
            f'(median {100 * seen[part]["median"]:.2f})'
            for part in ('kernel', 'agent', 'both'))
        yield f'{name:4} % of a core: {shares}'
        yield (f'     {100 * seen["below_aim"]:.0f} % of the slices below '
               f'{100 * _AIM:.0f} %; {seen["rate_bps"] / 1e6:.0f} Mbit/s, '
               f'{seen["retransmits"]} retransmissions')


if __name__ == '__main__':
    main()
