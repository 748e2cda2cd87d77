# SPDX-License-Identifier: Apache-2.0

"""Hints made from other things: samples, laws, and what is refused."""

import gzip
import json
import pathlib
import re
import shlex
import types

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
import pytest

from tests.unit.hintkit import running
from tests.unit.osc import controller
from virtco import exception
from virtco import hint_matrix
from virtco import ring_and_tree
from virtco.wire import profile as wire
from virtco_tenant.hintkit import aicb
from virtco_tenant.hintkit import collectives
from virtco_tenant.hintkit import made
from virtco_tenant.hintkit import mpi
from virtco_tenant.hintkit import parallel
from virtco_tenant.hintkit import program

SAMPLES = pathlib.Path(__file__).parents[3] / 'examples' / 'hints'


def facts(*argv):
    return json.loads(running.hint(*argv, '--format', 'json'))


def matrix(*argv):
    """Bytes by (sender, receiver)."""
    coflow, = hint_matrix.parse_matrix_text(
        running.hint(*argv, '--format', 'tm'), 'a')
    return {(f.src, f.dst): f.size_bytes for f in coflow.flows}


def refused(*argv):
    with pytest.raises((exception.InputInvalid,
                        exception.HintInvalid)) as caught:
        running.hint(*argv)
    assert '\n' not in str(caught.value)
    return str(caught.value)


def test_every_line_of_the_samples_page_runs(monkeypatch):
    monkeypatch.chdir(SAMPLES)
    text = (SAMPLES / 'README.rst').read_text()
    lines = [' '.join(line.split())
             for line in re.findall('``virtco hint ([^`]*)``', text)]
    assert {line.split()[0] for line in lines} == (
        # The one asks a controller, the other makes no hint.
        set(program.COMMANDS) - {'from-observed', 'metadata'})
    for line in lines:
        screen = running.hint(*shlex.split(line))
        assert 'For openstack server create:' in screen
        assert ('Assumed:' in screen) == (not line.startswith(
            ('check', 'from-pattern')))
    named = set(re.findall('``([a-z_]+[.][a-z]+)``', text))
    assert named == {path.name for path in SAMPLES.iterdir()} - {'README.rst'}


@given(st.integers(1, 30), st.dictionaries(
    st.tuples(st.integers(0, 29), st.integers(0, 29)),
    st.integers(1, 10 ** 12), max_size=60))
def test_the_shortest_form_says_the_same(n, flows):
    flows = {pair: size for pair, size in flows.items()
             if max(pair) < n and pair[0] != pair[1]}
    coflow, = hint_matrix.parse_matrix(made.matrix_of(n, flows), 'a')
    assert {(f.src, f.dst): f.size_bytes for f in coflow.flows} == flows
    assert coflow.n_vms == n


@pytest.mark.parametrize(('n', 'flows', 'is_ring'), [
    (3, {(0, 1): 5, (1, 2): 5, (2, 0): 5}, True),
    (4, {(0, 1): 5, (1, 2): 5.2, (2, 3): 5, (3, 0): 4.9}, True),
    # Neither two VMs, nor the other way round, nor other sizes, nor a part.
    (2, {(0, 1): 5, (1, 0): 5}, False),
    (3, {(1, 0): 5, (2, 1): 5, (0, 2): 5}, False),
    (3, {(0, 1): 5, (1, 2): 5, (2, 0): 6}, False),
    (4, {(0, 1): 5, (1, 2): 5, (2, 3): 5}, False),
    (3, {(0, 1): 5, (1, 2): 5, (2, 0): 5, (0, 2): 5}, False)])
def test_a_ring_is_written_as_one(n, flows, is_ring):
    ring = {'pattern': 'ring', 'n': n, 'flow_size': 5}
    assert (made.matrix_of(n, flows) == ring) == is_ring


def test_less_than_half_a_byte_is_no_flow():
    assert made.matrix_of(40, {(0, 1): 0.4, (2, 1): 0.6, (3, 1): 0.0}) == {
        'n': 40, 'flows': [[2, 1, 1]]}


@given(st.integers(2, 12), st.data())
def test_no_other_form_is_shorter(n, data):
    pairs = data.draw(st.sets(st.tuples(
        st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1))
    flows = {pair: data.draw(st.integers(1, 999)) for pair in sorted(pairs)}
    found = made.compact(made.matrix_of(n, flows))
    assert len(found) <= min(len(made.compact(form)) for form in (
        {'n': n, 'flows': [[*pair, size] for pair, size in flows.items()]},
        [[flows.get((src, dst), 0) for dst in range(n)]
         for src in range(n)]))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50),
                          st.integers(0, 10 ** 9)), max_size=30),
       st.integers(1, 9), st.booleans())
def test_no_byte_is_lost_between_ranks_and_vms(flows, per_vm, cyclic):
    found = {}
    inside = made.onto_vms(found, flows, per_vm, 7 if cyclic else None)
    assert sum(found.values()) + inside == sum(size for *_, size in flows)
    assert all(src != dst for src, dst in found)


def test_patterns_may_recur():
    found = facts('from-pattern', 'ring', '--n', '8', '--flow-size', '1GB',
                  '--iterations', '0', '--period', '800ms', '--compute',
                  '0.55s', '--rank-hint', '--name', 'train')
    coflow, = found['coflows']
    assert (coflow['name'], coflow['iterations'], coflow['period_s'],
            coflow['compute_s'], coflow['rank_hint']) == (
                'train', 0, 0.8, 0.55, True)
    ring = facts('from-pattern', 'ring', '--n', '3', '--size', '3GB',
                 '--rank-order', '2,0,1')
    assert ring['coflows'][0]['rank_hint'] is True
    assert 'each row once' in refused(
        'from-pattern', 'ring', '--n', '3', '--size', '1', '--rank-order',
        '2,0,2')
    assert '--rank-order' in refused(
        'from-pattern', 'ring', '--n', '3', '--size', '1', '--rank-order',
        '2,x,1')
    assert 'between 1 and 500' in refused(
        'from-pattern', 'ring', '--n', '501', '--size', '1')
    assert 'not in bits' in refused('from-pattern', 'ring', '--n', '3',
                                    '--size', '1Gb')


def test_mpi_ranks_on_vms():
    path = str(SAMPLES / 'mpi_matrix.csv')
    assert matrix('from-mpi', path)[0, 3] == 2 ** 20
    by_two = matrix('from-mpi', path, '--ranks-per-vm', '2')
    assert by_two == {(0, 1): 2 ** 26 + 2 ** 20, (1, 0): 2 ** 26 + 2 ** 20}
    cyclic = matrix('from-mpi', path, '--ranks-per-vm', '2', '--cyclic')
    assert cyclic[0, 1] == 3 * 2 ** 26 + 2 ** 20
    triples = matrix('from-mpi', str(SAMPLES / 'mpi_triples.txt'),
                     '--triples')
    assert triples[0, 3] == 1024000


@pytest.mark.parametrize('argv, placed, inside', [
    ((), 'one rank runs on each VM', None),
    (('--ranks-per-vm', '2'), 'rank r runs on VM r div 2', '7,000'),
    (('--ranks-per-vm', '2', '--cyclic'), 'rank r runs on VM r mod 2',
     '20')])
@pytest.mark.parametrize('text, is_triples', [
    ('9 2000 20 0\n5000 9 0 0\n0 0 9 0\n0 0 0 9', False),
    ('0 1 2000\n0 2 15\n0 2 5\n1 0 5000\n3 3 9', True)])
def test_what_is_assumed_of_mpi_ranks_is_told(tmp_path, argv, placed, inside,
                                             text, is_triples):
    path = tmp_path / 'm.txt'
    path.write_text(text)
    first, second, *rest = facts('from-mpi', str(path), *argv, *(
        ['--triples'] * is_triples))['assumptions']
    assert first == f'4 ranks; {placed}.'
    assert second.startswith('Each line is sender, receiver' if is_triples
                             else 'Row i, column j')
    assert rest == ([] if inside is None else [
        f'{inside} bytes stay inside of VMs and are left out.'])


def test_a_rank_that_sends_to_itself_alone_is_one(tmp_path):
    path = tmp_path / 'm.txt'
    path.write_text('0 0 5')
    found = facts('from-mpi', str(path), '--triples')
    assert (found['n_vms'], found['n_flows']) == (1, 0)


@pytest.mark.parametrize('text, argv, words', [
    ('0 1\n1', [], 'line 2: columns: expected 2, as in the first'),
    ('0 1\n', [], 'rows: expected as many rows as columns .2., got 1'),
    ('0 1\n1 0\n1 0', [], 'line 3: rows: .*, got 3'),
    ('# x\n0 many\n1 0', [], "line 2: column 2: .*, got 'many'"),
    ('0 5Gb\n1 0', [], 'line 1: column 2'),
    ('0 -1\n1 0', [], 'line 1: column 2'),
    ('', [], 'rows: .*, got 0'),
    ('0 1', ['--triples'], 'line 1: columns: .*, got 2'),
    ('0 x 5', ['--triples'], "line 1: receiver: .*, got 'x'"),
    ('0 20000 5', ['--triples'], 'between 0 and 19999'),
    ('', ['--triples'], 'lines: .*, got 0'),
    ('0 1\n1 0', ['--ranks-per-vm', '0'], '--ranks-per-vm'),
])
def test_mpi_that_is_refused(tmp_path, text, argv, words):
    path = tmp_path / 'm.txt'
    path.write_text(text)
    assert re.search(words, refused('from-mpi', str(path), *argv))


def test_ranks_of_mpi_have_a_bound(tmp_path, monkeypatch):
    assert mpi.MAX_RANKS == 20000
    monkeypatch.setattr(mpi, 'MAX_RANKS', 2)
    path = tmp_path / 'm.txt'
    path.write_text('0 1\n2 0')
    assert matrix('from-mpi', str(path)) == {(0, 1): 1, (1, 0): 2}
    # A tool's bytes are bytes.
    assert not facts('from-mpi', str(path))['warnings']
    path.write_text('0 1 2\n3 0 4\n5 6 0')
    assert re.search('line 1: columns: .* at most 2, got 3',
                     refused('from-mpi', str(path)))


def test_files_that_cannot_be_read(tmp_path):
    path = tmp_path / 'm.txt'
    assert 'No such file' in refused('from-mpi', str(path))
    path.write_bytes(b'0 1\n\xff\xfe')
    assert 'UTF-8 text' in refused('from-mpi', str(path))
    packed = tmp_path / 'm.gz'
    packed.write_bytes(b'no gzip')
    assert 'a readable file' in refused('from-mpi', str(packed))
    packed.write_bytes(gzip.compress(b'0 7\n0 0\n'))
    assert matrix('from-mpi', str(packed)) == {(0, 1): 7}


@given(st.integers(2, 70), st.floats(1, 1e12))
def test_a_ring_all_reduce_sends_as_much_as_theory_says(n, size):
    out, into = [0.0] * n, [0.0] * n
    for src, dst, sent in ring_and_tree.RING['all_reduce'](range(n), size):
        out[src] += sent
        into[dst] += sent
    assert out == into == pytest.approx([2 * (n - 1) / n * size] * n)


@given(st.integers(2, 300))
def test_both_trees_span_all_ranks_and_share_the_inner_ones(n):
    inner = []
    for parents in ring_and_tree.double_tree(n):
        assert parents.count(None) == 1
        for rank in range(n):
            seen = set()
            while parents[rank] is not None:
                assert rank not in seen
                seen.add(rank)
                rank = parents[rank]
        children = [parents.count(rank) for rank in range(n)]
        assert max(children) <= 2
        inner.append({rank for rank in range(n) if children[rank]})
    assert len(inner[0] & inner[1]) <= 2  # of odd n, the roots' neighbours


def test_the_tree_of_twelve_is_that_of_nccl():
    first, second = ring_and_tree.double_tree(12)
    assert first == [None, 2, 4, 2, 8, 6, 4, 6, 0, 10, 8, 10]
    assert second[11] is None and second[3] == 11 and second[0] == 1


@pytest.mark.parametrize('collective, total', [
    ('all_reduce', 2 * 3), ('all_gather', 3), ('reduce_scatter', 3),
    ('broadcast', 3), ('reduce', 3), ('all_to_all', 3)])
def test_collectives_of_four_vms(collective, total):
    found = matrix('from-nccl', collective, '--bytes', '4MB', '--world-size',
                   '4')
    assert sum(found.values()) == total * 4e6
    tree = ('from-nccl', collective, '--bytes', '4MB', '--world-size', '4',
            '--algorithm', 'tree')
    if collective == 'all_reduce':
        assert sum(matrix(*tree).values()) == total * 4e6
    else:
        assert 'NCCL uses a tree only for all_reduce' in refused(*tree)


def test_gpus_of_one_vm_do_not_use_the_network():
    found = matrix('from-nccl', 'all_reduce', '--bytes', '16MB',
                   '--world-size', '16', '--gpus-per-vm', '8')
    assert found == {(0, 1): 30e6, (1, 0): 30e6}


def test_torch_strategies():
    size = ('--parameters', '1M', '--world-size', '4', '--dtype', 'fp16')
    ddp = matrix('from-torch', 'ddp', *size)
    assert set(ddp.values()) == {3e6}
    fsdp = matrix('from-torch', 'fsdp', *size)
    assert set(fsdp.values()) == {4.5e6}
    assert '--parameters' in refused('from-torch', 'ddp', '--parameters',
                                     'many', '--world-size', '4')


@pytest.mark.parametrize(('dtype', 'size_bytes'), [
    ('fp64', 8), ('fp32', 4), ('tf32', 4), ('fp16', 2), ('bf16', 2),
    ('fp8', 1)])
def test_bytes_of_a_parameter(dtype, size_bytes):
    # Of two ranks each sends half of all twice.
    assert matrix('from-torch', 'ddp', '--parameters', '1M', '--world-size',
                  '2', '--dtype', dtype) == {
        (0, 1): size_bytes * 1e6, (1, 0): size_bytes * 1e6}


def test_numbers_of_ranks_have_a_bound():
    assert (collectives.MAX_RANKS, collectives.MAX_PAIR_RANKS) == (
        65536, 4096)
    for option in '--world-size', '--gpus-per-vm':
        assert f'{option}: expected a whole number between 1 and 65536' in (
            refused('from-nccl', 'reduce', '--bytes', '8', '--world-size',
                    '8', option, '65537'))


@pytest.mark.parametrize('argv', [
    ('from-nccl', 'reduce', '--bytes', '8'),
    ('from-nccl', 'reduce', '--world-size', '8'),
    ('from-torch', 'ddp', '--world-size', '8')])
def test_options_that_lack_end_the_program(argv, capsys):
    with pytest.raises(SystemExit):
        running.hint(*argv)
    assert 'required: --' in capsys.readouterr().err


def test_stages_and_rows_are_numbers_from_zero():
    path = str(SAMPLES / 'spark_eventlog.json')
    for stage, words in (('0', 'a stage that read'),
                         ('1000000000', 'a stage that read'),
                         ('1000000001', 'between 0 and 1000000000')):
        assert words in refused('from-spark-eventlog', path, '--stage', stage)
    assert 'between 0 and 499' in refused(
        'from-pattern', 'ring', '--n', '3', '--size', '1', '--rank-order',
        '0,1,500')


def test_aicb_groups_cross_vms_where_their_ring_does():
    path = str(SAMPLES / 'aicb_workload.csv')
    found = facts('from-aicb', path, '--gpus-per-vm', '4')
    assert 'dp 7.200 GB, pp 0.268 GB, tp 1.074 GB' in found['assumptions'][0]
    # Two DP rings cross from VM 0 to 1 with 3/4 of 400 and of 200 MB; each
    # of four ranks sends 16 MiB to the next stage.
    assert matrix('from-aicb', path, '--gpus-per-vm', '4') == {
        (0, 1): 900e6, (1, 0): 900e6, (2, 3): 900e6, (3, 2): 900e6,
        (0, 2): 2 ** 26, (1, 3): 2 ** 26, (2, 0): 2 ** 26, (3, 1): 2 ** 26}
    # With two ranks on a VM tensor parallelism stays inside of VMs.
    tp = facts('from-aicb', path, '--gpus-per-vm', '1')['size_bytes']
    two = facts('from-aicb', path, '--gpus-per-vm', '2')['size_bytes']
    assert tp - two == pytest.approx(1.0737e9, rel=1e-3)


HEADER = ('comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,'
          'additional,_elapsed_time,algbw,busbw,count\n')
END = 'CommType.epoch_end,None,None,0,,None,None,,None,None,None,1\n'


def operation(kind='all_reduce', group='dp_group', n=4, size=8, way=''):
    return (f'CommType.{kind},CommGroup.{group},{n},{size},step,None,None,'
            f'{way},None,None,None,1\n')


def test_aicb_without_ranks_averages_its_iterations(tmp_path):
    path = tmp_path / 'w.csv'
    path.write_text(HEADER + operation(size=10 ** 9) + END + operation(
        size=400) + END + operation(size=800) + END)
    assert set(matrix('from-aicb', str(path), '--gpus-per-vm',
                      '1').values()) == {900}


@pytest.mark.parametrize('text, words', [
    ('', 'header: .*, got nothing'),
    (operation(), 'line 1: header'),
    ('comm_type,x\n', 'line 1: header'),
    (HEADER + operation('all_red'),
     "line 2: comm_type: .*, got 'CommType.all_red'"),
    (HEADER + operation(group='xp_group'), 'line 2: comm_group'),
    (HEADER + operation(n='x'), "line 2: comm_group_size: .*, got 'x'"),
    (HEADER + operation() + operation(n=8),
     'line 3: comm_group_size: .*, got 8'),
    (HEADER + operation(size='x'), "line 2: msg_size: .*, got 'x'"),
    (HEADER + operation('isend', 'pp_group', 2), 'line 2: additional'),
    (HEADER + 'CommType.reduce,1\n', 'line 2: columns: .*, got 2'),
    (HEADER + 'CommType.reduce,CommGroup.dp_group,4,8,step,None,None\n',
     'line 2: columns: .*, got 7'),
    (HEADER + operation(), 'an iteration after'),
    ('[rank]\n' + HEADER, 'line 1: ranks'),
    ('[rank0 ~ rank6]\n' + HEADER + END + operation() + END,
     'world size: .*, got 7'),
])
def test_aicb_that_is_refused(tmp_path, text, words):
    path = tmp_path / 'w.csv'
    path.write_text(text)
    assert re.search(words, refused('from-aicb', str(path)))


def test_aicb_of_older_columns_needs_the_number_of_ranks(tmp_path):
    path = tmp_path / 'w.csv'
    one = ('CommType.{},CommGroup.dp_group,{},test,None,None,,None,None,None,'
           '1\n')
    path.write_text(
        'comm_type,comm_group,msg_size,stage,dst,src,additional,_elapsed_time'
        ',algbw,busbw,count\n' + one.format('all_gather', 800) + END
        + one.format('all_gather', 800) + END)
    assert re.search('world size: .*, got nothing', refused(
        'from-aicb', str(path)))
    asked = '--world-size', '4', '--gpus-per-vm', '1'
    assert set(matrix('from-aicb', str(path), *asked).values()) == {600}
    # No other column is needed.
    least = 'CommType.all_gather,CommGroup.dp_group,800,\n'
    end = 'CommType.epoch_end,None,0,\n'
    path.write_text('comm_type,comm_group,msg_size,additional\n'
                    + least + end + least + end)
    assert set(matrix('from-aicb', str(path), *asked).values()) == {600}


def test_aicb_as_logged_tells_what_was_computed(tmp_path):
    path = tmp_path / 'w.csv'
    step = ('CommType.computation,None,None,((2, 3), (3, 4)),step,None,None,,'
            '40.5,None,None,1\n')
    sent = ('CommType.all_reduce,CommGroup.dp_group,2,800,step,None,None,,'
            '10,None,None,1\n')
    end = 'CommType.epoch_end,None,None,0,,None,None,,90,0.0,0.0,1\n'
    path.write_text(HEADER + end + step + sent + end + step + sent + end)
    assert aicb.read(str(path)).compute_s == pytest.approx(0.0405)
    # Without a line of its own it is what was not sent.
    path.write_text(HEADER + end + sent + end)
    assert aicb.read(str(path)).compute_s == pytest.approx(0.08)


SIMAI = ('HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 '
         'pp: 2 vpp: 4 ga: 3 all_gpus: 16 checkpoints: 0 '
         'checkpoint_initiates: 0 pp_comm: 1000.0\n')
LAYERS = ('grad_norm\t-1\t1000\tNONE\t0\t1\tNONE\t0\t1\tREDUCESCATTER\t800\t'
          '100\n'
          'moe  -1 2000  ALLTOALL_EP 400   3000 ALLTOALL_EP 400 1 '
          'ALLGATHER_DP_EP 600 100\n')


def test_aicb_for_simai(tmp_path):
    path = tmp_path / 'w.txt'
    path.write_text(SIMAI + '2\n' + LAYERS)
    found = aicb.read(str(path))
    assert found.compute_s == pytest.approx(6003e-9)
    # DP 4 of two TP ranks, EP 2 of it, 2 stages of 8 ranks.
    assert found.stages == ((None, {
        ('reduce_scatter', 'dp_group', ''): 800,
        ('all_to_all', 'ep_group', ''): 800,
        ('all_gather', 'ep_dp_group', ''): 600,
        ('isend', 'pp_group', 'send_next'): 3000,
        ('isend', 'pp_group', 'send_prev'): 3000}),)
    by_pair = matrix('from-aicb', str(path), '--gpus-per-vm', '1')
    # 3/4 of the reduce-scatter, half of the exchange.
    assert by_pair[0, 2] == 600 + 400
    assert by_pair[0, 8] == by_pair[8, 0] == 3000
    assert by_pair[0, 4] == by_pair[4, 0] == 300
    recurring = facts('from-aicb', str(path), '--gpus-per-vm', '1',
                      '--iterations', '0')
    assert recurring['coflows'][0]['compute_s'] == pytest.approx(6.003e-6)


def test_what_a_file_for_simai_leaves_open_is_one(tmp_path):
    path = tmp_path / 'w.txt'
    path.write_text('MICRO pp: 2 pp_comm: 1000.4\n3\n' + LAYERS)
    found = aicb.read(str(path))
    assert found.sizes == {'tp_group': 1, 'ep_group': 1, 'pp_group': 2}
    assert found.stages[0][1]['isend', 'pp_group', 'send_next'] == 1000
    assert found.world_size is None and len(found.notes) == 2
    assert found.notes[0].startswith('The file says 3 lines and has 2')
    assert found.notes[1].startswith('1 micro-batches')
    path.write_text('MICRO\n2\n' + LAYERS)
    found = aicb.read(str(path))
    assert found.sizes['pp_group'] == 1 and not found.notes
    assert not any(kind == 'isend' for kind, *_ in found.stages[0][1])


def test_there_are_as_many_ranks_as_a_file_names(tmp_path):
    path = tmp_path / 'w.csv'
    path.write_text('[rank0 ~ rank7]\n' + HEADER + END + operation(
        group='tp_group', n=2) + END)
    assert facts('from-aicb', str(path))['n_vms'] == 1
    assert 'world size: expected 8 to' in refused(
        'from-aicb', str(path), '--world-size', '4')


def test_aicb_for_simai_on_other_numbers_of_ranks(tmp_path):
    path = tmp_path / 'w.txt'
    path.write_text(SIMAI + '2\n' + LAYERS)
    found = aicb.read(str(path))
    assert found.block() == 8
    smaller = found.scaled(8)
    # DP is 2 then, all of it EP: nothing is left to gather over.
    assert smaller.flows(smaller.layout(), 1)[2].keys() == {
        'dp_group', 'ep_group', 'pp_group'}
    with pytest.raises(exception.InputInvalid, match='world size: .*, got 12'):
        found.scaled(12)


def test_stages_share_other_numbers_of_ranks(tmp_path):
    path = tmp_path / 'w.csv'
    path.write_text(''.join(
        f'[rank{first} ~ rank{first + 1}]\n' + HEADER + END
        + operation(n=2, size=size) + END
        for first, size in ((0, 10), (2, 20), (4, 30))))
    found = aicb.read(str(path)).scaled(12)
    assert [ranks for ranks, _ in found.stages] == [
        range(4), range(4, 8), range(8, 12)]
    assert found.world_size == 12 and 'dp_group' not in found.sizes


def test_an_exchange_of_too_many_is_refused(monkeypatch):
    monkeypatch.setattr(collectives, 'MAX_PAIR_RANKS', 4)

    def sends(n, kind='all_to_all'):
        layout = parallel.Layout({'pp_group': 1, 'tp_group': 1,
                                  'ep_group': 1}, n)
        return list(layout.sends(range(n), kind, 'all_nodes', '', 8.0))

    assert len(sends(4)) == 4 * 3 and sends(1) == []
    assert sends(5, 'all_reduce')
    with pytest.raises(exception.InputInvalid, match='at most 4 ranks'):
        sends(5)


@pytest.mark.parametrize('text, words', [
    ('MICRO\n', 'line 1: number of lines'),
    ('MICRO\nx\n', "line 2: number of lines: .*, got 'x'"),
    ('MICRO\n1\n', 'lines: .*, got 0'),
    ('MICRO\n1\nlayer -1 1 NONE 0\n', 'line 3: fields: .*, got 5'),
    (SIMAI + '2\n' + LAYERS.replace('2000', '-1'), 'line 4: time in ns'),
    (SIMAI + '2\n' + LAYERS.replace('ALLTOALL_EP', 'ALLTOALL_XP'),
     "line 4: collective: .*, got 'ALLTOALL_XP'"),
    (SIMAI.replace('all_gpus: 16', 'all_gpus: 15') + '2\n' + LAYERS,
     'all_gpus: .*, got 15'),
    (SIMAI.replace('ep: 2', 'ep: 3') + '2\n' + LAYERS,
     'world size: .*, got 16'),
    (SIMAI.replace('ga: 3', 'ga: x') + '2\n' + LAYERS, "ga:: .*, got 'x'"),
    (SIMAI.replace('all_gpus: 16', 'all_gpus: 99999999') + '2\n' + LAYERS,
     'between 1 and 65536')])
def test_aicb_for_simai_that_is_refused(tmp_path, text, words):
    path = tmp_path / 'w.txt'
    path.write_text(text)
    assert re.search(words, refused('from-aicb', str(path)))


def test_what_stays_inside_of_vms_is_told():
    alone = collectives.convert([('all_reduce', 8.0)], 2, 1)
    assert not any('inside' in told for told in alone.assumptions)
    # Of a ring of four, two of four hops stay: 6 of 8 bytes each.
    both = collectives.convert([('all_reduce', 4.0)], 4, 2)
    assert '12 B stay inside of VMs and are left out.' in both.assumptions
    odd = collectives.convert([('all_reduce', 4.0)], 3, 2)
    assert 'Rank r runs on VM r div 2 (2 VMs).' in odd.assumptions


@pytest.mark.parametrize('calls, algorithm, way', [
    (['all_reduce'], 'ring', 'NCCL_ALGO=Ring'),
    (['all_reduce'], 'tree', 'NCCL_ALGO=Tree'),
    (['all_to_all'] * 2, 'ring', 'Every rank sends to every other one'),
    (['all_to_all', 'all_reduce'], 'ring', 'NCCL_ALGO=Ring')])
def test_how_a_collective_goes_is_told(calls, algorithm, way):
    found = collectives.convert([(name, 4.0) for name in calls], 4, 1,
                                algorithm)
    assert way in found.assumptions[2]


def test_all_to_all_is_bounded(monkeypatch):
    monkeypatch.setattr(collectives, 'MAX_PAIR_RANKS', 4)
    assert collectives.convert([('all_to_all', 4.0)], 4, 1)
    assert collectives.convert([('all_reduce', 4.0)], 5, 1)
    with pytest.raises(exception.InputInvalid, match='at most 4'):
        collectives.convert([('all_to_all', 4.0)], 5, 1)
    with pytest.raises(exception.InputInvalid, match='--algorithm'):
        collectives.convert([('all_to_all', 4.0)], 4, 1, 'tree')


@pytest.mark.parametrize('seen', [True, False])
def test_a_hint_is_made_of_what_was_observed(seen):
    asked = []
    found = controller.made(
        wire.Profile, tm=[[0, 7], [3, 0]], n_hours=5, group_name='sort',
        pattern='as seen', pairs=[{'is_seen': True}, {'is_seen': True},
                                  {'is_seen': seen}])
    client = types.SimpleNamespace(
        call=lambda _operation, *args: asked.append(args) or found)
    screen = ' '.join(running.hint(
        'from-observed', 'sort', '--project', 'p', client=client).split())
    assert asked == [('sort', 'p')]
    assert 'those of 5 hours of group sort: as seen.' in screen
    assert ('1 pairs shared a host' in screen) == (not seen)
    assert ('pairs shared a host' in screen) == (not seen)
    found = structs.replace(found, tm=None)
    with pytest.raises(exception.NotFound, match='sort'):
        running.hint('from-observed', 'sort', client=client)
