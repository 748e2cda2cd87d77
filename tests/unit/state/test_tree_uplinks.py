# SPDX-License-Identifier: Apache-2.0

"""What is above the hosts: poor uplinks and the share of the others."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.model import cluster
from virtco.model import uplinks
from virtco.state import schedule_input
from virtco.state import tree_uplinks
from virtco.table import coflow_table
from virtco.topology import tree

RATES = st.floats(1e6, 1e12)
TREES = st.lists(st.tuples(RATES, RATES), min_size=1, max_size=4).map(
    lambda rates: cluster.Tree(tuple(
        cluster.Subtree(f'r{i}', out_bps, in_bps, level=f'l{i}')
        for i, (out_bps, in_bps) in enumerate(rates)), {'h': 'r0'}))


@given(TREES, st.dictionaries(st.sampled_from(['r0', 'r1', 'r9']),
                              st.tuples(RATES, RATES)))
def test_no_uplink_is_above_what_it_was_found_to_carry(found, most_bps):
    limited = tree_uplinks.limited(found, most_bps)
    assert limited.leaf_of == found.leaf_of
    for before, after in zip(found.subtrees, limited.subtrees, strict=True):
        out_bps, in_bps = most_bps.get(before.name,
                                       (float('inf'), float('inf')))
        assert after == cluster.Subtree(
            before.name, min(before.uplink_out_bps, out_bps),
            min(before.uplink_in_bps, in_bps), before.parent, before.level)


@given(TREES, st.floats(0.1, 10))
def test_every_rate_is_scaled(found, factor):
    for before, after in zip(found.subtrees,
                             tree_uplinks.scaled(found, factor).subtrees,
                             strict=True):
        assert after == cluster.Subtree(
            before.name, before.uplink_out_bps * factor,
            before.uplink_in_bps * factor, before.parent, before.level)


def host(name, egress_bps, ingress_bps):
    return schedule_input.Host(name, coflow_table.Link(
        name, egress_bps, ingress_bps, 0.0), egress_bps, ingress_bps)


HOSTS = schedule_input.Hosts([host('h0', 1e9, 2e9), host('h1', 3e9, 5e9),
                              schedule_input.Host('h2', None, 0.0, 0.0)])
PLANE = tree.Plane(roots=(tree.Node(
    'r0', ('h0', 'h1', 'h2'), uplink=tree.Uplink(oversubscription=4)),))


def rates(found):
    (one,) = found.subtrees
    return one.uplink_out_bps, one.uplink_in_bps


def test_coflows_get_all_but_the_share_of_the_others():
    found = tree_uplinks.Above(lambda: PLANE, 0.25, 8e9)
    # Of h2 nothing is known, and 8 Gbit/s are taken for it both ways.
    assert rates(found.nominal(HOSTS)) == (12e9 / 4, 15e9 / 4)
    assert rates(found.tree(HOSTS)) == (3e9, 3.75e9)
    assert found.uplinks(HOSTS).cap_bps.tolist() == [0.75 * 3e9,
                                                     0.75 * 3.75e9]
    assert found.tree(HOSTS).leaf_of == dict.fromkeys(HOSTS.names, 'r0')


def test_a_poor_uplink_limits_coflows_but_is_nominally_as_before():
    found = tree_uplinks.Above(lambda: PLANE, 0.25, 8e9)
    found.tree(HOSTS)
    found.set_poor({'r0': (1e9, 2e9)})
    assert rates(found.tree(HOSTS)) == (1e9, 2e9)
    assert found.uplinks(HOSTS).cap_bps.tolist() == [0.75e9, 1.5e9]
    assert rates(found.nominal(HOSTS)) == (12e9 / 4, 15e9 / 4)
    found.set_poor({})
    assert rates(found.tree(HOSTS)) == (3e9, 3.75e9)


def test_it_is_looked_at_again_only_where_something_changed():
    planes = [PLANE]
    found = tree_uplinks.Above(lambda: planes[-1], 0.25, 8e9)
    first = found.tree(HOSTS), found.uplinks(HOSTS)
    assert found.tree(HOSTS) is first[0]
    assert found.uplinks(HOSTS) is first[1]
    faster = schedule_input.Hosts([host('h0', 2e9, 2e9), *HOSTS[1:]])
    assert rates(found.tree(faster)) == (13e9 / 4, 15e9 / 4)
    planes.append(None)
    assert found.tree(faster) == cluster.Tree()
    assert found.nominal(faster) == cluster.Tree()
    assert found.uplinks(faster) is uplinks.NONE


@pytest.mark.parametrize('share', [0.0, 0.5])
def test_uplinks_are_those_of_the_tree(share):
    found = tree_uplinks.Above(lambda: PLANE, share, 8e9).uplinks(HOSTS)
    assert found.above.tolist() == [[0]] * 3
    assert found.cap_bps.tolist() == [(1 - share) * 3e9, (1 - share) * 3.75e9]
