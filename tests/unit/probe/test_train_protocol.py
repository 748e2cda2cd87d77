# SPDX-License-Identifier: Apache-2.0

"""Bounds, keys and lines of what sender and responder say to each other.

The clock moves only where the test says so.
"""

import json
import socket
import types

import pytest

from edge_module.probe import train_protocol as protocol

LOOPBACK = '127.0.0.1'
KEY = protocol.Key('p', bytes(range(32)))
NONCE = 'ab' * protocol.NONCE_BYTES


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(s=1000.0, slept=[])

    def sleep(wait_s):
        now.slept.append(wait_s)
        now.s += wait_s

    now.monotonic = lambda: now.s
    now.sleep = sleep
    monkeypatch.setattr(protocol, 'time', now)
    return now


@pytest.fixture
def ends(clock):
    """A control with ten seconds left, and the socket of its peer."""
    with socket.create_server((LOOPBACK, 0)) as server:
        near = socket.create_connection(server.getsockname(), timeout=5)
        far, _ = server.accept()
    far.settimeout(5)
    with near, far:
        yield protocol.Control(near, clock.s + 10.0), far


def test_constants_are_those_of_the_documents():
    assert (protocol.VERSION, protocol.TIMEOUT_S, protocol.KEY_BYTES,
            protocol.NONCE_BYTES, protocol.COOKIE_BYTES,
            protocol.HEADER.size, protocol.TRAINS_PER_MINUTE) == (
                2, 5.0, 32, 16, 8, 14, 60)
    assert (protocol.MAX_BURSTS, protocol.MAX_PACKETS,
            protocol.MAX_PACKET_BYTES, protocol.MAX_BULK_S,
            protocol.MAX_BULK_BYTES, protocol.MAX_START_S) == (
                1000, 5000, 8972, 10.0, 2 ** 28, 10.0)


def test_sizes_of_packets_on_the_wire():
    assert protocol.header_bytes(socket.AF_INET) == 20 + 8
    assert protocol.header_bytes(socket.AF_INET6) == 40 + 8
    assert protocol.frame_bytes(socket.AF_INET, 1472) == 1514
    assert protocol.frame_bytes(socket.AF_INET6, 1452) == 1514
    assert protocol.Train(2, 3, 100).size_bytes == 600


@pytest.mark.parametrize('fields', [
    (1, 2, 14), (1000, 5000, 8972)])
def test_a_train_may_reach_its_bounds(fields):
    names = 'bursts', 'packets', 'packet_bytes'
    assert protocol.read_train(dict(zip(names, fields))
                               ) == protocol.Train(*fields)
    for place, step in enumerate((-1, -1, -1) if fields[0] == 1
                                 else (1, 1, 1)):
        beyond = [*fields]
        beyond[place] += step
        with pytest.raises(protocol.ProbeError, match=f'^{names[place]}: '):
            protocol.read_train(dict(zip(names, beyond)))


def test_a_train_without_a_field_is_named():
    with pytest.raises(protocol.ProbeError, match='packets: .*, got nothing'):
        protocol.read_train({'bursts': 1, 'packet_bytes': 100})


@pytest.mark.parametrize('fields', [
    (1e-9, 1, 0.001), (10.0, 2 ** 28, 1.0)])
def test_a_bulk_connection_may_reach_its_bounds(fields):
    names = 'lasts_s', 'size_bytes', 'window_s'
    assert protocol.read_bulk(dict(zip(names, fields))
                              ) == protocol.Bulk(*fields)


@pytest.mark.parametrize('field, value', [
    ('lasts_s', 0.0), ('lasts_s', 10.01), ('lasts_s', True),
    ('size_bytes', 0), ('size_bytes', 2 ** 28 + 1), ('size_bytes', 1.5),
    ('window_s', 0.0009), ('window_s', 1.01), ('window_s', '1')])
def test_a_bulk_connection_beyond_its_bounds_is_named(field, value):
    with pytest.raises(protocol.ProbeError, match=f'^{field}: '):
        protocol.read_bulk({'lasts_s': 1.0, field: value})


def test_a_bulk_connection_has_bounds_of_its_own():
    assert protocol.read_bulk({'lasts_s': 1.0}) == protocol.Bulk(
        1.0, 2 ** 28, 0.01)


def test_a_round_begins_at_a_time_of_the_receivers_clock(clock):
    assert protocol.start_of({}) is None
    assert protocol.start_of({'start_in_s': None}) is None
    for start_in_s in (0, 0.0, 2.5, 10):
        assert protocol.start_of({'start_in_s': start_in_s}
                                 ) == 1000.0 + start_in_s
    for start_in_s in (-0.01, 10.01, '1', True):
        with pytest.raises(protocol.ProbeError, match='^start_in_s: '):
            protocol.start_of({'start_in_s': start_in_s})


def test_a_minute_has_so_many_trains(clock):
    pace = protocol.Pace(2)
    for clock.s in (1000.0, 1020.0):
        pace.admit()
    for clock.s in (1030.0, 1060.0):
        with pytest.raises(protocol.ProbeError, match='too many'):
            pace.admit()
    clock.s = 1060.1
    pace.admit()
    with pytest.raises(protocol.ProbeError, match='too many'):
        pace.admit()
    clock.s = 1080.1
    pace.admit()


def test_a_key_has_at_least_so_many_bytes():
    def order(n_bytes):
        return {'probe_id': 7, 'key': bytes(n_bytes).hex()}

    assert protocol.Key.from_dict(order(32)) == protocol.Key('7', bytes(32))
    with pytest.raises(protocol.ProbeError, match='shorter than 32'):
        protocol.Key.from_dict(order(31))


def test_what_a_key_signs_is_good_for_one_thing():
    proof = KEY.sign('sender', NONCE, 'b')
    KEY.check(proof, 'sender', NONCE, 'b')
    for what in (('receiver', NONCE, 'b'), ('sender', 'b', NONCE)):
        with pytest.raises(protocol.ProbeError, match='not have the key'):
            KEY.check(proof, *what)
    with pytest.raises(protocol.ProbeError, match='not have the key'):
        protocol.Key('q', KEY.secret).check(proof, 'sender', NONCE, 'b')
    cookies = {KEY.cookie(index, NONCE) for index in range(3)}
    assert len(cookies) == 3
    assert {len(cookie) for cookie in cookies} == {8}


@pytest.mark.parametrize('nonce', [None, 7, '', 'ab' * 15, 'ab' * 17])
def test_a_nonce_has_its_length(nonce):
    assert protocol.nonce_of({'nonce': NONCE}) == NONCE
    with pytest.raises(protocol.ProbeError, match='nonce'):
        protocol.nonce_of({'nonce': nonce})


def test_messages_are_lines_in_their_order(ends):
    control, far = ends
    assert not control.has_message()
    far.sendall(b'{"op": "a", "x": 1}\n{"op": "b"}\n{"op"')
    assert control.receive('b', 'a') == {'op': 'a', 'x': 1}
    # The next one is here already.
    assert control.has_message()
    assert control.receive('b') == {'op': 'b'}
    far.sendall(b': "c"}\n')
    assert control.receive('c') == {'op': 'c'}
    control.send('d', y=2)
    assert json.loads(far.recv(100)) == {'op': 'd', 'y': 2}
    far.sendall(b'{"op": "f"}\n')
    assert control.ask('e', 'f') == {'op': 'f'}
    assert far.recv(100) == b'{"op": "e"}\n'
    # No word waits for more.
    assert control.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize('line, why', [
    ('{"op": "a"}', 'expected b or c, got a'), ('[]', 'got nothing'),
    ('{', 'not JSON'), ('{"op": "refuse", "why": "x7"}', 'refused: x7')])
def test_another_message_is_told(ends, line, why):
    control, far = ends
    far.sendall(line.encode() + b'\n')
    with pytest.raises(protocol.ProbeError, match=why):
        control.receive('b', 'c')


def test_a_message_has_a_longest_length(ends):
    control, far = ends
    padding = 16384 - len('{"op": "a", "x": ""}\n')
    for longer in (0, 1):
        line = json.dumps({'op': 'a', 'x': 'x' * (padding + longer)})
        far.sendall(line.encode() + b'\n')
        if longer:
            with pytest.raises(protocol.ProbeError, match='too long'):
                # Parts of it may come one after the other.
                control.receive('a')
        else:
            assert control.receive('a')['op'] == 'a'


def test_a_peer_that_is_gone_is_told(ends):
    control, far = ends
    far.close()
    with pytest.raises(protocol.PeerGone, match='closed'):
        control.receive('a')
    assert control.receive_into(bytearray(9)) == 0
    with pytest.raises(protocol.PeerGone, match='went away'):
        for _ in range(100):
            control.send('x' * 10_000)


def test_nothing_is_said_or_heard_after_the_deadline(ends, clock):
    """Until then every call may take what is left of the time."""
    control, far = ends
    calls = (lambda: control.send('a'), lambda: control.receive('b'),
             lambda: control.receive_into(bytearray(99)))
    clock.s += 6.0
    for call, line in zip(calls, (b'', *[b'{"op": "b"}\n'] * 2)):
        far.sendall(line)
        control.sock.settimeout(1.0)
        call()
        assert control.sock.gettimeout() == 4.0
    clock.s += 3.99
    for call in calls[1:]:
        with pytest.raises(protocol.ProbeError, match='no answer'):
            call()
    clock.s = control.deadline_s
    for call in calls:
        with pytest.raises(protocol.ProbeError, match='time is up'):
            call()


class Port:
    """A port whose connections the test ends, or answers as a peer does.

    :param n_closed: of them are closed without a word.
    """

    def __init__(self, monkeypatch, clock, n_closed, connect_s=0.0):
        self.clock, self.n_closed, self.connect_s = clock, n_closed, connect_s
        self.timeouts, self.opened = [], []
        monkeypatch.setattr(protocol.socket, 'create_connection', self)
        monkeypatch.setattr(protocol, '_authenticate', self.authenticate)

    def __call__(self, address, timeout_s):
        self.clock.s += self.connect_s
        self.timeouts.append(timeout_s)
        self.opened.append(socket.socket())
        return self.opened[-1]

    def authenticate(self, control, key):
        if len(self.opened) <= self.n_closed:
            raise protocol.PeerGone('told to')
        return 'a', 'b'


def test_a_peer_may_hear_of_it_within_three_seconds(monkeypatch, clock):
    port = Port(monkeypatch, clock, 5)
    control, nonces = protocol.connect(LOOPBACK, 9, clock.s + 50.0, KEY)
    assert nonces == ('a', 'b') and clock.slept == [0.2] * 5
    assert control.deadline_s == 1050.0
    assert port.timeouts == pytest.approx([50 - 0.2 * i for i in range(6)])
    assert [sock.fileno() >= 0 for sock in port.opened] == [False] * 5 + [
        True]
    control.sock.close()


@pytest.mark.parametrize('lasts_s, n_tries', [
    (50.0, 15), (1.1, 6), (0.1, 1)])
def test_a_peer_that_never_hears_of_it_is_told(monkeypatch, clock, lasts_s,
                                               n_tries):
    """After three seconds, or when there is no time for another try."""
    port = Port(monkeypatch, clock, 99)
    clock.s = 0.0
    with pytest.raises(protocol.ProbeError, match='expects no train: told'):
        protocol.connect(LOOPBACK, 9, lasts_s, KEY)
    assert len(port.opened) == n_tries
    assert {sock.fileno() for sock in port.opened} == {-1}


def test_a_connection_is_tried_although_the_time_is_nearly_up(monkeypatch,
                                                              clock):
    port = Port(monkeypatch, clock, 0)
    protocol.connect(LOOPBACK, 9, clock.s + 0.01, KEY)[0].sock.close()
    assert port.timeouts == [0.1]


def test_a_socket_is_closed_whatever_goes_wrong(monkeypatch, clock):
    port = Port(monkeypatch, clock, 0)

    def fails(control, key):
        raise protocol.ProbeError('not the key')

    monkeypatch.setattr(protocol, '_authenticate', fails)
    with pytest.raises(protocol.ProbeError, match='not the key'):
        protocol.connect(LOOPBACK, 9, clock.s + 9.0, KEY)
    assert [sock.fileno() for sock in port.opened] == [-1]


def test_nobody_there_is_told_at_once(clock):
    with socket.socket() as bound:
        bound.bind((LOOPBACK, 0))
        number = bound.getsockname()[1]
        with pytest.raises(protocol.ProbeError, match='does not answer'):
            protocol.connect(LOOPBACK, number, clock.s + 9.0, KEY)
    assert clock.slept == []


def test_longest_packets_of_a_path():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((LOOPBACK, 9))
        assert protocol.mtu(sock) >= 1280
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.connect(('::1', 9))
            assert protocol.mtu(sock) >= 1280
    except OSError as error:
        pytest.skip(f'no IPv6 loopback: {error}')
