# SPDX-License-Identifier: Apache-2.0

"""Rates of uplinks from a plane, and what the scheduler is told."""

import math

import pytest

from tests.unit.topology import made
from virtco.model import cluster
from virtco.model import uplinks
from virtco.state import schedule_input
from virtco.state import tree_uplinks
from virtco.topology import resolution
from virtco.topology import tree

GBIT = 1e9


def rates(plane, hosts=None, unknown_bps=GBIT):
    found = resolution.resolved(plane, hosts or {}, unknown_bps)
    return {one.name: (one.uplink_out_bps, one.uplink_in_bps, one.parent,
                       one.level) for one in found.subtrees}


def test_own_rate_before_own_oversubscription_before_the_levels():
    own = tree.Uplink(3 * GBIT)
    racks = (tree.Node('r1', ('a', 'b', 'c', 'd'), (), own),
             tree.Node('r2', ('e', 'f'), (), tree.Uplink(oversubscription=2)),
             tree.Node('r3', ('g', 'h')))
    plane = tree.Plane('front-end', (
        tree.Level('rack', tree.Uplink(oversubscription=4)),
        tree.Level('pod', tree.Uplink(oversubscription=0.5))),
        (tree.Node('core', ('x',), racks),))
    found = rates(plane)
    assert found['r1'] == (3 * GBIT, 1 * GBIT, 'core', 'rack')
    assert found['r2'][:2] == (1 * GBIT, 1 * GBIT)
    assert found['r3'][:2] == (0.5 * GBIT, 0.5 * GBIT)
    # Out of three racks' uplinks and a host of its own, times two.
    assert found['core'][:2] == (2 * (3 + 1 + .5 + 1) * GBIT,
                                 2 * (1 + 1 + .5 + 1) * GBIT)


def test_a_switch_of_which_nothing_is_known_limits_nothing():
    plane, = made.two_racks().planes
    assert set(rates(plane).values()) == {
        (math.inf, math.inf, 'core', 'rack'),
        (math.inf, math.inf, None, 'pod')}


def test_oversubscription_counts_the_rates_of_the_hosts():
    plane, = made.two_racks(tree.Uplink(oversubscription=2), 2).planes
    found = rates(plane, {'r1-h0': (4 * GBIT, 2 * GBIT)})
    assert found['r1'][:2] == (2.5 * GBIT, 1.5 * GBIT)
    assert found['r2'][:2] == (GBIT, GBIT)


def test_the_scheduler_hears_of_another_plane_or_other_hosts():
    planes = [None]
    found = tree_uplinks.Above(lambda: planes[0], 0.02, GBIT)
    hosts = schedule_input.Hosts(
        schedule_input.Host(name, None, GBIT, GBIT)
        for name in ('r1-h0', 'r1-h1', 'r2-h0', 'r2-h1'))
    assert found.uplinks(hosts) is uplinks.NONE
    assert found.tree(hosts) == cluster.Tree()
    planes[0], = made.two_racks(tree.Uplink(oversubscription=4), 2).planes
    before = found.uplinks(hosts)
    assert before.cap_bps == pytest.approx([0.49 * GBIT] * 4)
    assert before.above.tolist() == [[0], [0], [1], [1]]
    assert found.uplinks(hosts) is before
    assert found.uplinks(schedule_input.Hosts(hosts[:1])) is not before
    start, passed = before.passed(*([0, 0], [1, 2]))
    assert start.tolist() == [0, 0, 2]
    assert passed.tolist() == [0, 3]
