# SPDX-License-Identifier: Apache-2.0

"""Figures on packets that are measured again."""

import pytest

from virtco import exception
from virtco_lab.emulation import rerun
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import record


def figure(**runs):
    return outcome.Outcome('f', 'F', (), (), (), runs=runs)


def sampled(*values, seeds=(0, 1, 2), **others):
    return {'seeds': list(seeds), 'samples': {'tree': {
        's': [[value] for value in values], **others}}}


@pytest.mark.parametrize(('again', 'n_off'), [
    ((10.0, 20.0, 30.0), 0),
    # A twentieth of the mean needs no explanation.
    ((11.0, 21.0, 31.0), 0),
    # All seeds are slower by as much.
    ((11.1, 21.1, 31.1), 1), ((8.9, 18.9, 28.9), 1),
    # One seed is, which may be chance.
    ((14.0, 20.0, 30.0), 0)])
def test_a_mean_that_moved_beyond_its_seeds_is_off(again, n_off):
    count, lines = rerun.compare(sampled(10.0, 20.0, 30.0),
                                 figure(**sampled(*again)))
    assert (count, len(lines)) == (1, n_off)
    assert all('f: tree / s: ' in line and 'recorded 20 (3 seeds)' in line
               for line in lines)


def test_seeds_that_both_have_are_compared():
    known = sampled(1.0, 1.0, 1.0)
    for seeds, expected in (((2, 1), (1, 1)), ((2, 7), (0, 0)),
                            ((7, 8), (0, 0))):
        count, lines = rerun.compare(known, figure(**sampled(
            5.0, 5.0, seeds=seeds)))
        assert (count, len(lines)) == expected


def test_the_load_of_the_machine_is_not_compared():
    assert list(rerun.numbers(sampled(
        1.0, waited=[[0.2]], repeated=[[1.0]]))) == ['tree / s']


def test_runs_are_compared_by_what_was_measured():
    document = {'run columns': ['expected_s', 'measured_s', 'load'],
                'runs': {f'exact / all / {seed}': [[9.0], [1.0, 3.0], []]
                         for seed in (0, 4)}}
    assert rerun.numbers(document) == {
        'exact / all / measured_s': {0: 2.0, 4: 2.0}}


def test_a_new_cell_is_refused():
    with pytest.raises(exception.Invalid, match='^f: .*--write.* tree / s'):
        rerun.compare({'runs': {}}, figure(**sampled(1.0, 1.0, 1.0)))


def test_every_record_of_several_seeds_can_be_compared():
    for path in record.DIRECTORY.glob(f'{record.EMULATED}*.json'):
        known = record.document(record.DIRECTORY, path.stem)
        words = known['command'].split()
        if int(words[words.index('--seeds') + 1]) > 1:
            count, lines = rerun.compare(known, figure(**known))
            assert count and not lines, path.stem
