# SPDX-License-Identifier: Apache-2.0

"""Values that everybody shares: coflows, matrices, trees and their uplinks."""

import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco.model import cluster
from virtco.model import coflow
from virtco.model import live
from virtco.model import matrix
from virtco.model import snapshot
from virtco.model import uplinks

FLOWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4),
                           st.floats(0, 1e9)), max_size=12)


@given(FLOWS)
def test_a_matrix_is_the_sum_of_its_flows(flows):
    made = coflow.Coflow.from_flows('c', 5, flows, 7, 3)
    total = {}
    for src, dst, size_bytes in flows:
        if src != dst and size_bytes > 0:
            total[src, dst] = total.get((src, dst), 0.0) + size_bytes
    assert {(one.src, one.dst): one.size_bytes for one in made.flows} == total
    assert len(made.matrix) == len(total) and bool(made.matrix)
    assert made.size_bytes == pytest.approx(sum(total.values()))
    assert (made.n_vms, made.dst_port, made.iterations) == (5, 7, 3)
    twice = made.scaled(2.0)
    assert [2 * one.size_bytes for one in made.flows] == [
        one.size_bytes for one in twice.flows]
    assert (made.matrix.digest == twice.matrix.digest) is (
        made.matrix == twice.matrix)
    # Turned around, and without the VM 4.
    turned = made.renumbered(4, [3, 2, 1, 0, -1])
    assert {(3 - one.src, 3 - one.dst): one.size_bytes
            for one in turned.flows} == {
        pair: size for pair, size in total.items() if 4 not in pair}
    assert turned.n_vms == 4
    assert made.matrix.renumbered(5, [0, 1, 2, 3, 4]) is made.matrix
    swapped = made.matrix.renumbered(5, [0, 2, 1, 3, 4])
    assert set(zip(swapped.src, swapped.dst)) == {
        tuple([0, 2, 1, 3, 4][vm] for vm in pair) for pair in total}
    assert made.matrix.renumbered(6, [0, 1, 2, 3, 4]).n_vms == 6


def test_who_computes_is_served_by_intensity():
    one = coflow.Coflow.from_flows('c', 2, [(0, 1, 5.0)])
    assert one == coflow.Coflow('c', one.matrix)
    assert (one.iterations, one.dst_port, one.rank_hint,
            one.is_estimated) == (1, None, False, False)
    assert len(one.matrix.digest) == 32
    for compute_s, iterations, order, computes, by_intensity in (
            (None, 0, None, False, False), (0.0, 0, None, False, False),
            (2.0, 1, None, False, False), (2.0, 0, None, True, True),
            (2.0, 2, coflow.INTENSITY, True, True),
            (2.0, 2, coflow.MRTF, True, False)):
        some = coflow.Coflow('c', one.matrix, None, iterations,
                             compute_s=compute_s, order=order)
        assert (some.computes, some.is_by_intensity) == (
            computes, by_intensity)


CHAINS = cluster.Tree((
    cluster.Subtree('r0', 20.0, 30.0, 'p0'),
    cluster.Subtree('p0', 40.0, 50.0, level='pod'),
    cluster.Subtree('r1', 60.0, 70.0, 'p0'), cluster.Subtree('x', 1.0, 2.0)),
    {'a': 'r0', 'b': 'r1', 'c': 'p0', 'd': 'x'})


def test_chains_go_from_the_core_to_the_leaf():
    assert {name: [one.name for one in chain]
            for name, chain in CHAINS.chains().items()} == {
        'r0': ['p0', 'r0'], 'p0': ['p0'], 'r1': ['p0', 'r1'], 'x': ['x']}
    with pytest.raises(KeyError):
        cluster.Tree((cluster.Subtree('a', 1.0, 1.0, 'b'),)).chains()
    for some in (('a', 'a'),), (('a', 'b'), ('b', 'a')):
        with pytest.raises(ValueError):
            cluster.Tree(tuple(cluster.Subtree(name, 1.0, 1.0, parent)
                               for name, parent in some)).chains()
    vm = cluster.Vm('v', (1.0,))
    assert (vm.pinned, vm.counted, vm.allowed) == (None, False, None)


HOSTS = ('a', 'b', 'c', 'd', 'e')
EGRESS_BPS = np.array([25.0, 45.0, 5.0, 2.0, 9.0])
INGRESS_BPS = np.array([29.0, 80.0, 1.0, 3.0, 9.0])


def test_uplinks_that_may_limit():
    """r0 out, r1 in, p0 both, x both; in each direction for itself."""
    found = uplinks.of(CHAINS, HOSTS, EGRESS_BPS, INGRESS_BPS)
    # Out: r0 20 of 25, p0 40 of 75, r1 45 of 60, x 1 of 2; then in.
    assert found.cap_bps.tolist() == [20, 40, 45, 1, 29, 50, 70, 2]
    assert found.above.tolist() == [[1, 0], [1, 2], [1, -1], [3, -1],
                                    [-1, -1]]


@pytest.mark.parametrize(('out_bps', 'in_bps', 'limits'), [
    (25.0, 29.0, False), (24.9, 29.0, True), (25.0, 28.9, True),
    (math.inf, math.inf, False)])
def test_an_uplink_that_carries_all_limits_nothing(out_bps, in_bps, limits):
    found = uplinks.of(cluster.Tree((cluster.Subtree('r', out_bps, in_bps),),
                                    {'a': 'r'}),
                       HOSTS, EGRESS_BPS, INGRESS_BPS)
    assert (found is not uplinks.NONE) is limits
    assert found.cap_bps.tolist() == ([out_bps, in_bps] if limits else [])


def test_an_uplink_below_one_bit():
    """Nothing is added to what the hosts below it have."""
    found = uplinks.of(cluster.Tree((cluster.Subtree('r', 0.6, 9.0),),
                                    {'a': 'r'}),
                       ('a',), np.array([0.5]), np.array([0.5]))
    assert found is uplinks.NONE


def test_every_host_has_its_rates():
    for out, into in ((4, 5), (5, 4)):
        with pytest.raises(ValueError):
            uplinks.of(CHAINS, HOSTS, EGRESS_BPS[:out], INGRESS_BPS[:into])


def test_what_pairs_pass():
    found = uplinks.of(CHAINS, HOSTS, EGRESS_BPS, INGRESS_BPS)
    number = {host: place for place, host in enumerate(HOSTS)}
    ways = {'ab': {0, 6}, 'ba': {2, 4}, 'ac': {0}, 'ca': {4},
            'ad': {0, 1, 7}, 'da': {3, 4, 5}, 'ae': {0, 1}, 'eb': {5, 6},
            'ee': set(), 'aa': set()}
    start, passed = found.passed(*(np.array([
        number[way[side]] for way in ways]) for side in (0, 1)))
    assert [set(passed[low:high].tolist()) for low, high in zip(
        start, start[1:])] == list(ways.values())
    for some, src in ((found, []), (uplinks.NONE, [0, 1])):
        start, passed = some.passed(np.array(src, int), np.array(src, int))
        assert start.tolist() == [0] * (len(src) + 1) and not len(passed)
    assert uplinks.NONE.above.shape == (0, 0)
    assert uplinks.NONE.cap_bps.shape == (0,)


def test_pairs_and_what_coflows_are_unless_told():
    pairs = live.Pairs([('a', 'b'), ('b', 'c'), ('c', 'a')])
    assert pairs.hosts == {'a', 'b', 'c'}
    index = {'a': 4, 'b': 5, 'c': 6}
    assert pairs.numbers(index).tolist() == [[4, 5], [5, 6], [6, 4]]
    assert pairs.numbers(index) is pairs.numbers(index)
    assert pairs.numbers({'a': 1, 'b': 2, 'c': 3}).tolist() == [
        [1, 2], [2, 3], [3, 1]]
    assert live.Pairs().numbers(index).shape == (0, 2)
    with pytest.raises(KeyError):
        pairs.numbers({'a': 1})
    assert live.Schedule(0.0, ()).left.cap_bps.tolist() == []
    one = live.LiveCoflow('c', live.Flows(pairs, np.ones(3)))
    assert (one.arrival_s, one.served_s, one.sent_bytes, one.priority_class,
            one.weight, one.n_flows, one.compute_s, one.workers,
            one.is_promised) == (0, 0, 0, 0, 1, 1, 0, 1, False)


@pytest.mark.parametrize(('objective_s', 'bound_s', 'gap'), [
    (3.0, 2.0, 0.5), (2.0, 2.0, 0.0), (1.0, 2.0, 0.0), (0.0, 0.0, 0.0),
    (1.0, 0.0, math.inf), (0.9, 0.6, pytest.approx(0.5))])
def test_the_gap_of_a_plan_in_the_making(objective_s, bound_s, gap):
    assert snapshot.Progress('s', 1.0, objective_s, bound_s, ()).gap == gap


def test_defaults_of_problems_and_plans():
    group = snapshot.ServerGroup(snapshot.GroupPolicy.AFFINITY, ())
    assert group.max_per_host == 1
    assert not snapshot.PlacementProblem((), (), ()).hose_limits
    made = snapshot.Plan((), 0.0, (), snapshot.Objective.ONLINE, 0.0, 0.0,
                         0.0, snapshot.Method.SPREAD)
    assert (made.iterations, made.objective_bound_s) == (0, 0.0)
    assert matrix.Matrix.of(2, [0], [1], [5.0]).flows == (
        matrix.Flow(0, 1, 5.0),)


def test_flows_keep_their_ports_busy_alone():
    """Bits over rates; nothing within a host; inf where there is no rate."""
    tree = cluster.Tree((cluster.Subtree('r', 2.0, 4.0),),
                        {'a': 'r', 'b': 'r'})
    rates = np.array([8.0, 4.0, 2.0]), np.array([4.0, 8.0, 0.0])
    ports = live.Ports(('a', 'b', 'c'), *rates,
                       uplinks.of(tree, ('a', 'b', 'c'), *rates))
    index = {'a': 0, 'b': 1, 'c': 2}
    pairs = live.Pairs([('a', 'b'), ('c', 'b'), ('b', 'b')])
    found = ports.busy_s(live.Flows(pairs, np.array([3.0, 2.0, 9.0])), index)
    assert found.tolist() == [3.0, 0.0, 8.0, 0.0, 5.0, 0.0, 0.0, 4.0]
    found = ports.busy_s(live.Flows(live.Pairs([('b', 'c')]),
                                    np.array([1.0])), index)
    assert found.tolist() == [0, 2, 0, 0, 0, math.inf, 4, 0]
    with pytest.raises(KeyError):
        ports.busy_s(live.Flows(live.Pairs([('a', 'x')]), np.array([1.0])),
                     index)
