# SPDX-License-Identifier: Apache-2.0

"""Policies of one's own, and the order of Sincronia."""

import itertools
import pathlib
import runpy

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit.scheduling.test_order_and_rates import situations
from virtco import exception
from virtco import scheduling
from virtco.model import live
from virtco.scheduling import own_policy
from virtco.scheduling import policies
from virtco.scheduling import sincronia
from virtco_lab.sim import demands

EXAMPLE = pathlib.Path(__file__).parents[3].joinpath(
    'doc/source/reference/own_policy_example.py')


class Mrtf:
    def order(self, coflows):
        return sorted(coflows, key=lambda c: c.alone_s / c.weight)


class Odd:
    """:param answer: what it makes of the coflows."""

    def __init__(self, answer, rates=None):
        self.order = answer
        if rates is not None:
            self.rates = rates


def coflow(name, size_bytes, **values):
    return live.LiveCoflow(name, live.Flows(live.Pairs((('a', 'b'),)),
                                            np.array([size_bytes])), **values)


def serve(own, *coflows):
    ports = live.Ports(('a', 'b'), np.full(2, 8e6), np.full(2, 8e6))
    return scheduling.schedule(coflows, ports, policy=policies.of(own),
                               now_s=0.0)


@hypothesis.given(situations())
def test_an_order_of_ones_own_is_served_like_a_built_in_one(situation):
    coflows, ports, *_ = situation
    hypothesis.assume(all(c.served is None and not c.compute_s
                          for c in coflows))
    found, known = (scheduling.schedule(coflows, ports, policy=policy,
                                        now_s=0.0)
                    for policy in (policies.of(Mrtf()), 'mrtf'))
    alone_s = {c.coflow_id: c.remaining_cct_s for c in known.coflows}
    weight = {c.coflow_id: c.weight for c in coflows}
    keys = [alone_s[c.coflow_id] / weight[c.coflow_id]
            for c in known.coflows]
    # Without ties, or nearly, the same coflows have the same rates.
    hypothesis.assume(all(after > before * (1 + 1e-9) + 1e-12
                          for before, after in itertools.pairwise(keys)))
    hypothesis.assume(len({c.priority_class for c in coflows}) <= 1)
    assert [c.coflow_id for c in found.coflows] == [
        c.coflow_id for c in known.coflows]
    for mine, theirs in zip(found.coflows, known.coflows):
        assert mine.flow_rates.rate_bps.tolist() == pytest.approx(
            theirs.flow_rates.rate_bps.tolist())


def test_a_policy_is_told_what_coflows_have_left():
    told = []

    def order(coflows):
        told.extend(coflows)
        return coflows[::-1]

    found = serve(Odd(order), coflow('x', 4e6, arrival_s=3.0, weight=2.0,
                                     sent_bytes=1e6), coflow('y', 1e6))
    assert [c.coflow_id for c in found.coflows] == ['x', 'y']
    y, x = told
    assert (x.arrival_s, x.weight, x.sent_bytes, x.left_bytes, x.n_flows) == (
        3.0, 2.0, 1e6, 4e6, 1)
    assert (x.alone_s, y.alone_s) == pytest.approx((4.0, 1.0))
    assert x.busy_s.tolist() == pytest.approx([4.0, 0.0, 0.0, 4.0])


@pytest.mark.parametrize('answer', [
    lambda coflows: [], lambda coflows: coflows[:1] * 2,
    lambda coflows: [*coflows, coflows[0]],
    lambda coflows: itertools.repeat(coflows[0]),
    lambda coflows: coflows.clear() or coflows])
def test_an_order_without_each_coflow_once_is_refused(answer):
    with pytest.raises(exception.Invalid, match='order of Odd.*once'):
        serve(Odd(answer), coflow('x', 1e6), coflow('y', 1e6))


@pytest.mark.parametrize('answer, told', [
    (lambda coflows: coflows.sort(), 'TypeError.*not iterable'),
    (lambda coflows: 'xy', "AttributeError.*'number'"),
    (lambda coflows: [c.number for c in coflows], "AttributeError.*'number'"),
    (lambda coflows: sorted(coflows, key=lambda c: 1 / 0),
     r'ZeroDivisionError.*test_own_policy.py, line \d+')])
def test_an_order_that_fails_is_told_with_its_line(answer, told):
    with pytest.raises(exception.Invalid,
                       match=f'order of Odd: expected an answer.*{told}'):
        serve(Odd(answer), coflow('x', 1e6))


def test_an_order_may_sort_the_list_that_it_is_given():
    def order(coflows):
        coflows.sort(key=lambda c: c.left_bytes)
        return coflows

    found = serve(Odd(order), coflow('x', 4e6), coflow('y', 1e6))
    assert [c.coflow_id for c in found.coflows] == ['y', 'x']


@pytest.mark.parametrize('own, told', [
    (object(), 'object: expected a class with a method order, got nothing'),
    (Odd(3), 'Odd: expected a class with a method order, got 3'),
    (Odd(sorted, [0.5]), r'Odd: .* method rates, got \[0.5\]')])
def test_an_object_without_the_methods_is_refused(own, told):
    with pytest.raises(exception.Invalid, match=told):
        policies.of(own)


@pytest.mark.parametrize('shares', [
    [0.5], [0.5, 1.1], [0.5, -0.1], [0.5, float('nan')],
    itertools.repeat(0.5)])
def test_rates_that_are_no_shares_are_refused(shares):
    with pytest.raises(exception.Invalid, match='rates of Odd.*0 to 1'):
        serve(Odd(lambda coflows: coflows, lambda coflows: shares),
              coflow('x', 1e6), coflow('y', 1e6))


@pytest.mark.parametrize('answer', [None, 0.5, ['a', 'b']])
def test_rates_that_are_no_numbers_are_told(answer):
    with pytest.raises(exception.Invalid, match=(
            'rates of Odd: expected an answer for 2 coflows')):
        serve(Odd(lambda coflows: coflows, lambda coflows: answer),
              coflow('x', 1e6), coflow('y', 1e6))


def test_rates_come_before_the_order():
    found = serve(Odd(lambda coflows: coflows, lambda coflows: [0.0, 0.25]),
                  coflow('x', 4e6), coflow('y', 1e6))
    rate_bps = {c.coflow_id: c.flow_rates.rate_bps.sum()
                for c in found.coflows}
    assert rate_bps == pytest.approx({'x': 6e6, 'y': 2e6})


def test_the_example_of_the_documentation_serves_few_bytes_first():
    example = runpy.run_path(str(EXAMPLE))['LeastBytes']()
    found = serve(example, coflow('x', 4e6), coflow('y', 1e6))
    assert [c.coflow_id for c in found.coflows] == ['y', 'x']
    assert found.coflows[1].flow_rates.rate_bps.sum() == pytest.approx(8e4)


def unfinished(busy_s, weight):
    return [own_policy.Unfinished(
        c, 0.0, w, 0.0, 1.0, 1, max(row), np.array(row, float))
        for c, (row, w) in enumerate(zip(busy_s, weight))]


def prefix_s(coflows):
    """Weighted sum of the times at which each coflow's ports are done."""
    done_s, total = np.zeros(len(coflows[0].busy_s)), 0.0
    for one in coflows:
        done_s = done_s + one.busy_s
        total += one.weight * done_s[one.busy_s > 0].max(initial=0.0)
    return total


@hypothesis.given(st.integers(1, 3).flatmap(lambda n_ports: st.lists(
    st.tuples(st.lists(st.integers(0, 9), min_size=n_ports,
                       max_size=n_ports).filter(any), st.integers(1, 5)),
    min_size=1, max_size=5)))
def test_sincronia_is_at_most_twice_the_best_order(drawn):
    """Sincronia, theorem 1's bound for the order of open shops."""
    coflows = unfinished(*zip(*drawn))
    found = sincronia.Sincronia().order(coflows)
    assert sorted(one.number for one in found) == list(range(len(coflows)))
    best = min(map(prefix_s, itertools.permutations(coflows)))
    assert prefix_s(found) <= 2 * best * (1 + 1e-9)


def test_sincronia_delays_what_pays_most_at_the_fullest_port():
    coflows = unfinished([(9, 0), (2, 1), (0, 3)], [1, 1, 1])
    assert [one.number for one in sincronia.Sincronia().order(coflows)] == [
        1, 2, 0]


def test_sincronia_takes_coflows_without_bytes():
    coflows = unfinished([(0, 0), (0, 0)], [1, 1])
    assert len(sincronia.Sincronia().order(coflows)) == 2


@hypothesis.given(st.lists(st.sampled_from([1, 2, 3]), min_size=2,
                           max_size=8))
def test_sincronia_serves_equal_coflows_in_the_order_given(sizes):
    """Payments leave rounding errors of weights that are paid in full."""
    coflows = unfinished([(size / 3, size * 0.7) for size in sizes],
                         [size * 0.1 for size in sizes])
    assert [one.number for one in sincronia.Sincronia().order(coflows)] == (
        list(range(len(sizes))))


def test_a_policy_is_told_of_the_first_to_arrive_first():
    fabric = demands.fabric_of(np.ones(4), [
        demands.of_flows([(0, 1, 1.0, 1.0)]) for _ in range(4)])
    told = own_policy.unfinished(fabric, [3, 0, 2, 1], np.array(
        [5.0, 2.0, 2.0, 1.0]), np.ones(4), np.zeros(4))
    assert [one.number for one in told] == [3, 1, 2, 0]
