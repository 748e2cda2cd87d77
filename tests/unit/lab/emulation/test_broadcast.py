# SPDX-License-Identifier: Apache-2.0

"""The model of a broadcast under rates that change, and what is shown."""

import contextlib
import itertools
import os
import types

import numpy as np
import pytest

from tests.unit.lab.emulation import drawing
from virtco.advise import trees
from virtco_lab.emulation import broadcast
from virtco_lab.emulation import extent
from virtco_lab.emulation import mesh
from virtco_lab.emulation import starvation
from virtco_lab.sim.figures import samples


def test_without_changes_it_is_the_product_s_model():
    rng = np.random.default_rng(4)
    rates_bps = rng.uniform(1e6, 9e6, (7, 7))
    cost_s = trees.message_s(1e6, rates_bps, np.zeros((7, 7)))
    for edges in trees.candidates(trees.message(cost_s), 2).values():
        assert broadcast.expected_s(edges, 1e6, [rates_bps], 0.5) == (
            pytest.approx(trees.broadcast_s(edges, cost_s)))
        # In segments, too, where no machine is shared.
        assert broadcast.expected_s(edges, 1e6, [rates_bps], 0.5, 4) == (
            pytest.approx(trees.message(cost_s).took_s(edges, 4)))


def test_rates_count_while_they_hold():
    """One second at 8 bit/s, then 16 bit/s: 3 bytes in two seconds; the next
    two messages go at the last rate.
    """
    coming = [np.full((3, 3), rate) for rate in (8.0, 16.0, 24.0)]
    assert broadcast.expected_s([(0, 1)], 3, coming, 1.0) == 2.0
    assert broadcast.expected_s([(0, 1), (1, 2)], 3, coming, 1.0) == 3.0
    assert broadcast.expected_s([(0, 1), (0, 2)], 3, coming, 1.0) == 3.0


class _Mesh:
    """Sends a tenth slower than the rates say, at once."""

    def __init__(self, n_hosts, rate_bps):
        self.names = [f'h{i}' for i in range(n_hosts)]

    @contextlib.contextmanager
    def built(self):
        yield self

    def set_rates(self, rates_bps):
        self.rates_bps = rates_bps

    def measure(self, sizes):
        return {pair: self.rates_bps[pair] * 0.95 * (1 - 1e-8 * size)
                for pair, size in sizes.items()}

    def broadcast(self, edges, size, n_segments=1):
        return 1.1 * broadcast.expected_s(
            edges, size, [self.rates_bps * 0.95], broadcast.CHANGE_S,
            n_segments)


@pytest.fixture(autouse=True)
def _waits(monkeypatch):
    """How much each broadcast waited for a processor."""
    shares = itertools.cycle((0.05, 0.0, 0.1, 0.3, 0.02))
    monkeypatch.setattr(starvation, 'Watch', lambda pids: (
        types.SimpleNamespace(read=lambda: starvation.Usage(
            next(shares) if pids() == [os.getpid()] else 1.0, {}))))


@pytest.mark.parametrize('kind', [broadcast.CHANGING, broadcast.CONSTANT])
def test_a_figure_is_drawn_as_ever(monkeypatch, kind):
    monkeypatch.setattr(mesh, 'Mesh', _Mesh)
    monkeypatch.setattr(broadcast, 'CHANGE_S', 1e9)
    display = drawing.Display()
    found = broadcast.FIGURES[kind.name](
        extent.Options(20e6, (0, 5), display=display))
    drawing.check(kind.name, found, display.said)


def test_a_broadcast_is_repeated_while_it_waited_too_long(monkeypatch):
    took_s = iter((1.0, 2.0, 3.0, 4.0))
    shares = iter((0.5, 0.11, 0.4, 0.1))
    set_first = []
    monkeypatch.setattr(starvation, 'Watch', lambda _pids: (
        types.SimpleNamespace(read=lambda: starvation.Usage(
            next(shares), {}))))

    class Mesh:
        def set_rates(self, rates_bps):
            set_first.append(rates_bps)

        def broadcast(self, edges, size, n_segments):
            assert (edges, size, n_segments) == ([(0, 1)], 625_000, 3)
            return next(took_s)

    rates = np.full((2, 2), 8e6)
    found = [broadcast._broadcast(Mesh(), [(0, 1)], 3, [rates],
                                  extent.Options(20e6, (0,)))
             for _ in range(2)]
    # The least wait counts; a tenth is not too long.
    assert [(took_s, *rest) for took_s, _model_s, *rest in found] == [
        (2.0, 0.11, 2), (4.0, 0.1, 0)]
    assert all(one is rates for one in set_first)


def test_a_short_form_measures_and_sends_less():
    usual, short = (extent.Options(20e6, (0,), is_short)
                    for is_short in (False, True))
    assert [(broadcast.n_runs(one), broadcast.n_snapshots(one))
            for one in (usual, short)] == [(5, 10), (2, 5)]
    assert extent.Options(20e6, (0,)) == usual


@pytest.mark.parametrize('kind', [broadcast.CHANGING, broadcast.CONSTANT])
def test_the_table_is_whole(monkeypatch, kind):
    monkeypatch.setattr(mesh, 'Mesh', _Mesh)
    monkeypatch.setattr(broadcast, 'CHANGE_S', 1e9)
    found = broadcast.FIGURES[kind.name](
        extent.Options(20e6, (0, 1), True, display=drawing.Display()))
    assert [row[0] for row in found.rows] == list(kind.series)
    assert {len(row) for row in found.rows} == {len(found.columns)}
    over = {row[0]: float(row[4].split()[0]) for row in found.rows}
    assert over['baseline'] == 1.0
    # What knows the truth is better than what knows nothing.
    assert over['truth'] < 0.9
    if kind is broadcast.CONSTANT:
        assert over['consensus, in segments'] < 0.7
    assert '2 seeds, 2 broadcasts' in found.notes[0]


def test_claims_that_do_not_hold_are_named(monkeypatch):
    kind = broadcast.CHANGING

    def unmet(median_s, off):
        found = samples.Samples((0,))
        for name in kind.series:
            found.add(name, {'s': median_s if name == 'median' else 1.0,
                             'off': off}, 0.0)
        return broadcast._unmet(kind, found)

    (claim,) = unmet(1.0, 0.1)
    assert 'trees by median take 1.00' in claim
    assert unmet(0.9, 0.1) == ()
    (claim,) = unmet(0.9, 1.0)
    assert 'off the model' in claim
    # What is allowed is no claim unmet.
    assert unmet(0.95, 0.2) == ()
    monkeypatch.setattr(broadcast, 'MOST_OFF', 0.19)
    (claim,) = unmet(0.95, 0.2)
    assert 'measured times are 20% off the model, not at most 19%' in claim
