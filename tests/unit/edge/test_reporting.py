# SPDX-License-Identifier: Apache-2.0

"""Reports, whatever the rest of the module does meanwhile."""

import threading
import types

from oslo_config import cfg
import pytest

from edge_module import edge_options as edge_conf
from edge_module import kept_state as state
from edge_module import reporting as report
from edge_module.privileged import devices
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco.wire import edge_policy
from virtco.wire import reports


def make(tmp_path, interval_s=0.05):
    conf = cfg.ConfigOpts()
    edge_conf.register_opts(conf)
    conf([])
    conf.set_override('report_interval_s', interval_s, 'edge')
    enforcer = types.SimpleNamespace(
        host=devices.OfHost(
            frozenset({'02:00:00:00:00:09', '02:00:00:00:00:08'}),
            frozenset()),
        lock=threading.RLock(), link_bps=1e9, noted_ports=tuple,
        observe=lambda stats, now_s: None,
        stats=lambda: {minors.LINK: wire.ClassStats(sent_bytes=700)},
        uplink=types.SimpleNamespace(
            dev='uplink0', kernel=types.SimpleNamespace(cpu_s=lambda: 0.0)),
        classifier=types.SimpleNamespace(
            counted=dict, ports=tuple, destinations=lambda: frozenset(
                {('tap1', 'b'), ('tap1', 'a')}),
            peers=lambda _: {('tap1', '10.0.0.2'): model.Counts(900, 10)}))
    return report.Reporter(
        conf, enforcer, state.StateDir(tmp_path), threading.Event(),
        lambda: {'health': 'ok', 'applied_generation': 0},
        lambda error: pytest.fail(str(error)),
        lambda: pytest.fail('nothing is delivered here'))


@pytest.fixture
def reporter(tmp_path):
    return make(tmp_path)


def test_pairs_are_read_for_every_fifth_report(tmp_path):
    reporter, readings = make(tmp_path, 20.0), []
    reporter.enforcer.classifier.counted = lambda: readings.append(1) or {}
    for now_s, n_readings in ((1000.0, 1), (1099.0, 1), (1101.0, 2)):
        reporter.make(now_s)
        assert len(readings) == n_readings


def test_it_says_what_the_kernel_counted(reporter):
    made = reporter.make(0.0)
    assert made.uplink_sent_bytes == 700 and made.health == 'ok'
    assert made.unmanaged.macs == ('a', 'b')
    assert made.peers == (reports.PeerCounter('tap1', '10.0.0.2', 900, 10),)


def test_it_goes_on_while_thousands_of_classes_are_made(reporter):
    holds, ends = threading.Event(), threading.Event()

    def apply():
        with reporter.enforcer.lock:
            holds.set()
            ends.wait(60)

    thread = threading.Thread(target=apply)
    thread.start()
    holds.wait(60)
    try:
        made = reporter.make(0.0)
        assert made.uplink_sent_bytes == 700 and made.health == 'ok'
        assert made.unmanaged.macs == ()
        assert made.link.macs == ('02:00:00:00:00:08', '02:00:00:00:00:09')
    finally:
        ends.set()
        thread.join()
    assert reporter.make(0.0).unmanaged.macs == ('a', 'b')


def test_reports_begin_an_interval_apart_or_when_one_is_wanted(
        tmp_path, monkeypatch):
    """One that is wanted comes 20 ms after the last at the earliest; what
    wakes the thread while it makes one is not lost.
    """
    reporter, steps = make(tmp_path, 20.0), []
    durations_s = [3.0, 19.995, 25.0]
    clock = types.SimpleNamespace(s=100.0)
    clock.monotonic = lambda: clock.s

    def made(now_s):
        assert now_s == clock.s
        steps.append('make')
        clock.s += durations_s.pop(0)
        return f'report until {clock.s}'

    def note(name):
        return lambda wait_s: steps.append((name, pytest.approx(wait_s)))

    monkeypatch.setattr(report, 'time', clock)
    reporter.make = made
    reporter._deliver = steps.append
    reporter._stop = types.SimpleNamespace(
        is_set=lambda: not durations_s, wait=note('stop'))
    reporter._now = types.SimpleNamespace(
        clear=lambda: steps.append('clear'), wait=note('now'))
    # Time stands still while the thread waits for the first one: a look.
    looks = [(False, 18.0)]
    reporter.readings.look = looks.pop
    reporter.report()
    assert steps == [
        'clear', 'make', 'report until 103.0', ('stop', 0.02), ('now', 4.0),
        ('now', 17.0),
        'clear', 'make', 'report until 122.995', ('stop', 0.005),
        ('now', 0.005),
        'clear', 'make', 'report until 147.995', ('stop', 0.0), ('now', 0.0)]
    assert reporter.last_report == 'report until 147.995'


def _waiting(tmp_path, looks, interval_s=1.0):
    """A reporter that waits for what it looks at; waits are noted."""
    reporter, clock = make(tmp_path, interval_s), types.SimpleNamespace(s=0.0)
    told = []
    reporter._now = types.SimpleNamespace(wait=lambda wait_s: (
        told.append(pytest.approx(wait_s)),
        setattr(clock, 's', clock.s + wait_s))[2:])
    reporter.readings.look = lambda: next(looks)
    return reporter, clock, told


def test_who_begins_or_ceases_to_send_is_reported_soon(tmp_path, monkeypatch):
    looks = iter([(False, 0.0), (True, 0.0)])
    reporter, clock, told = _waiting(tmp_path, looks)
    monkeypatch.setattr(report, 'time', types.SimpleNamespace(
        monotonic=lambda: clock.s))
    reporter._wait(1.0)
    assert told == [0.2, 0.2]


def test_looks_take_one_per_cent_of_the_time(tmp_path, monkeypatch):
    looks = iter([(False, 0.5), (False, 0.0), (False, 0.0)])
    reporter, clock, told = _waiting(tmp_path, looks)
    monkeypatch.setattr(report, 'time', types.SimpleNamespace(
        monotonic=lambda: clock.s))
    forgotten = []
    reporter.readings.forget_told = lambda: forgotten.append(clock.s)
    reporter._wait(1.0)
    assert told == [0.2, 0.5, 0.2, 0.1]
    assert forgotten == [pytest.approx(1.0)]


def test_looks_that_call_for_reports_take_no_more(tmp_path, monkeypatch):
    """Tenants choose how often their classes begin and cease to send."""
    looks = iter([(True, 0.7)] * 9)
    reporter, clock, told = _waiting(tmp_path, looks)
    monkeypatch.setattr(report, 'time', types.SimpleNamespace(
        monotonic=lambda: clock.s))
    for _ in range(3):
        reporter._wait(clock.s + 1.0)
    assert told == [0.2, 0.7, 0.7]


def test_reports_that_are_frequent_need_no_look(tmp_path, monkeypatch):
    reporter, clock, told = _waiting(tmp_path, iter(()), 0.1)
    monkeypatch.setattr(report, 'time', types.SimpleNamespace(
        monotonic=lambda: clock.s))
    reporter._wait(0.1)
    assert told == [0.1]


def test_a_look_is_at_the_classes_of_coflows(reporter):
    readings, stats = reporter.readings, {}
    reporter.enforcer.stats = lambda with_drops: stats
    stats[0x10] = wire.ClassStats(5)
    assert readings.look() == (False, 0.0)  # of no policy
    readings.counters.name_classes([types.SimpleNamespace(
        minor=0x10, coflow_id='c', destinations=[
            types.SimpleNamespace(minor=0x11, host='h2')])])
    has_changed, least_s = readings.look()
    assert has_changed and least_s > 0
    assert readings.look()[0]  # it has ceased
    assert not readings.look()[0]
    stats[0x11], stats[minors.HOST] = wire.ClassStats(5), wire.ClassStats(5)
    assert readings.look()[0]
    # On another uplink.
    stats[minors.FURTHER + 0x11] = wire.ClassStats(5)
    stats[minors.FURTHER + minors.HOST] = wire.ClassStats(5)
    assert readings.look()[0]
    assert readings.look()[0]  # both have ceased
    # A queue of OVN is no coflow's, whatever its number.
    stats[0x10 - minors.FURTHER] = wire.ClassStats(5)
    assert not readings.look()[0]


def test_a_look_is_at_floods_where_unmanaged_traffic_is_limited(reporter):
    readings, stats = reporter.readings, {}
    reporter.enforcer.stats = lambda with_drops: stats
    much = int(reporter.enforcer.link_bps / 8 / 20)

    def send(minor, n_bytes):
        stats[minor] = wire.ClassStats(n_bytes)
        return readings.look()[0]

    port = minors.FIRST_PORT + 7
    send(port, 0)
    assert not send(port, much)
    readings.name(types.SimpleNamespace(
        classes=(), unmanaged=edge_policy.Unmanaged(1e6)))
    # Nobody knows when the first bytes that are seen were sent.
    send(port, 2 * much)
    send(port, 2 * much)
    readings.forget_told()
    # It begins and ends, and not twice before the next report is due.
    assert send(port, 3 * much) and send(port, 3 * much)
    assert not send(port, 4 * much)
    readings.forget_told()
    assert send(port, 4 * much)
    # What has a limit, and what is no VM's, is no flood.
    for minor in minors.of_limited(3, 7), minors.HOST, minors.LINK:
        send(minor, 0)
        assert not send(minor, 9 * much)
    assert send(minors.UNKNOWN, much)
    # By another uplink; a queue of OVN is none.
    for dev in (minors.FURTHER, -minors.FURTHER):
        send(minors.UNKNOWN, much)
        readings.forget_told()
        assert send(dev + port, much) == (dev > 0)


def test_a_look_tells_what_it_took(reporter, monkeypatch):
    reporter.readings.counters.name_classes([types.SimpleNamespace(
        minor=0x10, coflow_id='c', destinations=())])
    reporter.enforcer.stats = lambda with_drops: {}
    times_s = [50.0, 50.002]
    monkeypatch.setattr(report, 'time', types.SimpleNamespace(
        thread_time=lambda: times_s.pop(0)))
    assert reporter.readings.look() == (False, pytest.approx(0.2))


def test_a_look_that_the_kernel_refuses_is_none(reporter):
    reporter.readings.counters.name_classes([types.SimpleNamespace(
        minor=0x10, coflow_id='c', destinations=())])

    def refuse(with_drops):
        raise OSError('no such device')

    reporter.enforcer.stats = refuse
    assert reporter.readings.look() == (False, 0.0)
