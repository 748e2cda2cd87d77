# SPDX-License-Identifier: Apache-2.0

"""``virtco group advise``: its tables, and files for launchers."""

import io

import msgspec
from osc_lib import exceptions as osc_exceptions
import pytest

from tests.unit.osc import controller
from virtco import exception
from virtco.osc import advise
from virtco.osc import launchers
from virtco.wire import group as wire

MEMBERS = [
    {'display_name': 'vm-a', 'instance_uuid': 'u0', 'host': 'h1',
     'addresses': ['192.0.2.1', '192.0.2.9']},
    {'display_name': 'vm-b', 'instance_uuid': 'u1', 'host': None,
     'addresses': ['192.0.2.2']},
    {'display_name': None, 'instance_uuid': 'u2', 'host': 'h3',
     'addresses': ['192.0.2.3']}]


def _estimate(matrix, predicted_s, **values):
    return {'matrix': matrix, 'predicted_s': predicted_s, 'bound_s': 0.5,
            'as_chosen_s': 0.75, 'n_measured': 3, 'n_pairs': 4,
            'noise': None, 'estimator': 'rpca', 'trust': 'good'} | values


TREE = {'operation': 'broadcast', 'size_bytes': 8e6, 'root': 1,
        'group_name': 'g', 'members': MEMBERS, 'order': [1, 2, 0],
        'matrix': 'rpca',
        'trees': [{'tree': 'fnf', 'n_segments': 4,
                   'edges': [[1, 2], [1, 0]]}],
        'orders': [{'shape': 'binomial', 'predicted_s': 2.0, 'n_segments': 3,
                    'order': [1, 2, 0]},
                   {'shape': 'chain', 'predicted_s': 3.0, 'n_segments': 1,
                    'order': [1, 0, 2]}],
        'estimates': [_estimate('constant', {'fnf': 1.0, 'flat': 3.0}),
                      _estimate('rpca', {'fnf': 4.0, 'flat': 2.0})]}
MAPPING = {'operation': 'all_reduce', 'size_bytes': 1e9, 'group_name': 'g',
           'members': MEMBERS, 'order': [2, 0, 1], 'matrix': 'rpca',
           'mappings': [{'mapping': 'greedy', 'gap': 0.125,
                         'predicted_s': 4.0}],
           'estimates': TREE['estimates']}


def _tree(*argv, sent=('--broadcast', '8MB'), **values):
    one = controller.Controller(**{'GET /v1/groups/g/tree': TREE | values})
    _, out, told = controller.run(advise.Advise, one, 'g', *sent, *argv)
    return out, told, one.asked[0][1].partition('?')[2]


def _mapping(*argv, stdin='', **values):
    one = controller.Controller(**{
        'POST /v1/groups/g/mapping': MAPPING | values})
    _, out, told = controller.run(advise.Advise, one, 'g', *argv,
                                  stdin=stdin)
    return out, told, one.asked[0][1:]


def _cells(line):
    return [cell.strip() for cell in line.strip('|').split('|')]


def test_a_tree_is_shown():
    out, _, asked = _tree()
    assert asked == ('root=0&size_bytes=8000000.0&operation=broadcast'
                     '&matrix=constant')
    lines = out.splitlines()
    assert lines[0] == 'Broadcast of 8 MB from row 1 in group g of 3 VMs'
    cells = [_cells(line) for line in lines if line.startswith('|')]
    # By the estimate that was chosen, not by the first.
    assert cells == [
        ['Tree', 'constant', 'rpca *'], ['flat', '3 s', '2 s'],
        ['fnf', '1 s', '4 s'], ['at least', '500 ms', '500 ms'],
        ['best, by *', '750 ms', '750 ms'], ['From', 'To'],
        ['1 vm-b', '2 u2 on h3'], ['1 vm-b', '0 vm-a on h1'],
        ['Rank', 'VM'], ['0', '1 vm-b'], ['1', '2 u2 on h3'],
        ['2', '0 vm-a on h1']]
    # A rule stands between the predictions and their bounds.
    at = [line.startswith('| at least') for line in lines].index(True)
    assert lines[at - 1].startswith('+')
    assert 'The tree fnf, in 4 segments of 2 MB' in lines
    assert ('Ranks with which Open MPI\'s binomial tree takes 2 s: mpirun '
            '--mca coll_tuned_use_dynamic_rules 1 --mca '
            'coll_tuned_bcast_algorithm 6 --mca '
            'coll_tuned_bcast_algorithm_segmentsize 2666667') in lines
    assert lines[-1] == ('3 of 4 pairs of hypervisors are measured; the '
                         'others are taken for their links.')


def test_a_reduce_in_one_segment():
    out, _, asked = _tree(
        '--root', '2', '--matrix', 'raw', '--project', 'p',
        sent=('--reduce', '1GiB'), operation='reduce',
        trees=[TREE['trees'][0] | {'n_segments': 1}])
    assert asked == ('root=2&size_bytes=1073741824.0&operation=reduce'
                     '&matrix=raw&project_id=p')
    lines = out.splitlines()
    assert lines[0] == 'Reduce of 8 MB to row 1 in group g of 3 VMs'
    assert 'The tree fnf' in lines


def test_how_far_the_rates_may_be_trusted():
    out, _, _ = _tree(estimates=[
        TREE['estimates'][0],
        _estimate('rpca', {'fnf': 4.0, 'flat': 2.0}, noise=0.126)])
    assert out.splitlines()[-1].startswith(
        'Rates by rpca, Norm(N_E) 0.13: good. 3 of 4 pairs')


def test_json_is_the_answer():
    out, told, _ = _tree('--format', 'json')
    made = controller.made(wire.Tree, **TREE)
    assert msgspec.json.decode(out, type=wire.Tree) == made
    assert told == '' and out.endswith('}\n')


def test_names_are_shown_as_they_are(monkeypatch):
    """Without colors for numbers, and without marks of rich in them."""
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setattr(io, 'StringIO', Terminal)
    out, _, _ = _tree(group_name='[red]g')
    assert 'Broadcast of 8 MB from row 1 in group [red]g of 3 VMs' in out


def test_a_tree_for_launchers():
    out, told, _ = _tree('--format', 'rankfile', '--slots', '0-7')
    assert out == ('rank 0=192.0.2.2 slot=0-7\nrank 1=192.0.2.3 slot=0-7\n'
                   'rank 2=192.0.2.1 slot=0-7\n')
    assert told.startswith('mpirun --mca ') and told.endswith('2666667\n')
    out, told, _ = _tree('--format', 'nccl', '--names', 'uuid')
    assert (out, told) == ('u1 slots=1\nu0 slots=1\nu2 slots=1\n', '')


@pytest.mark.parametrize(('field', 'value', 'words'), [
    ('--broadcast', '8Mb', 'not in bits'), ('--reduce', 'much', '720MB')])
def test_a_size_that_is_none(field, value, words):
    with pytest.raises(exception.Invalid, match=words) as error:
        _tree(sent=(field, value))
    assert field in str(error.value)


def test_a_mapping_is_shown():
    out, _, (_, body) = _mapping('--all-reduce', '1GB')
    assert body == {'matrix': 'constant', 'all_reduce_bytes': 1e9}
    lines = out.splitlines()
    assert lines[0] == 'NCCL\'s all-reduce of 1 GB in group g of 3 VMs'
    assert ('The mapping greedy, 4 s, at most 12% above the best possible'
            in lines)
    ranks = [_cells(line) for line in lines if line.startswith('|')]
    assert ranks[0][0] == 'Mapping'
    assert ranks[-3:] == [['0', '2 u2 on h3'], ['1', '0 vm-a on h1'],
                          ['2', '1 vm-b']]


def test_a_mapping_of_the_groups_own_matrix():
    out, _, (path, body) = _mapping('--project', 'p', operation='exchange',
                                    mappings=[{'mapping': 'm', 'gap': None,
                                               'predicted_s': 1.0}])
    assert path == '/v1/groups/g/mapping?project_id=p'
    assert body == {'matrix': 'constant'}
    lines = out.splitlines()
    assert lines[0] == '1 GB between the ranks of group g of 3 VMs'
    assert 'The mapping m, 1 s' in lines


def test_a_mapping_for_torchrun():
    out, told, _ = _mapping('--format', 'torchrun')
    assert told == '' and out.splitlines()[1] == (
        '192.0.2.1: torchrun --nnodes=3 --node_rank=1 '
        '--rdzv_backend=static --master_addr=192.0.2.3 '
        '--master_port=29500 "$@"')


def test_a_matrix_is_read(tmp_path):
    path = tmp_path / 'tm.json'
    path.write_text('[[0,1,5]]')
    for given, stdin in (('[[0,1,5]]', ''), (str(path), ''),
                         (f'@{path}', ''), ('-', '[[0,1,5]]')):
        _, _, (_, body) = _mapping('--tm', given, stdin=stdin)
        assert body['tm'] == [[0, 1, 5]]


@pytest.mark.parametrize(('text', 'words'), [
    ('[' * 100_000, 'JSON text'), ('{', 'JSON text'),
    ('1' + ' ' * 2 ** 22, 'at most 4194304 bytes')])
def test_a_matrix_that_is_none(text, words, tmp_path):
    path = tmp_path / 'tm.json'
    path.write_text(text)
    for argv, stdin in (('--tm', str(path)), ''), (('--tm', '-'), text):
        with pytest.raises(exception.Invalid, match=words):
            _mapping(*argv, stdin=stdin)


def test_the_largest_matrix_is_read():
    text = '1' + ' ' * (2 ** 22 - 1)
    assert _mapping('--tm', '-', stdin=text)[2][1]['tm'] == 1


def test_a_matrix_that_cannot_be_read(tmp_path):
    (tmp_path / 'bytes').write_bytes(b'\xff')
    for name in 'none', 'bytes':
        with pytest.raises(exception.Invalid, match='can be read'):
            _mapping('--tm', str(tmp_path / name))


@pytest.mark.parametrize('other', ['--all-reduce', '--broadcast', '--reduce'])
def test_only_one_traffic(other):
    with pytest.raises(osc_exceptions.CommandError, match='not both'):
        _mapping('--tm', '-', other, '1GB')
    with pytest.raises((SystemExit, osc_exceptions.CommandError)):
        _mapping('--reduce', '1GB', '--all-reduce', '1GB')


def _members(*members):
    return [controller.made(wire.AdvisedMember, display_name=name,
                            addresses=addresses, instance_uuid=f'u{i}')
            for i, (name, addresses) in enumerate(members)]


@pytest.mark.parametrize(('members', 'how', 'names'), [
    (_members(('a', ['1']), ('b', ['2'])), 'auto', ['a', 'b']),
    (_members(('a', ['1']), ('a', ['2'])), 'auto', ['1', '2']),
    (_members(('a', ['1']), ('b c', ['2'])), 'auto', ['1', '2']),
    (_members(('a', ['1']), (None, ['2'])), 'auto', ['1', '2']),
    (_members(('a', ['1']), ('a', ['1'])), 'auto', ['u0', 'u1']),
    (_members(('a', ['1']), ('a', [])), 'auto', ['u0', 'u1']),
    (_members(('a', ['1']), ('b', ['2', '3'])), 'address', ['1', '2']),
    (_members(('a', ['1']), ('b', ['2'])), 'uuid', ['u0', 'u1'])])
def test_what_members_are_called(members, how, names):
    assert launchers.names(members, how) == names


@pytest.mark.parametrize(('members', 'how'), [
    (_members(('a', ['1']), ('a', ['2'])), 'name'),
    (_members(('a', ['1']), ('-b', ['2'])), 'name'),
    (_members(('a', ['1']), ('b', [])), 'address')])
def test_names_that_not_all_have(members, how):
    with pytest.raises(exception.Invalid, match='--names'):
        launchers.names(members, how)


@pytest.mark.parametrize('slots', ['', '0\n1', 'x', '0 1'])
def test_slots_that_would_break_a_line(slots):
    with pytest.raises(exception.Invalid, match='--slots'):
        launchers.rankfile(['a'], slots)


@pytest.mark.parametrize(('operation', 'shape', 'name', 'number'), [
    ('broadcast', 'binomial', 'bcast', 6), ('broadcast', 'binary', 'bcast', 5),
    ('broadcast', 'chain', 'bcast', 3), ('reduce', 'binomial', 'reduce', 5),
    ('reduce', 'binary', 'reduce', 4), ('reduce', 'chain', 'reduce', 3)])
def test_the_numbers_of_open_mpi(operation, shape, name, number):
    assert launchers.mca(operation, shape, 10.0, 1) == (
        '--mca coll_tuned_use_dynamic_rules 1 '
        f'--mca coll_tuned_{name}_algorithm {number} '
        f'--mca coll_tuned_{name}_algorithm_segmentsize 0')
    assert launchers.mca(operation, shape, 10.0, 3).endswith('segmentsize 4')
