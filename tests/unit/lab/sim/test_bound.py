# SPDX-License-Identifier: Apache-2.0

import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import scipy

from virtco import exception
from virtco.scheduling import fabric as fabric_model
from virtco_lab.sim import bound
from virtco_lab.sim import demands
from virtco_lab.sim import simulation

N_HOSTS = 3
#: Less than what the simulator rounds off.
SLACK = 1 + 1e-7


def demand(flows):
    src, dst, bits = zip(*flows)
    return fabric_model.Demand(np.array(src), np.array(dst),
                               np.array(bits, float), np.ones(len(bits)))


def coflows_at(hosts, bits, releases):
    flow = st.tuples(hosts, hosts, bits)
    coflow = st.tuples(releases, st.lists(flow, min_size=1, max_size=4))
    return st.lists(coflow, min_size=1, max_size=4).map(
        lambda rows: sorted(rows, key=lambda row: row[0]))


COFLOWS = coflows_at(st.integers(0, N_HOSTS - 1), st.integers(1, 9),
                     st.integers(0, 12))
CAPACITIES = st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=2 * N_HOSTS,
                      max_size=2 * N_HOSTS).map(np.array)


def bound_s(coflows, cap_bps):
    fabric = demands.fabric_of(cap_bps, [demand(flows)
                                          for _, flows in coflows])
    return bound.least_mean_cct_s(
        fabric, np.array([release for release, _ in coflows], float))


def mean_cct_s(coflows, cap_bps, config, ranks=None):
    sim = simulation.Simulation(cap_bps, config,
                                [demand(flows) for _, flows in coflows])
    for index, (release, _) in enumerate(coflows):
        sim.run(release)
        sim.start(index, priority_class=ranks[index] if ranks else 0)
    sim.run()
    return sim.completion_s().mean()


@hypothesis.given(COFLOWS, CAPACITIES)
@hypothesis.settings(max_examples=60, deadline=None)
def test_no_policy_is_below_it(coflows, cap_bps):
    least_s = bound_s(coflows, cap_bps)
    for policy in simulation.POLICIES:
        assert least_s <= SLACK * mean_cct_s(coflows, cap_bps,
                                             simulation.Config(policy))


@hypothesis.given(COFLOWS, CAPACITIES)
@hypothesis.settings(max_examples=60, deadline=None)
def test_no_order_is_below_it(coflows, cap_bps):
    best_s = min(
        mean_cct_s(coflows, cap_bps, simulation.Config('priority'), ranks)
        for ranks in itertools.permutations(range(len(coflows))))
    assert bound_s(coflows, cap_bps) <= SLACK * best_s


def by_all_cuts(coflows, cap_bps):
    """The same linear program with every set's cut written down."""
    n_coflows = len(coflows)
    release = np.array([row[0] for row in coflows], float)
    busy = np.zeros((n_coflows, len(cap_bps)))
    for index, (_, flows) in enumerate(coflows):
        for src, dst, bits in flows:
            busy[index, src] += bits / cap_bps[src]
            busy[index, N_HOSTS + dst] += bits / cap_bps[N_HOSTS + dst]
    rows, least = [], []
    for size in range(1, n_coflows + 1):
        for chosen in map(list, itertools.combinations(range(n_coflows),
                                                       size)):
            for port in range(len(cap_bps)):
                p = busy[chosen, port]
                rows.append(np.zeros(n_coflows))
                rows[-1][chosen] = p
                least.append(p.sum() * (release[chosen].min() + p.sum() / 2)
                             + (p * p).sum() / 2)
    ends = scipy.optimize.linprog(
        np.ones(n_coflows), A_ub=-np.array(rows), b_ub=-np.array(least),
        bounds=[(low, None) for low in release + busy.max(axis=1)])
    return (ends.fun - release.sum()) / n_coflows


@hypothesis.given(COFLOWS, CAPACITIES)
@hypothesis.settings(max_examples=60, deadline=None)
def test_finds_every_cut_that_counts(coflows, cap_bps):
    # A set with a coflow that does not use the port gives a weaker cut.
    assert bound_s(coflows, cap_bps) == pytest.approx(
        by_all_cuts(coflows, cap_bps), rel=1e-4)


@hypothesis.given(coflows_at(st.just(0), st.integers(1, 9), st.just(0)))
def test_one_port_and_one_release_is_shortest_first(coflows):
    sizes = sorted(sum(bits for *_, bits in flows) for _, flows in coflows)
    assert bound_s(coflows, np.ones(2 * N_HOSTS)) == pytest.approx(
        np.cumsum(sizes).mean(), rel=1e-4)


def test_stopping_early_gives_a_weaker_bound():
    coflows = [(0, [(0, 1, 5)]), (1, [(0, 1, 1), (0, 2, 1)]),
               (2, [(2, 1, 3)]), (2, [(0, 0, 2)])]
    cap_bps = np.ones(2 * N_HOSTS)
    fabric = demands.fabric_of(cap_bps, [demand(row[1]) for row in coflows])
    release = np.array([row[0] for row in coflows], float)
    found = [bound.least_mean_cct_s(fabric, release, rounds)
             for rounds in range(4)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(3.0)       # Each alone: 5, 2, 3, 2.
    assert found[-1] > found[0]


@pytest.mark.parametrize('unit', [1e-3, 1e6])
def test_the_unit_of_time_does_not_matter(unit):
    coflows = [(0, [(0, 1, 5)]), (1, [(0, 1, 1), (0, 2, 1)]),
               (2, [(2, 1, 3)])]
    other = [(unit * release, [(src, dst, unit * bits)
                               for src, dst, bits in flows])
             for release, flows in coflows]
    cap_bps = np.ones(2 * N_HOSTS)
    assert bound_s(other, cap_bps) == pytest.approx(
        unit * bound_s(coflows, cap_bps), rel=1e-3)


@pytest.mark.parametrize('least_s, is_violated', [(0.4, True), (0.5, False)])
def test_a_cut_is_added_where_it_is_violated(least_s, is_violated):
    """A coflow of 4 s alone at a port, released after 1 s, in 3.5 s."""
    cuts = list(bound._violated(np.zeros(1, int), np.array([4.0]),
                                np.ones(1), np.array([3.5]), least_s))
    assert [(owner.tolist(), share.tolist(), least_s)
            for owner, share, least_s in cuts] == (
        [([0], [1.0], 4.0)] if is_violated else [])


@hypothesis.given(st.lists(st.tuples(
    st.integers(1, 5), st.integers(0, 9), st.integers(0, 9)),
    min_size=2, max_size=4))
def test_the_most_violated_set_of_a_port_is_the_first(coflows):
    """Then those follow that have no coflow in common with it."""
    busy_s, release_s, cct_s = np.array(coflows, float).T
    owner = np.arange(len(coflows))

    def lacks_s(chosen, least_s):
        share = busy_s[chosen] / busy_s[chosen].sum()
        return least_s - share @ cct_s[chosen]
    sets = [list(chosen) for size in range(1, len(coflows) + 1)
            for chosen in itertools.combinations(range(len(coflows)), size)]
    worst_s = max(lacks_s(chosen, release_s[chosen].min() + (
        busy_s[chosen].sum() + busy_s[chosen] @ busy_s[chosen]
        / busy_s[chosen].sum()) / 2 - busy_s[chosen] @ release_s[chosen]
        / busy_s[chosen].sum()) for chosen in sets)
    found = [(chosen.tolist(), lacks_s(chosen, least_s))
             for chosen, _share, least_s in bound._violated(
                 owner, busy_s, release_s, cct_s, 1e-9)]
    assert bool(found) == (worst_s > 1e-9)
    assert not found or found[0][1] == pytest.approx(worst_s)
    every = [one for chosen, _ in found for one in chosen]
    assert len(every) == len(set(every))


@hypothesis.given(st.lists(st.floats(-1.0, 4.0), min_size=3, max_size=3))
def test_prices_prove_no_more_than_is_true(prices):
    """Two coflows of 1 and 3 s at a port end after 1 and 4 s at best."""
    matrix = scipy.sparse.csr_array([[1.0, 0.0], [0.0, 1.0], [0.25, 0.75]])
    least_s, alone_s = np.array([1.0, 3.0, 3.25]), np.array([1.0, 3.0])
    assert bound._proven_s(matrix, least_s, alone_s, np.array(prices)
                           ) <= 2.5 + 1e-9


@pytest.mark.parametrize('price, proven_s', [
    (0.0, 2.0), (0.5, 2.125), (2 / 3, 2 + 1 / 6), (2.0, 2 + 1 / 6)])
def test_prices_that_are_too_high_are_lowered(price, proven_s):
    matrix = scipy.sparse.csr_array([[0.25, 0.75]])
    assert bound._proven_s(matrix, np.array([2.75]), np.array([1.0, 3.0]),
                           np.array([price])) == pytest.approx(proven_s)


def test_a_coflow_without_flows_takes_no_time():
    nothing = fabric_model.Demand(*(np.zeros(0) for _ in range(4)))
    fabric = demands.fabric_of(np.ones(2), [demand([(0, 0, 4)]), nothing])
    assert bound.least_mean_cct_s(fabric, np.array([0.0, 1.0])) == 2.0
    assert bound.least_mean_cct_s(demands.fabric_of(np.ones(2), []),
                                  np.zeros(0)) == 0.0
    assert bound.least_mean_cct_s(demands.fabric_of(np.ones(2), [nothing]),
                                  np.zeros(1)) == 0.0


def test_a_port_without_capacity_is_refused():
    fabric = demands.fabric_of(np.array([0.0, 1.0]), [demand([(0, 0, 4)])])
    with pytest.raises(exception.Invalid, match='0 bit/s'):
        bound.least_mean_cct_s(fabric, np.zeros(1))
