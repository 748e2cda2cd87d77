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


@pytest.fixture
def reporter(tmp_path):
    conf = cfg.ConfigOpts()
    edge_conf.register_opts(conf)
    conf([])
    conf.set_override('report_interval_s', 0.05, 'edge')
    enforcer = types.SimpleNamespace(
        lock=threading.RLock(), link_bps=1e9, noted_ports=tuple,
        observe=lambda stats, now_s: None,
        uplink=types.SimpleNamespace(
            dev='uplink0', stats=lambda: {
                minors.LINK: wire.ClassStats(sent_bytes=700)},
            kernel=types.SimpleNamespace(cpu_s=lambda: 0.0)),
        classifier=types.SimpleNamespace(
            counted=dict, destinations=lambda: frozenset(
                {('tap1', 'b'), ('tap1', 'a')}),
            peers=lambda _: {('tap1', '10.0.0.2'): model.Counts(900, 10)}))
    return report.Reporter(
        conf, enforcer, state.StateDir(tmp_path), threading.Event(),
        lambda: {'health': 'ok', 'applied_generation': 0},
        lambda error: pytest.fail(str(error)),
        lambda: pytest.fail('nothing is delivered here'))


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
