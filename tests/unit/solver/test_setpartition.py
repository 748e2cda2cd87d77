# SPDX-License-Identifier: Apache-2.0

"""Which limits set partition tries, and what it makes of the answers."""

import math

import numpy as np
import pytest

from tests.unit.solver import problems
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.partition import columns
from virtco.solver.partition import master
from virtco.solver.partition import setpartition

Verdict = setpartition.Verdict
BELOW = 1 - setpartition.JUST_BELOW


def begin():
    return setpartition.Partition(instances.build(
        problems.fig_1_problem()), budgets.unlimited())


def narrowed(lower_s, upper_s, verdict_of, judge):
    """The bound, and the times that were tried."""
    partition, tried = begin(), []
    partition.within_s = lambda t_s: t_s

    def decide(t_s):
        tried.append(t_s)
        verdict = verdict_of(t_s)
        return verdict, t_s if verdict is Verdict.FOUND else None

    partition.decide = decide
    return partition.narrow(lower_s, upper_s, judge), tried


def refuted_below(least_s):
    return lambda t_s: Verdict.REFUTED if t_s < least_s else Verdict.FOUND


def test_a_search_halves_the_ratio_and_ends_just_below():
    lower_s, tried = narrowed(4.0, 8.0, refuted_below(6.0), lambda _t: 6.0)
    expected = [8 / 1.03, 4.0]
    while expected[-1] * 1.01 < 6.0:
        expected.append(math.sqrt(expected[-1] * 6.0))
    assert tried == pytest.approx([*expected, 6.0 * BELOW], rel=1e-12)
    assert lower_s == 6.0 * BELOW


def test_near_the_best_nothing_between_is_tried():
    lower_s, tried = narrowed(7.9, 8.0, refuted_below(8.0), max)
    assert tried == [8.0 * BELOW] and lower_s == 8.0 * BELOW
    # One step above the first one is as near.
    upper_s = 4.0 * setpartition.FIRST * (1 + setpartition.JUST_BELOW)
    _lower_s, tried = narrowed(4.0, upper_s, lambda _t_s: Verdict.UNKNOWN,
                               max)
    assert tried[1] == upper_s * BELOW
    # The first one, a thirtieth below, is a bound as good as any.
    lower_s, tried = narrowed(4.0, 8.0, refuted_below(8.0), max)
    assert tried == [8 / 1.03, 8.0 * BELOW] and lower_s == 8.0 * BELOW


def test_what_is_not_known_is_neither():
    lower_s, tried = narrowed(4.0, 8.0, lambda _t_s: Verdict.UNKNOWN, max)
    assert lower_s == 4.0
    assert tried[:3] == pytest.approx([8 / 1.03, 4.0, math.sqrt(32.0)])
    assert tried[-1] == 8.0 * BELOW


def test_a_placement_may_take_longer_than_its_limits():
    """An uplink does: then there is nothing more to find at that time."""
    judged = []

    def judge(t_s):
        judged.append(t_s)
        return 9.0

    lower_s, tried = narrowed(4.0, 8.0, refuted_below(5.0), judge)
    assert tried[0] == 8 / 1.03 and tried[-1] == 8.0 * BELOW
    assert max(tried) < 8.0 and lower_s == 4.0
    assert judged == [t_s for t_s in tried if t_s >= 5.0]


@pytest.mark.parametrize(('steps', 'n_tried'), [(2.5, 1), (2, 0), (1.5, 0)])
def test_bounds_that_are_two_steps_apart_have_met(steps, n_tried):
    lower_s = 8.0 * (1 - steps * setpartition.JUST_BELOW)
    _lower_s, tried = narrowed(lower_s, 8.0, refuted_below(9.0), max)
    assert tried == [8.0 * BELOW] * n_tried


@pytest.mark.parametrize(('excess', 'n_tried'), [
    (2.5, 1), (2, 2), (1.5, 2)])
def test_a_placement_takes_longer_by_more_than_two_roundings(excess, n_tried):
    """Where it does, nothing is sought below its limits."""
    verdicts = iter([Verdict.FOUND, Verdict.REFUTED])
    _lower_s, tried = narrowed(
        7.95, 8.0, lambda _t_s: next(verdicts),
        lambda t_s: t_s * (1 + excess * columns.CHOSEN))
    assert len(tried) == n_tried


def test_no_time_is_too_short_to_begin_with():
    _lower_s, tried = narrowed(0.0, 8.0, refuted_below(1e-3), lambda t_s: t_s)
    assert tried[1] == setpartition.LEAST * tried[0]
    assert all(t_s > 0 for t_s in tried)


def test_verdicts_do_not_depend_on_those_before():
    partition = begin()
    assert partition.decide(partition.within_s(4.0))[0] is Verdict.FOUND
    assert partition.decide(partition.within_s(3.9))[0] is Verdict.REFUTED
    assert partition.refuting is not None
    assert partition.decide(partition.within_s(4.0))[0] is Verdict.FOUND
    # What refuted it before is asked first: no program, no other set.
    partition.master.cover = None
    assert partition.decide(partition.within_s(3.9)) == (
        Verdict.REFUTED, None)


def test_trees_grow_where_nothing_was_found():
    partition, limits, added = begin(), [], iter([1, 0, 2, 0])

    def price_all(_limits, _cover, limit):
        limits.append(limit)
        return False, next(added, 0)

    partition._price_all = price_all
    assert partition.decide(partition.within_s(4.0)) == (
        Verdict.UNKNOWN, None)
    assert limits == [300, 300, 3000, 3000, 30000]
    partition.refuting = object()
    limits.clear()
    partition.decide(partition.within_s(4.0))
    assert limits == [300, 300, 3000, 30000]


@pytest.mark.parametrize('excess, proof', [(1e-5, True), (0.0, False)])
def test_values_above_all_prices_refute(excess, proof):
    """One class of 3 hosts, of which a set is worth 0.5 at most."""
    partition, asked, new = begin(), [], []
    assert partition.master.count.tolist() == [3]

    def price(c, limits, value, cutoff, limit, placed, budget):
        asked.append((c, cutoff, limit))
        return 0.5, [np.array([True, False, True]),
                     np.array([False, True, False])]

    def add(members, _limits, only):
        new.append((members.tolist(), only.tolist()))
        return 1

    partition.pool.price, partition.pool.add = price, add
    cover = master.Cover(0.6, np.array([0.3, 0.2, 0.4]), 1.5 + excess,
                         np.array([0.25]), np.zeros(0),
                         np.array([[0.3, 0.2, 0.4]]), np.zeros(0),
                         np.zeros(0))
    assert partition._price_all(None, cover, 7) == (proof, 2)
    assert asked == [(0, pytest.approx(0.25 + 0.6 / 6), 7)]
    assert new == [([True, False, True], [True]),
                   ([False, True, False], [False])]
    partition.budget = budgets.Budget(budgets.Counter(), 0.0)
    assert partition._price_all(None, cover, 7) == (False, 0)
