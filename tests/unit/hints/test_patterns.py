# SPDX-License-Identifier: Apache-2.0

"""Patterns by their laws, and matrices that are written and read again."""

import json

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco import exception
from virtco import hint_encoding
from virtco import hint_matrix
from virtco import hint_patterns
from virtco.model import coflow

SHAPES = hint_patterns.SHAPES
NUMBERS = st.integers(1, 6)


def flows(name, counts, size, is_total=True, skew=0.0):
    shape = SHAPES[name]
    senders, receivers, n_vms = shape.count(counts)
    found = shape.flows(senders, receivers, size, is_total, skew)
    assert len(found) == shape.n_flows(senders, receivers)
    assert all(0 <= src < n_vms and 0 <= dst < n_vms and src != dst
               for src, dst, _size in found)
    return {(src, dst): size for src, dst, size in found}


@pytest.mark.parametrize(('name', 'counts', 'expected'), [
    ('shuffle', {'senders': 2, 'receivers': 3}, (2, 3, 5)),
    ('shuffle', {'senders': 2, 'receivers': 3, 'n': 5}, (2, 3, 5)),
    ('shuffle', {'senders': 2, 'receivers': 3, 'n': 6}, None),
    ('shuffle', {'senders': 2}, None), ('shuffle', {'receivers': 2}, None),
    ('broadcast', {'receivers': 1}, (1, 1, 2)),
    ('broadcast', {'receivers': 3}, (1, 3, 4)),
    ('broadcast', {'n': 4}, (1, 3, 4)),
    ('broadcast', {'n': 4, 'receivers': 3, 'senders': 1}, (1, 3, 4)),
    ('broadcast', {'n': 4, 'receivers': 2}, None),
    ('broadcast', {'n': 1}, None), ('broadcast', {'senders': 1}, None),
    ('broadcast', {'receivers': 3, 'senders': 2}, None),
    ('gather', {'senders': 3}, (3, 1, 4)), ('gather', {'n': 2}, (1, 1, 2)),
    ('gather', {'senders': 3, 'receivers': 2}, None),
    ('ring', {'n': 2}, (2, 2, 2)), ('ring', {'senders': 3}, (3, 3, 3)),
    ('ring', {'n': 1}, None), ('ring', {}, None),
    ('all-to-all', {'n': 3, 'senders': 3, 'receivers': 3}, (3, 3, 3)),
    ('all-to-all', {'n': 3, 'senders': 3, 'receivers': 2}, None)])
def test_counts(name, counts, expected):
    if expected is None:
        with pytest.raises(ValueError):
            SHAPES[name].count(counts)
    else:
        assert SHAPES[name].count(counts) == expected


@given(NUMBERS, NUMBERS, st.floats(0, 3))
def test_a_size_is_that_of_all_flows(senders, receivers, skew):
    for name, counts in (('shuffle', {'senders': senders,
                                      'receivers': receivers}),
                         ('gather', {'senders': senders}),
                         ('broadcast', {'receivers': receivers}),
                         ('all-to-all', {'n': senders + 1}),
                         ('ring', {'n': senders + 1})):
        skew = 0.0 if name in ('broadcast', 'ring') else skew
        whole = flows(name, counts, 1000.0, skew=skew)
        assert sum(whole.values()) == pytest.approx(1000)
        # Of flows of 1000 bytes each that is the mean.
        each = flows(name, counts, 1000.0, False, skew)
        assert sum(each.values()) == pytest.approx(1000 * len(each))
        for pair, size in whole.items():
            assert each[pair] == pytest.approx(size * len(each))


def test_skew_follows_zipf():
    shuffled = flows('shuffle', {'senders': 2, 'receivers': 3}, 1100, True,
                     1.0)
    assert shuffled == pytest.approx({
        (0, 2): 300, (0, 3): 150, (0, 4): 100,
        (1, 2): 300, (1, 3): 150, (1, 4): 100})
    assert flows('gather', {'senders': 2}, 500, True, 2.0) == pytest.approx(
        {(0, 2): 400, (1, 2): 100})
    # A peer's share is by its row; nobody sends to itself.
    assert flows('all-to-all', {'n': 3}, 900, True, 1.0) == pytest.approx({
        (0, 1): 180, (0, 2): 120, (1, 0): 225, (1, 2): 75, (2, 0): 200,
        (2, 1): 100})


def test_which_patterns_may_be_skewed():
    counts = {'n', 'senders', 'receivers', 'size', 'flow_size'}
    assert {name for name, shape in SHAPES.items()
            if shape.keys - counts == {'skew'}} == {
                'shuffle', 'gather', 'all-to-all'}
    assert all(counts <= shape.keys for shape in SHAPES.values())


@pytest.mark.parametrize(('name', 'told'), [
    ('broadcast', 'a pattern with n'),
    ('gather', 'a pattern with n'), ('ring', 'a pattern with n'),
    ('shuffle', 'a pattern with senders')])
def test_what_a_pattern_has_to_say(name, told):
    with pytest.raises(ValueError, match=f'^{told}$'):
        SHAPES[name].count({})


def test_rings():
    assert flows('ring', {'n': 3}, 9.0) == {(0, 1): 3, (1, 2): 3, (2, 0): 3}
    assert flows('ring', {'n': 3}, 9.0, False) == {
        (0, 1): 9, (1, 2): 9, (2, 0): 9}
    assert flows('allreduce-ring', {'n': 4}, 8.0) == {
        (0, 1): 12, (1, 2): 12, (2, 3): 12, (3, 0): 12}
    assert flows('allreduce-ring', {'n': 4}, 8.0, False) == {
        (0, 1): 8, (1, 2): 8, (2, 3): 8, (3, 0): 8}
    assert hint_patterns.MAX_SKEW == 8


def read(text, name='a'):
    return hint_matrix.parse_matrix_text(text, name)


@pytest.mark.parametrize('text', [
    '{"n":3,"flows":[[0,1,5],[2,0,7.5]]}',
    '[{"name":"x","tm":{"n":2,"flows":[[1,0,5]]}}]',
    '[{"name":"a","dst_port":5,"tm":{"n":2,"flows":[[1,0,5]]}}]',
    '[{"name":"a","iterations":0,"period":3,"compute":1.5,"order":"mrtf",'
    '"rank_hint":true,"tm":{"n":2,"flows":[[1,0,5]]}}]',
    '[{"name":"a","iterations":2,"compute":1,"order":"intensity",'
    '"tm":{"n":2,"flows":[[1,0,999999999999999]]}}]',
    '[{"name":"a","tm":{"n":2,"flows":[[1,0,5]]}},'
    '{"name":"b","tm":{"n":2,"flows":[]}}]'])
def test_a_matrix_is_written_as_it_is_read(text):
    assert hint_encoding.encode_matrix(read(text), 'a') == text


def test_large_sizes_are_written_as_they_are():
    big = coflow.Coflow.from_flows('a', 2, [(0, 1, 2.0 ** 53)])
    assert json.loads(hint_encoding.encode_matrix((big,), 'a')) == {
        'n': 2, 'flows': [[0, 1, 2.0 ** 53]]}
    assert '9007199254740992.0' in hint_encoding.encode_matrix((big,), 'a')
    exact = coflow.Coflow.from_flows('a', 2, [(0, 1, 2.0 ** 53 - 1)])
    assert '9007199254740991]' in hint_encoding.encode_matrix((exact,), 'a')


@pytest.mark.parametrize(('entry', 'is_taken'), [
    ({'iterations': 0}, True), ({'iterations': 10 ** 9}, True),
    ({'iterations': 10 ** 9 + 1}, False), ({'iterations': -1}, False),
    ({'iterations': 2, 'period': 1e-3}, True),
    ({'iterations': 2, 'period': 0.9e-3}, False),
    ({'iterations': 2, 'period': 30 * 86400}, True),
    ({'iterations': 2, 'period': '721h'}, False),
    ({'iterations': 2, 'compute': 0}, True),
    ({'iterations': 2, 'compute': -1e-9}, False),
    ({'iterations': 2, 'compute': True}, False),
    ({'iterations': 2, 'compute': 'soon'}, False),
    ({'iterations': 2, 'compute': 's' * 41}, False),
    ({'iterations': 2, 'compute': ' ' * 38 + '1s'}, True),
    ({'iterations': 2, 'compute': ' ' * 39 + '1s'}, False),
    ({'iterations': 2, 'compute': 2, 'period': 2}, True),
    ({'iterations': 2, 'compute': 2.1, 'period': 2}, False),
    ({'compute': 1}, False), ({'period': 1}, False),
    ({'iterations': 2, 'compute': 1, 'order': 'intensity'}, True),
    ({'iterations': 2, 'order': 'intensity'}, False),
    ({'iterations': 2, 'order': 'mrtf'}, True), ({'order': 'x'}, False),
    ({'rank_hint': [1, 0]}, True), ({'rank_hint': [0, 0]}, False),
    ({'rank_hint': [0]}, False), ({'rank_hint': [0, 2]}, False),
    ({'rank_hint': 1}, False), ({'dst_port': 1}, True),
    ({'dst_port': 65535}, True), ({'dst_port': 65536}, False),
    ({'dst_port': 0}, False)])
def test_what_a_named_matrix_may_say(entry, is_taken):
    value = [{'name': 'x', 'tm': [[0, 5], [0, 0]], **entry}]
    if is_taken:
        (found,) = hint_matrix.parse_matrix(value, 'a')
        assert found.name == 'x'
        assert found.iterations == entry.get('iterations', 1)
        assert found.rank_hint == bool(entry.get('rank_hint'))
        # A row of a rank: rank 0 runs on row 1.
        assert (found.flows[0].src == 1) == ('rank_hint' in entry)
    else:
        with pytest.raises(exception.HintInvalid):
            hint_matrix.parse_matrix(value, 'a')


@pytest.mark.parametrize(('limits', 'value', 'is_taken'), [
    ({'max_vms': 3}, [[0] * 3] * 3, True),
    ({'max_vms': 2}, [[0] * 3] * 3, False),
    ({'max_vms': 4}, {'pattern': 'shuffle', 'senders': 2, 'receivers': 2,
                      'size': 1}, True),
    ({'max_vms': 3}, {'pattern': 'shuffle', 'senders': 2, 'receivers': 2,
                      'size': 1}, False),
    ({'max_flows': 3}, {'pattern': 'ring', 'n': 3, 'size': 1}, True),
    ({'max_flows': 2}, {'pattern': 'ring', 'n': 3, 'size': 1}, False),
    ({'max_flows': 2}, [[0, 1, 1], [0, 0, 0], [0, 0, 0]], True),
    ({'max_flows': 2}, {'n': 3, 'flows': [[0, 1, 0], [0, 1, 0]]}, True),
    ({'max_flows': 1}, {'n': 3, 'flows': [[0, 1, 0], [0, 1, 0]]}, False),
    ({'max_bytes': 10}, [[0, 4], [6, 0]], True),
    ({'max_bytes': 9}, [[0, 4], [6, 0]], False),
    ({'max_bytes': 10}, {'pattern': 'ring', 'n': 2, 'flow_size': 5}, True),
    ({'max_bytes': 9}, {'pattern': 'ring', 'n': 2, 'flow_size': 5}, False),
    ({'max_bytes_per_flow': 5}, [[0, 5], [0, 0]], True),
    ({'max_bytes_per_flow': 5}, [[0, 6], [0, 0]], False),
    ({'max_bytes_per_flow': 5}, {'n': 2, 'flows': [[0, 1, 3]] * 2}, False),
    ({'max_bytes_per_flow': 6}, {'n': 2, 'flows': [[0, 1, 3]] * 2}, True),
    # The size of a pattern is that of all of its flows.
    ({'max_bytes_per_flow': 5}, {'pattern': 'ring', 'n': 2, 'size': 10},
     True),
    ({'max_coflows': 2}, [{'name': n, 'tm': [[0]]} for n in 'xy'], True),
    ({'max_coflows': 1}, [{'name': n, 'tm': [[0]]} for n in 'xy'], False),
    ({'max_name_chars': 2}, [{'name': 'xy', 'tm': [[0]]}], True),
    ({'max_name_chars': 1}, [{'name': 'xy', 'tm': [[0]]}], False)])
def test_limits_are_reached_and_not_exceeded(limits, value, is_taken):
    bounds = hint_matrix.Limits(**limits)
    if is_taken:
        assert hint_matrix.parse_matrix(value, 'a', bounds)
    else:
        with pytest.raises(exception.HintInvalid):
            hint_matrix.parse_matrix(value, 'a', bounds)


def test_text_has_so_many_bytes():
    text = '[[0,"1kB"],[0,0]]'
    bounds = hint_matrix.Limits(max_text_bytes=len(text))
    assert hint_matrix.parse_matrix_text(text, 'a', bounds)
    for more in (text + ' ', text.replace('k', 'µ')):
        with pytest.raises(exception.HintInvalid, match='bytes of text'):
            hint_matrix.parse_matrix_text(more, 'a', bounds)
    # The body of a request to the API has a bound of its own.
    assert hint_matrix.parse_matrix(text + ' ', 'a', bounds)


def test_the_limits_that_are_not_given():
    assert hint_matrix.Limits() == hint_matrix.Limits(
        500, 50_000, 1e15, 1e17, 32, 114_688, 255)


def size_bytes(value):
    """Read the size of one flow."""
    coflow, = hint_matrix.parse_matrix([[0, value], [0, 0]], 'a')
    return coflow.size_bytes


@pytest.mark.parametrize(('value', 'size'), [
    ('1kB', 1000), (0, 0), (7, 7), (' ' * 39 + '1', 1)])
def test_a_size(value, size):
    assert size_bytes(value) == size


@pytest.mark.parametrize('value', [
    -1, True, None, float('nan'), 'x', ' ' * 40 + '1', '5Gb', [1]])
def test_what_is_no_size(value):
    with pytest.raises(exception.HintInvalid):
        size_bytes(value)
    with pytest.raises(exception.HintInvalid, match='bytes, such as 5GB'):
        size_bytes('5Gb')


@pytest.mark.parametrize(('value', 'text'), [
    ('x', 'x'), (2 ** 64 - 1, str(2 ** 64 - 1)), (2 ** 64, None),
    (True, None), (None, None), (1.5, None)])
def test_text_of_a_hint(value, text):
    if text is None:
        with pytest.raises(exception.HintInvalid):
            hint_matrix.as_text('f', value)
    else:
        assert hint_matrix.as_text('f', value) == text


def test_what_is_shown_of_a_value_is_short():
    assert len(hint_matrix.shorten('x' * 1000)) == 60
    assert hint_matrix.shorten([[[1]]]) == '[[[...]]]'
    assert len(hint_matrix.shorten(10 ** 100)) == 60
    assert hint_matrix.shorten(10 ** 5000) == 'a int'


@pytest.mark.parametrize(('length', 'is_cut'), [(80, False), (81, True)])
def test_why_it_is_no_json_is_short(length, is_cut):
    told = hint_matrix._why(ValueError('x' * length))
    assert len(told) == 80 and told.endswith('...') is is_cut


@pytest.mark.parametrize('skew', [-0.1, 8.1, True, '1'])
def test_a_skew_has_bounds(skew):
    spec = {'pattern': 'all-to-all', 'n': 3, 'size': 1}
    for good in (0, 8, 2.5):
        assert hint_matrix.parse_matrix({**spec, 'skew': good}, 'a')
    with pytest.raises(exception.HintInvalid):
        hint_matrix.parse_matrix({**spec, 'skew': skew}, 'a')
    assert hint_matrix.parse_matrix(spec, 'a') == hint_matrix.parse_matrix(
        {**spec, 'skew': 0}, 'a')
