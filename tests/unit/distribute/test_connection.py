# SPDX-License-Identifier: Apache-2.0

"""Connections over a transport that keeps all that is written."""

import asyncio
import ssl

import pytest

from tests.unit import made
from virtco import exception
from virtco.distribute import connection
from virtco.distribute import edge_session as session
from virtco.distribute import tickets
from virtco.wire import frames
from virtco.wire import messages

KEY = 'key'


class Transport:
    """
    :ivar written: messages; those in an envelope behind their host.
    """

    def __init__(self, tls=None):
        self.written = []
        self.end = None
        self.limits = []
        self.is_reading = True
        self._tls = tls

    def set_write_buffer_limits(self, high, low=None):
        self.limits.append((high, low))

    def get_extra_info(self, name):
        assert name == 'ssl_object'
        return self._tls

    def is_closing(self):
        return self.end is not None

    def write(self, frame):
        (payload,) = frames.Reader().feed(frame)
        if frames.is_enveloped(payload):
            host, inner = frames.opened(payload)
            self.written.append((host, frames.unpack(inner)))
        else:
            self.written.append(frames.unpack(payload))

    def pause_reading(self):
        assert self.end is None
        self.is_reading = False

    def resume_reading(self):
        assert not self.is_reading and self.end is None
        self.is_reading = True

    def close(self):
        self.end = 'closed'

    def abort(self):
        self.end = 'aborted'


class Tls:
    """Of an edge whose certificate is for h1."""

    def __init__(self, asks=True, certificate=True):
        self.context = self
        self.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
        self._found = {'subjectAltName': [('DNS', 'h1')]
                       } if certificate else None

    def getpeercert(self):
        return self._found


class Hub:
    """Notes what it is told, the host or the name of the subject first."""

    hello_s = 60.0
    most_bytes = 10_000
    epoch = 4
    elsewhere = None
    ticket_key = None
    peer_key = KEY

    def __init__(self, **values):
        self.now_s = 5.0
        self.notes = []
        self.charged, self.waits_s = [], []
        for name, value in values.items():
            setattr(self, name, value)

    def clock(self):
        return self.now_s

    cpu_clock = clock

    def charge(self, host, size_bytes, cpu_s):
        self.charged.append((host, size_bytes, cpu_s))
        return self.waits_s.pop(0) if self.waits_s else 0.0

    def __getattr__(self, kind):
        if kind not in ('opened', 'left', 'heard', 'rests', 'joined', 'told',
                        'closed', 'resumed', 'refused'):
            raise AttributeError(kind)

        def note(subject, *args):
            if isinstance(subject, connection.Seat):
                subject = subject.host
            elif isinstance(subject, connection.Peer):
                subject = subject.name
            elif isinstance(subject, connection.Connection):
                subject = None
            self.notes.append((kind, subject, *args))
        return note

    def take(self):
        notes, self.notes = self.notes, []
        return notes


class End:
    """A connection and both its ends."""

    def __init__(self, tls=None, **values):
        self.hub = Hub(**values)
        self.transport = Transport(tls)
        self.connection = connection.Connection(self.hub, '10.0.0.1')
        self.connection.connection_made(self.transport)

    def say(self, kind, **values):
        self.connection.data_received(frames.pack(kind, **values))

    def say_for(self, host, kind, /, **values):
        self.connection.data_received(frames.enveloped(
            host, frames.pack(kind, **values)[frames.HEADER_BYTES:]))

    def gone(self, host):
        self.connection.data_received(frames.enveloped(host, b''))

    def hello(self, host='h1', **values):
        self.say('hello', **{'version': frames.VERSION, 'host': host,
                             'generation': 3} | values)
        return self

    def hello_for(self, host, named=None, **values):
        self.say_for(host, 'hello', **{
            'version': frames.VERSION, 'host': named or host} | values)

    def join(self, **values):
        self.say('peer', **{
            'version': frames.VERSION, 'name': 'p1', 'epoch': 4,
            'ticket': tickets.of_peer(KEY, 'p1')} | values)
        return self

    def take(self):
        """Messages that it was told since it was last asked."""
        found = list(self.transport.written)
        self.transport.written.clear()
        return found

    def heard(self):
        """Their kinds."""
        return [message['type'] for message in self.take()]


def hello(host='h1', **values):
    return messages.Hello(frames.VERSION, host, **values)


@pytest.fixture
def run():
    """Connections take the running loop."""
    loop = asyncio.new_event_loop()

    def call(function, *args, **values):
        async def work():
            return function(*args, **values)
        return loop.run_until_complete(work())

    yield call
    loop.close()


@pytest.fixture
def edge(run):
    found = run(lambda: End().hello())
    found.hub.take()
    return found


@pytest.fixture
def relay(run):
    found = run(lambda: End().join())
    found.hub.take()
    return found


def test_a_hello_opens(run):
    edge = run(End)
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
        one = End(hello_s=0.0)
        if says is not None:
            says(one)
        await asyncio.sleep(0.001)
        return one

    one = asyncio.run(work())
    is_refused = ('refused', '10.0.0.1', 'no hello in time') in one.hub.notes
    assert is_refused is (says is None)
    assert (one.transport.end is not None) is is_refused


def test_a_connection_that_is_being_made_is_written_nothing():
    one = connection.Connection(Hub(), '10.0.0.1')
    assert not one.is_writable and not one.write(frames.pack('resend'))
    one.close()


def test_a_lost_connection_is_written_nothing(edge):
    edge.connection.connection_lost(None)
    assert edge.hub.take() == [('closed', None)]
    assert not edge.connection.is_writable
    assert not edge.connection.seat.is_writable
    assert not edge.connection.write(frames.pack('resend'))
    edge.connection.resume_writing()
    assert not edge.connection.is_writable
    edge.connection.close()
    assert edge.transport.end is None and edge.heard() == []
    edge.connection.is_writable = True
    assert not edge.connection.write(frames.pack('resend'))


def test_what_is_not_read_is_not_written(edge):
    seat = edge.connection.seat
    assert seat.write(frames.pack('resend')) and seat.is_writable
    edge.connection.pause_writing()
    assert not seat.write(frames.pack('resend')) and not seat.is_writable
    assert edge.heard() == ['resend']
    edge.connection.resume_writing()
    assert edge.hub.take() == [('resumed', None)]
    assert seat.write(frames.pack('resend')) and seat.is_writable


def test_how_a_connection_is_closed(edge, run):
    """Unread bytes would keep the connection of an edge that hangs."""
    edge.connection.close()
    assert edge.transport.end == 'closed'
    other = run(End)
    other.connection.pause_writing()
    other.connection.close()
    assert other.transport.end == 'aborted'


def payload_of(kind, **values):
    return frames.pack(kind, **values)[frames.HEADER_BYTES:]


def test_reports_and_heartbeats(edge):
    report = made.report()
    edge.say('report', report=report)
    assert edge.hub.take() == [
        ('heard', 'h1', session.Report(report, True),
         payload_of('report', report=report))]
    edge.say('heartbeat')
    assert edge.hub.take() == [('rests', 'h1')]
    # Spelled otherwise it is decoded, and means the same.
    edge.say('heartbeat', spelling='other')
    assert edge.hub.take() == [
        ('heard', 'h1', session.Report(report, False),
         payload_of('heartbeat', spelling='other'))]
    # In pieces as well.
    whole = frames.pack('heartbeat')
    for part in (whole[:5], whole[5:], whole + whole):
        edge.connection.data_received(part)
    assert edge.hub.take() == [
        ('heard', 'h1', session.Report(report, False),
         payload_of('heartbeat'))] * 3
    edge.say('ack', generation=3)
    assert edge.hub.take() == [
        ('heard', 'h1', messages.Ack(3), payload_of('ack', generation=3))]
    # Nothing is answered: the server says by itself that it is there.
    assert edge.heard() == []


def test_a_heartbeat_after_half_a_frame_is_part_of_it(edge):
    edge.say('report', report=made.report())
    edge.hub.take()
    frame = frames.pack('nack', generation=3, error=frames.pack(
        'heartbeat').decode())
    begin = frame.index(b'heartbeat') - 20
    edge.connection.data_received(frame[:begin])
    edge.connection.data_received(frames.pack('heartbeat'))
    assert edge.hub.take() == []


def test_what_an_edge_module_says_is_charged_to_its_host(run):
    edge = run(End)
    edge.hub.cpu_clock = lambda: len(edge.hub.notes)
    edge.hello()
    edge.say('ack', generation=3)
    edge.connection.data_received(frames.pack('ack', generation=4)
                                  + frames.pack('heartbeat'))
    said = [payload_of('hello', version=frames.VERSION, host='h1',
                       generation=3), *(
        payload_of('ack', generation=number) for number in (3, 4)),
        payload_of('heartbeat')]
    assert edge.hub.charged == [('h1', len(one), 1) for one in said]


def test_what_is_refused_is_charged_too(run):
    """It was decoded, and its host comes back with the next."""
    edge = run(End)
    edge.hello()
    edge.hub.charged.clear()
    wrong = frames.pack('report', report={'epoch': 7})
    edge.connection.data_received(wrong)
    assert [note[0] for note in edge.hub.take()][-1] == 'refused'
    ((host, size_bytes, _),) = edge.hub.charged
    assert (host, size_bytes) == ('h1', len(wrong) - frames.HEADER_BYTES)
    stranger = run(End)
    stranger.connection.data_received(wrong)
    assert stranger.hub.charged == []


def acks(*generations):
    return b''.join(frames.pack('ack', generation=number)
                    for number in generations)


def heard_acks(edge):
    return [note[2].generation for note in edge.hub.take()
            if note[0] == 'heard' and isinstance(note[2], messages.Ack)]


def paused(edge, waits_s, data):
    """Have a running loop, and an edge module that owes; its pause ends
    when it is told to, so long after it begins.
    """
    edge.hub.waits_s = waits_s
    edge.connection.data_received(data)
    timer = edge.connection._pause_timer
    return timer.when() - asyncio.get_running_loop().time()


def test_who_owes_is_not_read_until_it_paid(edge, run):
    begin_s = run(paused, edge, [0.0, 7.0], acks(1, 2, 3))
    assert 6.9 < begin_s <= 7.0
    assert heard_acks(edge) == [1, 2]
    assert edge.connection.is_paused and not edge.transport.is_reading
    # What came before the pause began waits as well, in its order.
    edge.connection.data_received(acks(4))
    assert edge.hub.take() == []
    edge.hub.now_s = 12.0
    edge.connection._read_on()
    assert heard_acks(edge) == [3, 4]
    assert edge.connection.heard_s == 12.0
    assert not edge.connection.is_paused and edge.transport.is_reading


def test_who_owes_still_goes_on_to_owe(edge, run):
    begin_s = run(paused, edge, [0.001], acks(1, 2, 3))
    assert 0.09 < begin_s <= connection.PAUSE_S
    edge.hub.waits_s = [0.0, 7.0]
    run(edge.connection._read_on)
    assert heard_acks(edge) == [1, 2, 3]
    assert edge.connection.is_paused and not edge.transport.is_reading


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
    run(edge.connection.data_received, acks(1))
    assert edge.transport.end == 'closed' and edge.transport.is_reading


def test_a_heartbeat_without_a_report_asks_for_one(edge):
    edge.say('heartbeat')
    assert edge.heard() == ['resend']
    assert edge.hub.take() == [('heard', 'h1', session.Report(None, False),
                                payload_of('heartbeat'))]


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
    edge.connection.data_received(
        frames.frame(b'7') + frames.pack('ack', generation=3))
    assert [note[0] for note in edge.hub.take()] == ['refused']
    other = frames.pack('ack', generation=3)
    edge.connection.connection_lost(None)
    edge.hub.take()
    edge.connection.data_received(other)
    assert edge.hub.take() == []


@pytest.mark.parametrize('n_bytes, is_closed', [
    (10_000, False), (10_001, True)])
def test_a_frame_is_bounded(edge, n_bytes, is_closed):
    text = 'x' * (n_bytes - len(payload_of('heartbeat', text='')))
    edge.connection.data_received(frames.pack('heartbeat', text=text))
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
    ('', 'nobody is known to lead')])
@pytest.mark.parametrize('greets', [End.hello, End.join])
def test_a_process_that_does_not_lead_names_the_leader(run, leader, why,
                                                       greets):
    one = run(lambda: greets(End(elsewhere=leader)))
    assert one.hub.take() == [('refused', '10.0.0.1', why)]
    assert one.take() == [{'type': 'refused', 'why': why, 'leader': leader}]
    assert one.transport.end == 'closed'
    assert one.connection.seat is None and one.connection.peer is None


@pytest.mark.parametrize(('tls', 'host', 'is_open'), [
    (None, 'h2', True), (Tls(asks=False), 'h2', True), (Tls(), 'h1', True),
    (Tls(), 'h2', False), (Tls(certificate=False), 'h1', False)])
def test_a_certificate_names_its_host(run, tls, host, is_open):
    edge = run(lambda: End(tls).hello(host))
    assert (edge.connection.seat is not None) is is_open
    assert [note[0] for note in edge.hub.take()] == [
        'opened' if is_open else 'refused']


@pytest.mark.parametrize('key, ticket, is_open', [
    (KEY, tickets.of_host(KEY, 'h2'), True),
    (KEY, tickets.of_host(KEY, 'h1'), False),
    (KEY, tickets.of_peer(KEY, 'h2'), False), (KEY, '', False),
    ('', tickets.of_host('', 'h2'), False)])
def test_a_ticket_names_its_host(run, key, ticket, is_open):
    edge = run(lambda: End(Tls(), ticket_key=key).hello('h2', ticket=ticket))
    assert (edge.connection.seat is not None) is is_open


def test_the_names_of_a_certificate():
    assert connection.names_of({
        'subjectAltName': [('DNS', 'h1'), ('IP Address', '10.0.0.1'),
                           ('DNS', 'h2')],
        'subject': [[('countryName', 'CH'), ('commonName', 'h3')],
                    [('organizationName', 'h4')]]}) == {'h1', 'h2'}
    assert connection.names_of({}) == set()


def test_a_refusal_says_which_names_a_certificate_has(run):
    [(_, _, why)] = run(lambda: End(Tls()).hello('h2')).hub.take()
    assert "DNS names ['h1']" in why


# Peers.


def test_a_peer_joins(run):
    one = run(End)
    one.join()
    assert one.hub.take() == [('joined', 'p1')]
    assert one.connection.peer.name == 'p1'
    assert one.connection.seat is None and one.connection.seats == []
    assert one.transport.limits == [(1, 0), (10_000, None)]
    one.say('here', has_database=False)
    one.say('changed', groups=['g'])
    assert one.hub.take() == [('told', 'p1', messages.Here(False)),
                              ('told', 'p1', messages.Changed(['g']))]
    assert one.heard() == [] and one.transport.end is None


@pytest.mark.parametrize('values, why', [
    ({'version': frames.VERSION + 1}, 'version'), ({'epoch': 5}, 'epoch: 5'),
    ({'ticket': ''}, 'to join as p1'),
    ({'ticket': tickets.of_host(KEY, 'p1')}, 'to join as p1'),
    ({'name': 'p2'}, 'to join as p2'), ({'name': ''}, 'name')])
def test_a_peer_is_refused(run, values, why):
    one = run(lambda: End().join(**values))
    ((kind, who, said),) = one.hub.take()
    assert (kind, who) == ('refused', '10.0.0.1') and why in said
    assert one.heard() == ['refused'] and one.transport.end == 'closed'
    assert one.connection.peer is None


def test_without_a_key_no_peer_joins(run):
    one = run(lambda: End(peer_key='').join(
        ticket=tickets.of_peer('', 'p1')))
    assert one.connection.peer is None and one.transport.end == 'closed'


def test_an_older_epoch_joins(run):
    assert run(lambda: End().join(epoch=3)).connection.peer is not None


def test_a_peer_that_says_no_message_is_let_go(relay):
    relay.say('report', report=made.report())
    ((kind, name, why),) = relay.hub.take()
    assert (kind, name) == ('refused', 'p1') and 'type' in why
    (told,) = relay.take()
    assert told['type'] == 'refused' and relay.transport.end == 'closed'


def test_a_relay_speaks_for_its_hosts(relay):
    relay.hello_for('h1', generation=3)
    relay.hello_for('h2')
    assert relay.hub.take() == [('opened', 'h1', hello(generation=3)),
                                ('opened', 'h2', hello('h2'))]
    first, second = relay.connection.seats
    assert (first.host, second.host) == ('h1', 'h2')
    assert first.peer is relay.connection.peer
    assert first.session.sent == 3
    report = made.report()
    relay.say_for('h2', 'report', report=report)
    assert relay.hub.take() == [
        ('heard', 'h2', session.Report(report, True),
         payload_of('report', report=report))]
    assert second.session.report == report and first.session.report is None
    assert first.write(frames.pack('alive', epoch=7))
    assert relay.take() == [('h1', {'type': 'alive', 'epoch': 7})]
    # Its heartbeats come by themselves, and are no frame of an edge.
    relay.say_for('h1', 'heartbeat')
    assert relay.take() == [('h1', {'type': 'resend'})]
    relay.connection.pause_writing()
    assert not first.is_writable
    assert not first.write(frames.pack('alive', epoch=7))
    assert relay.take() == []


def test_a_host_that_left_its_relay_is_gone(relay):
    relay.hello_for('h1')
    relay.hello_for('h2')
    relay.hub.take()
    relay.gone('h1')
    relay.gone('h9')
    assert relay.hub.take() == [('left', 'h1')]
    assert [seat.host for seat in relay.connection.seats] == ['h2']
    relay.hello_for('h1')
    assert relay.hub.take() == [('opened', 'h1', hello())]


def test_a_host_that_comes_back_by_its_relay_begins_again(relay):
    relay.hello_for('h1', generation=3)
    relay.say_for('h1', 'report', report=made.report())
    relay.hub.take()
    relay.hello_for('h1', generation=5)
    assert relay.hub.take() == [('left', 'h1'),
                                ('opened', 'h1', hello(generation=5))]
    (seat,) = relay.connection.seats
    assert seat.session.sent == 5 and seat.session.report is None
    assert relay.take() == []


@pytest.mark.parametrize('say, why', [
    (lambda one: one.say_for('h1', 'ack', generation=1), 'one hello'),
    (lambda one: one.hello_for('h1', named='h2'), 'to speak for h2'),
    (lambda one: one.hello_for('h1', epoch=5), 'epoch: 5'),
    (lambda one: one.say_for('h1', 'nothing'), 'type')])
def test_a_host_that_must_not_come_is_refused_alone(relay, say, why):
    say(relay)
    ((kind, host, said),) = relay.hub.take()
    assert (kind, host) == ('refused', 'h1') and why in said
    assert relay.take() == [
        ('h1', {'type': 'refused', 'why': said, 'leader': ''})]
    assert relay.connection.seats == [] and relay.transport.end is None


def test_a_host_that_breaks_the_protocol_is_refused_alone(relay):
    relay.hello_for('h1')
    relay.hello_for('h2')
    relay.hub.take()
    relay.say_for('h1', 'report', report=7)
    refused, left = relay.hub.take()
    assert refused[:2] == ('refused', 'h1') and left == ('left', 'h1')
    ((host, told),) = relay.take()
    assert (host, told['type']) == ('h1', 'refused')
    assert [seat.host for seat in relay.connection.seats] == ['h2']
    assert relay.transport.end is None


def test_a_seat_of_a_relay_is_refused_without_its_connection(relay):
    relay.hello_for('h1')
    relay.hub.take()
    relay.connection.seats[0].refuse('why')
    assert relay.hub.take() == [('refused', 'h1', 'why'), ('left', 'h1')]
    assert relay.take() == [
        ('h1', {'type': 'refused', 'why': 'why', 'leader': ''})]
    assert relay.transport.end is None


def test_an_envelope_may_be_as_much_longer(relay):
    relay.hello_for('h1')
    relay.hub.take()
    text = 'x' * (10_000 - len(payload_of('heartbeat', text='')))
    relay.say_for('h1', 'heartbeat', text=text)
    assert relay.transport.end is None and relay.take()
    assert connection.ENVELOPE_BYTES >= 2 + 255
    relay.say('changed', groups=['x' * (
        10_000 + connection.ENVELOPE_BYTES)])
    assert relay.transport.end == 'closed'


def test_a_broken_envelope_ends_the_relay(relay):
    relay.connection.data_received(frames.frame(b'\0\xffh1'))
    assert [note[:2] for note in relay.hub.take()] == [('refused', 'p1')]
    assert relay.transport.end == 'closed'


def test_heartbeats_of_a_peer_are_none(relay):
    """Only an edge module's own connection has the short way."""
    relay.say('heartbeat')
    assert [note[0] for note in relay.hub.take()] == ['refused']


def test_a_peer_is_written_and_refused_with_its_connection(relay):
    peer = relay.connection.peer
    assert peer.heard_s == relay.connection.heard_s
    assert peer.write(frames.pack('alive', epoch=4))
    assert relay.take() == [{'type': 'alive', 'epoch': 4}]
    relay.connection.pause_writing()
    assert not peer.write(frames.pack('alive', epoch=4))
    relay.connection.resume_writing()
    peer.refuse_all('why')
    assert relay.take()[-1]['why'] == 'why'
    assert relay.transport.end == 'closed'


def test_a_peer_that_is_refused_is_named(relay):
    relay.connection.refuse('why', '10.0.0.9:1')
    assert relay.hub.take() == [('refused', 'p1', 'why')]
    assert relay.take() == [
        {'type': 'refused', 'why': 'why', 'leader': '10.0.0.9:1'}]


def test_an_edge_is_no_peer(edge):
    edge.join()
    ((kind, _, why),) = edge.hub.take()
    assert kind == 'refused' and 'one hello' in why
    with pytest.raises(exception.Invalid):
        connection.Peer(edge.hub, edge.connection, 'p').take(b'{}')
