# SPDX-License-Identifier: Apache-2.0

"""A tree on each uplink: a flat network by one, another, or a VLAN where the
kernel has them, by the second.
"""

import pytest

from tests.netns import gear
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process

LINK_BPS, FURTHER_BPS = 40e6, 20e6
# Payload per byte on the wire: 1448 of 1514; a VLAN adds 4.
GOODPUT = 1448 / 1514
OURS = 'qdisc htb 7000: root'

pytestmark = pytest.mark.netns


@pytest.fixture
def site(make_bed, tmp_path):
    """h1 sends C1 by uplink0 and C2 by uplink1."""
    bed = make_bed(2)
    dev = 'uplink1.7' if bed.can_make('vlan') else 'uplink1'
    beds.run('ip', 'link', 'add', 'dev', 'uplink1', 'netns', bed.ns('h1'),
             'type', 'veth', 'peer', 'name', 'uplink1', 'netns', bed.ns('h2'))
    for host in bed.hosts:
        for words in ('set dev uplink1 up', 'add dev brx type bridge',
                      'set dev brx up', *([
                          f'add link uplink1 name {dev} type vlan id 7'] * (
                              dev != 'uplink1')),
                      f'set dev {dev} master brx up'):
            beds.run('ip', 'link', *words.split(), netns=bed.ns(host))
    flat = bed.add_vm('h1'), bed.add_vm('h2')
    other, noise = ((bed.add_vm('h1', bridge='brx'),
                      bed.add_vm('h2', bridge='brx')) for _ in range(2))
    controller = controllers.Controller(bed.ns('h1'))
    controller.set_policy(policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 8e6, [(*flat, 1)], ceil_bps=8e6).coflow(
        'C2', 30e6, [(*other, 1)], ceil_bps=30e6).build().to_dict())
    edge = process.EdgeProcess(
        bed, 'h1', tmp_path, LINK_BPS, wire_overhead_bytes=0,
        further_uplinks=f'uplink1:{FURTHER_BPS}', audit_interval_s=3600)
    edge.start()
    controller.wait_report(lambda report: report['applied_generation'] == 1
                           and report['health'] == 'ok', 20)
    yield bed, edge, controller, (flat, other, noise)
    print(edge.log())
    edge.stop()
    controller.stop()


def tc(bed, *words):
    return beds.run('tc', *words, 'dev', 'uplink1', netns=bed.ns('h1'))


@pytest.mark.real_time(reason='measures the rate of TCP transfers')
@gear.full('the tree and the report of the test beside it, and the same '
           'classes on one uplink in test_shaping')
def test_each_uplink_has_the_shares_of_the_policy(site):
    bed, _edge, controller, ends = site
    # A queue that was full at the beginning lost frames; what the receiver
    # holds back until they come again is no rate.
    flat_bps, other_bps, noise_bps = beds.measure(
        [beds.Flow(*pair) for pair in ends], warm_up_s=2.5)
    assert flat_bps == pytest.approx(8e6 * GOODPUT, rel=0.07)
    # Three quarters of the link, as on the other one.
    assert other_bps == pytest.approx(15e6 * GOODPUT, rel=0.07)
    assert noise_bps == pytest.approx(5e6 * GOODPUT, rel=0.15)
    controller.reports.clear()
    report = controller.wait_report(lambda report: len(
        report['coflows']) == 2 and report['uplink_sent_bytes'] > 1e6)
    sent = {one['coflow_id']: one for one in report['coflows']}
    assert sent['C2']['sent_bytes'] > 3.5 * 15e6 / 8 * 0.9
    target, = sent['C2']['destinations']
    assert target['host'] == 'h2'
    assert target['sent_bytes'] == sent['C2']['sent_bytes']
    # The noise at the second uplink is not taken for the first one's.
    others_bytes = report['uplink_sent_bytes'] - sum(
        one['sent_bytes'] for one in sent.values())
    assert 0 <= others_bytes < 1e6


def test_a_tree_that_is_lost_comes_back_and_goes_with_the_clean_up(site):
    bed, edge, controller, _ends = site
    assert not edge.once('--check').returncode
    shown = edge.once('--show').stdout
    assert shown.startswith('uplink0, uplink1 shaped by htb') and (
        shown.count('to h2') == 4)
    tc(bed, 'qdisc', 'del', 'root')
    beds.wait_for(lambda: OURS in tc(bed, 'qdisc', 'show')
                  and '7000:13 ' in tc(bed, 'class', 'show'), 10, 'the tree')
    beds.run('tc', 'class', 'change', 'dev', 'uplink1', 'parent', '7000:1',
             'classid', '7000:12', 'htb', 'rate', '1mbit', netns=bed.ns('h1'))
    beds.wait_for(lambda: 'class htb 7000:12 parent 7000:1 rate 15Mbit'
                  in tc(bed, 'class', 'show'), 10, 'its rate')
    # Without it the other one goes on.
    for words in ('uplink1 down', 'uplink1 name away0'):
        beds.run('ip', 'link', 'set', 'dev', *words.split(),
                 netns=bed.ns('h1'))
    controller.wait_report(lambda report: report['health'] == 'error'
                           and 'uplink1' in report['error'], 20)
    controller.set_policy(policies.PolicyBuilder('h1', LINK_BPS, 2).build(
        ).to_dict())
    beds.wait_for(lambda: 'class htb 7000:10 ' not in edge.tc(), 20,
                  'the end of the coflows')
    for words in ('away0 name uplink1', 'uplink1 up'):
        beds.run('ip', 'link', 'set', 'dev', *words.split(),
                 netns=bed.ns('h1'))
    controller.wait_report(lambda report: report['applied_generation'] == 2
                           and report['health'] == 'ok', 20)
    beds.wait_for(lambda: '7000:13 ' not in tc(bed, 'class', 'show'), 20,
                  'the end of its coflows')
    edge.stop()
    assert 'htb of uplink1' in edge.once('--cleanup').stdout
    assert OURS not in tc(bed, 'qdisc', 'show')
