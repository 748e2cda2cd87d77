# SPDX-License-Identifier: Apache-2.0

"""What a member fetches, and what it hands from swarm to swarm."""

import hypothesis
from hypothesis import strategies as st
import pytest

from tests import examples
from virtco_tenant.cast import blocks
from virtco_tenant.cast import peers

FIRST, BETWEEN, WITHIN = peers.LEVELS
N = 16
ALL = peers.Share(0, 1, (0.0, 1.0))
HALF = peers.Share(1, 2, (0.0, 0.5))
OF_HALF = {block for block in range(N) if HALF.has(block)}
FIRST_OF_HALF = {block for block in range(N) if HALF.is_first(block)}


def last(some, n):
    assert 0 < n <= len(some)
    return list(some)[-n:]


class Member:
    """Draws the last of what it may take; its clock stands still."""

    def __init__(self, *found):
        self.now_s = 50.0
        self.available = {WITHIN: [0] * N, BETWEEN: [0] * N}
        self.blocks = blocks.Blocks(
            N, lambda: self.now_s, last)
        self.blocks.found(found)

    def take(self, share):
        return self.blocks.take(share, self.available.__getitem__)

    def wants(self, level):
        found = self.blocks.priorities(level)
        assert len(found) == N and set(found) <= {0, 4}
        return {block for block, priority in enumerate(found) if priority}

    def fetch(self, some):
        for block in some:
            self.blocks.finished(WITHIN, block)


@pytest.fixture
def member():
    return Member()


def test_a_share_is_fetched_from_the_source_and_from_others(member):
    assert 0 < len(FIRST_OF_HALF) < len(OF_HALF) < N
    assert member.take(HALF)
    assert (member.wants(FIRST), member.wants(BETWEEN)) == (
        FIRST_OF_HALF, OF_HALF)
    # Nothing changes while it is on its way.
    assert not member.take(HALF)
    assert member.take(None)
    assert member.wants(FIRST) == member.wants(BETWEEN) == set()
    assert not member.take(None)


def test_what_is_here_is_handed_on_instead(member):
    here = sorted(OF_HALF)[:3]
    member = Member(*here)
    assert member.take(HALF)
    assert list(member.blocks.to_pass) == here
    assert member.wants(BETWEEN) == OF_HALF - set(here)
    assert member.wants(FIRST) == FIRST_OF_HALF - set(here)


def test_another_share_begins_anew(member):
    member.take(HALF)
    member.take(ALL)
    assert member.wants(FIRST) == member.wants(BETWEEN) == set(range(N))
    member.take(HALF)
    assert member.wants(BETWEEN) == OF_HALF


def done(member, share=HALF):
    """All of what it takes from the source is here, by whatever way."""
    member.take(share)
    member.fetch(sorted(member.wants(FIRST)))
    return member


def test_who_is_done_waits_for_other_clusters_for_a_while(member):
    done(member)
    late = sorted(OF_HALF - FIRST_OF_HALF)
    member.available[BETWEEN][late[0]] = 1
    assert not member.take(HALF)
    member.now_s += blocks.PATIENCE_S - 0.01
    assert not member.take(HALF)
    member.now_s += 0.01
    # Its patience is at an end: it asks the source.
    assert member.take(HALF)
    assert member.wants(FIRST) - OF_HALF


def test_who_takes_nothing_from_the_source_may_help_with_nothing_here(member):
    of_others = peers.Share(1, 2)
    assert member.take(of_others)
    assert not member.wants(FIRST)
    assert member.take(of_others)
    assert member.wants(FIRST)


def test_it_waits_for_other_clusters_a_second_and_a_half():
    assert blocks.PATIENCE_S == 1.5


def test_nobody_waits_for_blocks_that_are_here(member):
    done(member)
    member.fetch(sorted(OF_HALF))
    for block in OF_HALF:
        member.available[BETWEEN][block] = 1
    assert member.take(HALF)


def test_others_than_the_share_are_not_waited_for(member):
    done(member)
    member.fetch(sorted(OF_HALF))
    other = min(set(range(N)) - OF_HALF)
    member.available[BETWEEN][other] = 2
    # Another cluster has it, which costs the source nothing.
    assert member.take(HALF)
    assert member.wants(BETWEEN) == {other}
    assert not member.wants(FIRST)


def test_what_neighbours_have_needs_no_help(member):
    done(member)
    for block in range(N):
        member.available[WITHIN][block] = 1
    assert not member.take(HALF)
    member.available[WITHIN][0] = 0
    assert member.take(HALF)


def test_help_begins_small_and_doubles(member):
    """A quarter, of two gates, of what others should take from the source.
    """
    done(member)
    candidates = [block for block in range(N)
                  if HALF.is_clusters_first(block) and not HALF.has(block)]
    assert len(candidates) == 3
    counts = []
    for _ in range(4):
        assert member.take(HALF)
        counts.append(len(member.wants(FIRST)))
        assert member.wants(FIRST) <= set(candidates)
        member.blocks._wanted[FIRST].clear()
    assert counts == [1, 2, 3, 3]
    # Another share begins small again.
    member.take(None)
    member.take(HALF)
    assert member.take(HALF)
    assert len(member.wants(FIRST)) == 1


def test_in_which_order_others_are_helped(member):
    """First what this cluster should take, then what no other one has, then
    all.
    """
    done(member)
    of_cluster = {block for block in range(N)
                  if HALF.is_clusters_first(block)}
    member.fetch(sorted(of_cluster | OF_HALF))
    rest = sorted(set(range(N)) - of_cluster - OF_HALF)
    assert len(rest) == 5
    assert member.take(HALF)
    assert member.wants(FIRST) == set(rest[3:])
    member.now_s += blocks.PATIENCE_S
    member.blocks._wanted[FIRST].clear()
    member.available[BETWEEN][rest[-1]] = 1
    assert member.take(HALF)
    # Half of the four that no other cluster has.
    assert member.wants(FIRST) == set(rest[2:4])
    member.blocks._wanted[FIRST].clear()
    for block in rest:
        member.available[BETWEEN][block] = 1
    assert member.take(HALF)
    assert member.wants(FIRST) == set(rest)
    member.fetch(rest)
    assert not member.take(HALF)


def test_a_block_that_came_is_spared_elsewhere(member):
    member.take(ALL)
    assert member.blocks.finished(BETWEEN, 3) == [FIRST]
    assert 3 not in member.wants(FIRST) and 3 in member.wants(BETWEEN)
    assert member.blocks.finished(WITHIN, 3) == []
    assert 3 not in member.wants(BETWEEN)
    assert member.blocks.finished(WITHIN, 4) == [FIRST, BETWEEN]
    # Who has it by both ways spares nothing more.
    member.blocks._wanted[FIRST].add(3)
    member.blocks._have[FIRST].add(3)
    assert member.blocks.finished(WITHIN, 3) == []
    assert list(member.blocks.to_pass) == [3, 3, 4, 3]


@hypothesis.settings(max_examples=examples.count(100))
@hypothesis.given(st.lists(st.tuples(st.sampled_from(peers.LEVELS),
                                     st.integers(0, N - 1)), max_size=30),
                  st.sampled_from([None, HALF, ALL]))
def test_what_is_lacking_where(came, share):
    """All want it within the cluster; others have it of its gate, or of
    whom the source gave it.
    """
    member = Member()
    member.take(share)
    for level, block in came:
        member.blocks.finished(level, block)
    for block in range(N):
        by = {level for level, one in came if one == block}
        lacking = set(member.blocks.lacking(block))
        assert (WITHIN in lacking) is (WITHIN not in by)
        assert (BETWEEN in lacking) is (BETWEEN not in by and bool(
            share and share.has(block) or FIRST in by))
        assert FIRST not in lacking
        source = member.blocks.source(block)
        assert source == (min(by) if lacking and by else None)
