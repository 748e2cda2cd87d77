# SPDX-License-Identifier: Apache-2.0

"""Reports, whatever the rest of the module does meanwhile."""

import threading
import types

from oslo_config import cfg
import pytest

from edge_module import edge_options as edge_conf
from edge_module import kept_state as state
from edge_module import reporting as report
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco.wire import reports


def make(tmp_path, interval_s=0.05):
    conf = cfg.ConfigOpts()
    edge_conf.register_opts(conf)
    conf([])
    conf.set_override('report_interval_s', interval_s, 'edge')
    enforcer = types.SimpleNamespace(
        lock=threading.RLock(), link_bps=1e9, noted_ports=tuple,
        observe=lambda stats, now_s: None,
        uplink=types.SimpleNamespace(
            dev='uplink0', stats=lambda: {
                minors.LINK: wire.ClassStats(sent_bytes=700)},
            kernel=types.SimpleNamespace(cpu_s=lambda: 0.0)),
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
    reporter.report()
    assert steps == [
        'clear', 'make', 'report until 103.0', ('stop', 0.02), ('now', 17.0),
        'clear', 'make', 'report until 122.995', ('stop', 0.005),
        ('now', 0.005),
        'clear', 'make', 'report until 147.995', ('stop', 0.0), ('now', 0.0)]
    assert reporter.last_report == 'report until 147.995'
