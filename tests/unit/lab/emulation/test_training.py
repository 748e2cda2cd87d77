# SPDX-License-Identifier: Apache-2.0

"""Training jobs over the loopback device, and the figure of made-up times."""

import contextlib
import time
import types

import pytest

from tests.unit.lab.emulation import drawing
from virtco_lab.emulation import extent
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import training
from virtco_lab.services import service


@pytest.fixture(name='bed')
def _bed(monkeypatch):
    """A bed of two jobs whose links are the loopback device."""
    made = types.SimpleNamespace(story=[], policies=[], entered=[])
    ports = iter(service.free_ports(4))
    monkeypatch.setattr(training, '_PORT', next(ports))

    class Fabric:
        hypervisors = {'h0': types.SimpleNamespace(namespace='ns-h0')}

        def build(self, uplinks):
            made.story.append([(one.host, one.rate_bps) for one in uplinks])

        def add_vm(self, vm, host):
            number = len(made.story)
            made.story.append((vm, host))
            return fabric_module.VmPort(vm, host, f'ns-{vm}', f'tap-{vm}',
                                        f'mac-{vm}', f'127.0.1.{number}')

        def introduce(self, pairs):
            made.story.append([(a.vm, b.vm) for a, b in pairs])

    @contextlib.contextmanager
    def executor(namespace, threads):
        made.story.append((namespace, threads))
        yield types.SimpleNamespace(submit=lambda function, *args: (
            types.SimpleNamespace(result=lambda: function(*args))))

    class Enforcer:
        def __init__(self, uplink, classifier, speed_bps, settings):
            made.story.append((speed_bps(), settings.min_leaf_bytes,
                               settings.link_packet_s))

        def sync(self, policy, is_lost, ports, now_s):
            made.policies.append((policy, is_lost, ports))

    monkeypatch.setattr(training.namespaces, 'executor', executor)
    monkeypatch.setattr(training.namespaces, 'call', lambda name, function: (
        made.entered.append(name), function())[1])
    monkeypatch.setattr(training.edge_enforcer, 'Enforcer', Enforcer)
    monkeypatch.setattr(training.htb, 'Uplink', lambda *_: None)
    monkeypatch.setattr(training.nft, 'NftClassifier', lambda *_: None)
    monkeypatch.setattr(training.socket, 'if_nametoindex', lambda dev: (
        int(dev[-1]) + 7))
    made.setting = training.Setting(2, 0.02, 0.5)
    with contextlib.ExitStack() as stack:
        made.bed = training.Bed(Fabric(), made.setting, 8e5, stack)
        yield made


def test_a_pair_of_vms_for_each_job_between_two_hypervisors(bed):
    assert bed.story == [
        [('h0', 8e5), ('h1', 8e5)], ('s0', 'h0'), ('s1', 'h0'), ('r0', 'h1'),
        ('r1', 'h1'), [('s0', 'r0'), ('s1', 'r1')], ('ns-h0', 1),
        (0.95 * 8e5, 256 * 1024, 0.004)]
    # Half a second of what is payload.
    assert bed.bed._size_bytes == round(0.5 * 0.95 * 1e5 * 1448 / 1514)


@pytest.mark.parametrize(('is_in_order', 'share', 'priorities'), [
    (False, 0.96, [0, 0]), (True, 0.02, [0, 1])])
def test_classes_are_equal_or_have_priorities(bed, is_in_order, share,
                                              priorities):
    bed.bed._set_policy(is_in_order)
    (policy, is_lost, ports), = bed.policies
    assert is_lost is False
    edge_bps = 0.95 * 8e5
    minors = [training.edge_policy.FIRST_MINOR + 2 * i for i in range(2)]
    rate_bps = pytest.approx(share * edge_bps / 2)
    assert policy == training.edge_policy.EdgePolicy(
        'h0', 1, 60.0, edge_bps, edge_bps, 0.02 * edge_bps, tuple(
            training.edge_policy.CoflowClass(
                f's{i}', f's{i}', minors[i], rate_bps, edge_bps,
                priorities[i], (training.edge_policy.Destination(
                    'h1', minors[i] + 1, 1.0, rate_bps, edge_bps),))
            for i in range(2)), tuple(
                training.edge_policy.FlowEntry(
                    f's{i}', f's{i}', f'127.0.1.{1 + i}', f'127.0.1.{3 + i}',
                    minors[i] + 1) for i in range(2)))
    assert ports == tuple(training.classify.VmPort(
        f's{i}', f'tap-s{i}', 7 + i, f'mac-s{i}', (f'127.0.1.{1 + i}',))
        for i in range(2))


def test_each_job_computes_and_sends_again_and_again(bed):
    began_s = time.monotonic()
    found = bed.bed.run(False, 5, 2)
    took_s = time.monotonic() - began_s
    assert [len(times) for times in found.iteration_s] == [3, 3]
    for times in found.iteration_s:
        # Nothing is faster than what it computes.
        assert min(times) >= 0.02
        assert sum(times) <= took_s
    assert took_s >= 0.1 + 5 * 0.02
    assert found.mean_s == pytest.approx(
        sum(map(sum, found.iteration_s)) / 6)
    assert set(bed.entered) == {'ns-s0', 'ns-s1', 'ns-r0', 'ns-r1'}


def test_a_job_whose_bytes_do_not_arrive_is_given_up(bed, monkeypatch):
    monkeypatch.setattr(training, '_PATIENCE_S', 0.2)
    monkeypatch.setattr(training._Job, '_receive', lambda self: None)
    with pytest.raises(TimeoutError):
        bed.bed.run(False, 3, 0)


def test_what_breaks_a_job_is_told(bed, monkeypatch):
    def fail(self):
        self.error = OSError('broken')

    monkeypatch.setattr(training._Job, 'run', fail)
    with pytest.raises(OSError, match='broken'):
        bed.bed.run(False, 3, 0)


def test_times_of_jobs_are_averaged_job_by_job():
    assert training.Found(((1.0, 3.0), (4.0,))).mean_s == 3.0


class Bed:
    factor = 1.0

    def __init__(self, story):
        self._story = story

    def run(self, is_in_order, iterations, warm_up):
        self._story.append((is_in_order, iterations, warm_up))
        base_s = 2.0 if is_in_order else 2.0 * self.factor
        return training.Found(tuple(
            tuple(base_s + job / 10 + number / 100
                  for number in range(iterations - warm_up))
            for job in range(2)))


@pytest.mark.parametrize('is_short', [False, True])
@pytest.mark.parametrize('name', training.FIGURES)
def test_a_figure_is_drawn_as_ever(name, is_short, monkeypatch):
    story = []

    @contextlib.contextmanager
    def bed(setting, rate_bps):
        story.append(f'{setting} {rate_bps}')
        yield Bed(story)

    monkeypatch.setattr(training, 'bed', bed)
    monkeypatch.setattr(Bed, 'factor', 1.3 if is_short else 1.1)
    display = drawing.Display()
    found = training.FIGURES[name](
        extent.Options(30e6, short=is_short), display)
    drawing.check(f'{name}{"-short" * is_short}', found,
                  [*display.said, *map(str, story)])
    assert bool(found.unmet) is not is_short


def test_a_bed_is_taken_away(monkeypatch):
    story = []
    monkeypatch.setattr(training.namespaces, 'new_run', lambda: 'abc123')
    monkeypatch.setattr(training.janitor, 'Janitor', lambda run: (
        types.SimpleNamespace(dismiss=lambda: story.append('dismissed'))))
    monkeypatch.setattr(training.fabric_module, 'Fabric',
                        lambda run: contextlib.nullcontext(run))
    monkeypatch.setattr(training, 'Bed', lambda fabric, setting, rate, _stack:
                        (fabric, setting, rate))
    with pytest.raises(ValueError), training.bed('s', 5.0) as found:
        assert found == ('abc123', 's', 5.0)
        raise ValueError
    assert story == ['dismissed']
