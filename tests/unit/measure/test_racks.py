# SPDX-License-Identifier: Apache-2.0

"""Racks and pods are found again from what pairs got at the same time."""

import numpy as np
import pytest

from virtco import exception
from virtco.measure import racks
from virtco.measure import rounds
from virtco.model import cluster
from virtco.model import live
from virtco.model import uplinks
from virtco import scheduling

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
    assert len(found.levels) == 2
    assert racks.agreement(found.levels[0], by_rack) >= 0.95
    assert racks.agreement(found.levels[1], by_pod) >= 0.95


def test_racks_without_pods_are_one_level():
    rng = np.random.default_rng(5)
    tree, hosts, by_rack, _pods = made(rng, [[6] * 5], 4, 0.1)
    found = racks.infer(readings(rng, tree, hosts, 3, 0.05))
    assert len(found.levels) == 1
    assert racks.agreement(found.levels[0], by_rack) >= 0.95


def test_a_network_without_oversubscription_shows_no_racks():
    rng = np.random.default_rng(3)
    tree, hosts, _racks, _pods = made(rng, [[4, 4], [4, 4]], 1, 1)
    found = racks.infer(readings(rng, tree, hosts, 2, 0.03))
    assert found.levels == ()


def test_readings_are_checked():
    with pytest.raises(exception.Invalid, match='readings'):
        racks.infer(np.zeros((3, 3)))
    with pytest.raises(exception.Invalid, match='some pair'):
        racks.infer(np.full((1, 4, 4), np.nan))
    assert racks.infer(np.ones((1, 2, 2))).levels == ()


def test_agreement_is_one_for_the_same_and_small_for_chance():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 200)
    assert racks.agreement(labels, (labels + 3) % 5) == pytest.approx(1.0)
    assert abs(racks.agreement(labels, rng.permutation(labels))) < 0.1
    assert racks.agreement([0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx(4 / 7)
