# SPDX-License-Identifier: Apache-2.0

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco_tenant.cast import peers

_CLUSTERS = st.lists(st.sampled_from([None, 'a', 'b', 'c', 'd']), min_size=2,
                     max_size=60)


def _members(clusters):
    return [peers.Member(f'v{place}', cluster)
            for place, cluster in enumerate(clusters)]


def _spread(parts, blocks):
    """Who gets each block in the end, when all serve what they have."""
    has = {name: set() for name in parts}
    has['v0'] = set(range(blocks))
    todo = {('v0', block) for block in has['v0']}
    while todo:
        giver, block = todo.pop()
        for level, links in enumerate(parts[giver].links):
            for taker in links:
                share = parts[taker].share
                if block not in has[taker] and (
                        level == peers.WITHIN or share is not None and (
                            share.is_first(block) if level == peers.FIRST
                            else share.has(block))):
                    has[taker].add(block)
                    todo.add((taker, block))
    return has


@hypothesis.given(_CLUSTERS, st.integers(0, 9))
def test_every_block_comes_to_everybody(clusters, seed):
    members = _members(clusters)
    parts = peers.plan('v0', members, seed)
    assert parts == peers.plan('v0', members, seed)
    for got in _spread(parts, 100).values():
        assert got == set(range(100))


@hypothesis.given(_CLUSTERS, st.integers(0, 9))
def test_links_are_symmetric_and_none_leads_to_oneself(clusters, seed):
    for parts in (peers.plan('v0', _members(clusters), seed),
                  peers.plan_plain('v0', _members(clusters), seed)):
        for name, part in parts.items():
            for level, others in enumerate(part.links):
                assert name not in others
                assert all(name in parts[other].links[level]
                           for other in others)


@hypothesis.given(_CLUSTERS)
def test_a_block_enters_each_cluster_by_one_gate(clusters):
    members = _members(clusters)
    cluster = {member.name: member.cluster for member in members}
    parts = peers.plan('v0', members, 1)
    for block in range(50):
        gates = [cluster[name] for name, part in parts.items()
                 if part.share is not None and part.share.has(block)]
        assert sorted(gates, key=str) == sorted(set(clusters[1:]), key=str)


@pytest.mark.parametrize('sizes', [(19,), (9, 10), (3, 10, 7), (1,) * 30])
def test_the_source_gives_each_block_once(sizes):
    parts = peers.plan('v0', _members(
        ['s', *(str(place) for place, size in enumerate(sizes)
                for _ in range(size))]), 1)
    given = {name: sum(part.share.is_first(block) for block in range(4000))
             for name, part in parts.items() if part.share}
    assert sum(given.values()) == 4000
    # By the sizes of clusters, so that nobody is asked for much more.
    most = max(size / min(size, peers.MAX_GATES) for size in sizes)
    if len(sizes) <= peers.MAX_FIRST_CLUSTERS:
        assert max(given.values()) < 4000 * 2.2 * most / sum(sizes)


def test_shares_of_a_cluster_are_equal():
    parts = peers.plan('v0', _members(['a'] * 11), 1)
    held = [sum(map(part.share.has, range(1000)))
            for part in parts.values() if part.share]
    assert len(held) == 10 and max(held) - min(held) <= 10


@hypothesis.given(st.integers(1, 32), st.integers(1, 32), st.data())
def test_shares_overlap_where_they_have_a_block_in_common(ones, others, data):
    one = peers.Share(data.draw(st.integers(0, ones - 1)), ones)
    other = peers.Share(data.draw(st.integers(0, others - 1)), others)
    common = any(one.has(block) and other.has(block)
                 for block in range(20_000))
    assert one.overlaps(other) == common


def test_within_a_cluster_links_do_not_leave_it():
    members = _members(['a'] * 20 + ['b'] * 20)
    cluster = {member.name: member.cluster for member in members}
    for name, part in peers.plan('v0', members, 1).items():
        assert {cluster[other] for other in part.links[peers.WITHIN]} <= {
            cluster[name]}
        assert len(part.links[peers.WITHIN]) <= 20


def test_a_newcomer_changes_nobody_elses_links_in_one_swarm():
    members = _members([None] * 30)
    before = peers.plan('v0', members[:-1], 3)
    after = peers.plan('v0', members, 3)
    for name, part in before.items():
        assert (after[name].links[peers.WITHIN] - {'v29'}
                == part.links[peers.WITHIN])
