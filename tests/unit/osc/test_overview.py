# SPDX-License-Identifier: Apache-2.0

"""The tables of ``virtco top``: order, filters, units, and 80 columns."""

import io

from hypothesis import given
from hypothesis import strategies as st
import msgspec
from msgspec import structs
import pytest
from rich import console

from tests.unit.osc import controller
from virtco.osc import overview
from virtco.wire import coflow_bodies as wire
from virtco.wire import host as host_wire

NOW_S = 1000.0


def coflow(name, **values):
    return controller.made(wire.Coflow, **{
        'id': f'id-{name}', 'name': name, 'group_name': name,
        'project_id': 'p', 'state': 'active', 'hosts': ['h1'],
        'remaining_bytes': 1e9, 'rate_bps': 5e8,
        'predicted_end': NOW_S + 16, 'cct_s': 15.5} | values)


def host(name, **values):
    return controller.made(host_wire.Host, **{
        'host': name, 'egress_bps': 1e9, 'ingress_bps': 1e9,
            'link_egress_bps': 1e9, 'measured_egress_bps': 9.5e8,
            'background_bps': 1e8, 'generation': 7, 'applied_generation': 7,
            'generations_behind': 0, 'last_report': NOW_S - 1,
            'coflows': [], 'health': 'ok', 'error': None, 'classes': []
            } | values)


def shown(coflows=(), hosts=(), **options):
    out = io.StringIO()
    console.Console(file=out, width=80, highlight=False).print(
        overview.screen(overview.Seen(coflows, hosts, NOW_S, 'http://c'),
                        **options))
    return out.getvalue()


def rows(screen):
    return [line.split() for line in screen.splitlines() if line.strip()]


COFLOWS = [coflow('b', rank=2, remaining_bytes=5e9, rate_bps=1.0,
                  predicted_end=NOW_S + 3),
           coflow('c', rank=1, state='planned', rate_bps=3.0),
           coflow('a', predicted_end=None, rate_bps=2.0),
           coflow('gone', state='retired'), coflow('tm', state='registered')]


@pytest.mark.parametrize('sort, order', [
    ('order', 'cba'), ('left', 'bac'), ('rate', 'cab'), ('end', 'bca'),
    ('name', 'abc')])
def test_sorted(sort, order):
    names = [row[0] for row in rows(shown(COFLOWS, sort=sort))]
    assert [name for name in names if name in ('a', 'b', 'c')] == list(order)
    assert 'gone' not in names and 'tm' not in names


def test_the_first_is_before_the_second_whatever_they_are_called():
    coflows = [coflow('b', rank=0, predicted_end=0.0), coflow(
        'a', rank=1, predicted_end=0.5), coflow(
            'd', predicted_end=None), coflow('c', predicted_end=None)]
    for sort in 'order', 'end':
        assert [row[0] for row in rows(shown(coflows, sort=sort))
                if row[0] in 'abcd'] == list('bacd')


def test_filters():
    hosts = [host('h1', coflows=['id-b']), host('h2')]
    screen = shown(COFLOWS, hosts, words='b')
    assert '1 coflows' in screen and '1 hosts' in screen
    assert 'h2' not in screen
    assert '3 coflows' in shown(COFLOWS, hosts, words='h1')
    assert [row[0] for row in rows(shown(COFLOWS, state='retired'))
            if row[0] == 'gone']


def test_a_coflow_in_a_row():
    screen = shown([coflow('sort', rank=3, n_before=2, measured_cct_s=17.25,
                           bottleneck={'host': 'h1', 'direction': 'egress'})])
    row, = (row for row in rows(screen) if row[0] == 'sort')
    assert ' '.join(row) == ('sort 3 active 1 GB 500 Mb/s 16 s 16 s→17 s '
                             '2 at h1')
    named = shown([coflow('sort', waits_for=['x', 'y'])])
    assert 'x, y' in named


def test_columns_are_two_spaces_apart():
    assert [line.rstrip() for line in shown(
        [coflow('sort', rank=3), coflow('map', rank=14)]).splitlines()][:4
            ] == ['2 coflows at http://c, by order',
                  'Coflow   #   State  Left      Rate  Ends In   CCT  '
                  'Waits For',
                  'sort     3  active  1 GB  500 Mb/s     16 s  16 s',
                  'map     14  active  1 GB  500 Mb/s     16 s  16 s']


def test_hosts_in_rows():
    classes = [{'observed_bps': 4e8, 'destinations': ['h2', 'h3']}]
    screen = shown((), [
        host('h1', classes=classes), host('h2', generations_behind=2),
        host('h3', health='degraded', error='no HTB', last_report=None)])
    found = {row[0]: row for row in rows(screen)}
    assert found['h1'] == ['h1', '██░░░', '50%', '░░░░░', '0%', '100',
                           'Mb/s', '95%', '0', '1', 's', 'ok']
    assert found['h2'][3:5] == ['█░░░░', '20%'] and found['h2'][8] == '2'
    assert found['h3'][-2:] == ['no', 'HTB']


def test_a_report_from_the_future_has_no_age():
    """The controller's clock is behind the one that counts here, or ahead."""
    screen = shown((), [host('h1', last_report=NOW_S + 5)])
    row, = (row for row in rows(screen) if row[0] == 'h1')
    assert row[-3:] == ['0', 's', 'ok']


def test_nothing_arrives_where_nobody_sends():
    screen = shown((), [host('h1', ingress_bps=4.0)])
    row, = (row for row in rows(screen) if row[0] == 'h1')
    assert row[3:5] == ['░░░░░', '0%']


def test_what_is_not_known_is_not_shown_as_zero():
    silent = structs.replace(
        host('h1', egress_bps=0.0, measured_egress_bps=None,
             generation=None, applied_generation=None, health=None),
        classes=msgspec.UNSET)
    screen = shown((), [silent])
    row, = (row for row in rows(screen) if row[0] == 'h1')
    assert row[1:3] == ['?', '?'] and row[-2:] == ['no', 'report']
    assert 'operators only' in shown((), None)


@given(st.lists(st.builds(
    coflow, st.text(min_size=1, max_size=40), rank=st.integers(0, 999),
    remaining_bytes=st.floats(0, 1e17), rate_bps=st.floats(0, 1e15),
    predicted_end=st.floats(0, 1e9), cct_s=st.floats(0, 1e7),
    measured_cct_s=st.floats(0, 1e7), n_before=st.integers(0, 999),
    bottleneck=st.just({'host': 'a-very-long-name-of-a-host.example'})),
    max_size=4))
def test_80_columns_hold_it(coflows):
    screen = shown(coflows, [host('compute-with-a-long-name.example.org')])
    for line in screen.splitlines():
        assert console.Console().render_str(line).cell_len <= 80


def test_numbers_are_whole_at_80_columns():
    screen = shown(
        [coflow('a-name-that-is-much-too-long', rank=88, state='planned',
                remaining_bytes=1.23e9, rate_bps=9.99e8, n_before=12,
                bottleneck={'host': 'compute-17.example'}, cct_s=59.0,
                predicted_end=NOW_S + 59, measured_cct_s=58.0)],
        [host('compute-17.example.org', background_bps=123e6,
              error='the kernel refused')])
    for whole in ('1.23 GB', '999 Mb/s', '59 s→58 s', '12 at com', '123 Mb/s',
                  '95%', 'the kerne', 'planned', ' 88 '):
        assert whole in screen, screen


@given(st.floats(0, 1e17))
def test_short_numbers_are_short(value):
    text = overview.short(value, 'B')
    assert len(text) <= 7 and 'e' not in text.replace('e-', '') or value < 1


@pytest.mark.parametrize('n', [3, 4])
def test_rows_beyond_the_most_are_told(n):
    note = 'At most 3 rows are shown'
    coflows = [coflow(f'c{i}') for i in range(n)]
    assert (note in shown(coflows, n_rows=3)) == (n > 3)
    hosts = [host(f'h{i}') for i in range(n)]
    screen = shown((), hosts, n_rows=3)
    assert (note in screen) == (n > 3) and f'{n} hosts' in screen
    assert 'h2' in screen and 'h3' not in screen


def test_as_many_rows_are_shown_unless_another_number_is_said():
    for n in (20, 21):
        found = shown([coflow(f'c{i}') for i in range(n)])
        assert ('At most 20 rows are shown' in found) == (n > 20)


def _styles(**values):
    """Of the cells of one host, by their headings."""
    group = overview.screen(overview.Seen((), [host('h1', **values)], NOW_S,
                                          'http://c'))
    (table,) = (part for part in group.renderables
                if getattr(part, 'caption', None))
    return {column.header: next(iter(column.cells)).style
            for column in table.columns
            if not isinstance(next(iter(column.cells)), str)}


@pytest.mark.parametrize(('values', 'column', 'style'), [
    ({'last_report': NOW_S - 10.0}, 'Report', ''),
    ({'last_report': NOW_S - 10.1}, 'Report', 'yellow'),
    ({'generations_behind': 0}, 'Lag', ''),
    ({'generations_behind': 1}, 'Lag', 'yellow'),
    ({'generations_behind': -1}, 'Lag', ''),
    ({'background_bps': 1.02e9}, 'Egress', ''),
    ({'background_bps': 1.03e9}, 'Egress', 'red'),
    ({'health': None}, 'Health', 'yellow'),
    ({'error': 'x'}, 'Health', 'red'), ({}, 'Health', 'green')])
def test_what_is_worth_a_look_has_a_color(values, column, style):
    assert _styles(**values)[column] == style


@pytest.mark.parametrize(('state', 'style'), [
    ('active', 'bold'), ('done', 'dim'), ('planned', '')])
def test_what_is_sent_stands_out(state, style):
    group = overview.screen(overview.Seen(
        [coflow('a', state=state)], None, NOW_S, 'http://c'))
    assert group.renderables[1].rows[0].style == style


@pytest.mark.parametrize(('values', 'words'), [
    ({'rate_bps': 0.0}, 'sort active 1 GB 16 s 16 s'),
    ({'predicted_end': NOW_S - 5}, 'sort active 1 GB 500 Mb/s 0 s 16 s'),
    ({'predicted_end': None}, 'sort active 1 GB 500 Mb/s 16 s'),
    ({'cct_s': None}, 'sort active 1 GB 500 Mb/s 16 s'),
    ({'n_before': 2}, 'sort active 1 GB 500 Mb/s 16 s 16 s 2'),
    ({'n_before': 0, 'bottleneck': {'host': 'h'}},
     'sort active 1 GB 500 Mb/s 16 s 16 s')])
def test_what_a_coflow_has_not(values, words):
    row, = (row for row in rows(shown([coflow('sort', **values)]))
            if row[0] == 'sort')
    assert ' '.join(row) == words


@pytest.mark.parametrize(('values', 'cells'), [
    ({'background_bps': 0.0}, ['░░░░░', '0%', '░░░░░', '0%', '0', 'b/s',
                               '95%']),
    ({'background_bps': 7e8}, ['████░', '70%', '░░░░░', '0%', '700', 'Mb/s',
                               '95%']),
    ({'background_bps': 2e9}, ['█████200%', '░░░░░', '0%', '2', 'Gb/s',
                               '95%']),
    ({'egress_bps': 0.0}, ['?', '░░░░░', '0%', '100', 'Mb/s', '95%']),
    ({'link_egress_bps': None}, ['░░░░░', '10%', '░░░░░', '0%', '100',
                                 'Mb/s', '950', 'Mb/s']),
    ({'measured_egress_bps': None}, ['░░░░░', '10%', '░░░░░', '0%', '100',
                                     'Mb/s', '-']),
    ({'classes': [{'observed_bps': None, 'destinations': ['h1']}]},
     ['░░░░░', '10%', '░░░░░', '0%', '100', 'Mb/s', '95%'])])
def test_what_a_host_sends_of_its_link(values, cells):
    row, = (row for row in rows(shown((), [host('h1', **values)]))
            if row[0] == 'h1')
    assert row[1:1 + len(cells)] == cells


def test_arrivals_are_divided_among_destinations():
    assert overview.arrivals([
        host('h1', classes=[
            {'observed_bps': 6.0, 'destinations': ['a', 'b', 'c']},
            {'observed_bps': 8.0, 'destinations': ['a']},
            {'observed_bps': None, 'destinations': ['d']},
            {'observed_bps': 9.0, 'destinations': []}]),
        host('h2', classes=[
            {'observed_bps': 3.0, 'destinations': ['a', 'e']}])]) == {
        'a': 11.5, 'b': 2.0, 'c': 2.0, 'd': 0.0, 'e': 1.5}


@pytest.mark.parametrize(('value', 'text'), [
    (0.0, '0 B'), (999.4, '999 B'), (999.5, '1 kB'), (1e3, '1 kB'),
    (9.995e5, '1 MB'), (9.994e5, '999 kB'), (1.5e9, '1.5 GB'),
    (9.995e8, '1 GB'), (9.995e11, '1 TB'), (9.995e14, '1 PB'),
    (2.5e15, '2.5 PB')])
def test_a_number_rounds_into_the_next_prefix(value, text):
    assert overview.short(value, 'B') == text


def test_a_terminal_obeys_neither_a_name_nor_an_error():
    screen = shown([coflow('a\x1b[2J')], [host('h1', error='\x1b]0;')])
    assert '\x1b' not in screen and 'a\ufffd[2J' in screen
