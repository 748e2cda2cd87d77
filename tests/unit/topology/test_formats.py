# SPDX-License-Identifier: Apache-2.0

"""Every format: import(export(t)) = t, and errors that name the place."""

import dataclasses
import json
import re

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest
import yaml

from tests.unit.topology import made
from virtco import exception
from virtco.topology import formats
from virtco.topology import hostlist
from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import plain

NO_RATES = st.just(tree.NOT_GIVEN)
SPEEDS = st.one_of(NO_RATES, made.RATES.map(lambda r: tree.Uplink(r, r)))


def again(topology, name, **kwargs):
    return formats.read(formats.write(topology, name).text, 'file', name,
                        **kwargs).topology


@settings(max_examples=30)
@given(made.topologies())
def test_plain_yaml_keeps_everything(topology):
    assert again(topology, formats.YAML) == topology


@settings(max_examples=30)
@given(made.topologies(uplinks=NO_RATES, levels=False))
def test_slurm_yaml_keeps_all_planes(topology):
    assert again(topology, formats.SLURM_YAML) == topology


@settings(max_examples=30)
@given(made.topologies(planes=1, uplinks=SPEEDS, levels=False))
def test_slurm_conf_keeps_one_plane_and_its_speeds(topology):
    assert again(topology, formats.SLURM_CONF,
                 plane=topology.planes[0].name) == topology


@settings(max_examples=30)
@given(made.topologies(planes=1, uplinks=NO_RATES, levels=False,
                       empty=False))
def test_topograph_keeps_one_plane(topology):
    plane, = topology.planes
    found = again(topology, formats.TOPOGRAPH, plane=plane.name)
    assert found == topology


@settings(max_examples=30)
@given(made.topologies())
def test_what_a_format_cannot_say_is_told(topology):
    rates = any(node.uplink.is_given() for plane in topology.planes
                for node in plane.walk())
    notices = formats.write(topology, formats.SLURM_YAML).notices
    assert not rates or any('tells no rates' in text for text in notices)
    assert not any(p.levels for p in topology.planes) or any(
        'names no levels' in text for text in notices)


@settings(max_examples=30)
@given(made.topologies(), st.sampled_from(formats.NAMES))
def test_the_format_is_found_out(topology, name):
    topology = tree.Topology(topology.planes[:1])
    if name == formats.TOPOGRAPH or any(topology.planes[0].walk()):
        assert formats.detect(formats.write(topology, name).text) == name


@given(st.lists(made.NAMES, unique=True, max_size=30))
def test_host_lists_keep_hosts_and_order(hosts):
    assert hostlist.expand(hostlist.compress(hosts), 30) == tuple(hosts)


@given(st.lists(st.integers(0, 300), unique=True), st.integers(0, 4))
def test_numbered_hosts_keep_their_zeros(numbers, width):
    hosts = tuple(f'node{number:0{width}d}' for number in numbers)
    assert hostlist.expand(hostlist.compress(hosts), 400) == hosts


def test_ranges_are_short():
    hosts = [f'node{i:04d}' for i in range(1, 848)]
    assert hostlist.compress(hosts) == 'node[0001-0847]'
    assert hostlist.expand('r[1-2]n[08-10],x', 9) == (
        'r1n08', 'r1n09', 'r1n10', 'r2n08', 'r2n09', 'r2n10', 'x')


@pytest.mark.parametrize('text', [
    'n[1-3', 'n1-3]', 'n[3-1]', 'n[a-b]', 'n[[1-2]]', 'n[]', 'n 1',
    'n[0-999999999]', 'a[0-99999]b[0-99999]'])
def test_bad_host_lists_are_refused_at_once(text):
    with pytest.raises(ValueError):
        hostlist.expand(text, 1000)


TWO_LEAVES = '''
- topology: fabric
  tree:
    switches:
    - switch: core
      children: leaf[1-2]
    - switch: leaf1
      nodes: n[1-4]
    - switch: leaf2
      nodes: n[5-8]
'''
PLAIN = '''
planes:
- name: front-end
  levels:
  - {name: rack, oversubscription: 4}
  nodes:
  - name: rack1
    hosts: n[1-4]
    uplink: 10Gbit
  - name: rack2
    uplink: {up: 10Gbit, down: 5Gbit}
    hosts:
    - n[5-7]
    - n8
'''
CONF = '''
# two leaves
SwitchName=leaf1 Nodes=n[1-4] LinkSpeed=10Gbit
SwitchName=leaf2 Nodes=n[5-8]
SwitchName=core Switches=leaf[1-2]
'''
GRAPH = '''{"instances": [
\t{"id": "n1", "network_layers": ["leaf1", "core"], "labels": {}},
 {"id": "n2", "network_layers": ["leaf2", "core"]},
 {"id": "n3", "network_layers": ["core"]}
]}'''


@pytest.mark.parametrize('text, old, new, line, told', [
    (TWO_LEAVES, 'n[5-8]', 'n[4-8]', 9, 'node leaf2: hosts: .*, got \'n4\''),
    (TWO_LEAVES, 'leaf[1-2]', 'leaf[1-3]', 5, 'switch core: children: '
                                              '.*, got \'leaf3\''),
    (TWO_LEAVES, 'nodes: n[5-8]', 'children: leaf1', 9, 'below core'),
    (TWO_LEAVES, 'nodes: n[5-8]', 'children: leaf2', 9, 'leaf2'),
    (TWO_LEAVES, 'leaf[1-2]', 'core', 5, 'not below itself'),
    (TWO_LEAVES, 'switch: leaf2', 'switch: leaf1', 9, '\'leaf1\''),
    (TWO_LEAVES, 'switch: leaf2', 'switch: "leaf 2"', 9, '\'leaf 2\''),
    (TWO_LEAVES, 'nodes: n[5-8]', 'nodes: n[5-', 10, 'leaf2: nodes'),
    (TWO_LEAVES, 'tree:', 'ring:', 3, r'\[0\].ring: expected one of'),
    (TWO_LEAVES, 'children: leaf[1-2]', 'children: [leaf1]', 6,
     r'\[0\].children: expected a string'),
    (TWO_LEAVES, 'n[5-8]', '&a n[5-8]\n      x: *a', 11, 'aliases'),
    (TWO_LEAVES, '- switch: leaf2', '- switch: leaf2\n      switch: leaf3',
     10, 'each once'),
    (TWO_LEAVES, '    switches:', '   switches:\n - x', 5, 'YAML'),
    (PLAIN, 'n[5-7]', 'n[4-7]', 12, 'rack2: hosts: .*, got \'n4\''),
    (PLAIN, '- n8', '- n7', 12, 'rack2: hosts: .*, got \'n7\''),
    (PLAIN, '10Gbit', '10GB', 9, 'node rack1: uplink: .*, got \'10GB\''),
    (PLAIN, 'down: 5Gbit', 'down: -5', 11, 'node rack2: uplink down'),
    (PLAIN, 'down: 5Gbit', 'left: 5Gbit', 11,
     'uplink.left: expected one of up, down, got "5Gbit"'),
    (PLAIN, 'oversubscription: 4', 'oversubscription: none', 5,
     'level rack: oversubscription'),
    (PLAIN, 'oversubscription: 4', 'oversubscription: .inf', 5,
     'level rack: oversubscription'),
    (PLAIN, 'name: rack2', 'name: rack1', 10, '\'rack1\''),
    (PLAIN, 'name: front-end', 'name: front-end\n  colour: red', 4,
     'colour: expected one of name, levels, nodes, got "red"'),
    (CONF, 'Nodes=n[5-8]', 'Nodes=n[4-8]', 4,
     'node leaf2: hosts: .*, got \'n4\''),
    (CONF, 'Nodes=n[5-8]', 'Nodes=n[5-8] Colour=red', 4, '\'Colour=red\''),
    (CONF, 'leaf[1-2]', 'leaf[1-3]', 5, '\'leaf3\''),
    (CONF, 'SwitchName=leaf2 ', '', 4, 'SwitchName'),
    (GRAPH, '"n3"', '"n2"', 4, 'instance 3: .*, got \'n2\''),
    (GRAPH, '["leaf2", "core"]', '["leaf1", "cor"]', 3, 'leaf1 is below'),
    (GRAPH, '["leaf2", "core"]', '"leaf1"', 3, 'instance n2'),
    (GRAPH, '["leaf2", "core"]', '["core", "core"]', 3, 'each switch once'),
    (GRAPH, '["core"]', '["core" "x"]', 4, 'JSON'),
    (GRAPH, '"n3"', '["n3"]', 4, 'instance 3'),
])
def test_errors_name_line_and_node(text, old, new, line, told):
    assert text.count(old) in (1, 2)
    with pytest.raises(exception.InputInvalid) as error:
        formats.read(text.replace(old, new, 1), 'net.yaml')
    assert str(error.value).startswith(f'net.yaml, line {line}: ')
    assert re.search(told, str(error.value))
    assert '\n' not in str(error.value)


def test_slurm_files_of_the_manual():
    found = formats.read(TWO_LEAVES, 'f').topology
    assert found == formats.read(
        TWO_LEAVES.replace('nodes: n[1-4]', 'nodes: n1,n[2-4]'), 'f').topology
    plane, = found.planes
    assert plane.level_names() == ('rack', 'pod')
    assert list(plane.hosts()) == [f'n{i}' for i in range(1, 9)]
    conf = formats.read(CONF, 'f', plane='fabric').topology.planes[0]
    assert [n.name for n in conf.walk()] == [n.name for n in plane.walk()]
    assert next(n for n in conf.walk() if n.name == 'leaf1'
                ).uplink.up_bps == 10e9


def test_blocks_are_leaves_and_flat_says_nothing():
    found = formats.read(
        '- topology: a\n  block:\n    block_sizes: [4, 16]\n    blocks:\n'
        '    - {block: b1, nodes: "n[01-04]"}\n'
        '    - {block: b2, nodes: "n[05-08]"}\n'
        '- {topology: b, flat: true}\n', 'f')
    assert [n.name for n in found.topology.planes[0].roots] == ['b1', 'b2']
    assert found.notices == ('topology b is flat and was left out',)


def test_an_instance_of_topograph_without_a_domain():
    """Topograph names one so that it could not find."""
    graph = json.loads(GRAPH)
    graph['instances'][0]['labels'] = {
        'accelerator.topograph.run/domain': 'no-topology'}
    read = formats.read(json.dumps(graph), 'f')
    assert read == formats.read(GRAPH, 'f')


def test_topograph_domains_are_a_plane():
    graph = json.loads(GRAPH)
    for i, instance in enumerate(graph['instances']):
        instance['labels'] = {
            'accelerator.topograph.run/domain': 'nvl1',
            'accelerator.topograph.run/sub-domain': f'nvl1.{i // 2}'}
    graph['instances'].append({'id': 'n9', 'network_layers': []})
    read = formats.read(json.dumps(graph), 'f')
    front, accelerator = read.topology.planes
    assert front.depth() == 2
    assert front.roots[0].hosts == ('n3',)
    assert accelerator.level_names() == ('sub-domain', 'domain')
    assert [n.hosts for n in accelerator.walk()] == [
        (), ('n1', 'n2'), ('n3',)]
    assert read.notices == ('instance n9 has no network layers',)
    written = json.loads(formats.write(read.topology,
                                       formats.TOPOGRAPH).text)['instances']
    assert sorted(written, key=lambda i: i['id']) == graph['instances'][:3]
    # Of more levels, the nearest and the outermost are the two that it has.
    deep = tree.Topology((tree.Plane(accelerator.name, roots=(tree.Node(
        'outer', children=(tree.Node('middle', children=(
            tree.Node('inner', hosts=('n1',)),)),)),)),))
    assert json.loads(formats.write(deep, formats.TOPOGRAPH).text)[
        'instances'][0]['labels'] == {
            'accelerator.topograph.run/domain': 'outer',
            'accelerator.topograph.run/sub-domain': 'inner'}
    # The format names the accelerators' levels itself.
    for topology in (read.topology, tree.Topology((accelerator,))):
        assert formats.write(topology, formats.TOPOGRAPH).notices == ()


def test_levels_can_be_named_and_one_plane_renamed():
    topology = formats.read(TWO_LEAVES, 'f', plane='front-end').topology
    named = formats.renamed(topology, ('leaf', 'core'))
    assert named.planes[0].name == 'front-end'
    assert named.planes[0].level_names() == ('leaf', 'core')
    with pytest.raises(exception.TopologyInvalid, match='no other level'):
        formats.renamed(topology, ('leaf', 'leaf'))


def chain(n):
    """Write so many switches, each below the one before."""
    return ''.join(f'SwitchName=s{i} Switches=s{i + 1}\n'
                   for i in range(n - 1)) + f'SwitchName=s{n - 1} Nodes=h\n'


def test_switches_that_name_their_children_are_bounded():
    assert formats.read(chain(16), 'f').topology.planes[0].depth() == 16
    with pytest.raises(exception.InputInvalid,
                       match='line 17: .*node s16.*at most 16 levels'):
        formats.read(chain(17), 'f')


def test_the_first_topology_of_slurm_is_the_cluster_default():
    text = formats.write(tree.Topology(tuple(
        tree.Plane(name) for name in 'abc')), formats.SLURM_YAML).text
    assert [found['cluster_default'] for found in yaml.safe_load(text)] == [
        True, False, False]


def test_files_are_bounded():
    deep = 'planes:\n- name: p\n  nodes:\n'
    for i in range(laws.MAX_DEPTH + 1):
        deep += '  ' * i + f'  - name: s{i}\n' + '  ' * i + '    nodes:\n'
    with pytest.raises(exception.InputInvalid, match='at most 16 levels'):
        formats.read(deep, 'f')
    for text in ('[' * 5000, '{"a":' * 5000):
        with pytest.raises(exception.InputInvalid):
            formats.read(text, 'f')
    with pytest.raises(exception.InputInvalid, match='characters'):
        formats.read(' ' * (2 ** 24 + 1), 'f')
    with pytest.raises(exception.InputInvalid, match='more than 100000'):
        formats.read('SwitchName=a Nodes=n[1-100001]', 'f')


@given(st.text(max_size=200), st.sampled_from(formats.READ))
def test_any_text_ends_in_a_topology_or_one_line(text, name):
    try:
        read = formats.read(text, 'f', name)
    except exception.InputInvalid as error:
        assert '\n' not in str(error)
    else:
        assert plain.load(plain.dump(read.topology)) == read.topology


@settings(max_examples=30)
@given(made.topologies())
def test_what_is_read_keeps_the_laws(topology):
    assert plain.load(plain.dump(topology)) == topology
    plane = topology.planes[0]
    root = plane.roots[0]
    twice = dataclasses.replace(plane, roots=(*plane.roots, root))
    with pytest.raises(exception.TopologyInvalid):
        plain.load(plain.dump(tree.Topology((twice,))))


TABLE = """ip,DSW,PSW,ASW
h1,G6,P8,S1
h2,G6,P8,S1
h3,G6,P8,S2
h4,G6,P9,S1
h5,G6,P9,S3
"""


def test_a_table_names_the_switches_of_each_host():
    plane, = formats.read(TABLE, 'f').topology.planes
    assert [level.name for level in plane.levels] == ['ASW', 'PSW', 'DSW']
    root, = plane.roots
    assert root.name == 'G6'
    assert [node.name for node in root.children] == ['P8', 'P9']
    # S1 stands below both.
    assert {node.name: node.hosts for node in plane.walk() if node.hosts} == {
        'G6.P8.S1': ('h1', 'h2'), 'S2': ('h3',), 'G6.P9.S1': ('h4',),
        'S3': ('h5',)}
    # From the host upwards it is the same.
    up = '\n'.join(','.join(line.split(',')[::-1])
                   for line in TABLE.splitlines())
    assert formats.read(up, 'f').topology.planes[0].roots == plane.roots


@pytest.mark.parametrize('header, name', [
    ('rack,Host', formats.TABLE), ('ip,node', formats.TABLE),
    ('rack,row', formats.YAML), ('host', formats.YAML)])
def test_a_table_is_known_by_its_column_of_hosts(header, name):
    assert formats.detect(header + '\n1,2\n') == name


def test_a_table_of_racks_only():
    plane, = formats.read('host,rack\na,r1\nb,r2\nc,r1\n', 'f'
                          ).topology.planes
    assert {node.name: node.hosts for node in plane.roots} == {
        'r1': ('a', 'c'), 'r2': ('b',)}


@pytest.mark.parametrize('text, words', [
    ('host,rack\n', '1 lines'), (TABLE + 'h1,G6,P8,S1\n', 'line 7: host'),
    (TABLE + 'h6,G6,P8\n', 'line 7: columns: .*, got 3'),
    (TABLE + 'h6,G6,,S1\n', "line 7: PSW: .*, got ''"),
    ('host,rack,rack\na,b,c\n', 'each name once'),
    ('host,' + ','.join(f'l{i}' for i in range(17)) + '\na' + ',b' * 17,
     'columns: .*, got 18')])
def test_a_wrong_table_names_the_line(text, words):
    with pytest.raises(exception.InputInvalid, match=words):
        formats.read(text, 'f')


MODEL = """# a picture
switches:
  core:
    labels: {zone: z1}
    switches: [s1, s2]
  s2:
    switches:
    - rack-3
    - rack-4
blocks:
- switch: s1
  nodes: ["n[01-02]", n05]
  annotations: {domain: nvl1}
- switch: rack-3
  nodes: ["[7-8]"]
"""


def test_a_model_of_topograph():
    plane, = formats.read(MODEL, 'f').topology.planes
    root, = plane.roots
    assert {node.name: node.hosts for node in plane.walk()} == {
        'core': (), 's1': ('n01', 'n02', 'n05'), 's2': (),
        'rack-3': ('7', '8'), 'rack-4': ()}
    for wrong, words in (
            (MODEL.replace('-02]', '-02'), 'switch s1: nodes'),
            (MODEL.replace('- rack-4', '- s1'), 's2: children'),
            ('blocks:\n- x\n', r'blocks\[0\]: .*an object'),
            ('blocks: 3\n', 'blocks'),
            ('switches: 3\nblocks: []\n', 'switches')):
        with pytest.raises(exception.InputInvalid, match=words):
            formats.read(wrong, 'f')


def planes(n, entry):
    return ''.join(entry.format(i) for i in range(n))


@pytest.mark.parametrize('name, text, words', [
    (formats.SLURM_YAML, 'a: 1', 'document: .*an array'),
    (formats.SLURM_YAML, planes(17, '- {{topology: t{}, flat: true}}\n'),
     'at most 16'),
    (formats.SLURM_YAML, planes(2, '- {{topology: t, flat: true, x{0}: 1}}\n'),
     'x0: expected one of topology, cluster_default, tree, block, flat, got'),
    (formats.SLURM_YAML, planes(2, '- {{topology: t, tree: {{}}}}\n'),
     'line 2: .*no other topology has'),
    (formats.SLURM_YAML, '- {topology: a, flat: true, tree: {}}',
     'exactly one of'),
    (formats.SLURM_YAML, '- topology: a', 'exactly one of'),
    (formats.SLURM_YAML, '- {topology: a, tree: 3}',
     'tree: expected an object'),
    (formats.SLURM_YAML, '- {topology: a, tree: {switches: x}}',
     r'\[0\].tree.switches: .*an array'),
    (formats.SLURM_YAML, '- {topology: a, block: {blocks: [{block: b, '
                         'children: c}]}}', 'one of block, nodes'),
    (formats.YAML, '3', 'document: expected an object'),
    (formats.YAML, 'planes: 3', 'planes: .*an array'),
    (formats.YAML, 'planes:\n' + planes(17, '- name: p{}\n'), 'at most 16'),
    (formats.YAML, 'planes:\n- name: p\n- name: p\n',
     'line 3: .*no other plane has'),
    (formats.YAML, 'planes:\n- name: p\n  name: q\n',
     'line 3: .*text, each once'),
    (formats.YAML, 'planes: [{name: p, nodes: [{name: a, hosts: [[x]]}]}]',
     r'hosts\[0\]: expected a string'),
    (formats.YAML, 'planes: [{name: p, nodes: [{name: a, hosts: {x: y}}]}]',
     'hosts: expected a string or an array'),
    (formats.YAML, 'planes: [{name: p, nodes: [{name: a, hosts: ["n["]}]}]',
     'a host list .brackets'),
    (formats.YAML, 'planes: [{name: p, nodes: [{name: a, hosts: '
                   '["n[1-60000]", "n[60001-100001]"]}]}]',
     'more than 40000 names'),
    (formats.TOPOGRAPH, '[]', 'an object with instances'),
    (formats.TOPOGRAPH, '{"instances": 3}', 'an object with instances'),
    (formats.TOPOGRAPH, '{"instances": [3]}', 'instance 1: .*an object'),
    (formats.TOPOGRAPH_MODEL, '- a', 'document: expected an object'),
    (formats.TOPOGRAPH_MODEL, 'switches: {"a b": {}}',
     "switch: .*, got 'a b'"),
    (formats.TOPOGRAPH_MODEL, 'switches: {a: {switches: ["b c"]}}',
     "switch a: switches: .*, got 'b c'"),
    (formats.TABLE, 'host,a b\nh,x\n', "line 1: column: .*, got 'a b'"),
    (formats.TABLE, 'host,rack\nh,' + 'x' * 140_000, 'line 2: .*lines of CSV')
])
def test_what_no_file_says(name, text, words):
    with pytest.raises(exception.InputInvalid, match=words):
        formats.read(text, 'f', name)


def test_as_many_planes_as_there_may_be():
    for name, text in (
            (formats.SLURM_YAML, planes(16, '- {{topology: t{}, tree: {{}}}}\n'
                                        )),
            (formats.YAML, 'planes:\n' + planes(16, '- name: p{}\n'))):
        assert len(formats.read(text, 'f', name).topology.planes) == 16


def test_what_is_named_is_one_plane():
    text = 'planes:\n- name: p\n- name: q\n'
    with pytest.raises(exception.InputInvalid,
                       match='nothing for a file with 2'):
        formats.read(text, 'f', plane='front')
    with pytest.raises(exception.InputInvalid, match=(
            "^f: plane: .*letters.*, got 'a b'")):
        formats.read(text, 'f', plane='a b')
    with pytest.raises(exception.TopologyInvalid,
                       match="level: .*, got 'a b'"):
        formats.renamed(formats.read(text, 'f').topology, ('a b',))
    two = formats.read(text, 'f').topology
    with pytest.raises(laws.Wrong, match='planes: .*, got 2'):
        formats.write(two, formats.SLURM_CONF)
    with pytest.raises(laws.Wrong, match='planes: .*, got 2'):
        formats.write(two, formats.TOPOGRAPH)


def test_renaming_keeps_higher_levels_and_all_uplinks():
    plane = tree.Plane('p', (
        tree.Level('a', tree.Uplink(1e9)), tree.Level('b', tree.Uplink(2e9)),
        tree.Level('c')), (tree.Node('r', ('h',)),))
    found, = formats.renamed(tree.Topology((plane,)), ('x', 'y')).planes
    assert found.levels == (
        tree.Level('x', tree.Uplink(1e9)), tree.Level('y', tree.Uplink(2e9)),
        tree.Level('c'))


@pytest.mark.parametrize('text, name', [
    (99 * 'a: 1\n' + 'SwitchName=a', formats.SLURM_CONF),
    (100 * 'a: 1\n' + 'SwitchName=a', formats.YAML),
    ('# x\n\n  blockname=b Nodes=c', formats.SLURM_CONF),
    ('---\n# x\n- topology: a', formats.SLURM_YAML),
    ('---\n---\n- topology: a', formats.YAML),
    ('\n {"instances": []}', formats.TOPOGRAPH), ('{"planes": []}',
                                                  formats.YAML),
    ('# "instances"\nplanes: []', formats.YAML),
    ('blocks: \n- switch: a', formats.TOPOGRAPH_MODEL), ('', formats.YAML)])
def test_what_a_text_looks_like(text, name):
    assert formats.detect(text) == name


@pytest.mark.parametrize('hosts, text', [
    (['n1'], 'n1'), (['n1', 'n3'], 'n[1,3]'), (['n1', 'n2'], 'n[1-2]'),
    (['x', 'x1'], 'x,x1'), (['x1', 'x'], 'x1,x'),
    (['n9', 'n10'], 'n[9-10]'), (['n1', 'n02'], 'n[1,02]'),
    (['n09', 'n10', 'n11', 'm1', 'n12'], 'n[09-11],m1,n12'),
    (['a1b', 'a2b'], 'a1b,a2b'), (['9', '10', '12'], '[9-10,12]')])
def test_the_shortest_list_of_hosts(hosts, text):
    assert hostlist.compress(hosts) == text
    assert hostlist.expand(text, len(hosts)) == tuple(hosts)
    with pytest.raises(ValueError, match=f'more than {len(hosts) - 1} names'):
        hostlist.expand(text, len(hosts) - 1)


def test_ranges_as_slurm_has_them():
    assert hostlist.expand(' a[ 1 - 2 , 07],, b[3-3] ', 4) == (
        'a1', 'a2', 'a07', 'b3')
    for text, words in (('n[2-1]', 'ends before'), ('a]b[', 'do not match'),
                        ('a[[1]]', 'do not match'), ('a[1', 'do not match'),
                        ('a b', 'is not a host list'),
                        ('a[x]', r'\[x\] is not a range|not a host list')):
        with pytest.raises(ValueError, match=words):
            hostlist.expand(text, 9)
