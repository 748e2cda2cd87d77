# SPDX-License-Identifier: Apache-2.0

"""Runs of cells and the book of them."""

import contextlib
import dataclasses
import types

import pytest

from virtco_lab.emulation import cases
from virtco_lab.emulation import extent
from virtco_lab.emulation import measure
from virtco_lab.emulation import results

SCALE = cases.Scale(8, 20e6)
CELL = cases.Cell('virtco-case6', '1', 'medium', True)


def _run(**changes):
    return measure.Run(**{
        'key': CELL.key, 'scheme': 'virtco', 'seed': 0, 'n_hosts': 8,
        'rate_bps': 20e6, 'simulated_s': 1.0, 'expected_s': 2.0,
        'measured_s': 2.5, 'coflows': (('c', 1.0, 2.0),), 'stretch': 0.5,
        'placing_s': 3.0, 'waited': 0.1, 'busy': 0.2, 'edge_cpu': (0.1, 0.2),
        'retransmits': 4} | changes)


def test_a_run_is_off_by_its_measured_mean():
    assert _run().off == pytest.approx(0.25)
    # Nothing crossed a link.
    assert _run(expected_s=0.0).off == 0.0
    usual = _run()
    assert (usual.tries, usual.bin_s, usual.timeline) == (1, 0.0, ())


def test_runs_are_found_again_in_their_directory(tmp_path):
    path = tmp_path / 'runs.jsonl'
    book = measure.Book(path, measure.Run)
    made = [_run(timeline=((1, 2), (3, 4)), bin_s=0.1, tries=2),
            _run(seed=3), _run(scheme='baseline')]
    for run in made:
        book.add(run)
    for known in (book, measure.Book(path, measure.Run)):
        assert known == {(CELL.key, name, seed, 8, 20e6): run for (
            name, seed), run in zip((('virtco', 0), ('virtco', 3),
                                     ('baseline', 0)), made)}
    # The newer one counts.
    book.add(_run(measured_s=9.0))
    assert measure.Book(path, measure.Run)[
        _run().identity].measured_s == 9.0


@pytest.mark.parametrize('change', [
    {'key': 'another'}, {'scheme': 'baseline'}, {'seed': 1}, {'n_hosts': 9},
    {'rate_bps': 21e6}])
def test_runs_are_told_from_each_other(change):
    assert _run(**change).identity != _run().identity


def test_lines_that_are_no_runs_of_today_are_left_out(tmp_path):
    path = tmp_path / 'runs.jsonl'
    path.write_text('{"key": "of an older version"}\n')
    assert measure.Book(path, measure.Run) == {}


def _options(tmp_path, seeds, say=lambda text: None):
    return extent.Options(SCALE.rate_bps, seeds, directory=tmp_path, display=(
        types.SimpleNamespace(say=say)))


@pytest.fixture(name='world')
def _world(monkeypatch):
    """Notes which runs are made on which testbed."""
    made = types.SimpleNamespace(story=[], waited=iter(()), expected=[])

    @contextlib.contextmanager
    def testbed(bed, say):
        made.story.append((f'up {bed.logs.name}', bed))
        yield types.SimpleNamespace(
            wait_measured=lambda: None,
            occupy=lambda slots: (made.story.append(sum(slots.values())),
                                  'them')[1],
            vacate=lambda servers: made.story.append(f'vacate {servers}'))

    def once(testbed, cell, free, groups, name, seed, scale, display):
        made.story.append((cell.key, name, seed))
        return _run(key=cell.key, scheme=name, seed=seed,
                    waited=next(made.waited, 0.0))

    monkeypatch.setattr(measure.testbed_module, 'Testbed', testbed)
    monkeypatch.setattr(measure, '_once', once)
    return made


def test_a_testbed_serves_all_seeds_without_background(world, tmp_path):
    quiet = dataclasses.replace(CELL, background=False)
    said = []
    options = _options(tmp_path, (0, 3), said.append)
    found = measure.run([quiet, CELL], options, SCALE)
    ups = [line[0] for line in world.story
           if isinstance(line, tuple) and len(line) == 2]
    assert ups == ['up 0-0', 'up 0-1', 'up 3-1']
    runs = [line for line in world.story
            if isinstance(line, tuple) and len(line) == 3]
    assert runs == [(cell.key, name, seed) for cell, seed in (
        (quiet, 0), (quiet, 3), (CELL, 0), (CELL, 3))
        for name in measure.SCHEMES]
    assert world.story.count('vacate them') == 4
    assert len(said) == 12 and said[0] == (
        f'seed 0, {quiet.key}, baseline: 2.5 s, simulated 2 s where it was '
        'placed (+25.0%; 1 s by the simulator\'s planner; waited 0.0%, try '
        '1)')
    # Slots that the cell does not leave free are taken.
    free, _groups = cases.prepare(CELL, SCALE, 3)
    assert world.story[-5] == 6 * 8 - sum(host.free[0] for host in free)
    assert [run.seed for run in found[CELL, 'virtco']] == [0, 3]
    world.story.clear()
    measure.run([quiet, CELL], options, SCALE)
    assert not world.story


def test_a_run_that_waited_a_quarter_counts(world, tmp_path):
    world.waited = iter((0.25, 0.26, 0.3, 0.29, 0.0))
    found = measure.run([CELL], _options(tmp_path, (0,)), SCALE)
    assert [(run.tries, run.waited) for name in measure.SCHEMES
            for run in found[CELL, name]] == [
                (1, 0.25), (3, 0.26), (1, 0.0)]


def test_times_are_told_for_the_bytes_of_the_cell():
    """Sizes were sent at a half, and one coflow stayed inside of a host."""
    found = results.SchemeResult('virtco', 'V', tuple(
        results.CoflowResult(name, 'g', 2, 1.0, 1.0, measured_s, 1.0)
        for name, measured_s in (('a', 3.0), ('b', 0.123456789))),
        {}, {}, ((1, 2),), 0.1, 7, 0.6, 2.5, 0.3, {'h0': 0.1234567})
    assert measure._made(CELL, 'virtco', 4, SCALE, 5.0, 0.5, found,
                         [2.0, 0.0]) == _run(
        seed=4, simulated_s=5.0, expected_s=2.0, measured_s=3.0,
        coflows=(('a', 4.0, 6.0), ('b', 0.0, 0.0)), stretch=0.5,
        placing_s=2.5, waited=0.3, busy=0.6, edge_cpu=(0.12346,),
        retransmits=7, bin_s=0.1, timeline=((1, 2),))


def test_sizes_are_such_that_the_longest_takes_six_seconds(monkeypatch):
    """Of the length of the cell; the seed and the usable rates are told."""
    asked = []

    def simulate(hosts, its_groups, scheme, seed):
        asked.append(([host.egress_bps for host in hosts][:2], scheme.name,
                      seed))
        return types.SimpleNamespace(mean_cct_s=1.5, hosts='drawn', coflows=[
            types.SimpleNamespace(cct_s=cct_s) for cct_s in longest])

    def emulate(testbed, workload, scheme, progress, local_bytes, hosts):
        placed.append(hosts)
        sent.append(sum(group.coflows[0].size_bytes
                        for group in workload.groups))
        assert (testbed, progress, local_bytes) == ('bed', 'bar', 2 ** 20)
        assert scheme.planner and workload.name == CELL.key
        return results.SchemeResult(scheme.name, scheme.label, tuple(
            results.CoflowResult(group.coflows[0].name, group.name, 2, 1.0,
                                 1.0, 2.0, 1.0) for group in workload.groups),
            {group.name: tuple(f'h{row % 8}' for row in range(group.n_vms))
             for group in workload.groups}, {})

    sent, placed = [], []
    monkeypatch.setattr(measure.cloud, 'simulate', simulate)
    monkeypatch.setattr(measure.runner, 'run_emulated', emulate)
    display = types.SimpleNamespace(
        progress=lambda title: contextlib.nullcontext('bar'))
    free, its_groups = cases.prepare(CELL, SCALE, 0)
    total = sum(group.coflows[0].size_bytes for group in its_groups)
    cell = dataclasses.replace(CELL, stretch=2.0)
    for longest, stretch in (((3.0, 4.0), 3.0), ((0.0, 0.0), 1.0)):
        run = measure._once('bed', cell, free, its_groups, 'virtco', 5,
                            SCALE, display)
        assert run.stretch == stretch
        assert sent[-1] == pytest.approx(total * stretch)
    usable = measure.prediction.usable_bps(
        {host.name: host.egress_bps for host in free},
        measure.scheme_of('virtco'))
    assert asked[0] == ([usable['h0'], usable['h1']], 'virtco', 5)
    assert run.simulated_s == 1.5
    # Only random hosts are those of the simulator.
    measure._once('bed', cell, free, its_groups, 'sebf-r', 5, SCALE, display)
    assert placed == [None, None, 'drawn']


def test_case_two_tells_what_placement_and_what_order_give():
    six = measure.schemes_of('virtco-case2')
    made = [measure.scheme_of(name) for name in six]
    assert [(one.planner, one.order) for one in made] == [
        ('spread', 'fair'), ('min-cut', 'fair'), ('spread', 'sebf'),
        ('min-cut', 'sebf'), ('virtco', 'fair'), ('virtco', 'mrtf')]
    assert set(measure.schemes_of('virtco-case4')) < set(six)
