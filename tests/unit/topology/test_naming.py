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
