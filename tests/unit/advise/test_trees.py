# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Trees span, are never faster than their bound, and advice takes the best."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco.advise import trees
from virtco import exception

#: Of the RPCA paper's Fig. 1 (a), as far as the text names it; the others
#: are slower.
FIG1 = np.full((6, 6), 9.0)
for (_src, _dst), _weight in {
        (0, 2): 1, (0, 1): 2, (2, 5): 2, (0, 3): 3, (2, 4): 3}.items():
    FIG1[_src, _dst] = FIG1[_dst, _src] = _weight


@st.composite
def clouds(draw, most=12):
    """Costs, a root and the machine of each member."""
    n = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2 ** 32 - 1)))
    cost_s = rng.uniform(0.1, 1.0, (n, n)) ** draw(st.integers(1, 4))
    machines = rng.integers(0, draw(st.integers(1, n)), n)
    cost_s[machines[:, None] == machines[None, :]] = 0.0
    return cost_s, draw(st.integers(0, n - 1)), machines


def spans(edges, root, n):
    """Everybody but the root hears once, from one who has heard."""
    has = {root}
    for sender, receiver in edges:
        assert sender in has and receiver not in has
        has.add(receiver)
    assert has == set(range(n))


@given(clouds())
def test_every_tree_spans(cloud):
    cost_s, root, machines = cloud
    made = trees.candidates(cost_s, root, machines)
    for edges in made.values():
        spans(edges, root, len(cost_s))
    spans(trees.in_order(trees.added(made['fnf'], root)), root, len(cost_s))


@given(clouds(), st.booleans())
def test_advice_is_the_best_and_above_its_bound(cloud, is_reduce):
    cost_s, root, machines = cloud
    found = trees.advise(cost_s, root, machines, is_reduce)
    times_s = [tree.predicted_s for tree in found.trees]
    assert times_s == sorted(times_s)
    assert found.bound_s <= times_s[0] * (1 + 1e-9)
    assert found.bound_s <= found.order_s * (1 + 1e-9)
    assert found.order[0] == root
    assert sorted(found.order) == list(range(len(cost_s)))
    by_rank = [(root + i) % len(cost_s) for i in range(len(cost_s))]
    assert found.order_s <= trees.broadcast_s(
        trees.in_order(by_rank), cost_s.T if is_reduce else cost_s,
        machines) * (1 + 1e-9)


@given(clouds())
def test_ranks_as_fnf_adds_them_make_mpi_build_its_tree(cloud):
    cost_s, root, _machines = cloud
    edges = trees.fastest_node_first(cost_s, root)
    assert trees.in_order(trees.added(edges, root)) == edges


@given(clouds())
def test_a_reduce_ends_at_the_root(cloud):
    cost_s, root, _machines = cloud
    for tree in trees.advise(cost_s, root, None, True).trees:
        silent = set(range(len(cost_s)))
        for sender, receiver in tree.edges:
            # Who has passed its sum on gets no more.
            assert {sender, receiver} <= silent
            silent.remove(sender)
        assert silent == {root}
        assert tree.predicted_s == pytest.approx(trees.broadcast_s(
            trees.turned(tree.edges), cost_s.T))


@given(st.integers(1, 40), st.data())
def test_binomial_takes_the_logarithm_of_rounds(n, data):
    root = data.draw(st.integers(0, n - 1))
    cost_s = np.ones((n, n))
    rounds = (n - 1).bit_length()
    for edges in (trees.binomial(n, root),
                  trees.in_order([(root + i) % n for i in range(n)]),
                  trees.fastest_node_first(cost_s, root),
                  trees.earliest_first(cost_s, root)):
        assert trees.broadcast_s(edges, cost_s) == rounds
    assert trees.broadcast_s(trees.flat(n, root), cost_s) == n - 1
    assert trees.broadcast_s(trees.chain(n, root), cost_s) == n - 1
    assert trees.lower_bound_s(cost_s, root) == rounds


def test_the_papers_example():
    """Machine 1 sends to 3; then 1 to 2 while 3 sends to 6."""
    edges = trees.fastest_node_first(FIG1, 0)
    assert edges[:3] == [(0, 2), (0, 1), (2, 5)]
    assert edges[3:] == [(0, 3), (2, 4)]
    assert trees.broadcast_s(edges, FIG1) == 6


def best_by_enumeration(cost_s, root):
    """Every order of joining and every parent."""
    n = len(cost_s)
    best = np.inf
    others = [i for i in range(n) if i != root]
    for order in itertools.permutations(others):
        has = [root, *order]
        for parents in itertools.product(*(range(k) for k in range(1, n))):
            best = min(best, trees.broadcast_s(
                [(has[parent], has[k + 1])
                 for k, parent in enumerate(parents)], cost_s))
    return best


@pytest.mark.parametrize('seed', range(5))
def test_small_optimum(seed):
    """The bound holds, and the best of the trees is near the optimum."""
    cost_s = np.random.default_rng(seed).uniform(0.2, 1.0, (5, 5))
    optimum_s = best_by_enumeration(cost_s, 0)
    found = trees.advise(cost_s, 0)
    assert found.bound_s <= optimum_s <= found.best.predicted_s + 1e-12
    assert found.best.predicted_s <= 1.25 * optimum_s


def test_members_of_a_machine_share_its_port():
    """Two receivers on one machine get their messages one after the other;
    the tree that sends one and hands on inside is found.
    """
    cost_s = np.array([[0.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0],
                       [1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
    machines = [0, 1, 1, 2]
    flat = trees.flat(4, 0)
    assert trees.broadcast_s(flat, cost_s, machines) == 3
    # Without a machine in common each has its own port.
    assert trees.finish_s([(0, 1), (3, 2)], [1.0, 1.0]) == 1
    assert trees.finish_s([(0, 1), (3, 2)], [1.0, 1.0], machines) == 2
    found = trees.advise(cost_s, 0, machines)
    assert found.best.predicted_s == 2 == found.bound_s


def test_a_scatter_carries_subtrees():
    rates_bps, latency_s = np.full((4, 4), 8.0), np.zeros((4, 4))
    assert trees.scatter_s(trees.flat(4, 0), 4.0, rates_bps, latency_s) == 3
    assert trees.scatter_s(trees.chain(4, 0), 4.0, rates_bps,
                           latency_s) == 3 + 2 + 1
    assert trees.scatter_s(trees.binomial(4, 0), 4.0, rates_bps,
                           latency_s) == 2 + 1


def test_message_times():
    found = trees.message_s(1e6, np.array([[np.inf, 8e6], [4e6, np.inf]]),
                            np.array([[0.0, 0.5], [0.25, 0.0]]))
    assert found.tolist() == [[0.0, 1.5], [2.25, 0.0]]


def test_a_root_outside_is_refused():
    with pytest.raises(exception.Invalid, match='root: 3 .* 0 and 2'):
        trees.advise(np.ones((3, 3)), 3)


@pytest.mark.parametrize('seed', range(3))
def test_swaps_make_up_for_members_of_one_machine(seed):
    """FNF gives the data to a neighbour first, with whom it shares a port."""
    rng, machines = np.random.default_rng(seed), np.arange(16) // 2
    cost_s = rng.uniform(0.1, 0.5, (16, 16))
    cost_s[machines[:, None] == machines[None, :]] = 0.0
    found = trees.advise(cost_s, 0, machines)
    assert found.order_s < 0.95 * found.tree('fnf').predicted_s
