# SPDX-License-Identifier: Apache-2.0

"""Connections over a transport that keeps all that is written."""

import asyncio

import pytest

from tests.unit import made
from tests.unit.distribute import ends
from virtco.distribute import connection
from virtco.distribute import edge_session as session
from virtco.distribute import tickets
from virtco.wire import frames
from virtco.wire import messages


def hello(host='h1', **values):
    return messages.Hello(frames.VERSION, host, **values)


def test_a_hello_opens(run):
    edge = run(ends.End)
    assert edge.transport.limits == [(1, 0)]
    assert edge.connection.is_writable
    assert edge.connection.address == '10.0.0.1'
    assert edge.connection.seat is None and edge.connection.seats == []
    assert edge.connection.heard_s == 5.0
    edge.hub.now_s = 7.0
    edge.hello()
    seat = edge.connection.seat
    assert (seat.host, seat.session.sent, seat.peer) == ('h1', 3, None)
    assert edge.connection.seats == [seat]
    assert edge.connection.peer is None
    assert edge.connection.heard_s == 7.0
    assert edge.hub.take() == [('opened', 'h1', hello(generation=3))]
    assert edge.heard() == [] and len(edge.transport.limits) == 1


@pytest.mark.parametrize('says', [
    None, lambda one: one.hello(), lambda one: one.join(),
    lambda one: one.connection.connection_lost(None)])
def test_a_hello_comes_in_time_or_the_connection_ends(says):
    async def work():
        one = ends.End(hello_s=0.0)
        if says is not None:
            says(one)
        await asyncio.sleep(0.001)
        return one

    one = asyncio.run(work())
    is_refused = ('refused', '10.0.0.1', 'no hello in time') in one.hub.notes
    assert is_refused is (says is None)
    assert (one.transport.end is not None) is is_refused


def test_a_connection_that_is_being_made_is_written_nothing():
    one = connection.Connection(ends.Hub(), '10.0.0.1')
    assert not one.is_writable
    one.write(made.frame('resend'))
    one.close()


def test_a_lost_connection_is_written_nothing(edge):
    edge.connection.connection_lost(None)
    assert edge.hub.take() == [('closed', None)]
    assert not edge.connection.is_writable
    assert not edge.connection.seat.connection.is_writable
    edge.connection.write(made.frame('resend'))
    edge.connection.resume_writing()
    assert not edge.connection.is_writable
    edge.connection.close()
    assert edge.transport.end is None and edge.heard() == []
    edge.connection.is_writable = True
    edge.connection.write(made.frame('resend'))
    assert edge.heard() == []


def test_what_is_not_read_is_not_written(edge):
    seat = edge.connection.seat
    seat.write(made.frame('resend'))
    assert seat.connection.is_writable
    edge.connection.pause_writing()
    seat.write(made.frame('resend'))
    assert not seat.connection.is_writable
    assert edge.heard() == ['resend']
    edge.connection.resume_writing()
    assert edge.hub.take() == [('resumed', None)]
    seat.write(made.frame('resend'))
    assert edge.heard() == ['resend'] and seat.connection.is_writable


def test_how_a_connection_is_closed(edge, run):
    """Unread bytes would keep the connection of an edge that hangs."""
    edge.connection.close()
    assert edge.transport.end == 'closed'
    other = run(ends.End)
    other.connection.pause_writing()
    other.connection.close()
    assert other.transport.end == 'aborted'


def test_reports_and_heartbeats(edge):
    report = made.report()
    edge.say('report', report=report)
    assert edge.hub.take() == [
        ('heard', 'h1', session.Report(report, True),
         ends.payload_of('report', report=report))]
    edge.say('heartbeat')
    assert edge.hub.take() == [('rests', 'h1')]
    # Spelled otherwise it is decoded, and means the same.
    edge.say('heartbeat', spelling='other')
    assert edge.hub.take() == [
        ('heard', 'h1', session.Report(report, False),
         ends.payload_of('heartbeat', spelling='other'))]
    # In pieces as well.
    whole = made.frame('heartbeat')
    for part in (whole[:5], whole[5:], whole + whole):
        edge.come(part)
    assert edge.hub.take() == [
        ('heard', 'h1', session.Report(report, False),
         ends.payload_of('heartbeat'))] * 3
    edge.say('ack', generation=3)
    assert edge.hub.take() == [
        ('heard', 'h1', messages.Ack(3), ends.payload_of('ack', generation=3))]
    # Nothing is answered: the server says by itself that it is there.
    assert edge.heard() == []


def test_a_heartbeat_after_half_a_frame_is_part_of_it(edge):
    edge.say('report', report=made.report())
    edge.hub.take()
    frame = made.frame('nack', generation=3, error=made.frame(
        'heartbeat').decode())
    begin = frame.index(b'heartbeat') - 20
    edge.come(frame[:begin])
    edge.come(made.frame('heartbeat'))
    assert edge.hub.take() == []


def test_what_an_edge_module_says_is_charged_to_its_host(run):
    edge = run(ends.End)
    edge.hub.cpu_clock = lambda: len(edge.hub.notes)
    edge.hello()
    edge.say('ack', generation=3)
    edge.come(made.frame('ack', generation=4)
              + made.frame('ack', generation=5))
    said = [ends.payload_of('hello', version=frames.VERSION, host='h1',
                       generation=3), *(
        ends.payload_of('ack', generation=number) for number in (3, 4, 5))]
    assert edge.hub.charged == [('h1', len(one), 1) for one in said]


def test_a_byte_that_comes_alone_is_charged_with_its_decryption(run):
    edge, spent_s = run(ends.End), iter(range(100))
    edge.hub.cpu_clock = lambda: next(spent_s)
    hello = made.frame('hello', version=frames.VERSION, host='h1')
    edge.come(hello[:1])
    edge.come(hello[1:])
    edge.hub.waits_s = [0.0, 2.0]
    for _ in range(2):
        assert not edge.connection.is_paused
        run(edge.come, b'\0')
    assert edge.connection.is_paused and not edge.transport.is_reading
    edge.come(b'\0')  # it was decrypted already
    assert edge.hub.charged == [
        ('10.0.0.1', 0, 1), ('h1', len(hello) - frames.HEADER_BYTES, 1),
        ('h1', 0, 1), ('h1', 0, 1)]


def idle_after(edge, n_arrivals, size_bytes, n_bytes=None):
    """What is charged for so many arrivals that bring nothing, or too little.

    :param size_bytes: of their records.
    :param n_bytes: of data in them, none of it a message.
    """
    edge.hub.charged.clear()
    for _ in range(n_arrivals):
        edge.connection.get_buffer(size_bytes)
        if n_bytes is not None:
            edge.connection.buffer_updated(n_bytes)
    return sum(cpu_s for _host, _size, cpu_s in edge.hub.charged)


@pytest.mark.parametrize('tls, size_bytes, n_arrivals', [
    # Keys that change, and bytes of a record that is not whole yet.
    (ends.Tls(), 22_000, 20), (ends.Tls(), 1, 20_000), (None, 65_536, 20_000)])
def test_bytes_that_are_no_data_are_charged(run, tls, size_bytes, n_arrivals):
    edge = run(ends.End, tls)
    edge.hello()
    all_bytes = n_arrivals * (connection.ARRIVAL_BYTES + (
        size_bytes if tls else 0))
    assert idle_after(edge, n_arrivals, size_bytes) == pytest.approx(
        connection.IDLE_BYTE_CPU_S * all_bytes, rel=0.06)


def test_data_has_no_price_but_that_of_its_records(run):
    edge = run(ends.End, ends.Tls())
    edge.hello()
    assert edge.transport.read_limit_bytes == connection.RECORD_BYTES
    edge.connection._reader.most_bytes = 1 << 40
    edge.hub.arriving[:4] = b'\x7f\0\0\0'  # one that does not end here
    found = idle_after(edge, 1000, 16_406, 16_384)
    assert found == pytest.approx(1000 * connection.IDLE_BYTE_CPU_S * (
        22 + connection.ARRIVAL_BYTES), rel=0.4)
    # One record comes in many pieces.
    edge.hub.charged.clear()
    for _ in range(11):
        edge.connection.get_buffer(1_490)
    edge.connection.buffer_updated(16_384)
    assert [cpu_s for *_, cpu_s in edge.hub.charged if cpu_s] == []


def test_bytes_of_a_relay_are_charged_to_nobody(run):
    relay = run(ends.End)
    relay.join()
    relay.hub.charged.clear()
    relay.come(b'\0')
    assert relay.hub.charged == []


def test_a_second_heartbeat_of_a_turn_is_charged(edge):
    report = made.report()
    edge.say('report', report=report)
    edge.hub.take()
    edge.hub.charged.clear()
    for _ in range(3):
        edge.say('heartbeat')
    heartbeat = ends.payload_of('heartbeat')
    assert edge.hub.charged == [('h1', len(heartbeat), 0.0)] * 2
    assert edge.hub.take() == [('rests', 'h1')] + [
        ('heard', 'h1', session.Report(report, False), heartbeat)] * 2


def test_what_is_refused_is_charged_too(run):
    """It was decoded, and its host comes back with the next."""
    edge = run(ends.End)
    edge.hello()
    edge.hub.charged.clear()
    wrong = made.frame('report', report={'epoch': 7})
    edge.come(wrong)
    assert [note[0] for note in edge.hub.take()][-1] == 'refused'
    ((host, size_bytes, _),) = edge.hub.charged
    assert (host, size_bytes) == ('h1', len(wrong) - frames.HEADER_BYTES)
    stranger = run(ends.End)
    stranger.come(wrong)
    assert [host for host, *_ in stranger.hub.charged] == ['10.0.0.1']


def acks(*generations):
    return b''.join(made.frame('ack', generation=number)
                    for number in generations)


def heard_acks(edge):
    return [note[2].generation for note in edge.hub.take()
            if note[0] == 'heard' and isinstance(note[2], messages.Ack)]


def paused(edge, waits_s, data):
    """Have a running loop, and an edge module that owes.

    :returns: the least and the most seconds for which it may be paused, as
        this process may have waited for a processor.
    """
    clock = asyncio.get_running_loop().time
    edge.hub.waits_s = waits_s
    begin_s = clock()
    edge.come(data)
    end_s = edge.connection._pause_timer.when()
    return end_s - clock(), end_s - begin_s


def test_who_owes_is_not_read_until_it_paid(edge, run):
    least_s, most_s = run(paused, edge, [0.0, 7.0], acks(1, 2, 3))
    assert least_s <= 7.0 <= most_s
    assert heard_acks(edge) == [1, 2]
    assert edge.connection.is_paused and not edge.transport.is_reading
    # What came before the pause began waits as well, in its order.
    edge.come(acks(4))
    assert edge.hub.take() == []
    edge.hub.now_s = 12.0
    edge.connection._read_on()
    assert heard_acks(edge) == [3, 4]
    assert edge.connection.heard_s == 12.0
    assert not edge.connection.is_paused and edge.transport.is_reading


def test_who_owes_still_goes_on_to_owe(edge, run):
    least_s, most_s = run(paused, edge, [0.001], acks(1, 2, 3))
    assert least_s <= 0.1 <= most_s
    edge.hub.waits_s = [0.0, 7.0]
    run(edge.connection._read_on)
    assert heard_acks(edge) == [1, 2, 3]
    assert edge.connection.is_paused and not edge.transport.is_reading


def test_a_pause_is_not_cut_short(edge, run):
    run(paused, edge, [7.0], acks(1, 2))
    timer = edge.connection._pause_timer
    run(edge.connection.pause, 0.0)
    assert edge.connection._pause_timer is timer


def test_who_owes_gives_way_to_placements_for_a_while(edge, run):
    run(paused, edge, [7.0], acks(1, 2))
    latest_s = edge.hub.now_s + max(7.0, connection.PAUSE_S) + 1.0
    edge.hub.is_answering = True
    edge.hub.take()
    timer = edge.connection._pause_timer
    run(timer._run)
    assert edge.connection.is_paused and edge.hub.take() == []
    assert edge.connection._pause_timer is not timer
    assert connection.LOOK_S < connection.PAUSE_S
    edge.hub.now_s = latest_s
    run(edge.connection._pause_timer._run)
    assert heard_acks(edge) == [2] and edge.transport.is_reading


def test_who_owes_is_read_on_between_placements(edge, run):
    run(paused, edge, [7.0], acks(1, 2))
    run(edge.connection._pause_timer._run)
    assert heard_acks(edge) == [1, 2] and edge.transport.is_reading


def test_a_pause_ends_with_its_connection(edge, run):
    run(paused, edge, [7.0], acks(1, 2))
    edge.connection.connection_lost(None)
    assert edge.connection._pause_timer.cancelled()
    edge.connection._read_on()
    assert not edge.transport.is_reading
    assert [note[0] for note in edge.hub.take()] == ['heard', 'closed']


def test_a_refused_connection_is_not_read_on(edge, run):
    run(paused, edge, [7.0], acks(1) + frames.frame(b'7'))
    edge.connection._read_on()
    assert edge.transport.end == 'closed' and not edge.transport.is_reading


def test_who_is_let_go_while_it_is_heard_is_not_paused(edge, run):
    edge.hub.heard = lambda seat, *args: seat.refuse('no more')
    edge.hub.waits_s = [7.0]
    run(edge.come, acks(1))
    assert edge.transport.end == 'closed' and edge.transport.is_reading


def test_a_heartbeat_without_a_report_asks_for_one(edge):
    edge.say('heartbeat')
    assert edge.heard() == ['resend']
    assert edge.hub.take() == []


def test_only_reports_are_asked_for_again(edge):
    edge.say('ack', generation=3)
    edge.say('report', report=made.report())
    assert edge.heard() == []


def test_a_second_hello_closes(edge):
    edge.hello()
    ((kind, host, why),) = edge.hub.take()
    assert (kind, host) == ('refused', 'h1') and 'one hello' in why
    (told,) = edge.take()
    assert told == {'type': 'refused', 'why': why, 'leader': ''}
    assert edge.transport.end == 'closed'
    # Nothing of it is taken any more.
    edge.say('heartbeat')
    edge.say('ack', generation=1)
    assert edge.hub.take() == [] and edge.heard() == []


def test_frames_after_a_refusal_are_not_read(edge):
    edge.come(
        frames.frame(b'7') + made.frame('ack', generation=3))
    assert [note[0] for note in edge.hub.take()] == ['refused']
    other = made.frame('ack', generation=3)
    edge.connection.connection_lost(None)
    edge.hub.take()
    edge.come(other)
    assert edge.hub.take() == []


@pytest.mark.parametrize('n_bytes, is_closed', [
    (10_000, False), (10_001, True)])
def test_a_frame_is_bounded(edge, n_bytes, is_closed):
    text = 'x' * (n_bytes - len(ends.payload_of('heartbeat', text='')))
    edge.come(made.frame('heartbeat', text=text))
    assert (edge.transport.end == 'closed') is is_closed


def test_a_heartbeat_of_a_closed_connection_is_not_counted(edge):
    edge.say('report', report=made.report())
    edge.hub.take()
    edge.transport.end = 'closed'
    edge.say('heartbeat')
    assert edge.hub.take() == []
    edge.transport.end = None
    edge.connection.connection_lost(None)
    edge.hub.take()
    edge.say('heartbeat')
    assert edge.hub.take() == []


def test_a_seat_is_refused_with_its_connection(edge):
    edge.connection.seat.refuse('why')
    assert edge.hub.take() == [('refused', 'h1', 'why')]
    assert edge.take() == [{'type': 'refused', 'why': 'why', 'leader': ''}]
    assert edge.transport.end == 'closed'


@pytest.mark.parametrize('leader, why', [
    ('10.0.0.9:8792', 'another process leads'),
    ('', 'the leader is not known, or not reached, from here')])
@pytest.mark.parametrize('greets', [ends.End.hello, ends.End.join])
def test_a_process_that_does_not_lead_names_the_leader(run, leader, why,
                                                       greets):
    one = run(lambda: greets(ends.End(elsewhere=leader, epoch=0)))
    assert one.hub.take() == [('refused', '10.0.0.1', why)]
    assert one.take() == [{'type': 'refused', 'why': why, 'leader': leader}]
    assert one.transport.end == 'closed'
    assert one.connection.seat is None and one.connection.peer is None


@pytest.mark.parametrize(('tls', 'host', 'is_open'), [
    (None, 'h2', True), (ends.Tls(asks=False), 'h2', True),
    (ends.Tls(), 'h1', True), (ends.Tls(), 'h2', False),
    (ends.Tls(certificate=False), 'h1', False)])
def test_a_certificate_names_its_host(run, tls, host, is_open):
    edge = run(lambda: ends.End(tls).hello(host))
    assert (edge.connection.seat is not None) is is_open
    assert [note[0] for note in edge.hub.take()] == [
        'opened' if is_open else 'refused']


@pytest.mark.parametrize('key, ticket, is_open', [
    (ends.KEY, tickets.of_host(ends.KEY, 'h2'), True),
    (ends.KEY, tickets.of_host(ends.KEY, 'h1'), False),
    (ends.KEY, tickets.of_peer(ends.KEY, 'h2'), False), (ends.KEY, '', False),
    ('', tickets.of_host('', 'h2'), False)])
def test_a_ticket_names_its_host(run, key, ticket, is_open):
    edge = run(lambda: ends.End(ends.Tls(), ticket_key=key).hello(
        'h2', ticket=ticket))
    assert (edge.connection.seat is not None) is is_open


def test_the_names_of_a_certificate():
    assert connection.names_of({
        'subjectAltName': [('DNS', 'h1'), ('IP Address', '10.0.0.1'),
                           ('DNS', 'h2')],
        'subject': [[('countryName', 'CH'), ('commonName', 'h3')],
                    [('organizationName', 'h4')]]}) == {'h1', 'h2'}
    assert connection.names_of({}) == set()


def test_a_refusal_says_which_names_a_certificate_has(run):
    [(_, _, why)] = run(lambda: ends.End(ends.Tls()).hello('h2')).hub.take()
    assert "DNS names ['h1']" in why
