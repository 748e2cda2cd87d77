# SPDX-License-Identifier: Apache-2.0

"""Racks and pods are found again from what pairs got at the same time."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from benchmarks import discovery
from virtco import exception
from virtco import scheduling
from virtco.measure import racks
from virtco.measure import rounds
from virtco.model import cluster
from virtco.model import live
from virtco.model import uplinks

GBIT = 1e9


def made(rng, sizes, rack_ratio, pod_ratio):
    """A tree of pods of racks of that many hosts; (tree, hosts, labels)."""
    subtrees, leaf_of, by_rack, by_pod = [], {}, [], []
    for p, pod in enumerate(sizes):
        up = sum(pod) / rack_ratio / pod_ratio * GBIT
        subtrees.append(cluster.Subtree(f'p{p}', up, up, None, 'pod'))
        for r, n_hosts in enumerate(pod):
            name = f'p{p}r{r}'
            up = n_hosts / rack_ratio * GBIT
            subtrees.append(cluster.Subtree(name, up, up, f'p{p}'))
            for _ in range(n_hosts):
                leaf_of[f'h{len(leaf_of):03d}'] = name
                by_rack.append(len(subtrees))
                by_pod.append(p)
    hosts = tuple(leaf_of)
    order = rng.permutation(len(hosts))
    # Names tell nothing: shuffle who is where.
    leaf_of = {hosts[i]: leaf_of[hosts[k]] for i, k in enumerate(order)}
    return (cluster.Tree(tuple(subtrees), leaf_of), hosts,
            np.array(by_rack)[order], np.array(by_pod)[order])


def readings(rng, tree, hosts, n_repeats, noise):
    """What TCP gives each pair while its whole round sends."""
    n_hosts = len(hosts)
    number = {host: i for i, host in enumerate(hosts)}
    rate = np.full(n_hosts, GBIT)
    ports = live.Ports(hosts, rate, rate, uplinks.of(tree, hosts, rate, rate))
    found = np.full((n_repeats, n_hosts, n_hosts), np.nan)
    for repeat in range(n_repeats):
        mixed = [hosts[i] for i in rng.permutation(n_hosts)]
        for pairs in rounds.disjoint_rounds(mixed):
            flows = live.LiveCoflow('round', live.Flows(
                live.Pairs(pairs), np.ones(len(pairs))), arrival_s=0.0)
            made = scheduling.schedule([flows], ports, policy='fair',
                                       now_s=0.0)
            rates = made.coflows[0].flow_rates
            for (src, dst), bps in zip(pairs, rates.rate_bps):
                found[repeat, number[src], number[dst]] = bps
    return found * rng.normal(1, noise, found.shape).clip(0.5)


def test_racks_without_pods_are_one_level():
    rng = np.random.default_rng(5)
    tree, hosts, by_rack, _pods = made(rng, [[6] * 5], 4, 0.1)
    found = racks.infer(readings(rng, tree, hosts, 3, 0.05))
    assert len(found) == 1
    assert discovery.agreement(found[0], by_rack) >= 0.95


def test_a_network_without_oversubscription_shows_no_racks():
    rng = np.random.default_rng(3)
    tree, hosts, _racks, _pods = made(rng, [[4, 4], [4, 4]], 1, 1)
    found = racks.infer(readings(rng, tree, hosts, 2, 0.03))
    assert found == ()


def test_readings_are_checked():
    with pytest.raises(exception.Invalid, match='some pair'):
        racks.infer(np.full((1, 4, 4), np.nan))
    assert racks.infer(np.ones((1, 2, 2))) == ()
    # Three hosts are enough for a rack of two.
    three = np.array([[[0.0, 9.0, 2.0], [9.0, 0.0, 4.0], [2.0, 4.0, 0.0]]])
    (level,) = racks.infer(three)
    assert discovery.agreement(level, [0, 0, 1]) == 1


def test_agreement_is_one_for_the_same_and_small_for_chance():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 200)
    assert discovery.agreement(labels, (labels + 3) % 5) == pytest.approx(1.0)
    assert abs(discovery.agreement(labels, rng.permutation(labels))) < 0.1
    assert discovery.agreement(
        [0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx(4 / 7)


CLUSTERINGS = st.integers(0, 7).flatmap(lambda n: st.tuples(
    *[st.lists(st.integers(0, 3), min_size=n, max_size=n)] * 2))


@given(CLUSTERINGS)
def test_agreement_counts_pairs_of_things(both):
    one, other = both
    counts = np.zeros((2, 2))
    for i, k in itertools.combinations(range(len(one)), 2):
        counts[int(one[i] == one[k]), int(other[i] == other[k])] += 1
    (apart, only_other), (only_one, together) = counts
    below = ((together + only_one) * (only_one + apart)
             + (together + only_other) * (only_other + apart))
    expected = (2 * (together * apart - only_one * only_other) / below
                if below else 1.0)
    assert discovery.agreement(one, other) == pytest.approx(expected)


def test_distances():
    """The lower quartile of both directions, by the slower one's best."""
    nan = np.nan
    found = racks.distances(np.array([
        [[9.0, 8.0, 2.0, nan], [nan, 9.0, 1.0, nan], [2.0, 1.0, 9.0, nan],
         [nan, nan, 4.0, 9.0]],
        [[9.0, 4.0, nan, nan], [6.0, 9.0, nan, nan], [nan, nan, 9.0, nan],
         [nan, nan, nan, 9.0]]]))
    # Of h0 and h1: 4, 6, 8; the lower quartile is 5, which is best for both.
    assert found[0, 1] == 0.0
    # The best of h2 is the 4 that h3 gets there.
    assert found[0, 2] == pytest.approx(1 - 2 / 4)
    assert found[1, 2] == pytest.approx(1 - 1 / 4)
    assert found[2, 3] == 0.0
    # What nobody measured is as far as can be.
    assert found[0, 3] == found[1, 3] == 1.0
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diagonal(found), 0.0)


def test_means_of_clusters():
    nan = np.nan
    found = racks._means(np.array([
        [[nan, 9.0, 1.0, 2.0], [9.0, nan, 3.0, nan], [4.0, nan, nan, nan],
         [nan, nan, nan, nan]],
        [[nan, 10.0, 6.0, nan], [nan, nan, nan, nan], [nan, nan, nan, nan],
         [nan, nan, nan, nan]]]), np.array([0, 0, 1, 2]))
    assert found[0, 1] == pytest.approx(1 - (1 + 3 + 4 + 6) / 4 / 10)
    assert found[0, 2] == pytest.approx(1 - 2 / 10)
    assert found[1, 2] == 1.0
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diagonal(found), 0.0)


def silhouette(apart, labels):
    """As Rousseeuw defines it."""
    values = []
    for i, label in enumerate(labels):
        means = {other: np.mean([
            apart[i, k] for k, found in enumerate(labels)
            if found == other and k != i] or [0.0]) for other in set(labels)}
        a = means.pop(label)
        b = min(means.values())
        values.append((b - a) / max(a, b) if list(labels).count(label) > 1
                      and max(a, b) else 0.0)
    return np.mean(values)


@given(st.integers(0, 99), st.lists(st.integers(0, 2), min_size=2,
                                    max_size=7))
def test_silhouettes(seed, labels):
    _names, labels = np.unique(labels, return_inverse=True)
    apart = np.random.default_rng(seed).random((len(labels),) * 2)
    apart = np.where(apart < 0.2, 0.0, apart + apart.T)
    np.fill_diagonal(apart, 0.0)
    found = racks._silhouette(apart, labels)
    assert found == pytest.approx(silhouette(apart, labels)
                                  if len(set(labels)) > 1 else 0.0)


def test_clusters_of_clusters_are_found_for_each_host():
    near, far = 0.1, 0.9
    apart = np.array([[0.0, near, far, far], [near, 0.0, far, far],
                      [far, far, 0.0, near], [far, far, near, 0.0]])
    found = racks._above(np.array([0, 0, 1, 2, 3, 2]), apart)
    assert discovery.agreement(found, [0, 0, 0, 1, 1, 1]) == 1
    assert racks._above(np.array([0, 0, 1]), apart[:2, :2]) is None
    alike = np.full((4, 4), 0.5) - 0.5 * np.eye(4)
    assert racks._above(np.arange(4), alike) is None
    three = racks._above(np.arange(3), apart[:3, :3])
    assert discovery.agreement(three, [0, 0, 1]) == 1


@pytest.mark.parametrize('inside, step, found', [
    (0.5, 0.09, None), (0.5, 0.11, [0, 0, 1, 1]), (0.0, 0.1, [0, 0, 1, 1])])
def test_racks_are_where_the_rates_step(inside, step, found):
    apart = np.full((4, 4), inside + step)
    apart[:2, :2] = apart[2:, 2:] = inside
    np.fill_diagonal(apart, 0.0)
    labels = racks._racks(apart)
    assert (labels is None) == (found is None)
    if found is not None:
        assert discovery.agreement(labels, found) == 1


def test_so_many_levels_at_most():
    rng = np.random.default_rng(0)
    tree, hosts, by_rack, _pods = made(rng, [[6, 6, 6], [6, 6, 6]], 4, 2)
    seen = readings(rng, tree, hosts, 3, 0.03)
    found = racks.infer(seen, max_levels=1)
    assert len(found) == 1


@pytest.mark.parametrize('seed, sizes, noise', [
    (0, [[6, 6, 6], [6, 6, 6]], 0.03),
    (1, [[4, 8, 6], [7, 5], [6, 6, 5]], 0.05),
    (2, [[8] * 2, [8] * 3], 0.05), (3, [[6] * 4] * 3, 0.1),
    (4, [[3, 5], [4, 4, 4], [9, 2]], 0.05),
])
def test_three_levels_are_found_again(seed, sizes, noise):
    rng = np.random.default_rng(seed)
    tree, hosts, by_rack, by_pod = made(rng, sizes, 4, 2)
    found = racks.infer(readings(rng, tree, hosts, 3, noise))
    assert len(found) == 2
    assert discovery.agreement(found[0], by_rack) >= 0.95
    assert discovery.agreement(found[1], by_pod) >= 0.95
