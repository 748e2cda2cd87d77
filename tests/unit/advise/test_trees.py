# SPDX-License-Identifier: Apache-2.0

"""Trees span, are never faster than their bound, and advice takes the best."""

import itertools

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco import compiled
from virtco import exception
from virtco.advise import kernels
from virtco.advise import orders
from virtco.advise import trees

#: Of the RPCA paper's Fig. 1 (a), as far as the text names it; the others
#: are slower.
FIG1 = np.full((6, 6), 9.0)
for (_src, _dst), _weight in {
        (0, 2): 1, (0, 1): 2, (2, 5): 2, (0, 3): 3, (2, 4): 3}.items():
    FIG1[_src, _dst] = FIG1[_dst, _src] = _weight


def _of_shape(advice, shape):
    return next(one for one in advice.orders if one.shape is shape)


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


@st.composite
def messages(draw, most=12):
    """A message with segments and latencies, and its root."""
    cost_s, root, machines = draw(clouds(most))
    latency_s = cost_s * draw(st.sampled_from([0.0, 0.01, 0.2]))
    return trees.message(cost_s, machines, latency_s,
                         draw(st.sampled_from([1, 4, 32]))), root


@given(messages())
def test_every_tree_spans(cloud):
    message, root = cloud
    n = len(message.cost_s)
    for edges in trees.candidates(message, root).values():
        spans(edges, root, n)
    order = [(root + 3 * i) % n if n % 3 else (root + i) % n
             for i in range(n)]
    for shape in orders.Shape:
        for is_reduce in (False, True):
            spans(orders.shaped(shape, order, is_reduce), root, n)


def test_one_tree_passes_on_what_it_is_still_receiving():
    made = trees.candidates(trees.message(np.array([
        [0.0, 4.0, 3.0, 2.0], [2.0, 0.0, 1.0, 1.0], [1.0, 5.0, 0.0, 5.0],
        [3.0, 4.0, 5.0, 0.0]])), 0)
    # A second message ends after 5 s at member 2, after 6 s at member 1. The
    # root would be busy for 5 s, member 3 is for 4 s.
    assert made['earliest'] == [(0, 3), (0, 2), (3, 1)]
    assert made['stream'] == [(0, 3), (3, 1), (1, 2)]


@settings(deadline=None)
@given(messages(), st.booleans())
def test_advice_is_the_best_and_above_its_bound(cloud, is_reduce):
    message, root = cloud
    n = len(message.cost_s)
    found = orders.advise(message, root, is_reduce)
    times_s = [tree.predicted_s for tree in found.trees]
    assert times_s == sorted(times_s)
    assert found.bound_s <= times_s[0] * (1 + 1e-9)
    sent = message.turned() if is_reduce else message
    made = trees.candidates(sent, root)
    begins = [[(root + i) % n for i in range(n)],
              *([root, *(receiver for _sender, receiver in made[name])]
                for name in ('fnf', 'earliest', 'stream'))]
    for one in found.orders:
        assert one.order[0] == root and sorted(one.order) == list(range(n))
        edges = orders.shaped(one.shape, one.order, is_reduce)
        assert one.predicted_s == pytest.approx(
            sent.took_s(edges, one.n_segments))
        assert 1 <= one.n_segments <= message.most_segments
        # Never slower than the ranks as they are, or as a tree adds them.
        assert one.predicted_s <= min(sent.best(orders.shaped(
            one.shape, begin, is_reduce))[1] for begin in begins) * (1 + 1e-9)
        assert one.predicted_s == found.tree(
            f'ranked {one.shape}').predicted_s
    # A chain is never slower than one that goes on to the nearest.
    nearest = orders._relieved(orders._nearest(sent.cost_s, root), sent)
    chain = orders.Shape.CHAIN
    assert _of_shape(found, chain).predicted_s <= sent.best(orders.shaped(
        chain, nearest, is_reduce))[1] * (1 + 1e-9)


@given(clouds())
def test_ranks_as_fnf_adds_them_make_mpi_build_its_tree(cloud):
    cost_s, root, _machines = cloud
    edges = trees.fastest_node_first(cost_s, root)
    order = [root, *(receiver for _sender, receiver in edges)]
    assert orders.shaped(orders.Shape.BINOMIAL, order) == edges


@settings(deadline=None)
@given(messages())
def test_a_reduce_ends_at_the_root(cloud):
    message, root = cloud
    for tree in orders.advise(message, root, True).trees:
        silent = set(range(len(message.cost_s)))
        for sender, receiver in tree.edges:
            # Who has passed its sum on gets no more.
            assert {sender, receiver} <= silent
            silent.remove(sender)
        assert silent == {root}
        assert tree.predicted_s == pytest.approx(message.turned().took_s(
            trees.turned(tree.edges), tree.n_segments))


def test_shapes_are_those_of_open_mpi():
    """As the comments of its coll_base_topo.c draw them."""
    def children(shape, n, is_reduce=False):
        found = {}
        orders.edges_of.cache_clear()
        edges = [(a, b) for a, b in orders.edges_of(shape, n,
                                                    is_reduce).tolist()]
        for sender, receiver in edges:
            found.setdefault(sender, []).append(receiver)
        return found

    binary = {0: [1, 2], 1: [3, 5], 2: [4, 6]}
    assert children(orders.Shape.BINARY, 7) == binary
    assert children(orders.Shape.BINARY, 7, True) == {
        parent: its[::-1] for parent, its in binary.items()}
    assert children(orders.Shape.BINOMIAL, 8) == {
        0: [1, 2, 4], 1: [3, 5], 2: [6], 3: [7]}
    assert children(orders.Shape.BINOMIAL, 8, True) == {
        0: [4, 2, 1], 2: [3], 4: [6, 5], 6: [7]}
    assert children(orders.Shape.CHAIN, 3) == {0: [1], 1: [2]}


def replayed(edges, segment_s, machines, n_segments):
    """When each edge ends, by hand: each port does one at a time, in order."""
    has, out, into = {}, {}, {}
    for k in range(n_segments):
        for sender, receiver in edges:
            begin = has.get((sender, k), 0.0)
            src, dst = machines[sender], machines[receiver]
            if src != dst:
                begin = max(begin, out.get(src, 0.0), into.get(dst, 0.0))
            has[receiver, k] = begin + segment_s[sender, receiver]
            if src != dst:
                out[src] = into[dst] = has[receiver, k]
    return [has[receiver, n_segments - 1] for _, receiver in edges]


@settings(deadline=None, max_examples=40)
@given(messages(), st.sampled_from([1, 2, 5, 16]))
def test_segments_are_delivered_as_by_hand(cloud, n_segments):
    message, root = cloud
    plain = compiled.plain('virtco.advise.kernels')
    for edges in trees.candidates(message, root).values():
        assert message.took_s(edges, n_segments) == pytest.approx(max(replayed(
            edges, message.segment_s(n_segments), message.machines,
            n_segments), default=0.0))
        for streams in (False, True):
            assert grown(kernels, message, root, streams) == grown(
                plain, message, root, streams)


@settings(deadline=None, max_examples=30)
@given(messages(8), st.sampled_from(list(orders.Shape)), st.booleans(),
       st.sampled_from([1, 3]))
def test_swaps_make_no_tree_slower(cloud, shape, is_reduce, n_segments):
    message, root = cloud
    n = len(message.cost_s)
    order = [(root + i) % n for i in range(n)]
    found = orders.swapped(shape, order, message, n_segments, is_reduce)
    assert found[0] == root and sorted(found) == list(range(n))
    before_s, after_s = (message.took_s(orders.shaped(
        shape, one, is_reduce), n_segments) for one in (order, found))
    assert after_s <= before_s * (1 + 1e-9)
    compiled_ones = orders.kernels
    try:
        orders.kernels = compiled.plain('virtco.advise.kernels')
        assert orders.swapped(shape, order, message, n_segments,
                              is_reduce) == found
    finally:
        orders.kernels = compiled_ones
    assert orders.swapped(shape, order, message, n_segments, is_reduce,
                          0) == order
    # No member on the way to the last one is better in another place.
    edges = orders.shaped(shape, found, is_reduce)
    ends_s = replayed(edges, message.segment_s(n_segments), message.machines,
                      n_segments)
    parent = {receiver: sender for sender, receiver in edges}
    member = edges[np.argmax(ends_s)][1] if edges else root
    while member != root:
        for other in set(found) - {root}:
            swap = {member: other, other: member}
            trial = [swap.get(one, one) for one in found]
            assert message.took_s(
                orders.shaped(shape, trial, is_reduce), n_segments
            ) >= after_s * (1 - 1e-6)
        member = parent[member]


def test_the_last_to_be_served_may_be_the_first_edges():
    """All others are on the root's machine, so member 1 is served last."""
    message = trees.message(np.array([
        [0.0, 8.0, 0.0, 0.0], [2.0, 0.0, 2.0, 5.0], [0.0, 4.0, 0.0, 0.0],
        [0.0, 6.0, 0.0, 0.0]]), [2, 0, 2, 2])
    found = orders.swapped(orders.Shape.BINARY, range(4), message, 1, True)
    assert found == [0, 2, 3, 1]
    assert message.took_s(
        orders.shaped(orders.Shape.BINARY, found, True), 1) == 4.0


@pytest.mark.parametrize('n_segments', [1, 4])
def test_a_trial_of_a_swap_costs_its_messages_and_three_more(n_segments):
    """The last member's second swap is the first that helps."""
    cost_s = np.full((4, 4), 1.0)
    cost_s[2, 3], cost_s[2, 1] = 9.0, 20.0
    message = trees.message(cost_s)
    trial = 3 * (n_segments + 3)
    for work, order in ((trial, [0, 1, 2, 3]), (trial + 1, [0, 1, 3, 2])):
        assert orders.swapped(orders.Shape.CHAIN, range(4), message,
                              n_segments, False, work) == order


def grown(module, message, root, streams):
    n = len(message.cost_s)
    has_s, key = np.full(n, np.inf), np.zeros(n)
    has_s[root] = 0.0
    out_s, in_s = np.zeros((2, n))
    member, parent, to = np.full((3, n), root)
    module.grow(message.cost_s, message.machines, streams, has_s, out_s,
                in_s, member, parent, key, to)
    return member.tolist(), parent.tolist(), out_s.tolist(), in_s.tolist()


def test_large_messages_go_along_a_chain_in_segments():
    """A tree's root sends a message several times, a chain's once."""
    n, rate_bps, latency_s = 16, np.full((16, 16), 1e9), 1e-4
    latencies_s = np.full((n, n), latency_s)

    def found(size_bytes):
        return orders.advise(trees.message(trees.message_s(
            size_bytes, rate_bps, latencies_s), None, latencies_s, 256), 0)

    small, large = found(1e3), found(1e8)
    assert small.orders[0].shape is orders.Shape.BINOMIAL
    assert small.orders[0].n_segments == 1
    assert large.orders[0].shape is orders.Shape.CHAIN
    assert large.orders[0].n_segments > 16
    # 0.8 s over one link, and a fifth more at most.
    assert large.bound_s == pytest.approx(0.8, rel=0.01)
    assert large.orders[0].predicted_s < 1.2 * large.bound_s
    assert _of_shape(large, orders.Shape.BINOMIAL).predicted_s > 2


def test_a_chain_keeps_racks_and_machines_together():
    rng = np.random.default_rng(4)
    racks = rng.permutation(np.arange(16) // 4)
    machines = racks * 2 + rng.permutation(np.arange(16) % 2)
    cost_s = np.where(racks[:, None] == racks, 1.0, 1.5)
    cost_s[machines[:, None] == machines] = 0.0
    message = trees.message(cost_s, machines, None, 64)
    order = _of_shape(orders.advise(message, 0), orders.Shape.CHAIN)
    crossings = sum(racks[a] != racks[b]
                    for a, b in itertools.pairwise(order.order))
    assert crossings == 3 and order.predicted_s < 1.7


@given(st.integers(1, 40), st.data())
def test_binomial_takes_the_logarithm_of_rounds(n, data):
    root = data.draw(st.integers(0, n - 1))
    cost_s = np.ones((n, n))
    rounds = (n - 1).bit_length()
    for edges in (trees.binomial(n, root),
                  orders.shaped(orders.Shape.BINOMIAL, [
                      (root + i) % n for i in range(n)]),
                  trees.fastest_node_first(cost_s, root),
                  trees.earliest_first(cost_s, root)):
        assert trees.broadcast_s(edges, cost_s) == rounds
    assert trees.broadcast_s(trees.flat(n, root), cost_s) == n - 1
    assert trees.broadcast_s(trees.chain(n, root), cost_s) == n - 1
    assert trees.lower_bound_s(trees.message(cost_s), root) == rounds


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
    found = orders.advise(trees.message(cost_s), 0)
    assert found.bound_s <= optimum_s <= found.best.predicted_s + 1e-12
    assert found.best.predicted_s <= 1.25 * optimum_s


@pytest.mark.parametrize('seed', range(5))
def test_small_optimum_in_segments(seed):
    """Of all trees of four, each with the segments that suit it."""
    rng = np.random.default_rng(seed)
    cost_s = rng.uniform(0.2, 1.0, (4, 4))
    message = trees.message(cost_s, None, np.full((4, 4), 0.01), 16)
    optimum_s = min(message.best([
        (order[parent], order[k + 1]) for k, parent in enumerate(parents)])[1]
        for order in map((0,).__add__, itertools.permutations((1, 2, 3)))
        for parents in itertools.product(range(1), range(2), range(3)))
    found = orders.advise(message, 0)
    assert found.bound_s <= optimum_s <= found.best.predicted_s + 1e-12
    assert found.best.predicted_s <= 1.2 * optimum_s


@pytest.mark.parametrize(('onward_s', 'sender'), [(0.35, 1), (0.45, 0)])
def test_who_streams_passes_on_from_the_beginning(onward_s, sender):
    """The root is free for the last member after 0.1 s, which takes 0.3 s."""
    cost_s = np.array([[0.0, 0.1, 0.3], [9.0, 0.0, onward_s],
                       [9.0, 9.0, 0.0]])
    assert trees.earliest_first(cost_s, 0, streams=True) == [
        (0, 1), (sender, 2)]
    # A whole message has to arrive before.
    assert trees.earliest_first(cost_s, 0) == [(0, 1), (0, 2)]


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
    found = orders.advise(trees.message(cost_s, machines), 0)
    assert found.best.predicted_s == 2 == found.bound_s


def test_a_scatter_carries_subtrees():
    rates_bps, latency_s = np.full((4, 4), 8.0), np.zeros((4, 4))
    assert trees.scatter_s(trees.flat(4, 0), 4.0, rates_bps, latency_s) == 3
    assert trees.scatter_s(trees.chain(4, 0), 4.0, rates_bps,
                           latency_s) == 3 + 2 + 1
    assert trees.scatter_s(trees.binomial(4, 0), 4.0, rates_bps,
                           latency_s) == 2 + 1


def test_message_times():
    found = trees.message_s(1e6, np.array([[1e6, 8e6], [4e6, np.inf]]),
                            np.array([[0.0, 0.5], [0.25, 0.125]]))
    assert found.tolist() == [[0.0, 1.5], [2.25, 0.0]]


def test_a_root_outside_is_refused():
    with pytest.raises(exception.Invalid, match='root: .* 0 and 2, got 3'):
        orders.advise(trees.message(np.ones((3, 3))), 3)


@pytest.mark.parametrize('seed', range(3))
def test_swaps_make_up_for_members_of_one_machine(seed):
    """FNF gives the data to a neighbour first, with whom it shares a port."""
    rng, machines = np.random.default_rng(seed), np.arange(16) // 2
    cost_s = rng.uniform(0.1, 0.5, (16, 16))
    cost_s[machines[:, None] == machines[None, :]] = 0.0
    found = orders.advise(trees.message(cost_s, machines), 0)
    by_rank = _of_shape(found, orders.Shape.BINOMIAL)
    assert by_rank.predicted_s < 0.95 * found.tree('fnf').predicted_s


def test_the_bound_is_the_shortest_path_where_that_is_longest():
    """Along a line of four each message takes a second, elsewhere long."""
    cost_s = np.full((4, 4), 100.0)
    for member in range(3):
        cost_s[member, member + 1] = 1.0
    np.fill_diagonal(cost_s, 0.0)
    assert trees.lower_bound_s(trees.message(cost_s), 0) == 3.0
    # Alike in all directions, four double twice.
    assert trees.lower_bound_s(trees.message(1.0 - np.eye(4)), 0) == 2.0
    # Of two machines whose members reach each other at once, once.
    pairs = 1.0 - np.kron(np.eye(2), np.ones((2, 2)))
    assert trees.lower_bound_s(trees.message(pairs, [0, 0, 1, 1]), 0) == 1.0
    assert trees.lower_bound_s(trees.message(np.zeros((2, 2)), [0, 0]), 0
                               ) == 0.0


def test_no_more_segments_than_help():
    edges = [(0, 1)]
    whole = trees.message(np.array([[0.0, 8.0], [8.0, 0.0]]),
                          most_segments=64)
    assert whole.best(edges) == (1, 8.0)
    # Over two hops the second one begins earlier with each.
    line = trees.message(np.full((3, 3), 8.0), most_segments=4)
    assert line.best([(0, 1), (1, 2)]) == (4, 10.0)


def test_the_next_of_a_chain_is_the_nearest_that_is_left():
    cost_s = np.array([[0.0, 5.0, 1.0, 9.0], [9.0, 0.0, 9.0, 2.0],
                       [0.5, 3.0, 0.0, 4.0], [9.0, 9.0, 9.0, 0.0]])
    assert orders._nearest(cost_s, 0) == [0, 2, 1, 3]
    assert orders._nearest(cost_s, 3) == [3, 0, 2, 1]
    cost_s[2] = np.inf
    # Nothing is reached from there: the first that is left.
    assert orders._nearest(cost_s, 0) == [0, 2, 1, 3]
    assert orders._nearest(np.full((3, 3), np.inf), 1) == [1, 0, 2]


@pytest.mark.parametrize('is_reduce', [False, True])
@pytest.mark.parametrize('seed', range(4))
def test_an_order_has_the_best_number_of_segments(seed, is_reduce):
    rng = np.random.default_rng(seed)
    latency_s = rng.uniform(0.01, 0.5, (7, 7))
    sent = trees.message(latency_s + rng.uniform(1, 20, (7, 7)),
                         latency_s=latency_s, most_segments=64)
    way = sent.turned() if is_reduce else sent
    for one in orders.advise(sent, 0, is_reduce).orders:
        _n_segments, least_s = way.best(
            orders.shaped(one.shape, one.order, is_reduce))
        assert one.predicted_s <= least_s + 1e-12
        assert one.predicted_s == pytest.approx(way.took_s(
            orders.shaped(one.shape, one.order, is_reduce), one.n_segments))


def test_all_but_the_root_of_a_chain_may_move():
    """The second member reaches nobody quickly: it becomes the last one."""
    cost_s = np.ones((4, 4))
    cost_s[1] = 50.0
    np.fill_diagonal(cost_s, 0.0)
    sent = trees.message(cost_s)
    found = orders._relieved([0, 1, 2, 3], sent)
    assert found[0] == 0 and found[-1] == 1
