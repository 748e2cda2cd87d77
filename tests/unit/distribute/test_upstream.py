# SPDX-License-Identifier: Apache-2.0

"""What a peer tells the leader and hears of it, also over loopback."""

import asyncio
import concurrent.futures
import dataclasses
import socket
import threading

import msgspec
from msgspec import structs
import pytest

from tests import patience
from tests.unit import made
from tests.unit import stored
from virtco import exception
from virtco import metrics
from virtco.db import leader
from virtco.distribute import certificates
from virtco.distribute import server
from virtco.distribute import upstream
from virtco.leadership import lock
from virtco.wire import edge_policy
from virtco.wire import frames
from virtco.wire import messages

SEEN = leader.Seen(4, 7, 'x', '127.0.0.1:1', 'secret')
POLICY = edge_policy.EdgePolicy('h1', 1, 60.0, 1e9, 1e9, 1e7)


class Writer:
    """Keeps what is written; as many bytes of it wait as the test says."""

    def __init__(self):
        self.written, self.waiting_bytes = [], 0
        self.transport, self.is_aborted = self, False
        self._reader = frames.Reader()

    def get_write_buffer_size(self):
        return self.waiting_bytes

    def write(self, data):
        for payload in self._reader.feed(data):
            self.written.append(
                frames.opened(payload) if frames.is_enveloped(payload)
                else messages.decode_peer(payload))

    def abort(self):
        self.is_aborted = True

    def take(self):
        """What was written since it was last asked."""
        written, self.written = self.written, []
        return written


class Site:
    """An upstream whose loop the test turns, and what its doors were told."""

    def __init__(self):
        self.seen, self.knows, self.leads = None, True, True
        self.may_lead = False
        self.hosts, self.took, self.replayed = {}, [], []
        self.upstream = upstream.Upstream(
            self, None, upstream.Doors(self._replay, lambda: list(self.hosts),
                           lambda *args: self.took.append(args)))

    def is_in_touch(self):
        return self.knows

    def may_be_led(self):
        return self.leads or not self.knows

    def _replay(self, host):
        self.replayed.append(host)
        return self.hosts.get(host, [])

    def turn(self):
        """What other threads asked for is done."""
        loop = self.upstream.loop
        loop.call_soon(loop.stop)
        loop.run_forever()

    def hear(self, message, writer=None):
        self.upstream._hear(messages.pack(message), writer)

    def connected(self, epoch=4):
        writer = Writer()
        self.hear(messages.Welcome(epoch, 0.5), writer)
        return writer

    def run(self, work, n_sleeps=1):
        """Until it wants to sleep once more; how long it slept."""
        slept_s = []

        async def sleep(for_s):
            slept_s.append(for_s)
            if len(slept_s) > n_sleeps:
                raise asyncio.CancelledError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, 'sleep', sleep)
            with pytest.raises((asyncio.CancelledError, StopIteration)):
                work.send(None)
        return slept_s


@pytest.fixture
def site():
    found = Site()
    yield found
    found.upstream.loop.close()


def test_who_joins_tells_everything(site):
    site.hosts = {'h1': [b'{"a":1}', b'{"a":2}'], 'h2': [b'{}']}
    one = site.upstream
    for message in (messages.Changed(['g']), messages.Forgiven('p'),
                    messages.Forgotten(['h1', 'h2']),
                    messages.Changed(['g2'])):
        one.tell(message)
    site.turn()
    assert not one.is_connected
    writer = site.connected()
    assert one.is_connected and one.epoch == 4
    assert writer.take() == [
        ('h1', b'{"a":1}'), ('h1', b'{"a":2}'), ('h2', b'{}'),
        messages.Changed(None), messages.Changed(['g']),
        messages.Forgiven('p'), messages.Forgotten(['h1', 'h2']),
        messages.Changed(['g2'])]
    # Each is told once, and at once from here on.
    one.tell(messages.Changed(None))
    assert writer.take() == []
    site.turn()
    assert writer.take() == [messages.Changed(None)]


def test_what_operators_did_just_before_a_break_is_told_again(site,
                                                              monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(site.upstream.loop, 'time', lambda: now_s[0])
    said = [messages.Forgiven('p'), messages.Forgotten(['h1'])]
    writer = site.connected()
    for message in (messages.Changed(['g']), *said):
        site.upstream.tell(message)
    site.turn()
    assert writer.take()[1:] == [messages.Changed(['g']), *said]
    # Its connection is over, which nobody noticed yet.
    now_s[0] += upstream.KEPT_S
    site.run(site.upstream._watch(4, writer))
    site.upstream._writer = None
    now_s[0] += 60
    site.run(site.upstream._watch(4, writer))
    assert site.connected().take() == [messages.Changed(None), *said]
    # The leader has heard it by now.
    now_s[0] += upstream.KEPT_S + 1
    site.run(site.upstream._watch(4, writer))
    site.upstream._writer = None
    assert site.connected().take() == [messages.Changed(None)]


def test_what_waits_to_be_said_is_bounded(site, monkeypatch):
    monkeypatch.setattr(upstream, 'MOST_SAID', 3)
    for number in range(5):
        site.upstream.tell(messages.Forgiven(str(number)))
    site.turn()
    assert site.connected().take() == [messages.Changed(None), *map(
        messages.Forgiven, '234')]


def test_an_older_leader_is_left(site):
    site.connected(4)
    with pytest.raises(exception.Deposed, match='3'):
        site.connected(3)
    assert site.upstream.epoch == 4
    assert site.connected(4).take() and site.connected(6).take()
    assert site.upstream.epoch == 6


def test_the_newest_epoch_is_known_from_the_database_or_the_leader(site):
    one = site.upstream
    assert one.epoch == 0
    site.seen = SEEN
    assert one.epoch == 4
    site.connected(6)
    assert one.epoch == 6
    site.seen = dataclasses.replace(SEEN, epoch=7)
    assert one.epoch == 7


def test_edge_modules_are_passed_on(site):
    one = site.upstream
    one.forward('h1', b'{"lost":1}')
    one.gone('h1')
    writer = site.connected()
    assert writer.take() == [messages.Changed(None)]
    one.forward('h1', b'{"a":1}')
    one.gone('h1')
    assert writer.take() == [('h1', b'{"a":1}'), ('h1', b'')]


def test_a_leader_that_does_not_read_is_not_flooded(site):
    one, writer = site.upstream, site.connected()
    writer.take()
    site.hosts = {host: [host.encode()] for host in ('h1', 'h2')}
    writer.waiting_bytes = upstream.MOST_WAITING_BYTES
    one.forward('h1', b'1')
    assert writer.take() == [('h1', b'1')]
    writer.waiting_bytes += 1
    one.forward('h1', b'2')
    one.forward('h3', b'2')
    one._catch_up()
    assert writer.take() == site.replayed == []
    writer.waiting_bytes -= 1
    # Deltas hold for the report before, so the whole one is told first.
    one.forward('h1', b'3')
    one.forward('h2', b'3')
    one.gone('h3')
    assert writer.take() == [('h2', b'3'), ('h3', b'')]
    one._catch_up()
    assert writer.take() == [('h1', b'h1')] and site.replayed == ['h1']
    one._catch_up()
    assert writer.take() == []
    one.forward('h1', b'4')
    assert writer.take() == [('h1', b'4')]


def test_catching_up_ends_where_the_leader_reads_no_more(site):
    one, writer = site.upstream, site.connected()
    one._behind = {'h1', 'h2'}
    site.hosts = {'h1': [b'1'], 'h2': [b'2']}
    write = writer.write

    def full(data):
        write(data)
        writer.waiting_bytes = upstream.MOST_WAITING_BYTES + 1

    writer.write = full
    writer.take()
    one._catch_up()
    assert len(writer.take()) == len(one._behind) == 1
    one._writer = None
    one._catch_up()
    assert len(one._behind) == 1


def test_the_leader_says_how_many_hosts_there_are(site):
    assert site.upstream.n_hosts == 0
    site.hear(messages.Alive(4, 0.5, 70))
    assert site.upstream.n_hosts == 70


def test_edge_modules_hear_what_the_leader_has_for_them(site):
    frame = frames.enveloped('h1', b'{"a":1}')
    site.upstream._hear(frame[frames.HEADER_BYTES:], None)
    assert site.took == [('h1', b'{"a":1}')]


def test_a_policy_of_a_million_flows_is_taken():
    flows = tuple(edge_policy.FlowEntry(
        'c' * 36, 'v' * 36, '255.255.255.255', '255.255.255.254', 0x6fff,
        65535) for _ in range(1000))
    size_bytes = len(msgspec.json.encode(structs.replace(
        POLICY, flows=flows)))
    assert 1000 * size_bytes < upstream.MOST_BYTES


def test_a_refusal_is_an_error(site):
    with pytest.raises(ConnectionRefusedError, match='why not'):
        site.hear(messages.Refused('why not', 'a:1'))


def test_policies_are_asked_for(site):
    one = site.upstream
    answers = [concurrent.futures.Future() for _ in range(3)]
    one._ask('h1', answers[0])
    writer = site.connected()
    assert writer.take() == [messages.Changed(None), messages.Ask('h1')]
    one._ask('h1', answers[1])
    one._ask('h2', answers[2])
    assert writer.take() == [messages.Ask('h1'), messages.Ask('h2')]
    site.hear(messages.Asked('h1', msgspec.Raw(b'{"a":1}')))
    assert [answer.done() for answer in answers] == [True, True, False]
    assert [bytes(answer.result()) for answer in answers[:2]] == [
        b'{"a":1}'] * 2
    # Twice asked, twice answered.
    site.hear(messages.Asked('h1', msgspec.Raw(b'{"a":1}')))
    site.hear(messages.Asked('h2', msgspec.Raw(b'null')))
    assert bytes(answers[2].result()) == b'null'
    # Those that were answered are not asked for again.
    assert site.connected().take() == [messages.Changed(None)]


def test_who_gets_no_answer_in_time_is_told(site):
    for _ in range(2):
        with pytest.raises(exception.Starting, match='does not answer'):
            site.upstream.policy('h1', 0.0)
        # Also once it has ended.
        site.upstream.loop.close()
    site.upstream.tell(messages.Changed(None))
    site.upstream.stop()


def test_who_gave_up_is_not_remembered(site):
    """Each question stayed while no leader was there, and was asked of it.
    """
    one = site.upstream
    for host in ('h1', 'h1', 'h2'):
        with pytest.raises(exception.Starting):
            one.policy(host, 0.0)
    kept = concurrent.futures.Future()
    one._ask('h1', kept)
    site.turn()
    assert one._asked == {'h1': [kept]}
    assert site.connected().take() == [messages.Changed(None),
                                       messages.Ask('h1')]


# What is done again and again.


def test_the_leader_hears_that_this_process_is_here(site):
    site.seen, writer = SEEN, site.connected()
    writer.take()
    site.upstream._behind, site.hosts = {'h1'}, {'h1': [b'1']}
    # At once: a leader without its database stops until it is heard.
    assert site.run(site.upstream._watch(4, writer), 1) == [0.5] * 2
    here = messages.Here(True)
    assert writer.take() == [('h1', b'1'), here, here]
    site.knows, site.seen = False, None
    site.run(site.upstream._watch(4, writer), 0)
    assert writer.take() == [messages.Here(False)]
    assert not writer.is_aborted


@pytest.mark.parametrize('epoch, is_left', [(3, False), (4, False),
                                            (5, True)])
def test_a_deposed_leader_is_left(site, epoch, is_left):
    writer = site.connected()
    writer.take()
    site.seen = dataclasses.replace(SEEN, epoch=epoch)
    site.run(site.upstream._watch(4, writer), 0)
    assert writer.is_aborted is is_left
    assert writer.take() == ([] if is_left else [messages.Here(True)])


@pytest.mark.parametrize('seen, known, tries', [
    (None, 0, False), (SEEN, 0, True), (SEEN, 4, True), (SEEN, 5, False),
    (dataclasses.replace(SEEN, address=''), 0, False)])
def test_only_a_leader_that_is_known_is_called(site, seen, known, tries):
    site.seen, called = seen, []
    site.upstream._epoch = known

    async def converse(seen):
        called.append(seen)

    site.upstream._converse = converse
    assert site.run(site.upstream.keep_connected()) == [0.5, 0.5]
    assert called == ([seen] * 2 if tries else [])


def test_what_keeps_it_from_the_leader_is_one_line(site, caplog):
    errors = [TimeoutError(), TimeoutError(), OSError('no route'),
              OSError('no route'), EOFError('end'),
              msgspec.DecodeError('bad'), exception.Deposed(epoch=3),
              ValueError('port'), ValueError('port')]
    site.seen, left = SEEN, iter(errors)

    async def converse(seen):
        raise next(left)

    site.upstream._converse = converse
    site.run(site.upstream.keep_connected(), len(errors) - 1)
    prefix = 'The process that leads cannot be reached'
    assert [record.getMessage() for record in caplog.records] == [
        f'{prefix}: TimeoutError', f'{prefix}: no route', f'{prefix}: end',
        f'{prefix}: bad', f'{prefix}: {exception.Deposed(epoch=3)}',
        f'{prefix}.', f'{prefix}.']


def test_who_does_not_hear_the_leader_is_cut_off(site, monkeypatch):
    now_s, one = [100.0], site.upstream
    monkeypatch.setattr(one.loop, 'time', lambda: now_s[0])

    async def converse(seen):
        raise OSError('no route')

    one._converse = converse
    site.seen = SEEN
    assert not one.is_cut_off(0.0)
    for at_s in (100.0, 103.0):
        now_s[0] = at_s
        site.run(one.keep_connected())
    assert not one.is_cut_off(3.1) and one.is_cut_off(3.0)
    # Nobody else reaches one that does not lead any more.
    site.leads = False
    assert not one.is_cut_off(3.0)
    # No time counts in which nobody leads.
    site.run(one.keep_connected())
    site.leads = True
    assert not one.is_cut_off(0.1) and one.is_cut_off(0.0)
    now_s[0] = 106.0
    site.seen = dataclasses.replace(SEEN, epoch=SEEN.epoch + 1)
    assert not one.is_cut_off(0.0)
    site.run(one.keep_connected())
    assert not one.is_cut_off(0.1) and one.is_cut_off(0.0)
    # Of a database that does not answer it cannot learn who leads.
    site.leads = site.knows = False
    for at_s in (107.0, 109.0):
        now_s[0] = at_s
        site.run(one.keep_connected())
    assert not one.is_cut_off(3.1) and one.is_cut_off(3.0)


def test_by_which_files_the_leader_is_trusted():
    site = Site()
    site.seen = dataclasses.replace(SEEN, epoch=7)
    assert site.upstream.epoch == 7
    site.upstream.loop.close()
    conf = stored.conf()
    conf.set_override('cert_file', '/proc/nowhere', 'distributor')
    with pytest.raises(exception.ConfigInvalid, match='cert_file'):
        certificates.of(conf.distributor, 'client', metrics.Metrics())


# Over loopback.


class Leader:
    """A stream server whose peers prove themselves by the cloud's secret."""

    def __init__(self, epoch):
        self.told, self.came = [], []
        self.seen = leader.Seen(epoch, 0, 'x', '', 'secret')
        self.server = server.Server(
            stored.conf(distributor={'port': 0}), server.Doors(
                epoch=lambda: epoch, is_led=lambda: True,
                policy=lambda host, known: (1, made.frame(
                    'policy', epoch=epoch, generation=1, policy=POLICY)),
                n_hosts=lambda: 70, peer_key=lambda: self.seen.ticket_key,
                said=lambda *args: None,
                came=lambda *args: self.came.append(args),
                told=lambda *args: self._told(*args)), metrics.Metrics())
        self.seen = dataclasses.replace(
            self.seen, address=f'127.0.0.1:{self.server.port}')
        self.server.start()

    def _told(self, name, message):
        self.told.append((name, message))
        if isinstance(message, messages.Ask):
            self.server.answer(name, messages.Asked(
                message.host, msgspec.Raw(msgspec.json.encode(
                    POLICY if message.host == 'h1' else None))))


@pytest.fixture
def lead():
    started = []

    def make(epoch=4):
        started.append(Leader(epoch))
        return started[-1]

    yield make
    for one in started:
        one.server.stop()


@pytest.fixture
def running(monkeypatch):
    """An upstream with a thread of its own."""
    monkeypatch.setattr(upstream, 'RETRY_S', 0.01)
    found = Site()
    found.hosts = {'h1': [messages.pack(messages.Hello(
        frames.VERSION, 'h1'))]}
    found.upstream.start()
    yield found
    found.upstream.stop()


def test_it_talks_with_the_leader(running, lead):
    one, found = running.upstream, lead()
    running.seen = found.seen
    assert one.policy('h1', 60.0) == POLICY
    assert one.policy('h2', 60.0) is None
    patience.wait_for(lambda: running.took, 'a policy')
    patience.wait_for(lambda: one.n_hosts == 70, 'the number of hosts')
    host, payload = running.took[0]
    assert host == 'h1' and msgspec.json.decode(payload)['type'] == 'policy'
    name = lock.name_of_process()
    for message in (messages.Changed(None), messages.Here(True)):
        patience.wait_for(lambda message=message: (
            name, message) in found.told, str(message))
    assert found.came == [('h1', messages.Hello(frames.VERSION, 'h1'))]
    assert one.is_alive() and one.daemon
    one.stop()
    assert not one.is_alive() and not one.is_connected
    assert one.loop.is_closed()


def test_a_leader_has_two_seconds_to_take_a_connection(site, monkeypatch):
    asked = []

    async def wait_for(work, limit_s):
        work.close()
        asked.append(limit_s)
        raise TimeoutError

    monkeypatch.setattr(asyncio, 'wait_for', wait_for)
    with pytest.raises(TimeoutError):
        asyncio.run(site.upstream._converse(
            leader.Seen(4, 7, 'x', '127.0.0.1:1', 'secret')))
    assert asked == [2.0]


def test_the_next_leader_is_found(running, lead, caplog):
    one, first = running.upstream, lead(4)
    running.seen = first.seen
    patience.wait_for(lambda: one.is_connected, 'the first')
    one._behind = {'h7'}
    second = lead(5)
    running.seen = second.seen
    patience.wait_for(lambda: second.came, 'the second')
    assert one._epoch == 5 and one.is_connected and one._behind == set()
    assert 'Lost the process that leads.' in caplog.text
    second.server.stop()
    patience.wait_for(lambda: not one.is_connected, 'its end')
    patience.wait_for(lambda: not any(
        '_watch' in repr(task) for task in asyncio.all_tasks(one.loop)),
        'the end of what it says again and again')
    one.forward('h1', b'{}')
    assert one._writer is None
    patience.wait_for(lambda: 'cannot be reached' in caplog.text, 'a line')


def test_a_peer_without_the_secret_is_refused(running, lead, caplog):
    running.seen = dataclasses.replace(lead().seen, secret='other')
    patience.wait_for(lambda: 'with this ticket' in caplog.text, 'a line')
    assert not running.upstream.is_connected
    assert 'Lost the process' not in caplog.text
    # A process that refuses again and again does not lead.
    patience.wait_for(lambda: running.upstream.is_cut_off(0.5),
                      'an end of waiting', limit_s=20)


def test_a_leader_that_is_silent_is_left(running, monkeypatch, caplog):
    monkeypatch.setattr(server, 'PEERS_SILENT_S', 0.05)
    came = threading.Event()
    with socket.create_server(('127.0.0.1', 0)) as listener:
        running.seen = dataclasses.replace(
            SEEN, address='127.0.0.1:%d' % listener.getsockname()[1])
        held = []

        def accept():
            for _ in range(2):
                held.append(listener.accept()[0])
            came.set()

        thread = threading.Thread(target=accept)
        thread.start()
        assert came.wait(60)
        thread.join()
        # The first connection is over.
        held[0].settimeout(60)
        while held[0].recv(1 << 16):
            pass
        for sock in held:
            sock.close()
    assert 'cannot be reached: TimeoutError' in caplog.text
