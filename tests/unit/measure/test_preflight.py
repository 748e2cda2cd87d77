# SPDX-License-Identifier: Apache-2.0

import collections

import numpy as np
import pytest

from benchmarks import preflight as benchmark
from virtco.measure import preflight

HOSTS = [f'h{i}' for i in range(16)]
LEAF_OF = {host: f'leaf{i // 8}' for i, host in enumerate(HOSTS)}


@pytest.mark.parametrize('n', [2, 3, 5, 16, 17, 64])
@pytest.mark.parametrize('per_leaf', [None, 4, 7])
def test_rounds_are_disjoint_and_every_host_has_both_directions(n, per_leaf):
    hosts = [f'h{i}' for i in range(n)]
    leaf_of = {} if per_leaf is None else {
        host: f'l{i // per_leaf}' for i, host in enumerate(hosts)}
    planned = preflight.plan(hosts, leaf_of)
    seen = collections.Counter()
    for one in planned:
        ends = [host for pair in one.pairs for host in pair]
        assert len(ends) == len(set(ends)) and set(ends) <= set(hosts)
        if not one.loaded:
            seen.update(('out', src) for src, _ in one.pairs)
            seen.update(('in', dst) for _, dst in one.pairs)
    assert set(seen) == {(way, host) for way in ('out', 'in')
                         for host in hosts}


def test_lone_pairs_share_no_uplink():
    for one in preflight.plan(HOSTS, LEAF_OF):
        apart = [pair for pair in one.pairs
                 if LEAF_OF[pair[0]] != LEAF_OF[pair[1]]]
        assert bool(apart) == one.loaded
        if one.loaded:
            assert len({LEAF_OF[src] for src, _ in apart}) == 1
            assert len(apart) == 8


def test_hosts_of_unknown_leaves_load_no_uplink_of_their_own():
    known = {host: leaf for host, leaf in LEAF_OF.items() if leaf == 'leaf0'}
    loaded = [one for one in preflight.plan(HOSTS, known) if one.loaded]
    assert loaded and preflight.loaded_leaves(loaded, known) == {'leaf0'}
    for one in loaded:
        assert all((src in known) != (dst in known)
                   for src, dst in one.pairs)


@pytest.mark.parametrize('fault', ['none', 'host', 'uplink'])
@pytest.mark.parametrize('over', [1.0, 4.0])
def test_half_speed_is_found_and_nothing_else(fault, over):
    rng = np.random.default_rng(1)
    both = np.array([benchmark.trial(32, 8, over, fault, rng)
                     for _ in range(30)])
    assert both[:, 0].mean() >= 0.96
    assert both[:, 1].mean() <= 0.1


def test_the_cost_is_within_the_limits():
    cost = benchmark.cost(64, 16)
    assert cost['share_of_1_gbit'] <= 0.01
    assert cost['seconds'] <= 60


def _readings(planned, rate_of):
    return [{pair: rate_of(pair) for pair in one.pairs} for one in planned]


def test_one_direction_of_one_host_with_the_evidence():
    planned = preflight.plan(HOSTS)
    found = preflight.judge(planned, _readings(
        planned, lambda pair: 5e8 if pair[0] == 'h3' else 1e9), {})
    assert [(one.kind, one.subject) for one in found] == [
        ('host-egress', 'h3')]
    assert found[0].rate_bps == 5e8 and found[0].expected_bps == 1e9
    assert {one.src for one in found[0].evidence} == {'h3'}
    assert len(found[0].evidence) == 4


def test_what_all_hosts_lack_is_no_hosts_fault():
    """Without a topology, uplinks may be oversubscribed."""
    planned = preflight.plan(HOSTS)
    nominal = dict.fromkeys(HOSTS, (1e9, 1e9))
    readings = _readings(planned, lambda pair: 4e8)
    assert preflight.judge(planned, readings, nominal) == ()
    # With one it is each host's, as lone pairs stay in their leaf.
    planned = preflight.plan(HOSTS, LEAF_OF)
    found = preflight.judge(planned, _readings(planned, lambda pair: 4e8),
                            nominal, LEAF_OF)
    assert {one.subject for one in found} >= set(HOSTS)


def test_part_of_a_loaded_round_says_nothing():
    planned = preflight.plan(HOSTS, LEAF_OF)
    readings = _readings(planned, lambda pair: 1e9)
    for one, rates in zip(planned, readings):
        for pair in one.pairs:
            if one.loaded and pair[0] == 'h0':
                del rates[pair]
            elif one.loaded and pair[0] in HOSTS[1:8]:
                rates[pair] = 1e8
    found = preflight.judge(planned, readings, {}, LEAF_OF,
                            {'leaf0': (8e9, 8e9), 'leaf1': (8e9, 8e9)})
    assert ('leaf-uplink', 'leaf0') not in {
        (one.kind, one.subject) for one in found}


def test_hosts_alone_in_their_leaves_meet_each_other():
    def met(leaf_of):
        return {frozenset(pair) for one in preflight.plan(
            sorted(leaf_of), leaf_of) if not one.loaded for pair in one.pairs}

    assert met({'a': 'l1', 'b': 'l2', 'c': 'l3', 'd': 'l3'}) == {
        frozenset('ab'), frozenset('cd')}
    # A single one joins the hosts of another leaf.
    assert met({'a': 'l1', 'b': 'l2', 'c': 'l2'}) == {
        frozenset('ab'), frozenset('ac'), frozenset('bc')}


def test_leaves_that_a_check_can_tell_of():
    planned = preflight.plan(HOSTS, LEAF_OF)
    assert preflight.loaded_leaves(planned, LEAF_OF) == {'leaf0', 'leaf1'}
    assert preflight.loaded_leaves(
        [one for one in planned if not one.loaded], LEAF_OF) == set()
    assert preflight.loaded_leaves(planned, {}) == set()
    assert preflight.loaded_leaves(preflight.plan(HOSTS), LEAF_OF) == set()


def test_a_leaf_of_two_loads_its_uplink():
    leaf_of = {'a': 'l1', 'b': 'l1', 'c': 'l2', 'd': 'l2', 'e': 'l3'}
    planned = preflight.plan(sorted(leaf_of), leaf_of)
    assert preflight.loaded_leaves(planned, leaf_of) == {'l1', 'l2'}
    # Those of others must be as many as its own.
    few = {'a': 'l1', 'b': 'l1', 'c': 'l2'}
    assert preflight.loaded_leaves(
        preflight.plan(sorted(few), few), few) == set()


def test_a_loaded_leaf_sends_to_all_other_leaves_in_turn():
    """To the first host of each, then to the second of each, and so on."""
    leaf_of = {'a1': 'a', 'a2': 'a', 'b1': 'b', 'c1': 'c', 'b2': 'b',
               'b3': 'b', 'b4': 'b'}
    sent = [one.pairs for one in preflight.plan(list(leaf_of), leaf_of)
            if one.loaded and one.pairs[0][0] in ('a1', 'a2')]
    assert [pairs for pairs in sent if pairs[0][1][0] != 'a'] == [
        (('a1', 'b1'), ('a2', 'c1')), (('a1', 'b2'), ('a2', 'b3')),
        (('a1', 'b4'), ('a2', 'b1'))]


def found_by(planned, readings, nominal=None, leaf_of=None, uplinks=None):
    return {(one.kind, one.subject): (one.rate_bps, one.expected_bps,
                                      len(one.evidence))
            for one in preflight.judge(planned, readings, nominal or {},
                                       leaf_of, uplinks)}


def lone(*rates):
    """Pairs that measure alone: (src, dst, rate); rounds and readings."""
    planned = [preflight.Round(((src, dst),)) for src, dst, _rate in rates]
    return planned, [{(src, dst): rate} for src, dst, rate in rates]


@pytest.mark.parametrize(('rate', 'is_poor'), [(74.9, True), (75.0, False)])
def test_a_host_is_poor_below_three_quarters_of_its_link(rate, is_poor):
    planned, readings = lone(('a', 'b', rate), ('b', 'a', 150.0))
    # Out of a and into b go 100, out of b and into a 200.
    nominal = {'a': (100.0, 200.0), 'b': (200.0, 100.0)}
    found = found_by(planned, readings, nominal)
    assert found == ({('host-egress', 'a'): (rate, 100.0, 1),
                      ('host-ingress', 'b'): (rate, 100.0, 1)}
                     if is_poor else {})


def test_the_second_best_reading_of_a_host_counts():
    planned, readings = lone(
        ('a', 'b', 100.0), ('a', 'c', 30.0), ('a', 'd', 20.0),
        ('b', 'c', 100.0), ('b', 'd', 90.0))
    found = found_by(planned, readings)
    assert found['host-egress', 'a'] == (30.0, (30.0 + 90.0) / 2, 3)
    assert ('host-egress', 'b') not in found


@pytest.mark.parametrize(('nominal', 'expected'), [
    (100.0, 60.0), (50.0, 50.0)])
def test_uplinks_that_nobody_knows_may_slow_all(nominal, expected):
    """Two pairs at a time: the median of all is 60."""
    planned = [preflight.Round((('a', 'b'), ('c', 'd')))]
    readings = [{('a', 'b'): 30.0, ('c', 'd'): 90.0}]
    found = found_by(planned, readings, {'a': (nominal, 1e9)})
    assert found['host-egress', 'a'] == (30.0, expected, 1)
    # Another round of a single pair does not change that.
    found = found_by([*planned, preflight.Round((('a', 'b'),))],
                     [*readings, {('a', 'b'): 30.0}],
                     {'a': (nominal, 1e9)})
    assert found['host-egress', 'a'] == (30.0, expected, 2)
    # Where leaves are known, pairs share no uplink.
    found = found_by(planned, readings, {'a': (nominal, 1e9)},
                     dict.fromkeys('abcd', 'leaf'))
    assert found['host-egress', 'a'] == (30.0, nominal, 1)


LEAVES = {f'{leaf}{i}': leaf for leaf in 'xyz' for i in range(2)}


def loaded(sums, poor=()):
    """Each leaf sends to both others, and gets as much from them.

    :param sums: by leaf what both of its hosts get together, out and in.
    """
    planned, readings = [], []
    for leaf, others in zip('xyz', ('yz', 'zx', 'xy')):
        pairs = tuple((f'{leaf}{i}', f'{other}0')
                      for i, other in enumerate(others))
        for way, rate in zip((pairs, tuple(p[::-1] for p in pairs)),
                             sums[leaf]):
            readings.append(dict.fromkeys(way, rate / 2))
            planned.append(preflight.Round(way, True))
    return planned, readings


def test_a_leaf_is_compared_with_the_others_or_with_its_rate():
    planned, readings = loaded({'x': (40.0, 100.0), 'y': (100.0, 100.0),
                                'z': (100.0, 60.0)})
    assert found_by(planned, readings, leaf_of=LEAVES) == {
        ('leaf-uplink', 'x'): (40.0, 100.0, 2),
        ('leaf-downlink', 'z'): (60.0, 100.0, 2)}
    # They do what the topology says.
    uplinks = {'x': (40.0, 100.0), 'z': (100.0, 60.0)}
    assert found_by(planned, readings, leaf_of=LEAVES,
                    uplinks=uplinks) == {}
    # Hosts' own links limit what all get.
    uplinks = dict.fromkeys('xyz', (500.0, 500.0))
    assert found_by(planned, readings, leaf_of=LEAVES,
                    uplinks=uplinks).keys() == {
        ('leaf-uplink', 'x'), ('leaf-downlink', 'z')}


def test_ways_out_of_leaves_are_not_compared_with_ways_into_them():
    planned, readings = loaded({'x': (100.0, 120.0), 'y': (100.0, 200.0),
                                'z': (100.0, 200.0)})
    assert found_by(planned, readings, leaf_of=LEAVES) == {
        ('leaf-downlink', 'x'): (120.0, 200.0, 2)}


def test_a_single_leaf_is_compared_with_its_rate():
    planned, readings = loaded({'x': (70.0, 60.0), 'y': (100.0, 1.0),
                                'z': (1.0, 1.0)})
    # Three quarters of the rate towards the leaf are not poor.
    assert found_by(planned[:2], readings[:2], leaf_of=LEAVES,
                    uplinks={'x': (100.0, 80.0)}) == {
        ('leaf-uplink', 'x'): (70.0, 100.0, 2)}
    # With another leaf the median of both counts: 85.
    assert found_by(planned[:3], readings[:3], leaf_of=LEAVES,
                    uplinks={'x': (200.0, 80.0)}) == {}


def test_what_a_slow_host_lacks_is_not_the_uplinks_fault():
    planned, readings = loaded(dict.fromkeys('xyz', (100.0, 100.0)))
    readings = [{pair: 5.0 if pair[0] == 'x0' else rate
                 for pair, rate in rates.items()} for rates in readings]
    alone, of_alone = lone(*[(src, dst, 5.0 if src == 'x0' else 50.0)
                             for src in LEAVES for dst in LEAVES
                             if src != dst])
    found = found_by([*alone, *planned], [*of_alone, *readings],
                     leaf_of=LEAVES)
    assert found.keys() == {('host-egress', 'x0')}


def test_a_leaf_has_the_hosts_of_its_fullest_round():
    """In one of its rounds a peer is slow and does not count."""
    planned = [preflight.Round((('x0', 'y0'), ('x1', 'z0')), True),
               preflight.Round((('x0', 'z0'), ('x1', 'z1')), True)]
    (found,) = preflight._leaves(
        list(zip(planned, _readings(planned, lambda pair: 10.0))), LEAVES,
        {'x': (100.0, 100.0)}, {('y0', preflight.Kind.INGRESS)})
    assert (found.subject, found.kind) == ('x', preflight.Kind.UPLINK)
    assert (found.rate_bps, found.expected_bps) == (20.0, 100.0)


def test_the_bounds_are_those_of_the_documents():
    assert (preflight.POOR, preflight.LONE_ROUNDS, preflight.LOADED_ROUNDS,
            preflight.LEAST_LEAF) == (0.75, 4, 3, 2)
    planned = preflight.plan(HOSTS, LEAF_OF)
    assert [one.loaded for one in planned] == [False] * 8 + [True] * 12
    assert len(preflight.plan(HOSTS)) == 8
