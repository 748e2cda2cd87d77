# SPDX-License-Identifier: Apache-2.0

"""Topologies for hypothesis, and those of the other tests here."""

import itertools

from hypothesis import strategies as st

from virtco.topology import tree

NAMES = st.from_regex(r'[A-Za-z0-9._:@-]{1,12}', fullmatch=True)
RATES = st.one_of(st.sampled_from([1e9, 25e9, 2.5e9, 1e12, 123456789.0]),
                  st.floats(1e-3, 1e15))
UPLINKS = st.one_of(
    st.just(tree.NOT_GIVEN),
    st.builds(tree.Uplink, st.none() | RATES, st.none() | RATES,
              st.none() | st.floats(0.1, 1e6)))


@st.composite
def forests(draw, uplinks=UPLINKS, empty=True):
    """Roots of a plane: unequal branches, names of all sorts."""
    shape = st.recursive(
        st.integers(0 if empty else 1, 5),
        lambda inner: st.tuples(st.integers(0, 2),
                                st.lists(inner, min_size=1, max_size=3)),
        max_leaves=8)
    shapes = draw(st.lists(shape, min_size=1, max_size=3))
    style = draw(st.sampled_from(
        ['h{}', 'n{:03d}', '{}', 'a{}b', 'c{:02d}-x{}']))
    numbers = draw(st.permutations(range(12)))
    hosts = (style.format(*[n] * style.count('{')) for n in itertools.chain(
        numbers, itertools.count(12)))
    switches = (draw(st.sampled_from(['s{}', 'leaf-{}', '{:04d}'])).format(i)
                for i in itertools.count())

    def node(shape):
        n_hosts, children = shape if isinstance(shape, tuple) else (shape, [])
        name = next(switches)
        return tree.Node(name, tuple(itertools.islice(hosts, n_hosts)),
                         tuple(map(node, children)), draw(uplinks))

    return tuple(map(node, shapes))


@st.composite
def topologies(draw, planes=3, uplinks=UPLINKS, levels=True, empty=True):
    names = draw(st.lists(NAMES, min_size=1, max_size=planes, unique=True))
    found = []
    for name in names:
        level_names = draw(st.lists(
            st.sampled_from(['leaf', 'spine', 'core', 'top']), unique=True,
            max_size=4)) if levels else []
        found.append(tree.Plane(
            name, tuple(tree.Level(level, draw(uplinks))
                        for level in level_names),
            draw(forests(uplinks=uplinks, empty=empty))))
    return tree.Topology(tuple(found))


def two_racks(uplink=tree.NOT_GIVEN, hosts=4):
    """Two racks of that many hosts below one core."""
    return tree.Topology((tree.Plane(tree.FRONT_END, (), (tree.Node(
        'core', (), tuple(
            tree.Node(rack, tuple(f'{rack}-h{i}' for i in range(hosts)), (),
                      uplink) for rack in ('r1', 'r2'))),)),))
