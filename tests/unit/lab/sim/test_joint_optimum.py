# SPDX-License-Identifier: Apache-2.0

"""The joint optimum of placement and schedule against enumeration."""

import dataclasses
import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco_lab.emulation import prediction
from virtco_lab.sim import joint_optimum


def matrices(n_vms):
    cell = st.sampled_from([0.0, 0.0, 1e6, 2e6, 5e6])
    return st.lists(cell, min_size=n_vms * n_vms, max_size=n_vms * n_vms).map(
        lambda cells: np.array(cells).reshape(n_vms, n_vms)
        * ~np.eye(n_vms, dtype=bool))


RATES = st.lists(st.sampled_from([1e6, 2e6, 3e6]), min_size=3, max_size=3
                 ).map(np.array)


@st.composite
def problems(draw):
    matrix = st.one_of(matrices(2), matrices(3))
    coflows = draw(st.lists(matrix, min_size=1, max_size=3))
    n_vms = sum(map(len, coflows))
    slots = draw(st.lists(st.integers(1, 3), min_size=3, max_size=3).filter(
        lambda slots: sum(slots) >= n_vms))
    return joint_optimum.Problem(coflows, draw(RATES), draw(RATES),
                                 np.array(slots))


def placements(problem):
    lengths = [len(matrix) for matrix in problem.bytes_between]
    for flat in itertools.product(range(3), repeat=sum(lengths)):
        if (np.bincount(flat, minlength=3) <= problem.slots).all():
            yield np.split(np.array(flat), np.cumsum(lengths)[:-1])


@hypothesis.given(problems().filter(
    lambda one: sum(map(len, one.bytes_between)) <= 6))
@hypothesis.settings(max_examples=8, deadline=None)
def test_it_is_the_best_of_all_placements(problem):
    found = joint_optimum.solve(problem, tolerance=1e-9)
    best_s = min(joint_optimum.best_mean_s(problem, hosts)
                 for hosts in placements(problem))
    assert found.mean_s == pytest.approx(best_s, rel=1e-6, abs=1e-9)
    assert found.bound_s == pytest.approx(found.mean_s, rel=1e-6, abs=1e-9)
    taken = np.bincount(np.concatenate(found.hosts), minlength=3)
    assert (taken <= problem.slots).all()
    assert joint_optimum.best_mean_s(
        problem, list(map(np.array, found.hosts))) == pytest.approx(
            found.mean_s, rel=1e-6, abs=1e-9)


def contended(seed):
    rng = np.random.default_rng(seed)
    coflows = [rng.exponential(1e6, (3, 3)) * ~np.eye(3, dtype=bool)
               for _ in range(4)]
    rates_bps = rng.uniform(1e6, 3e6, 4)
    return joint_optimum.Problem(coflows, rates_bps, rates_bps,
                                 np.full(4, 3)), rng


@pytest.mark.parametrize('seed', range(4))
def test_no_order_of_the_simulator_is_below_the_best_schedule(seed):
    problem, rng = contended(seed)
    at = [rng.permutation(4)[:3] for _ in problem.bytes_between]
    least_s = joint_optimum.best_mean_s(problem, at)
    names = [f'h{host}' for host in range(4)]
    coflows = [prediction.coflow_model.Coflow.from_flows(f'c{i}', 3, [
        (src, dst, matrix[src, dst])
        for src, dst in itertools.permutations(range(3), 2)])
        for i, matrix in enumerate(problem.bytes_between)]
    ratios = [np.mean(prediction.simulate(
        [prediction.Placed(coflow, tuple(names[host] for host in hosts))
         for coflow, hosts in zip(coflows, at)],
        dict(zip(names, problem.egress_bps)), order)) / least_s
        for order in ('mrtf', 'sebf', 'sincronia', 'fifo', 'fair')]
    assert min(ratios) >= 1 - 1e-6
    # An order by size is near the best schedule, equal shares are not.
    assert ratios[0] < 1.1 < ratios[-1]


def test_a_search_that_is_cut_short_returns_an_interval():
    problem, _ = contended(0)
    problem = dataclasses.replace(problem, slots=np.array([2, 3, 4, 3]))
    whole = joint_optimum.solve(problem, tolerance=1e-6)
    part = joint_optimum.solve(problem, most_nodes=20)
    assert part.nodes < whole.nodes
    assert part.bound_s < whole.mean_s <= part.mean_s
