# SPDX-License-Identifier: Apache-2.0

"""Where a topology is too large, too deep, or names something twice."""

import msgspec
import pytest

from virtco import exception
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import plain


def _deep(depth):
    node = tree.Node('n0', ('h',))
    for i in range(1, depth):
        node = tree.Node(f'n{i}', (), (node,))
    return tree.Topology((tree.Plane('p', (), (node,)),))


def _levels(*names):
    return tree.Topology((tree.Plane(
        'p', tuple(map(tree.Level, names)), ()),))


def _nodes(*nodes):
    return tree.Topology((tree.Plane('p', (), nodes),))


def _many(n_nodes, n_hosts):
    """So many of each; some hosts on the first node, the rest on another."""
    nodes = [tree.Node(f'n{i}') for i in range(n_nodes - 2)]
    hosts = [f'h{i}' for i in range(n_hosts)]
    return _nodes(tree.Node('a', tuple(hosts[:5])),
                  tree.Node('b', tuple(hosts[5:])), *nodes)


def _read(topology):
    """Read a topology as a file or the database has it."""
    return plain.read(msgspec.to_builtins({'planes': plain.dump(topology)}))


@pytest.mark.parametrize(('build', 'most'), [
    (lambda n: tree.Topology(tuple(tree.Plane(f'p{i}', (), ())
                                   for i in range(n))), 16),
    (_deep, 16),
    (lambda n: _levels(*(f'l{i}' for i in range(n))), 16),
    (lambda n: _many(n, 5), 50_000), (lambda n: _many(2, n), 100_000)])
def test_the_largest_topology_and_a_larger_one(build, most):
    found = build(most)
    assert _read(found) == found
    with pytest.raises(exception.TopologyInvalid, match=f'at most {most}'):
        _read(build(most + 1))


@pytest.mark.parametrize(('topology', 'words'), [
    (_levels('a', 'b', 'a'), 'no other level'),
    (_nodes(tree.Node('a'), tree.Node('a')), 'no other node'),
    (_nodes(tree.Node('a', (), (tree.Node('a'),))), 'no other node'),
    (_nodes(tree.Node('a', ('h', 'g', 'h'))), "each host once, got 'h'"),
    (_nodes(tree.Node('a', ('h',)), tree.Node('b', ('g', 'h'))),
     'a has it.*, got .h'),
    (_nodes(tree.Node('')), 'at most 255'),
    (_nodes(tree.Node('a', ('h i',))), 'node a: hosts'),
    (_nodes(tree.Node('a', (), (tree.Node('x' * 256),))), 'at most 255')])
def test_what_no_topology_has(topology, words):
    with pytest.raises(exception.TopologyInvalid, match=words):
        _read(topology)


@pytest.mark.parametrize('n', [158, 159])
def test_a_value_that_is_long_is_cut_short(n):
    shown = laws.Wrong((), 'f', 'x' * n, 'l')
    assert ('…' in str(shown)) == (n > 158)
    assert ("'" + 'x' * 158 + ("…" if n > 158 else "'")) in str(shown)
    assert shown.path == () and shown.line is None
