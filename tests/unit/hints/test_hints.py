# SPDX-License-Identifier: Apache-2.0

"""Every form of the hint, every offence, and laws over any input."""

import json
import time
import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from tests import examples
from virtco import exception
from virtco import hint_matrix
from virtco import hints
from virtco.model import coflow as coflow_model


def tm(value: Any, **others: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value)
    return {'virtco:coflow': 'a', 'virtco:tm': text, **others}


def flows_of(value: Any) -> list[tuple[int, int, float]]:
    hint = hints.parse(tm(value))
    assert hint is not None and len(hint.coflows) == 1
    return [(f.src, f.dst, f.size_bytes) for f in hint.coflows[0].flows]


@pytest.mark.parametrize('given_hints, metadata', [
    (None, None), ({}, {}), ({'same_host': ['x']}, {'role': 'web'}),
    ({'virtcoflow': '1', 5: 'x'}, None)])
def test_no_virtco_key_is_no_hint(given_hints, metadata):
    assert hints.parse(given_hints, metadata) is None


def test_dense_matrix_with_units():
    hint = hints.parse(tm([[0, '5GB'], ['1 GiB', 0]]))
    assert hint == hints.Hint('a', coflows=(coflow_model.Coflow.from_flows(
        'a', 2, [(0, 1, 5e9), (1, 0, 2.0 ** 30)]),))


def test_values_as_nova_keeps_them():
    wrapped = {key: [value] for key, value in tm(
        [[0, 7], [0, 0]], **{'virtco:index': '1'}).items()}
    hint = hints.parse(wrapped)
    assert hint is not None and hint.index == 1
    assert hint == hints.parse(tm([[0, 7], [0, 0]], **{'virtco:index': 1}))


def test_sparse_matrix_adds_duplicates_and_drops_self_flows():
    value = {'n': 40, 'flows': [[0, 20, '720MB'], [0, 20, 1], [3, 3, 9]]}
    assert flows_of(value) == [(0, 20, 720e6 + 1)]


def test_named_matrices_share_the_vms():
    hint = hints.parse(tm([
        {'name': 'C1', 'dst_port': 5001, 'tm': [[0, 3, 0], [0] * 3, [0] * 3]},
        {'name': 'C2', 'tm': {'n': 3, 'flows': [[1, 2, '2kB']]}}]))
    assert hint is not None and hint.coflows[0].n_vms == 3
    assert [(c.name, c.dst_port, c.size_bytes) for c in hint.coflows] == [
        ('C1', 5001, 3.0), ('C2', None, 2000.0)]


def test_a_matrix_is_sent_once_unless_it_says_how_often():
    hint = hints.parse(tm([
        {'name': 'train', 'iterations': 0, 'tm': [[0, 3], [0, 0]]},
        {'name': 'test', 'iterations': 20, 'tm': [[0, 3], [0, 0]]},
        {'name': 'load', 'tm': [[0, 3], [0, 0]]}]))
    assert hint is not None
    assert [c.iterations for c in hint.coflows] == [0, 20, 1]
    assert hints.parse(hints.encode(hint)) == hint
    assert [c.scaled(2.0).iterations for c in hint.coflows] == [0, 20, 1]


@pytest.mark.parametrize('value, expected', [
    ({'pattern': 'shuffle', 'senders': 2, 'receivers': 2, 'size': 400},
     [(0, 2, 100), (0, 3, 100), (1, 2, 100), (1, 3, 100)]),
    ({'pattern': 'shuffle', 'senders': 1, 'receivers': 2, 'size': 300,
      'skew': 1}, [(0, 1, 200), (0, 2, 100)]),
    ({'pattern': 'shuffle', 'senders': 1, 'receivers': 2, 'flow_size': 300},
     [(0, 1, 300), (0, 2, 300)]),
    ({'pattern': 'broadcast', 'receivers': 2, 'size': '1kB'},
     [(0, 1, 500), (0, 2, 500)]),
    ({'pattern': 'gather', 'n': 3, 'size': 300, 'skew': 1},
     [(0, 2, 200), (1, 2, 100)]),
    ({'pattern': 'all-to-all', 'n': 3, 'size': 600},
     [(s, d, 100) for s in range(3) for d in range(3) if s != d]),
    ({'pattern': 'ring', 'n': 3, 'size': 300},
     [(0, 1, 100), (1, 2, 100), (2, 0, 100)]),
    ({'pattern': 'allreduce-ring', 'n': 4, 'size': 400},
     [(0, 1, 600), (1, 2, 600), (2, 3, 600), (3, 0, 600)])])
def test_patterns(value, expected):
    found = {(src, dst): size for src, dst, size in flows_of(value)}
    assert found == pytest.approx({(s, d): size for s, d, size in expected})


@pytest.mark.parametrize('pattern', ['shuffle', 'gather', 'all-to-all'])
@pytest.mark.parametrize('skew', [0, 0.5, 2])
def test_size_is_the_total_whatever_the_skew(pattern, skew):
    counts = {'shuffle': {'senders': 3, 'receivers': 4},
              'gather': {'senders': 5}, 'all-to-all': {'n': 6}}[pattern]
    flows = flows_of({'pattern': pattern, 'size': '19GB', 'skew': skew,
                      **counts})
    assert sum(size for _s, _d, size in flows) == pytest.approx(19e9)
    sizes = [size for _s, _d, size in flows]
    assert (max(sizes) > 1.2 * min(sizes)) == (skew > 0)


def test_metadata_pieces_spell_the_same_matrix():
    text = json.dumps({'n': 60, 'flows': [[i, i + 1, '720MB']
                                          for i in range(59)]})
    pieces = {f'virtco:tm.{i}': text[i * 255:(i + 1) * 255]
              for i in range(len(text) // 255 + 1)}
    assert len(pieces) > 2
    assert hints.parse(None, {'virtco:coflow': 'a', **pieces}) == (
        hints.parse(tm(text)))


def test_hints_win_over_metadata_key_by_key():
    metadata = tm([[0, 1], [0, 0]], **{'virtco:index': '1'})
    hint = hints.parse({'virtco:coflow': 'b', 'virtco:tm_ref': 'm-1'},
                       metadata)
    assert hint == hints.Hint('b', 1, 'm-1')
    hint = hints.parse({'virtco:index': '0'}, metadata)
    assert hint is not None and (hint.index, hint.coflow_name) == (0, 'a')


def test_broken_metadata_matrix_does_not_spoil_a_hint():
    hint = hints.parse(tm([[0, 1], [0, 0]]), {'virtco:tm.4': 'x',
                                              'virtco:index': '1'})
    assert hint is not None and hint.index == 1


def test_a_name_alone_joins_a_group():
    assert hints.parse({'virtco:coflow': 'a'}) == hints.Hint('a')


SMALL = hints.Limits(max_vms=4, max_flows=5, max_bytes_per_flow=1e6,
                     max_bytes=3e6, max_coflows=2, max_text_bytes=300,
                     max_name_chars=8)
NAMED = {'name': 'x', 'tm': [[0, 1], [0, 0]]}


@pytest.mark.parametrize('values, field, limit', [
    ({'virtco:tm': '[[0]]'}, 'virtco:coflow', 'a name beside'),
    ({'virtco:cofow': 'a'}, 'virtco:cofow', 'one of the keys'),
    ({'virtco:coflow': ['a', 'b']}, 'virtco:coflow', 'a text'),
    ({'virtco:coflow': ''}, 'virtco:coflow', '1 to 8'),
    ({'virtco:coflow': 'x' * 9}, 'virtco:coflow', '1 to 8'),
    ({'virtco:coflow': 'a\n'}, 'virtco:coflow', 'printable'),
    ({'virtco:coflow': 'a\nb'}, 'virtco:coflow', 'printable'),
    ({'virtco:coflow': ' a'}, 'virtco:coflow', 'outer spaces'),
    (tm('[[0]]', **{'virtco:tm_ref': 'r'}), 'virtco:tm_ref', 'nothing beside'),
    (tm('[[0, 1], [0, 0]]', **{'virtco:index': '2'}), 'virtco:index',
     'between 0 and 1'),
    (tm('[[0]]', **{'virtco:index': '-1'}), 'virtco:index', 'row'),
    (tm('[[0]]', **{'virtco:tm.0': '[[0]]'}), 'virtco:tm', 'pieces'),
    ({'virtco:coflow': 'a', 'virtco:tm.1': 'x'}, 'virtco:tm.0', 'gap'),
    (tm('[' * 300), 'virtco:tm', 'JSON'),
    (tm('{'), 'virtco:tm', 'JSON'),
    (tm('[[NaN]]'), 'virtco:tm', 'NaN'),
    (tm('{"n": 1, "n": 2, "flows": []}'), 'virtco:tm', 'twice'),
    (tm('x' * 301), 'virtco:tm', '300 bytes'),
    (tm('7'), 'virtco:tm', 'matrix'),
    (tm([]), 'virtco:tm rows', 'between 1 and 4'),
    (tm([[0] * 5] * 5), 'virtco:tm rows', 'between 1 and 4'),
    (tm([[0, 1], [0]]), 'virtco:tm[1]', '2 sizes'),
    (tm([[0, -1], [0, 0]]), 'virtco:tm[0][1]', 'between 0 and 1 MB'),
    (tm([[0, '2MB'], [0, 0]]), 'virtco:tm[0][1]', 'between 0 and 1 MB'),
    (tm('[[0, 1e999], [0, 0]]'), 'virtco:tm[0][1]', 'between 0'),
    (tm([[0, True], [0, 0]]), 'virtco:tm[0][1]', 'between 0'),
    (tm([[0, 'lots'], [0, 0]]), 'virtco:tm[0][1]', '720MB'),
    (tm([[0, '5\u212aB'], [0, 0]]), 'virtco:tm[0][1]', '720MB'),
    (tm([[0, 1, 1], [1, 0, 1], [1, 1, 0]]), 'virtco:tm flows', 'at most 5'),
    (tm([['1MB'] * 2, ['1MB'] * 2]), 'virtco:tm bytes', 'at most 3 MB'),
    (tm({'n': 5, 'flows': []}), 'virtco:tm.n', '1 and 4'),
    (tm({'n': 2.0, 'flows': []}), 'virtco:tm.n', 'whole'),
    (tm({'n': 2}), 'virtco:tm.flows', 'a value'),
    (tm({'n': 2, 'flows': {}}), 'virtco:tm.flows', 'list'),
    (tm({'n': 2, 'flows': [], 'skew': 1}), 'virtco:tm',
     'one of the keys flows, n'),
    (tm({'n': 2, 'flows': [[0, 1]]}), 'virtco:tm.flows[0]', 'receiver'),
    (tm({'n': 2, 'flows': [[0, 1, '600kB']] * 2}), 'virtco:tm[0][1]',
     'between 0 and 1 MB'),
    (tm({'n': 2, 'flows': [[0, 2, 1]]}), 'virtco:tm.flows[0][1]', '0 and 1'),
    (tm({'pattern': 'star', 'n': 2}), 'virtco:tm.pattern', 'shuffle'),
    (tm({'pattern': ['ring']}), 'virtco:tm.pattern', 'shuffle'),
    (tm({'pattern': 'ring', 'n': 5, 'size': 1}), 'virtco:tm.n', '1 and 4'),
    (tm({'pattern': 'ring', 'n': 1, 'size': 1}), 'virtco:tm', 'at least 2'),
    (tm({'pattern': 'ring', 'n': 2, 'size': 1, 'skew': 1}), 'virtco:tm',
     'one of the keys'),
    (tm({'pattern': 'ring', 'n': 2}), 'virtco:tm', 'size or flow_size'),
    (tm({'pattern': 'shuffle', 'senders': 2, 'size': 1}), 'virtco:tm',
     'receivers'),
    (tm({'pattern': 'shuffle', 'senders': 3, 'receivers': 2, 'size': 1}),
     'virtco:tm', 'at most 4'),
    (tm({'pattern': 'broadcast', 'n': 3, 'senders': 2, 'size': 1}),
     'virtco:tm', 'senders of 1'),
    (tm({'pattern': 'all-to-all', 'n': 3, 'senders': 2, 'size': 1}),
     'virtco:tm', 'one n'),
    (tm({'pattern': 'all-to-all', 'n': 3, 'size': 1, 'skew': -1}),
     'virtco:tm.skew', '0 and 8'),
    (tm({'pattern': 'all-to-all', 'n': 3, 'flow_size': '1MB'}),
     'virtco:tm flows', 'at most 5'),
    (tm({'pattern': 'ring', 'n': 4, 'flow_size': '1MB'}), 'virtco:tm bytes',
     'at most 3 MB'),
    (tm([NAMED] * 3), 'virtco:tm', '2 matrices'),
    (tm([NAMED, NAMED]), 'virtco:tm[1].name', 'once'),
    (tm([NAMED, []]), 'virtco:tm[1]', 'object'),
    (tm([NAMED, {'name': 'y', 'tm': [[0]]}]), 'virtco:tm[1].tm', '2 rows'),
    (tm([{**NAMED, 'dst_port': 0}]), 'virtco:tm[0].dst_port', '65535'),
    (tm([{**NAMED, 'dst_port': None}]), 'virtco:tm[0].dst_port', '65535'),
    (tm([{**NAMED, 'iterations': -1}]), 'virtco:tm[0].iterations', '0 and'),
    (tm([{**NAMED, 'iterations': 10 ** 10}]), 'virtco:tm[0].iterations',
     '1000000000'),
    (tm([{**NAMED, 'iterations': True}]), 'virtco:tm[0].iterations',
     'whole number'),
    (tm([{**NAMED, 'iterations': '3'}]), 'virtco:tm[0].iterations',
     'whole number'),
    (tm([{**NAMED, 'tm': [NAMED]}]), 'virtco:tm[0].tm[0]', 'sizes'),
    (tm([{'tm': [[0]]}]), 'virtco:tm[0].name', 'a value')])
def test_offences_name_field_value_and_limit(values, field, limit):
    with pytest.raises(exception.HintInvalid) as caught:
        hints.parse(values, None, SMALL)
    assert caught.value.kwargs['field'].strip("'") == field
    assert limit in caught.value.kwargs['limit']
    assert len(str(caught.value)) < 400
    if field not in ('virtco:coflow', 'virtco:tm_ref', 'virtco:index') and (
            'virtco:coflow' in values):
        with pytest.raises(exception.HintInvalid):
            hints.parse(None, values, SMALL)


@pytest.mark.parametrize('hostile', [
    '{"pattern":"all-to-all","senders":1000000000,"size":1}',
    '{"pattern":"all-to-all","n":500,"size":"1GB"}',
    '{"pattern":"shuffle","senders":499,"receivers":499,"size":1}',
    '[' * 114_000, '{"a":' * 20_000, '[[' + '9' * 110_000 + ']]',
    '[["1' + ' ' * 110_000 + 'x"]]', '"' + '\\ud800' * 19_000 + '"',
    '[' + ','.join(['[0]'] * 28_000) + ']', '[' + '{},' * 38_000 + '{}]',
    '{"n":2,"flows":[' + '[0,1,1],' * 14_000 + '[0,1]]}', '[[1e400]]',
    '[[-Infinity]]', 'null', '\x00', '\ud800'])
def test_hostile_text_is_refused_fast_and_small(hostile):
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(exception.HintInvalid):
        hints.parse({'virtco:coflow': 'a', 'virtco:tm': hostile})
    cpu_s = time.process_time() - start
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert cpu_s < 2.0 and peak_bytes < 40e6


class _Rude:
    def __repr__(self):
        raise RuntimeError('no')


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(
        max_size=8) | st.builds(_Rude),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(['n', 'flows', 'pattern', 'size', 'name', 'tm', 'q']),
        inner, max_size=4), max_leaves=12)
KEYS = st.sampled_from(['virtco:coflow', 'virtco:tm', 'virtco:index',
                        'virtco:tm_ref', 'virtco:tm.0', 'virtco:tm.1',
                        'virtco:x', 'other'])


@pytest.mark.parametrize('key', ['virtco:coflow', 'virtco:tm',
                                 'virtco:index', 'virtco:tm_ref'])
def test_an_int_too_long_for_its_repr_is_refused(key):
    with pytest.raises(exception.HintInvalid):
        hints.parse({'virtco:coflow': 'a', key: 10 ** 5000})
    with pytest.raises(exception.HintInvalid):
        hint_matrix.parse_matrix([[10 ** 5000]], 'a')


def parse_or_refuse(*args: Any) -> None:
    try:
        hints.parse(*args)
    except exception.HintInvalid as error:
        assert set(error.kwargs) == {'field', 'value', 'limit'}


@given(st.dictionaries(KEYS | ANYTHING.filter(lambda k: isinstance(k, str)),
                       ANYTHING) | ANYTHING,
       st.dictionaries(KEYS, ANYTHING | st.text()))
@settings(deadline=None)
def test_any_mapping_parses_or_is_refused(given_hints, metadata):
    parse_or_refuse(given_hints, metadata)


@given(st.text() | ANYTHING.map(lambda v: json.dumps(v, default=id)))
@settings(max_examples=examples.count(300), deadline=None)
def test_any_text_parses_or_is_refused(text):
    parse_or_refuse({'virtco:coflow': 'a', 'virtco:tm': text})


@given(st.dictionaries(
    st.sampled_from(['n', 'senders', 'receivers', 'size', 'flow_size',
                     'skew']), st.integers(-1, 40) | ANYTHING),
       st.sampled_from(['shuffle', 'broadcast', 'gather', 'all-to-all', 'ring',
                        'allreduce-ring']))
@settings(deadline=None)
def test_any_pattern_parses_or_is_refused(value, pattern):
    try:
        (coflow,) = hint_matrix.parse_matrix(
            {'pattern': pattern, **value}, 'a')
    except exception.HintInvalid:
        return
    assert coflow.n_vms >= 2
    assert all(f.src != f.dst for f in coflow.flows)


SIZES = st.integers(1, 10 ** 13).map(float) | st.floats(1e-3, 1e13)
NAMES = st.text('abcXYZ09-_. äß漢', min_size=1, max_size=20).filter(
    lambda text: text == text.strip())


@st.composite
def any_hint(draw: Any) -> hints.Hint:
    name = draw(NAMES)
    index = draw(st.none() | st.integers(0, 3))
    if draw(st.booleans()):
        return hints.Hint(name, index, draw(st.none() | NAMES))
    n_vms = draw(st.integers(4, 9))
    rows = st.integers(0, n_vms - 1)
    flows = st.lists(st.tuples(rows, rows, SIZES), max_size=30)
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    coflows = tuple(
        coflow_model.Coflow.from_flows(
            entry, n_vms, draw(flows),
            draw(st.none() | st.integers(1, 65535)))
        for entry in names)
    return hints.Hint(name, index, coflows=coflows)


@given(any_hint())
@settings(deadline=None)
def test_encode_and_parse_are_inverse(hint):
    assert hints.parse(hints.encode(hint)) == hint
    assert hints.parse({key: [value] for key, value
                        in hints.encode(hint).items()}) == hint
    metadata = hints.encode_metadata(hint)
    assert max(map(len, metadata.values())) <= 255
    assert hints.parse({}, metadata) == hint


def test_metadata_that_nova_cannot_hold_is_refused():
    (coflow,) = hint_matrix.parse_matrix(
        {'pattern': 'all-to-all', 'n': 60, 'size': '1TB'}, 'a')
    with pytest.raises(exception.HintInvalid, match='128'):
        hints.encode_metadata(hints.Hint('a', coflows=(coflow,)))


def recurring(**fields: Any) -> dict[str, Any]:
    return tm([{'name': 'c', 'tm': [[0, 7], [0, 0]], **fields}])


def test_times_of_an_iteration_are_read_and_written():
    hint = hints.parse(recurring(iterations=0, period='800ms', compute=0.55,
                                 order='mrtf', rank_hint=True))
    assert hint is not None
    coflow, = hint.coflows
    assert (coflow.iterations, coflow.period_s, coflow.compute_s,
            coflow.order, coflow.rank_hint) == (0, 0.8, 0.55, 'mrtf', True)
    assert hints.parse(hints.encode(hint)) == hint


def test_times_of_an_iteration_are_not_required():
    hint = hints.parse(recurring(iterations=3))
    assert hint is not None
    assert (hint.coflows[0].period_s, hint.coflows[0].compute_s,
            hint.coflows[0].rank_hint) == (None, None, False)


def test_an_order_of_ranks_puts_the_matrix_on_its_rows():
    """Rank 0 runs on row 1, rank 1 on row 2, rank 2 on row 0."""
    found, = hints.parse({'virtco:coflow': 'a', 'virtco:tm': json.dumps([{
        'name': 'b', 'rank_hint': [1, 2, 0],
        'tm': [[0, 5, 0], [0, 0, 7], [0, 0, 0]]}])}).coflows
    assert found.rank_hint is True
    assert list(found.matrix.rows()) == [(1, 2, 5.0), (2, 0, 7.0)]


@pytest.mark.parametrize('fields, field, limit', [
    ({'period': 1}, 'period', 'nothing where iterations'),
    ({'compute': 1, 'iterations': 1}, 'compute', 'nothing where iterations'),
    ({'iterations': 2, 'period': 0.0009}, 'period', '1 ms and 720 h'),
    ({'iterations': 2, 'period': '2592001s'}, 'period', '1 ms and 720 h'),
    ({'iterations': 2, 'period': '3 parsecs'}, 'period', '"250ms"'),
    ({'iterations': 2, 'period': True}, 'period', '1 ms and 720 h'),
    ({'iterations': 2, 'period': None}, 'period', '1 ms and 720 h'),
    ({'iterations': 2, 'compute': -1}, 'compute', '0 s and 720 h'),
    ({'iterations': 2, 'period': '1s', 'compute': '1001ms'}, 'compute',
     'at most the period (1 s)'),
    ({'order': 'fifo'}, 'order', 'one of mrtf, intensity'),
    ({'order': ['mrtf']}, 'order', 'one of mrtf, intensity'),
    ({'order': None}, 'order', 'one of mrtf, intensity'),
    ({'order': 'intensity'}, 'order',
     'mrtf where there is no compute above 0'),
    ({'order': 'intensity', 'iterations': 0, 'compute': 0}, 'order',
     'mrtf where there is no compute above 0'),
    ({'rank_hint': 1}, 'rank_hint', 'true, false or the'),
    ({'rank_hint': 'true'}, 'rank_hint', 'true, false or the'),
    ({'rank_hint': [0]}, 'rank_hint', 'rows by rank'),
    ({'rank_hint': [0, 2]}, 'rank_hint[1]', 'between 0 and 1'),
    ({'rank_hint': [0, True]}, 'rank_hint[1]', 'between 0 and 1'),
    ({'rank_hint': [1, 1]}, 'rank_hint', 'each row once'),
])
def test_times_of_an_iteration_that_are_refused(fields, field, limit):
    with pytest.raises(exception.HintInvalid) as caught:
        hints.parse(recurring(**fields))
    assert f'virtco:tm[0].{field}:' in str(caught.value)
    assert limit in str(caught.value)


@pytest.mark.parametrize('text, wish', [
    ('rack', hints.Wish('rack')), ('rack:preferred', hints.Wish('rack')),
    ('pod:required', hints.Wish('pod', True))])
def test_wishes(text, wish):
    found = hints.parse({'virtco:coflow': 'a', 'virtco:within': text},
                        {'virtco:spread': text})
    assert found.wishes == hints.Wishes(wish, wish)
    assert hints.parse(hints.encode(found)) == found


@pytest.mark.parametrize('within, spread, is_wished, is_binding', [
    (None, None, False, False), ('rack', None, True, False),
    (None, 'rack', True, False), ('rack:required', None, True, True),
    (None, 'rack:required', True, True),
    ('pod:required', 'rack', True, True), ('pod', 'rack', True, False)])
def test_wishes_bind_where_one_is_required(within, spread, is_wished,
                                           is_binding):
    found = hints.parse({'virtco:coflow': 'a', **{
        f'virtco:{key}': text for key, text in (
            ('within', within), ('spread', spread)) if text}}).wishes
    assert (bool(found), bool(found.required)) == (is_wished, is_binding)


def test_an_outline_tells_matrices_apart_by_their_text():
    def digest(text):
        return hints.outline(tm(text) if text else {
            'virtco:coflow': 'a'}).digest

    assert digest(None) == ''
    assert digest('[[0, 1], [0, 0]]') == digest('[[0, 1], [0, 0]]')
    # Whoever spells it another way is not known again, which costs time only.
    assert len({digest('[[0, 1], [0, 0]]'), digest('[[0,1], [0, 0]]'),
                digest('no matrix'), ''}) == 4


def test_an_application_is_named_and_may_not_be_learned_of():
    found = hints.parse({'virtco:coflow': 'a', 'virtco:app': 'sort'})
    assert found.app == hints.App('sort') and found.app.refuses is False
    assert hints.parse(hints.encode(found)) == found
    found = hints.parse({'virtco:coflow': 'a', 'virtco:app': 'sort',
                         'virtco:app_refuse': 'true'})
    assert found.app == hints.App('sort', True)
    assert hints.parse(hints.encode(found)) == found
    assert hints.parse({'virtco:coflow': 'a'}).app is None
    with pytest.raises(exception.HintInvalid, match='without virtco:app'):
        hints.parse({'virtco:coflow': 'a', 'virtco:app_refuse': 'true'})


@pytest.mark.parametrize('text, is_taken', [
    (str(366 * 86400), True), (str(366 * 86400 + 1), False),
    ('1970-01-01T00:00:00Z', True), ('1969-12-31T23:59:59Z', False)])
def test_the_first_and_the_last_deadline(text, is_taken):
    given_hint = {'virtco:coflow': 'a', 'virtco:deadline': text}
    if is_taken:
        assert hints.parse(given_hint).deadline is not None
    else:
        with pytest.raises(exception.HintInvalid, match='virtco:deadline'):
            hints.parse(given_hint)


def test_metadata_may_have_as_many_items_as_nova_takes():
    hint = hints.parse(tm([[0, 5], [0, 0]]))
    assert hints.encode_metadata(hint, 'x' * 255)[hints.TM] == 'x' * 255
    # Beside the name.
    assert len(hints.encode_metadata(hint, 'x' * 255 * 127)) == 128
    with pytest.raises(exception.HintInvalid, match='at most 128 metadata'):
        hints.encode_metadata(hint, 'x' * 255 * 128)


@pytest.mark.parametrize('text, wish', [
    ('rack:skew=2', hints.Wish('rack', skew=2)),
    ('pod:required:skew=10', hints.Wish('pod', True, 10))])
def test_a_spread_may_be_uneven(text, wish):
    found = hints.parse({'virtco:coflow': 'a', 'virtco:spread': text})
    assert found.wishes == hints.Wishes(None, wish)
    assert hints.parse(hints.encode(found)) == found
    with pytest.raises(exception.HintInvalid, match='virtco:within'):
        hints.parse({'virtco:coflow': 'a', 'virtco:within': text})
    with pytest.raises(exception.HintInvalid, match='then :skew=1 or more'):
        hints.parse({'virtco:coflow': 'a', 'virtco:spread': text + 'x'})


@pytest.mark.parametrize('text', ['', 'rack:', 'rack:must', 'a b', 'x' * 65,
                                  'rack:required:required', None, '\n'])
def test_bad_wishes_are_named(text):
    with pytest.raises(exception.HintInvalid, match='virtco:within'):
        hints.parse({'virtco:coflow': 'a', 'virtco:within': text})


@pytest.mark.parametrize('text, wanted', [
    ('true', True), ('false', False), (True, True), (False, False)])
def test_a_check_is_asked_for(text, wanted):
    given = {'virtco:coflow': 'a', 'virtco:preflight': text}
    found = hints.parse(given)
    assert found.preflight is wanted
    assert hints.wants_preflight(given) is wanted
    assert hints.wants_preflight({'virtco:coflow': ['a']}, given) is wanted
    assert hints.parse(hints.encode(found)) == found
    assert not hints.wants_preflight({'virtco:coflow': 'a'})


@pytest.mark.parametrize('text', ['', 'yes', '1', 1, None, ['true', 'true']])
def test_a_check_that_is_neither_wanted_nor_not_is_named(text):
    with pytest.raises(exception.HintInvalid, match='virtco:preflight'):
        hints.parse({'virtco:coflow': 'a', 'virtco:preflight': text})


@pytest.mark.parametrize('given_value, wanted', [
    ('30', hints.Deadline(after_s=30.0)), (30, hints.Deadline(after_s=30.0)),
    (0.5, hints.Deadline(after_s=0.5)), (' 1e3 ', hints.Deadline(1e3)),
    ('1970-01-02T00:00:00Z', hints.Deadline(at_s=86400.0)),
    ('1970-01-01T02:00:00.5+01:00', hints.Deadline(at_s=3600.5)),
    (['2'], hints.Deadline(after_s=2.0))])
def test_a_deadline_is_seconds_or_a_time(given_value, wanted):
    found = hints.parse({'virtco:coflow': 'a',
                         'virtco:deadline': given_value})
    assert found.deadline == wanted
    assert hints.parse(hints.encode(found)) == found
    assert found.deadline.due_s(7.0) == (
        wanted.at_s if wanted.after_s is None else 7.0 + wanted.after_s)


def test_without_a_deadline():
    assert hints.parse({'virtco:coflow': 'a'}).deadline is None
    matrix = hints.parse({'virtco:coflow': 'a', 'virtco:deadline': '3',
                          'virtco:tm': '[[0, 1], [1, 0]]'})
    assert matrix.deadline == hints.Deadline(after_s=3.0)


@pytest.mark.parametrize('text', [
    '', '0', '-1', 'nan', 'inf', '1e9', 'soon', True, None, ['1', '2'],
    '2030-01-01T00:00:00', '2030-13-01T00:00:00Z',
    '0001-01-01T00:00:00+23:00', '9999-12-31T23:59:59-01:00',
    '9999-12-31T23:59:59.999999Z'])
def test_a_deadline_that_is_none_is_named(text):
    with pytest.raises(exception.HintInvalid, match='virtco:deadline'):
        hints.parse({'virtco:coflow': 'a', 'virtco:deadline': text})
