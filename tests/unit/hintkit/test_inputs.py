# SPDX-License-Identifier: Apache-2.0

"""What commands read and write, and numbers between their ends."""

import gzip
import os
import sys

import pytest

from virtco import exception
from virtco_tenant.hintkit import inputs


def test_a_text_is_written_or_the_place_is_named(tmp_path):
    inputs.write_text(str(tmp_path / 'tm'), '[]')
    assert (tmp_path / 'tm').read_text() == '[]\n'
    with pytest.raises(exception.VirtcoException, match='a writable file'):
        inputs.write_text(str(tmp_path / 'no' / 'tm'), '[]')


@pytest.mark.parametrize(('text', 'is_good'), [
    ('2', True), ('5', True), ('1', False), ('6', False), ('-3', False),
    ('3.0', False), ('', False)])
def test_a_count_is_between_its_ends(text, is_good):
    if is_good:
        assert inputs.count('here', '--vms', text, 2, 5) == int(text)
        return
    with pytest.raises(exception.VirtcoException, match='between 2 and 5'):
        inputs.count('here', '--vms', text, 2, 5)


def test_a_count_may_be_large():
    most = 10 ** 12
    assert inputs.count('here', 'time', str(most), 0, most) == most
    for text in (str(most + 1), '9' * 5000):
        with pytest.raises(exception.InputInvalid):
            inputs.count('here', 'time', text, 0, most)


def test_standard_input_stays_open(tmp_path, monkeypatch):
    path = tmp_path / 'f'
    path.write_text('one')
    with path.open() as file:
        monkeypatch.setattr(inputs.sys, 'stdin', file)
        assert list(inputs.lines('-')) == [('-, line 1', 'one')]
        assert os.fstat(file.fileno()).st_size == 3


def test_why_a_file_cannot_be_read(tmp_path):
    path = tmp_path / 'f.gz'
    with pytest.raises(exception.InputInvalid,
                       match="got 'No such file or directory'"):
        list(inputs.lines(str(path)))
    path.write_bytes(gzip.compress(b'one')[:-9])
    with pytest.raises(exception.InputInvalid, match="got 'Compressed file"):
        list(inputs.lines(str(path)))
    found = gzip.compress(b'one')
    path.write_bytes(found[:10] + b'\xff' * 3 + found[13:])
    with pytest.raises(exception.InputInvalid, match="got 'Error -3"):
        list(inputs.lines(str(path)))


def test_a_line_has_16_mi_characters_at_most():
    assert inputs.MAX_LINE_CHARS == 2 ** 24


@pytest.mark.parametrize('kind, good, bad', [
    (inputs.size_bytes, {'5': 5.0, '1.5 GiB': 1.5 * 2 ** 30, '0': 0.0,
                         '1e17': 1e17, '0' * 50 + '7MB': 7e6},
     ['1.01e17', 'much', '', '-1', '5Gb', '9' * 60]),
    (inputs.rate_bps, {'10Gbit': 1e10, '1': 1.0, '1e15': 1e15,
                       '0' * 50 + '7Mbit': 7e6},
     ['0.9', '1000000000000001', 'fast', '', '-1', '9' * 60]),
    (inputs.amount, {'25.6M': 25.6e6, '7B': 7e9, '7g': 7e9, '3k': 3e3,
                     '1': 1.0, '1e15': 1e15, '2T': 2e12},
     ['0.9', '1000000000000001', '1001T', 'x', '', '7P', '-1'])])
def test_amounts(kind, good, bad):
    for text, value in good.items():
        assert kind('here', '--x', text) == pytest.approx(value), text
    for text in bad:
        with pytest.raises(exception.InputInvalid) as caught:
            kind('here', '--x', text)
        assert caught.value.kwargs['where'] == 'here'
        assert caught.value.kwargs['field'] == '--x'


def test_lines_are_numbered_from_one(tmp_path, monkeypatch):
    path = tmp_path / 'f'
    path.write_text('one\ntwo')
    assert list(inputs.lines(str(path))) == [
        (f'{path}, line 1', 'one\n'), (f'{path}, line 2', 'two')]
    path.write_bytes(b'one\n' * 3000 + b'\xff')
    with pytest.raises(exception.InputInvalid) as caught:
        list(inputs.lines(str(path)))
    assert caught.value.kwargs['field'].startswith('text after line ')
    monkeypatch.setattr(inputs, 'MAX_LINE_CHARS', 4)
    path.write_text('four\n')
    with pytest.raises(exception.InputInvalid, match='at most 4') as caught:
        list(inputs.lines(str(path)))
    assert caught.value.kwargs['where'] == f'{path}, line 1'
    path.write_text('tri\nfour')
    assert [line for _where, line in inputs.lines(str(path))] == [
        'tri\n', 'four']


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path, monkeypatch):
    """Editors and spreadsheets of Windows write one."""
    marked = '[[0, 1], [0, 0]]'.encode('utf-8-sig')
    for name, content in ('tm', marked), ('tm.gz', gzip.compress(marked)):
        path = tmp_path / name
        path.write_bytes(content)
        assert inputs.text_of(str(path), 99)[0] == '[[0, 1], [0, 0]]'
    with open(tmp_path / 'tm', 'rb') as stdin:
        monkeypatch.setattr(sys, 'stdin', stdin)
        assert inputs.text_of('-', 99)[0] == '[[0, 1], [0, 0]]'


def test_a_text_is_given_or_named(tmp_path):
    path = tmp_path / 'tm'
    path.write_text('12345\n7890\n')
    assert inputs.text_of(' [1]', 1) == (' [1]', None)
    assert inputs.text_of('{"a": 1}', 1) == ('{"a": 1}', None)
    for name in (str(path), f'@{path}'):
        assert inputs.text_of(name, 6) == ('12345\n7890\n', str(path))
    # There is room for twice as much, before it is written shorter.
    path.write_text('12345\n78901\n')
    assert inputs.text_of(str(path), 6)[0] == '12345\n78901\n'
    path.write_text('12345\n789012\n')
    with pytest.raises(exception.InputInvalid, match='at most 12 bytes'):
        inputs.text_of(str(path), 6)
    with pytest.raises(exception.InputInvalid, match='an existing file'):
        inputs.text_of(str(tmp_path), 6)
