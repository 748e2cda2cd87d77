# SPDX-License-Identifier: Apache-2.0

"""What is said, and when, of the reports that an edge module makes."""

import msgspec
import pytest

from edge_module import outbox as outboxes
from tests.unit import made
from virtco import exception
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import reports

REPORT = made.report(link={'egress_bps': 8e6, 'ingress_bps': 8e6},
                     applied_generation=1, cpu_s=1.0, health='ok')


def welcome(heartbeat_s=10, most_bytes=2000):
    return messages.Welcome(4, 1.0, heartbeat_s, most_bytes=most_bytes)


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(outboxes.time, 'monotonic', lambda: now[0])
    return now


@pytest.fixture
def outbox(clock):
    found = outboxes.Outbox()
    found.restart(welcome())
    yield found
    found.wake_end.close()
    found._wake.close()


def said(outbox):
    reader = frames.Reader()
    return [msgspec.json.decode(payload) for frame in outbox.take()
            for payload in reader.feed(frame)]


def test_the_first_report_is_whole(outbox):
    assert said(outbox) == []
    outbox.put_report(REPORT)
    (first,) = said(outbox)
    assert msgspec.convert(first['report'], reports.Report) == REPORT
    assert said(outbox) == []


def test_what_matters_is_said_at_once_and_its_end_as_well(outbox, clock):
    outbox.put_report(REPORT)
    said(outbox)
    row = reports.CoflowCounters('c', 1)
    rows = [msgspec.json.decode(msgspec.json.encode(row))]
    clock[0] += 1
    outbox.put_report(msgspec.structs.replace(
        REPORT, coflows=(row,), cpu_s=2.0))
    assert said(outbox) == [{'type': 'delta', 'set': {'cpu_s': 2.0},
                             'rows': {'coflows': {'set': rows}}}]
    clock[0] += 1
    outbox.put_report(msgspec.structs.replace(
        REPORT, coflows=(row,), cpu_s=2.0))
    assert said(outbox) == [{'type': 'heartbeat'}]
    clock[0] += 1
    outbox.put_report(msgspec.structs.replace(
        REPORT, coflows=(row,), cpu_s=3.0))
    assert said(outbox) == []


def test_the_rest_waits_for_the_heartbeat(outbox, clock):
    outbox.put_report(REPORT)
    said(outbox)
    clock[0] += 10
    outbox.put_report(msgspec.structs.replace(
        REPORT, cpu_s=2.0))
    assert said(outbox) == []
    assert outbox.pause_s() == 1.0
    clock[0] += 1
    outbox.put_report(msgspec.structs.replace(
        REPORT, cpu_s=3.0))
    assert said(outbox) == [{'type': 'delta', 'set': {'cpu_s': 3.0}},
                            {'type': 'heartbeat'}]
    clock[0] += 11
    assert said(outbox) == [{'type': 'heartbeat'}]


def test_a_sign_of_life_is_answered_by_a_heartbeat_that_is_almost_due(
        outbox, clock):
    for at_s, is_answered in [(1008.9, False), (1009.0, True), (1010.5, False),
                              (1017.9, False), (1018.0, True)]:
        clock[0] = at_s
        outbox.answer_alive()
        assert said(outbox) == [{'type': 'heartbeat'}] * is_answered
    clock[0] = 1028.9
    assert said(outbox) == [] and outbox.pause_s() == pytest.approx(0.1)


@pytest.mark.parametrize('happens', [
    lambda outbox: outbox.resend(),
    lambda outbox: outbox.restart(welcome())])
def test_a_report_is_whole_again(outbox, happens):
    outbox.put_report(REPORT)
    said(outbox)
    happens(outbox)
    assert [message['type'] for message in said(outbox)] == ['report']


def test_the_newest_of_what_waits_is_said(outbox):
    for generation in (1, 2, 3):
        outbox.put_ack(0, generation)
        outbox.put_report(msgspec.structs.replace(
            REPORT, applied_generation=generation))
    ack, report = said(outbox)
    assert ack == {'type': 'ack', 'epoch': 0, 'generation': 3}
    assert report['report']['applied_generation'] == 3


def test_a_refusal_names_its_reason(outbox):
    outbox.put_ack(4, 3, 'x' * 5000)
    assert said(outbox) == [{'type': 'nack', 'epoch': 4, 'generation': 3,
                             'error': 'x' * 1000}]
    outbox.put_ack(4, 5)
    assert said(outbox) == [{'type': 'ack', 'epoch': 4, 'generation': 5}]


def test_a_report_above_the_limit_is_not_sent(outbox):
    outbox.put_report(msgspec.structs.replace(
        REPORT, error='x' * 2000))
    with pytest.raises(exception.Invalid, match='at most 2000 bytes'):
        said(outbox)


def test_an_outbox_says_when_it_wakes(outbox, clock):
    """At the next heartbeat, and at least once a second."""
    assert outboxes.Outbox().heartbeat_s == 1.0
    assert outbox.heartbeat_s == 10 and outbox.pause_s() == 1.0
    clock[0] += 10.5
    assert outbox.pause_s() == 0.5
    clock[0] += 5
    assert outbox.pause_s() == 0.0
    outbox.restart(welcome(heartbeat_s=0))
    assert outbox.heartbeat_s == 0.1


@pytest.mark.parametrize('say', [
    lambda outbox: outbox.put_ack(1, 2),
    lambda outbox: outbox.put_report(REPORT),
    lambda outbox: outbox.put_measurement({})])
def test_what_is_to_be_said_wakes_who_sends(outbox, say):
    with pytest.raises(BlockingIOError):
        outbox.wake_end.recv(9)
    say(outbox)
    assert outbox.wake_end.recv(9) == b'.'
    # Nobody waits for one who sleeps on.
    while True:
        try:
            outbox._wake.send(b'.' * 4096)
        except BlockingIOError:
            break
    say(outbox)


def test_the_latest_measurements_are_said_once(outbox):
    for number in range(70):
        outbox.put_measurement({'number': number})
    assert [one['measurement']['number'] for one in said(outbox)] == list(
        range(6, 70))
    assert said(outbox) == []
    outbox.put_ack(0, 1)
    outbox.put_measurement({'number': 1})
    assert [one['type'] for one in said(outbox)] == ['ack', 'measurement']


@pytest.mark.parametrize('more', [0, 1])
def test_a_frame_may_be_as_long_as_the_limit(outbox, more):
    outbox.put_report(REPORT)
    (frame,) = outbox.take()
    outbox.restart(welcome(
        most_bytes=len(frame) - frames.HEADER_BYTES - more))
    if more:
        with pytest.raises(exception.Invalid):
            outbox.take()
    else:
        assert outbox.take() == [frame]


def test_more_pairs_than_a_report_holds_cut_no_host_off(
        outbox, clock, monkeypatch):
    """Those that sent least are left out, and the others are brought."""
    monkeypatch.setattr(reports, 'MOST_BYTES', 20_000)
    pairs = [reports.PairCounter(dev='tap1', src_ip='10.0.0.1',
                                 dst_ip=f'10.0.1.{number}',
                                 sent_bytes=number, sent_packets=1)
             for number in range(250)]
    outbox.put_report(msgspec.structs.replace(REPORT, pairs=tuple(pairs)))
    *found, _ = said(outbox)
    kept = {pair['dst_ip'] for part in found for pair in part['pairs']}
    assert kept == {pair.dst_ip for pair in pairs[-len(kept):]}
    assert len(kept) > 100
    clock[0] += 20
    outbox.put_report(msgspec.structs.replace(REPORT, pairs=tuple(
        msgspec.structs.replace(pair, sent_bytes=pair.sent_bytes + 9)
        for pair in pairs)))
    assert {one['type'] for one in said(outbox)} == {
        'part', 'report', 'heartbeat'}
    outbox.put_report(msgspec.structs.replace(REPORT, pairs=tuple(pairs[:7])))
    clock[0] += 20
    outbox.resend()
    assert len(said(outbox)[0]['report']['pairs']) == 7


def test_a_long_change_is_a_whole_report(outbox, clock):
    """It is made of parts; a short one is told as such."""
    coflows = tuple(reports.CoflowCounters(f'c{number}', 1)
                    for number in range(60))
    outbox.put_report(msgspec.structs.replace(REPORT, coflows=coflows))
    *parts, last = said(outbox)
    assert len(parts) > 1 and last['type'] == 'report'
    for changed, kinds in ((60, {'part', 'report'}), (3, {'delta'})):
        clock[0] += 1
        coflows = tuple(msgspec.structs.replace(
            row, sent_bytes=row.sent_bytes + (number < changed))
            for number, row in enumerate(coflows))
        outbox.put_report(msgspec.structs.replace(REPORT, coflows=coflows))
        assert {one['type'] for one in said(outbox)} == kinds


def test_a_new_connection_hears_of_no_old_answer(outbox):
    outbox.put_ack(0, 1)
    outbox.restart(welcome())
    assert said(outbox) == []


@pytest.mark.parametrize('sent_bytes, is_said', [
    (100_000, True), (80_000, False)])
def test_bytes_matter_by_the_time_since_the_last_report(outbox, clock,
                                                        sent_bytes, is_said):
    """More than a hundredth of the link in the 9 s between the two."""
    outbox.put_report(REPORT)
    said(outbox)
    clock[0] += 9
    outbox.put_report(msgspec.structs.replace(
        REPORT, uplink_sent_bytes=REPORT.uplink_sent_bytes + sent_bytes))
    assert bool(said(outbox)) == is_said
