# SPDX-License-Identifier: Apache-2.0

"""The model of a broadcast under rates that change, and what is shown."""

import contextlib

import numpy as np
import pytest

from virtco.advise import trees
from virtco_lab.emulation import broadcast
from virtco_lab.emulation import mesh


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
    """Sends as the rates say, at once."""

    def __init__(self, n_hosts, rate_bps):
        self.names = [f'h{i}' for i in range(n_hosts)]

    @contextlib.contextmanager
    def built(self):
        yield self

    def set_rates(self, rates_bps):
        self.rates_bps = rates_bps

    def measure(self, pairs):
        return {pair: self.rates_bps[pair] * 0.95 for pair in pairs}

    def broadcast(self, edges, size, n_segments=1):
        return broadcast.expected_s(edges, size, [self.rates_bps * 0.95],
                                    broadcast.CHANGE_S, n_segments)


class _Display:
    def say(self, text):
        pass


@pytest.mark.parametrize('kind', [broadcast.CHANGING, broadcast.CONSTANT])
def test_the_table_is_whole(monkeypatch, kind):
    monkeypatch.setattr(mesh, 'Mesh', _Mesh)
    monkeypatch.setattr(broadcast, 'CHANGE_S', 1e9)
    found = broadcast.FIGURES[kind.name](
        broadcast.Options(20e6, (0, 1), True), _Display())
    assert [row[0] for row in found.rows] == list(kind.series)
    assert {len(row) for row in found.rows} == {len(found.columns)}
    over = {row[0]: float(row[4].split()[0]) for row in found.rows}
    assert over['baseline'] == 1.0
    # What knows the truth is better than what knows nothing.
    assert over['truth'] < 0.9
    if kind is broadcast.CONSTANT:
        assert over['consensus, in segments'] < 0.7
    assert '2 seeds, 2 broadcasts' in found.notes[0]


def test_claims_that_do_not_hold_are_named():
    found, kind = broadcast.Found(), broadcast.CHANGING
    for name in kind.series:
        found.measured_s[name], found.expected_s[name] = [1.0], [1.1]
    (claim,) = broadcast._unmet(kind, [found])
    assert 'trees by median take 1.00' in claim
    found.measured_s['median'] = [0.9]
    assert broadcast._unmet(kind, [found]) == ()
    found.expected_s = dict.fromkeys(kind.series, [0.5])
    (claim,) = broadcast._unmet(kind, [found])
    assert 'off the model' in claim
