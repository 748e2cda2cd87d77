# SPDX-License-Identifier: Apache-2.0


import itertools

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.measure import rounds

HOSTS = st.integers(0, 13).map(lambda n: [f'h{i}' for i in range(n)])


@given(HOSTS)
def test_every_ordered_pair_meets_exactly_once(hosts):
    pairs = [pair for one in rounds.disjoint_rounds(hosts) for pair in one]
    wanted = {(a, b) for a in hosts for b in hosts if a != b}
    assert len(pairs) == len(wanted)
    assert set(pairs) == wanted


@given(HOSTS)
def test_a_host_takes_part_once_per_round(hosts):
    for one in rounds.disjoint_rounds(hosts):
        busy = [host for pair in one for host in pair]
        assert len(busy) == len(set(busy)) == len(hosts) // 2 * 2


@pytest.mark.parametrize('n, n_rounds', [(0, 0), (1, 0), (2, 2), (3, 6),
                                         (4, 6), (5, 10), (18, 34)])
def test_number_of_rounds(n, n_rounds):
    assert len(rounds.disjoint_rounds([str(i) for i in range(n)])) == n_rounds


def test_two_rounds_give_both_directions():
    forth, back = rounds.disjoint_rounds(['a', 'b', 'c', 'd'])[:2]
    assert forth == (('a', 'd'), ('b', 'c'))
    assert back == tuple((dst, src) for src, dst in forth)


@pytest.mark.parametrize('n', [4, 8, 9])
def test_the_standing_host_sends_and_receives_in_turn(n):
    found = rounds.disjoint_rounds([str(i) for i in range(n)])[::2]
    sends = [pair[0] == '0' for one in found for pair in one if '0' in pair]
    assert all(one != after for one, after in itertools.pairwise(sends))
    assert len(sends) == (n - 1 if n % 2 else len(found))
