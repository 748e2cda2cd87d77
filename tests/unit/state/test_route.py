# SPDX-License-Identifier: Apache-2.0

"""Where flows run: pairs of hosts in the order of their first flows."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np

from virtco.model import matrix as matrices
from virtco.state import route

N_VMS = 5
ENDS = st.lists(st.tuples(st.integers(0, N_VMS - 1),
                          st.integers(0, N_VMS - 1)).filter(
                              lambda ends: ends[0] != ends[1]),
                unique=True, max_size=12)
MEMBERS = st.dictionaries(
    st.integers(0, N_VMS - 1),
    st.builds(route.Member, st.just('vm'),
              st.sampled_from([None, 'x', 'b', 'a']), st.booleans()))


def matrix(ends):
    return matrices.Matrix.of(N_VMS, [src for src, _ in ends],
                              [dst for _, dst in ends],
                              [2.0 ** i for i in range(len(ends))])


@given(ENDS, MEMBERS, st.booleans())
def test_each_flow_is_where_its_members_are(ends, members, running):
    def place(row):
        found = members.get(row)
        return (None if found is None or running and not found.running
                else found.host)

    found = route.Route(matrix(ends), members, running)
    places = [(place(src), place(dst)) for src, dst in ends]
    crossing = [pair if None not in pair and pair[0] != pair[1] else None
                for pair in places]
    assert found.pairs == tuple(dict.fromkeys(filter(None, crossing)))
    assert [found.pairs[number] if number >= 0 else None
            for number in found.pair_of.tolist()] == crossing
    assert found.local.tolist() == [
        i for i, (src, dst) in enumerate(places) if src == dst is not None]
    assert found.is_complete == all(None not in pair for pair in places)


@given(ENDS, MEMBERS)
def test_bytes_per_pair_are_those_of_its_flows(ends, members):
    found = route.Route(matrix(ends), members, False)
    sizes = np.array([2.0 ** i for i in range(len(ends))])
    assert found.per_pair(sizes).tolist() == [
        sizes[found.pair_of == number].sum()
        for number in range(len(found.pairs))]
    for src in 'xba':
        for dst in (None, *'xba'):
            assert found.flows(src, dst).tolist() == [
                i for i, number in enumerate(found.pair_of.tolist())
                if number >= 0 and found.pairs[number][0] == src
                and dst in (None, found.pairs[number][1])]
    for src, dst in found.pairs:
        assert found.flows(src, dst) is found.flows(src, dst)
    kept = len(found._flows)
    assert found.flows('y', 'z').tolist() == [] and len(found._flows) == kept


def test_planned_members_count_where_they_are_asked_for():
    members = {0: route.Member('a', 'h0', True),
               1: route.Member(None, 'h1', False),
               2: route.Member('c', None, True)}
    whole = matrix([(0, 1), (1, 0), (0, 2)])
    assert route.Route(whole, members, True).pairs == ()
    assert route.Route(whole, members, False).pairs == (
        ('h0', 'h1'), ('h1', 'h0'))
