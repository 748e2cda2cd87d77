# SPDX-License-Identifier: Apache-2.0

"""When an agent syncs, what it says of itself, and the parts it is made of."""

import dataclasses
import math
import types

from msgspec import structs
from oslo_config import cfg
import pytest

from edge_module import agent as edge_agent
from edge_module import edge_metrics
from edge_module import edge_options as edge_conf
from edge_module import factory
from edge_module import kernel_events
from edge_module import virtual_functions
from edge_module.ports import port_source as ports_base
from tests.unit.edge import dictionaries
from tests.unit.edge import test_enforcer
from tests.unit.edge import test_virtual_functions
from virtco import exception
from virtco.wire import messages

AUDIT_S = 60.0
ERROR = exception.KernelRefused(what='act', count=1, why='told to')


class Watch:
    """Nobody changes anything unless the test says so."""

    def __init__(self):
        self.found = kernel_events.Changes()
        self.waited, self.woken = [], 0

    def changes(self):
        found, self.found = self.found, kernel_events.Changes()
        if isinstance(found, Exception):
            raise found
        return found

    def wait(self, timeout_s, deaf_s):
        self.waited.append((timeout_s, deaf_s))

    def wake(self):
        self.woken += 1

    def close(self):
        self.is_closed = True


class Source(ports_base.PortSource):
    """One port."""

    is_switched = True

    def __init__(self):
        self.ports = (dataclasses.replace(test_enforcer.PORT, dev='lo'),)
        self.error = None

    def token(self):
        return self.ports

    def read(self):
        if self.error is not None:
            raise self.error
        return self.ports


@pytest.fixture
def conf(tmp_path):
    found = cfg.ConfigOpts()
    edge_conf.register_opts(found)
    found([], project='virtco')
    for name, value in {'uplink_dev': 'lo', 'host': 'h1',
                        'link_egress_bps': 2e9, 'link_margin': 0.25,
                        'audit_interval_s': AUDIT_S,
                        'state_dir': str(tmp_path)}.items():
        found.set_override(name, value, 'edge')
    found.set_override('enabled', False, 'probe')
    return found


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(s=1000.0, cpu_s=3.0)
    monkeypatch.setattr(edge_agent, 'time', types.SimpleNamespace(
        monotonic=lambda: now.s, thread_time=lambda: now.cpu_s))
    return now


@pytest.fixture
def told(monkeypatch):
    """What systemd hears."""
    found = []
    monkeypatch.setattr(edge_agent.systemd, 'notify',
                        lambda **fields: found.append(fields))
    return found


@pytest.fixture
def fresh(conf, clock):
    """An agent that has not looked at the kernel yet."""
    found = edge_agent.Agent(conf, test_enforcer.make(), Source(), Watch())
    found.taken, found.woken = [], []
    found.link.say_taken = lambda *told: found.taken.append(told)
    found.reporter.wake = lambda: found.woken.append(clock.s)
    return found


def offer(agent, policy=test_enforcer.ONE, **changes):
    """Have it arrive over the stream, and sync."""
    policy = structs.replace(policy, **changes)
    agent.link._offer = messages.Policy(policy.generation,
                                         policy.to_dict())
    return agent.sync()


@pytest.fixture
def agent(fresh):
    """One with a policy, whose first audit is over."""
    fresh.link.renewed_s = 1e9
    fresh.sync()
    offer(fresh)
    fresh.taken.clear()
    fresh.woken.clear()
    return fresh


def snapshots(agent):
    return agent.enforcer.uplink.asked.count('snapshot')


def test_the_first_sync_compares_everything(fresh):
    assert (fresh.error, fresh.is_failing, fresh.applied_generation) == (
        None, False, 0)
    fresh.sync()
    assert fresh.enforcer.uplink.tree == fresh.enforcer.desired_tree()
    assert fresh.applied_generation == 0 and fresh.enforcer.policy is None
    assert [port.ifindex for port in fresh.enforcer.ports] == [1]


def test_a_policy_is_applied_at_once(agent):
    before = snapshots(agent)
    offer(agent, generation=7)
    assert agent.applied_generation == 7 and agent.taken == [(7, None)]
    assert agent.woken == [1000.0] and snapshots(agent) == before
    agent.sync()
    assert len(agent.woken) == 1
    agent.enforcer.uplink.seen = {0x10: test_enforcer.wire.ClassStats(77)}
    agent.reporter.readings.read(0.0)
    (coflow,) = [one for one in agent.reporter.readings.counted()['coflows']
                 if one.sent_bytes]
    assert coflow.sent_bytes == 77
    about = agent._about()
    assert (about['applied_generation'], about['health'],
            about['error']) == (7, 'ok', None)


def test_ports_that_come_are_bound(agent):
    agent.ports.source.ports = ()
    agent.sync()
    assert agent.enforcer.ports == () and len(agent.woken) == 1
    assert not agent.enforcer.classifier.table.hooks
    agent.ports.source.error = ERROR
    agent.ports.source.ports = (test_enforcer.PORT,)
    agent.sync()
    assert agent.enforcer.ports == () and not agent.is_failing
    assert agent._about()['health'] == 'degraded'


def test_a_policy_past_its_time_to_live_is_degraded(agent, clock):
    agent.policy._renewed_s = agent.link.renewed_s = clock.s
    clock.s += test_enforcer.ONE.ttl_s + 0.1
    agent.sync()
    assert agent.enforcer.n_past == 1
    assert agent._about()['health'] == 'degraded'
    agent.link.renewed_s = clock.s
    agent.sync()
    assert not agent.enforcer.n_past and agent._about()['health'] == 'ok'


def test_rates_of_virtual_functions_follow_policy_and_time(fresh, clock):
    """Each by the next sync: a policy, another one, the time to live, a later
    word of the controller, and a policy without the coflow.
    """
    kernel = test_virtual_functions.Kernel()
    kernel.functions = {1: test_virtual_functions.ONE}
    fresh.enforcer.functions = virtual_functions.VirtualFunctions(kernel)
    fresh.policy._renewed_s = fresh.link.renewed_s = clock.s
    fresh.sync()
    share = []

    def seen():
        share.append(kernel.rates[test_virtual_functions.ONE].share_mbps)

    offer(fresh)
    seen()
    coflow, *others = test_enforcer.ONE.classes
    faster = structs.replace(coflow, rate_bps=60e6, destinations=tuple(
        structs.replace(one, rate_bps=1.5 * one.rate_bps)
        for one in coflow.destinations))
    offer(fresh, generation=2, classes=(faster, *others))
    seen()
    for after_s, heard in ((test_enforcer.ONE.ttl_s - 1, False), (2, False),
                           (0, True)):
        clock.s += after_s
        if heard:
            fresh.link.renewed_s = clock.s
        fresh.sync()
        seen()
    offer(fresh, test_enforcer.TWO, generation=3)
    seen()
    # After the time to live: half of what control and other packets leave of
    # the link by the last rates, 60 to 8, and half equally.
    assert share == [30, 45, 45, 49, 45, 0]


def test_the_end_of_a_conflict_is_looked_for(agent, clock):
    """Nothing may announce it, or too early."""
    agent.enforcer.uplink.foreign = 'htb 1:'
    agent.enforcer.forget()
    agent.sync()
    assert agent._about()['health'] == 'degraded'
    agent.enforcer.uplink.foreign = None
    clock.s += 0.9
    agent.sync()
    assert agent.enforcer.conflict is not None
    clock.s += 0.2
    agent.sync()
    assert agent.enforcer.conflict is None
    assert agent._about()['health'] == 'ok'


def test_an_audit_comes_in_its_time(agent, clock):
    before = snapshots(agent)
    forgot = agent.enforcer.classifier.forgot
    clock.s += AUDIT_S - 0.1
    agent.sync()
    assert snapshots(agent) == before
    agent.enforcer.uplink.tree.pop(0x21)
    clock.s += 0.1
    assert agent.sync() is False
    assert snapshots(agent) == before + 1
    assert 0x21 in agent.enforcer.uplink.tree
    agent.sync()
    assert snapshots(agent) == before + 1
    assert agent.enforcer.classifier.forgot == forgot + 1


def test_what_was_lost_is_made_at_once(agent, clock):
    agent._watch.found = kernel_events.Changes(frozenset({7}))
    agent.enforcer.uplink.tree.pop(0x21)
    assert agent.sync() is True
    assert 0x21 in agent.enforcer.uplink.tree
    # The next audit is counted from here.
    before = snapshots(agent)
    clock.s += AUDIT_S - 1
    assert agent.sync() is False
    assert snapshots(agent) == before


def test_a_refusal_is_tried_again_less_and_less_often(agent, clock):
    uplink = agent.enforcer.uplink
    uplink.refuses.add('snapshot')
    clock.s += AUDIT_S
    agent.sync()
    assert agent.is_failing and 'told to' in agent.error
    assert agent.woken == [clock.s]
    tried_s = [clock.s]
    count = snapshots(agent)
    for _ in range(200):
        clock.s += 0.1
        agent.sync()
        if snapshots(agent) != count:
            count = snapshots(agent)
            tried_s.append(clock.s)
    between_s = [after - before
                 for before, after in zip(tried_s, tried_s[1:])]
    assert between_s == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0],
                                      abs=0.11)
    uplink.refuses.clear()
    clock.s += 5
    agent.sync()
    assert not agent.is_failing and agent.error is None
    # The next one begins with short pauses again.
    uplink.refuses.add('snapshot')
    clock.s += AUDIT_S
    agent.sync()
    count = snapshots(agent)
    clock.s += 0.21
    agent.sync()
    assert snapshots(agent) == count + 1


def test_a_failure_elsewhere_brings_the_audit_forward(agent, clock, caplog):
    count = snapshots(agent)
    agent.failed(ERROR)
    assert caplog.text.count('Not enforced yet') == 1
    agent.failed(ERROR)
    assert caplog.text.count('Not enforced yet') == 1
    assert agent.is_failing and agent.error == str(ERROR)
    # The reporter fails again with each report that it makes.
    assert agent.woken == [clock.s]
    agent.sync()
    assert snapshots(agent) == count
    clock.s += 0.2
    agent.sync()
    assert snapshots(agent) == count + 1 and not agent.is_failing
    # It does not put off one that is due before.
    clock.s += AUDIT_S - 0.1
    agent.failed(ERROR)
    clock.s += 0.1
    agent.sync()
    assert snapshots(agent) == count + 2


@pytest.mark.parametrize('error, is_a_bug', [
    (ERROR, False), (OSError(24, 'too many files'), False),
    (KeyError('x'), True)])
def test_what_goes_wrong_ends_nothing(agent, caplog, error, is_a_bug):
    agent._watch.found = error
    assert agent.sync() is False
    assert agent.is_failing and ('Traceback' in caplog.text) == is_a_bug


def test_a_refused_document_is_told_until_the_next_is_taken(agent, clock,
                                                            caplog):
    for _ in range(2):
        offer(agent, host='h2')
        assert 'host' in agent.error and not agent.is_failing
    assert caplog.text.count('the old policy stays') == 1
    assert [why == agent.error for _, why in agent.taken] == [True] * 2
    assert len(agent.woken) == 2 and agent.applied_generation == 1
    clock.s += AUDIT_S
    agent.sync()
    assert 'host' in agent.error
    offer(agent, generation=2)
    assert agent.error is None and agent.taken[-1] == (2, None)


def test_each_new_refusal_is_logged(agent, caplog):
    for host in ('h2', 'h3', 'h2'):
        offer(agent, host=host)
    assert caplog.text.count('the old policy stays') == 3
    offer(agent)
    offer(agent, host='h2')
    offer(agent, host='h2')
    assert caplog.text.count('the old policy stays') == 4


def test_what_the_kernel_refuses_is_not_applied(agent, clock):
    agent.enforcer.uplink.refuses.add('set_classes')
    offer(agent, test_enforcer.TWO, generation=9)
    assert agent.applied_generation == 1 and agent.is_failing
    assert agent.taken == [(9, None)]
    agent.enforcer.uplink.refuses.clear()
    clock.s += 1
    agent.sync()
    assert agent.applied_generation == 9 and not agent.is_failing


def test_beside_somebody_elses_qdisc_it_works_degraded(agent, told):
    agent.enforcer.uplink.foreign = 'htb 1:'
    agent.enforcer.forget()
    offer(agent, generation=9)
    about = agent._about()
    assert about['health'] == 'degraded' and 'htb 1:' in about['error']
    assert about['applied_generation'] == 1 and not agent.is_failing
    agent._tell()
    assert told == [{'STATUS': about['error'], 'READY': 1}]
    agent.enforcer.uplink.foreign = None
    agent.enforcer.forget()
    agent.sync()
    assert agent._about()['health'] == 'ok' and agent.applied_generation == 9


@pytest.mark.parametrize('spoil, health', [
    (lambda agent: agent.failed(OSError(5, 'x')), 'error'),
    (lambda agent: offer(agent, host='h2'), 'degraded'),
    (lambda agent: setattr(agent.ports, 'error', 'x'), 'degraded'),
    (lambda agent: setattr(agent.enforcer, 'n_past', 1), 'degraded'),
    (lambda agent: agent._threads.append(
        types.SimpleNamespace(problem='x')), 'error'),
    (lambda agent: setattr(agent.enforcer, 'ports', (dataclasses.replace(
        test_enforcer.PORT, notes=('x',)),)), 'degraded'),
    (lambda agent: agent.enforcer.classifier.refused.update(
        {(port.dev, port.ifindex): 'x' for port in agent.enforcer.ports}),
     'degraded'),
    (lambda agent: None, 'ok')])
def test_health(agent, spoil, health):
    spoil(agent)
    about = agent._about()
    assert about['health'] == health
    assert (about['error'] is None) == (health == 'ok')
    agent.reporter.make(0.0)


def run(agent, *steps):
    """Run it; each time it waits the next step is made, then it ends."""
    left = list(steps)
    wait = agent._watch.wait
    agent.connect = lambda: None

    def next_step(timeout_s, deaf_s):
        wait(timeout_s, deaf_s)
        if left:
            left.pop(0)()
        else:
            agent.stop()

    agent._watch.wait = next_step
    assert agent.run()
    return agent._watch.waited


def test_it_waits_for_what_is_to_come(agent, clock, told):
    def lose():
        agent._watch.found = kernel_events.Changes(frozenset({7}))

    def leave():
        offer(agent, test_enforcer.TWO, generation=2)

    def end_grace():
        clock.s += test_enforcer.GRACE_S + 1

    idle, tick = (edge_agent._IDLE_S, 0.0), (edge_agent.TICK_S, 0.0)
    assert run(agent, lose, lambda: None, leave, end_grace,
               lambda: agent.failed(ERROR)) == [
        idle, (edge_agent.TICK_S, edge_agent.TICK_S), idle, tick, idle, tick]
    assert 0x10 not in agent.enforcer.uplink.tree
    assert told == [{'STATUS': 'Enforcing on up1', 'READY': 1},
                    {'STATUS': str(ERROR)}, {'STOPPING': 1}]
    assert agent._watch.is_closed and agent._watch.woken == 1


@pytest.mark.parametrize('took_s, deaf_s', [
    (0.001, 0.02), (0.01, 0.2), (0.1, edge_agent.TICK_S)])
def test_announcements_take_a_twentieth_of_the_time(
        agent, clock, monkeypatch, took_s, deaf_s):
    """A VM changes its device at any rate, and nothing is lost by that."""
    def announce():
        agent._watch.found = kernel_events.Changes(frozenset({99}))

    def look(*args, **values):
        clock.cpu_s += took_s

    monkeypatch.setattr(agent.ports, 'read', look)
    waited = run(agent, *[announce] * 3)
    assert waited == [(edge_agent._IDLE_S, pytest.approx(deaf_s))] * 4


def test_the_kernel_is_right_before_anybody_is_asked(fresh, monkeypatch):
    seen = []

    def connect():
        seen.append(fresh.enforcer.uplink.tree
                    == fresh.enforcer.desired_tree())
        fresh.stop()

    monkeypatch.setattr(fresh, 'connect', connect)
    monkeypatch.setattr(fresh.ports.source, 'close',
                        lambda: seen.append('ports'))
    assert fresh.run()
    assert seen == [True, 'ports']


@pytest.mark.parametrize('notes, health', [
    (((), ()), 'ok'), ((('x',), ()), 'degraded'), (((), ('x',)), 'degraded'),
    ((), 'ok')])
def test_a_port_that_is_not_managed_degrades_the_host(agent, monkeypatch,
                                                      notes, health):
    monkeypatch.setattr(agent.enforcer, 'noted_ports', lambda: tuple(
        dataclasses.replace(test_enforcer.PORT, notes=one) for one in notes))
    about = agent._about()
    assert about['health'] == health
    assert about['error'] == (None if health == 'ok' else (
        '1 port(s) with traffic that is not managed, such as tap1: x'))


def test_it_goes_on_with_what_was_saved(agent, conf, told):
    run(agent)
    again = edge_agent.Agent(conf, test_enforcer.make(), Source(), Watch())
    run(again)
    assert again.enforcer.policy == test_enforcer.ONE
    assert again.applied_generation == 1
    assert again.reporter.epoch == agent.reporter.epoch
    # The classes of its coflows have their names before anybody is heard.
    again.reporter.readings.read(0.0)
    assert {one.coflow_id for one
            in again.reporter.readings.counted()['coflows']} == {
        'c16', 'c32'}


def test_it_saves_now_and_then(agent, clock, monkeypatch):
    saved = []
    monkeypatch.setattr(agent.reporter, 'save', lambda: saved.append(clock.s))
    for clock.s in (1100.0, 1104.9, 1105.0, 1106.0):
        agent._save()
    assert saved == [1100.0, 1105.0]


class Probe:
    """Trains that are sent from here, or cannot be."""

    def __init__(self, conf, link):
        self.given = link, conf.edge.host
        self.noted = []

    def start(self):
        self.noted.append('start')

    def stop(self):
        self.noted.append('stop')


@pytest.fixture
def begun(fresh, monkeypatch):
    """What begins with a connection, and on which port metrics are served."""
    fresh.begun = []
    fresh._threads = [types.SimpleNamespace(
        start=lambda: fresh.begun.append('thread'))]
    monkeypatch.setattr(edge_metrics, 'serve', lambda conf, reporter, link: (
        fresh.begun.append(conf.edge.metrics_port)))
    fresh.conf.set_override('metrics_port', 9, 'edge')
    return fresh


@pytest.mark.parametrize('enabled', [True, False])
def test_what_begins_ends_with_the_agent(begun, monkeypatch, enabled):
    monkeypatch.setattr(edge_agent.probe_service, 'ProbeService', Probe)
    begun.conf.set_override('enabled', enabled, 'probe')
    begun.ports.source.close = lambda: begun.begun.append('closed')
    begun.connect()
    assert begun.begun == [9, 'thread']
    begun.reporter.save = lambda: begun.begun.append('saved')
    begun.disconnect()
    assert begun.begun == [9, 'thread', 'closed', 'saved']
    # The thread of reports need not wait for its next one.
    assert len(begun.woken) == 1
    assert begun._watch.is_closed and begun._stop.is_set()
    if enabled:
        assert begun.probe.given == (begun.link, 'h1')
        assert begun.probe.noted == ['start', 'stop']
    else:
        assert begun.probe is None


def test_an_agent_without_trains_goes_on(begun, monkeypatch, caplog):
    def fails(*_args):
        raise OSError('no port')

    monkeypatch.setattr(edge_agent.probe_service, 'ProbeService', fails)
    begun.conf.set_override('enabled', True, 'probe')
    begun.conf.set_override('metrics_port', 0, 'edge')
    begun.connect()
    assert begun.begun == ['thread'] and begun.probe is None
    assert 'plans use the link speed: no port' in caplog.text
    begun.disconnect()


def test_its_threads(fresh):
    assert [one.name for one in fresh._threads] == ['stream', 'report']
    assert fresh.link.renewed_s == -math.inf


def parts(conf, **options):
    for name, value in options.items():
        conf.set_override(name, value, 'edge')
    return factory.Parts(conf, dictionaries.Kernel())


def test_options_reach_the_enforcer(conf):
    found = parts(conf, leaf_min_bytes=20000,
                  wire_overhead_bytes=28).enforcer()
    assert (found.link_bps, found.grace_s) == (1.5e9, 5.0)
    settings = found.settings
    assert (settings.leaf_s, settings.min_leaf_bytes, settings.link_packet_s,
            settings.overhead_bytes, settings.frame_min_bytes) == (
        0.025, 20000, 0.004, 28, 88)
    settings = parts(conf, wire_overhead_bytes=0).enforcer().settings
    assert (settings.link_packet_s, settings.overhead_bytes,
            settings.frame_min_bytes) == (0, 0, 0)
    assert found.guard is None and found.receiver is None
    assert found.classifier.name == 'bpf' and found.speed_bps() == 1.5e9
    assert found.uplinks == (found,)
    conf.set_override('uplink_dev', '', 'edge')
    with pytest.raises(exception.Invalid, match='uplink_dev'):
        parts(conf).enforcer()


def test_a_link_without_a_speed_wants_one(conf, monkeypatch):
    def none(dev):
        raise exception.NotFound(what='link speed of', id=dev)

    monkeypatch.setattr(factory.link_speed, 'speed_bps', none)
    with pytest.raises(exception.Invalid) as caught:
        parts(conf, link_egress_bps=0).enforcer()
    assert caught.value.kwargs == {
        'field': '[edge] link_egress_bps', 'value': 0,
        'limit': 'a rate, as lo reports no speed'}


def test_open_vswitch_is_waited_for(conf, monkeypatch, caplog):
    found = parts(conf)
    found.wait_ready()
    answers, waits = [exception.OvsUnavailable('away'), []], []

    def ports():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr('time.sleep', waits.append)
    found.database = types.SimpleNamespace(read=ports)
    found.wait_ready()
    assert not answers and waits == [1]
    assert [(one.levelname, one.getMessage()) for one in caplog.records
            ] == [('ERROR', 'VC-092: away')]
    # Longer after each failure, and for 5 s at most.
    answers, waits[:] = [exception.OvsUnavailable('away')] * 5 + [[]], []
    found.wait_ready()
    assert not answers and waits == [1, 2, 4, 5, 5]


def test_the_receiver_is_protected_where_that_is_wanted(conf):
    found = parts(conf, protect_receiver=True, link_ingress_bps=1e9)
    side = found.receiver(7.0)
    side.follow(2e9)
    assert side.ingress_bps == 0.75e9
    side = parts(conf, protect_receiver=True,
                 link_ingress_bps=0.0).receiver(7.0)
    assert side.ingress_bps == 7.0
    side.follow(9.0)
    assert side.ingress_bps == 9.0


class Database:
    """Open vSwitch of one datapath."""

    def __init__(self, kind):
        self.kind = kind

    def datapath_of(self, dev):
        assert dev == 'lo'
        return self.kind


@pytest.mark.parametrize('missing, kind, name', [
    (None, None, 'bpf'), (None, 'system', 'bpf'),
    (None, 'netdev', 'bpf-egress'), ('old', None, 'nft'),
    ('old', 'system', 'nft'), ('old', 'netdev', 'nft-egress')])
def test_the_classifier_fits_the_switch(conf, missing, kind, name):
    found = parts(conf)
    found.database = Database(kind) if kind else None
    found.kernel = types.SimpleNamespace(bpf_missing=lambda: missing)
    made = found.classifier()
    assert (made.name, made.reason) == (name, missing)


def test_each_further_uplink_has_its_speed(conf):
    found = parts(conf, further_uplinks={'up2': 4e9, 'up3': 0.0},
                  link_margin=0.5)
    with pytest.raises(exception.Invalid, match='up3 reports no speed'):
        found.enforcer()
    conf.set_override('further_uplinks', {'up2': 4e9}, 'edge')
    one, = found.enforcer().further
    assert (one.uplink.dev, one.link_bps, one.is_further) == (
        'up2', 2e9, True)
    assert one.settings == found.enforcer().settings and one.guard is None
    assert found.enforcer().functions.devs == ()
    conf.set_override('set_vf_rates', True, 'edge')
    assert found.enforcer().functions.devs == ['lo', 'up2']


def test_a_conflict_at_any_uplink_is_told(agent):
    other = types.SimpleNamespace(conflict=None, note='up2 has queues')
    agent.enforcer.further = [other]
    assert agent.error is None
    assert agent._about()['error'] == 'up2 has queues'
    other.conflict = 'up2 has tbf'
    assert agent.error == 'up2 has tbf'
    assert agent._about()['health'] == 'degraded'
