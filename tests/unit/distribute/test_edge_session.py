# SPDX-License-Identifier: Apache-2.0

"""What an edge may say, in which order, and for whom."""

import copy
import functools

import msgspec
import pytest

from tests.unit import made
from virtco import decoding
from virtco import exception
from virtco.distribute import edge_session as session
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import parts
from virtco.wire import reports

VERSION = frames.VERSION
PLAIN = made.PLAIN | {'applied_generation': 3}
REPORT = made.report(applied_generation=3)


def _say(one, kind, **fields):
    payload = msgspec.json.encode({'type': kind, **fields})
    return one.take(messages.decode(payload), len(payload))


def _greet(kind='hello', may=lambda hello: True, led=4, **fields):
    return session.greeted(messages.decode(
        msgspec.json.encode({'type': kind, **fields})), led, may)


@pytest.fixture
def one():
    return session.Session(messages.Hello(VERSION, 'h1', generation=3))


def test_a_hello_opens(one):
    assert _greet(version=VERSION, host='h1', generation=3, epoch=0) == (
        messages.Hello(VERSION, 'h1', 0, 3))
    assert (one.host, one.sent, one.report) == ('h1', 3, None)


@pytest.mark.parametrize('fields, error', [
    ({'version': 2}, 'version: expected 1, the version of .*, got 2'),
    ({'version': 0}, 'version: .*, got 0'), ({'version': None},
     'version: .*, got null'),
    ({'epoch': 5}, 'epoch: expected at most 4, .*raise 5.*, got 5'),
    ({'generation': -1}, 'generation: .*, got -1'),
    ({'host': '../h1'}, 'host'), ({'host': 'x' * 256}, 'host')])
def test_a_hello_that_is_refused(fields, error):
    with pytest.raises(exception.Invalid, match=error):
        _greet(**({'version': VERSION, 'host': 'h1'} | fields))


@pytest.mark.parametrize('epoch', [0, 3, 4])
def test_whoever_heard_of_no_later_leader_may_come(epoch):
    assert _greet(version=VERSION, host='h1', epoch=epoch).epoch == epoch
    session.check(messages.Peer(VERSION, 'p', epoch, ''), 4)


@pytest.mark.parametrize('version, epoch, error', [
    (VERSION - 1, 4, 'version'), (VERSION + 1, 4, 'version'),
    (VERSION, 5, 'epoch')])
def test_a_peer_is_checked_likewise(version, epoch, error):
    with pytest.raises(exception.Invalid, match=error):
        session.check(messages.Peer(version, 'p', epoch, ''), 4)


def test_a_policy_is_acknowledged_or_refused(one):
    assert _say(one, 'ack', generation=5, epoch=2) == messages.Ack(5, 2)
    assert _say(one, 'nack', generation=4, error='no') == (
        messages.Nack(4, 'no'))
    assert one.sent == 3


def test_nobody_speaks_for_another_host(one):
    with pytest.raises(exception.Forbidden, match='h2'):
        _greet(may=lambda hello: hello.host == 'h1', version=VERSION,
               host='h2')
    with pytest.raises(exception.Forbidden, match='h2'):
        _say(one, 'measurement', measurement={
            'probe_id': 'p', 'src': 'h2', 'dst': 'h1', 'rate_bps': 1e9})


def test_a_measurement_of_its_own(one):
    found = {'probe_id': 'p', 'src': 'h1', 'dst': 'h2', 'rate_bps': 1e9}
    assert _say(one, 'measurement', measurement=found) == (
        messages.Measured(made.measurement('h1', 'h2', 1e9)))


@pytest.mark.parametrize('kind, fields', [
    ('report', {'report': PLAIN}), ('ack', {'generation': 1}),
    ('delta', {}), ('heartbeat', {}), ('what', {}),
    ('measurement', {'measurement': {
        'probe_id': 'p', 'src': 'h1', 'dst': 'h2', 'rate_bps': 1e9}})])
def test_a_hello_comes_first(kind, fields):
    with pytest.raises(exception.Invalid, match='type'):
        _greet(kind, **fields)


def test_one_hello_is_enough(one):
    with pytest.raises(exception.Invalid, match='type: .*, got hello'):
        _say(one, 'hello', version=VERSION, host='h1')


@pytest.mark.parametrize('is_greeted', [False, True])
def test_a_peer_is_no_edge_module(is_greeted, one):
    with pytest.raises(exception.Invalid, match='type: .*, got peer'):
        (functools.partial(_say, one) if is_greeted else _greet)(
            'peer', version=VERSION, name='p', epoch=0, ticket='')


def test_reports_are_whole_then_deltas(one):
    assert _say(one, 'report', report=PLAIN) == session.Report(REPORT, True)
    assert one.report == REPORT
    row = {'coflow_id': 'c', 'sent_bytes': 7}
    found = _say(one, 'delta', set={'uplink_sent_bytes': 9},
                 rows={'coflows': {'set': [row]}})
    assert found == session.Report(
        made.replaced(REPORT, uplink_sent_bytes=9, coflows=[row]), True)
    assert one.report == found.report
    assert _say(one, 'heartbeat') == session.Report(found.report, False)


def test_a_delta_of_what_is_not_there_asks_for_the_whole(one):
    delta = {'rows': {'coflows': {'gone': [['c']]}}}
    nothing = session.Report(None, False)
    assert _say(one, 'delta', **delta) == nothing
    _say(one, 'report', report=PLAIN)
    assert _say(one, 'delta', **delta) == nothing
    assert _say(one, 'heartbeat') == nothing and one.report is None
    assert _say(one, 'report', report=PLAIN).report == REPORT


@pytest.mark.parametrize('kind, fields, field', [
    ('report', {'report': PLAIN | {'ports': 7}}, 'report.ports'),
    ('delta', {'set': {'uplink_sent_bytes': -1}}, 'set.uplink_sent_bytes'),
    ('delta', {'rows': {'coflows': {'set': [7]}}}, 'rows.coflows.set'),
    ('delta', {'rows': {'ports': {}}}, 'rows.ports'),
    ('delta', {'rows': {'coflows': {'gone': [['c', 'd']]}}},
     'rows.coflows.gone'),
    ('ack', {}, 'generation'),
    ('measurement', {'measurement': {'src': 'h1'}}, 'measurement')])
def test_a_message_keeps_to_its_schema(one, kind, fields, field):
    _say(one, 'report', report=PLAIN)
    with pytest.raises(exception.Invalid) as caught:
        _say(one, kind, **fields)
    assert caught.value.kwargs['field'].startswith(field)


@pytest.mark.parametrize('path, value, field, limit', [
    (('epoch',), '', 'epoch', 'at least 1 character'),
    (('applied_generation',), -1, 'applied_generation', 'at least 0'),
    (('applied_generation',), 2 ** 63, 'applied_generation', 'at most'),
    (('applied_generation',), 1.5, 'applied_generation', 'an integer'),
    (('link', 'egress_bps'), 1e-310, 'link.egress_bps', 'at least 8'),
    (('uplink_sent_bytes',), 1e22, 'uplink_sent_bytes', 'at most 1e+21'),
    (('uplink_sent_bytes',), None, 'uplink_sent_bytes', 'a number'),
    (('ports',), [{'vm': 'a b'}], 'ports[0].vm', 'matching'),
    (('ports',), [{'vm': 'a', 'ips': ['x']}], 'ports[0].ips[0]', ''),
    (('coflows',), [{'coflow_id': 'c', 'sent_bytes': -1}],
     'coflows[0].sent_bytes', 'at least 0'),
    (('coflows',), [{'sent_bytes': 1}], 'coflows[0].coflow_id', 'a value'),
    (('pairs',), [{'src_ip': '::', 'dst_ip': '::', 'sent_bytes': 1,
                   'dst_port': 65536}], 'pairs[0].dst_port', 'at most 65535'),
    (('unmanaged',), {'macs': ['AA:bb']}, 'unmanaged.macs[0]', 'matching')])
def test_a_hostile_report_is_one_clear_error(one, path, value, field, limit):
    report = copy.deepcopy(PLAIN)
    *ways, last = path
    functools.reduce(dict.get, ways, report)[last] = value
    with pytest.raises(exception.Invalid) as caught:
        _say(one, 'report', report=report)
    assert caught.value.kwargs['field'] == f'report.{field}'
    assert limit in caught.value.kwargs['limit']
    assert '\n' not in str(caught.value) and len(str(caught.value)) < 250
    with pytest.raises(exception.Invalid) as rest:
        decoding.Decoder(reports.Report).decode(msgspec.json.encode(report))
    assert rest.value.kwargs['field'] == field


@pytest.mark.parametrize('payload', [
    b'', b'7', b'[]', b'{"type":', b'{"type":"report","report":\xff}',
    b'{"type":"report","report":' + b'[' * 100_000,
    b'{"type":"report","report":{"x":' + b'[' * 5000 + b']' * 5000 + b'}}',
    b'{"type":"heartbeat","x":NaN}', b'{"type":7}', b'{}'])
def test_what_is_no_message_is_refused(payload):
    with pytest.raises(exception.Invalid) as caught:
        messages.decode(payload)
    assert len(str(caught.value)) < 200


def test_parts_become_rows_of_the_report_that_follows(one):
    rows = [{'coflow_id': name, 'sent_bytes': 1} for name in 'abc']
    for row in rows[:2]:
        assert isinstance(_say(one, 'part', coflows=[row]), parts.Part)
    # Nothing of them is said before the end.
    assert _say(one, 'heartbeat').report is None
    assert len(one.parts) == 2
    found = _say(one, 'report', report=PLAIN | {'coflows': rows[2:]})
    assert [row.coflow_id for row in found.report.coflows] == [*'abc']
    assert one.parts == []
    found = _say(one, 'report', report=PLAIN | {'coflows': rows[2:]})
    assert [row.coflow_id for row in found.report.coflows] == ['c']


def test_an_end_that_never_comes_takes_no_more_than_a_report(
        one, monkeypatch):
    monkeypatch.setattr(reports, 'MOST_BYTES', 50)
    for _ in range(3):
        _say(one, 'part')
    _say(one, 'report', report=PLAIN)
    for _ in range(3):
        _say(one, 'part')
    with pytest.raises(exception.Invalid, match='60 bytes'):
        _say(one, 'part')
    assert len(one.parts) == 3
