# SPDX-License-Identifier: Apache-2.0

"""A delta makes the second report of the first one."""

import hypothesis
from hypothesis import strategies as st
import msgspec
import pytest

from tests.unit import made
from virtco import exception
from virtco.wire import deltas
from virtco.wire import messages
from virtco.wire import reports

NUMBERS = st.integers(0, 5)
RATES = st.none() | st.integers(8, 12)
ADDRESSES = st.sampled_from(['10.0.0.1', '10.0.0.2', '10.0.0.3'])


def _rows(kind, **keys):
    return st.lists(st.builds(kind, sent_bytes=NUMBERS, **keys), max_size=5,
                    unique_by=lambda row: row.key).map(tuple)


REPORTS = st.builds(
    reports.Report, epoch=st.sampled_from(['a', 'b']),
    applied_generation=NUMBERS, uplink_sent_bytes=NUMBERS, cpu_s=NUMBERS,
    link=st.builds(reports.Link, egress_bps=RATES, ingress_bps=RATES),
    ports=st.lists(st.builds(reports.Port, vm=st.sampled_from('abc')),
                   max_size=3).map(tuple),
    coflows=_rows(reports.CoflowCounters, coflow_id=st.sampled_from('abcde')),
    pairs=_rows(reports.PairCounter, dev=st.none() | st.just('tap1'),
                src_ip=ADDRESSES, dst_ip=ADDRESSES,
                dst_port=st.none() | st.just(80)))


def _sorted(report):
    return msgspec.structs.replace(report, **{
        name: tuple(sorted(getattr(report, name),
                           key=lambda row: repr(row.key)))
        for name in deltas.LISTS})


@hypothesis.given(REPORTS, REPORTS)
def test_a_delta_leads_to_the_report_it_was_made_of(before, after):
    delta = deltas.diff(before, after)
    assert _sorted(deltas.patch(before, delta)) == _sorted(after)
    assert bool(delta) == (_sorted(before) != _sorted(after))


@hypothesis.given(REPORTS, REPORTS)
def test_a_delta_survives_the_wire(before, after):
    delta = deltas.diff(before, after)
    found = messages.decode(msgspec.json.encode(delta))
    assert _sorted(deltas.patch(before, found)) == _sorted(after)


def test_a_delta_names_no_more_than_what_changed():
    first, second, third = (reports.CoflowCounters(name, 1)
                            for name in 'abc')
    moved = reports.CoflowCounters('b', 2)
    before, after = (msgspec.structs.replace(made.report(), coflows=rows)
                     for rows in ((first, second, third), (first, moved)))
    found = msgspec.json.decode(msgspec.json.encode(
        deltas.diff(before, after)))
    row = msgspec.to_builtins(moved) | {'destinations': []}
    assert found == {'type': 'delta', 'rows': {'coflows': {
        'set': [row], 'gone': [['c']]}}}


def test_a_delta_of_another_report_is_refused():
    with pytest.raises(exception.Invalid, match='rows.coflows.gone'):
        deltas.patch(made.report(), deltas.Delta(
            rows=deltas.Rows(deltas.Table(gone=(('a',),)))))


@pytest.mark.parametrize('changes, elapsed_s, is_urgent', [
    ({'cpu_s': 2.0, 'shared': {'host': {}}}, 1.0, False),
    ({'boot_ms': 9, 'cpu_s': 2.0}, 1.0, False),
    ({'uplink_sent_bytes': 9_000}, 1.0, False),
    ({'uplink_sent_bytes': 10_000}, 1.0, False),
    ({'uplink_sent_bytes': 10_000, 'cpu_s': 2.0}, 0.9, True),
    ({'default_sent_bytes': 10 ** 9}, 1.0, False),
    ({'uplink_sent_bytes': 11_000}, 1.0, True),
    ({'uplink_sent_bytes': 11_000}, 2.0, False),
    ({'applied_generation': 2}, 1.0, True),
    ({'health': 'error'}, 1.0, True),
    ({'coflows': [{'coflow_id': 'a', 'sent_bytes': 1}]}, 1.0, True)])
def test_what_waits_for_a_heartbeat(changes, elapsed_s, is_urgent):
    before = made.report(link={'egress_bps': 8e6, 'ingress_bps': None},
                         applied_generation=1, cpu_s=1.0, health='ok')
    delta = deltas.diff(before, made.replaced(before, **changes))
    assert deltas.is_urgent(before, delta, elapsed_s) == is_urgent


def test_a_counter_that_began_anew_is_told_at_once():
    before = made.report(link={'egress_bps': 8e6, 'ingress_bps': None},
                         uplink_sent_bytes=50_000)
    delta = deltas.diff(before, made.replaced(before, uplink_sent_bytes=0))
    assert deltas.is_urgent(before, delta, 1.0)


@pytest.mark.parametrize('elapsed_s', [1.0, 3600.0])
def test_where_the_link_is_unknown_every_byte_is_told(elapsed_s):
    before = made.report(link={'egress_bps': None, 'ingress_bps': None})
    delta = deltas.diff(before, made.replaced(before, uplink_sent_bytes=1))
    assert deltas.is_urgent(before, delta, elapsed_s)


def test_nothing_changed_is_no_delta():
    before = made.report(coflows=[{'coflow_id': 'a', 'sent_bytes': 1}])
    assert not deltas.diff(before, before)
    assert not deltas.is_urgent(before, deltas.diff(before, before), 1.0)
    assert deltas.patch(before, deltas.Delta()) == before


@pytest.mark.parametrize('changes', [
    {'cpu_s': 2.0}, {'coflows': [{'coflow_id': 'a', 'sent_bytes': 1}]}])
def test_the_time_is_told_with_what_changed(changes):
    before = made.report(boot_ms=5)
    assert not deltas.diff(before, made.replaced(before, boot_ms=6))
    after = made.replaced(before, boot_ms=6, **changes)
    delta = deltas.diff(before, after)
    assert deltas.patch(before, delta) == after
    assert delta.set.boot_ms == 6


def _coflows(*ids, n_destinations=0):
    return deltas.Delta(rows=deltas.Rows(deltas.Table(set=tuple(
        reports.CoflowCounters(one, 1, destinations=(
            reports.DestinationCounter('h', 1),) * n_destinations)
        for one in ids))))


def _pairs(*ports):
    return deltas.Delta(rows=deltas.Rows(pairs=deltas.Table(set=tuple(
        reports.PairCounter('1.1.1.1', '2.2.2.2', 1, dst_port=port)
        for port in ports))))


@pytest.mark.parametrize(('first', 'second', 'field'), [
    (_coflows('a', 'b', 'c'), _coflows('d'), 'coflows'),
    (_pairs(1, 2, 3), _pairs(4), 'pairs'),
    (_coflows('a', n_destinations=4), _coflows('b', n_destinations=1),
     'coflows')])
def test_many_deltas_add_no_more_than_a_report_may_have(
        monkeypatch, first, second, field):
    monkeypatch.setattr(reports, 'MOST_ROWS', {'coflows': 3, 'pairs': 3})
    monkeypatch.setattr(reports, 'MOST_CHILDREN', 4)
    report = deltas.patch(made.report(), first)
    with pytest.raises(exception.Invalid) as caught:
        deltas.patch(report, second)
    assert caught.value.kwargs['field'] == field
    assert deltas.patch(report, first) == report
