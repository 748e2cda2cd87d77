# SPDX-License-Identifier: Apache-2.0

"""Messages as they stand on the wire, and those that are refused."""

import msgspec
import pytest

from tests.unit import made
from virtco import exception
from virtco.wire import deltas
from virtco.wire import messages
from virtco.wire import parts
from virtco.wire import probe_order
from virtco.wire import reports

#: What edge modules and peers say: of an edge module, of a peer.
EDGES = [
    (messages.Hello(3, 'h1', 4, 5, 't'),
     '{"type":"hello","version":3,"host":"h1","epoch":4,"generation":5,'
     '"ticket":"t"}'),
    (messages.Peer(3, 'p1', 4, 't'),
     '{"type":"peer","version":3,"name":"p1","epoch":4,"ticket":"t",'
     '"may_lead":true}'),
    (messages.Ack(5, 4), '{"type":"ack","generation":5,"epoch":4}'),
    (messages.Nack(5, 'no', 4),
     '{"type":"nack","generation":5,"error":"no","epoch":4}'),
    (messages.Heartbeat(), '{"type":"heartbeat"}'),
    (parts.Part(), '{"type":"part"}'),
    (deltas.Delta(), '{"type":"delta"}')]
PEERS = [
    (messages.Here(True), '{"type":"here","has_database":true}'),
    (messages.Changed(['g']), '{"type":"changed","groups":["g"]}'),
    (messages.Changed(None), '{"type":"changed","groups":null}'),
    (messages.Forgiven('p'), '{"type":"forgiven","project_id":"p"}'),
    (messages.Forgotten(['h']), '{"type":"forgotten","hosts":["h"]}'),
    (messages.Ask('h1'), '{"type":"ask","host":"h1"}')]
TOLD = [
    (messages.Welcome(4, 0.5, 30.0, 5.0, 99),
     '{"type":"welcome","epoch":4,"alive_s":0.5,"heartbeat_s":30.0,'
     '"spread_s":5.0,"most_bytes":99}'),
    (messages.Alive(4, 0.5, 7),
     '{"type":"alive","epoch":4,"alive_s":0.5,"n_hosts":7}'),
    (messages.Refused('why', 'a:1'),
     '{"type":"refused","why":"why","leader":"a:1"}'),
    (messages.Asked('h1', msgspec.Raw(b'{"a":1}')),
     '{"type":"asked","host":"h1","policy":{"a":1}}')]

PROBE = ('{"type":"probe","order":{"probe_id":"p","key":"' + '0a' * 32
         + '","peer":"h2",%s}}')
SEND = '"role":"send","address":"10.0.0.2","port":7,'


def check(found, text, decode):
    assert messages.pack(found) == text.encode()
    assert decode(text.encode()) == found


@pytest.mark.parametrize('found, text', EDGES)
def test_an_edge_module_speaks(found, text):
    check(found, text, messages.decode)


@pytest.mark.parametrize('found, text', PEERS)
def test_a_peer_speaks(found, text):
    check(found, text, messages.decode_peer)


@pytest.mark.parametrize('found, text', TOLD)
def test_the_leader_speaks(found, text):
    check(found, text, messages.PEER_TOLD.decode)


def test_reports_and_measurements_come_out_as_they_went_in():
    for found in (messages.Whole(made.report(applied_generation=3)),
                  messages.Measured(made.measurement('h1', 'h2', 1e9))):
        assert messages.decode(messages.pack(found)) == found


@pytest.mark.parametrize('text, expected', [
    ('{"type":"hello","version":3,"host":"h1"}',
     messages.Hello(3, 'h1', 0, 0, '')),
    ('{"type":"measurement","measurement":{"probe_id":"p","src":"h1",'
     '"dst":"h2","rate_bps":8}}', messages.Measured(reports.Measurement(
         probe_id='p', src='h1', dst='h2', rate_bps=8, lower_bound=False,
         loss=0.0, method=''))),
    ('{"type":"ack","generation":5}', messages.Ack(5, 0)),
    ('{"type":"nack","generation":5,"error":""}', messages.Nack(5, '', 0))])
def test_what_edge_modules_may_leave_out(text, expected):
    assert messages.decode(text.encode()) == expected


@pytest.mark.parametrize('text, expected', [
    ('{"type":"welcome","epoch":4,"alive_s":0.5}',
     messages.Welcome(4, 0.5, 0.0, 0.0, 0)),
    ('{"type":"alive","epoch":4,"alive_s":0.5}', messages.Alive(4, 0.5)),
    ('{"type":"refused","why":"x"}', messages.Refused('x', ''))])
def test_what_the_leader_may_leave_out(text, expected):
    assert messages.PEER_TOLD.decode(text) == expected


@pytest.mark.parametrize('text, field', [
    ('{"type":"peer","version":3,"name":"p","epoch":4}', 'ticket'),
    ('{"type":"peer","version":3,"name":"p","ticket":""}', 'epoch'),
    ('{"type":"peer","version":0,"name":"p","epoch":4,"ticket":""}',
     'version'),
    ('{"type":"peer","version":1001,"name":"p","epoch":4,"ticket":""}',
     'version'),
    ('{"type":"hello","version":1001,"host":"h1"}', 'version'),
    ('{"type":"here","has_database":true}', 'type'), ('[]', 'frame')])
def test_edge_modules_keep_to_their_schema(text, field):
    with pytest.raises(exception.Invalid) as caught:
        messages.decode(text.encode())
    assert caught.value.kwargs['field'] == field


@pytest.mark.parametrize('text, expected', [
    ('{"type":"policy","generation":5,"policy":{"a":[1]}}',
     messages.Policy(5, {'a': [1]}, 0)),
    ('{"type":"policy","generation":5,"policy":7,"epoch":3}',
     messages.Policy(5, 7, 3)),
    (PROBE % '"role":"receive"', messages.Probe(probe_order.Receive(
        probe_id='p', key='0a' * 32, peer='h2'))),
    (PROBE % '"role":"receive","start_in_s":10', messages.Probe(
        probe_order.Receive(probe_id='p', key='0a' * 32, peer='h2',
                            start_in_s=10.0))),
    (PROBE % (SEND + '"traffic":{"op":"bulk","lasts_s":1}'), messages.Probe(
        probe_order.Send(probe_id='p', key='0a' * 32, peer='h2',
                         address='10.0.0.2', port=7,
                         traffic=probe_order.Bulk(1.0, 2 ** 28, 0.01)))),
    (PROBE % (SEND + '"repeats":false,"traffic":{"op":"train","bursts":1,'
              '"packets":2,"packet_bytes":64}'), messages.Probe(
        probe_order.Send(probe_id='p', key='0a' * 32, peer='h2',
                         address='10.0.0.2', port=7, repeats=False,
                         traffic=probe_order.Train(1, 2, 64)))),
    ('{"type":"resend"}', messages.Resend()),
    ('{"type":"alive","epoch":0,"alive_s":2,"later":1}',
     messages.Alive(0, 2.0))])
def test_what_edge_modules_are_told(text, expected):
    assert messages.decode_told(text.encode()) == expected


@pytest.mark.parametrize('text, field', [
    ('{"type":"alive","epoch":4}', 'alive_s'),
    ('{"type":"policy","generation":5}', 'policy'),
    ('{"type":"probe"}', 'order'), (PROBE % '"role":"other"', 'order.role'),
    (PROBE % '"role":"send"', 'order.address'),
    *((PROBE % f'"role":"receive","start_in_s":{value}', 'order.start_in_s')
      for value in ('-0.01', '10.01', '"1"', 'true')),
    *((PROBE.replace('0a' * 32, key) % '"role":"receive"', 'order.key')
      for key in ('', '0a' * 31, '0a' * 33, '0A' * 32, 'zz' * 32)),
    ('{"type":"asked"}', 'type'),
    ('[' * 100_000, 'body'), ('\xff', 'frame')])
def test_what_edge_modules_are_told_keeps_to_its_schema(text, field):
    with pytest.raises(exception.Invalid) as caught:
        messages.decode_told(text.encode())
    assert caught.value.kwargs['field'] == field


@pytest.mark.parametrize('text, field', [
    ('{"type":"here"}', 'has_database'),
    ('{"type":"changed","groups":[7]}', 'groups[0]'),
    ('{"type":"ask","host":"../h1"}', 'host'),
    ('{"type":"heartbeat"}', 'type'), ('7', 'frame'), ('{', 'frame'),
    ('{"type":"here","has_database":true}}', 'frame')])
def test_peers_keep_to_their_schema(text, field):
    with pytest.raises(exception.Invalid) as caught:
        messages.decode_peer(text.encode())
    assert caught.value.kwargs['field'] == field
    assert len(str(caught.value)) < 250


def test_what_is_no_json_is_shown_in_part():
    with pytest.raises(exception.Invalid) as caught:
        messages.decode(b'{' + b'x' * 100)
    assert caught.value.kwargs['value'] == repr(b'{' + b'x' * 39)


def test_a_window_of_a_bulk_connection_lasts_a_hundredth():
    assert reports.WINDOW_S == 0.01


@pytest.mark.parametrize('rtt_s, is_taken', [
    (0, True), (3600, True), (-0.1, False), (3601, False)])
def test_a_round_trip_takes_an_hour_at_most(rtt_s, is_taken):
    text = ('{"type":"measurement","measurement":{"probe_id":"p","src":"h1",'
            f'"dst":"h2","rate_bps":8,"rtt_s":{rtt_s}}}}}').encode()
    if is_taken:
        assert messages.decode(text).measurement.rtt_s == rtt_s
    else:
        with pytest.raises(exception.Invalid, match='rtt_s'):
            messages.decode(text)
