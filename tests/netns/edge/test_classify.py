# SPDX-License-Identifier: Apache-2.0

"""Whose packets reach which class, over every kind of network."""

import contextlib
import os
import socket
import struct
import time
import types

import pytest

from edge_module.classify import bpf_maps
from edge_module.classify import nft_text
from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import operations
from edge_module.tcplan import minors
from tests.netns.edge import bed as beds
from tests.netns.edge import floods
from tests.netns.edge import frames
from tests.netns.edge import policies

LINK_BPS = 40e6
C1 = 0x11  # minor of the first coflow's only destination
C2 = 0x13

pytestmark = pytest.mark.netns
both = pytest.mark.parametrize('how', ['bpf', 'nft'], indirect=True)
by_nft = pytest.mark.parametrize('how', ['nft'], indirect=True)


def _send_udp(vm, dst_ip, count=40, priority=None, tos=None, port=9,
              src_ip=None, size_bytes=1000):
    def send():
        family = socket.AF_INET6 if ':' in dst_ip else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            if src_ip is not None:
                sock.setsockopt(socket.SOL_IP, socket.IP_TRANSPARENT, 1)
                sock.bind((src_ip, 0))
            if tos is not None:
                sock.setsockopt(socket.SOL_IP, socket.IP_TOS, tos)
            if priority is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY,
                                priority)
            for _ in range(count):
                sock.sendto(bytes(size_bytes), (dst_ip, port))
    beds.in_netns(vm.netns, send)


def _learn(src, dst):
    """Let bridges and neighbours know each other before counting."""
    for family, address in ((socket.AF_INET, dst.ip),
                            (socket.AF_INET6, dst.ip6)):
        receiver = beds.in_netns(dst.netns, socket.socket, family,
                                 socket.SOCK_DGRAM)
        with receiver:
            receiver.bind((address, 7))
            receiver.setblocking(False)

            def heard():
                _send_udp(src, address, 1, port=7)
                with contextlib.suppress(BlockingIOError):
                    return receiver.recv(2000)

            beds.wait_for(heard, 10, f'a packet at {address}')


def _sent(edge, action, least_bytes=40 * 1042):
    """Bytes per minor that an action sent, once these have gone."""
    # Packets of before may still wait for their turn.
    beds.wait_for(lambda: not any(stats.backlog_bytes
                                  for stats in edge.stats().values()),
                  5, 'empty queues')
    before = edge.stats()
    action()

    def now():
        return {minor: stats.sent_bytes - before[minor].sent_bytes
                for minor, stats in edge.stats().items()}

    beds.wait_for(lambda: now()[1] >= least_bytes, 5, f'packets, now {now()}')
    return now()


@both
@pytest.mark.parametrize('kind', [None, 'vlan', 'vxlan', 'geneve'])
def test_classes_survive_encapsulation(pair, kind):
    bed, edge = pair
    bridge = bed.add_segment('seg', kind) if kind else 'brv'
    if bridge is None:
        pytest.skip(f'this kernel has no {kind} devices')
    a, b = bed.add_vm('h1', bridge=bridge), bed.add_vm('h2', bridge=bridge)
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 5e6, [(a, b, 1)]).build())
    _learn(a, b)
    sent = _sent(edge, lambda: _send_udp(a, b.ip))
    assert sent[C1] >= 40 * 1042
    assert sent[2] + sent[3] < 2000


@both
def test_ipv6_and_ports(pair):
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS)
                    .coflow('C1', 5e6, [(a, b, 1)], ipv6=True)
                    .coflow('C2', 5e6, [(a, b, 1)], ipv6=True, port=5002)
                    .build())
    _learn(a, b)
    sent = _sent(edge, lambda: _send_udp(a, b.ip6))
    assert sent[C1] >= 40 * 1042 and sent[C2] == 0
    sent = _sent(edge, lambda: _send_udp(a, b.ip6, port=5002))
    assert sent[C2] >= 40 * 1042 and sent[C1] < 2000


@both
def test_coflows_over_one_pair_by_port(pair):
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS)
                    .coflow('C1', 5e6, [(a, b, 1)])
                    .coflow('C2', 5e6, [(a, b, 1)], port=5002).build())
    _learn(a, b)
    sent = _sent(edge, lambda: _send_udp(a, b.ip, port=5002))
    assert sent[C2] >= 40 * 1042 and sent[C1] < 2000
    sent = _sent(edge, lambda: _send_udp(a, b.ip, port=5003))
    assert sent[C1] >= 40 * 1042 and sent[C2] == 0


@both
@pytest.mark.parametrize('ipv6', [False, True])
def test_fragments_follow_their_first(pair, ipv6):
    """Datagrams of three fragments, of which only the first names a port."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 5e6, [(a, b, 1)], port=5002, ipv6=ipv6).build())
    _learn(a, b)
    address = b.ip6 if ipv6 else b.ip
    sent = _sent(edge, lambda: _send_udp(a, address, 20, port=5002,
                                         size_bytes=4000), 20 * 4000)
    assert sent[C1] >= 20 * 4000 and sent[3] < 2000
    sent = _sent(edge, lambda: _send_udp(a, address, 20, port=5003,
                                         size_bytes=4000), 20 * 4000)
    assert sent[3] >= 20 * 4000 and sent[C1] < 2000
    assert not edge.call('drift')
    # They are the same to one who has read nothing yet.
    counted = edge.counted()
    edge.enforcer.classifier.forget()
    assert edge.counted() == counted


def _follows_beside_a_flood(pair):
    """Whether fragments of a coflow follow their first, beside somebody's who
    sends nothing but first ones.
    """
    bed, edge = pair
    a, hostile, b = (bed.add_vm(host) for host in ('h1', 'h1', 'h2'))
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 5e6, [(a, b, 1)], port=5002).coflow(
        'C2', 5e6, [(hostile, b, 1)], port=5002).build())
    _learn(a, b)
    frames.send_all(hostile, [frames.ipv4(
        hostile.ip, b.ip, frames.UDP, frames.udp(5002)[:16], 0x2000,
        ident=ident) for ident in range(6000)])
    sent = _sent(edge, lambda: _send_udp(a, b.ip, 20, port=5002,
                                         size_bytes=4000), 20 * 4000)
    return sent[C1] >= 20 * 4000


@by_nft
@pytest.mark.parametrize('limit', [
    None, 'limit rate 9999/second burst 9999 packets'])
def test_a_flood_of_fragments_displaces_nobodys(pair, monkeypatch, limit):
    """Where no port has a limit, the flooder's take all places."""
    monkeypatch.setattr(nft_text, '_MOST_FRAGMENTED', 4000)
    if limit is not None:
        monkeypatch.setattr(nft_text, '_FRAGMENTING_LIMIT', limit)
    assert _follows_beside_a_flood(pair) == (limit is None)


@both
def test_tenants_with_equal_addresses(pair):
    bed, edge = pair
    bridge = bed.add_segment('seg', 'vxlan')
    a, b = (bed.add_vm('h1', '10.77.1.1'), bed.add_vm('h2', '10.77.1.2'))
    x, y = (bed.add_vm('h1', '10.77.1.1', bridge),
            bed.add_vm('h2', '10.77.1.2', bridge))
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS)
                    .coflow('C1', 5e6, [(a, b, 1)])
                    .coflow('C2', 5e6, [(x, y, 1)]).build())
    _learn(a, b)
    _learn(x, y)
    sent = _sent(edge, lambda: _send_udp(a, b.ip))
    assert sent[C1] >= 40 * 1042 and sent[C2] == 0
    sent = _sent(edge, lambda: _send_udp(x, y.ip))
    assert sent[C2] >= 40 * 1042 and sent[C1] == 0


@both
def test_an_address_pair_is_of_its_port_alone(pair):
    """Two VMs may both have it; the coflow is of one of them."""
    bed, edge = pair
    a, other, b = bed.add_vm('h1'), bed.add_vm('h1'), bed.add_vm('h2')
    address = '10.77.9.9'
    for vm in a, other:
        vm.ips.append(address)
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 5e6, [(types.SimpleNamespace(
            uuid=a.uuid, host='h1', ip=address), b, 1)]).build())
    for vm, is_sender in (a, True), (other, False):
        _learn(vm, b)
        sent = _sent(edge, lambda vm=vm: _send_udp(vm, b.ip, src_ip=address))
        assert sent[C1 if is_sender else minors.UNMANAGED] >= 40 * 1042
        # Less than a datagram: a VM may ask for a neighbour meanwhile.
        assert sent[minors.UNMANAGED if is_sender else C1] < 1042
        # Their own addresses are in no coflow.
        sent = _sent(edge, lambda vm=vm: _send_udp(vm, b.ip))
        assert sent[C1] == 0 and sent[minors.UNMANAGED] >= 40 * 1042


@both
@pytest.mark.parametrize('trick', [
    {'priority': 0x70000000 | C1}, {'priority': 0x70000000}, {'tos': 0x10},
    {'tos': 0xb8}, {'src_ip': '10.77.0.1'}])
def test_marks_buy_nothing(pair, trick):
    """A VM beside the coflow's one tries what its kernel lets it do."""
    bed, edge = pair
    member, cheat, sink = (bed.add_vm('h1'), bed.add_vm('h1'),
                           bed.add_vm('h2'))
    assert member.ip == '10.77.0.1'
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 5e6, [(member, sink, 1)]).build())
    _learn(cheat, sink)
    sent = _sent(edge, lambda: _send_udp(cheat, sink.ip, **trick))
    assert sent[C1] == 0 and sent[3] >= 38 * 1042


@both
def test_vm_with_several_ports(pair):
    bed, edge = pair
    first, second, sink = (bed.add_vm('h1'), bed.add_vm('h1'),
                           bed.add_vm('h2'))
    second.uuid = first.uuid  # one VM as far as the cloud is concerned
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS)
                    .coflow('C1', 5e6, [(first, sink, 1)])
                    .coflow('C2', 5e6, [(second, sink, 1)]).build())
    _learn(first, sink)
    _learn(second, sink)
    assert _sent(edge, lambda: _send_udp(first, sink.ip))[C1] >= 40 * 1042
    assert _sent(edge, lambda: _send_udp(second, sink.ip))[C2] >= 40 * 1042


@both
def test_ports_share_no_class_whatever_their_indexes(pair):
    """Many devices came and went between two that are there."""
    bed, edge = pair
    first, sink = bed.add_vm('h1'), bed.add_vm('h2')
    low = int(beds.run('cat', f'/sys/class/net/{first.dev}/ifindex',
                       netns=bed.ns('h1')))
    high = low + minors.N_PORTS - 1
    second = bed.add_vm('h1', ifindex=high)
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).build())
    both, alone = minors.of_ports([low, high]), minors.of_ports([high])
    assert both[low] == alone[high]
    _learn(first, sink)
    _learn(second, sink)
    # By IPv6 kernels send short packets that nobody asked for, at any time.
    sent = _sent(edge, lambda: _send_udp(first, sink.ip))
    assert sent[both[low]] >= 38 * 1042 and sent[both[high]] < 1042
    sent = _sent(edge, lambda: _send_udp(second, sink.ip))
    assert sent[both[high]] >= 38 * 1042 and sent[both[low]] < 1042
    beds.run('ip', 'link', 'del', 'dev', first.dev, netns=bed.ns('h1'))
    bed.vms.remove(first)
    edge.set_ports()
    _learn(second, sink)
    sent = _sent(edge, lambda: _send_udp(second, sink.ip))
    assert sent[alone[high]] >= 38 * 1042


@both
def test_entries_count_their_pairs(pair):
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 5e6, [(a, b, 1)]).build())
    _learn(a, b)
    before = sum(item.sent_bytes for item in edge.counted().values())
    _sent(edge, lambda: _send_udp(a, b.ip))
    counted = edge.counted()
    assert {(dev, entry.src_ip, entry.dst_ip) for dev, entry in counted} == {
        (a.dev, a.ip, b.ip)}
    grown = sum(item.sent_bytes for item in counted.values()) - before
    assert 40 * 1028 <= grown <= 40 * 1042


@both
def test_an_unknown_port_has_nothing_of_the_host(pair):
    """It shares what is unmanaged; the host's own packets are told apart."""
    bed, edge = pair
    # Else a bridge takes the least address of its ports, also of a new one.
    beds.run('ip', 'link', 'set', 'brv', 'address', '02:00:00:00:09:01',
             netns=bed.ns('h1'))
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 5e6, [(a, b, 1)]).build())
    unknown = bed.add_vm('h1')
    _learn(unknown, b)
    sent = _sent(edge, lambda: _send_udp(unknown, b.ip))
    assert sent[minors.UNKNOWN] >= 40 * 1042 and sent[2] < 2000
    addresses = floods.address_hosts(bed)
    assert floods.ping_ms(bed, 'h1', addresses['h2'], 1)[0] < 5000
    sent = _sent(edge, lambda: _send_udp(
        types.SimpleNamespace(netns=edge.netns), addresses['h2']))
    assert sent[2] >= 40 * 1042 and sent[minors.UNKNOWN] < 2000
    edge.enforcer.classifier.forget()
    assert not edge.call('drift')


@both
def test_packets_are_counted_once(pair):
    """By the entry with their port, not by their pair's other one too."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS)
                    .coflow('C1', 5e6, [(a, b, 1)])
                    .coflow('C2', 5e6, [(a, b, 1)], port=5002).build())
    _learn(a, b)
    before = {key: item.sent_packets for key, item in edge.counted().items()}
    _sent(edge, lambda: _send_udp(a, b.ip, port=5002))
    grown = {key[1].dst_port: item.sent_packets - before[key]
             for key, item in edge.counted().items()}
    assert grown == {0: 0, 5002: 40}


FRAMES = {
    'udp': (C2, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(5002))),
    'tcp': (C2, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.TCP, frames.tcp(5002))),
    'other port': (C1, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(5003))),
    'other protocol': (C1, lambda a, b: frames.ipv4(
        a.ip, b.ip, 132, frames.udp(5002))),
    'options': (C2, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(5002), options=bytes(8))),
    'first fragment': (C2, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(5002), fragment=0x2000)),
    'later fragment': (C2, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(5003), fragment=0x2040)),
    'last fragment': (C2, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(5003), fragment=0x0080)),
    'fragment of another datagram': (C1, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(5002), fragment=0x0040, ident=8)),
    'fragment to another address': (3, lambda a, b: frames.ipv4(
        a.ip, '10.77.9.9', frames.UDP, frames.udp(5002), fragment=0x0040)),
    'gre': (C1, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.GRE, bytes([0, 0, 8, 0]) + frames.ipv4(
            '10.9.0.1', '10.9.0.2', frames.UDP, frames.udp(5002))[1])),
    'ipip': (C1, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.IN_IPV4, frames.ipv4(
            '10.9.0.1', '10.9.0.2', frames.UDP, frames.udp(5002))[1])),
    'ipv6 in ipv4': (C1, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.IN_IPV6, frames.ipv6(
            'fd09::1', 'fd09::2', frames.UDP, frames.udp(5002))[1])),
    "the pair's own packet inside another pair's": (3, lambda a, b: (
        frames.ipv4(a.ip, '10.77.9.9', frames.IN_IPV4, frames.ipv4(
            a.ip, b.ip, frames.UDP, frames.udp(5002))[1]))),
    'esp': (C1, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.ESP, frames.udp(5002))),
    'tagged twice': (3, lambda a, b: frames.tagged(frames.tagged(frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(5002))), 0x88a8)),
    'arp': (3, lambda a, b: (0x0806, bytes(46))),
    'no room for a port': (C1, lambda a, b: frames.ipv4(
        a.ip, b.ip, frames.UDP, b'')),
    'half a header': (3, lambda a, b: (
        0x0800, frames.ipv4(a.ip, b.ip, frames.UDP, b'')[1][:14])),
    'tagged': (C2, lambda a, b: frames.tagged(frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(5002)))),
    'other address': (3, lambda a, b: frames.ipv4(
        a.ip, '10.77.9.9', frames.UDP, frames.udp(5002))),
    'ipv6 udp': (C2 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, frames.UDP, frames.udp(5002))),
    'ipv6 hop by hop': (C2 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, frames.HOP_BY_HOP,
        bytes([frames.UDP, 1]) + bytes(14) + frames.udp(5002))),
    'ipv6 destination options, twice': (C2 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, *frames.extended(
            2 * [frames.DESTINATION_OPTIONS], frames.UDP, frames.udp(5002)))),
    'ipv6 routing header': (C2 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, *frames.extended(
            [frames.HOP_BY_HOP, frames.ROUTING], frames.UDP,
            frames.udp(5002)))),
    'ipv6 authentication': (C1 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, *frames.extended(
            [frames.AUTHENTICATION], frames.UDP, frames.udp(5002)))),
    'ipv6 gre': (C1 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, frames.GRE, frames.udp(5002))),
    'ipv6 first fragment': (C2 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, frames.FRAGMENT,
        frames.fragment6(frames.udp(5002), 0))),
    'ipv6 later fragment': (C2 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, frames.FRAGMENT,
        frames.fragment6(frames.udp(5003), 8))),
    'ipv6 fragment of another datagram': (C1 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, frames.FRAGMENT,
        frames.fragment6(frames.udp(5002), 8, ident=8))),
    'ipv6 first fragment behind options': (C2 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, *frames.extended(
            [frames.HOP_BY_HOP], frames.FRAGMENT,
            frames.fragment6(frames.udp(5002), 0, ident=9)))),
    'ipv6 later fragment behind options': (C2 + 4, lambda a, b: frames.ipv6(
        a.ip6, b.ip6, *frames.extended(
            [frames.HOP_BY_HOP], frames.FRAGMENT,
            frames.fragment6(frames.udp(5002), 8, ident=9)))),
    'ipv6 cut off': (3, lambda a, b: (
        0x86DD, frames.ipv6(a.ip6, b.ip6, frames.UDP, b'')[1][:30])),
    'neither': (3, lambda a, b: (0x88B5, bytes(400))),
}


@both
def test_frames_of_every_kind(pair, how):
    """What is malformed or of no class stays the port's."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    builder = policies.PolicyBuilder('h1', LINK_BPS)
    for ipv6 in (False, True):
        for port in (None, 5002):
            builder.coflow(f'C{ipv6}{port}', 5e6, [(a, b, 1)], ipv6=ipv6,
                           port=port)
    edge.set_policy(builder.build())
    _learn(a, b)

    def packets():
        return {minor: stats.sent_packets
                for minor, stats in edge.stats().items()}

    seen = {}
    for name, (minor, frame) in FRAMES.items():
        before = packets()
        frames.send(a, frame(a, b), 20)
        beds.wait_for(lambda: packets()[1] >= before[1] + 20, 5, name)
        grown = {key: count - before[key] for key, count in packets().items()
                 if key in (2, 3, C1, C2, C1 + 4, C2 + 4)}
        seen[name] = max(grown, key=grown.get)
        assert grown[seen[name]] >= 20, (name, grown)
    expected = {name: minor for name, (minor, _) in FRAMES.items()}
    if how == 'nft':  # which looks for fragments at the first header only
        expected['ipv6 later fragment behind options'] = C1 + 4
    assert seen == expected


@by_nft
def test_a_flood_of_addresses_displaces_no_peer(make_bed, edge_of,
                                                monkeypatch):
    """Packets to a peer that is not known to be near share a class, and
    acknowledgements to one that sent no TCP data wait behind data. A sender of
    many packets of data finds a place beside the flood, too. A VM of the same
    host takes none.
    """
    monkeypatch.setattr(nft_text, '_NEAR_S', 1)
    monkeypatch.setattr(nft_text, '_OWED_S', 1)
    monkeypatch.setattr(nft_text, '_MOST_NEAR', 8)
    monkeypatch.setattr(nft_text, '_MOST_OWED', 1024)
    monkeypatch.setattr(nft_text, '_OWING_LIMIT',
                        'limit rate 500/second burst 500 packets')
    bed = make_bed(2)
    edge = edge_of(bed, 'h1')
    vm, beside = (bed.add_vm('h1') for _ in range(2))
    peer, flooder, late = (bed.add_vm('h2') for _ in range(3))
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).build())
    ifindex = beds.in_netns(edge.netns, socket.if_nametoindex, vm.dev)
    _, packet = frames.ipv4(peer.ip, vm.ip, frames.TCP, frames.tcp(80))
    target, own = (bytes.fromhex(one.mac.replace(':', ''))
                   for one in (vm, peer))

    def has(name, one):
        return one.mac in beds.run(
            'nft', 'list', 'set', 'netdev', 'virtco', f'{name}_{ifindex}',
            netns=edge.netns)

    def known():
        return all(has(name, peer)
                   for name in (nft_text.NEAR, nft_text.OWED))

    with contextlib.ExitStack() as opened:
        peers, floods, lates, besides = (opened.enter_context(beds.in_netns(
            one.netns, socket.socket, socket.AF_PACKET, socket.SOCK_RAW))
            for one in (peer, flooder, late, beside))
        for sock in peers, floods, lates, besides:
            sock.bind(('eth0', 0))

        def send(sock, source):
            sock.send(target + source + b'\x08\x00' + packet)

        begin_s = time.monotonic()
        send(peers, own)
        beds.wait_for(known, 10, 'the peer')
        while time.monotonic() < begin_s + 4:
            send(peers, own)
            for _ in range(20):
                send(floods, b'\x02' + os.urandom(5))
            if time.monotonic() > begin_s + 2:
                send(lates, bytes.fromhex(late.mac.replace(':', '')))
            send(besides, b'\x02\x02\0\0\0\x01')
            time.sleep(0.01)
            assert known()
        assert has(nft_text.OWED, late)
        assert '02:02:00:00:00:01' not in beds.run(
            'nft', 'list', 'table', 'netdev', 'virtco', netns=edge.netns)


@both
def test_a_flood_of_fragments_takes_nobodys_place(pair):
    """Of so many as a port may leave behind it in their time."""
    assert _follows_beside_a_flood(pair)


def test_a_flood_of_addresses_displaces_nobody_in_use(make_bed, edge_of):
    """Of far more than a port keeps; one who begins finds a place, too, and a
    VM of the same host takes none.
    """
    bed = make_bed(2)
    edge = edge_of(bed, 'h1')
    vm, beside = (bed.add_vm('h1') for _ in range(2))
    peer, flooder, late = (bed.add_vm('h2') for _ in range(3))
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).build())
    ifindex = beds.in_netns(edge.netns, socket.if_nametoindex, vm.dev)
    _, packet = frames.ipv4(peer.ip, vm.ip, frames.TCP, frames.tcp(80))
    target, *own = (bytes.fromhex(one.mac.replace(':', ''))
                    for one in (vm, peer, late))

    def known():
        cache, = beds.in_netns(edge.netns, kernel.bpf_read, [
            operations.MapListing('cache', ifindex)])
        # When it sent something, and when it sent TCP data.
        return {mac.hex(':') for mac, near_s, owed_s in struct.iter_unpack(
            '=6s6xII4x', cache[:bpf_maps.NEIGHBOURS * bpf_maps.BUCKET_BYTES])
            if near_s and owed_s}

    with contextlib.ExitStack() as opened:
        socks = [opened.enter_context(beds.in_netns(
            one.netns, socket.socket, socket.AF_PACKET, socket.SOCK_RAW))
            for one in (peer, late, flooder, beside)]
        for sock in socks:
            sock.bind(('eth0', 0))

        def send(number, source):
            socks[number].send(target + source + b'\x08\x00' + packet)

        send(0, own[0])
        beds.wait_for(lambda: peer.mac in known(), 10, 'the peer')
        sent = 0
        while sent < 10_000:
            for _ in range(100):
                send(2, b'\x02' + os.urandom(5))
                send(3, b'\x06' + os.urandom(5))
            sent += 100
            send(0, own[0])
            assert peer.mac in known()
        assert not any(mac.startswith('06:') for mac in known())
        while late.mac not in known():
            for _ in range(100):
                send(2, b'\x02' + os.urandom(5))
                send(1, own[1])
            sent += 100
            assert sent < 30_000
