# SPDX-License-Identifier: Apache-2.0

"""What ovs-vswitchd does to the uplink, and what the agent does about it."""

import pytest

from tests.kernel import site as sites
from tests.netns.edge import bed as beds

MEMBER_BPS = 0.4 * sites.LINK_BPS
NOOP = 'linux-noop'
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


@pytest.fixture
def transfer(site):
    """Makes transfers of the flat network's coflow, and ends them."""
    made = []

    def make():
        segment = site.segment('flat')
        made.append(beds.Flow(segment.member, segment.sink).start())
        return made[-1]

    yield make
    for flow in made:
        flow.close()


def _enforce(site, **options):
    """Start an agent that gives the flat network's coflow its rate."""
    segment = site.segment('flat')
    site.start_edge(**options)
    minor, = site.enforce(
        [(segment.member, segment.sink, MEMBER_BPS, False)])
    return minor


def _rate_bps(flow, for_s=2.0):
    """Payload rate from now on."""
    now_s = flow.now_s()
    beds.wait_for(lambda: flow.now_s() > now_s + for_s, 2 * for_s, 'time')
    return flow.rate_bps(now_s, now_s + for_s)


def _wait_shaped(site, flow):
    """Wait until the transfer runs at its rate, less the headers."""
    seen_bps = []

    def is_shaped():
        seen_bps.append(round(_rate_bps(flow)))
        return seen_bps[-1] == pytest.approx(0.955 * MEMBER_BPS, rel=0.08)

    try:
        beds.wait_for(is_shaped, sites.PATIENCE_S, 'the rate')
    except AssertionError:
        site.show()
        print('rates seen:', seen_bps, 'in all:', flow.samples[-1:])
        raise


def _qos_type(site):
    """Type of Open vSwitch's QoS at the uplink; None without one."""
    row = site.switch.vsctl('get', 'port', 'uplink0', 'qos')
    # It may be gone by now.
    return None if row == '[]' else site.switch.vsctl(
        '--if-exists', 'get', 'qos', row, 'type')


@real_time
def test_noop_keeps_the_tree_under_a_transfer(site, transfer):
    minor = _enforce(site)
    flow = transfer()
    beds.wait_for(lambda: flow.received_at(flow.now_s()) > 5e5, 20, 'a start')
    site.edge.stop()  # what holds must hold without its help
    assert _qos_type(site) == NOOP
    before, start_s = site.uplink(), flow.now_s()
    site.restart_vswitchd()
    rate_bps = flow.rate_bps(start_s, flow.now_s())
    # Over the restart the flow may pause; it never takes more than it has.
    assert 0 < rate_bps < 1.05 * MEMBER_BPS
    _wait_shaped(site, flow)
    after = site.uplink()
    assert after.tree == before.tree
    moved = {key: after.stats[key].sent_bytes - before.stats[key].sent_bytes
             for key in (minor, 2)}
    # The counters went on, so these are the same classes, and the transfer
    # stayed in its own.
    assert moved[minor] > 2e6 * MEMBER_BPS / 8e6
    assert 0 <= moved[2] < 0.02 * moved[minor]


@real_time
def test_agent_keeps_the_transfer_classified(site, transfer):
    """A new vswitchd makes its ports anew."""
    minor = _enforce(site, audit_interval_s=1)
    flow = transfer()
    site.restart_vswitchd()
    beds.wait_for(lambda: not site.edge.once('--check',
                                             check=False).returncode,
                  sites.PATIENCE_S, 'agreement')
    before = site.uplink()
    _wait_shaped(site, flow)
    after = site.uplink()
    assert (after.stats[minor].sent_bytes - before.stats[minor].sent_bytes
            > 10 * (after.stats[2].sent_bytes - before.stats[2].sent_bytes))


@real_time
def test_agent_restores_what_vswitchd_took(site, transfer):
    minor = _enforce(site, audit_interval_s=1)
    flow = transfer()
    _wait_shaped(site, flow)
    site.edge.stop()
    site.switch.vsctl('clear', 'port', 'uplink0', 'qos')
    site.restart_vswitchd()
    beds.wait_for(lambda: not site.uplink().present, sites.PATIENCE_S,
                  'the loss of our qdisc')
    assert _rate_bps(flow) > 2 * MEMBER_BPS
    site.edge.start()
    beds.wait_for(lambda: minor in site.uplink().tree, sites.PATIENCE_S,
                  'the tree')
    _wait_shaped(site, flow)
    # Also while it runs.
    site.switch.vsctl('clear', 'port', 'uplink0', 'qos')
    site.restart_vswitchd()
    beds.wait_for(lambda: _qos_type(site) == NOOP
                  and minor in site.uplink().tree, sites.PATIENCE_S,
                  'the tree again')
    _wait_shaped(site, flow)


def test_qos_that_neutron_sets_holds_beside_ours(site):
    minor = _enforce(site, audit_interval_s=1)
    site.switch.vsctl(
        'set', 'port', 'uplink0', 'qos=@q', '--', '--id=@q', 'create', 'qos',
        'type=linux-htb', 'other-config:max-rate=10000000')
    beds.wait_for(lambda: site.uplink().is_inside
                  and minor in site.uplink().tree, sites.PATIENCE_S,
                  "our tree in Open vSwitch's")
    report = site.controller.wait_report(
        lambda report: report['health'] == 'ok' and report['error'],
        sites.PATIENCE_S)
    assert report['error'].startswith(
        'Open vSwitch (QoS linux-htb) limits classes of uplink0: ')
    assert '1:fffe to 10 Mbit/s' in report['error']
    assert _qos_type(site) == 'linux-htb'
    site.switch.vsctl('clear', 'port', 'uplink0', 'qos')
    beds.wait_for(lambda: _qos_type(site) == NOOP
                  and minor in site.uplink().tree, sites.PATIENCE_S,
                  'the tree again')
    site.controller.wait_report(lambda report: report['health'] == 'ok',
                                sites.PATIENCE_S)


@real_time
def test_policing_holds_beside_the_classifier(site, transfer):
    """Open vSwitch polices by the ingress qdisc of the VM's port."""
    minor = _enforce(site)
    port = site.segment('flat').member.dev

    def at_ingress():
        return beds.run('tc', 'filter', 'show', 'dev', port, 'ingress',
                        netns=site.bed.ns('h1'))

    flow = transfer()
    _wait_shaped(site, flow)
    site.switch.vsctl('set', 'interface', port, 'ingress_policing_rate=1000')
    try:
        beds.wait_for(lambda: 'rate 1Mbit' in at_ingress(),
                      sites.PATIENCE_S, 'policing')
        before = site.uplink()
        beds.wait_for(lambda: 0 < _rate_bps(flow) < 1.05e6,
                      sites.PATIENCE_S, "the port's limit")
        after = site.uplink()
    finally:
        site.switch.vsctl('set', 'interface', port, 'ingress_policing_rate=0')
    assert (after.stats[minor].sent_bytes - before.stats[minor].sent_bytes
            > 10 * (after.stats[2].sent_bytes - before.stats[2].sent_bytes))
    beds.wait_for(lambda: 'police' not in at_ingress(), sites.PATIENCE_S,
                  'the end of policing')
    _wait_shaped(site, flow)
