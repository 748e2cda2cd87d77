# SPDX-License-Identifier: Apache-2.0

"""How a responder counts what arrives, and for how long it waits for it."""

import contextlib
import itertools
import math
import socket
import threading
import time
import types

import pytest

from edge_module.probe import responder
from edge_module.probe import train_protocol as protocol
from virtco.wire import probe_order

LOOPBACK = '127.0.0.1'
COOKIE = b'12345678'
TRAIN = probe_order.Train(5, 50, 1000)


def make(port=0):
    return responder.Responder(LOOPBACK, port, protocol.Settings())


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(s=100.0)
    now.monotonic = lambda: now.s
    now.time = lambda: 5000.75
    monkeypatch.setattr(responder, 'time', now)
    return now


def key(name):
    return protocol.Key(name, bytes(32))


def test_few_wait_to_be_served():
    """Nobody is served before the start; 33 wait, and no other."""
    answering = make()
    with contextlib.ExitStack() as stack:
        stack.callback(answering._listener.close)
        stack.callback(answering._packets.close)
        for _ in range(33):
            stack.enter_context(socket.create_connection(
                (LOOPBACK, answering.port), timeout=5)).sendall(b'{')
        with pytest.raises(TimeoutError):
            socket.create_connection((LOOPBACK, answering.port),
                                     timeout=0.05)


def test_a_responder_that_is_not_stopped_keeps_no_process_alive():
    answering = make()
    answering.start()
    try:
        served, = (one for one in threading.enumerate()
                   if one.name == 'virtco-probe-responder')
        assert served.daemon
    finally:
        answering.stop()


def test_only_a_failure_to_accept_is_logged(monkeypatch):
    is_logged = threading.Event()
    answering = make()
    answering.start()
    monkeypatch.setattr(responder.LOG, 'warning',
                        lambda *args: is_logged.set())
    answering.stop()
    assert not answering._thread.is_alive() and not is_logged.is_set()
    answering = make()
    answering.start()
    answering._listener.shutdown(socket.SHUT_RDWR)
    assert is_logged.wait(5)
    answering._stop.set()
    answering._thread.join(5)
    answering._listener.close()
    answering._packets.close()


def test_a_stopped_responder_leaves_its_port():
    answering = make()
    answering.start()
    answering.stop()
    assert not answering._thread.is_alive()
    assert answering._listener.fileno() == answering._packets.fileno() == -1
    again = make(answering.port)
    again.start()
    again.stop()


def test_a_port_that_is_half_taken_is_left_alone():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        # A number that no TCP socket of another test has, either.
        with socket.create_server((LOOPBACK, 0)) as free:
            port = free.getsockname()[1]
            taken.bind((LOOPBACK, port))
        with pytest.raises(OSError) as failed:
            make(port)
        # Also while somebody looks at the error, and at where it came from.
        assert failed.tb
        socket.create_server((LOOPBACK, port)).close()


def test_who_is_expected_is_so_for_a_time(clock):
    answering = make()
    try:
        assert not answering._awaited()
        answering.expect(key('a'), 5.0)
        answering.expect(key('b'), 10.0, 7.5)
        for clock.s in (100.0, 105.0):
            assert {name: one.start_s for name, one
                    in answering._awaited().items()} == {'a': None, 'b': 7.5}
        # One whose time is over does not stand in the others' way.
        clock.s = 105.5
        assert list(answering._awaited()) == ['b']
        clock.s = 110.5
        assert not answering._awaited()
        answering.expect(key('c'), 1.0)
        assert list(answering._expected) == ['c']
    finally:
        answering._listener.close()
        answering._packets.close()


def test_of_too_many_that_are_expected_the_oldest_goes(clock):
    answering = make()
    for number in range(65):
        answering.expect(key(str(number)), 5.0)
    answering._listener.close()
    answering._packets.close()
    assert list(answering._expected) == [str(n) for n in range(1, 65)]


def test_who_is_expected_no_more_leaves_room(clock):
    answering = make()
    answering._listener.close()
    answering._packets.close()
    answering.expect(key('long'), 9.0)
    for number in range(63):
        answering.expect(key(str(number)), 1.0)
    clock.s += 2.0
    answering.expect(key('late'), 1.0)
    assert answering._awaited()['long'].until_s == 109.0
    assert answering._awaited()['late'].until_s == 103.0


class Stream:
    """Brings (time, bytes) one after the other."""

    def __init__(self, clock, *parts):
        self._clock, self._parts = clock, list(parts)

    def receive_into(self, buffer):
        if not self._parts:
            return 0
        self._clock.s, size_bytes = self._parts.pop(0)
        return size_bytes


def bulk(size_bytes):
    return probe_order.Bulk(1.0, size_bytes, 0.5)


@pytest.mark.parametrize('start_s, windows', [
    (None, (110, 20, 0, 0, 3)), (101.0, (130, 0, 3)), (99.0, (
        0, 0, 110, 20, 0, 0, 3))])
def test_bytes_are_counted_in_windows(clock, start_s, windows):
    stream = Stream(clock, (100.0, 100), (100.49, 10), (100.5, 20),
                    (102.0, 3))
    assert responder._count(stream, bulk(133), start_s) == windows
    stream = Stream(clock, (100.0, 100), (100.49, 10), (100.5, 20),
                    (102.0, 3))
    with pytest.raises(protocol.ProbeError, match='too long'):
        responder._count(stream, bulk(132), start_s)


def test_windows_beyond_the_last_count_no_more(clock):
    """Of a round; another stream is to end before."""
    parts = (100.0, 5), (100.0 + 1499 * 0.5, 7), (100.0 + 1500 * 0.5, 9)
    found = responder._count(Stream(clock, *parts), bulk(99), 100.0)
    assert len(found) == 1500 and (found[0], found[-1]) == (5, 7)
    assert len(responder._count(Stream(clock, *parts[:2]), bulk(99),
                                None)) == 1500
    with pytest.raises(protocol.ProbeError, match='does not end'):
        responder._count(Stream(clock, *parts), bulk(99), None)


class Arrivals:
    """Stands for the sockets of a train: what comes has its time.

    :param events: (time, sequence numbers) or (time, message).
    """

    def __init__(self, clock, monkeypatch, *events, lasts_s=60.0):
        self._clock, self._events = clock, list(events)
        self.deadline_s = clock.s + lasts_s
        self.sock = object()
        self.said, self.waits = [], []
        monkeypatch.setattr(protocol, 'time', clock)
        monkeypatch.setattr(responder, 'select', self)
        monkeypatch.setattr(responder, '_arrived', self._packets)

    def select(self, wanted, _writing, _failing, wait_s):
        self.waits.append(wait_s)
        assert len(self.waits) < 50, 'it has no end'
        at_s, what = self._events[0] if self._events else (math.inf, [])
        source = self.sock if isinstance(what, protocol.Message) else self
        if source not in wanted or at_s > self._clock.s + wait_s:
            self._clock.s += wait_s + 1e-6
            return [], [], []
        self._clock.s = max(self._clock.s, at_s)
        return [source], [], []

    def _packets(self, _socket, cookie, _index):
        assert cookie == COOKIE
        _, numbers = self._events.pop(0)
        for number in numbers:
            yield number, 5002, 250_000_000

    def left_s(self):
        return protocol.Control.left_s(self)

    def has_message(self):
        at_s, what = self._events[0] if self._events else (math.inf, [])
        return at_s <= self._clock.s and isinstance(what, protocol.Message)

    def receive(self, *wanted):
        found = self._events.pop(0)[1]
        assert isinstance(found, wanted)
        return found

    def send(self, message):
        self.said.append(message)

    def next(self, index=3):
        return responder._receive_burst(self, self, TRAIN, COOKIE, index)


def told(packets):
    return protocol.Sent(packets, 0.5)


@pytest.mark.parametrize('events, sequence, end_s', [
    # All came: nobody waits.
    ([(100.0, [0, 1]), (100.1, told(2))], [0, 1], 100.1),
    ([(100.0, told(2)), (100.04, [1]), (100.06, [0])], [1, 0], 100.06),
    # A twentieth of a second is quiet enough, and the first has no gap.
    ([(100.0, told(3)), (100.04, [0]), (100.05, [1])], [0, 1], 100.1),
    ([(102.0, [0]), (102.0, told(3))], [0], 102.05),
    # Three times the longest gap, if that is longer.
    ([(100.0, [0]), (100.1, [1]), (100.1, told(3))], [0, 1], 100.4),
    ([(100.0, [0]), (100.1, [1]), (100.11, told(3)), (100.4, [2])],
     [0, 1, 2], 100.4),
    ([(100.0, [0]), (100.1, [1]), (100.11, [2]), (100.11, told(4))],
     [0, 1, 2], 100.41),
    # Half a second at most.
    ([(100.0, [0]), (101.0, [1]), (101.0, told(3))], [0, 1], 101.5),
    ([(100.0, told(3))], [], 100.05),
    # Packets of others keep nobody waiting.
    ([(100.0, [0]), (100.0, told(3)), (100.03, []), (100.06, []),
      (100.09, [])], [0], 100.06)])
def test_a_burst_ends_when_nothing_comes_any_more(clock, monkeypatch, events,
                                                  sequence, end_s):
    found = Arrivals(clock, monkeypatch, *events).next()
    assert [seq for seq, _ in found.arrivals] == sequence
    assert found.sending_s == 0.5
    assert clock.s == pytest.approx(end_s)
    # Since the second in which the train began.
    assert {time_s for _, time_s in found.arrivals} <= {2.25}


def test_round_trips_are_answered_before_a_burst(clock, monkeypatch):
    arriving = Arrivals(clock, monkeypatch, (100.0, protocol.Ping()),
                        (100.5, protocol.Ping()), (101.0, protocol.End()))
    assert arriving.next() is None
    assert arriving.said == [protocol.Pong()] * 2


def test_a_train_is_given_up_at_the_deadline(clock, monkeypatch):
    with pytest.raises(protocol.ProbeError, match='time is up'):
        Arrivals(clock, monkeypatch, lasts_s=3.0).next()
    assert clock.s == pytest.approx(103.0)
    # What is left bounds the wait for the rest of a burst, too.
    arriving = Arrivals(clock, monkeypatch, (103.0, told(3)), lasts_s=0.02)
    with pytest.raises(protocol.ProbeError, match='time is up'):
        arriving.next()
    assert arriving.waits == pytest.approx([0.02, 0.02])


@pytest.mark.parametrize('packets, index, is_valid', [
    (1, 3, True), (50, 3, True), (51, 3, False), (2, 4, True),
    (2, 5, False)])
def test_what_is_said_of_a_burst_has_bounds(clock, monkeypatch, packets,
                                            index, is_valid):
    arriving = Arrivals(clock, monkeypatch, (100.0, told(packets)))
    if is_valid:
        assert arriving.next(index).sent == packets
    else:
        with pytest.raises(protocol.ProbeError, match='not valid'):
            arriving.next(index)


def test_packets_of_others_and_of_other_bursts_do_not_count():
    """They come with the kernel's time."""
    answering = make()
    answering._listener.close()
    receiving = answering._packets
    sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiving, sending:
        assert receiving.getblocking() is False
        before_s = time.time()
        for cookie, burst, seq, rest in (
                (COOKIE, 3, 7, b''), (COOKIE, 3, 5, b'x' * 50),
                (COOKIE, 2, 6, b''), (bytes(8), 3, 8, b''),
                (COOKIE, 3, 7, b'')):
            sending.sendto(protocol.HEADER.pack(cookie, burst, seq) + rest,
                           receiving.getsockname())
        sending.sendto(bytes(13), receiving.getsockname())
        *found, late = responder._arrived(receiving, COOKIE, 3)
    assert [seq for seq, _, _ in (*found, late)] == [7, 5, 7]
    times_s = [seconds + 1e-9 * ns for _, seconds, ns in (*found, late)]
    assert times_s == sorted(times_s)
    assert times_s[0] == pytest.approx(before_s, abs=5)


def test_a_flood_is_left_now_and_then():
    """The deadline would pass unnoticed."""
    n_read = itertools.count()
    flood = types.SimpleNamespace(recvmsg_into=lambda *_: (
        next(n_read) and 20, [(1, 35, bytes(16))], 0, None))
    assert not [*responder._arrived(flood, COOKIE, 3)]
    assert next(n_read) == 4096


def test_of_two_packets_alike_the_first_counts(clock, monkeypatch):
    arriving = Arrivals(clock, monkeypatch, (100.0, [0, 1]), (100.0, told(2)))
    times_s = iter((250_000_000, 500_000_000, 750_000_000))
    monkeypatch.setattr(responder, '_arrived', lambda *_: (
        arriving._events.pop(0), [(seq, 5002, next(times_s))
                                  for seq in (0, 0, 1)])[1])
    assert arriving.next().arrivals == ((0, 2.25), (1, 2.75))


def test_the_buffer_is_as_large_as_may_be():
    options = []

    def refuse(level, option, value):
        options.append((level, option, value))
        if option == 33:
            raise PermissionError

    responder._set_options(refuse)
    assert options == [(socket.SOL_SOCKET, 35, 1),
                       (socket.SOL_SOCKET, 33, 2 ** 24),
                       (socket.SOL_SOCKET, socket.SO_RCVBUF, 2 ** 24)]
    options.clear()
    responder._set_options(lambda *option: options.append(option))
    assert options == [(socket.SOL_SOCKET, 35, 1),
                       (socket.SOL_SOCKET, 33, 2 ** 24)]
