# SPDX-License-Identifier: Apache-2.0

"""How racks are inferred from rates, step by step."""

import math

import numpy as np
import pytest

from virtco_tenant.cast import clusters


def rates_of(racks, step=4.0, sender=None, share=1.0, seed=0):
    """Rates of members by name; ``racks`` says the rack of each."""
    rng = np.random.default_rng(seed)
    return {(f'v{one}', f'v{other}'): 1e6 * (
        step if rack == racks[other] else 1.0) * (
        1.0 if sender is None else sender[one])
        for one, rack in enumerate(racks) for other in range(len(racks))
        if one != other and rng.random() < share}


def racks_of(found):
    racks = {}
    for name, rack in found.items():
        racks.setdefault(rack, set()).add(name)
    return sorted(map(sorted, racks.values()))


TWO = [['v0', 'v1', 'v4'], ['v2', 'v3', 'v5']]


def test_only_ratios_of_rates_count():
    for factor in (1e-9, 1.0, 1e6):
        found = clusters.infer({pair: factor * rate_bps for pair, rate_bps
                                in rates_of('aabbab').items()})
        assert racks_of(found) == TWO


def test_pairs_without_a_rate_and_members_themselves_tell_nothing():
    """Neither a member that no other one knows is in a rack."""
    found = clusters.infer(rates_of('aabbab') | {
        ('v0', 'v0'): 1e9, ('v1', 'v1'): 1.0, ('x', 'v0'): 0.0,
        ('v0', 'x'): -1.0})
    assert racks_of(found) == TWO
    assert clusters.infer({('v0', 'v1'): 0.0, ('v2', 'v2'): 1e6}) == {}


def test_racks_have_two_members_on_average_or_more():
    found = clusters.infer(rates_of('aabbc'))
    assert len(racks_of(found)) == 2
    assert len(racks_of(clusters.infer(rates_of('aabbcc')))) == 3


EVEN_AND_ODD = [[f'v{place}' for place in range(first, 10, 2)]
                for first in (0, 1)]


def test_fast_senders_are_no_rack_where_half_of_the_pairs_were_seen():
    """Rates of both directions differ where each was measured."""
    rng = np.random.default_rng(0)
    sender = 10 ** rng.uniform(0, 2, 10)
    assert racks_of(clusters.infer(rates_of(
        'ab' * 5, 6.0, sender, 0.5))) == EVEN_AND_ODD


@pytest.mark.parametrize(('seed', 'share'), [
    (5, 0.3), (8, 0.25), (9, 0.3), (12, 0.3)])
def test_one_direction_stands_for_both_where_few_pairs_were_seen(seed, share):
    assert racks_of(clusters.infer(rates_of(
        'ab' * 5, 6.0, share=share, seed=seed))) == EVEN_AND_ODD


def seen_of(*rows):
    return np.array([[cell == 'x' for cell in row] for row in rows])


def test_terms_of_senders_and_of_receivers_leave_nothing():
    """Neither where few pairs were measured, and some members with one
    other only.
    """
    seen = seen_of('.xxx.', 'x.xx.', 'xx..x', 'x.x..', '..x..')
    terms = np.array([[3.0], [1.0], [-2.0], [0.5], [7.0]]) + np.array(
        [2.0, -1.0, 4.0, 0.0, 5.0])
    left = clusters._centred(terms, seen)
    assert left == pytest.approx(0.0, abs=1e-4)
    other = np.where(seen, np.arange(25.0).reshape(5, 5) ** 2 / 99, 99.0)
    left = clusters._centred(other, seen)
    assert (left[~seen] == 0).all()
    assert left.sum(axis=0) == pytest.approx(0.0, abs=1e-4)
    assert left.sum(axis=1) == pytest.approx(0.0, abs=1e-4)


def test_a_member_belongs_where_its_mean_rate_is_best():
    """Neither where the sum of its rates is, nor where none was measured."""
    both = np.zeros((7, 7))
    seen = ~np.eye(7, dtype=bool)

    def put(rows, columns, value):
        for row in rows:
            for column in columns:
                if row != column:
                    both[row, column] = both[column, row] = value

    many, few = (0, 1, 2, 3), (4, 5)
    put(many, many, 2.0)
    put(few, few, 2.0)
    put(many, few, -2.0)
    put([6], many, 1.0)
    put([6], few, 1.5)
    labels = np.array([0, 0, 0, 0, 1, 1, 0])
    assert clusters._settled(both, seen, labels).tolist() == [
        0, 0, 0, 0, 1, 1, 1]
    # A mean of one direction of one pair.
    seen[6] = seen[:, 6] = False
    seen[6, 4] = seen[6, 0] = seen[0, 6] = True
    put([6], [0], 1.8)
    put([6], [4], 1.0)
    put([6], [1, 2, 3, 5], 0.0)
    assert clusters._settled(both, seen, labels).tolist() == [
        0, 0, 0, 0, 1, 1, 1]


def test_the_cost_of_clusters_is_their_bic():
    """Of 12 values of 4 members, 7 fit the terms of these."""
    seen = ~np.eye(4, dtype=bool)
    one = np.zeros(4, np.int64)
    left = clusters._centred(
        np.array([[0.0, 4.0, 1.0, 0.0], [5.0, 0.0, 0.0, 1.0],
                  [0.0, 2.0, 0.0, 3.0], [1.0, 0.0, 6.0, 0.0]]), seen)
    rest = (left ** 2).sum()
    assert clusters._cost(left, seen, one, 12) == pytest.approx(
        5 * math.log(rest / 5 + 0.03 ** 2))
    # Where one direction stands for both, half of the values are free.
    assert clusters._cost(left, seen, one, 9) == pytest.approx(
        2 * math.log(rest / 5 + 0.03 ** 2))
    assert clusters._cost(left, seen, one, 4) == pytest.approx(
        math.log(rest / 5 + 0.03 ** 2))
    # Values within a cluster are higher by a step, those outside are lower.
    two = np.array([0, 0, 1, 1])
    same = np.array([[0, 2, -1, -1], [2, 0, -1, -1],
                     [-1, -1, 0, 2], [-1, -1, 2, 0]]) / 3
    step = (same * left).sum() / (same ** 2).sum()
    assert step > clusters.LEAST_STEP
    rest -= step ** 2 * (same ** 2).sum()
    assert clusters._cost(left, seen, two, 12) == pytest.approx(
        5 * math.log(rest / 5 + 0.03 ** 2)
        + 2 * 4 * math.log(2) + math.log(5))
    assert clusters._cost(-left, seen, two, 12) == math.inf
