# SPDX-License-Identifier: Apache-2.0

"""What was reached on packets is told of the records that there are."""

import json
import shutil

import pytest

from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import packets
from virtco_lab.sim.figures import record

LIES = {'columns': ['claim / truth', 'his, simulated', 'his, measured'],
        'rows': [['0.3', '0.9', '0.8 ± 0.1'], ['1', '1', '1 ± 0'],
                 ['3', '1', '2 ± 0.2']],
        'runs': dict.fromkeys(range(6))}
CASE = {'run columns': ['seed', 'expected_s', 'measured_s', 'waited'],
        'runs': {'a / baseline / 0': [0, 10.0, 11.0, 0.05],
                 'a / sebf-ta / 0': [0, 10.0, 8.0, 0.2],
                 'a / virtco / 0': [0, 0.0, 1.0, 0.1]}}


def put(directory, name, document):
    (directory / f'emulated-{name}.json').write_text(json.dumps(document))


def targets(directory):
    """What was reached, and the verdict, by target."""
    return {one['statement']: (one['here'], one['verdict'])
            for one in document.verdicts(directory, packets.TARGETS)}


def test_every_record_of_the_tree_is_told_of():
    assert len(targets(record.DIRECTORY)) == 8


def test_what_is_not_recorded_is_left_out(tmp_path):
    assert not targets(tmp_path)
    put(tmp_path, 'liars', LIES)
    (asked, (reached, verdict)), = targets(tmp_path).items()
    assert asked == 'On packets: a lie must not pay'
    assert reached == (
        'claim 0.3 × the truth: 0.8 ± 0.1 of its CCT (simulated 0.9); claim '
        '3 × the truth: 2 ± 0.2 of its CCT (simulated 1)')
    # Half of two seeds' interval is 12.7 deviations / √2.
    assert verdict == 'not shown'
    assert packets._lies(LIES).numbers == [
        pytest.approx((0.8, 0.9), abs=0.01), pytest.approx((2.0, 1.8),
                                                           abs=0.01)]


def test_one_seed_shows_nothing(tmp_path):
    put(tmp_path, 'liars', LIES | {
        'rows': [[*row[:2], row[2].partition(' ')[0]] for row in LIES['rows']],
        'runs': dict.fromkeys(range(3))})
    (_, verdict), = targets(tmp_path).values()
    assert verdict == 'not shown'


def test_distances_are_by_scheme_and_by_wait(tmp_path):
    for number in (1, 2, 4, 5, 6):
        put(tmp_path, f'virtco-case{number}', CASE)
    by_scheme, by_wait = targets(tmp_path).values()
    assert by_scheme == (
        'Baseline: 10.0 and 10.0 % in 5 runs; SEBF-TA (min-cut): 20.0 and '
        '20.0 % in 5 runs; virtco (online): 0.0 and 0.0 % in 5 runs',
        'missed')
    assert by_wait == ('up to 10% of the run: 5.0 and 10.0 % in 10 runs, '
                       'beyond 5 %: 5; over 10% of the run: 20.0 and 20.0 % '
                       'in 5 runs, beyond 5 %: 5', 'missed')


def test_a_run_without_a_column_is_an_error(tmp_path):
    put(tmp_path, 'virtco-case1', CASE | {
        'runs': {'a / virtco / 0': [0, 10.0, 11.0]}})
    with pytest.raises(ValueError):
        list(packets._runs([json.loads(
            (tmp_path / 'emulated-virtco-case1.json').read_text())]))


def test_casts_and_jobs_are_compared(tmp_path):
    for name in ('orchestra-9', 'orchestra-11', 'training-2', 'training-6'):
        shutil.copy(record.DIRECTORY / f'emulated-{name}.json', tmp_path)
    found = targets(tmp_path)
    rows = packets._rows(json.loads(
        (tmp_path / 'emulated-orchestra-11.json').read_text()))
    ratio = rows['Cornet']['mean s'] / rows['virtco, topology']['mean s']
    racks, ahead, bound, jobs = found.values()
    assert f'{ratio:.2f} × Cornet' in racks[0]
    assert [verdict for _, verdict in (racks, ahead, bound, jobs)] == [
        'missed', 'missed', 'missed', 'met']
