# SPDX-License-Identifier: Apache-2.0

"""What an edge may say, in which order, and for whom."""

import copy
import functools

import msgspec
import pytest

from tests.unit import made
from virtco import decoding
from virtco import exception
from virtco.distribute import messages
from virtco.distribute import session
from virtco.wire import reports

PLAIN = made.PLAIN | {'applied_generation': 3}
REPORT = made.report(applied_generation=3)


def _say(one, kind, **fields):
    return one.take(messages.decode(
        msgspec.json.encode({'type': kind, **fields})))


def _new(may=lambda hello: True, epoch=0):
    return session.Session(may, epoch)


@pytest.fixture
def one():
    found = _new()
    _say(found, 'hello', version=2, host='h1', generation=3)
    return found


def test_a_hello_opens():
    one = _new()
    assert _say(one, 'hello', version=2, host='h1', generation=3,
                epoch=0) == messages.Hello(2, 'h1', 0, 3)
    assert (one.host, one.sent) == ('h1', 3)


@pytest.mark.parametrize('fields, error', [
    ({'version': 3}, 'version: 3.*: 2, the one that this controller'),
    ({'version': 1}, 'version: 1'), ({'version': 0}, 'version: 0'),
    ({'versions': [2, 2]}, 'version: .*required'),
    ({'version': 2, 'epoch': 1}, 'epoch: 1.*that of this controller'),
    ({'version': 2, 'generation': -1}, 'generation: -1'),
    ({'version': 2, 'host': '../h1'}, 'host'),
    ({'version': 2, 'host': 'x' * 256}, 'host')])
def test_a_hello_that_is_refused(fields, error):
    one = _new()
    with pytest.raises(exception.Invalid, match=error):
        _say(one, 'hello', **({'host': 'h1'} | fields))
    assert one.host is None


def test_a_policy_that_is_refused_is_not_acknowledged(one):
    assert _say(one, 'nack', generation=4, error='no') == (
        messages.Nack(4, 'no'))
    assert one.acked == 3


def test_nobody_speaks_for_another_host(one):
    with pytest.raises(exception.Forbidden, match='h2'):
        _say(_new(lambda hello: hello.host == 'h1'), 'hello', version=2,
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
    ('heartbeat', {}), ('what', {})])
def test_a_hello_comes_first(kind, fields):
    with pytest.raises(exception.Invalid, match='type'):
        _say(_new(), kind, **fields)


def test_one_hello_is_enough(one):
    with pytest.raises(exception.Invalid, match='type: hello'):
        _say(one, 'hello', version=2, host='h1')


def test_reports_are_whole_then_deltas(one):
    assert _say(one, 'report', report=PLAIN) == session.Report(REPORT, True)
    row = {'coflow_id': 'c', 'sent_bytes': 7}
    found = _say(one, 'delta', set={'uplink_sent_bytes': 9},
                 rows={'coflows': {'set': [row]}})
    assert found == session.Report(
        made.replaced(REPORT, uplink_sent_bytes=9, coflows=[row]), True)
    assert _say(one, 'heartbeat') == session.Report(found.report, False)


def test_a_delta_of_what_is_not_there_asks_for_the_whole(one):
    delta = {'rows': {'coflows': {'gone': [['c']]}}}
    assert _say(one, 'delta', **delta).report is None
    _say(one, 'report', report=PLAIN)
    assert _say(one, 'delta', **delta).report is None
    assert _say(one, 'heartbeat').report is None
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
    (('epoch',), '', 'epoch', 'at least 1 characters'),
    (('applied_generation',), -1, 'applied_generation', 'at least 0'),
    (('applied_generation',), 2 ** 63, 'applied_generation', 'at most'),
    (('applied_generation',), 1.5, 'applied_generation', 'of type integer'),
    (('link', 'egress_bps'), 1e-310, 'link.egress_bps', 'at least 8'),
    (('uplink_sent_bytes',), 1e22, 'uplink_sent_bytes', 'at most 1e+21'),
    (('uplink_sent_bytes',), None, 'uplink_sent_bytes', 'of type number'),
    (('ports',), [{'vm': 'a b'}], 'ports[0].vm', 'matching'),
    (('ports',), [{'vm': 'a', 'ips': ['x']}], 'ports[0].ips[0]', ''),
    (('coflows',), [{'coflow_id': 'c', 'sent_bytes': -1}],
     'coflows[0].sent_bytes', 'at least 0'),
    (('coflows',), [{'sent_bytes': 1}], 'coflows[0].coflow_id', 'required'),
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


def test_an_ack_is_noted(one):
    assert _say(one, 'ack', generation=5) == messages.Ack(5)
    assert one.acked == 5
