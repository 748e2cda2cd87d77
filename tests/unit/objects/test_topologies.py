# SPDX-License-Identifier: Apache-2.0

"""The topology over a real database: replaced, overtaken, read again."""

import pytest

from tests.unit import stored
from virtco import exception
from virtco.db import groups
from virtco.objects import topologies
from virtco.topology import tree

PLANE = tree.Plane(roots=(
    tree.Node('r0', ('h0', 'h1'), uplink=tree.Uplink(8e9, 9e9)),
    tree.Node('r1', ('h2',), uplink=tree.Uplink(6e9, 7e9))))


class Planes:
    def __init__(self):
        self.database = stored.database()
        self.n_changes = 0
        self.topology = self.process()

    def process(self):
        return topologies.Topology(self.database, self.changed, lambda: 5.0)

    def changed(self):
        self.n_changes += 1


STORAGE = tree.Plane('storage', roots=(tree.Node('s', ('h0',)),))


def test_a_topology_is_kept_by_planes():
    bench = Planes()
    bench.topology.refresh()
    assert bench.topology.get() == tree.Topology()
    assert bench.topology.generation() == 0 and bench.n_changes == 0
    bench.topology.replace((PLANE,))
    assert bench.n_changes == 1
    first = bench.topology.generation()
    assert first > 0
    bench.topology.replace((STORAGE,), first)
    assert {one.name for one in bench.topology.get().planes} == {
        PLANE.name, 'storage'}
    assert bench.topology.get().plane(PLANE.name).roots == PLANE.roots
    assert bench.topology.generation() > first
    bench.topology.delete('storage')
    assert [one.name for one in bench.topology.get().planes] == [PLANE.name]
    bench.topology.delete(PLANE.name)
    assert bench.topology.get() == tree.Topology() and bench.n_changes == 4


def test_a_removal_is_a_change_for_who_saw_the_plane():
    bench = Planes()
    bench.topology.replace((PLANE,))
    seen = bench.topology.generation()
    bench.topology.delete(PLANE.name)
    bench.topology.replace((STORAGE,))
    with pytest.raises(exception.Conflict):
        bench.topology.replace((PLANE,), seen)
    assert bench.topology.generation() == seen + 2


def test_changes_are_one_after_another_on_each_database():
    bench = Planes()

    def turn():
        with bench.database.reader() as session:
            return groups.generation(session)

    before = turn()
    bench.topology.replace((PLANE,))
    bench.topology.delete(PLANE.name)
    assert turn() == before + 2


def test_what_is_not_there_is_not_deleted():
    bench = Planes()
    bench.topology.replace((PLANE,))
    with pytest.raises(exception.NotFound):
        bench.topology.delete('storage')
    assert len(bench.topology.get().planes) == 1 == bench.n_changes


def test_who_saw_an_older_topology_does_not_replace_it():
    bench = Planes()
    bench.topology.replace((PLANE,), 0)
    for generation in (0, 99):
        with pytest.raises(exception.Conflict):
            bench.topology.replace((STORAGE,), generation)
    assert len(bench.topology.get().planes) == 1


def test_a_topology_is_read_again_where_it_changed():
    bench = Planes()
    other = bench.process()
    other.refresh()
    bench.topology.replace((PLANE,))
    n_changes = bench.n_changes
    other.refresh()
    assert bench.n_changes == n_changes + 1
    known = other.get()
    other.refresh()
    assert other.get() is known and bench.n_changes == n_changes + 1
    bench.process().refresh()
    assert bench.n_changes == n_changes + 2


def test_what_would_change():
    bench = Planes()
    bench.topology.replace((PLANE,))
    assert bench.topology.would_change((PLANE,)) == []
    assert bench.topology.would_change((STORAGE,))
