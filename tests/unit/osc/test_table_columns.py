# SPDX-License-Identifier: Apache-2.0

"""Values as people read them in tables."""

import datetime
import importlib
import inspect
import pkgutil
import re

import msgspec
import pytest

from virtco import osc
from virtco.osc import table_columns as columns
from virtco.wire import check
from virtco.wire import coflow_bodies as wire
from virtco.wire import fields
from virtco.wire import operation
from virtco.wire import probe
from virtco.wire import profile


@pytest.mark.parametrize(('name', 'value', 'words'), [
    ('size_bytes', 2e9, '2 GB'), ('rate_bps', 2e9, '2 Gbit/s'),
    ('cct_s', 2.0, '2 s'), ('gap', 0.125, '12.5 %'),
    ('hosts', ['a', None, 3], 'a, -, 3'), ('hosts', None, ''),
    ('bottleneck', wire.Bottleneck(
        host='h', direction='up', busy_s=None), 'h up'),
    ('bottleneck', wire.Bottleneck(
        host='h', direction='up', busy_s=0.83344, capped_vm='v'),
     'h up 833.4 ms v'),
    ('planes', [1, 2], '2'), ('planes', None, ''),
    ('under_way', [fields.Pair('a', 'b'), fields.Pair('c', 'd')],
     'a -> b, c -> d'), ('under_way', [], ''),
    ('bottleneck', None, ''), ('members', None, ''),
    ('members', [check.Reading('a', '', 1e9), profile.Launch(0, 2e9)],
     'src a, rate_bps 1 Gbit/s\nn_vms 0, size_bytes 2 GB'),
    ('error', 0.125, '12.5 %'), ('error', 'no uplink0', 'no uplink0'),
    ('predicted_end', 1e14, '1e+14 s'), ('deadline', 1e300, '1e+300 s'),
    ('name', 'x', 'x'), ('name', 0, 0)])
def test_what_a_cell_shows(name, value, words):
    assert columns.cell(name, value).human_readable() == words


@pytest.mark.parametrize('name', ['size_bytes', 'rate_bps', 'cct_s', 'gap',
                                  'at', 'name'])
def test_what_is_not_known_leaves_a_cell_empty(name):
    assert columns.cell(name, None).human_readable() == ''
    assert columns.cell(name, 0.0).human_readable() != ''


def _kinds(base):
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


@pytest.mark.parametrize('name', sorted({
    name for kind in _kinds(operation.Response)
    for name, told in re.findall(
        r'(?ms)^:ivar (\w+): (.*?)(?=^:ivar |\Z)', inspect.getdoc(kind))
    if 'since the epoch' in ' '.join(told.split())}))
def test_each_time_of_an_answer_is_shown_as_one(name):
    assert columns.cell(name, 1e9).human_readable().startswith('2001-09-0')


def test_what_a_line_of_a_cell_leaves_out():
    found = check.Finding(kind='host-egress', subject='h1', rate_bps=1e9,
                          expected_bps=2e9)
    line = ('kind host-egress, subject h1, rate_bps 1 Gbit/s, '
            'expected_bps 2 Gbit/s')
    shown = columns.cell('findings', [found, msgspec.structs.replace(
        found, evidence=[check.Reading('a', 'b', 1e9)] * 3)])
    assert shown.human_readable() == f'{line}\n{line}, evidence 3'


def test_times_are_local_and_in_seconds():
    at = datetime.datetime(2024, 5, 6, 7, 8, 9, 900_000)
    assert columns.cell('at', at.timestamp()).human_readable() == (
        '2024-05-06 07:08:09')


@pytest.mark.parametrize(('name', 'title'), [
    ('size_bytes', 'Size'), ('rate_bps', 'Rate'), ('saved_s', 'Saved'),
    ('n_vms', 'VMs'), ('to_host', 'To Host')])
def test_titles_name_no_unit(name, title):
    assert columns.title(name) == title


def test_a_program_gets_the_value_itself():
    assert columns.cell('members', [profile.Launch(3, 2e9)]
                        ).machine_readable() == [
        {'n_vms': 3, 'size_bytes': 2e9}]


def test_columns_are_the_fields_that_are_set():
    assert columns.fields(probe.Results) == ['done', 'results']
    assert columns.fields(probe.Results(done=True, results=[], why='x')) == [
        'done', 'results', 'why']


def test_a_terminal_obeys_no_name():
    shown = columns.cell('name', 'a\x1b[2J\x9b\r\nü').human_readable()
    assert shown == 'a\ufffd[2J\ufffd\ufffd\nü'
    assert columns.cell('name', 'a\x1b').machine_readable() == 'a\x1b'


def _rows():
    """Find the types of rows that commands list, some of them by an option."""
    for found in pkgutil.iter_modules(osc.__path__):
        module = importlib.import_module(f'{osc.__name__}.{found.name}')
        for one in vars(module).values():
            row = getattr(one, 'row', one)
            if isinstance(row, type) and issubclass(row, msgspec.Struct):
                yield row


@pytest.mark.parametrize('row', sorted(set(_rows()), key=str))
def test_a_table_has_each_title_once(row):
    titles = [columns.title(name) for name in row.__struct_fields__]
    assert len(set(titles)) == len(titles)
