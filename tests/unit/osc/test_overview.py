# SPDX-License-Identifier: Apache-2.0

"""The tables of ``virtco top``: order, filters, units, and 80 columns."""

import io

from hypothesis import given
from hypothesis import strategies as st
import pytest
from rich import console

from virtco.osc import overview

NOW_S = 1000.0


def coflow(name, **values):
    return {'id': f'id-{name}', 'name': name, 'group_name': name,
            'project_id': 'p', 'state': 'active', 'hosts': ['h1'],
            'rank': None, 'remaining_bytes': 1e9, 'rate_bps': 5e8,
            'predicted_end': NOW_S + 16, 'cct_s': 15.5} | values


def host(name, **values):
    return {'host': name, 'egress_bps': 1e9, 'ingress_bps': 1e9,
            'link_egress_bps': 1e9, 'measured_egress_bps': 9.5e8,
            'background_bps': 1e8, 'generation': 7, 'applied_generation': 7,
            'last_report': NOW_S - 1, 'coflows': [], 'health': 'ok',
            'error': None, 'classes': []} | values


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


def test_hosts_in_rows():
    classes = [{'observed_bps': 4e8, 'destinations': ['h2', 'h3']}]
    screen = shown((), [
        host('h1', classes=classes), host('h2', generation=9),
        host('h3', health='degraded', error='no HTB', last_report=None)])
    found = {row[0]: row for row in rows(screen)}
    assert found['h1'] == ['h1', '██░░░', '50%', '░░░░░', '0%', '100',
                           'Mb/s', '95%', '0', '1', 's', 'ok']
    assert found['h2'][3:5] == ['█░░░░', '20%'] and found['h2'][8] == '2'
    assert found['h3'][-2:] == ['no', 'HTB']


def test_training_jobs_have_turns():
    one = {'coflow_id': 'id-a', 'observed_bps': 0.0, 'destinations': []}
    screen = shown([coflow('a')], [
        host('h1', classes=[one | {'gate': {'open_share': 0.5}}]),
        host('h2', classes=[one | {'gate': {'open_share': None}}],
             why_gates_open='no daemon keeps the clock')])
    assert '75% open' in screen
    found = {row[0]: row for row in rows(screen)}
    assert found['h1'][-1] == 'ok' and found['h2'][-2:] == ['gates', 'open']


def test_what_is_not_known_is_not_shown_as_zero():
    silent = host('h1', egress_bps=None, measured_egress_bps=None,
                  generation=None, applied_generation=None, health=None)
    del silent['classes']
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
