# SPDX-License-Identifier: Apache-2.0

"""What is read for reports, when, and what they say of it."""

import threading
import time
import types

from msgspec import structs
from oslo_config import cfg
import pytest

from edge_module import edge_options as edge_conf
from edge_module import factory
from edge_module import kept_state as state
from edge_module import reporting as report
from edge_module.classify import classified as base
from edge_module.privileged import devices
from edge_module.qdisc import link_speed
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model
from tests.unit.edge import test_enforcer
from virtco import exception
from virtco.wire import reports

KEY = 'tap1', base.Entry(5, '10.0.0.1', '10.0.0.2', 80)
STATS = {minors.LINK: wire.ClassStats(900),
         minors.HOST: wire.ClassStats(100, 3, 5, 2),
         minors.UNMANAGED: wire.ClassStats(70),
         0x10: wire.ClassStats(500, 6, 0, 0),
         0x11: wire.ClassStats(300, 4, 11, 1)}


@pytest.fixture
def clock(monkeypatch):
    """Processor time of the thread: a reading takes as long as a test says."""
    now = types.SimpleNamespace(s=50.0, cost_s=0.0)

    def thread_time():
        now.s += now.cost_s
        return now.s

    monkeypatch.setattr(report, 'time', types.SimpleNamespace(
        thread_time=thread_time, process_time=lambda: 4.0004))
    return now


@pytest.fixture
def enforcer():
    found = test_enforcer.started()
    found.uplink.seen = STATS
    found.classifier.counts = {KEY: model.Counts(40, 2)}
    found.classifier.peer_counts = {('tap1', '10.0.0.9'): model.Counts(60, 3)}
    found.classifier.macs = frozenset({
        ('tap1', 'b'), ('tap1', 'a'), ('tap2', 'b')})
    return found


def make(enforcer, interval_s=1.0, pairs_interval_s=10.0, rows=()):
    found = report.Readings(enforcer, interval_s, pairs_interval_s, rows)
    found.name(enforcer.policy)
    return found


def test_all_is_read_and_told(clock, enforcer):
    found = make(enforcer)
    found.read(100.0)
    told = found.counted()
    (coflow, ) = [one for one in told['coflows'] if one.coflow_id == 'c16']
    assert (coflow.sent_bytes, coflow.drops) == (500, 1)
    assert told['pairs'] == (reports.PairCounter(
        '10.0.0.1', '10.0.0.2', 40, 'tap1', 80, 2),)
    assert told['peers'] == (reports.PeerCounter('tap1', '10.0.0.9', 60, 3),)
    assert told['uplink_sent_bytes'] == 900
    assert told['default_sent_bytes'] == 170
    assert told['unmanaged'].macs == ('a', 'b')
    assert told['cpu_s'] == 11.0
    assert told['shared']['host'] == reports.PartCounters(100, 2, 5)
    again = make(enforcer, rows=found.to_rows())
    again.read(100.0)
    assert again.counted() == told


def test_a_link_full_of_rdma_is_not_idle(clock, enforcer, card):
    """Its bytes pass no class; they are the link's, and no coflow's."""
    found = make(enforcer)
    found.read(100.0)
    assert found.counted()['uplink_sent_bytes'] == 900
    card.write('up1', 'counters/port_xmit_data', 1000)
    card.write('up1', 'counters/port_rcv_data', 500)
    found.read(101.0)
    assert found.counted()['uplink_sent_bytes'] == 4900
    assert found.counted()['default_sent_bytes'] == 4170
    assert found.counted()['unshaped_sent_bytes'] == 4000
    assert found.counted()['rdma_received_bytes'] == 2000
    # The counter goes on over a restart, and over the card's own.
    again = make(enforcer, rows=found.to_rows())
    card.write('up1', 'counters/port_xmit_data', 1)
    again.read(102.0)
    assert again.counted()['uplink_sent_bytes'] == 4904


def test_limits_are_named(clock, enforcer):
    enforcer.set_policy(structs.replace(
        test_enforcer.ONE, unmanaged=test_enforcer.UNMANAGED), 100.0)
    enforcer.uplink.seen = STATS | {
        minors.of_limited(1, 5): wire.ClassStats(9, 1, 2, 3)}
    found = make(enforcer)
    found.read(100.0)
    assert found.limited_drops() == {'h3': 3, '': 0}


@pytest.mark.parametrize('pairs_s, peers_s, cost_s, due_pairs_s, due_peers_s',
                         [(10.0, 30.0, 0.0, 10.0, 30.0),
                          (2.0, 12.0, 0.0, 2.0, 12.0),
                          (45.0, 45.0, 0.0, 45.0, 45.0),
                          (2.0, 12.0, 0.3, 30.0, 30.0)])
def test_many_pairs_are_read_less_often(clock, enforcer, pairs_s, peers_s,
                                        cost_s, due_pairs_s, due_peers_s):
    clock.cost_s = cost_s
    found = make(enforcer, 1.0, pairs_s)
    for due_s, name in ((due_pairs_s, 'pairs'), (due_peers_s, 'peers')):
        found.read(1000.0)
        enforcer.classifier.readings.clear()
        found.read(1000.0 + due_s - 0.1)
        assert name not in enforcer.classifier.readings
        found.read(1000.0 + due_s + 0.001)
        assert name in enforcer.classifier.readings
        found = make(enforcer, 1.0, pairs_s)


def test_many_destinations_are_read_less_often(clock, enforcer, monkeypatch):
    """Tenants choose how many there are; 16,000 take 0.17 s."""
    reads = []
    monkeypatch.setattr(enforcer.classifier, 'destinations', lambda: (
        reads.append(1), frozenset())[1])
    found = make(enforcer, 1.0, 1e6)
    found.read(1000.0)
    found.read(1001.0)
    assert len(reads) == 2
    clock.cost_s = 0.3
    found.read(1002.0)
    clock.cost_s = 0.0
    for now_s, n_reads in (1011.9, 3), (1012.001, 4):
        found.read(now_s)
        assert len(reads) == n_reads


def test_a_reading_by_the_helper_counts_as_one(clock, enforcer, monkeypatch):
    spent_s = [7.0]
    monkeypatch.setattr(enforcer.uplink.kernel, 'cpu_s', lambda: spent_s[0])
    counted = enforcer.classifier.counted

    def count():
        spent_s[0] += 0.3
        return counted()

    monkeypatch.setattr(enforcer.classifier, 'counted', count)
    found = make(enforcer, 1.0, 2.0)
    for now_s, n_readings in (1000.0, 1), (1029.9, 1), (1030.001, 2):
        found.read(now_s)
        assert enforcer.classifier.readings.count('pairs') == n_readings
    assert found.counted()['cpu_s'] == 4.0 + spent_s[0]


def test_a_report_waits_for_half_an_interval_at_most(clock, enforcer):
    """What counts by class is told without what cannot be read."""
    waits = []
    enforcer.lock = types.SimpleNamespace(
        acquire=lambda timeout: waits.append(timeout))
    found = make(enforcer, 3.0)
    found.read(100.0)
    assert waits == [1.5] and found.pairs == found.peers == ()
    assert found.counted()['uplink_sent_bytes'] == 900
    # The helper was not asked for its time either.
    assert found.counted()['cpu_s'] == 4.0


def test_where_a_heavy_port_sends_is_read_at_once(clock, enforcer):
    found = make(enforcer)
    found.read(100.0)
    enforcer.classifier.readings.clear()
    enforcer.uplink.seen = STATS | {
        minors.FIRST_PORT + 5: wire.ClassStats(2_000_000)}
    clock.cost_s = 0.001
    enforcer.classifier.peer_counts = {
        ('tap1', '10.0.0.8'): model.Counts(7, 1)}
    found.read(101.0)
    assert enforcer.classifier.readings == [('peers', 5)]
    # What was read before of other addresses stays as it was.
    assert {one.dst_ip: one.sent_bytes for one in found.peers} == {
        '10.0.0.9': 60, '10.0.0.8': 7}
    # A hundredth of the time at most.
    enforcer.uplink.seen = STATS | {
        minors.FIRST_PORT + 5: wire.ClassStats(4_000_000)}
    found.read(101.05)
    assert enforcer.classifier.readings == [('peers', 5)]
    found.read(101.2)
    assert enforcer.classifier.readings == [('peers', 5)] * 2


def test_floods_are_noticed_by_readings(clock, enforcer):
    port = minors.FIRST_PORT + 5
    before = enforcer.uplink.tree[port].quantum_bytes
    enforcer.uplink.seen = {port: wire.ClassStats(150_000, 100, 0, 400)}
    make(enforcer).read(100.0)
    assert enforcer.uplink.tree[port].quantum_bytes == before / 16


def test_the_lock_is_given_back(clock, enforcer):
    def fail(**kwargs):
        raise exception.KernelRefused(what='read', count=1, why='told to')

    enforcer.classifier.counted = fail
    with pytest.raises(exception.KernelRefused):
        make(enforcer).read(100.0)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(
        enforcer.lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    assert seen == [True]


@pytest.fixture
def conf():
    found = cfg.ConfigOpts()
    edge_conf.register_opts(found)
    found([])
    found.set_override('uplink_dev', 'up1', 'edge')
    return found


def test_the_speed_of_the_link_leaves_a_margin(conf):
    conf.set_override('link_margin', 0.25, 'edge')
    conf.set_override('link_egress_bps', 4e9, 'edge')
    assert link_speed.egress_bps(conf, 'up1') == 3e9
    assert link_speed.ingress_bps(conf, 3e9) == 3e9
    conf.set_override('link_ingress_bps', 1e9, 'edge')
    assert link_speed.ingress_bps(conf, 3e9) == 0.75e9


def test_a_link_without_a_speed_wants_an_option(conf):
    conf.set_override('uplink_dev', 'nobody', 'edge')
    with pytest.raises(exception.NotFound):
        link_speed.egress_bps(conf, 'nobody')
    with pytest.raises(exception.Invalid, match='nobody reports no speed'):
        factory.Parts(conf, None).enforcer()


class Client:
    """Keeps reports, and ends the reporter after some."""

    def __init__(self, stop, n_reports):
        self.stop, self.n_reports, self.taken = stop, n_reports, []

    def deliver(self, one):
        self.taken.append(one)
        if len(self.taken) == self.n_reports:
            self.stop.set()


def reporter(conf, enforcer, files):
    stop, failures = threading.Event(), []
    client = Client(stop, 2)
    found = report.Reporter(
        conf, enforcer, files, stop,
        lambda: {'health': 'ok', 'applied_generation': 8}, failures.append,
        client.deliver)
    found.client, found.failures = client, failures
    return found


def test_a_port_that_reaches_many_leaves_others_their_places(enforcer):
    sweep = {('tap1', f'00:{number:04}') for number in range(2000)}
    enforcer.classifier.macs = frozenset(
        sweep | {('tap2', 'b'), ('tap2', 'c'), ('tap3', 'b')})
    readings = make(enforcer)
    readings.read(0.0)
    told = readings.counted()['unmanaged'].macs
    assert len(told) == 1024 and list(told) == sorted(set(told))
    assert {'b', 'c'} <= set(told)


def test_a_report_names_link_and_ports(conf, enforcer, tmp_path,
                                       monkeypatch):
    monkeypatch.setattr(devices, 'of_host', lambda: devices.OfHost(
        frozenset({'02:00:00:00:00:09'}), frozenset()))
    enforcer.forget()
    conf.set_override('link_ingress_bps', 1e9, 'edge')
    conf.set_override('link_margin', 0.5, 'edge')
    found = reporter(conf, enforcer, state.StateDir(str(tmp_path)))
    made = found.make(100.0)
    assert made.link == reports.Link(test_enforcer.LINK_BPS, 0.5e9, 'up1',
                                     ('02:00:00:00:00:09',))
    assert made.ports[0] == reports.Port(
        vm='v1', dev='tap1', mac='fa:16:3e:00:00:01', ips=('10.0.0.1',))
    assert len(made.ports) == 2
    enforcer.classifier.refused['tap1', 5] = 'told to'
    assert [port.notes for port in found.make(100.0).ports] == [
        ('told to',), ()]
    assert (made.applied_generation, made.epoch) == (8, found.epoch)
    # A controller tells by it which of two reports is the later one.
    before_ms = 1000 * time.clock_gettime(time.CLOCK_BOOTTIME)
    at_ms = found.make(100.0).boot_ms
    assert made.boot_ms <= before_ms <= at_ms + 1
    assert at_ms <= 1000 * time.clock_gettime(time.CLOCK_BOOTTIME)
    enforcer.ports = None
    assert found.make(100.0).ports == ()


def test_a_kernel_that_cannot_be_read_is_told(conf, enforcer, tmp_path):
    found = reporter(conf, enforcer, state.StateDir(str(tmp_path)))
    error = OSError(5, 'told to')

    def fail(_):
        raise error

    found.make(100.0)
    enforcer.uplink.stats = fail
    assert found.make(200.0).uplink_sent_bytes == 900
    assert found.failures == [error]


def test_counters_go_on_unless_the_host_was_booted(conf, enforcer, tmp_path):
    files = state.StateDir(str(tmp_path))
    first = reporter(conf, enforcer, files)
    first.make(100.0)
    first.save()
    again = reporter(conf, enforcer, files)
    assert again.epoch == first.epoch != ''
    enforcer.uplink.seen = {minors.LINK: wire.ClassStats(5)}
    assert again.make(100.0).uplink_sent_bytes == 905
    files.save('totals', files.load('totals') | {'boot_id': 'other'})
    other = reporter(conf, enforcer, files)
    assert other.epoch != first.epoch and len(other.epoch) == 32
    assert other.make(100.0).uplink_sent_bytes == 5


@pytest.mark.parametrize('saved', [[1], 'x', 5])
def test_saved_counters_without_sense_are_left_out(conf, enforcer, tmp_path,
                                                   saved):
    files = state.StateDir(str(tmp_path))
    files.save('totals', saved)
    assert reporter(conf, enforcer, files).make(
        100.0).uplink_sent_bytes == 900


def test_reports_go_on(conf, enforcer, tmp_path):
    conf.set_override('report_interval_s', 0.05, 'edge')
    found = reporter(conf, enforcer, state.StateDir(str(tmp_path)))
    found.report()
    assert len(found.client.taken) == 2
    assert found.last_report == found.client.taken[-1]


def test_a_reporter_is_woken(conf, enforcer, tmp_path):
    found = reporter(conf, enforcer, state.StateDir(str(tmp_path)))
    assert not found._now.is_set()
    found.wake()
    assert found._now.is_set()


def test_what_is_due_now_is_read_now(clock, enforcer):
    found = make(enforcer)
    for now_s, readings in ((100.0, ['pairs', 'peers']), (110.0, ['pairs']),
                            (130.0, ['pairs', 'peers'])):
        enforcer.classifier.readings.clear()
        found.read(now_s)
        assert enforcer.classifier.readings == readings
    # So are heavy ports, where that takes no time.
    for sent_bytes in 2_000_000, 4_000_000:
        enforcer.uplink.seen = STATS | {
            minors.FIRST_PORT + 5: wire.ClassStats(sent_bytes)}
        enforcer.classifier.readings.clear()
        found.read(131.0)
        assert enforcer.classifier.readings == [('peers', 5)]
