# SPDX-License-Identifier: Apache-2.0

"""How counted bytes are kept."""

from hypothesis import given
from hypothesis import strategies as st

from virtco.profiles import pairs
from virtco.profiles import prediction

BYTES = st.dictionaries(
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.integers(0, 10 ** 15).map(float) | st.just(pairs.UNSEEN))


@given(BYTES)
def test_what_is_kept_comes_back(found):
    assert pairs.decode(pairs.encode(found)) == found


@given(BYTES, BYTES)
def test_merging_keeps_all_bytes(one, other):
    def total(found):
        return sum(size for size in found.values() if size > 0)

    both = pairs.merged(one, other)
    assert total(both) == total(one) + total(other)
    assert both.keys() == one.keys() | other.keys()


def test_a_pair_and_day_takes_less_than_a_kilobyte():
    large = {(src, dst): 10.0 ** 13 + src for src in range(100, 200)
             for dst in range(200, 300)}
    assert (prediction.HOURS_PER_DAY * len(pairs.encode(large)) / len(large)
            < 1000)


def test_of_too_many_pairs_the_largest_are_kept():
    many = {(0, dst): float(dst) for dst in range(1, pairs.MOST_PAIRS + 11)}
    kept = pairs.decode(pairs.encode(many))
    assert len(kept) == pairs.MOST_PAIRS and (0, 1) not in kept


def test_bytes_of_a_pair_are_added_and_unseen_is_no_number():
    counted = {}
    pairs.add(counted, [((0, 1), 5.0), ((1, 0), -1.0), ((0, 1), -1.0)])
    pairs.add(counted, [((0, 1), 2.0), ((1, 0), 0.5), ((1, 2), -1.0)])
    assert counted == {(0, 1): 7.0, (1, 0): 0.5, (1, 2): -1.0}
    assert pairs.merged({(0, 1): pairs.UNSEEN}, {(0, 1): 0.5}) == {
        (0, 1): 0.5}
    assert pairs.merged({(0, 1): 0.5}, {(0, 1): pairs.UNSEEN}) == {
        (0, 1): 0.5}


def test_what_is_kept_is_short_and_in_order():
    assert pairs.encode({(2, 1): 3.4, (0, 1): pairs.UNSEEN, (0, 0): 2.6}
                        ) == '[[0,0,3],[0,1,-1],[2,1,3]]'
    # Twenty thousand pairs, the largest.
    many = {(0, dst): float(dst) for dst in range(1, 20_012)}
    kept = pairs.decode(pairs.encode(many))
    assert sorted(kept.values()) == [float(i) for i in range(12, 20_012)]
