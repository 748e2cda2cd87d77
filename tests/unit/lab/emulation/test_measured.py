# SPDX-License-Identifier: Apache-2.0

"""What the figures about measuring make of what they measured."""

import dataclasses

import numpy as np
import pytest

from tests.unit.lab.emulation import drawing
from virtco_lab.cmd import emulate
from virtco_lab.emulation import extent
from virtco_lab.emulation.measured import background
from virtco_lab.emulation.measured import crosstraffic
from virtco_lab.emulation.measured import greedy
from virtco_lab.emulation.measured import lengths
from virtco_lab.emulation.measured import stability


def _connection(*periods_s):
    return background.Connection('a', 'b', '10.0.0.1', periods_s)


def test_periods_are_in_order_and_take_their_share():
    rng = np.random.default_rng(0)
    drawn = [background.on_off(rng, 1000.0, 5.0, share)
             for share in (0.2, 0.8) for _ in range(20)]
    for periods in drawn:
        edges = [edge for period in periods for edge in period]
        assert edges == sorted(edges)
    shares = [sum(end - begin for begin, end in periods) / 1000
              for periods in drawn]
    assert np.mean(shares[:20]) == pytest.approx(0.2, abs=0.03)
    assert np.mean(shares[20:]) == pytest.approx(0.8, abs=0.03)


def test_a_period_ends_before_the_next_begins():
    one = _connection((1.0, 2.0), (3.0, 4.0))
    assert [one.sends_at(at) for at in (0.5, 1.0, 1.9, 2.0, 3.5, 4.0)] == [
        False, True, True, False, True, False]


def test_windows_meet_the_connections_of_their_time():
    """A quarter of the rate beside three others, then half beside one."""
    others = [_connection((0.0, 1.1)), _connection((0.0, 1.1)),
              _connection((0.0, 9.0))]
    path_bps = 80e6
    windows = [25_000] * 100 + [50_000] * 100 + [1]
    rows = crosstraffic._rows(windows, 10, 0.1, path_bps, others)
    assert [real for _, real, _ in rows] == [3] * 10 + [1] * 10
    assert [found for _, _, found in rows] == [
        pytest.approx(real) for _, real, _ in rows]


def test_windows_without_a_byte_say_nothing():
    rows = crosstraffic._rows([10_000, 0, 10_000, 1], 1, 0.0, 8e6, [])
    assert len(rows) == 2


def test_age_is_counted_in_readings():
    rates = np.array([[1.0, 2.0], [1.0, 4.0], [2.0, 4.0]])
    assert stability.errors_percent(rates, 1).tolist() == [0, 50, 50, 0]
    assert stability.errors_percent(rates, 2).tolist() == [50, 50]


@pytest.mark.parametrize(('off', 'n_unmet'), [(1.0, 0), (1.25, 1)])
def test_an_estimate_may_be_as_far_off_as_was_asked_for(
        off, n_unmet, monkeypatch):
    one, *_ = crosstraffic.TOPOLOGIES
    assert one.most_off == 1.0
    monkeypatch.setattr(crosstraffic, 'TOPOLOGIES', (one,))
    monkeypatch.setattr(crosstraffic, '_measure', lambda *args: [
        dict.fromkeys(crosstraffic.TOGETHER, [
            (0.0, 4, 4 + off), (1.0, 4, 4 - off)])])
    found = crosstraffic.figure4(
        extent.Options(1e8, display=drawing.Display()))
    assert len(found.unmet) == n_unmet
    assert found.rows[0][3:] == (0.0, off, off, 100 * (off <= 1))


@pytest.mark.parametrize(('percent', 'n_shared', 'share', 'unmet'), [
    (6.0, 0, 100, ['median', 'mean']), (7.0, 1, 0, ['median']),
    (4.5, 0, 100, ['median', 'mean']), (2.0, 0, 100, []),
    (4.0, 1, 100, ['median']), (4.0, 0, 100, ['median'])])
def test_an_error_may_be_as_large_as_was_asked_for(
        percent, n_shared, share, unmet, monkeypatch):
    monkeypatch.setattr(stability, 'CLOUDS', (dataclasses.replace(
        stability.CLOUDS[0], n_shared=n_shared),))
    monkeypatch.setattr(stability, '_readings', lambda *args: None)
    monkeypatch.setattr(stability, 'errors_percent', lambda rates, age: (
        np.full(4, percent)))
    found = stability.figure7(extent.Options(
        1e8, short=True, display=drawing.Display()))
    assert {row[1]: row[6] for row in found.rows} == {1: share, 5: share}
    assert [line.split(' error')[0].split()[-1] for line in found.unmet] == (
        2 * unmet)


@pytest.mark.parametrize(('one', 'other', 'links'), [
    (3, 3, 1), (2, 3, 2), (3, 4, 6), (0, 7, 6), (1, 2, 4), (5, 6, 4)])
def test_lengths_are_those_of_the_tree(one, other, links):
    assert lengths.length(one, other) == links
    assert lengths.length(other, one) == links


def test_greedy_is_told_where_it_is_no_worse():
    assert greedy._unmet({'greedy': (20.0, 20.5), 'best': (4.4, 4.4),
                          'virtco': (4.4, 4.5)}) == ()
    unmet = greedy._unmet({'greedy': (8.0, 9.0), 'best': (4.0, 4.0),
                           'virtco': (8.0, 8.0)})
    assert [line.split(' ')[0] for line in unmet] == [
        'greedy:', 'greedy', 'virtco']


def test_placements_are_the_papers():
    """On rates that are exactly those of the figure."""
    rates = {(one, other): greedy.FAST.get((one, other), 1.0) * 1e6
             for one in greedy.MACHINES for other in greedy.MACHINES
             if one != other}
    sizes = {pair: round(share * 1e6)
             for pair, share in greedy.TRANSFERS.items()}
    problem = greedy._problem(rates, sizes)
    first, second, _ = greedy._plan(problem, 'choreo')
    assert (first, second) == ('m0', 'm1')
    assert greedy._plan(problem, 'virtco') == ('m2', 'm3', 'm4')
    assert greedy._optimum(rates, sizes) == ('m2', 'm3', 'm4')


def test_a_short_form_is_not_recorded(capsys):
    with pytest.raises(SystemExit):
        emulate.main(['reproduce', 'choreo-9', '--check', '--write'])
    assert '--write' in capsys.readouterr().err
