# SPDX-License-Identifier: Apache-2.0

"""Diffs, drawings and what Nova tells, without a controller."""

import re

from hypothesis import given
from hypothesis import settings
import pytest

from tests.unit.topology import made
from virtco import exception
from virtco.topology import changes as comparison
from virtco.topology import drawing
from virtco.topology import nova_topology as nova
from virtco.topology import tree


def moved(topology, host, to):
    """The same with one host below another switch."""
    def node(found):
        hosts = tuple(h for h in found.hosts if h != host)
        if found.name == to:
            hosts += (host,)
        return tree.Node(found.name, hosts, tuple(map(node, found.children)),
                         found.uplink)
    return tree.Topology(tuple(
        tree.Plane(plane.name, plane.levels, tuple(map(node, plane.roots)))
        for plane in topology.planes))


def test_a_moved_host_is_one_change():
    before = made.two_racks()
    found = comparison.changes(before, moved(before, 'r1-h0', 'r2'))
    assert list(map(comparison.written, found)) == [
        '~ host r1-h0: below r1 -> below r2']


def test_a_new_plane_tells_everything():
    found = comparison.changes(tree.Topology(), made.two_racks(
        tree.Uplink(1e9, 2e9)))
    assert [(c.kind, c.name) for c in found[:4]] == [
        ('plane', 'front-end'), ('node', 'core'), ('node', 'r1'),
        ('node', 'r2')]
    assert found[0].after == '3 nodes of 2 levels, 8 hosts'
    assert '+ uplink r1: up 1 Gbit/s, down 2 Gbit/s' in map(
        comparison.written, found)
    assert len(found) == 4 + 2 + 8


@settings(max_examples=30)
@given(made.topologies(), made.topologies())
def test_no_change_for_the_same_and_some_for_others(one, other):
    assert comparison.changes(one, one) == []
    merged = one.replaced(other.planes)
    missing = comparison.changes(one, other)
    assert comparison.changes(merged, other) == []
    # A permutation of hosts or children is none.
    if merged != one and not missing:
        assert {h for p in merged.planes for h in p.hosts()} == {
            h for p in one.planes for h in p.hosts()}


@settings(max_examples=50)
@given(made.topologies())
def test_a_drawing_is_80_columns_wide_and_names_every_switch(topology):
    for plane in topology.planes:
        lines = list(drawing.plane(plane))
        assert max(map(len, lines)) <= 80
        for node in plane.walk():
            assert any(f'{node.name} (' in line for line in lines)


def test_a_drawing_of_a_deep_tree_and_long_names():
    node = tree.Node('x' * 255, tuple(f'h{i}x' for i in range(500)))
    for i in range(15):
        node = tree.Node(f's{i}', (), (node,), tree.Uplink(1e9, 1e9))
    lines = list(drawing.plane(tree.Plane('front-end', (), (node,))))
    assert max(map(len, lines)) <= 80
    assert lines[-1].endswith('…')


def test_847_hosts_in_119_leaves_are_drawn_in_short():
    leaves = tuple(tree.Node(f'leaf{i}', tuple(
        f'n{j:04d}' for j in range(j0, j0 + 5 + i % 5)))
        for i, j0 in enumerate(range(0, 119 * 10, 10)))
    lines = list(drawing.plane(tree.Plane('front-end', (), (
        tree.Node('core', (), leaves),))))
    assert len(lines) == 121
    assert lines[2] == '├─ leaf0 (rack) 5 hosts: n[0000-0004]'


AGGREGATES = [
    nova.Aggregate('a', ('h1', 'h2'), {
        'virtco:rack': 'r1', 'virtco:rack_uplink': '10Gbit'}),
    nova.Aggregate('b', ('h3',), {'virtco:rack': 'r2'}),
    nova.Aggregate('c', ('h1', 'h2', 'h3'), {'virtco:pod': 'p1',
                                             'ssd': 'true'}),
    nova.Aggregate('z', ('h1', 'h2', 'h3', 'h4'), {}, 'zone-1')]


def test_nova_tells_racks_pods_and_zones():
    plane, = nova.read(AGGREGATES, {'h4': ['CUSTOM_RACK_R9', 'CUSTOM_RACK_',
                                           'HW_CPU_X86_AVX']},
                       ('rack', 'pod', 'zone')).topology.planes
    zone, = plane.roots
    assert (zone.name, plane.depth()) == ('zone-1', 3)
    assert plane.level_names() == ('rack', 'pod', 'zone')
    leaves = {n.name: n for n in plane.walk()}
    assert leaves['r1'].hosts == ('h1', 'h2')
    assert leaves['r1'].uplink == tree.Uplink(10e9, 10e9)
    assert leaves['R9'].hosts == ('h4',)
    assert {n.name for n in zone.children} == {'p1', 'R9'}


@pytest.mark.parametrize('more, told', [
    (nova.Aggregate('d', ('h1',), {'virtco:rack': 'r3'}),
     'aggregate d: host h1: rack: .*, got \'r3\''),
    (nova.Aggregate('d', ('h9',), {'virtco:rack': 'r 3'}),
     'aggregate d: rack: .*, got \'r 3\''),
    (nova.Aggregate('d', ('h1',), {'virtco:rack': 'r1',
                                   'virtco:rack_uplink': 'fast'}),
     'aggregate d: uplink: .*, got \'fast\''),
    (nova.Aggregate('d', ('h9',), {'virtco:rack': 'r1', 'virtco:pod': 'p2'}),
     'one parent per switch'),
])
def test_contradictions_in_nova_name_the_aggregate(more, told):
    with pytest.raises(exception.TopologyInvalid) as error:
        nova.read([*AGGREGATES, more], {}, ('rack', 'pod', 'zone'))
    assert re.search(told, str(error.value))


def test_a_nova_without_names_gives_nothing():
    read = nova.read([nova.Aggregate('z', ('h1',), {}, 'nova')], {},
                     ('rack', 'zone'))
    assert read.topology.planes == ()
    assert 'rack, zone' in read.notices[0]


def test_nova_names_each_switch_once():
    with pytest.raises(exception.TopologyInvalid, match=(
            'host h1: .*a name of its own for each level')):
        nova.read([nova.Aggregate('a', ('h1',), {
            'virtco:rack': 'x', 'virtco:pod': 'x'})], {}, ('rack', 'pod'))


def test_traits_have_letters_and_digits_of_ascii():
    assert nova.trait_prefix('zöne-2 x') == 'CUSTOM_Z_NE_2_X_'
