# SPDX-License-Identifier: Apache-2.0


import itertools

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco.measure import bottleneck
from virtco.topology import tree

Links = bottleneck.Links
Way = bottleneck.Way

HOST, RACK, POD = (Links(level, Way.OUT) for level in range(3))


def _plane(n_hosts):
    """Pods of racks of hosts; ``n_hosts[pod][rack]``."""
    return tree.Plane(roots=tuple(
        tree.Node(f's{s}', children=tuple(
            tree.Node(f's{s}r{r}', tuple(f's{s}r{r}h{h}' for h in range(n)))
            for r, n in enumerate(racks)))
        for s, racks in enumerate(n_hosts)))


# Two subtrees of two racks of two hosts.
PLACES = bottleneck.places(_plane([[2, 2], [2, 2]]))


def _path(src, dst, places=PLACES):
    return places[src], places[dst]


def _passed(path):
    """All links of a path, from the names of its hosts: up, then down."""
    def out(near, far):
        return [near, *(name for name in (near[:near.index('h')], near[:2])
                        if not far.startswith(name))]

    src, dst = (place[0] for place in path)
    return ({(Way.OUT, name) for name in out(src, dst)}
            | {(Way.IN, name) for name in out(dst, src)})


def _level(name):
    return 0 if 'h' in name else 1 if 'r' in name else 2


def test_where_hosts_are_in_a_tree_of_unequal_branches():
    plane = tree.Plane(roots=(
        tree.Node('p', ('a',), (tree.Node('r', ('b',)),)),
        tree.Node('q', ('c',))))
    places = bottleneck.places(plane)
    assert [[bottleneck.at(places[host], level) for level in range(4)]
            for host in 'abc'] == [['a', None, 'p', None],
                                   ['b', 'r', 'p', None],
                                   ['c', 'q', None, None]]
    # A host right below the pod's switch leaves no rack.
    one, other = _path('a', 'c', places), _path('b', 'c', places)
    assert not bottleneck.shared(one, other, RACK)
    assert bottleneck.shared(one, other, POD) == 'p'


@pytest.mark.parametrize('one, other, expected', [
    (('s0r0h0', 's0r1h1'), ('s0r0h0', 's0r1h0'), {HOST, RACK}),
    (('s0r0h0', 's1r0h1'), ('s0r0h0', 's1r0h0'), {HOST, RACK, POD}),
    # One stays in its rack, or in its subtree: only the source is shared.
    (('s0r0h0', 's0r0h1'), ('s0r0h0', 's1r0h0'), {HOST}),
    (('s0r0h0', 's0r1h0'), ('s0r0h0', 's1r0h0'), {HOST, RACK}),
    (('s0r0h0', 's1r0h0'), ('s0r0h1', 's1r1h0'), {RACK, POD}),
    (('s0r0h0', 's0r1h0'), ('s0r0h1', 's0r1h1'), {RACK}),
    (('s0r0h0', 's0r0h1'), ('s0r0h1', 's1r1h0'), set()),
    (('s0r0h0', 's1r0h0'), ('s0r1h0', 's1r1h0'), {POD}),
    (('s0r0h0', 's0r1h0'), ('s0r1h0', 's1r1h0'), set()),
    (('s0r0h0', 's1r0h0'), ('s1r0h1', 's0r0h1'), set()),
])
def test_the_two_rules(one, other, expected):
    for a, b in ((one, other), (other, one)):
        assert {links for links in (HOST, RACK, POD)
                if bottleneck.shared(_path(*a), _path(*b), links)
                } == expected
        # The same towards the receivers.
        backwards = _path(*a[::-1]), _path(*b[::-1])
        assert {links for links in (HOST, RACK, POD)
                if bottleneck.shared(
                    *backwards, Links(links.level, Way.IN))} == expected


@st.composite
def _measured_trees(draw):
    """Some paths of a tree, and its only link that two of them fill."""
    plane = _plane(draw(st.lists(st.lists(
        st.integers(1, 3), min_size=1, max_size=3), min_size=2, max_size=3)))
    places = bottleneck.places(plane)
    pairs = draw(st.lists(
        st.sampled_from(list(itertools.permutations(sorted(places), 2))),
        min_size=2, max_size=8, unique=True))
    paths = [_path(*pair, places) for pair in pairs]
    narrow = draw(st.sampled_from(sorted(
        {link for path in paths for link in _passed(path)})))
    return paths, narrow


@hypothesis.given(_measured_trees())
def test_paths_interfere_exactly_where_both_pass_a_link(measured):
    paths, (way, name) = measured
    for one, other in itertools.combinations(paths, 2):
        found = bottleneck.shared(one, other, Links(_level(name), way))
        assert (found == name) == (
            (way, name) in _passed(one) & _passed(other))


@hypothesis.given(_measured_trees())
def test_all_links_of_the_level_that_is_narrow_are_found(measured):
    paths, (way, name) = measured
    narrow = Links(_level(name), way)
    seen = [(one, other, any(
        (way, _level(link)) == (at, narrow.level)
        for at, link in _passed(one) & _passed(other)))
        for one, other in itertools.combinations(paths, 2)]
    found = bottleneck.locate(seen)
    if not any(is_shared for *_, is_shared in seen):
        assert found == bottleneck.Location((), 0)
        return
    assert narrow in found.links and found.n_explained == len(seen)
    # What else is named would look the same.
    for links in found.links:
        assert [bottleneck.shared(one, other, links) is not None
                for one, other, _ in seen] == [
                    is_shared for *_, is_shared in seen]


@pytest.mark.parametrize('links', [
    Links(level, way) for level in range(3) for way in Way])
def test_all_paths_of_a_tree_tell_the_levels_apart(links):
    # Of two subtrees, what leaves one enters the other.
    places = bottleneck.places(_plane([[2, 1], [1, 2], [1]]))
    paths = [_path(a, b, places) for a, b in itertools.permutations(places, 2)]
    seen = [(one, other, bottleneck.shared(one, other, links) is not None)
            for one, other in itertools.combinations(paths, 2)]
    assert bottleneck.locate(seen) == bottleneck.Location(
        (links,), len(seen))


def test_nothing_explains_nothing_or_nonsense():
    nothing = bottleneck.Location((), 0)
    assert bottleneck.locate([]) == nothing
    same_rack = _path('s0r0h0', 's1r0h0'), _path('s0r0h1', 's1r1h0')
    apart = _path('s0r0h0', 's0r0h1'), _path('s1r0h0', 's1r0h1')
    assert bottleneck.locate([(*same_rack, False)]) == nothing
    assert bottleneck.locate([(*apart, True)]) == nothing
    # Half is not more than half.
    assert bottleneck.locate([(*same_rack, True), (*apart, True)]) == nothing


def test_a_path_that_gets_much_less_beside_another_shares_with_it():
    share = 1 - bottleneck.SIGNIFICANT
    assert not bottleneck.shares_bottleneck(100.0, 100.0 * share)
    assert bottleneck.shares_bottleneck(100.0, 99.9 * share)


def test_a_host_of_no_known_switch_hides_no_level():
    a, b = ('a', 'rack'), ('b', 'rack')
    assert bottleneck.locate([((a, ('c',)), (b, ('d',)), True)]) == (
        bottleneck.Location((RACK,), 1))
