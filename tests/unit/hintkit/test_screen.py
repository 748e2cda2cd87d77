# SPDX-License-Identifier: Apache-2.0

"""Whole parts of the screen, character by character."""

import json

import pytest

from tests.unit.hintkit import running


def parts(matrix, *argv):
    return running.hint('check', json.dumps(matrix), *argv).split('\n\n')


def test_shades_are_ninths_of_the_largest_pair():
    shades = parts({'n': 12, 'flows': [
        *([0, k, 1000 * k] for k in range(1, 10)), [1, 0, 9000], [1, 2, 1],
        [5, 0, 9000], [5, 1, 8999], [11, 10, 4500]]})[1]
    assert shades == '''\
A character for each pair of VMs; the row sends to the column. ".:-=+*#%@" are
ninths of 9 kB.
       0 | :-=+*#%@@  |
       1 |@ .         |
     2-4 |            |
       5 |@@          |
    6-10 |            |
      11 |          + |'''


def test_blocks_of_many_vms_add_up():
    """73 VMs want more columns than there are: the last block has one VM."""
    shades = parts({'n': 73, 'flows': [
        [0, 71, 3], [1, 70, 6], [72, 1, 9]]})[1].splitlines()
    assert shades[1:] == [
        '".:-=+*#%@" are ninths of 9 B.', '     0-1 |' + ' ' * 35 + '@ |',
        '    2-71 |' + ' ' * 37 + '|', '      72 |@' + ' ' * 36 + '|']
    assert 'ninths of 0 B.' in parts({'n': 12, 'flows': []})[1]
    # One less fits.
    assert 'each pair' in parts({'n': 69, 'flows': [[0, 1, 1]]})[1]
    assert 'block of 2 by 2' in ' '.join(
        parts({'n': 70, 'flows': [[0, 1, 1]]})[1].split())


@pytest.mark.parametrize('largest, other, unit, shown', [
    (1e15, 1e14, 'PB', ['1', '0.1']), (1e12, 1, 'TB', ['1', '<.01']),
    (1e9, 1e7, 'GB', ['1', '0.01']), (999.6e6, 9e6, 'MB', ['1000', '9']),
    (999.5e6, 1e6, 'MB', ['1000', '1']),
    (1e6, 999.4e3, 'MB', ['1', '0.999']), (1000, 0, 'kB', ['1', '.']),
    (999, 8, 'B', ['999', '8']), (0, 0, 'B', ['.', '.'])])
def test_numbers_have_the_unit_of_the_largest(largest, other, unit, shown):
    lines = parts([[0, largest], [other, 0]])[1].splitlines()
    assert lines[0] == f'Sizes in {unit}; the row sends to the column.'
    assert lines[1] == '          0     1'
    assert lines[2:] == [f'    0     .{shown[0]:>6}',
                         f'    1{shown[1]:>6}     .']


def test_eleven_vms_are_the_most_that_are_shown_as_numbers():
    ring = {'pattern': 'ring', 'n': 11, 'size': 5}
    assert parts(ring)[1].startswith('Sizes in B')
    assert parts(ring | {'n': 12})[1].startswith('A character')


def star(n):
    """Row k sends 1000 + k bytes to the last one."""
    return {'n': n, 'flows': [[k, n - 1, 1000 + k] for k in range(n - 1)]}


def test_vms_that_send_least_are_left_out():
    rows = parts(star(18))[2].splitlines()
    assert [row.split()[0] for row in rows] == [
        'VM', *map(str, range(2, 18)), '…']
    assert rows[0] == 'VM     Sends  To  Receives  From'
    assert rows[1] == '2   1.002 kB   1       0 B     0'
    assert rows[16] == '17       0 B   0  17.14 kB    17'
    assert rows[17] == '… the 2 lines with less are shown by --all'
    for shown in parts(star(18), '--all')[2], parts(star(16))[2]:
        assert shown.splitlines()[1].startswith('0 ') and '…' not in shown
    assert '… the 1 lines' in parts(star(17))[2]


def test_vms_with_equal_sums_share_a_line_where_they_are_neighbours():
    rows = parts([[0, 5, 0, 0], [5, 0, 0, 0], [0, 0, 0, 1], [0, 0, 2, 0]])[2]
    assert [row.split()[0] for row in rows.splitlines()] == [
        'VM', '0-1', '2', '3']
    # As many bytes to more receivers, or from more senders, are others.
    rows = parts([[0, 0, 4, 0, 0], [0, 0, 2, 2, 0], [0] * 5, [0] * 5,
                  [0, 0, 0, 4, 0]])[2].splitlines()
    assert [row.split() for row in rows[1:]] == [
        ['0', '4', 'B', '1', '0', 'B', '0'],
        ['1', '4', 'B', '2', '0', 'B', '0'],
        ['2-3', '0', 'B', '0', '6', 'B', '2'],
        ['4', '4', 'B', '1', '0', 'B', '0']]


def test_limits_stand_beside_what_is_used():
    assert parts([[0, 7000, 2], [1, 0, 0], [0, 5, 0]])[3] == '''\
Limit (default)        Used    At most
VMs                       3        500
Flows                     4     50,000
Largest flow           7 kB       1 PB
All flows          7.008 kB     100 PB
Coflows                   1         32
Text of virtco:tm      28 B  114,688 B'''


def test_warnings_stand_there_only_where_there_are_some():
    ring = {'pattern': 'ring', 'n': 3, 'size': '5GB'}
    assert 'Warnings:' not in running.hint('check', json.dumps(ring))
    assert parts(ring, '--vms', '2')[-2].startswith('Warnings:\n* The matrix')


def test_what_it_takes_alone_follows_the_rate():
    ring = {'pattern': 'ring', 'n': 4, 'flow_size': '1GB'}
    assert ' '.join(parts(ring, '--rate', '10Gbit')[4].split()) == (
        'Alone, each VM on a host of its own with 10 Gbit/s, it takes at '
        'least 800 ms: VM 0 sends 1 GB.')


@pytest.mark.parametrize('vms, options', [
    ('1', []), ('2', ['--min 2 --max 2']), ('5', ['--min 5 --max 5'])])
def test_so_many_servers_are_made(vms, options):
    """One server alone wants no number of servers."""
    ready = parts([[0, 1], [0, 0]], '--vms', vms)[-1].splitlines()
    assert ready == [
        'For openstack server create:',
        *(f'  {option} \\' for option in options),
        '  --hint virtco:coflow=coflow \\',
        "  --hint 'virtco:tm=[[0,1],[0,0]]'"]


@pytest.mark.parametrize('size, chars', [(10 ** 4, 2000), (10 ** 5, 2001)])
def test_a_text_of_more_than_2000_characters_stays_in_its_file(tmp_path, size,
                                                               chars):
    path = tmp_path / 'tm.json'
    path.write_text(json.dumps({'n': 400, 'flows': [
        [100, 200, size], *([k, k + 100, 1000] for k in range(101, 232))]}))
    argv = 'check', str(path), '--format'
    assert len(running.hint(*argv, 'tm')) == chars + 1
    assert ('$(cat' in running.hint(*argv, 'options')) == (chars > 2000)
