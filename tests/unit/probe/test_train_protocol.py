# SPDX-License-Identifier: Apache-2.0

"""Bounds, keys and lines of what sender and responder say to each other.

The clock moves only where the test says so.
"""

import itertools
import json
import socket
import types

import msgspec
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
    assert (protocol.VERSION, protocol.NONCE_BYTES, protocol.COOKIE_BYTES,
            protocol.HEADER.size) == (3, 16, 8, 14)
    assert protocol.Settings() == protocol.Settings(
        uplink_dev=None, timeout_s=5.0, max_sending_s=2.5, max_bytes=2 ** 24,
        max_trains_per_minute=60, bypass_classes=True, repeats=True)


def test_sizes_of_packets_on_the_wire():
    assert protocol.HEADERS_BYTES == {socket.AF_INET: 20 + 8,
                                      socket.AF_INET6: 40 + 8}
    assert protocol.frame_bytes(socket.AF_INET, 1472) == 1514
    assert protocol.frame_bytes(socket.AF_INET6, 1452) == 1514


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


def test_what_a_key_signs_is_good_for_one_thing():
    proof = KEY.sign('sender', NONCE, 'b')
    KEY.check(proof, 'sender', NONCE, 'b')
    for what in (('receiver', NONCE, 'b'), ('sender', 'b', NONCE)):
        with pytest.raises(protocol.ProbeError, match='not have the key'):
            KEY.check(proof, *what)
    with pytest.raises(protocol.ProbeError, match='not have the key'):
        protocol.Key('q', KEY.secret).check(proof, 'sender', NONCE, 'b')
    cookies = set(itertools.islice(KEY.cookies(NONCE), 3))
    assert len(cookies) == 3
    assert {len(cookie) for cookie in cookies} == {8}


WORDS = {'hello': {'probe_id': 'p', 'nonce': NONCE},
         'challenge': {'nonce': NONCE, 'proof': 'cd' * 32},
         'proof': {'proof': 'cd' * 32}, 'go': {}, 'refuse': {'why': 'x'},
         'ping': {}, 'pong': {}, 'sent': {'packets': 1, 'sending_s': 0.5},
         'got': {'packets': 0}, 'end': {},
         'result': {'rate': {'rate_bps': 8e6, 'throughput_bps': 7e6,
                             'loss': 0.25, 'lower_bound': False,
                             'agrees': True, 'bursts': 3},
                    'foreign_share': 0.0},
         'counted': {'windows_bytes': [0, 5]},
         'train': {'bursts': 2, 'packets': 50, 'packet_bytes': 1000},
         'bulk': {'lasts_s': 1.0, 'size_bytes': 9, 'window_s': 0.5}}


def word(op, **changes):
    return json.dumps({'op': op, **WORDS[op], **changes}).encode() + b'\n'


@pytest.mark.parametrize('op', sorted(set(WORDS) - {'refuse'}))
def test_a_message_is_read_as_it_was_sent(ends, op):
    """Fields of another version are ignored."""
    control, far = ends
    far.sendall(word(op, later=1))
    message = control.receive(msgspec.Struct)
    assert type(message).__name__.lower() == op
    control.send(message)
    assert json.loads(far.recv(1000)) == {'op': op, **WORDS[op]}


@pytest.mark.parametrize('op, field', [
    (op, field) for op, fields in sorted(WORDS.items()) for field in fields
    if (op, field) not in {('bulk', 'size_bytes'), ('bulk', 'window_s')}])
def test_a_message_without_a_field_is_named(ends, op, field):
    control, far = ends
    far.sendall(word(op, **{field: [None]}))
    with pytest.raises(protocol.ProbeError,
                       match=f'not valid: {field}.*: expected'):
        control.receive(msgspec.Struct)
    left = {name: value for name, value in WORDS[op].items() if name != field}
    far.sendall(json.dumps({'op': op, **left}).encode() + b'\n')
    with pytest.raises(protocol.ProbeError,
                       match=f'not valid: {field}: .*got nothing'):
        control.receive(msgspec.Struct)


@pytest.mark.parametrize('op, field, value', [
    *(('hello', 'nonce', nonce) for nonce in (
        '', 'ab' * 15, 'ab' * 17, 'AB' * 16, NONCE + '\n', 'é' * 32)),
    *(('proof', 'proof', proof) for proof in (
        '', 'cd' * 31, 'cd' * 33, 'cd' * 32 + '\n', 'é' * 64)),
    ('sent', 'packets', 0), ('sent', 'packets', 2.5),
    ('sent', 'packets', True), ('sent', 'sending_s', '1'),
    ('got', 'packets', 1.5), ('counted', 'windows_bytes', [1, -1]),
    ('counted', 'windows_bytes', [True]),
    ('counted', 'windows_bytes', [1, '2'])])
def test_a_value_out_of_bounds_is_named(ends, op, field, value):
    control, far = ends
    far.sendall(word(op, **{field: value}))
    with pytest.raises(protocol.ProbeError, match=f'not valid: {field}'):
        control.receive(msgspec.Struct)


def test_messages_are_lines_in_their_order(ends):
    control, far = ends
    assert not control.has_message()
    far.sendall(b'{"op": "got", "packets": 1}\n{"op": "end"}\n{"op"')
    assert control.receive(protocol.End, protocol.Got) == protocol.Got(1)
    # The next one is here already.
    assert control.has_message()
    assert control.receive(protocol.End) == protocol.End()
    far.sendall(b': "go"}\n')
    assert control.receive(protocol.Go) == protocol.Go()
    far.sendall(b'{"op": "pong"}\n')
    assert control.ask(protocol.Ping(), protocol.Pong) == protocol.Pong()
    assert far.recv(100) == b'{"op":"ping"}\n'
    # No word waits for more.
    assert control.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize('line, why', [
    ('{"op": "end"}', 'message: expected Go or Got, got End'),
    ('{"op": "a"}', 'not valid: op: expected one of .*, got "a"'),
    ('[]', r'got \[\]'),
    ('{}', 'op: .*got nothing'), ('{', 'not valid: Expecting'),
    ('{"op": "sent", "packets": 1, "sending_s": NaN}', 'NaN'),
    ('{"op": "refuse", "why": "x7"}', 'refused: x7')])
def test_another_message_is_told(ends, line, why):
    control, far = ends
    far.sendall(line.encode() + b'\n')
    with pytest.raises(protocol.ProbeError, match=why):
        control.receive(protocol.Go, protocol.Got)


def test_a_message_has_a_longest_length(ends):
    control, far = ends
    padding = 16384 - len('{"op": "end", "x": ""}\n')
    for longer in (0, 1):
        line = json.dumps({'op': 'end', 'x': 'x' * (padding + longer)})
        far.sendall(line.encode() + b'\n')
        if longer:
            with pytest.raises(protocol.ProbeError, match='too long'):
                # Parts of it may come one after the other.
                control.receive(protocol.End)
        else:
            assert control.receive(protocol.End) == protocol.End()


def test_a_peer_that_is_gone_is_told(ends):
    control, far = ends
    far.close()
    with pytest.raises(protocol.PeerGone, match='closed'):
        control.receive(protocol.Go)
    assert control.receive_into(bytearray(9)) == 0
    with pytest.raises(protocol.PeerGone, match='went away'):
        for _ in range(100):
            control.send(protocol.Refuse('x' * 10_000))


def test_nothing_is_said_or_heard_after_the_deadline(ends, clock):
    """Until then every call may take what is left of the time."""
    control, far = ends
    calls = (lambda: control.send(protocol.Ping()),
             lambda: control.receive(protocol.End),
             lambda: control.receive_into(bytearray(99)))
    clock.s += 6.0
    for call, line in zip(calls, (b'', *[b'{"op": "end"}\n'] * 2)):
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
        return 'cookies'


def test_a_peer_may_hear_of_it_within_three_seconds(monkeypatch, clock):
    port = Port(monkeypatch, clock, 5)
    control, cookies = protocol.connect(LOOPBACK, 9, clock.s + 50.0, KEY)
    assert cookies == 'cookies' and clock.slept == [0.2] * 5
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
