# SPDX-License-Identifier: Apache-2.0

import collections

import numpy as np
import pytest

from benchmarks import preflight as benchmark
from virtco import exception
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
    return [preflight.Reading(pair, number, rate_of(pair))
            for number, one in enumerate(planned) for pair in one.pairs]


def test_one_direction_of_one_host_with_the_evidence():
    planned = preflight.plan(HOSTS)
    found = preflight.judge(planned, _readings(
        planned, lambda pair: 5e8 if pair[0] == 'h3' else 1e9), {})
    assert [(one.kind, one.subject) for one in found] == [
        ('host-egress', 'h3')]
    assert found[0].rate_bps == 5e8 and found[0].expected_bps == 1e9
    assert {one.pair[0] for one in found[0].evidence} == {'h3'}
    assert str(found[0]) == (
        'host-egress of h3: 500 instead of 1000 Mbit/s in 4 readings')


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
    readings = [one for one in _readings(planned, lambda pair: 1e9)
                if not (planned[one.number].loaded and one.pair[0] == 'h0')]
    readings = [preflight.Reading(one.pair, one.number, 1e8)
                if planned[one.number].loaded
                and one.pair[0] in HOSTS[1:8] else one for one in readings]
    found = preflight.judge(planned, readings, {}, LEAF_OF,
                            {'leaf0': (8e9, 8e9), 'leaf1': (8e9, 8e9)})
    assert ('leaf-uplink', 'leaf0') not in {
        (one.kind, one.subject) for one in found}


def test_a_check_needs_two_hosts():
    with pytest.raises(exception.Invalid, match='hosts'):
        preflight.plan(['a'])


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
