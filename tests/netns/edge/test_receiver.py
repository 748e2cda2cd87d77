# SPDX-License-Identifier: Apache-2.0

"""Coflows against other traffic where they arrive."""


from msgspec import structs
import pytest

from edge_module import kernel_events
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import receiver
from edge_module.tcplan import minors
from tests.netns.edge import bed as beds
from tests.netns.edge import frames
from tests.netns.edge import policies
from virtco.wire import edge_policy

LINK_BPS = 40e6

pytestmark = pytest.mark.netns
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


@pytest.fixture
def crossing(make_bed, edge_of):
    """A coflow and noise meet on h1's link, which carries 40 Mbit/s."""
    bed = make_bed(3)
    beds.run('tc', 'qdisc', 'add', 'dev', 'ch1', 'root', 'tbf', 'rate',
             '40mbit', 'burst', '64k', 'limit', '256k', netns=bed.core)
    sink, a, noise = bed.add_vm('h1'), bed.add_vm('h2'), bed.add_vm('h3')
    edge = edge_of(bed, 'h1')
    edge.set_ports()
    builder = policies.PolicyBuilder('h1', LINK_BPS)
    builder.received.append((a, sink))
    return bed, edge, builder.build(), sink, a, noise


def _rates(a, noise, sink):
    flows = [beds.Flow(a, sink, pacing_bps=30e6)]
    flows += [beds.Flow(noise, sink, 6000 + index) for index in range(6)]
    rates = beds.measure(flows, 1.0, 2.0)
    return rates[0], sum(rates[1:])


@real_time
def test_noise_does_not_starve_a_coflow(crossing):
    bed, edge, policy, sink, a, noise = crossing
    edge.set_policy(policy)
    before, _ = _rates(a, noise, sink)
    edge.enforcer.receiver = receiver.Receiver(kernel, 'uplink0', LINK_BPS)
    edge.set_policy(policy)
    after, rest = _rates(a, noise, sink)
    assert before < 20e6
    assert after > 25e6
    assert rest > 2e6  # the others are not shut out either


FRAMES = {
    'whole': lambda a, b, port: frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(port)),
    'a VLAN tag': lambda a, b, port: frames.tagged(
        frames.ipv4(a.ip, b.ip, frames.UDP, frames.udp(port))),
    'IPv6': lambda a, b, port: frames.ipv6(
        a.ip6, b.ip6, frames.UDP, frames.udp(port)),
    'IPv6, a VLAN tag': lambda a, b, port: frames.tagged(
        frames.ipv6(a.ip6, b.ip6, frames.UDP, frames.udp(port))),
    'IPv4 options': lambda a, b, port: frames.ipv4(
        a.ip, b.ip, frames.UDP, frames.udp(port), options=b'\x01' * 8),
    'IPv6 options': lambda a, b, port: frames.ipv6(
        a.ip6, b.ip6, *frames.extended([frames.HOP_BY_HOP], frames.UDP,
                                       frames.udp(port))),
    'two VLAN tags': lambda a, b, port: frames.tagged(frames.tagged(
        frames.ipv4(a.ip, b.ip, frames.UDP, frames.udp(port))), 0x88a8),
    'another protocol': lambda a, b, port: (0x88B5, bytes(400)),
}
#: Of these the filters find no addresses, or no port.
UNREAD = {None: ('two VLAN tags', 'another protocol'),
          5002: ('IPv4 options', 'IPv6 options', 'two VLAN tags',
                 'another protocol')}


@pytest.mark.parametrize('port', UNREAD)
def test_packets_of_a_pair_are_a_coflows(crossing, port):
    """Of whatever is not read, the default class has it."""
    bed, edge, policy, sink, a, noise = crossing
    edge.enforcer.receiver = receiver.Receiver(kernel, 'uplink0', LINK_BPS)
    edge.set_policy(structs.replace(policy, received=tuple(
        edge_policy.ReceivedPair(*pair, port)
        for pair in ((a.ip, sink.ip), (a.ip6, sink.ip6)))))

    def received():
        return {minor: seen.sent_packets for minor, seen in beds.in_netns(
            edge.netns, edge.enforcer.receiver.queue.stats).items()}

    found = {}
    for name, frame in FRAMES.items():
        before = received()
        frames.send(a, frame(a, sink, port or 9), 20)
        beds.wait_for(lambda: received()[minors.LINK]
                      >= before[minors.LINK] + 20, 5, name)
        grown = {minor: count - before[minor]
                 for minor, count in received().items()}
        found[name] = grown[receiver.MANAGED_MINOR] >= 20
    assert found == {name: name not in UNREAD[port] for name in FRAMES}


def test_receiver_side_is_kept_and_removed(crossing):
    bed, edge, policy, *_ = crossing
    netns = bed.ns('h1')
    edge.enforcer.receiver = receiver.Receiver(kernel, 'uplink0', LINK_BPS)

    def shown():
        return (beds.run('tc', 'class', 'show', 'dev', 'virtco-in',
                         netns=netns)
                + beds.run('tc', 'filter', 'show', 'dev', 'uplink0',
                           'parent', 'ffff:', netns=netns))

    edge.set_policy(policy)
    first = shown()
    assert 'Redirect to device virtco-in' in first
    edge.set_policy(policy)
    assert shown() == first
    heard = beds.in_netns(netns, kernel_events.KernelWatch)
    assert not edge.call('was_lost', heard.changes())
    beds.run('ip', 'link', 'set', 'virtco-in', 'down', netns=netns)
    assert edge.call('was_lost', heard.changes())
    heard.close()
    edge.call('forget')
    edge.set_policy(policy)
    assert 'UP' in beds.run('ip', 'link', 'show', 'virtco-in', netns=netns)
    beds.run('ip', 'link', 'del', 'virtco-in', netns=netns)
    edge.call('forget')
    edge.set_policy(policy)
    assert shown().count('Redirect to device') == 1
    assert 'Redirect to device virtco-in' in shown()
    assert any('receives' in what for what in edge.call('cleanup'))
    assert 'virtco-in' not in beds.run('ip', 'link', netns=netns)
    assert 'ingress' not in beds.run('tc', 'qdisc', 'show', 'dev', 'uplink0',
                                     netns=netns)
    assert beds.run('nft', 'list', 'ruleset', netns=netns) == ''
