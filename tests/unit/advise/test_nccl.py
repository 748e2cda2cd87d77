# SPDX-License-Identifier: Apache-2.0

"""Orders for NCCL's ring and double binary tree, by their laws."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco import ring_and_tree
from virtco.advise import mappings
from virtco.advise import nccl

_SIZES = hypothesis.given(st.integers(2, 200))


def _paths(n, seed, per_machine=1):
    rng = np.random.default_rng([seed, n])
    at = np.arange(n) // per_machine
    rates_bps = rng.uniform(1e8, 1e9, (n, n))
    rates_bps[at[:, None] == at[None, :]] = np.inf
    return mappings.Paths(rates_bps, np.where(np.isinf(rates_bps), 0.0, 1e-4),
                          at)


@_SIZES
def test_an_inner_rank_of_one_tree_is_a_leaf_of_the_other(n):
    inner = [{parent for parent in parents if parent is not None}
             for parents in ring_and_tree.double_tree(n)]
    # Of few ranks, and at a root, there is no room for that.
    roots = {parents.index(None) for parents in ring_and_tree.double_tree(n)}
    assert inner[0] & inner[1] <= roots


@_SIZES
def test_each_tree_has_one_root_two_children_and_the_least_depth(n):
    for parents in ring_and_tree.double_tree(n):
        assert parents.count(None) == 1
        children = [parents.count(rank) for rank in range(n)]
        assert max(children) <= 2
        # A root has one child, under which is a tree of fan-out 2.
        assert children[parents.index(None)] == 1
        for rank in range(n):
            depth = 0
            while parents[rank] is not None:
                rank, depth = parents[rank], depth + 1
            assert depth <= (n - 1).bit_length()


def test_the_trees_of_twelve_are_those_of_nccl():
    """As drawn in its source: 0 is over 8, and mirrored 11 over 3."""
    first, second = ring_and_tree.double_tree(12)
    assert first == [None, 2, 4, 2, 8, 6, 4, 6, 0, 10, 8, 10]
    assert second == [1, 3, 1, 11, 5, 7, 5, 3, 9, 7, 9, None]


@_SIZES
def test_every_rank_gets_all_bytes_and_hands_on_as_many(n):
    ring, tree = nccl.volumes(n, 8.0)
    assert ring.sum() == pytest.approx(2 * (n - 1) * 8.0)
    # Each of both trees has n - 1 edges, and half of the bytes both ways.
    assert tree.sum() == pytest.approx(2 * (n - 1) * 8.0)
    assert np.array_equal(tree, tree.T)
    assert tree.sum(axis=0).max() <= 2 * 8.0 + 1e-9


@hypothesis.given(st.integers(1, 24), st.integers(0, 99), st.integers(1, 3))
@hypothesis.settings(deadline=None, max_examples=40)
def test_an_order_is_a_permutation_and_never_worse_than_the_rows(
        n, seed, per_machine):
    paths = _paths(n, seed, per_machine)
    found = nccl.advise(1e8, paths)
    exchanges = nccl.volumes(n, 1e8)
    for one in found:
        assert sorted(one.order) == list(range(n))
        assert one.predicted_s == mappings.slowest_s(
            exchanges, np.array(one.order), paths)
        assert one.bound_s <= one.predicted_s * (1 + 1e-9)
    rows_s = mappings.slowest_s(exchanges, np.arange(n), paths)
    assert found[0].predicted_s <= rows_s


@pytest.mark.parametrize('seed', range(4))
def test_both_are_searched_together(seed):
    """The order for one of them alone leaves the other one slow."""
    found = {one.name: one.predicted_s
             for one in nccl.advise(1e8, _paths(32, seed))}
    assert found['both'] < min(found['ring'], found['tree'], found['greedy'])
    assert found['both'] < 0.6 * found['rank']


def test_of_few_it_is_the_best_of_all():
    paths = _paths(6, 1)
    found = nccl.advise(1e8, paths)
    assert found[0].name == 'optimum' and found[0].gap == 0.0
    rng = np.random.default_rng(2)
    exchanges = nccl.volumes(6, 1e8)
    assert all(mappings.slowest_s(exchanges, rng.permutation(6), paths)
               >= found[0].predicted_s for _ in range(50))


@pytest.mark.parametrize('n, names', [
    (7, {'rank', 'greedy', 'optimum'}),
    (8, {'rank', 'greedy', 'ring', 'tree', 'both'})])
def test_orders_of_few_members_are_all_tried(n, names):
    assert {one.name for one in nccl.advise(1e8, _paths(n, 0))} == names


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('work', [0, 10_000, 50_000])
def test_each_search_has_a_fifth_of_the_work(seed, work):
    """And begins with the better order, the last one with three orders."""
    paths = _paths(16, seed)
    ring, tree = exchanges = nccl.volumes(16, 1e8)
    found = {one.name: one for one in nccl.advise(1e8, paths, work)}
    begin = min((np.array(found[name].order) for name in ('rank', 'greedy')),
                key=lambda order: mappings.slowest_s(exchanges, order, paths))

    def search(sent, start):
        return mappings.search(sent, paths, start, work=work // 5)

    starts = begin, search(ring, begin), search(tree, begin)
    for name, start in zip(('ring', 'tree'), starts[1:]):
        assert found[name].order == tuple(start.tolist())
    assert found['both'].predicted_s == min(
        mappings.slowest_s(exchanges, search(ring + tree, start), paths)
        for start in starts)
    assert found['both'].bound_s == max(
        mappings.lower_bound_s(one, paths) for one in exchanges)
