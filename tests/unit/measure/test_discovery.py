# SPDX-License-Identifier: Apache-2.0

"""A tree is found again, with the rates of its uplinks."""

import numpy as np
import pytest

from benchmarks import discovery as benchmark
from tests.unit.measure import test_racks
from virtco import scheduling
from virtco.measure import discovery
from virtco.measure import rounds as measure_rounds
from virtco.model import live
from virtco.model import uplinks
from virtco.topology import tree


class Network:
    """What TCP gives pairs that send at the same time, read with noise."""

    def __init__(self, tree, hosts, rng, noise, missing=0.0):
        rate = np.full(len(hosts), test_racks.GBIT)
        self.tree, self.hosts = tree, hosts
        self._ports = live.Ports(hosts, rate, rate,
                                 uplinks.of(tree, hosts, rate, rate))
        self._rng, self._noise, self._missing = rng, noise, missing

    def read(self, pairs):
        flows = live.LiveCoflow('round', live.Flows(
            live.Pairs(pairs), np.ones(len(pairs))), arrival_s=0.0)
        rates = scheduling.schedule([flows], self._ports, policy='fair',
                                    now_s=0.0).coflows[0].flow_rates.rate_bps
        return {pair: rate * max(0.5, self._rng.normal(1, self._noise))
                for pair, rate in zip(pairs, rates)
                if self._rng.random() >= self._missing}


def discover(network):
    """(branches, plane) of a network of which only the hosts are known."""
    repeats = []
    for rounds in discovery.mixed_rounds(network.hosts):
        repeats.append({})
        for pairs in rounds:
            repeats[-1] |= network.read(pairs)
    readings = discovery.matrices(network.hosts, repeats)
    found = discovery.branches(network.hosts, readings)
    loaded = [(load, network.read(load.pairs))
              for load in discovery.loads(found)]
    return found, discovery.plane(found, network.hosts, readings, loaded)


def _rates(tree):
    for subtree in tree.subtrees:
        below = {subtree.name} | {one.name for one in tree.subtrees
                                  if one.parent == subtree.name}
        yield ([host for host, leaf in tree.leaf_of.items() if leaf in below],
               subtree.uplink_out_bps)


def by_hand(uplink_bps):
    """Two pods of two racks of two hosts with links of 1 Gbit/s.

    :param uplink_bps: of each level's uplinks.
    """
    hosts = tuple(f'h{i}' for i in range(8))
    found = tuple(
        discovery.Branch(f'{name}{i + 1}', level,
                         hosts[i * size:(i + 1) * size],
                         None if level else f'pod{i // 2 + 1}')
        for level, name, size in ((1, 'pod', 4), (0, 'rack', 2))
        for i in range(8 // size))
    of = {one.name: one for one in found}

    def read(load):
        """A pod's load passes its racks' uplinks too."""
        racks_bps = len(of[load.branch].hosts) / 2 * uplink_bps[0]
        bps = min([1e9 * len(load.pairs), racks_bps]
                  + [uplink_bps[1]] * of[load.branch].level)
        return dict.fromkeys(load.pairs, bps / len(load.pairs))

    return discovery.plane(
        found, hosts, np.full((1, 8, 8), 1e9),
        [(load, read(load)) for load in discovery.loads(found)])


def test_uplinks_that_limit_nothing_have_no_rate():
    plane = by_hand((2e9, 2e9))
    assert [(node.name, node.uplink.up_bps) for node in plane.walk()] == [
        ('pod1', 2e9), ('rack1', None), ('rack2', None),
        ('pod2', 2e9), ('rack3', None), ('rack4', None)]


def test_a_level_that_limits_nothing_is_left_out():
    plane = by_hand((1e9, 4e9))
    assert [(node.name, node.uplink.up_bps, len(node.hosts))
            for node in plane.walk()] == [
        (f'rack{i}', 1e9, 2) for i in (1, 2, 3, 4)]
    assert plane.level_names() == ('rack',)


def test_failed_trains_cost_readings_but_no_rate_is_too_low():
    rng = np.random.default_rng(6)
    tree, hosts, by_rack, _pods = test_racks.made(rng, [[4] * 3, [4] * 3],
                                                  4, 2)
    found, plane = discover(Network(tree, hosts, rng, 0.03, missing=0.05))
    assert sum(one.level == 0 for one in found) == len(set(by_rack))
    true_bps = {frozenset(hosts): bps for hosts, bps in _rates(tree)}
    rates = [(true_bps[frozenset(node.all_hosts())], node.uplink.up_bps)
             for node in plane.walk() if node.uplink.up_bps is not None]
    assert rates
    for true, rate_bps in rates:
        assert rate_bps == pytest.approx(true, rel=0.1)


def test_a_network_that_limits_nothing_is_no_plane():
    rng = np.random.default_rng(3)
    tree, hosts, _racks, _pods = test_racks.made(rng, [[4, 4], [4, 4]], 1, 1)
    found, plane = discover(Network(tree, hosts, rng, 0.03))
    assert found == () and plane.roots == ()


def test_a_load_uses_each_host_once_and_crosses_the_uplink():
    hosts = [f'h{i}' for i in range(9)]
    found = (discovery.Branch('rack1', 0, tuple(hosts[:6]), None),
             discovery.Branch('rack2', 0, tuple(hosts[6:]), None))
    loads = discovery.loads(found)
    assert {one.branch for one in loads} == {'rack1', 'rack2'}
    for load in loads:
        assert len({host for pair in load.pairs for host in pair}) == (
            2 * len(load.pairs)) == 6
        own = set(found[load.branch == 'rack2'].hosts)
        for pair in load.pairs:
            assert own & set(pair) == {pair[not load.is_up]}


@pytest.mark.parametrize(('n_other', 'loaded'), [
    (1, set()), (2, {'rack1', 'rack2'})])
def test_an_uplink_is_loaded_by_two_pairs_or_not_at_all(n_other, loaded):
    found = (discovery.Branch('rack1', 0, ('a0', 'a1', 'a2'), None),
             discovery.Branch('rack2', 0, ('b0', 'b1')[:n_other], None))
    assert {one.branch for one in discovery.loads(found)} == loaded


def test_an_uplink_is_loaded_three_times_by_other_peers():
    """Each way; where near peers are all there are, they are tried once."""
    own, others = ('a0', 'a1'), tuple(f'b{i}' for i in range(8))
    loads = discovery.loads((discovery.Branch('rack1', 0, own, None),
                             discovery.Branch('rack2', 0, others, None)))
    ups = [one for one in loads if one.branch == 'rack1' and one.is_up]
    assert [one.pairs for one in ups] == [
        (('a0', f'b{i}'), ('a1', f'b{i + 1}')) for i in (0, 2, 4)]
    assert {one.peers for one in ups} == {'near'}
    assert [one.pairs for one in loads if one.branch == 'rack1'
            and not one.is_up] == [tuple(pair[::-1] for pair in one.pairs)
                                   for one in ups]


def test_how_many_hosts_a_discovery_takes():
    assert (discovery.LEAST_HOSTS, discovery.MOST_HOSTS) == (4, 256)


def test_a_host_alone_is_a_rack_too():
    found = discovery.branches('abc', np.array([
        [[np.nan, 9.0, 2.0], [9.0, np.nan, 4.0], [2.0, 4.0, np.nan]]]))
    assert [(one.hosts, one.parent) for one in found] == [
        (('a', 'b'), None), (('c',), None)]


def test_near_peers_are_those_beside_a_branch():
    found = [discovery.Branch(f'pod{p}', 1, tuple(
        f'h{p}{i}' for i in range(4)), None) for p in range(3)]
    found += [discovery.Branch(f'rack{p}{r}', 0, tuple(
        f'h{p}{2 * r + i}' for i in range(2)), f'pod{p}')
        for p in range(3) for r in range(2)]
    loads = discovery.loads(found)
    assert len({(one.branch, one.is_up, one.pairs) for one in loads}) == (
        len(loads))
    near = [one for one in loads if one.peers == 'near']
    assert {one.branch for one in near} == {one.name for one in found}
    for one in near:
        for pair in one.pairs:
            own, peer = pair if one.is_up else pair[::-1]
            in_pod = own[1] == peer[1]
            assert in_pod == one.branch.startswith('rack')
    # Any peers are all outside; some are further away than the near ones.
    assert any(src[1] != dst[1] for one in loads
               if one.peers == 'any' and one.branch.startswith('rack')
               for src, dst in one.pairs)


@pytest.mark.parametrize('rows, below_bps, rate_bps', [
    ([], 100.0, None), ([[(89.0, 100.0)]], 100.0, 89.0),
    ([[(90.0, 100.0)]], 100.0, None), ([[(89.0, 95.0)]], 100.0, None),
    ([[(89.0, 100.0)]], 95.0, None),
    # Medians of each kind of peers; the better kind counts.
    ([[(10.0, 100.0), (50.0, 100.0), (20.0, 100.0)],
      [(30.0, 100.0), (1.0, 100.0), (40.0, 100.0)]], 100.0, 30.0)])
def test_an_uplink_limits_where_its_load_lacks_a_tenth(
        rows, below_bps, rate_bps):
    assert discovery._rate(rows, below_bps) == rate_bps


def test_so_few_hosts_have_more_repetitions():
    few = discovery.mixed_rounds([f'h{i}' for i in range(4)])
    many = discovery.mixed_rounds([f'h{i}' for i in range(64)])
    assert (len(few), len(many)) == (10, discovery.LEAST_REPEATS)
    assert sum(map(len, few)) == discovery.LEAST_ROUNDS
    assert discovery.mixed_rounds([f'h{i}' for i in range(4)]) == few


HOSTS = tuple(f'h{i}' for i in range(4))
BRANCHES = (
    discovery.Branch('pod1', 1, HOSTS, None),
    discovery.Branch('rack1', 0, HOSTS[:2], 'pod1'),
    discovery.Branch('rack2', 0, HOSTS[2:], 'pod1'))
#: Out of and into each host.
LINKS = {host: (10.0 + i, 20.0 + i) for i, host in enumerate(HOSTS)}


def test_the_links_of_hosts_are_the_best_of_their_readings():
    readings = np.full((2, 3, 3), np.nan)
    readings[0] = [[np.nan, 1, 2], [3, np.nan, 4], [5, 6, np.nan]]
    readings[1, 0, 1] = 7.0
    assert discovery._links('abc', readings) == {
        'a': (np.quantile([1, 2, 7], 0.95), np.quantile([3, 5], 0.95)),
        'b': (np.quantile([3, 4], 0.95), np.quantile([1, 6, 7], 0.95)),
        'c': (np.quantile([5, 6], 0.95), np.quantile([2, 4], 0.95))}
    nothing = discovery._links('a', np.full((1, 1, 1), np.nan))
    assert np.isnan(nothing['a']).all()


def load(branch, is_up, peers, *pairs):
    return discovery.Load(branch, is_up, peers, pairs)


@pytest.mark.parametrize('is_up, rack_bps, pod_bps, found_bps', [
    # Out of the pod come 3 and 12 + 13, into it 5 and 22 + 23.
    (True, 3.0, 25.1, 25.1), (True, 3.0, 25.3, None),
    (False, 5.0, 44.9, 44.9), (False, 5.0, 45.1, None)])
def test_what_comes_from_below_goes_by_the_way(is_up, rack_bps, pod_bps,
                                               found_bps):
    """The first rack's uplink limits, the hosts of the second do."""
    pair = ('h0', 'far') if is_up else ('far', 'h0')
    found = discovery._uplinks(
        BRANCHES, {**LINKS, 'h0': (99.0, 99.0), 'far': (99.0, 99.0)},
        [(load(branch, is_up, 'any', pair), {pair: rate_bps})
         for branch, rate_bps in (('rack1', rack_bps), ('pod1', pod_bps))])
    assert found['rack1'] == (tree.Uplink(rack_bps) if is_up
                              else tree.Uplink(None, rack_bps))
    assert found['pod1'] == (tree.Uplink(found_bps) if is_up
                             else tree.Uplink(None, found_bps))


def test_an_uplink_has_the_rate_of_its_better_loads():
    pairs = ('h0', 'h2'), ('h1', 'h3')
    back = tuple(pair[::-1] for pair in pairs)
    found = discovery._uplinks(BRANCHES, LINKS, [
        (load('rack1', True, 'near', *pairs), dict(zip(pairs, (4.0, 5.0)))),
        (load('rack1', True, 'any', *pairs), dict(zip(pairs, (4.0, 6.0)))),
        # A pair is missing.
        (load('rack1', True, 'any', *pairs), {pairs[0]: 99.0}),
        (load('rack1', False, 'near', *back), dict(zip(back, (1.0, 2.0)))),
        (load('pod1', True, 'near', *pairs), dict(zip(pairs, (4.0, 5.0))))])
    assert found == {'rack1': tree.Uplink(10.0, 3.0),
                     'rack2': tree.Uplink(), 'pod1': tree.Uplink(9.0)}
    # Out of h0 and h1 come 21, and 18.9 would be what they can send.
    for sums, up_bps in ((18.8, 18.8), (18.95, None)):
        found = discovery._uplinks(BRANCHES, LINKS, [(
            load('rack1', True, 'near', *pairs),
            dict(zip(pairs, (sums, 0.0))))])
        assert found['rack1'].up_bps == up_bps


@pytest.mark.parametrize(('into_bps', 'rate_bps', 'up_bps'), [
    (22.0, 8.9, 8.9), (22.0, 9.1, None), (5.0, 4.4, 4.4), (5.0, 4.6, None)])
def test_a_load_that_its_hosts_limit_shows_no_uplink(into_bps, rate_bps,
                                                     up_bps):
    """From one of two hosts go 10; the other's receiver may take less."""
    links_bps = LINKS | {'h2': (12.0, into_bps)}
    found = discovery._uplinks(BRANCHES, links_bps, [(
        load('rack1', True, 'near', ('h0', 'h2')), {('h0', 'h2'): rate_bps})])
    assert found['rack1'].up_bps == up_bps


@pytest.mark.parametrize(('turn', 'n_chosen', 'pairs'), [
    (0, 3, 'ax by'), (1, 3, 'az bx'), (2, 3, 'ay bz'), (0, 2, 'ax by'),
    (1, 0, 'ax by')])
def test_chosen_peers_take_turns(turn, n_chosen, pairs):
    found = measure_rounds.paired('ab', 'xyz', turn, n_chosen)
    assert ' '.join(map(''.join, found)) == pairs
    assert measure_rounds.paired('abc', 'wxyz', 1, 0) == (
        ('a', 'w'), ('b', 'x'), ('c', 'y'))
    # Of more members than peers each has its turn.
    assert measure_rounds.paired('abc', 'xy', 1, 2) == (('c', 'y'), ('a', 'x'))
    assert measure_rounds.paired('abc', 'wxyz', 1, 2) == (
        ('a', 'x'), ('b', 'w'), ('c', 'y'))


def test_peers_come_from_all_leaves_in_turn():
    leaf_of = dict(a='l2', b='l1', c='l1', d='l2', e='l1')
    assert ''.join(discovery._spread('edcba', leaf_of)) == 'bacde'
    assert measure_rounds.paired('abc', 'x', 1, 1) == (('b', 'x'),)


def test_names_of_the_levels_that_are_kept():
    """The pods limit nothing; what is above them does."""
    found = (discovery.Branch('core1', 2, HOSTS, None), *(
        discovery.dataclasses.replace(one, parent=one.parent or 'core1')
        for one in BRANCHES))
    rates = {'core1': tree.Uplink(1.0, None), 'pod1': tree.Uplink(),
             'rack1': tree.Uplink(), 'rack2': tree.Uplink()}
    assert [(one.name, one.parent)
            for one in discovery._limiting(found, rates)] == [
        ('core1', None), ('rack1', 'core1'), ('rack2', 'core1')]


@pytest.mark.parametrize('seed, sizes, noise', [
    (0, [[4, 4, 4], [4, 4, 4], [4, 4]], 0.03),
    (1, [[4, 8, 6], [7, 5], [6, 6, 5]], 0.05),
    (2, [[8] * 2, [8] * 3, [6, 8]], 0.05),
    (3, [[6] * 4] * 3, 0.1)])
def test_three_levels_and_their_rates_are_found(seed, sizes, noise):
    rng = np.random.default_rng(seed)
    tree, hosts, by_rack, by_pod = test_racks.made(rng, sizes, 4, 2)
    found, plane = discover(Network(tree, hosts, rng, noise))
    for level, truth in ((0, by_rack), (1, by_pod)):
        label = {host: i for i, branch in enumerate(
            one for one in found if one.level == level)
            for host in branch.hosts}
        assert benchmark.agreement([label[host] for host in hosts],
                                   truth) >= 0.95
    assert plane.level_names() == ('rack', 'pod')
    true_bps = {frozenset(hosts): bps for hosts, bps in _rates(tree)}
    seen = 0
    for node in plane.walk():
        below = frozenset(node.all_hosts())
        if below in true_bps:
            seen += 1
            for rate_bps in (node.uplink.up_bps, node.uplink.down_bps):
                assert rate_bps == pytest.approx(true_bps[below], rel=0.1)
    assert seen >= 0.9 * len(tree.subtrees)
