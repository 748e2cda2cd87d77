# SPDX-License-Identifier: Apache-2.0

"""Long lists of hosts and uplinks as text."""

import pytest

from virtco.topology import drawing
from virtco.topology import tree


@pytest.mark.parametrize('n', [0, 1, 200, 201])
def test_hosts_without_a_leaf_are_counted_and_some_named(n):
    lines = drawing.without_leaf('p', [f'h{i}' for i in range(n)])
    text = ' '.join(line.strip() for line in lines)
    assert (lines == []) == (n == 0)
    assert (f'h{min(n, 200) - 1}' in text) == (n > 0)
    assert ('and 1 more' in text) == (n == 201) == ('more' in text)
    assert n == 0 or text.startswith(f'{n} hosts are in no leaf of plane p: ')
    assert all(len(line) <= drawing.WIDTH for line in lines)
    assert all(line.startswith('  ') for line in lines[1:])


@pytest.mark.parametrize(('uplink', 'text'), [
    (tree.Uplink(1e11, 1e11, None), '100 Gbit/s'),
    (tree.Uplink(1e11, 5e10, None), 'up 100 Gbit/s, down 50 Gbit/s'),
    (tree.Uplink(1e11, None, None), 'up 100 Gbit/s'),
    (tree.Uplink(None, 5e10, 4.0), 'down 50 Gbit/s, 4:1'),
    (tree.Uplink(1e11, 1e11, 2.5), '100 Gbit/s, 2.5:1'),
    (tree.NOT_GIVEN, '')])
def test_an_uplink_in_words(uplink, text):
    assert drawing.uplink(uplink) == text


def test_a_tree_with_hosts_at_every_height():
    leaf = tree.Node('r2', ('h3',), (), tree.Uplink(2e9, 1e9, None))
    root = tree.Node('core', ('h1', 'h2'), (tree.Node('r1'), leaf))
    plane = tree.Plane('p', (tree.Level('rack', tree.Uplink(
        None, None, 4.0)),), (root,))
    assert list(drawing.plane(plane)) == [
        'plane p: rack < pod; 3 hosts', '  level rack: uplink 4:1',
        'core (pod) 3 hosts', '│   here: h[1-2]',
        '├─ r1 (rack) 0 hosts',
        '└─ r2 (rack) up 2 Gbit/s, down 1 Gbit/s 1 hosts: h3']


@pytest.mark.parametrize(('text', 'first', 'rest', 'width', 'lines'), [
    ('abcdefgh', '> ', '  ', 10, ['> abcdefgh']),
    ('abcdefghi', '> ', '  ', 10, ['> abcdefgh', '  i']),
    ('abc defgh ijkl', '> ', '  ', 10, ['> abc', '  defgh', '  ijkl']),
    ('abc,defgh,ijkl', '> ', '    ', 12, ['> abc,defgh,', '    ijkl']),
    ('ab,cd ef,ghijkl', '', '', 8, ['ab,cd', 'ef,', 'ghijkl']),
    ('a' * 30, '> ', '  ', 12, ['> ' + 'a' * 10] + ['  ' + 'a' * 10] * 2),
    ('a' * 31, '> ', '  ', 12, [
        '> ' + 'a' * 10, '  ' + 'a' * 10, '  …']),
    ('aaaa bbbb cccc dddd eeee', '', '  ', 9, [
        'aaaa bbbb', '  cccc', '  dddd…']),
    ('', '> ', '', 9, [])])
def test_long_lines_are_broken_at_blanks_and_commas(
        text, first, rest, width, lines, monkeypatch):
    monkeypatch.setattr(drawing, 'WIDTH', width)
    assert list(drawing._wrapped(text, first, rest)) == lines


def test_a_plane_as_wide_as_its_lines(monkeypatch):
    monkeypatch.setattr(drawing, 'WIDTH', 22)
    root = tree.Node('core', (), (
        tree.Node('r1', ('a', 'b', 'c', 'd'), (), tree.Uplink(2e9, 2e9)),
        tree.Node('row', (), (tree.Node('r2', ('e1', 'e2'), (), tree.Uplink(
            oversubscription=4.0)),))))
    assert list(drawing.plane(tree.Plane('p', (), (root,)))) == [
        'plane p: rack < pod <', '  zone; 6 hosts', 'core (zone) 6 hosts',
        '├─ r1 (rack) 2 Gbit/s', '│      4 hosts: a,b,c,', '│      d',
        '└─ row (pod) 2 hosts', '   └─ r2 (rack) 4:1 2',
        '          hosts:', '          e[1-2]']
    assert drawing.without_leaf('p', ['host-1', 'host-2']) == [
        '2 hosts are in no leaf', '  of plane p: host-1,', '  host-2']
    # Names are whole, where they end a line.
    monkeypatch.setattr(drawing, 'WIDTH', 24)
    assert drawing.without_leaf('p', ['host-1', 'x-yz']) == [
        '2 hosts are in no leaf', '  of plane p: host-1,', '  x-yz']
