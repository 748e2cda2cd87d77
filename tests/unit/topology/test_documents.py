# SPDX-License-Identifier: Apache-2.0

"""Documents of topologies: their text, their lines, their bounds."""


import pytest

from virtco import exception
from virtco.topology import formats
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import plain
from virtco.topology.formats import slurm_conf
from virtco.topology.formats import topograph

PLANE = tree.Plane('p', (tree.Level('rack', tree.Uplink(None, None, 4.0)),), (
    tree.Node('core', (), (
        tree.Node('r2', ('n1', 'n2'), (), tree.Uplink(25e8, 25e8)),
        tree.Node('r1', ('b', 'a'), (), tree.Uplink(1e12, 5e8)),
        tree.Node('r0', (), (), tree.Uplink(1.5, None)))),))


def test_a_written_document_is_for_people():
    assert formats.write(tree.Topology((PLANE,)), formats.YAML).text == (
        'planes:\n'
        '- name: p\n'
        '  levels:\n'
        '  - name: rack\n'
        '    oversubscription: 4.0\n'
        '  nodes:\n'
        '  - name: core\n'
        '    nodes:\n'
        '    - name: r2\n'
        '      uplink: 2500Mbit\n'
        '      hosts: n[1-2]\n'
        '    - name: r1\n'
        '      uplink:\n'
        '        up: 1Tbit\n'
        '        down: 500Mbit\n'
        '      hosts: b,a\n'
        '    - name: r0\n'
        '      uplink:\n'
        '        up: 1.5\n')


@pytest.mark.parametrize('rate_bps, text', [
    (1e6, '1Mbit'), (1e9, '1Gbit'), (1e12, '1Tbit'), (999e9, '999Gbit'),
    (1e6 + 1, 1e6 + 1), (5e5, 5e5)])
def test_a_rate_is_written_with_its_largest_unit(rate_bps, text):
    assert plain.written_rate(rate_bps) == text


def uplink(given):
    (level,) = plain.read({'planes': [{'name': 'p', 'levels': [
        {'name': 'x'} | given]}]}).planes[0].levels
    return level.uplink


@pytest.mark.parametrize('given, read', [
    ({'uplink': 1e15}, (1e15, 1e15, None)),
    ({'uplink': 7}, (7, 7, None)),
    ({'uplink': {'up': '1Gbit'}}, (1e9, None, None)),
    ({'oversubscription': '2.5:1'}, (None, None, 2.5)),
    ({'oversubscription': 1e6}, (None, None, 1e6)), ({}, (None,) * 3)])
def test_an_uplink_that_is_read(given, read):
    assert uplink(given) == tree.Uplink(*read)


@pytest.mark.parametrize('given', [
    {'uplink': 1.01e15}, {'uplink': 0}, {'uplink': -1.0}, {'uplink': True},
    {'uplink': float('nan')}, {'uplink': [1]}, {'uplink': 'fast'},
    {'oversubscription': 1.01e6}, {'oversubscription': 0},
    {'oversubscription': False}, {'oversubscription': 'x:1'}])
def test_an_uplink_that_is_refused(given):
    with pytest.raises(laws.Wrong):
        uplink(given)


@pytest.mark.parametrize('given, words', [
    ({'uplink': '10GB'}, "uplink: .*such as 10Gbit, .*'10GB'"),
    ({'uplink': 'fast'}, "uplink: expected a rate such as .*'fast'"),
    ({'uplink': {'up': 'fast'}},
     "uplink up: expected a rate such as .*'fast'"),
    ({'uplink': -1}, 'a number above 0 and at most 1e.15'),
    ({'oversubscription': 'x'}, "oversubscription: .*at most 1e.06, got 'x'")])
def test_a_refused_uplink_is_told_with_what_it_may_be(given, words):
    with pytest.raises(laws.Wrong, match=words):
        uplink(given)


@pytest.mark.parametrize('path, line', [
    ((), 2), (('a',), 2), (('a', 0), 3), (('a', 1), 4), (('a', 1, 'b'), 4),
    # What is not there is near what is.
    (('a', 2), 2), (('c',), 2), (('a', 1, 'c'), 4), (('a', 'b'), 2),
    (('d', 0), 6), (('d',), 5)])
def test_the_line_of_a_value(path, line):
    text = '# text\na:\n- 1\n- b: 2\nd:\n- x\n'
    assert document.from_yaml(text).line(path) == line


def test_an_empty_document_has_no_lines():
    found = document.from_yaml('# nothing\n')
    assert found.value is None and found.line(('a',)) is None


def test_scalars_are_the_text_that_stands_there():
    assert document.from_yaml(
        '{a: 0012, b: 1.0, c: yes, d: ~, e: null, f: "", g: }').value == {
            'a': '0012', 'b': '1.0', 'c': 'yes', 'd': None, 'e': None,
            'f': '', 'g': None}


def test_nesting_is_bounded():
    most = document.MAX_NESTING
    assert document.from_yaml('[' * most + 'x' + ']' * most).value
    with pytest.raises(document.Unreadable, match=f'at most {most} levels'):
        document.from_yaml('\n' + '[' * (most + 1) + 'x' + ']' * (most + 1))


@pytest.mark.parametrize('text, line', [
    ('a: 1\n? [b]\n: 2\n', 2), ('a: 1\na: 2\n', 2), ('a: &x 1\nb: *x\n', 2),
    ('a:\n\tb: 1', 2), ('a: \x01', None), ('a: [\n', 2)])
def test_unreadable_yaml_names_its_line(text, line):
    with pytest.raises(document.Unreadable) as error:
        document.from_yaml(text)
    assert error.value.line == line


def test_unreadable_json_names_its_line_and_what_stands_there():
    with pytest.raises(document.Unreadable) as error:
        document.from_json('{"a": 1,\n "b": x23456789012345678901}')
    assert error.value.line == 2
    assert "'x2345678901234567890'" in str(error.value)


def test_json_of_any_depth_is_answered():
    with pytest.raises(document.Unreadable, match='less deeply nested'):
        document.from_json('[' * 200_000)


def test_the_largest_text_is_read(monkeypatch):
    monkeypatch.setattr(document, 'MAX_BYTES', 30)
    for read, text in ((document.from_yaml, ''), (document.from_json, '1'),
                       (document.from_lines, '')):
        read(text + ' ' * (30 - len(text)))
        with pytest.raises(document.Unreadable, match='at most 30'):
            read(text + ' ' * (31 - len(text)))


@pytest.mark.parametrize('n', [20, 21])
def test_at_most_20_instances_without_layers_are_told(n):
    read = topograph.load({'instances': [
        {'id': f'i{k}'} for k in range(n)]}, 'p')
    assert len(read.notices) == 20 and not read.topology.planes


def test_as_many_network_layers_as_levels():
    def read(n):
        return topograph.load({'instances': [
            {'id': 'h', 'network_layers': [f's{k}' for k in range(n)]}]}, 'p')

    assert read(laws.MAX_DEPTH).topology.planes[0].depth() == laws.MAX_DEPTH
    with pytest.raises(exception.TopologyInvalid):
        read(laws.MAX_DEPTH + 1)


def test_a_speed_without_a_unit_or_bound_is_left_out():
    for speed, rate_bps in (('10', None), ('10Gbit', 1e10), ('1e9Tbit', None),
                            ('1000Tbit', 1e15), ('1001Tbit', None),
                            ('0Gbit', None)):
        read = slurm_conf.load(f'SwitchName=a Nodes=h LinkSpeed={speed}\n',
                               'p')
        root, = read.topology.planes[0].roots
        assert root.uplink == tree.Uplink(rate_bps, rate_bps)
        assert len(read.notices) == (rate_bps is None)
    read = slurm_conf.load(f'SwitchName=a LinkSpeed={"9" * 41}\n', 'p')
    assert f'={"9" * 40} is no rate' in read.notices[0]


def test_a_picture_is_written(tmp_path):
    pytest.importorskip('matplotlib')
    from virtco.topology import plot
    plot.save(PLANE, str(tmp_path / 'plane.svg'))
    assert '<svg' in (tmp_path / 'plane.svg').read_text()


def test_where_a_picture_puts_switches_and_hosts():
    pytest.importorskip('matplotlib')
    from virtco.topology import plot
    spots, edges = {}, []
    assert plot._lay(PLANE.roots[0], 3.0, spots, edges) == 8.0
    assert {name.replace('\0', ' '): at for name, at in spots.items()} == {
        'host n1': (3, 0), 'host n2': (4, 0), 'node r2': (3.5, 1),
        'host b': (5, 0), 'host a': (6, 0), 'node r1': (5.5, 1),
        'node r0': (7, 1), 'node core': (5, 2)}
    assert [(a[5:], b[5:], text) for a, b, text in edges] == [
        ('r2', 'n1', ''), ('r2', 'n2', ''), ('core', 'r2', '2.5 Gbit/s'),
        ('r1', 'b', ''), ('r1', 'a', ''),
        ('core', 'r1', 'up 1 Tbit/s, down 500 Mbit/s'),
        ('core', 'r0', 'up 1.5 bit/s')]


@pytest.mark.parametrize('most_labels', [8, 7])
def test_what_a_picture_shows(monkeypatch, most_labels):
    """Eight spots: names are left out where there are too many."""
    pytest.importorskip('matplotlib')
    from virtco.topology import plot
    monkeypatch.setattr(plot, '_MAX_LABELS', most_labels)
    axes, = plot.picture(PLANE).axes
    assert axes.get_title() == 'plane p' and not axes.axison
    labels = {
        ('n1', 0, -0.08, 90), ('n2', 1, -0.08, 90), ('b', 2, -0.08, 90),
        ('a', 3, -0.08, 90), ('r2', 0.5, 0.92, 0), ('r1', 2.5, 0.92, 0),
        ('r0', 4, 0.92, 0), ('core', 2, 1.92, 0),
        ('2.5 Gbit/s', 1.25, 1.5, 0), ('up 1.5 bit/s', 3, 1.5, 0),
        ('up 1 Tbit/s, down 500 Mbit/s', 2.25, 1.5, 0)}
    assert {(text.get_text(), *text.get_position(), text.get_rotation())
            for text in axes.texts} == {
        ('rack', -0.5, 1, 0), ('pod', -0.5, 2, 0)} | (
            labels if most_labels == 8 else set())
    assert {tuple(zip(*line.get_data())) for line in axes.lines} == {
        ((0.5, 1), (0, 0)), ((0.5, 1), (1, 0)), ((2.5, 1), (2, 0)),
        ((2.5, 1), (3, 0)), ((2, 2), (0.5, 1)), ((2, 2), (2.5, 1)),
        ((2, 2), (4, 1))}
    colours = {}
    for spot in axes.collections:
        colours.setdefault(tuple(spot.get_facecolor()[0]), set()).add(
            spot.get_offsets()[0].tolist()[1])
    assert sorted(map(sorted, colours.values())) == [[0.0], [1.0, 2.0]]
    # Switches hide the ends of their lines.
    assert max(line.zorder for line in axes.lines) < min(
        spot.zorder for spot in axes.collections)


@pytest.mark.parametrize(('n_hosts', 'width'), [(1, 6), (40, 10), (241, 60)])
def test_a_wide_plane_has_a_wide_picture(monkeypatch, n_hosts, width):
    pytest.importorskip('matplotlib')
    from virtco.topology import plot
    monkeypatch.setattr(plot, '_MAX_LABELS', 0)
    plane = tree.Plane('p', (), (tree.Node('r', tuple(
        f'h{i}' for i in range(n_hosts))),))
    assert plot.picture(plane).get_size_inches().tolist() == [width, 4.5]


def test_a_table_without_a_name_for_hosts_has_them_first():
    plane, = formats.read('gpu,rack,pod\na,r1,p1\nb,r2,p1\nc,r3,p2\n', 'f',
                          formats.TABLE).topology.planes
    assert plane.level_names() == ('rack', 'pod')
    assert {node.name: node.hosts for node in plane.walk()} == {
        'p1': (), 'r1': ('a',), 'r2': ('b',), 'p2': (), 'r3': ('c',)}


def test_a_plane_is_as_deep_as_its_law_lets_it():
    def read(depth):
        node = {'name': 'n0'}
        for k in range(1, depth):
            node = {'name': f'n{k}', 'nodes': [node]}
        return plain.read({'planes': [{'name': 'p', 'nodes': [node]}]}
                          ).planes[0]

    assert read(laws.MAX_DEPTH).depth() == laws.MAX_DEPTH
    with pytest.raises(laws.Wrong, match='at most 16 levels'):
        read(laws.MAX_DEPTH + 1)


@pytest.mark.parametrize('above', ['3', '[a]', 'a'])
def test_switches_of_a_model_are_an_object(above):
    with pytest.raises(exception.InputInvalid, match='an object'):
        formats.read(f'blocks:\n- switch: s\nswitches: {above}\n', 'f')


def test_only_what_is_left_out_is_told():
    bare = tree.Topology((tree.Plane('p', (), (tree.Node('a', ('h',)),)),))
    named = tree.Topology((tree.Plane('p', (tree.Level('leaf'),), ()),))
    for name in (formats.SLURM_YAML, formats.SLURM_CONF, formats.TOPOGRAPH):
        assert formats.write(bare, name).notices == ()
        told, = formats.write(named, name).notices
        assert told.endswith('names no levels: their names are left out')
    assert formats.write(tree.Topology((PLANE,)),
                         formats.SLURM_YAML).notices[0] == (
        'topology.yaml tells no rates: 4 uplinks are without')


@pytest.mark.parametrize('plane, is_told', [
    (tree.Plane('p', (), (tree.Node('a', ('h',), (), tree.Uplink(
        1e9, 1e9)),)), False),
    (tree.Plane('p', (), (tree.Node('a', ('h',), (), tree.Uplink(
        1e9, 2e9)),)), True),
    (tree.Plane('p', (), (tree.Node('a', ('h',), (), tree.Uplink(
        1e9, 1e9, 4.0)), tree.Node('b')), ), True),
    (tree.Plane('p', (tree.Level('rack', tree.Uplink(1e9, 1e9)),),
                (tree.Node('a', ('h',)),)), True)])
def test_a_conf_tells_of_rates_that_it_cannot_say(plane, is_told):
    notices = formats.write(tree.Topology((plane,)),
                            formats.SLURM_CONF).notices
    assert any('tells no rates' in text for text in notices) == is_told
