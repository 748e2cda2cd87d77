# SPDX-License-Identifier: Apache-2.0

"""What a whole agent says of itself, and the parts it is made of."""

from oslo_config import cfg
import pytest

from edge_module import agent as edge_agent
from edge_module import conf as edge_conf
from edge_module import factory
from edge_module.ports import static
from edge_module.privileged import choice
from edge_module.qdisc import agreement
from tests.unit.edge import dictionaries
from tests.unit.edge import test_enforcer
from tests.unit.edge import test_keeper
from virtco import exception


@pytest.fixture
def conf(tmp_path):
    found = cfg.ConfigOpts()
    edge_conf.register_opts(found)
    found([], project='virtco')
    for name, value in {'uplink_dev': 'lo', 'host': 'h1',
                        'link_egress_bps': 2e9, 'link_margin': 0.25,
                        'state_dir': str(tmp_path)}.items():
        found.set_override(name, value, 'edge')
    return found


@pytest.fixture
def agent(conf):
    return edge_agent.Agent(conf, test_enforcer.make(), static.StaticPorts(''),
                            test_keeper.Watch())


def test_a_policy_reaches_all_that_need_it(agent):
    agent._apply(test_enforcer.ONE, False)
    assert agent.enforcer.policy == test_enforcer.ONE
    agent.enforcer.uplink.seen = {0x10: test_enforcer.wire.ClassStats(77)}
    agent.reporter.readings.read(0.0)
    assert agent.reporter.readings.counted()['coflows'][0].sent_bytes == 77
    about = agent._about()
    assert (about['applied_generation'], about['health'],
            about['error']) == (1, 'ok', None)


@pytest.mark.parametrize('spoil, health', [
    (lambda agent: agent.keeper.failed(OSError(5, 'x')), 'error'),
    (lambda agent: agent.keeper.refuse('x'), 'degraded'),
    (lambda agent: setattr(agent._watcher, 'error', 'x'), 'degraded'),
    (lambda agent: setattr(agent.enforcer, 'fair', True), 'degraded'),
    (lambda agent: setattr(agent._crew._threads[0], 'problem', 'x'),
     'error'),
    (lambda agent: None, 'ok')])
def test_health(agent, spoil, health):
    spoil(agent)
    assert agent._about()['health'] == health
    agent.reporter.make(0.0)


def test_it_saves_now_and_then(agent, monkeypatch):
    now = [100.0]
    saved = []
    monkeypatch.setattr(edge_agent.time, 'monotonic', lambda: now[0])
    monkeypatch.setattr(agent.reporter, 'save', lambda: saved.append(now[0]))
    for now[0] in (100.0, 104.9, 105.0, 106.0):
        agent._save()
    assert saved == [100.0, 105.0]


def test_stop_ends_it_and_wakes_it(agent):
    assert not agent._is_ending
    agent.stop()
    assert agent._is_ending and agent._watch.woken == 1


def test_its_threads(conf):
    found = edge_agent.Agent(conf, test_enforcer.make(),
                             static.StaticPorts(''), test_keeper.Watch())
    assert [one.name for one in found._crew._threads] == [
        'policy', 'report', 'ports', 'stream']


def parts(conf, **options):
    for name, value in options.items():
        conf.set_override(name, value, 'edge')
    return factory.Parts(conf, dictionaries.Kernel())


def test_options_reach_the_enforcer(conf):
    found = parts(conf, default_share=0.1, grace_s=3.5, leaf_s=0.5,
                  leaf_min_bytes=20000, super_packet_s=0.25,
                  wire_overhead_bytes=24, wire_frame_min_bytes=84).enforcer()
    assert (found.link_bps, found.default_rate_bps, found.grace_s) == (
        1.5e9, pytest.approx(0.15e9), 3.5)
    settings = found.settings
    assert (settings.leaf_s, settings.min_leaf_bytes, settings.link_packet_s,
            settings.overhead_bytes, settings.frame_min_bytes) == (
        0.5, 20000, 0.25, 24, 84)
    assert isinstance(found.guard, agreement.NoGuard)
    assert found.receiver is None
    assert found.classifier.name == 'nft' and found.speed_bps() == 1.5e9
    conf.set_override('uplink_dev', '', 'edge')
    with pytest.raises(exception.Invalid, match='uplink_dev'):
        parts(conf).enforcer()


def test_the_receiver_is_protected_where_that_is_wanted(conf):
    found = parts(conf, protect_receiver=True, link_ingress_bps=1e9)
    assert found.receiver(7.0).ingress_bps == 0.75e9


class Database:
    """Open vSwitch of one datapath."""

    def __init__(self, kind):
        self.kind = kind

    def datapath_of(self, dev):
        assert dev == 'lo'
        return self.kind


@pytest.mark.parametrize('kind, asked, name', [
    (None, 'auto', 'nft'), (None, 'nft-egress', 'nft-egress'),
    ('system', 'auto', 'nft'), ('netdev', 'auto', 'nft-egress'),
    ('netdev', 'nft', 'nft'), ('system', 'nft-egress', 'nft-egress')])
def test_the_classifier_fits_the_switch(conf, kind, asked, name):
    found = parts(conf, classifier=asked)
    found.database = Database(kind) if kind else None
    assert found.classifier().name == name


@pytest.mark.parametrize('mask, may', [
    ('0000000000001000', True), ('0000000000002000', False),
    ('0000000000000800', False), ('000001ffffffffff', True),
    ('0000000000000000', False)])
def test_who_may_administer(tmp_path, monkeypatch, mask, may):
    status = tmp_path / 'status'
    status.write_text(f'CapInh:\t0000000000001000\nCapEff:\t{mask}\n')
    monkeypatch.setattr(choice, '_STATUS', status)
    assert choice.may_administer() == may
    status.write_text('CapInh:\t0000000000001000\n')
    assert not choice.may_administer()
    # Whoever is not root and may do nothing is told.
    monkeypatch.setattr(choice.os, 'geteuid', lambda: 7)
    with pytest.raises(exception.Invalid, match='CAP_NET_ADMIN'):
        choice.open_kernel('nobody-knows', '')


def test_without_root_users_do_not_matter(monkeypatch):
    monkeypatch.setattr(choice.os, 'geteuid', lambda: 7)
    monkeypatch.setattr(choice, 'may_administer', lambda: True)
    assert choice.open_kernel('nobody-knows', '') is choice.kernel


@pytest.mark.parametrize('user, helper', [
    ('nobody-knows', ''), ('root', 'nobody-knows')])
def test_users_that_are_not_there_are_told(monkeypatch, user, helper):
    monkeypatch.setattr(choice.os, 'geteuid', lambda: 0)
    with pytest.raises(exception.Invalid, match='nobody-knows'):
        choice.open_kernel(user, helper)
