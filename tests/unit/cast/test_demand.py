# SPDX-License-Identifier: Apache-2.0

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco_tenant.cast import demand
from virtco_tenant.cast import peers

SIZE_BYTES = 4e9
_CLUSTERS = st.lists(st.sampled_from([None, 'a', 'b', 'c', 'd']), min_size=2,
                     max_size=60)
_PLANS = st.sampled_from([peers.plan, peers.plan_plain, peers.plan_star,
                          peers.plan_chain, peers.plan_tree])


def _members(clusters):
    return [peers.Member(f'v{place}', cluster)
            for place, cluster in enumerate(clusters)]


def _demand(clusters, plan=peers.plan, seed=0):
    parts = plan('v0', _members(clusters), seed)
    return parts, demand.demand('v0', parts, SIZE_BYTES)


@hypothesis.given(_CLUSTERS, _PLANS, st.integers(0, 9))
def test_each_receives_the_size_over_its_links(clusters, plan, seed):
    parts, found = _demand(clusters, plan, seed)
    for name in parts:
        received_bytes = sum(size_bytes for (_, dst), size_bytes
                             in found.items() if dst == name)
        assert received_bytes == pytest.approx(
            0 if name == 'v0' else SIZE_BYTES)
    for src, dst in found:
        assert any(dst in links for links in parts[src].links)


@hypothesis.given(_CLUSTERS, st.integers(0, 9))
def test_one_copy_enters_each_cluster_and_one_leaves_the_source(clusters,
                                                                seed):
    _, found = _demand(clusters, seed=seed)
    cluster = {member.name: member.cluster for member in _members(clusters)}
    for one in set(clusters[1:]):
        entered_bytes = sum(
            size_bytes for (src, dst), size_bytes in found.items()
            if cluster[dst] == one and (src == 'v0' or cluster[src] != one))
        assert entered_bytes == pytest.approx(SIZE_BYTES)
    assert sum(size_bytes for (src, _), size_bytes in found.items()
               if src == 'v0') == pytest.approx(SIZE_BYTES)


def test_a_chain_gives_all_to_the_next():
    _, found = _demand([None] * 4, peers.plan_chain)
    assert found == {('v0', 'v1'): SIZE_BYTES, ('v1', 'v2'): SIZE_BYTES,
                     ('v2', 'v3'): SIZE_BYTES}


def test_members_of_a_cluster_give_each_other_equal_parts():
    _, found = _demand(['a'] * 5)
    sizes_bytes = {size_bytes for (src, _), size_bytes in found.items()
                   if src != 'v0'}
    assert max(sizes_bytes) == pytest.approx(min(sizes_bytes), rel=0.1)
