# SPDX-License-Identifier: Apache-2.0

"""What coflows, the host and polite VMs keep while somebody attacks.

``python -m benchmarks.hostile [--json]`` (root; four minutes) builds two
hypervisors of network namespaces behind a bottleneck of 100 Mbit/s that counts
like Ethernet, without back-pressure. One runs the real ``virtco-edge``. A
coflow that is promised 60 Mbit/s, a polite TCP sender and a stream of
numbered datagrams in a coflow of its own run all the time; each row is one
attack beside them:

* ``host_ping_p99_ms``: round trip of the hypervisor's own ping.
* ``host_requests_ok``: share of its requests (connect, ask, 4 KiB) in 50 ms.
* ``coflow_share``: of what the coflow is promised, on the wire.
* ``unmanaged_share``: of what the coflows, their control packets and the
  host's own traffic leave, for the polite sender.
* ``lost_packets``: numbered datagrams that never arrived.
* ``seconds_unenforced``: time in which classes or classification were not as
  before the attack, looked at every 20 ms.

The last rows are attacks from other hypervisors on the link on which a coflow
arrives, by 1 to 16 VMs that send datagrams together at four times its speed,
with a real controller and four agents. There the coflow begins to send 2 s
after the flood, and ``seconds_unenforced`` is the time from then on until it
has 95 % of its promise; ``coflow_share`` is of what the policy promises (all
but 2 % of the link), ``unmanaged_share`` of what that leaves; a lost packet is
a lost ping.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import json
import pathlib
import signal
import socket
import struct
import tempfile
import threading
import time
from typing import Any

from edge_module.classify import nft
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from edge_module.tcplan import minors
from tests.netns.edge import bed as beds
from tests.netns.edge import cloud as clouds
from tests.netns.edge import controller as controllers
from tests.netns.edge import datagrams
from tests.netns.edge import floods
from tests.netns.edge import frames
from tests.netns.edge import policies
from tests.netns.edge import process

LINK_BPS = 100e6
MARGIN = 0.02
COFLOW_BPS = 60e6
STREAM_BPS = 2e6
_PINGS = 150
_MEASURE_S = 3.0
_SETTLE_S = 0.7
# Payload of a full frame per byte on the wire.
GOODPUT = 1448 / 1538
_STREAM_PORT = 7300


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    attack: str
    host_ping_p99_ms: float
    host_requests_ok: float
    coflow_share: float
    unmanaged_share: float
    lost_packets: int
    seconds_unenforced: float


class Site:
    """Two hypervisors and those who send; one agent."""

    def __init__(self, directory: pathlib.Path):
        self.bed = beds.Bed(2)
        floods.count_like_ethernet(self.bed, 'h2', LINK_BPS)
        self.addresses = floods.address_hosts(self.bed)
        (self.member, self.polite, self.hostile, self.probe) = (
            self.bed.add_vm('h1') for _ in range(4))
        self.sink, self.counter = (self.bed.add_vm('h2') for _ in range(2))
        self.controller = controllers.Controller(self.bed.ns('h1'))
        self.edge = process.EdgeProcess(
            self.bed, 'h1', directory, LINK_BPS, link_margin=MARGIN,
            audit_interval_s=3600)
        self.controller.set_policy(policies.PolicyBuilder(
            'h1', (1 - MARGIN) * LINK_BPS).coflow(
                'C1', COFLOW_BPS, [(self.member, self.sink, 1)],
                ceil_bps=COFLOW_BPS).coflow(
                'C2', STREAM_BPS, [(self.probe, self.counter, 1)],
                ceil_bps=STREAM_BPS).build().to_dict())
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

        How long a port's turns are follows from what it sends.
        """
        def read() -> tuple[Any, Any]:
            try:
                found = htb.Uplink(kernel, 'uplink0').snapshot().tree
                tree = {minor: dataclasses.replace(item, quantum_bytes=0)
                        if minors.has_turns(minor) else item
                        for minor, item in found.items()}
                return tree, nft.NftClassifier(kernel).dump()[0]
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


# -- attacks ------------------------------------------------------------------

Attack = Callable[[Site], contextlib.AbstractContextManager[Any]]


def _udp(frame_bytes: int, whole: bool = False) -> Attack:
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


def _raw(make: Callable[[Site], list[Any]], from_member: bool = False
         ) -> Attack:
    return lambda site: frames.flood(
        site.member if from_member else site.hostile, make(site), 2e7)


def _empty_segments(site: Site) -> list[Any]:
    return [frames.ipv4(site.member.ip, site.sink.ip, frames.TCP,
                        frames.segment())]


def _spoofed(site: Site) -> list[Any]:
    return [frames.ipv4(site.member.ip, site.sink.ip, frames.UDP,
                        frames.udp(9))]


def _fragments(site: Site) -> list[Any]:
    return [frames.ipv4(site.hostile.ip, site.sink.ip, frames.UDP,
                        bytes(1000), fragment=fragment)
            for fragment in (0x2000, 0x2080, 0x100)]


def _arp(site: Site) -> list[Any]:
    return [(0x0806, struct.pack(
        '!HHBBH6s4s6s4s', 1, 0x0800, 6, 4, 1, b'\x02\0\0\0\0\x09',
        socket.inet_aton(site.hostile.ip), bytes(6),
        bytes([10, 77, 9, number])) + bytes(18)) for number in range(50)]


def _once(act: Callable[[Site], None]) -> Attack:
    """Something that is done in the middle of the measurement."""
    @contextlib.contextmanager
    def attack(site: Site) -> Iterator[None]:
        timer = threading.Timer(_SETTLE_S + 0.5, act, (site,))
        timer.start()
        try:
            yield
        finally:
            timer.join()
    return attack


def _run(site: Site, *command: str) -> None:
    beds.run(*command, netns=site.bed.ns('h1'))


def _kill(site: Site) -> None:
    site.edge.stop(signal.SIGKILL)
    site.edge.start()


ATTACKS: dict[str, Attack] = {
    'none': lambda site: contextlib.nullcontext(),
    'udp, frames of 1442 bytes': _udp(1442),
    'udp, frames of 60 bytes': _udp(60),
    'udp, super-packets of 64 KB': _udp(1442, True),
    '16 TCP connections': _many_connections,
    'TCP segments without data from the coflow': _raw(_empty_segments, True),
    "the coflow's addresses from another port": _raw(_spoofed),
    'fragments': _raw(_fragments),
    'ARP requests': _raw(_arp),
    'nft flush ruleset': _once(lambda site: _run(
        site, 'nft', 'flush', 'ruleset')),
    'tc class change': _once(lambda site: _run(
        site, 'tc', 'class', 'change', 'dev', 'uplink0', 'parent', '1:10',
        'classid', '1:11', 'htb', 'rate', '1mbit', 'ceil', '1mbit')),
    'tc qdisc del root': _once(lambda site: _run(
        site, 'tc', 'qdisc', 'del', 'dev', 'uplink0', 'root')),
    'kill -9 of the agent': _once(_kill),
}


def measure(site: Site, name: str, attack: Attack) -> Row:
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
        stack.enter_context(attack(site))
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


# -- from other hypervisors --------------------------------------------------

@contextlib.contextmanager
def _from_elsewhere(cloud: clouds.Cloud, senders: int, spoofs: bool
                    ) -> Iterator[None]:
    """Four times the speed of the link in all."""
    each_bps = 4 * LINK_BPS / senders
    frame = [frames.ipv4(f'10.77.9.{number}', f'10.88.9.{number}', frames.UDP,
                         frames.udp(9) + bytes(900)) for number in range(8)]
    with contextlib.ExitStack() as stack:
        for vm in cloud.hostile[:senders]:
            stack.enter_context(
                floods.raw(vm, frame, cloud.sink.mac, each_bps) if spoofs
                else floods.udp(vm, cloud.sink.ip, 1442, each_bps))
        yield


def measure_receiver(cloud: clouds.Cloud, senders: int, spoofs: bool
                     ) -> Row:
    """A coflow that begins to send where others flood already."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_from_elsewhere(cloud, senders, spoofs))
        time.sleep(2)
        flow = beds.Flow(cloud.member, cloud.sink).start()
        stack.callback(flow.close)
        time.sleep(4)
        wanted_bps = GOODPUT * cloud.promised_bps()
        requests = stack.enter_context(floods.Requests(
            cloud.bed, 'h1', 'h2', '192.168.9.1'))
        from_s, arrived = flow.now_s(), cloud.arrived_bytes()
        ping_ms = floods.ping_ms(cloud.bed, 'h1', '192.168.9.2', _PINGS,
                                 _MEASURE_S / _PINGS)
        took_s = flow.now_s() - from_s
        arrived_bps = 8 * (cloud.arrived_bytes() - arrived) / took_s
        rate_bps = flow.rate_bps(from_s, from_s + took_s)
    late_s = next((at / 10 for at in range(100) if flow.rate_bps(
        at / 10, at / 10 + 0.5) >= 0.95 * wanted_bps), 10.0)
    left_bps = (1 - MARGIN) * LINK_BPS - wanted_bps / GOODPUT
    name = (f'udp from {senders} VMs elsewhere'
            + (', spoofed' if spoofs else ''))
    return Row(name, round(floods.percentile(ping_ms, 0.99), 2),
               round(requests.ok_share(), 3), round(rate_bps / wanted_bps, 3),
               round((arrived_bps - rate_bps / GOODPUT) / left_bps, 3),
               sum(item == float('inf') for item in ping_ms),
               round(late_s, 2))


ELSEWHERE = [(1, False), (2, False), (16, False), (1, True), (16, True)]


def receiver_rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix='hostile') as directory:
        cloud = clouds.Cloud(directory, LINK_BPS,
                             max(senders for senders, _ in ELSEWHERE))
        try:
            cloud.start_coflow()
            for senders, spoofs in ELSEWHERE:
                yield measure_receiver(cloud, senders, spoofs)
        finally:
            cloud.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--only', metavar='TEXT', default='',
                        help='attacks whose name contains this')
    shown = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='hostile') as directory:
        site = Site(pathlib.Path(directory))
        try:
            rows = []
            for name, attack in ATTACKS.items():
                if shown.only not in name:
                    continue
                rows.append(measure(site, name, attack))
                if not shown.json:
                    print(_line(rows[-1]), flush=True)
        finally:
            site.close()
    for row in receiver_rows() if not shown.only else ():
        rows.append(row)
        if not shown.json:
            print(_line(row), flush=True)
    if shown.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))


def _line(row: Row) -> str:
    return (f'{row.attack:42} ping {row.host_ping_p99_ms:7.2f} ms  requests '
            f'{row.host_requests_ok:5.1%}  coflow {row.coflow_share:5.1%}  '
            f'unmanaged {row.unmanaged_share:5.1%}  lost {row.lost_packets:4}'
            f'  unenforced {row.seconds_unenforced:.2f} s')


if __name__ == '__main__':
    main()
