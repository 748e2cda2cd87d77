# SPDX-License-Identifier: Apache-2.0

"""Attacks by a VM beside a coflow of its own hypervisor.

Each has a defence, and a way to take it away: without it the coflow has to
lose, else the row says nothing.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import pathlib
import signal
import socket
import struct
import tempfile
import threading
import time
from typing import Any

from benchmarks.hostile_row import GOODPUT
from benchmarks.hostile_row import LINK_BPS
from benchmarks.hostile_row import MARGIN
from benchmarks.hostile_row import Row
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from edge_module.tcplan import minors
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import datagrams
from tests.netns.edge import floods
from tests.netns.edge import frames
from tests.netns.edge import policies
from tests.netns.edge import process

COFLOW_BPS = 60e6
STREAM_BPS = 2e6
_PINGS = 150
_MEASURE_S = 3.0
_SETTLE_S = 0.7
_STREAM_PORT = 7300
NOBODY = '02:01:00:00:00:01'
EVERYBODY = 'ff:ff:ff:ff:ff:ff'


class Site:
    """Two hypervisors and those who send; one agent.

    :param how: what classifies.
    """

    def __init__(self, directory: pathlib.Path, how: str):
        self.bed = beds.Bed(2)
        floods.count_like_ethernet(self.bed, 'h2', LINK_BPS)
        self.addresses = floods.address_hosts(self.bed)
        (self.member, self.polite, self.hostile, self.probe) = (
            self.bed.add_vm('h1') for _ in range(4))
        self.sink, self.counter = (self.bed.add_vm('h2') for _ in range(2))
        self.controller = controllers.Controller(self.bed.ns('h1'))
        self.edge = process.EdgeProcess(
            self.bed, 'h1', directory, LINK_BPS, link_margin=MARGIN,
            audit_interval_s=3600, how=how)
        self.controller.set_policy(policies.PolicyBuilder(
            'h1', (1 - MARGIN) * LINK_BPS).coflow(
                'C1', COFLOW_BPS, [(self.member, self.sink, 1)],
                ceil_bps=COFLOW_BPS).coflow(
                'C2', STREAM_BPS, [(self.probe, self.counter, 1)],
                ceil_bps=STREAM_BPS).build().to_dict())
        self.start()
        self.whole = self.standing()

    def start(self) -> None:
        """Have the agent enforce the policy."""
        self.controller.reports.clear()
        self.edge.start()
        self.controller.wait_report(
            lambda r: r['applied_generation'] and len(r['ports']) == 4
            and r['health'] == 'ok', 30)

    def close(self) -> None:
        self.edge.stop()
        self.controller.stop()
        self.bed.close()

    def first_bytes(self) -> int:
        """On the wire, of all that comes before unmanaged traffic but data."""
        def read() -> int:
            seen = htb.Uplink(kernel, 'uplink0').stats()
            return sum(max(84 * item.sent_packets,
                           item.sent_bytes + 24 * item.sent_packets)
                       for minor, item in seen.items()
                       if minor in (minors.HOST, minors.CONTROL))
        found: int = beds.in_netns(self.bed.ns('h1'), read)
        return found

    def standing(self) -> tuple[Any, Any]:
        """Classes and classification; None for what cannot be read.

        How long a port's turns are, and whether super-packets are cut,
        follows from what is sent.
        """
        def read() -> tuple[Any, Any]:
            try:
                found = htb.Uplink(kernel, 'uplink0').snapshot().tree
                tree = {minor: dataclasses.replace(
                    item, packet_bytes=None, quantum_bytes=0
                    if minors.has_turns(minor) or minors.is_control(minor)
                    else item.quantum_bytes)
                    for minor, item in found.items()}
                return tree, self.edge.classifier().dump()
            except Exception:  # whatever it is, it does not stand
                return None, None
        found: tuple[Any, Any] = beds.in_netns(self.bed.ns('h1'), read)
        return found


class _Unenforced:
    """Adds up the time in which something is not as it was."""

    def __init__(self, site: Site):
        self.site = site
        self.seconds = 0.0
        self._before = site.standing()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        last_s, is_right = time.monotonic(), True
        while not self._stop.wait(0.02):
            stands = self.site.standing() == self._before
            now_s = time.monotonic()
            if not is_right:
                self.seconds += now_s - last_s
            last_s, is_right = now_s, stands

    def __enter__(self) -> '_Unenforced':
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


# -- without a defence --------------------------------------------------------

@contextlib.contextmanager
def _unshaped(site: Site) -> Iterator[None]:
    """Take the agent and all that it made off the hypervisor."""
    site.edge.stop()
    site.edge.once('--cleanup')
    try:
        yield
    finally:
        site.start()


@contextlib.contextmanager
def _frozen(site: Site) -> Iterator[None]:
    """Let the agent see nothing."""
    assert site.edge.process is not None
    site.edge.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        site.edge.process.send_signal(signal.SIGCONT)
        beds.wait_for(lambda: site.standing() == site.whole, 30,
                      'the classes again')


# -- attacks ------------------------------------------------------------------

Act = Callable[[Site], contextlib.AbstractContextManager[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Attack:
    """
    :ivar begin: attacks while its context lasts.
    :ivar defence: what the coflow keeps its rate by.
    :ivar off: takes the defence away meanwhile.
    :ivar undefended: what is done without the defence, where that differs.
    """

    begin: Act
    defence: str = 'a class for each coflow and port'
    off: Act = _unshaped
    undefended: Act | None = None


def _udp(frame_bytes: int, whole: bool = False) -> Act:
    return lambda site: floods.udp(site.hostile, site.sink.ip, frame_bytes,
                                   2 * LINK_BPS, whole)


@contextlib.contextmanager
def _many_connections(site: Site) -> Iterator[None]:
    flows = [beds.Flow(site.hostile, site.sink, 5100 + number).start()
             for number in range(16)]
    try:
        yield
    finally:
        for flow in flows:
            flow.close()


def _broadcast(make: Callable[[Site], list[Any]], from_member: bool = False
               ) -> Act:
    return lambda site: frames.flood(
        site.member if from_member else site.hostile, make(site), 2e7)


def _raw(make: Callable[[Site], list[Any]],
         to_macs: Callable[[Site], list[str]] = lambda site: [site.sink.mac],
         **options: Any) -> Act:
    return lambda site: floods.raw(site.hostile, make(site), to_macs(site),
                                   2 * LINK_BPS, **options)


def answers(accomplice: Any, vm: Any) -> Any:
    """Answer a VM meanwhile, more often than a receiver of TCP has to: once
    per 128 KiB at the speed of the link.
    """
    return floods.raw(accomplice, [(0x88B5, bytes(46))], [vm.mac],
                      100 * 8 * 84, [accomplice.mac])


@contextlib.contextmanager
def _answered(site: Site) -> Iterator[None]:
    """Flood without losses, as TCP sends."""
    with floods.udp(site.hostile, site.sink.ip, 1442, 2 * LINK_BPS,
                    waiting_bytes=50_000), answers(site.counter,
                                                   site.hostile):
        yield


def _empty_segments(site: Site) -> list[Any]:
    return [frames.ipv4(site.member.ip, site.sink.ip, frames.TCP,
                        frames.segment())]


def _spoofed(site: Site) -> list[Any]:
    return [frames.ipv4(site.member.ip, site.sink.ip, frames.UDP,
                        frames.udp(9))]


def _large(site: Site) -> list[Any]:
    return [frames.ipv4(site.hostile.ip, site.sink.ip, frames.UDP,
                        frames.udp(9) + bytes(900))]


def _large6(site: Site) -> list[Any]:
    return [frames.ipv6(site.hostile.ip6, site.sink.ip6, frames.UDP,
                        frames.udp(9) + bytes(900))]


def _tagged(site: Site) -> list[Any]:
    return [frames.tagged(packet) for packet in _large(site)]


def _fragments(site: Site) -> list[Any]:
    return [frames.ipv4(site.hostile.ip, site.sink.ip, frames.UDP,
                        bytes(1000), fragment=fragment)
            for fragment in (0x2000, 0x2080, 0x100)]


def _arp(site: Site) -> list[Any]:
    return [(0x0806, struct.pack(
        '!HHBBH6s4s6s4s', 1, 0x0800, 6, 4, 1, b'\x02\0\0\0\0\x09',
        socket.inet_aton(site.hostile.ip), bytes(6),
        bytes([10, 77, 9, number])) + bytes(18)) for number in range(50)]


def unknown_macs() -> list[str]:
    return [f'02:01:00:00:{number >> 8:02x}:{number & 255:02x}'
            for number in range(1500)]


def other_senders() -> list[str]:
    """Addresses that switches learn, unlike those that nobody has."""
    return [f'02:02:00:00:{number >> 8:02x}:{number & 255:02x}'
            for number in range(4000)]


def _once(act: Callable[[Site], None]) -> Act:
    """Do something in the middle of the measurement, beside a flood."""
    @contextlib.contextmanager
    def attack(site: Site) -> Iterator[None]:
        timer = threading.Timer(_SETTLE_S + 0.5, act, (site,))
        timer.start()
        try:
            with _udp(1442)(site):
                yield
        finally:
            timer.join()
    return attack


def _run(site: Site, *command: str) -> None:
    beds.run(*command, netns=site.bed.ns('h1'))


def _kill(site: Site) -> None:
    site.edge.stop(signal.SIGKILL)
    site.edge.start()


def _tampering(act: Callable[[Site], None]) -> Attack:
    return Attack(_once(act), 'the agent notices others\' changes', _frozen)


ATTACKS: dict[str, Attack | None] = {
    'none': None,
    'udp, frames of 1442 bytes': Attack(_udp(1442)),
    'udp, frames of 60 bytes': Attack(_udp(60)),
    'udp, super-packets of 64 KB': Attack(_udp(1442, True)),
    '16 TCP connections': Attack(_many_connections),
    'TCP segments without data from the coflow': Attack(
        _broadcast(_empty_segments, True),
        'control packets have a class with a limit'),
    "the coflow's addresses from another port": Attack(
        _broadcast(_spoofed), 'a packet is told by its port'),
    'fragments at twice the link': Attack(_raw(_fragments)),
    'ARP requests': Attack(_broadcast(_arp)),
    'udp over IPv6': Attack(_raw(_large6)),
    'udp with a VLAN tag': Attack(_raw(_tagged)),
    'udp to everybody': Attack(_raw(_large, lambda _: [EVERYBODY])),
    'udp to an address that nobody has': Attack(
        _raw(_large, lambda _: [NOBODY])),
    'udp to 1,500 addresses that nobody has': Attack(
        _raw(_large, lambda _: unknown_macs())),
    'udp from 4,000 addresses': Attack(
        _raw(_large, from_macs=other_senders())),
    'udp, answered by an accomplice': Attack(_answered),
    'nft flush ruleset, udp': _tampering(lambda site: _run(
        site, 'nft', 'flush', 'ruleset')),
    'tc class change, udp': _tampering(lambda site: _run(
        site, 'tc', 'class', 'change', 'dev', 'uplink0', 'parent', '7000:10',
        'classid', '7000:11', 'htb', 'rate', '1mbit', 'ceil', '1mbit')),
    'tc qdisc del root, udp': _tampering(lambda site: _run(
        site, 'tc', 'qdisc', 'del', 'dev', 'uplink0', 'root')),
    'kill -9 of the agent, udp': Attack(
        _once(_kill), 'the kernel shapes without the agent', _unshaped,
        _udp(1442)),
}


def rows(only: str = '') -> Iterator[Row]:
    """:param only: attacks whose name contains this."""
    for how in ('bpf', 'nft'):
        chosen = {name: attack for name, attack in ATTACKS.items()
                  if only in name and name.startswith('nft ') == (how == 'nft')
                  }
        if chosen:
            yield from _rows(chosen, how)


def _rows(chosen: Mapping[str, Attack | None], how: str) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix='hostile') as directory:
        site = Site(pathlib.Path(directory), how)
        try:
            for name, attack in chosen.items():
                if attack is None:
                    yield measure(site, name, contextlib.nullcontext())
                    continue
                row = measure(site, name, attack.begin(site))
                with attack.off(site):
                    bare = measure(site, name, (
                        attack.undefended or attack.begin)(site))
                yield dataclasses.replace(
                    row, defence=attack.defence,
                    coflow_share_undefended=bare.coflow_share)
        finally:
            site.close()


def measure(site: Site, name: str,
            attack: contextlib.AbstractContextManager[Any]) -> Row:
    flows: list[beds.Flow] = []
    with contextlib.ExitStack() as stack:
        # Numbered datagrams at half of their class's rate.
        stream = stack.enter_context(datagrams.Stream(
            site.probe, site.counter, STREAM_BPS / 2, _STREAM_PORT))
        requests = floods.Requests(site.bed, 'h1', 'h2',
                                   site.addresses['h1'])
        for vm, port in ((site.member, 5001), (site.polite, 5002)):
            flow = beds.Flow(vm, site.sink, port).start()
            flows.append(flow)
            stack.callback(flow.close)
        unenforced = stack.enter_context(_Unenforced(site))
        stack.enter_context(attack)
        time.sleep(_SETTLE_S)
        stack.enter_context(requests)
        from_s = [flow.now_s() for flow in flows]
        first_bytes = site.first_bytes()
        ping_ms = floods.ping_ms(site.bed, 'h1', site.addresses['h2'],
                                 _PINGS, _MEASURE_S / _PINGS)
        rates = [flow.rate_bps(start_s, start_s + _MEASURE_S)
                 for flow, start_s in zip(flows, from_s, strict=True)]
        # A class that was made anew counts from nothing.
        first_bytes = max(0, site.first_bytes() - first_bytes)
        took_s = flows[0].now_s() - from_s[0]
    left_bps = ((1 - MARGIN) * LINK_BPS - COFLOW_BPS - STREAM_BPS / 2
                - 8 * first_bytes / took_s)
    return Row(name, round(floods.percentile(ping_ms, 0.99), 2),
               round(requests.ok_share(), 3),
               round(rates[0] / (GOODPUT * COFLOW_BPS), 3),
               round(rates[1] / (GOODPUT * left_bps), 3), stream.lost,
               round(unenforced.seconds, 2))
