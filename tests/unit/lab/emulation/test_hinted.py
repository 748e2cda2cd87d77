# SPDX-License-Identifier: Apache-2.0

"""Wrong hints on packets, with a model in the testbed's place."""

import contextlib
import dataclasses
import pickle
import types

import pytest

from tests.unit.lab.emulation import drawing
from virtco import hints
from virtco_lab.emulation import cases
from virtco_lab.emulation import extent
from virtco_lab.emulation import hinted
from virtco_lab.emulation import misled
from virtco_lab.emulation import reproduce
from virtco_lab.emulation import scenario
from virtco_lab.emulation import starvation
from virtco_lab.emulation import untold
from virtco_lab.sim import claims

SCALE = cases.Scale(8, 20e6)


class _Display:
    def say(self, text):
        pass


#: What the simulator said: several tests want to know the same of it.
_SAID = {}
_EXPECT = misled.expect


def _expect(*args):
    key = pickle.dumps(args)
    if key not in _SAID:
        _SAID[key] = _EXPECT(*args)
    return _SAID[key]


@pytest.fixture
def bed(monkeypatch):
    """Takes half as long again as the simulator says."""
    monkeypatch.setattr(misled, 'expect', _expect)
    made = types.SimpleNamespace(sent=[], waited=iter(()))

    class Bed:
        def wait_measured(self):
            pass

        def send(self, coflows, claimed, hosts):
            made.sent.append(claimed)
            # The controller chooses where it knows best.
            assert (hosts is None) == (set(claimed) == {claims.Claim()})
            told_s = tuple(0.0 if claim.late_s is None
                           else one.start_s + claim.late_s
                           for one, claim in zip(coflows, claimed))
            hosts = {one.coflow.name: tuple(f'h{(i + j) % 8}' for j in range(
                one.coflow.n_vms)) for i, one in enumerate(coflows)}
            expected = misled.expect(coflows, claimed, hosts, told_s, SCALE)
            return untold.Sent(
                hosts, tuple(1.5 * cct_s for cct_s in expected), told_s,
                starvation.Usage(next(made.waited, 0.0), {}))

    monkeypatch.setattr(untold, 'Bed',
                        lambda *args: contextlib.nullcontext(Bed()))
    return made


def test_who_is_late_waits_longer_than_who_is_not():
    coflows = misled.workload(0, SCALE)
    hosts = {one.coflow.name: tuple(f'h{j}' for j in range(
        one.coflow.n_vms)) for one in coflows}
    in_time, late = (misled.expect(
        coflows, misled.of_setting(setting, 0, coflows), hosts,
        [0.0 if setting == 'exact' else one.start_s + 1.0
         for one in coflows], SCALE) for setting in ('exact', '1 s late'))
    assert sum(late) > sum(in_time)


def test_coflows_load_the_hosts_by_their_share():
    coflows = misled.workload(0, SCALE)
    assert coflows[0].start_s == 0.0
    assert len(coflows) == misled.N_COFLOWS
    # Half of what 8 hosts send in a second for each, at the rate of TCP.
    assert sum(one.coflow.size_bytes for one in coflows) == pytest.approx(
        6 * 0.5 * 8 * scenario.goodput_bps(20e6) / 8, rel=1e-5)


def _options(tmp_path, **changes):
    return extent.Options(**{
        'rate_bps': SCALE.rate_bps, 'seeds': (0, 1), 'directory': tmp_path,
        'display': _Display(), **changes})


@pytest.mark.parametrize('name', [pytest.param(name, marks=pytest.mark.full(
    reason='several seconds of simulation each',
    still='liars, by the same code'))
    if name != 'liars' else name
    for name in hinted.FIGURES])
def test_ratios_are_those_of_the_simulator(name, bed, tmp_path):
    found = hinted.FIGURES[name](_options(tmp_path, seeds=(0,)))
    rows = found.rows
    assert {len(row) for row in rows} == {len(found.columns)}
    for row in rows:
        assert row[1] == row[2]
    assert len(found.runs['runs']) == len(bed.sent)
    # What is on disk is not run again.
    n_sent = len(bed.sent)
    found_again = hinted.FIGURES[name](
        _options(tmp_path, seeds=(0,)))
    assert found_again == found
    assert len(bed.sent) == n_sent


@pytest.mark.parametrize(('name', 'is_short'), [
    *((name, False) for name in hinted.FIGURES), ('late-hints', True)])
def test_a_figure_is_drawn_as_ever(name, is_short, monkeypatch, tmp_path):
    """Of runs that the test makes up."""
    def run(settings, options):
        return {(setting, seed): hinted.Run(
            setting, seed, 8, 20e6, {}, tuple(
                (1 + place / 3) * (1.0234 + i / 10 + seed / 5)
                for i in range(misled.N_COFLOWS)),
            tuple((1 + place / 3) * (1 + i / 10)
                  for i in range(misled.N_COFLOWS)),
            (0.0, None, 1.5), 0.1, 0.25 + seed, 1 + seed)
            for place, setting in enumerate(settings)
            for seed in options.seeds}

    monkeypatch.setattr(hinted, 'run', run)
    found = hinted.FIGURES[name](_options(
        tmp_path, seeds=(0, 3), short=is_short))
    result = dataclasses.asdict(found)
    drawing.check(f'{name}{"-short" * is_short}', {
        'record': result.pop('runs'), 'result': result})


def test_runs_are_as_far_off_as_their_means_are():
    def run(measured_s):
        return hinted.Run('exact', 0, 8, 20e6, {}, measured_s, (1.0, 3.0),
                          (), 0, 0)

    assert run((2.0, 3.0)).off == pytest.approx(0.25)
    assert run((2.0, 3.0)).tries == 1
    assert reproduce.mean_unmet([run((1.2, 3.0))]) == []
    assert reproduce.mean_unmet([run((1.0, 3.5))]) == [
        '12.5% off in the mean, 10% allowed']
    assert reproduce.worst_unmet([run((1.0, 3.5))]) == []
    assert reproduce.worst_unmet([run((1.0, 4.0))]) == [
        'exact, seed 0: +25.0% off the simulator, 20% allowed']


def test_what_is_on_disk_is_read_beside_what_is_simulated_today(
        bed, tmp_path):
    said = []
    options = _options(tmp_path, seeds=(0,), display=(
        types.SimpleNamespace(say=said.append)))
    first = hinted.run(('never', 'exact'), options)
    assert [line.split(':')[0] for line in said] == [
        'seed 0, exact', 'seed 0, never']
    assert '(+50.0%, waited 0.0%, try 1)' in said[0]
    lines = list(filter(None, (
        tmp_path / 'hinted.jsonl').read_text().splitlines()))
    assert len(lines) == 2 and '"told_s":[0.0' in lines[0]
    again = hinted.run(('exact', 'never'), options)
    assert again == {key: first[key] for key in (('exact', 0), ('never', 0))}
    assert list(again) == [('exact', 0), ('never', 0)]
    assert len(bed.sent) == 2
    # The others know its hosts from the disk, too.
    hinted.run(('exact', '1 s late'), options)
    assert len(bed.sent) == 3


@pytest.mark.parametrize('other', [{'rate_bps': 30e6}, {'n_hosts': 9}])
def test_runs_of_another_testbed_are_made_anew(bed, tmp_path, other):
    first = hinted.run(('exact',), _options(tmp_path))
    found = hinted.run(('exact',), _options(tmp_path, **other))
    assert len(bed.sent) == 4
    assert found['exact', 0].identity != first['exact', 0].identity
    # Those of both stay in the directory.
    assert hinted.run(('exact',), _options(tmp_path)) == first
    assert len(bed.sent) == 4


def test_a_run_that_waited_too_long_each_time_counts_with_the_least():
    waits = iter((0.9, 0.3, 0.5, 0.0))
    found = hinted.measure.repeat(lambda: hinted.Run(
        'exact', 0, 8, 20e6, {}, (1.0,), (1.0,), (), next(waits), 0))
    assert (found.waited, found.tries) == (0.3, 3)
    waits = iter((hinted.measure.MOST_WAITED, 0.0))
    found = hinted.measure.repeat(lambda: hinted.Run(
        'exact', 0, 8, 20e6, {}, (1.0,), (1.0,), (), next(waits), 0))
    assert found.tries == 1


def test_runs_too_far_off_are_claims_unmet(bed, tmp_path):
    found = hinted.FIGURES['wrong-hints'](
        _options(tmp_path, short=True))
    assert len(found.unmet) == 5
    assert 'exact, seed 0: +50.0% off' in found.unmet[0]
    assert '50.0% off in the mean' in found.unmet[-1]


def test_a_disturbed_run_is_repeated(bed, tmp_path):
    bed.waited = iter((0.9, 0.1, 0.2))
    found = hinted.run(('exact',), _options(tmp_path))
    assert [(one.tries, one.waited) for one in found.values()] == [
        (2, 0.1), (1, 0.2)]


def test_hints_say_what_they_should():
    one = misled.workload(0, SCALE)[0]
    unknown = hints.parse(misled.hint(one, claims.Claim(is_sized=False)), {})
    assert unknown.app == hints.App('c0', True) and not unknown.coflows
    coflow, = hints.parse(misled.hint(one, claims.Claim(2.0)), {}).coflows
    assert coflow.size_bytes == pytest.approx(2 * one.coflow.size_bytes,
                                              rel=1e-3)


def test_tenants_say_what_the_setting_says():
    coflows = misled.workload(0, SCALE)

    def made(setting):
        return misled.of_setting(setting, 0, coflows)

    assert set(made('exact')) == {claims.Claim()}
    assert set(made('half of the truth')) == {claims.Claim(0.5)}
    assert set(made('twice the truth')) == {claims.Claim(2.0)}
    assert set(made(claims.UNKNOWN)) == {claims.Claim(is_sized=False)}
    assert [one.is_sized for one in made(claims.HALF_UNKNOWN)] == [
        True, False] * 3
    assert set(made('0.5 s late')) == {claims.Claim(late_s=0.5)}
    assert set(made('never')) == {claims.Claim(late_s=claims.NEVER_S)}
    factors = [one.factor for one in made('50 % wrong')]
    assert len(set(factors)) == len(factors)
    assert 0.5 <= min(factors) < 1 < max(factors) <= 1.5


def test_one_tenant_lies():
    coflows = misled.workload(3, SCALE)
    claimed = [one.factor for one in misled.of_setting('lie 3', 3, coflows)]
    assert sorted(claimed) == [1.0] * (len(coflows) - 1) + [3.0]
    sizes = sorted(one.coflow.size_bytes for one in coflows)
    assert coflows[claimed.index(3.0)].coflow.size_bytes == sizes[-2]
