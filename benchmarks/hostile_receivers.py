# SPDX-License-Identifier: Apache-2.0

"""Attacks from other hypervisors on the link on which a coflow arrives."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import tempfile
import time
import types
from typing import Any

from benchmarks import hostile_attacks
from benchmarks.hostile_row import GOODPUT
from benchmarks.hostile_row import LINK_BPS
from benchmarks.hostile_row import MARGIN
from benchmarks.hostile_row import Row
from tests.netns.edge import bed as beds
from tests.netns.edge import cloud as clouds
from tests.netns.edge import floods
from tests.netns.edge import frames

_OF_THE_HOST = '02:03:00:00:00:01'
_PINGS = 150
_MEASURE_S = 3.0


Packets = list[tuple[int, bytes]]


@dataclasses.dataclass(frozen=True, slots=True)
class Attack:
    """VMs that send together at a multiple of the link's speed.

    :ivar speed: that multiple. Shortest frames at four times the speed would
        be 600,000 each second, and the row a matter of processors.
    :ivar make: packets of a VM; None: through its own kernel.
    :ivar to_macs: whom they reach; None: the receiver of the coflow.
    :ivar from_macs: whom these claim to be; None: always the same one.
    :ivar prepare: what they do first; it is not undone.
    :ivar reached: who receives what their own kernels send.
    :ivar after_s: when they begin, from the coflow's beginning on.
    :ivar is_first: whether no host has limited, or heard of, anybody before.
    :ivar is_answered: whether a VM beside the receiver answers the first.
    """

    name: str
    n_senders: int = 1
    make: Callable[[clouds.Cloud, Any], Packets] | None = None
    to_macs: Callable[[clouds.Cloud], list[str]] | None = None
    prepare: Callable[[clouds.Cloud], None] = lambda cloud: None
    reached: Callable[[clouds.Cloud], Any] = lambda cloud: cloud.sink
    speed: float = 4
    from_macs: list[str] | None = None
    after_s: float = -2
    is_first: bool = False
    is_answered: bool = False

    @contextlib.contextmanager
    def begin(self, cloud: clouds.Cloud) -> Iterator[None]:
        each_bps = self.speed * LINK_BPS / self.n_senders
        to_macs = self.to_macs(cloud) if self.to_macs else [cloud.sink.mac]
        options = {'from_macs': self.from_macs} if self.from_macs else {}
        self.prepare(cloud)
        with contextlib.ExitStack() as stack:
            if self.is_answered:
                stack.enter_context(hostile_attacks.answers(
                    cloud.other_sink, cloud.hostile[0]))
            for vm in cloud.hostile[:self.n_senders]:
                stack.enter_context(
                    floods.udp(vm, self.reached(cloud).ip, 1442, each_bps)
                    if self.make is None else floods.raw(
                        vm, self.make(cloud, vm), to_macs, each_bps,
                        **options))
            yield


def _spoofed(_cloud: clouds.Cloud, _vm: Any) -> Packets:
    return [frames.ipv4(f'10.77.9.{number}', f'10.88.9.{number}', frames.UDP,
                        frames.udp(9) + bytes(900)) for number in range(8)]


def _large(cloud: clouds.Cloud, vm: Any) -> Packets:
    return [frames.ipv4(vm.ip, cloud.sink.ip, frames.UDP,
                        frames.udp(9) + bytes(900))]


def _large6(cloud: clouds.Cloud, vm: Any) -> Packets:
    return [frames.ipv6(vm.ip6, cloud.sink.ip6, frames.UDP,
                        frames.udp(9) + bytes(900))]


def _tagged(cloud: clouds.Cloud, vm: Any) -> Packets:
    return [frames.tagged(packet) for packet in _large(cloud, vm)]


def _fragments(cloud: clouds.Cloud, vm: Any) -> Packets:
    return [frames.ipv4(vm.ip, cloud.sink.ip, frames.UDP, bytes(1000),
                        fragment=fragment)
            for fragment in (0x2000, 0x2080, 0x100)]


def _data(cloud: clouds.Cloud, vm: Any) -> Packets:
    return [frames.ipv4(vm.ip, cloud.sink.ip, frames.TCP,
                        frames.segment(900))]


def _as_the_accomplice(cloud: clouds.Cloud, _vm: Any) -> Packets:
    return _large(cloud, cloud.other_sink)


def _acknowledgements(cloud: clouds.Cloud, vm: Any) -> Packets:
    return [frames.ipv4(vm.ip, cloud.sink.ip, frames.TCP, frames.segment())]


def _claim_the_address(cloud: clouds.Cloud) -> None:
    """A network of its own may have any address, also that of a victim."""
    cloud.hostile[1].mac = cloud.sink.mac
    cloud.know(cloud.hostile[1])


def _hide_behind_the_host(cloud: clouds.Cloud) -> None:
    """Nobody knows the VM, whose host has the address that it claims."""
    cloud.know(cloud.hostile[0], False)
    beds.run('ip', 'link', 'set', 'dev', 'brv', 'address', _OF_THE_HOST,
             netns=cloud.bed.ns('h3'))


def _launch(cloud: clouds.Cloud) -> None:
    """The flooder and a VM beside the victim are a job, of a larger size.

    One that is served first, as a job of unknown size is, has the link by
    its rate: the coflow is promised next to nothing then.
    """
    _place(cloud, 'b', cloud.other_sink)


def _launch_elsewhere(cloud: clouds.Cloud) -> None:
    """Both VMs of a job are on other hosts than the victim."""
    cloud.know(cloud.hostile[1])
    _place(cloud, 'c', cloud.hostile[1])


def _place(cloud: clouds.Cloud, name: str, peer: Any) -> None:
    cloud.know(cloud.hostile[0])
    cloud.place(name, (cloud.hostile[0], peer), '[[0, 1e13], [0, 0]]')
    beds.wait_for(lambda: any(
        flow['dst_ip'] == peer.ip for flow in cloud.policy('h3')['flows']),
        20, 'its entry')


def _of_the_job(cloud: clouds.Cloud, vm: Any) -> Packets:
    return [frames.ipv4(vm.ip, cloud.hostile[1].ip, frames.UDP,
                        frames.udp(9) + bytes(900))]


ATTACKS = [
    Attack('udp from 1 VM elsewhere'),
    Attack('udp from 2 VMs elsewhere', 2),
    Attack('udp from 16 VMs elsewhere', 16),
    Attack('udp from 1 VM elsewhere, spoofed', 1, _spoofed),
    Attack('udp from 16 VMs elsewhere, spoofed', 16, _spoofed),
    Attack('udp over IPv6 from elsewhere', 1, _large6),
    Attack('udp with a VLAN tag from elsewhere', 1, _tagged),
    Attack('fragments from elsewhere', 1, _fragments),
    Attack('udp to everybody from elsewhere', 1, _large,
           lambda cloud: [hostile_attacks.EVERYBODY]),
    Attack('udp to nobody from elsewhere', 1, _large,
           lambda cloud: [hostile_attacks.NOBODY]),
    Attack('udp to 1,500 nobodies from elsewhere', 1, _large,
           lambda cloud: hostile_attacks.unknown_macs()),
    Attack('TCP segments without data from 16 VMs elsewhere', 16,
           _acknowledgements, speed=0.5),
    Attack("udp to a receiver's address in two networks", 1,
           prepare=_claim_the_address),
    Attack('udp to the address of the receiving host', 1,
           prepare=lambda cloud: cloud.route_to_hosts(cloud.hostile[0]),
           reached=lambda cloud: types.SimpleNamespace(ip=clouds.HOST_IP)),
    Attack('udp from a VM that nobody knows elsewhere', 1,
           prepare=lambda cloud: cloud.know(cloud.hostile[0], False)),
    Attack('udp from a VM that nobody knows to nobody', 1, _large,
           lambda cloud: [hostile_attacks.NOBODY]),
    Attack('udp from a VM that nobody knows, as its host', 1, _large,
           from_macs=[_OF_THE_HOST], prepare=_hide_behind_the_host),
    Attack('udp from a VM of a job elsewhere', 1, prepare=_launch,
           reached=lambda cloud: cloud.other_sink),
    Attack('udp from 4,000 addresses elsewhere', 1, _large,
           from_macs=hostile_attacks.other_senders()),
    Attack('TCP data from 4,000 addresses of 16 VMs elsewhere', 16, _data,
           from_macs=hostile_attacks.other_senders()),
    Attack('udp as an accomplice, who answers, from elsewhere', 1,
           _as_the_accomplice, is_answered=True),
    Attack('udp of a job elsewhere to everybody', 1, _of_the_job,
           lambda cloud: [hostile_attacks.EVERYBODY],
           prepare=_launch_elsewhere, is_first=True),
    Attack('udp of a job elsewhere to nobody', 1, _of_the_job,
           lambda cloud: [hostile_attacks.NOBODY], prepare=_launch_elsewhere,
           is_first=True),
    Attack('udp of a job elsewhere to an accomplice, who answers', 1,
           _of_the_job, lambda cloud: [cloud.other_sink.mac],
           prepare=_launch_elsewhere, is_first=True, is_answered=True),
    Attack('udp from elsewhere as the coflow begins', 16, after_s=0,
           is_first=True),
    Attack('udp from elsewhere at first contact', 16, after_s=1.5,
           is_first=True),
]
DEFENCE = 'limits at the hypervisors that send'


def measure(cloud: clouds.Cloud, attack: Attack,
            promised_bps: float | None = None) -> tuple[Row, float]:
    """Measure a coflow beside others that flood.

    :param promised_bps: of which the row tells the coflow's share; None: what
        it is promised now, which comes back with the row.
    """
    with contextlib.ExitStack() as stack:
        if attack.after_s < 0:
            stack.enter_context(attack.begin(cloud))
            time.sleep(-attack.after_s)
        flow = beds.Flow(cloud.member, cloud.sink).start()
        stack.callback(flow.close)
        both_s = 0.0
        if attack.after_s >= 0:
            time.sleep(attack.after_s)
            both_s = flow.now_s()
            stack.enter_context(attack.begin(cloud))
        time.sleep(4)
        promised_bps = promised_bps or cloud.promised_bps()
        wanted_bps = GOODPUT * promised_bps
        requests = stack.enter_context(floods.Requests(
            cloud.bed, 'h1', 'h2', '192.168.9.1'))
        from_s, arrived = flow.now_s(), cloud.arrived_bytes()
        ping_ms = floods.ping_ms(cloud.bed, 'h1', clouds.HOST_IP, _PINGS,
                                 _MEASURE_S / _PINGS)
        took_s = flow.now_s() - from_s
        arrived_bps = 8 * (cloud.arrived_bytes() - arrived) / took_s
        rate_bps = flow.rate_bps(from_s, from_s + took_s)
    late_s = next((at / 10 for at in range(100) if flow.rate_bps(
        both_s + at / 10, both_s + at / 10 + 0.5) >= 0.95 * wanted_bps), 10.0)
    left_bps = (1 - MARGIN) * LINK_BPS - promised_bps
    return Row(attack.name, round(floods.percentile(ping_ms, 0.99), 2),
               round(requests.ok_share(), 3), round(rate_bps / wanted_bps, 3),
               round((arrived_bps - rate_bps / GOODPUT) / left_bps, 3),
               sum(item == float('inf') for item in ping_ms),
               round(late_s, 2)), promised_bps


def rows(only: str = '') -> Iterator[Row]:
    """:param only: attacks whose name contains this."""
    chosen = [attack for attack in ATTACKS if only in attack.name]
    yield from _rows([attack for attack in chosen if not attack.is_first])
    for attack in chosen:
        if attack.is_first:
            yield from _rows([attack])


def _rows(attacks: list[Attack]) -> Iterator[Row]:
    """Measure attacks one after the other, by a site of their own."""
    if not attacks:
        return
    with tempfile.TemporaryDirectory(prefix='hostile') as directory:
        cloud = clouds.Cloud(directory, LINK_BPS, max(
            attack.n_senders for attack in ATTACKS))
        try:
            cloud.start_coflow()
            # Bytes before its class would be background, with less promised.
            beds.wait_for(cloud.is_classified, 20, 'its entries')
            found = [measure(cloud, attack) for attack in attacks]
            for edge in cloud.edges[2:]:
                edge.stop()
                edge.once('--cleanup')
            for attack, (row, promised_bps) in zip(attacks, found,
                                                   strict=True):
                bare, _ = measure(cloud, attack, promised_bps)
                yield dataclasses.replace(
                    row, defence=DEFENCE,
                    coflow_share_undefended=bare.coflow_share)
        finally:
            cloud.close()
