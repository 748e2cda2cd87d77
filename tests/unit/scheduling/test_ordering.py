# SPDX-License-Identifier: Apache-2.0

"""Who goes first, against the plain rules over lists."""

import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests import examples
from tests.unit.scheduling import test_allocation as allocation
from virtco.model import uplinks
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import order_kernel
from virtco.scheduling import ordering
from virtco.scheduling import policies
from virtco.scheduling import rater_kernel
from virtco_lab.sim import demands as demand_model


@pytest.mark.parametrize(('prefix', 'count'), [
    ('BY_', 4), ('SHARE_', 5), ('BACKFILL_', 4)])
def test_numbers_of_a_policy_differ(prefix, count):
    numbers = [number for name, number in vars(policies).items()
               if name.startswith(prefix)]
    assert len(set(numbers)) == len(numbers) == count


@hypothesis.given(st.lists(st.tuples(
    st.integers(-1, 2), st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([3.0, 4.0])), max_size=12),
    st.randoms(use_true_random=False))
def test_by_level_then_key_then_arrival_then_index(rows, random):
    level = np.array([row[0] for row in rows], np.int64)
    key = np.array([row[1] for row in rows], np.float64)
    order = np.arange(len(rows), dtype=np.int64)
    random.shuffle(order)
    arrival_s = np.array([row[2] for row in rows], np.float64)
    order_kernel.sort(order, len(order), level, key, arrival_s)
    assert order.tolist() == sorted(
        range(len(rows)), key=lambda c: (level[c], key[c], arrival_s[c], c))


@hypothesis.given(st.floats(1e-12, 1e12), st.integers(1, 9))
def test_equal_times_tie_however_they_were_computed(time_s, parts):
    whole = np.array([time_s, sum(time_s / parts for _ in range(parts)),
                      time_s * (1 + 1e-10), math.inf])
    order_kernel.round_keys(np.arange(4), whole)
    assert whole[0] == pytest.approx(time_s, rel=1e-12)
    assert whole[1] == pytest.approx(time_s, rel=2e-12)
    assert whole[0] < whole[2] < whole[3] == math.inf


@hypothesis.given(st.floats(0, 1e9))
def test_a_queue_ends_at_the_first_limit_beyond(served_s):
    limit_s = ordering.queue_limit_s(served_s)
    assert served_s < limit_s <= max(0.5, 2 * served_s)
    assert math.frexp(limit_s)[0] == 0.5


def test_a_port_without_rate_serves_for_ever():
    assert ordering.queue_limit_s(math.inf) == math.inf


COLUMNS = st.lists(st.tuples(
    st.integers(-1, 1), st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([0.25, 0.5, 1.0])), min_size=4, max_size=4)


def laid_out(situation, scale):
    """The fabric, and how long each coflow keeps each port busy."""
    cap, above, cap_bps, flows, _, order = situation
    fabric = demand_model.fabric_of(cap, [fabric_model.Demand(*(
        np.array(column) for column in (
            [one.path[0][1] for one in some], [one.path[1][1] for one in some],
            [float(one.bits) for one in some], [1.0 for _ in some])))
        for some in ([one for one in flows if one.coflow == c]
                     for c in range(len(order)))], above)
    fabric = fabric._replace(scale=np.array(scale))
    plain = allocation.Plain(cap_bps, flows, len(order))
    busy_s = [{port: scale[c] * load / cap_bps[port] if cap_bps[port]
               else math.inf for port, load in plain.loads[c].items()}
              for c in range(len(order))]
    return rater_kernel.Rater(fabric, False), busy_s


def ends_s(busy_s, order):
    """By when each has been served by its ports, in this order."""
    ahead_s, found = {}, {}
    for c in order:
        for port, one_s in busy_s[c].items():
            ahead_s[port] = ahead_s.get(port, 0.0) + one_s
        found[c] = max([ahead_s[port] for port in busy_s[c]], default=0.0)
    return found


def swapped(busy_s, order, level, weight):
    order = list(order)
    for _ in range(10):
        before = list(order)
        for i in range(len(order) - 1):
            c, d = order[i:i + 2]
            other = [*order[:i], d, c]
            now_s, then_s = (sum(weight[k] * found[k] for k in (c, d))
                             for found in (ends_s(busy_s, order[:i + 2]),
                                           ends_s(busy_s, other)))
            if level[c] == level[d] >= 0 and then_s < now_s * (1 - 1e-9):
                order[i:i + 2] = d, c
        if order == before:
            break
    return order


@hypothesis.settings(max_examples=examples.count(600))
@hypothesis.given(allocation.situations(), COLUMNS)
def test_prefix_times_and_swaps_follow_the_plain_rules(situation, columns):
    order = situation[-1]
    level, weight, scale = map(list, zip(*columns[:len(order)]))
    rater, busy_s = laid_out(situation, scale)
    found_s = np.zeros(len(order))
    for _ in range(2):  # Each begins with nothing ahead.
        order_kernel.prefix_times(rater, np.array(order), found_s)
    expected_s = ends_s(busy_s, order)
    assert found_s.tolist() == pytest.approx([
        expected_s[c] for c in range(len(order))])
    order_kernel.bottlenecks(rater, found_s)
    assert found_s.tolist() == pytest.approx([
        max(some.values(), default=0.0) for some in busy_s])
    found = np.array(order)
    order_kernel.swap_neighbours(rater, found, np.array(level),
                                 np.array(weight))
    assert found.tolist() == swapped(busy_s, order, level, weight)


def test_swaps_go_on_until_no_neighbours_gain():
    """The heaviest of three at one port passes both in two sweeps."""
    flows = [allocation.Flow(c, (('out', 0), ('in', 1)), 1.0, 1.0)
             for c in range(3)]
    cap_bps = {(way, host): 1.0 for way in ('out', 'in') for host in (0, 1)}
    rater, _ = laid_out((np.ones(4), uplinks.NONE, cap_bps, flows, [],
                         [0, 1, 2]), [1.0] * 3)
    order = np.arange(3)
    order_kernel.swap_neighbours(rater, order, np.zeros(3, np.int64),
                                 np.array([1.0, 2.0, 4.0]))
    assert order.tolist() == [2, 1, 0]


@hypothesis.given(st.lists(st.tuples(
    st.integers(-1, 1), st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 1.0, 1.0, 3.0]), st.sampled_from([1.0, 4.0, 6.0])),
    min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_a_repeating_coflow_waits_for_those_before_it(rows, random):
    level, weight, intensity, alone_s = map(np.array, zip(*rows))
    key = -np.ones(len(rows))
    order = list(range(len(rows)))
    random.shuffle(order)
    order_kernel.rank_repeating(np.array(order), level, alone_s, weight,
                                intensity, key)
    for c, found in enumerate(key.tolist()):
        first = [d for d in order if level[d] == level[c] and (
            -intensity[d], d) <= (-intensity[c], c)]
        expected = max(alone_s[d] / weight[d] for d in first)
        if intensity[c] == 0 or level[c] < 0:
            assert found == -1.0
        else:
            assert found == expected * (1 + (len(first) - 1) * 1e-12)
