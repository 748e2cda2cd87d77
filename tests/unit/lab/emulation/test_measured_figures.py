# SPDX-License-Identifier: Apache-2.0

"""Figures about measuring, on hypervisors that the test makes up."""

import contextlib
import dataclasses
import pathlib
import types
from unittest import mock

import pytest

from tests.unit.lab.emulation import drawing
from virtco_lab.emulation import extent
from virtco_lab.emulation import measured
from virtco_lab.emulation.measured import background
from virtco_lab.emulation.measured import crosstraffic
from virtco_lab.emulation.measured import greedy
from virtco_lab.emulation.measured import lengths
from virtco_lab.emulation.measured import stability
from virtco_lab.emulation.measured import trains


class Clock:
    """Stands still but for those who sleep, and is looked at for 0.01 s."""

    def __init__(self, story):
        self.now_s = 100.0
        self._story = story

    def monotonic(self):
        self.now_s += 0.01
        return self.now_s

    def sleep(self, wait_s):
        self._story.append(f'sleep {wait_s:.3f}')
        self.now_s += wait_s


class Future:
    def __init__(self, value):
        self._value = value

    def result(self):
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class Bed:
    """Measures what the rates say, but for a part that differs each time."""

    story = clock = None
    #: Whether some trains are lost.
    loses = False

    def __init__(self, bed, window_bytes=None):
        self.rates_bps = dict(bed.rates_bps)
        self._bed = bed
        self._say(f'bed of {len(bed.rates_bps)}, {bed.bucket_bytes}, '
                  f'{window_bytes}')
        self._n = 0
        ports = {name: types.SimpleNamespace(
            namespace=f'ns-{name}', address=f'10.0.0.{number}')
            for number, name in enumerate(bed.rates_bps)}
        self.fabric = types.SimpleNamespace(hypervisors=ports, core='core')

    def _say(self, line):
        # What comes again and again is kept once.
        if not self.story or self.story[-1] != line:
            self.story.append(line)

    @contextlib.contextmanager
    def built(self):
        if self._bed.plane.roots:
            self._say(str(self._bed.plane))
        if self._bed.pairs_bps:
            self._say(str(sorted(self._bed.pairs_bps.items())))
        if self._bed.segments:
            self._say(f'{self._bed.segments} segments')
        yield self
        self._say('removed')

    def add_vm(self, vm, host):
        self._say(f'{vm} on {host}')
        self.rates_bps[vm] = 2 * self.rates_bps[host]

    def path_bps(self, src, dst):
        return min(self.rates_bps[src], self.rates_bps[dst])

    def _off(self):
        self._n += 1
        return 1 + 0.06 * ((self._n * 7) % 11 - 5) / 10

    def train(self, src, dst, setting, settings=None):
        self._say(f'trains {setting}, {settings is not None}')
        if self.loses and self._n % 17 == 16:
            self._n += 1
            return Future(measured.bed.protocol.ProbeError('lost'))
        rate_bps = self.path_bps(src, dst) * self._off() * (
            1 + 5 / setting.packets / setting.bursts)
        return Future(types.SimpleNamespace(
            rate_bps=rate_bps, throughput_bps=0.9 * rate_bps))

    def bulk(self, src, dst, lasts_s):
        self._say(f'bulk of {lasts_s:g} s')
        rate_bps = self.path_bps(src, dst) * self._off() * 0.95
        self.clock.now_s += lasts_s
        n_windows = round(lasts_s / 0.01)
        return Future(types.SimpleNamespace(
            rate_bps=rate_bps, windows_bytes=[
                round(rate_bps / 8 * 0.01 / (1 + (i // 50) % 4)) * (i % 37 > 0)
                for i in range(n_windows)]))

    def bulks(self, paths, lasts_s):
        began_s = self.clock.now_s
        found = []
        for path in paths:
            self.clock.now_s = began_s
            found.append(self.bulk(*path, lasts_s).result())
        return found


@pytest.fixture(name='story')
def _story(monkeypatch):
    made = []
    clock = Clock(made)
    monkeypatch.setattr(Bed, 'story', made)
    monkeypatch.setattr(Bed, 'clock', clock)
    monkeypatch.setattr(measured.bed, 'Bed', Bed)
    for module in (crosstraffic, stability, trains):
        monkeypatch.setattr(module, 'time', clock)

    @contextlib.contextmanager
    def running(connections):
        for one in connections:
            made.append(f'{one.src_namespace} to {one.dst_namespace} '
                        f'{one.dst_address}: {len(one.periods_s)} periods, '
                        f'the last until {one.periods_s[-1][-1]:.3f}'
                        if one.periods_s else 'never')
        yield clock.now_s + 0.3
        made.append('others end')

    monkeypatch.setattr(background, 'running', running)

    class Transfer:
        def __init__(self, job, log):
            assert log.name == 'traffic.log' and log.parent.is_dir()
            made.append(str([dataclasses.astuple(flow)
                             for flow in job.flows]))
            self._took_s = sum(flow.size_bytes for flow in job.flows) / 3e6

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def run(self):
            return types.SimpleNamespace(ccts_s=(self._took_s,))

    monkeypatch.setattr(greedy.transfers, 'Transfer', Transfer)
    return made


@pytest.mark.parametrize(('name', 'is_short'), [
    *((name, False) for name in measured.FIGURES),
    *((name, True) for name in measured.FIGURES
      if name not in ('choreo-6', 'choreo-90'))])
def test_a_figure_is_drawn_as_ever(name, is_short, story, monkeypatch):
    monkeypatch.setattr(Bed, 'loses', name in ('choreo-6', 'choreo-90'))
    display = drawing.Display()
    found = measured.FIGURES[name](
        extent.Options(50e6, (3,), is_short, display=display))
    drawing.check(f'{name}{"-short" * is_short}', found,
                  [*display.said, *story])


def test_where_no_train_arrives_there_is_no_figure(story, monkeypatch):
    monkeypatch.setattr(Bed, 'train', lambda *_: Future(
        measured.bed.protocol.ProbeError('lost')))
    with pytest.raises(
            trains.exception.Invalid,
            match='at least one pair, got nothing'):
        trains.pairs90(extent.Options(
            50e6, (3,), display=drawing.Display()))


def test_cables_differ_by_the_seed_from_two_fifths_on():
    rates = [measured.bed.rates_bps(extent.Options(10.0, (seed,)), 200)
             for seed in (1, 1, 2)]
    assert rates[0] == rates[1] != rates[2]
    assert list(rates[0])[:2] == ['h0', 'h1']
    values = rates[0].values()
    assert 4.0 <= min(values) < 4.2 and 9.8 < max(values) <= 10.0


def test_tcp_of_a_namespace_is_tuned_whatever_the_machines_is(
        tmp_path, monkeypatch):
    monkeypatch.setattr(measured.bed.pathlib, 'Path',
                        lambda path: tmp_path / path[1:])
    ipv4 = tmp_path / 'proc/sys/net/ipv4'
    ipv4.mkdir(parents=True)
    measured.bed._tune_tcp(None)
    assert [path.name for path in ipv4.iterdir()] == [
        'tcp_congestion_control']
    assert (ipv4 / 'tcp_congestion_control').read_text() == 'reno'
    measured.bed._tune_tcp(1000)
    assert (ipv4 / 'tcp_rmem').read_text() == '4096 2000 2000'


def test_a_probe_that_failed_is_none():
    assert measured.bed.or_none(Future(5)) == 5
    assert measured.bed.or_none(Future(
        measured.bed.protocol.ProbeError('lost'))) is None


def test_drawn_figures_are_those_that_there_are():
    drawn = {path.stem.removesuffix('-short')
             for path in pathlib.Path(drawing.DRAWN).glob('*.json')}
    assert measured.FIGURES.keys() <= drawn


def test_hosts_explain_a_rate_that_is_four_percent_off():
    found = [(1, 9e8, 9e8), (2, 1.039e7, 1e7), (4, 0.961e7, 1e7),
             (6, 1.041e7, 1e7), (6, 0.959e7, 1.1e7)]
    with mock.patch.object(lengths, '_measure', return_value=found):
        rows = lengths.figure8(types.SimpleNamespace(
            rate_bps=1e7, say=mock.Mock())).rows
    assert [row[-1] for row in rows[:4]] == [None, 100.0, 100.0, 0.0]
