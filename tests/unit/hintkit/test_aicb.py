# SPDX-License-Identifier: Apache-2.0

"""What is read of AICB's files: stages, times, and what is assumed."""

import pytest

from tests.unit.hintkit import test_makers as makers
from virtco import exception
from virtco_tenant.hintkit import aicb
from virtco_tenant.hintkit import aicb_simai

HEADER, END = makers.HEADER, makers.END
LOGGED = 'Times are those that AICB logged.'
AVERAGED = 'The set-up epoch is left out, the others are averaged.'


def sent(group='dp_group', size=8, n='4', took_ms='None'):
    return (f'CommType.all_reduce,CommGroup.{group},{n},{size},step,None,'
            f'None,,{took_ms},None,None,1\n')


def end(took_ms):
    return f'CommType.epoch_end,None,None,0,,None,None,,{took_ms},0,0,1\n'


@pytest.fixture
def read(tmp_path):
    def call(text):
        path = tmp_path / 'w'
        path.write_text(text)
        return aicb.read(str(path))
    return call


def refused(read, text, words):
    with pytest.raises(exception.InputInvalid, match=words):
        read(text)


def test_a_file_without_times_tells_none(read):
    found = read(HEADER + END + sent() + END)
    assert found.compute_s is None
    assert found.notes == (AVERAGED,)


def test_an_iteration_without_an_end_has_no_time(read):
    assert read(HEADER + END + sent(took_ms='10')).compute_s is None


@pytest.mark.parametrize(('time', 'compute_s'), [
    ('', None), ('0', None), ('2000', 2.0), ('0.5', 0.0005)])
def test_times_are_milliseconds_or_none(read, time, compute_s):
    assert read(HEADER + END + sent() + end(time)).compute_s == compute_s


@pytest.mark.parametrize('time', ['-1', 'inf', 'nan', 'x'])
def test_other_times_are_refused(read, time):
    refused(read, HEADER + END + sent(took_ms=time),
            f'line 3: _elapsed_time: .*, got {time!r}')


def test_the_stage_that_computes_longest_counts(read):
    """Its time is that of an iteration less what it sent."""
    found = read('[rank0]\n' + HEADER + END + sent(took_ms='10') + end('90')
                 + '[rank1]\n' + HEADER + END + sent() + end('30'))
    assert found.compute_s == pytest.approx(0.08)
    assert found.notes == (AVERAGED, LOGGED)


def test_groups_without_a_size_are_told(read):
    """That of DP follows from the number of ranks."""
    found = read(HEADER + END + ''.join(
        sent(group, n=n) for group, n in (
            ('tp_group', 'None'), ('ep_group', 'None'), ('pp_group', '2'),
            ('dp_group', 'None'))) + END)
    assert found.sizes == {'pp_group': 2}
    assert found.notes == (AVERAGED, 'The file tells no size of ep_group, '
                           'tp_group: taken as one rank.')


def test_what_only_some_iterations_send_is_averaged_over_all(read):
    found = read(HEADER + END + sent() + sent('tp_group', 6, '2') + END
                 + sent() + END)
    ((ranks, sums),) = found.stages
    assert ranks is None and sums == {
        ('all_reduce', 'dp_group', ''): 8.0,
        ('all_reduce', 'tp_group', ''): 3.0}


@pytest.mark.parametrize(('line', 'ranks'), [
    ('[rank0 ~ rank3]', [0, 1, 2, 3]), ('[rank2 ~ rank4]', [2, 3, 4]),
    ('[rank0, rank3]', [0, 3]), ('[rank 1]', [1]),
    ('[rank0 ~ rank2, rank5]', [0, 2, 5]), ('[rank65535]', [65535])])
def test_ranks_of_a_stage(read, line, ranks):
    found = read(f'{line}\n' + HEADER + END + sent() + END)
    assert found.stages[0][0] == ranks
    assert found.world_size == max(ranks) + 1


def test_there_are_as_many_ranks_as_the_last_stage_tells(read):
    found = read(''.join(f'[{ranks}]\n' + HEADER + END + sent() + END
                         for ranks in ('rank2, rank3', 'rank0, rank1')))
    assert found.world_size == 4


@pytest.mark.parametrize('line', ['[rank65536]', '[rank0, rank65536]', '[x]'])
def test_other_ranks_are_refused(read, line):
    refused(read, f'{line}\n' + HEADER + END + sent() + END, 'line 1: ranks')


def test_operations_before_the_columns_are_refused(read):
    refused(read, sent() + HEADER + END + sent() + END, 'line 1: header')


@pytest.mark.parametrize(('text', 'n'), [('', 0), (END, 1), (END * 2, 2)])
def test_how_many_epochs_ended_is_told(read, text, n):
    refused(read, HEADER + sent() + text, f'an iteration after.*, got {n}')


def test_columns_may_stand_in_another_order(read):
    header = 'comm_type,msg_size,comm_group,additional\n'
    line = 'CommType.all_gather,800,CommGroup.{},\n'
    text = header + 'CommType.epoch_end,0,None,\n' + line
    assert read(text.format('dp_group')).stages[0][1] == {
        ('all_gather', 'dp_group', ''): 800}
    refused(read, text.format('xp_group'),
            "line 3: comm_group: .*, got 'CommGroup.xp_group'")
    # Columns may be behind the last one that each file has.
    refused(read, header.strip() + ',comm_group_size\n' + END + line,
            'line 3: columns: .* at least 5 columns, got 4')


def simai(lines, n=1, first='MICRO'):
    return f'{first}\n{n}\n' + lines


def layer(times=(0, 0, 0), **calls):
    """Calls by their place: ``a``, ``b`` or ``c``."""
    fields = ' '.join(f'{time} {" ".join(calls.get(place, ("NONE", "0")))}'
                      for time, place in zip(times, 'abc'))
    return f'layer -1 {fields} 0\n'


def test_times_of_simai_add_up(read):
    assert read(simai(layer())).compute_s is None
    assert read(simai(layer((1, 20, 300)))).compute_s == pytest.approx(
        321e-9, rel=1e-9)
    assert read(simai(layer((1, 0, 0)))).compute_s == pytest.approx(
        1e-9, rel=1e-9)
    most = aicb_simai.MOST_NS
    assert most == 1e12
    assert read(simai(layer((0, most, 0)))).compute_s == pytest.approx(1e3)
    refused(read, simai(layer((0, most + 1, 0))), 'line 3: time in ns')


def test_only_collectives_with_bytes_send_in_simai(read):
    found = read(simai(layer(a=('NONE', '5'), b=('ALLREDUCE', '0'),
                             c=('ALLGATHER', '7'))))
    assert found.stages == ((None, {('all_gather', 'dp_group', ''): 7.0}),)


def test_a_file_for_simai_has_ten_million_lines_at_most(read):
    assert len(read(simai(layer(), 10 ** 7)).notes) == 1
    refused(read, simai(layer(), 10 ** 7 + 1), 'line 2: number of lines')
    # Lines beyond the number that the file says are not read.
    assert read(simai(layer((1, 0, 0)) * 3, 2)).compute_s == pytest.approx(
        2e-9, rel=1e-9)


def test_stages_of_simai_without_bytes_send_none(read):
    found = read(simai(layer(), first='MICRO pp: 2'))
    assert found.stages[0][1] == {
        ('isend', 'pp_group', way): 0 for way in ('send_next', 'send_prev')}
