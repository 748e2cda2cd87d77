# SPDX-License-Identifier: Apache-2.0

"""Training jobs over the loopback device, and the figure of made-up times."""

import contextlib
import pathlib
import time
import types

import pytest

from tests.unit.lab.emulation import drawing
from virtco import hints
from virtco_lab.emulation import extent
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import nova_client
from virtco_lab.emulation import training


@pytest.fixture(name='bed')
def _bed(monkeypatch):
    """A bed of two jobs whose links are the loopback device."""
    made = types.SimpleNamespace(story=[], told=[], entered=[])

    class Cloud:
        def boot(self, name, hosts, flavor):
            return [nova_client.Server(f'{name}-{row}', name, 'ACTIVE', row,
                                       host) for row, host in enumerate(hosts)]

        def tell(self, servers, name, hints):
            made.told.append((name, hints))

        def wait_active(self, servers, note):
            return servers

    class Fabric:
        vms = {}

        def add_vm(self, vm, host):
            made.story.append((vm, host))
            self.vms[vm] = fabric_module.VmPort(
                vm, host, f'ns-{vm}', f'tap-{vm}', f'mac-{vm}',
                f'127.0.1.{len(self.vms)}')

    @contextlib.contextmanager
    def without_enforcement():
        made.story.append('without')
        yield
        made.story.append('with')

    monkeypatch.setattr(training.namespaces, 'call', lambda name, function: (
        made.entered.append(name), function())[1])
    scale = training.cases.Scale(2, 8e5)
    made.bed = bed = training.Bed(training.cases.bed(
        scale, pathlib.Path('logs'), slots=2))
    bed._cloud, bed.fabric, bed.inside = (
        Cloud(), Fabric(), lambda call, *_: call())
    bed._write_ports = lambda hosts: made.story.append(sorted(hosts))
    bed._planner, bed.without_enforcement = None, without_enforcement
    bed._wait = lambda condition, *_: condition()
    bed._enforced = lambda pairs, known: made.story.append(pairs)
    bed.launch_jobs(training.Setting(2, 0.02, 0.5))
    return made


def test_a_pair_of_vms_for_each_job_between_two_hypervisors(bed):
    assert bed.story == [
        ('job0-0', 'h0'), ('job0-1', 'h1'), ['h0', 'h1'],
        ('job1-0', 'h0'), ('job1-1', 'h1'), ['h0', 'h1'], {
            ('h0', '127.0.1.0', '127.0.1.1'),
            ('h0', '127.0.1.2', '127.0.1.3')}]
    # Half a second of what is payload.
    assert bed.bed._size_bytes == pytest.approx(0.5e5, rel=0.06)
    assert bed.bed._size_bytes < 0.5e5


def test_each_job_hints_what_it_sends_and_computes(bed):
    for number, (name, told) in enumerate(bed.told):
        assert name == f'job{number}'
        coflow, = hints.parse(told).coflows
        assert [tuple(flow) for flow in coflow.matrix.rows()] == [
            (0, 1, bed.bed._size_bytes)]
        assert (coflow.iterations, coflow.compute_s) == (0, 0.02)


@pytest.mark.parametrize('is_in_order', [True, False])
def test_jobs_in_order_need_edge_modules(bed, is_in_order):
    bed.story.clear()
    bed.bed.run(is_in_order, 2, 1)
    assert bed.story == [] if is_in_order else ['without', 'with']


def test_each_job_computes_and_sends_again_and_again(bed):
    began_s = time.monotonic()
    found = bed.bed.run(False, 5, 2)
    took_s = time.monotonic() - began_s
    assert [len(times) for times in found] == [3, 3]
    for times in found:
        # Nothing is faster than what it computes.
        assert min(times) >= 0.02
        assert sum(times) <= took_s
    assert took_s >= 0.1 + 5 * 0.02
    assert set(bed.entered) == {
        f'ns-job{job}-{row}' for job in range(2) for row in range(2)}


def test_a_job_leaves_no_socket(bed, monkeypatch):
    ends = []
    connect = training.namespaces.connect
    monkeypatch.setattr(training.namespaces, 'connect', lambda *args: (
        ends.extend(connect(*args)), tuple(ends[-2:]))[1])
    bed.bed.run(False, 2, 1)
    assert len(ends) == 4 and all(one.fileno() < 0 for one in ends)


def test_a_job_whose_bytes_do_not_arrive_is_given_up(bed, monkeypatch):
    monkeypatch.setattr(training, '_PATIENCE_S', 0.2)
    monkeypatch.setattr(training, '_answer', lambda *_: None)
    with pytest.raises(TimeoutError):
        bed.bed.run(False, 3, 0)


def test_what_breaks_a_job_is_told(bed, monkeypatch):
    def fail(*_):
        raise OSError('broken')

    monkeypatch.setattr(training, '_train', fail)
    with pytest.raises(OSError, match='broken'):
        bed.bed.run(False, 3, 0)


class Bed:
    base_s = 1.6

    def __init__(self, story):
        self._story = story

    def wait_measured(self):
        pass

    def launch_jobs(self, setting):
        self._story.append(setting)

    def run(self, is_in_order, iterations, warm_up):
        self._story.append((is_in_order, iterations, warm_up))
        base_s = self.base_s if is_in_order else 2.0
        return [[base_s + job / 10 + number / 100
                 for number in range(iterations - warm_up)]
                for job in range(2)]


@pytest.mark.parametrize('is_short', [False, True])
@pytest.mark.parametrize('name', training.FIGURES)
def test_a_figure_is_drawn_as_ever(name, is_short, monkeypatch):
    story = []

    @contextlib.contextmanager
    def bed(bed, say):
        scale = training.cases.Scale(len(bed.hosts), bed.link_bps)
        story.append(f'{len(bed.hosts)} {scale} {bed.logs} {bed.slots}')
        yield Bed(story)

    monkeypatch.setattr(training, 'Bed', bed)
    monkeypatch.setattr(Bed, 'base_s', 1.6 if is_short else 2.7)
    display = drawing.Display()
    found = training.FIGURES[name](
        extent.Options(30e6, short=is_short, display=display))
    drawing.check(f'{name}{"-short" * is_short}', found,
                  [*display.said, *map(str, story)])
    assert bool(found.unmet) is not is_short
