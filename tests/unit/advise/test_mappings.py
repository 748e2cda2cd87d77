# SPDX-License-Identifier: Apache-2.0

"""Mappings are permutations, above their bound, and swaps are added up."""

import itertools

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco import compiled
from virtco import exception
from virtco.advise import kernels
from virtco.advise import mappings


def made(n, seed, n_machines=None, density=0.4):
    rng = np.random.default_rng(seed)
    machines = (np.arange(n) if n_machines is None
                else rng.integers(0, n_machines, n))
    same = machines[:, None] == machines[None, :]
    rates_bps = np.where(same, np.inf, rng.uniform(1.0, 10.0, (n, n)))
    latency_s = np.where(same, 0.0, rng.uniform(0.0, 0.3, (n, n)))
    volumes = np.where(rng.random((n, n)) < density,
                       rng.uniform(0.0, 5.0, (n, n)), 0.0)
    np.fill_diagonal(volumes, 0.0)
    return volumes, mappings.Paths(rates_bps, latency_s, machines)


@st.composite
def problems(draw, least=1, most=14):
    n = draw(st.integers(least, most))
    return made(n, draw(st.integers(0, 2 ** 32 - 1)),
                draw(st.none() | st.integers(1, n)),
                draw(st.sampled_from([0.1, 0.4, 1.0])))


def by_hand(volumes, order, paths):
    """Port times, message by message."""
    out_s, in_s = {}, {}
    n = len(volumes)
    for i, j in itertools.product(range(n), range(n)):
        a, b = order[i], order[j]
        src, dst = paths.machines[a], paths.machines[b]
        if volumes[i, j] > 0 and src != dst:
            took_s = (paths.latency_s[a, b]
                      + 8 * volumes[i, j] / paths.rates_bps[a, b])
            out_s[src] = out_s.get(src, 0.0) + took_s
            in_s[dst] = in_s.get(dst, 0.0) + took_s
    return max([*out_s.values(), *in_s.values()], default=0.0)


@given(problems())
def test_advice_is_valid_and_above_its_bound(problem):
    volumes, paths = problem
    found = mappings.advise(volumes, paths)
    by_name = {one.name: one for one in found}
    for one in found:
        assert sorted(one.order) == list(range(len(volumes)))
        assert one.predicted_s == pytest.approx(
            by_hand(volumes, one.order, paths))
        assert one.bound_s <= one.predicted_s * (1 + 1e-9)
    # Never worse than the order that is there, or than the paper's.
    best_s = found[0].predicted_s
    assert best_s <= by_name['rank'].predicted_s
    assert best_s <= by_name['greedy'].predicted_s


@given(problems(least=2, most=6))
def test_few_tasks_get_the_optimum(problem):
    volumes, paths = problem
    optimum_s = min(by_hand(volumes, order, paths) for order in
                    itertools.permutations(range(len(volumes))))
    (best, *_others) = mappings.advise(volumes, paths)
    assert best.predicted_s == pytest.approx(optimum_s)
    assert best.gap == 0.0
    assert mappings.lower_bound_s(volumes, paths) <= optimum_s * (1 + 1e-9)


def least_s(volumes, paths, task, member):
    """A task's busier port, its largest messages on the fastest paths."""
    others = np.arange(len(volumes)) != member
    found = []
    for sizes, slowness, latency_s in (
            (volumes[task], paths.slowness[member], paths.latency_s[member]),
            (volumes[:, task], paths.slowness[:, member],
             paths.latency_s[:, member])):
        sizes = sorted(sizes[sizes > 0], reverse=True)
        found.append(sum(sorted(latency_s[others])[:len(sizes)]) + sum(
            size * one for size, one in zip(sizes, sorted(slowness[others]))))
    return max(found)


@pytest.mark.parametrize('seed', range(6))
def test_the_bound_is_of_the_best_places_for_each_alone(seed):
    volumes, paths = made(5, seed, density=0.8)
    expected_s = min(
        max(least_s(volumes, paths, task, member)
            for task, member in enumerate(order))
        for order in itertools.permutations(range(5)))
    assert mappings.lower_bound_s(volumes, paths) == pytest.approx(
        expected_s)


def relieved(module, problem, n_fixed=0, work=mappings.WORK):
    """Order, ports and work left of one of the kernels."""
    volumes, paths = problem
    order = np.arange(len(volumes))
    ports = mappings.ports_s(volumes, order, paths)
    queue, queued = np.zeros((2, len(order)), np.int64)
    left = module.relieve(
        order, n_fixed, *mappings._peers(volumes), paths.machines,
        np.ascontiguousarray(paths.slowness), paths.latency_s, ports,
        np.zeros_like(ports), queue, queued, work)
    return order, ports, left


@settings(deadline=None, max_examples=40)
@given(problems(), st.integers(0, 3))
def test_the_compiled_kernel_does_what_the_plain_one_does(problem, n_fixed):
    volumes, paths = problem
    found = relieved(kernels, problem, n_fixed)
    for mine, its in zip(found, relieved(compiled.plain(
            'virtco.advise.kernels'), problem, n_fixed)):
        assert np.array_equal(mine, its)
    order, ports, _left = found
    # Ports that were added to and taken from are those of the order.
    assert ports == pytest.approx(mappings.ports_s(volumes, order, paths),
                                  abs=1e-9)
    assert order[:n_fixed].tolist() == list(range(min(n_fixed, len(order))))


@pytest.mark.parametrize('seed', range(8))
def test_a_search_does_not_depend_on_the_unit_of_volumes(seed):
    """Of equal volumes, of which many swaps leave the busiest port alone."""
    volumes, paths = made(12, seed)
    volumes = (volumes > 0).astype(float)
    machines = np.random.default_rng(seed).permutation(np.arange(12) // 3)
    paths = mappings.Paths(np.full((12, 12), 8.0), np.zeros((12, 12)),
                           machines)
    order, ports, _left = relieved(kernels, (volumes, paths))
    for factor in (2.0 ** -40, 2.0 ** 40):
        again, scaled, _left = relieved(kernels, (volumes * factor, paths))
        assert again.tolist() == order.tolist()
        assert scaled.tolist() == (ports * factor).tolist()


def test_a_search_ends_with_its_work():
    problem = made(60, 5)
    for work in (0, 10_000, 100_000):
        _order, _ports, left = relieved(kernels, problem, 0, work)
        # What it looks at after the last count is one swap.
        assert -2_000 < left <= 0
    tops = [relieved(kernels, problem, 0, work)[1].max()
            for work in (0, 100_000, mappings.WORK)]
    assert tops == sorted(tops, reverse=True) and tops[0] > tops[-1]


def test_work_is_counted_by_what_is_looked_at():
    """Ten for each flow of two tasks, and the ports where a swap helps."""
    assert [mappings.WORK - relieved(kernels, made(n, 5))[2]
            for n in (6, 12, 24)] == [2952, 29964, 318192]


@pytest.mark.parametrize('seed', range(4))
def test_a_ring_finds_its_racks(seed):
    """Shuffled racks: only few messages may cross, and none that is heavy."""
    n, rng = 16, np.random.default_rng(seed)
    racks = rng.permutation(np.arange(n) // 4)
    paths = mappings.Paths(np.where(racks[:, None] == racks, 8.0, 2.0),
                           np.zeros((n, n)), np.arange(n))
    volumes = np.zeros((n, n))
    volumes[np.arange(n), (np.arange(n) + 1) % n] = np.where(
        np.arange(n) % 4 == 3, 1.0, 4.0)
    best, *_others = mappings.advise(volumes, paths)
    assert best.predicted_s == 4.0 == best.bound_s


@pytest.mark.parametrize('seed', range(4))
def test_a_search_begins_with_the_better_order(seed):
    volumes, paths = made(24, seed)
    found = {one.name: one.predicted_s
             for one in mappings.advise(volumes, paths, work=0)}
    assert found['search'] == min(found['greedy'], found['rank'])
    assert found['greedy'] != found['rank']


@pytest.mark.parametrize('seed', range(4))
def test_search_is_better_than_the_heuristic(seed):
    volumes, paths = made(24, seed)
    found = {one.name: one.predicted_s
             for one in mappings.advise(volumes, paths)}
    assert found['search'] < 0.95 * min(found['greedy'], found['rank'])


def test_the_papers_heuristic():
    """The heaviest task gets the best member, its partner the next best."""
    volumes = np.zeros((4, 4))
    volumes[2, 1], volumes[2, 3] = 9.0, 1.0
    rates_bps = np.ones((4, 4))
    rates_bps[0, 3] = rates_bps[3, 0] = 5.0
    rates_bps[0, 1] = 2.0
    order = mappings.greedy(volumes, rates_bps)
    assert order[2] == 0 and order[1] == 3


def test_latency_counts_per_message():
    volumes = np.array([[0.0, 1.0], [0.0, 0.0]])
    paths = mappings.Paths(np.full((2, 2), 8.0), np.array(
        [[0.0, 3.0], [0.5, 0.0]]), np.arange(2))
    best, other, *_rest = mappings.advise(volumes, paths)
    assert best.order == (1, 0) and best.predicted_s == 1.5


def test_another_number_of_tasks_is_refused():
    _volumes, paths = made(3, 0)
    with pytest.raises(exception.Invalid, match='3 rows.*, got 2 rows'):
        mappings.advise(np.zeros((2, 2)), paths)


@pytest.mark.parametrize('n', [0, 1])
def test_nobody_to_talk_to_takes_no_time(n):
    volumes, paths = made(n, 0)
    assert mappings.lower_bound_s(volumes, paths) == 0.0


def test_messages_of_tasks_by_hand():
    volumes = np.array([[0.0, 3.0, 0.0], [0.0, 0.0, 5.0], [1.0, 2.0, 0.0]])
    rates_bps = np.array([[np.inf, 8.0, 16.0], [24.0, np.inf, 4.0],
                          [2.0, 40.0, np.inf]])
    latency_s = np.array([[0.0, 0.5, 0.25], [0.125, 0.0, 1.0],
                          [2.0, 0.75, 0.0]])
    order = np.array([2, 0, 1])
    found = mappings.each_s(volumes, order, rates_bps, latency_s)
    expected = np.zeros((3, 3))
    for i, j in itertools.permutations(range(3), 2):
        if volumes[i, j]:
            a, b = order[i], order[j]
            expected[i, j] = (latency_s[a, b]
                              + 8 * volumes[i, j] / rates_bps[a, b])
    np.testing.assert_allclose(found, expected)
    paths = mappings.Paths(rates_bps, latency_s, np.arange(3))
    assert mappings.slowest_s((volumes / 2, volumes, volumes / 3), order,
                              paths) == by_hand(volumes, order, paths)
    assert mappings.sent_s(volumes, order, rates_bps, latency_s) == (
        pytest.approx(max(expected.sum(axis=1))))


@pytest.mark.parametrize('predicted_s, bound_s, gap', [
    (3.0, 2.0, 0.5), (2.0, 2.0, 0.0), (1.0, 2.0, 0.0), (0.0, 0.0, 0.0),
    (1.0, 0.0, np.inf), (1.0, 0.5, 1.0)])
def test_a_gap_is_above_the_bound(predicted_s, bound_s, gap):
    assert mappings.Mapping('m', (0,), predicted_s, bound_s).gap == gap


def test_a_task_alone_has_no_bound():
    volumes, paths = made(1, 0)
    assert mappings.lower_bound_s(volumes, paths) == 0.0


def test_so_many_first_tasks_stay():
    for n_fixed in range(3):
        moved = set()
        for seed in range(10):
            volumes, paths = made(8, seed)
            found = mappings.search(volumes, paths, np.arange(8), n_fixed)
            assert found[:n_fixed].tolist() == list(range(n_fixed))
            unless_told = mappings.search(volumes, paths, np.arange(8))
            assert n_fixed or (unless_told == found).all()
            moved |= set(np.flatnonzero(found != np.arange(8)).tolist())
        assert moved == set(range(n_fixed, 8))


@pytest.mark.parametrize('seed', range(5))
def test_the_bound_of_few_is_the_best_matching(seed):
    """Below it no matching puts each task where it is fast enough alone."""
    rng = np.random.default_rng(seed)
    volumes, rates_bps = rng.uniform(1, 9, (2, 3, 3))
    np.fill_diagonal(volumes, 0.0)
    np.fill_diagonal(rates_bps, np.inf)
    paths = mappings.Paths(rates_bps, np.zeros((3, 3)), np.arange(3))

    def least_s(task, member):
        """Largest bytes over the fastest paths, out or in."""
        return max(sum(
            8 * size / rate_bps for size, rate_bps in zip(
                sorted(np.delete(sizes[task], task))[::-1],
                sorted(np.delete(rates[member], member))[::-1]))
            for sizes, rates in ((volumes, rates_bps),
                                 (volumes.T, rates_bps.T)))

    assert mappings.lower_bound_s(volumes, paths) == pytest.approx(min(
        max(least_s(task, member) for task, member in enumerate(order))
        for order in itertools.permutations(range(3))))


def test_two_tasks_take_as_long_as_the_slower_way():
    volumes = np.array([[0.0, 3.0], [5.0, 0.0]])
    paths = mappings.Paths(np.array([[np.inf, 8.0], [4.0, np.inf]]),
                           np.zeros((2, 2)), np.arange(2))
    assert mappings.ports_s(volumes, np.arange(2), paths).tolist() == [
        3.0, 10.0, 10.0, 3.0]
    # The other way round 3 bytes go slowly, in 6 s, and 5 fast, in 5 s.
    assert mappings.mapped_s(volumes, np.array([1, 0]), paths) == 6.0
    assert mappings.lower_bound_s(volumes, paths) == pytest.approx(6.0)


@pytest.mark.parametrize(('n', 'name'), [(7, 'optimum'), (8, 'search')])
def test_all_mappings_of_seven_tasks_are_tried(n, name):
    rates_bps = np.full((n, n), 8.0)
    paths = mappings.Paths(rates_bps, np.zeros((n, n)), np.arange(n))
    assert {one.name for one in mappings.advise(
        1.0 - np.eye(n), paths)} == {'rank', 'greedy', name}
