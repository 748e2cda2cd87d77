# SPDX-License-Identifier: Apache-2.0

"""A workload on a testbed that the test makes up."""

import contextlib
import dataclasses
import os
import types

import pytest

from virtco import hints
from virtco.model import coflow as coflow_model
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import fabric
from virtco_lab.emulation import results
from virtco_lab.emulation import runner
from virtco_lab.emulation import scenario
from virtco_lab.emulation import starvation
from virtco_lab.emulation import traffic
from virtco_lab.sim import schemes

RATE_BPS = 8e6


class Observer(runner.Observer):
    def __init__(self):
        self.seen = []

    def step(self, what):
        self.seen.append(what)

    def count(self, what, done, total):
        self.seen.append((what, done, total))

    def moved(self, done_bytes, total_bytes):
        self.seen.append((done_bytes, total_bytes))


class Bed:
    """Two hypervisors; the VMs of a group by turns on both."""

    def __init__(self, logs):
        self.bed = beds.Bed(dict.fromkeys(('h0', 'h1'), RATE_BPS),
                            link_bps=RATE_BPS, logs=logs)
        self.story = []
        self.fabric = types.SimpleNamespace(
            vms={}, introduce=lambda pairs: self.story.append(
                ('introduce', sorted((a.vm, b.vm) for a, b in pairs))))
        self.say = 'say'

    def change_settings(self, settings):
        self.story.append(settings)

    def usable_rates_bps(self):
        return {'h0': RATE_BPS, 'h1': RATE_BPS}

    def launch(self, name, n_vms, flavor, given, on_count, hosts=None):
        self.given = hosts
        found = hints.parse(given)
        self.story.append((name, n_vms, flavor, found.coflow_name))
        servers = [types.SimpleNamespace(uuid=f'{name}-{i}', host=f'h{i % 2}')
                   for i in range(n_vms)]
        for i, server in enumerate(servers):
            on_count(i + 1)
            n = len(self.fabric.vms)
            self.fabric.vms[server.uuid] = fabric.VmPort(
                server.uuid, server.host, f'ns{n}', f'tap{n}', f'mac{n}',
                f'10.0.0.{n}')
        return servers

    def ports(self, servers):
        return [self.fabric.vms[server.uuid] for server in servers]

    def wait_enforced(self, coflows=()):
        self.story.append(('enforced', [
            (coflow.name, [server.uuid for server in servers])
            for coflow, servers in coflows]))

    @contextlib.contextmanager
    def without_enforcement(self):
        self.story.append('unenforced')
        yield
        self.story.append('enforced again')

    def edge_pids(self):
        return {'h0': [1, 2], 'h1': [3]}

    def delete(self, servers, on_count):
        self.story.append(('delete', [server.uuid for server in servers]))
        on_count(2)


def _coflow(name, n_vms, flows, port=None):
    made = coflow_model.Coflow.from_flows(name, n_vms, flows)
    return dataclasses.replace(made, dst_port=port)


@pytest.fixture(name='run')
def _run(monkeypatch, tmp_path):
    made = types.SimpleNamespace(testbed=Bed(tmp_path), jobs=[],
                                 busy=iter((99.0, 42.0)), done=[])

    class Transfer:
        def __init__(self, job, log, say):
            assert log == tmp_path / 'traffic.log' and say == 'say'
            made.jobs.append(job)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def run(self, on_progress):
            on_progress(traffic.Progress((1, 2)))
            return types.SimpleNamespace(
                ccts_s=(2.5, 3.5), timeline=((1, 2),), bin_s=0.2,
                retransmits=9)

    monkeypatch.setattr(runner.transfers, 'Transfer', Transfer)
    monkeypatch.setattr(runner.psutil, 'cpu_percent', lambda: next(made.busy))
    monkeypatch.setattr(starvation, 'Watch', lambda pids: (
        types.SimpleNamespace(read=lambda: starvation.Usage(
            0.3, {1: 0.1, 2: 0.2, 3: 0.5}))))
    clock = iter(range(100))
    monkeypatch.setattr(runner, 'time', types.SimpleNamespace(
        monotonic=lambda: 2.5 * next(clock)))

    def call(order='sebf', local_pace=None, **options):
        # Of the second group both flows stay on their hosts.
        workload = scenario.Workload('w', 'W', (
            scenario.Group('a', 2, 1, (
                _coflow('a1', 2, [(0, 1, 1e6)], 7000),)),
            scenario.Group('b', 4, 2, (_coflow('b1', 4, [
                (0, 2, 3e6), (1, 3, 0.5)]),))), (),
            local_pace=local_pace)
        made.observer = Observer()
        return runner.run_emulated(
            made.testbed, workload, schemes.Scheme('s', 'S', 'virtco', order),
            made.observer, on_result=made.done.append, **options)

    made.call = call
    return made


def test_groups_are_placed_sent_and_taken_away(run):
    found = run.call()
    assert run.done == [found]
    assert run.observer.seen == [
        'placing 6 VMs', ('placing', 1, 6), ('placing', 2, 6),
        ('placing', 3, 6), ('placing', 4, 6), ('placing', 5, 6),
        ('placing', 6, 6), 'waiting for the edge modules', 'sending 4 MB',
        (3, 4_000_001), 'deleting 6 VMs', ('deleting', 4, 6)]
    assert run.testbed.story == [
        {'planner': 'virtco', 'order': 'sebf', 'objective': 'online'},
        ('a-s', 2, 'slot1', 'a-s'), ('b-s', 4, 'slot2', 'b-s'),
        ('introduce', [('a-s-0', 'a-s-1'), ('b-s-0', 'b-s-2'),
                       ('b-s-1', 'b-s-3')]),
        ('enforced', [
            ('a1', ['a-s-0', 'a-s-1']),
            ('b1', ['b-s-0', 'b-s-1', 'b-s-2', 'b-s-3'])]),
        ('delete', ['a-s-0', 'a-s-1', 'b-s-0', 'b-s-1', 'b-s-2', 'b-s-3']),
        ('enforced', [])]


def test_flows_inside_of_a_host_are_told_apart(run):
    run.call()
    job, = run.jobs
    assert job.starts_s == (0.0, 0.0) and job.local_bps is None
    assert job.flows == (
        traffic.FlowSpec(0, 'ns0', 'ns1', '10.0.0.1', 7000, 1_000_000),
        traffic.FlowSpec(1, 'ns2', 'ns4', '10.0.0.4', 5001, 3_000_000, 'h0'),
        traffic.FlowSpec(1, 'ns3', 'ns5', '10.0.0.5', 5001, 1, 'h1'))
    assert job.window_bytes == traffic.shared_window_bytes(1, RATE_BPS)


def test_what_was_measured_stands_beside_what_was_expected(run):
    found = run.call()
    expected_s = 8e6 / (RATE_BPS * 0.98 * scenario.PAYLOAD_FRACTION)
    first, second = found.coflows
    assert (first.name, first.group, first.n_vms, first.size_bytes,
            first.measured_s, first.tied) == ('a1', 'a', 2, 1e6, 2.5, False)
    assert first.predicted_s == first.unpaced_s
    assert 0.9 * expected_s < first.predicted_s < 1.2 * expected_s
    # Nothing of it crossed a link.
    assert (second.measured_s, second.predicted_s) == (3.5, 0.0)
    assert found.hosts == {'a': ('h0', 'h1'), 'b': ('h0', 'h1', 'h0', 'h1')}
    assert found.uplink_bytes == {'h0': (1e6, 0.0), 'h1': (0.0, 1e6)}
    assert (found.timeline, found.bin_s, found.retransmits) == (
        ((1, 2),), 0.2, 9)
    assert (found.busy_fraction, found.placing_s, found.waited_fraction) == (
        0.42, 2.5, 0.3)
    assert found.edge_cpu == pytest.approx({'h0': 0.3, 'h1': 0.5})


def test_what_stays_inside_of_hosts_takes_its_time_at_a_pace(run):
    found = run.call(local_pace=2.0)
    pace_bps = 2.0 * scenario.goodput_bps(RATE_BPS)
    assert run.jobs[0].local_bps == pace_bps
    second = found.coflows[1]
    assert second.predicted_s == pytest.approx(24e6 / pace_bps, rel=1e-3)
    assert second.unpaced_s == 0.0


def test_or_sends_little_without_a_pace(run):
    run.call(local_pace=2.0, local_bytes=1000)
    job, = run.jobs
    assert job.local_bps is None
    assert [flow.size_bytes for flow in job.flows] == [1_000_000, 1000, 1]


def test_fair_sharing_is_tcps_own(run):
    run.call('fair')
    at = run.testbed.story.index('unenforced')
    assert run.testbed.story[at + 1] == 'enforced again'
    run.testbed.story.clear()


def test_the_last_is_kept(run):
    run.call(keep=True)
    assert run.testbed.story[-1][0] == 'enforced'
    assert run.testbed.story[-1][1]
    assert run.observer.seen[-1] == (3, 4_000_001)


def test_children_are_the_family_without_this_process(monkeypatch):
    monkeypatch.setattr(runner.patience, 'family',
                        lambda: [5, os.getpid(), 6])
    assert runner.children() == [5, 6]


def test_ties_are_marked(monkeypatch):
    workload = scenario.Workload('w', 'W', (scenario.Group('a', 2, 1, (
        _coflow('x', 2, [(0, 1, 1.0)]), _coflow('y', 2, [(0, 1, 2.0)]),
        _coflow('z', 2, [(0, 1, 3.0)]))),), ())
    found = runner._coflow_results(workload, [1, 2, 3], [4, 5, 6], [7, 8, 9],
                                   [[0, 2]])
    assert found == tuple(results.CoflowResult(
        name, 'a', 2, size, *times, is_tied)
        for name, size, times, is_tied in (
            ('x', 1.0, (1, 4, 7), True), ('y', 2.0, (2, 5, 8), False),
            ('z', 3.0, (3, 6, 9), True)))


def test_a_simulated_run_counts_its_vms(monkeypatch):
    observer = Observer()
    clock = iter((1.0, 3.5))
    monkeypatch.setattr(runner, 'time', types.SimpleNamespace(
        monotonic=lambda: next(clock)))
    workload = scenario.fig1(RATE_BPS, slots=2)
    found = runner.run_simulated(
        workload, workload.schemes[0], {f'h{i}': RATE_BPS for i in range(3)},
        2, 0, observer)
    assert observer.seen[0] == 'placing 3 VMs'
    assert observer.seen[-1] == ('placing', 3, 3)
    # Nothing is transferred, so nothing of it is measured.
    assert (found.placing_s, found.timeline, found.bin_s, found.retransmits,
            found.busy_fraction, found.waited_fraction, found.edge_cpu) == (
                2.5, (), 0.0, 0, 0.0, 0.0, {})
