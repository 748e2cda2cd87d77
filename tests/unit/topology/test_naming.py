# SPDX-License-Identifier: Apache-2.0

"""What is found again keeps its name."""

from virtco.topology import naming
from virtco.topology import tree as trees


def test_names_stay_where_most_hosts_do():
    def plane(first, second, names, level):
        return trees.Plane('front-end', (trees.Level(level),), tuple(
            trees.Node(name, hosts) for name, hosts in zip(
                names, (first, second))))

    old = plane(('a', 'b', 'c'), ('d', 'e', 'f'), ('rack2', 'x'), 'leaf')
    new = plane(('a', 'b', 'c', 'd'), ('e', 'g', 'h'), ('rack1', 'rack2'),
                'rack')
    found = naming.renamed(new, old)
    assert [node.name for node in found.walk()] == ['rack2', 'rack2-new']
    assert found.level_names() == ('leaf',)
    assert [node.hosts for node in found.walk()] == [
        node.hosts for node in new.walk()]
    assert naming.renamed(new, None) == new


def rack(name, hosts, *children):
    return trees.Node(name, tuple(hosts), children)


def names(new, old):
    found = naming.renamed(*(trees.Plane('p', (), roots)
                             for roots in (new, old)))
    return [node.name for node in found.walk()]


def test_half_of_the_hosts_is_not_most():
    old = (rack('r1', 'abcd'),)
    assert names((rack('x', 'ab'),), old) == ['x']
    assert names((rack('x', 'abc'),), old) == ['r1']
    assert names((rack('x', 'abcdefgh'),), old) == ['x']
    assert names((rack('x', 'abcdefg'),), old) == ['r1']


def test_a_switch_keeps_its_name_at_its_height():
    old = (rack('core', '', rack('leaf', 'abc')),)
    assert names((rack('x', '', rack('y', 'abc')),), old) == ['core', 'leaf']
    assert names((rack('leaf', 'abc'), rack('y', 'de')),
                 (rack('pod', '', rack('y', 'xyz')), rack('leaf', 'abc'))
                 ) == ['leaf', 'y']


def test_a_new_switch_takes_no_name_that_stays():
    old = (rack('a', 'abc'), rack('a-new', 'def'))
    assert names((rack('x', 'abc'), rack('y', 'def'), rack('a', 'gh')), old
                 ) == ['a', 'a-new', 'a-new-new']
