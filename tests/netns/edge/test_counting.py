# SPDX-License-Identifier: Apache-2.0

"""Without classes: pairs are counted, and share the default class."""

import socket
import types

import msgspec
from msgspec import structs
import pytest

from edge_module.classify import nft_text
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process
from tests.unit import made
from virtco.model import states
from virtco.state import live_state
from virtco.wire import edge_policy
from virtco.wire import reports

LINK_BPS = 40e6

pytestmark = pytest.mark.netns


def test_pairs_are_counted_in_the_default_class(make_bed, tmp_path):
    bed = make_bed(2)
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    policy = structs.replace(
        policies.PolicyBuilder('h1', LINK_BPS).build(), flows=(
            edge_policy.FlowEntry('C1', a.uuid, a.ip, b.ip,
                                  edge_policy.DEFAULT_MINOR),))
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(bed, 'h1', tmp_path)
    try:
        controller.set_policy(policy.to_dict())
        edge.start()
        controller.wait_report(lambda r: r['applied_generation'] == 1
                               and r['ports'])
        flow = beds.Flow(a, b, size_bytes=5_000_000).start()
        beds.wait_for(lambda: flow.done_s, 60, 'a transfer')
        flow.close()
        # The default class borrows the link; its own rate takes 50 s.
        assert flow.done_s < 25
        report = controller.wait_report(
            lambda r: r['pairs'] and r['pairs'][0]['sent_bytes'] > 4e6)
        assert report['coflows'] == []
        pair, = report['pairs']
        assert (pair['dev'], pair['dst_port']) == (a.dev, None)
        assert pair['sent_bytes'] <= report['default_sent_bytes'] * 1.01
        assert edge.once('--check').stdout.startswith('The kernel holds')
    finally:
        edge.stop()
        controller.stop()


def test_profiles_have_what_no_class_has(make_bed, tmp_path):
    """To a VM on another host and to one on the same host."""
    bed = make_bed(2)
    vms = [bed.add_vm('h1'), bed.add_vm('h2'), bed.add_vm('h1')]
    policy = policies.PolicyBuilder('h1', LINK_BPS).build()
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(bed, 'h1', tmp_path)
    state = live_state.LiveState()
    state.load_groups([types.SimpleNamespace(
        group_id='g', row_index=row, instance_uuid=vm.uuid, host=vm.host,
        state=states.MemberState.RUNNING, egress_cap_bps=None,
        ingress_cap_bps=None, egress_limit_bps=None, ingress_limit_bps=None,
        addresses='') for row, vm in enumerate(vms)], [])
    state.intake('h2', made.report(ports=[vms[1].port()]), 1.0)

    def take(found):
        state.intake('h1', msgspec.convert(found, reports.Report), 2.0)
        return found

    sizes = {1: 3_000_000, 2: 8_000_000}
    try:
        controller.set_policy(policy.to_dict())
        edge.start()
        take(controller.wait_report(lambda r: r['applied_generation'] == 1
                                    and r['ports']))
        for row, size_bytes in sizes.items():
            flow = beds.Flow(vms[0], vms[row], size_bytes=size_bytes).start()
            beds.wait_for(lambda flow=flow: flow.done_s, 60, 'a transfer')
            flow.close()
        take(controller.wait_report(lambda r: all(any(
            peer['dst_ip'] == vms[row].ip and peer['dev'] == vms[0].dev
            and peer['sent_bytes'] >= size_bytes for peer in r['peers'])
            for row, size_bytes in sizes.items())))
        profile = state.take_profiles()['g']
        assert edge.once('--check').stdout.startswith('The kernel holds')
    finally:
        edge.stop()
        controller.stop()
    assert {pair: pytest.approx(size_bytes, rel=0.05)
            for pair, size_bytes in profile.items() if pair[0] == 0} == {
        (0, row): size_bytes for row, size_bytes in sizes.items()}


def test_a_vm_that_sends_to_many_has_the_rest_uncounted(make_bed, edge_of):
    """And nobody else: each port has a set of its own."""
    bed = make_bed(2)
    loud, quiet, peer = (bed.add_vm(host) for host in ('h1', 'h1', 'h2'))
    edge = edge_of(bed, 'h1')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', LINK_BPS).build())

    def flood():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for number in range(2 * nft_text.MOST_PEERS):
                # Groups need nobody who answers for an address.
                sock.sendto(b'x', (f'239.1.{number // 250}.'
                                   f'{number % 250 + 1}', 9))

    beds.in_netns(loud.netns, beds.run, 'ip', 'route', 'add', '239.0.0.0/8',
                  'dev', 'eth0')
    beds.in_netns(loud.netns, flood)
    flow = beds.Flow(quiet, peer, size_bytes=100_000).start()
    beds.wait_for(lambda: flow.done_s, 60, 'a transfer')
    flow.close()
    # By IPv6 kernels send what nobody asked for, at any time.
    found = {key: seen for key, seen in beds.in_netns(
        edge.netns, edge.enforcer.classifier.peers).items() if '.' in key[1]}
    of_loud = [key for key in found if key[0] == loud.dev]
    # Some of its places are for addresses that share none of the others.
    assert 0.75 * nft_text.MOST_PEERS < len(of_loud) <= nft_text.MOST_PEERS
    assert found[quiet.dev, peer.ip].sent_bytes >= 100_000
    # Of one port alone, as the reports of heavy ones read it.
    index = dict(edge.enforcer.classifier.known.hooks)
    assert {key: seen for key, seen in beds.in_netns(
        edge.netns, edge.enforcer.classifier.peers,
        [index[quiet.dev], 1]).items() if '.' in key[1]} == {
            key: seen for key, seen in found.items() if key[0] == quiet.dev}
    # Gone with the port, with no trace.
    bed.vms.remove(quiet)
    edge.set_ports()
    assert {dev for dev, _ in beds.in_netns(
        edge.netns, edge.enforcer.classifier.peers)} == {loud.dev}
    beds.in_netns(edge.netns, edge.enforcer.classifier.forget)
    edge.set_ports()
    assert {dev for dev, _ in beds.in_netns(
        edge.netns, edge.enforcer.classifier.dump).hooks} == {loud.dev}
