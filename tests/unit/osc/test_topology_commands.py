# SPDX-License-Identifier: Apache-2.0

"""``virtco topology …``: what is asked, printed and written."""

import dataclasses

import msgspec
from osc_lib import exceptions as osc_exceptions
import pytest

from tests.unit.osc import controller
from tests.unit.topology import made
from virtco import exception
from virtco.osc import matrices
from virtco.osc import topology_commands as topology
from virtco.topology import formats
from virtco.topology import nova_topology as nova
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import plain
from virtco.wire import check as wire


def dumped(topology):
    return msgspec.to_builtins({'planes': plain.dump(topology)})


TWO = dumped(made.two_racks())
#: The same tree without its top; it has a rack less than the front end.
STORAGE = dumped(tree.Topology((tree.Plane(
    'storage', (tree.Level('leaf'),), (tree.Node('s1', ('h1',)),)),)))


def _change(name='r1', plane=tree.FRONT_END):
    return {'plane': plane, 'kind': 'node', 'name': name, 'before': None,
            'after': 'below the top'}


def _changing(changes, without=()):
    return controller.Controller(**{
        'PUT /v1/topology': {
            'changes': changes,
            'hosts_without_leaf': {tree.FRONT_END: list(without)}},
        'GET /v1/topology': TWO})


@pytest.fixture
def path(tmp_path):
    found = tmp_path / 'topology.yaml'
    found.write_text(document.to_yaml(TWO))
    return str(found)


@pytest.mark.parametrize(('n', 'argv', 'last'), [
    (0, [], 'Nothing would change.'),
    (2, [], '2 changes; --apply makes them.'),
    (2, ['--apply'], '2 changes applied.'),
    (0, ['--apply'], '0 changes applied.')])
def test_an_import_tells_what_it_changes(n, argv, last, path):
    one = _changing([_change(f'r{i}') for i in range(n)], ['h9'])
    _, out, told = controller.run(topology.Import, one, path, *argv)
    assert out.splitlines() == [
        *([f'plane {tree.FRONT_END}'] if n else []),
        *(f'  + node r{i}: below the top' for i in range(n)),
        f'1 hosts are in no leaf of plane {tree.FRONT_END}: h9', last]
    assert told == ''
    (_, _, body), = one.asked
    assert body == {'planes': TWO['planes'], 'dry_run': not argv}


def test_changes_stand_below_their_planes(path):
    _, out, _ = controller.run(topology.Import, _changing(
        [_change('a'), _change('b'), _change('c', 'storage')]), path)
    assert out.splitlines()[:5] == [
        f'plane {tree.FRONT_END}', '  + node a: below the top',
        '  + node b: below the top', 'plane storage',
        '  + node c: below the top']


@pytest.mark.parametrize('more', [0, 1])
def test_many_changes_are_counted(more, path):
    n = topology.MAX_LISTED + more
    _, out, _ = controller.run(topology.Import, _changing(
        [_change(f'r{i}') for i in range(n)]), path)
    lines = out.splitlines()
    assert f'  + node r{topology.MAX_LISTED - 1}: below the top' in lines
    assert ('  … and 1 more' in lines) == bool(more)
    assert len(lines) == topology.MAX_LISTED + 2 + more
    assert lines[-1].startswith(f'{n} changes;')


def test_an_import_names_planes_and_levels(path):
    one = _changing([])
    controller.run(topology.Import, one, path, '--levels', 'tor, spine',
                   '--plane', 'ib', '--format', 'yaml')
    ((sent,),) = (body['planes'] for _, _, body in one.asked)
    assert [level['name'] for level in sent['levels']] == ['tor', 'spine']
    assert sent['name'] == 'ib'


def test_an_import_tells_what_was_left_out(tmp_path):
    found = tmp_path / 'topology.conf'
    found.write_text('SwitchName=s1 Nodes=h[1-2] LinkSpeed=3\n')
    _, _, told = controller.run(topology.Import, _changing([]), str(found))
    assert told.startswith('Notice: ') and told.endswith('.\n')


def test_there_may_be_nothing_to_import(tmp_path):
    found = tmp_path / 'topology.yaml'
    found.write_text('planes: []\n')
    with pytest.raises(osc_exceptions.CommandError, match='nothing to imp'):
        controller.run(topology.Import, _changing([]), str(found))


@pytest.mark.parametrize('argv', [[], ['f', '--from-nova']])
def test_an_import_wants_a_file_or_nova(argv):
    with pytest.raises((SystemExit, osc_exceptions.CommandError)):
        controller.run(topology.Import, _changing([]), *argv)


def test_an_import_from_nova_wants_a_login():
    with pytest.raises(exception.Invalid, match='keystone'):
        controller.run(topology.Import, _changing([]), '--from-nova')


@pytest.mark.parametrize(('argv', 'plane', 'levels'), [
    ([], tree.FRONT_END, tree.LEVEL_NAMES),
    (['--plane', 'ib', '--levels', 'rack'], 'ib', ('rack',))])
def test_aggregates_of_nova_are_imported_as_racks(argv, plane, levels,
                                                  monkeypatch):
    asked = []

    def read(session, levels):
        asked.append((session, levels))
        return [nova.Aggregate('a', ('h1',), {'virtco:rack': 'r7'}, None)], {}

    monkeypatch.setattr(topology.nova_facts, 'read', read)
    one = _changing([])
    controller.run(topology.Import, one, '--from-nova', *argv,
                   session='login')
    assert asked == [('login', levels)]
    ((sent,),) = (body['planes'] for _, _, body in one.asked)
    (read_plane,) = plain.read({'planes': [sent]}).planes
    assert read_plane.name == plane
    assert [(node.name, node.hosts) for node in read_plane.walk()
            if node.hosts] == [('r7', ('h1',))]


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(exception.Invalid, match='no such file'):
        controller.run(topology.Import, _changing([]), '/none/t.yaml')
    found = tmp_path / 'bytes'
    found.write_bytes(b'\xff\xfe')
    with pytest.raises(exception.Invalid, match='UTF-8'):
        controller.run(topology.Import, _changing([]), str(found))


DONE = {'check_id': 'c', 'state': 'done', 'hosts': ['r1-h0'],
        'n_rounds': 4, 'seconds': 1.0, 'sent_bytes': 0.0, 'n_failed': 0}


def _found(*names):
    """Planes as measurements find them, without names that mean anything."""
    (plane,) = made.two_racks().planes
    (core,) = plane.roots
    return dumped(tree.Topology((dataclasses.replace(
        plane, name='measured', levels=(tree.Level('level-1'),
                                        tree.Level('level-2')),
        roots=(dataclasses.replace(core, children=tuple(
            dataclasses.replace(node, name=name) for node, name in zip(
                core.children, names))),)),)))['planes']


@pytest.mark.parametrize(('argv', 'levels', 'name', 'applied'), [
    ([], ['rack', 'pod'], tree.FRONT_END, False),
    (['--levels', 'tor,top', '--apply'], ['tor', 'top'], tree.FRONT_END,
     True)])
def test_a_tree_that_was_measured_takes_known_names(argv, levels, name,
                                                    applied):
    one = _changing([])
    one.answers['POST /v1/checks'] = DONE | {'planes': _found('n1', 'n2')}
    _, _, told = controller.run(topology.Import, one, '--measure', *argv)
    done = controller.made(wire.Check, **DONE)
    assert told == f'{matrices.effort(done)}.\n'
    assert one.asked[0][2] == {'purpose': 'discover'}
    sent = one.asked[-1][2]
    (plane,) = plain.read({'planes': sent['planes']}).planes
    assert plane.name == name and sent['dry_run'] != applied
    assert [level.name for level in plane.levels] == levels
    assert {node.name for node in plane.walk()} == {'core', 'r1', 'r2'}


def test_hosts_and_the_plane_of_a_discovery():
    one = _changing([])
    one.answers['POST /v1/checks'] = DONE | {'planes': _found('n1', 'n2')}
    controller.run(topology.Import, one, '--measure', '--hosts', 'a,b',
                   '--plane', 'x')
    assert one.asked[0][2] == {'purpose': 'discover', 'hosts': ['a', 'b']}
    (plane,) = one.asked[-1][2]['planes']
    assert plane['name'] == 'x'
    assert {node['name'] for node in plane['nodes'][0]['nodes']} == {
        'n1', 'n2'}


def test_nothing_is_changed_where_no_uplink_is_narrow():
    one = controller.Controller(**{
        'POST /v1/checks': DONE | {'planes': []}})
    _, out, _ = controller.run(topology.Import, one, '--measure')
    assert out.startswith('No uplink is oversubscribed')
    assert len(one.asked) == 1


def test_the_wait_for_a_discovery():
    parser = topology.Import(None, None).get_parser('x')
    argv = ['--measure']
    assert parser.parse_args(argv).timeout == 3600
    assert parser.parse_args([*argv, '--timeout', '1.5']).timeout == 1.5


BOTH = {'planes': TWO['planes'] + STORAGE['planes'],
        'hosts_without_leaf': {tree.FRONT_END: [], 'storage': ['h7', 'h8']}}


def _showing(found=BOTH):
    return controller.Controller(**{'GET /v1/topology': found})


@pytest.mark.parametrize(('argv', 'planes'), [
    ([], BOTH['planes']), (['--plane', 'storage'], STORAGE['planes'])])
def test_a_file_is_what_an_import_reads(argv, planes):
    _, out, told = controller.run(topology.Show, _showing(), '--format',
                                  'yaml', *argv)
    read = formats.read(out, 'out').topology
    assert dumped(read)['planes'] == planes and told == ''


def test_a_file_that_leaves_something_out_says_so():
    _, out, told = controller.run(topology.Show, _showing(),
                                  '--format', 'slurm-conf',
                                  '--plane', 'storage')
    assert out and told
    assert all(line.startswith('Notice: ') and line.endswith('.')
               for line in told.splitlines())


def test_a_plane_that_is_not_there():
    with pytest.raises(osc_exceptions.CommandError, match="no plane 'x'"):
        controller.run(topology.Show, _showing(), '--plane', 'x')


def test_planes_are_drawn_with_the_hosts_they_lack():
    _, out, _ = controller.run(topology.Show, _showing())
    lines = out.splitlines()
    assert lines[0] == f'plane {tree.FRONT_END}: rack < pod; 8 hosts'
    assert 'plane storage: leaf; 1 hosts' in lines
    assert lines[-1] == '2 hosts are in no leaf of plane storage: h7, h8'
    _, out, _ = controller.run(topology.Show, _showing(
        {'planes': [], 'hosts_without_leaf': {}}))
    assert out.startswith('There is no topology')


def test_the_front_end_is_drawn_before_other_planes(monkeypatch):
    drawn = []
    monkeypatch.setattr(topology.base, 'save_plot',
                        lambda *args: drawn.append(args))
    turned = TWO | {'planes': [*STORAGE['planes'], *TWO['planes']],
                    'hosts_without_leaf': {}}
    for found, argv in ((turned, ()), (turned, ('--plane', 'storage')),
                        (STORAGE | {'hosts_without_leaf': {}}, ())):
        _, out, _ = controller.run(topology.Show, _showing(found), '--plot',
                                   'x.svg', *argv)
        assert out == ''
    assert [(plane.name, path) for _, plane, path in drawn] == [
        (tree.FRONT_END, 'x.svg'), ('storage', 'x.svg'),
        ('storage', 'x.svg')]


def test_there_may_be_nothing_to_draw():
    with pytest.raises(osc_exceptions.CommandError, match='nothing to draw'):
        controller.run(topology.Show, _showing({'planes': []}), '--plot',
                       'x.svg')


def test_a_plane_is_deleted():
    one = controller.Controller(**{'DELETE /v1/topology/storage': None})
    controller.run(topology.Delete, one, 'storage')
    assert one.asked == [('DELETE', '/v1/topology/storage', None)]
