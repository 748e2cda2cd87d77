# SPDX-License-Identifier: Apache-2.0


import contextlib
import json
import socket
import subprocess
import sys
import threading
import time

from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg
import pytest

from edge_module import edge_options as edge_conf
from edge_module.probe import bulk
from edge_module.probe import netdev
from edge_module.probe import probing as service
from edge_module.probe import responder
from edge_module.probe import train_protocol as protocol
from edge_module.probe import train_sender as sender
from virtco.wire import probe_order

LOOPBACK = '127.0.0.1'
SENDING = protocol.Settings(timeout_s=10.0, max_sending_s=1.0,
                          max_bytes=2 ** 24)
KEY = protocol.Key('p', bytes(range(32)))


@contextlib.contextmanager
def _responder(key=KEY, address=LOOPBACK, **changes):
    answering = responder.Responder(address, 0, protocol.Settings(**{
        'timeout_s': 10.0, **changes}))
    if key is not None:
        answering.expect(key, 60.0)
    answering.start()
    try:
        yield answering
    finally:
        answering.stop()


@contextlib.contextmanager
def _stranger(port):
    with socket.create_connection((LOOPBACK, port), timeout=5) as sock:
        yield protocol.Control(sock, time.monotonic() + 10.0)


@contextlib.contextmanager
def _control(port):
    """Of somebody who has the key."""
    with _stranger(port) as control:
        control.cookies = protocol._authenticate(control, KEY)
        yield control


def _ask(control, **changes):
    return control.ask(probe_order.Train(**{
        'bursts': 2, 'packets': 50, 'packet_bytes': 1000, **changes}),
        protocol.Go)


def test_a_train_over_loopback_arrives():
    with _responder() as answering:
        found = sender.measure(LOOPBACK, answering.port,
                               probe_order.Train(3, 100, 1000), SENDING, KEY)
    assert found.rate_bps > 1e6
    assert found.loss < 0.5
    assert (0 < found.rtt.min_s <= found.rtt.median_s <= found.rtt.p99_s
            < 5)


def test_a_train_over_ipv6_arrives():
    try:
        with _responder(address='::1') as answering:
            found = sender.measure('::1', answering.port,
                                   probe_order.Train(3, 100, 1000), SENDING,
                                   KEY)
    except OSError as error:
        pytest.skip(f'no IPv6 loopback: {error}')
    assert found.rate_bps > 1e6


def test_two_trains_one_after_the_other():
    with _responder() as answering:
        for _ in range(2):
            assert sender.measure(LOOPBACK, answering.port,
                                  probe_order.Train(2, 50, 500),
                                  SENDING, KEY).rate_bps > 0


def test_super_packets_give_way_where_the_device_cannot_cut_them():
    class Device:
        """Refuses super-packets as a device without checksums does."""

        def __init__(self):
            self.sent = []
            self.segment_bytes = None

        def setsockopt(self, level, option, value):
            self.segment_bytes = value

        def send(self, data):
            if self.segment_bytes:
                raise OSError(5, 'Input/output error')
            self.sent.append(bytes(data))

    device = Device()
    burst = sender.BurstSender(device, probe_order.Train(1, 200, 100),
                               b'12345678')
    burst.send(7, time.monotonic() + 5)
    assert len(device.sent) == burst.n_packets > 150
    assert {len(data) for data in device.sent} == {100}
    assert [protocol.HEADER.unpack_from(data) for data in device.sent] == [
        (b'12345678', 7, seq) for seq in range(burst.n_packets)]


@given(st.integers(2, probe_order.MAX_PACKETS),
       st.integers(64, probe_order.MAX_PACKET_BYTES))
def test_super_packets_are_whole_and_within_the_limits(packets, packet_bytes):
    class Device:
        sizes = []

        def setsockopt(self, level, option, value):
            pass

        def send(self, data):
            self.sizes.append(len(data))

    device = Device()
    device.sizes = []
    burst = sender.BurstSender(
        device, probe_order.Train(1, packets, packet_bytes), bytes(8))
    burst.send(0, time.monotonic() + 60)
    assert len(set(device.sizes)) == 1
    assert device.sizes[0] <= 65000
    assert sum(device.sizes) == burst.n_packets * packet_bytes
    assert packets / 2 < burst.n_packets <= packets


@pytest.mark.parametrize('field, value, limit', [
    ('bursts', 0, 'at least 1'), ('bursts', 10 ** 9, 'at most 1000'),
    ('bursts', True, 'an integer'), ('packets', 1, 'at least 2'),
    ('packets', '200', 'an integer'), ('packet_bytes', 9000, '8972'),
    ('packet_bytes', 63, 'at least 64'), ('packet_bytes', None, 'an integer'),
])
def test_a_train_out_of_bounds_is_named(field, value, limit):
    body = {'bursts': 2, 'packets': 50, 'packet_bytes': 1000, field: value}
    with _responder() as answering, _control(answering.port) as control:
        with pytest.raises(protocol.ProbeError,
                           match=f'refused: .*not valid: {field}: .*{limit}'):
            _ask(control, **body)


def test_a_train_beyond_the_budget_is_refused():
    with _responder(max_bytes=99_999) as answering:
        with _control(answering.port) as control:
            with pytest.raises(protocol.ProbeError, match='refused: 100000 '):
                _ask(control)


def test_the_sender_keeps_within_its_own_budget():
    settings = protocol.Settings(timeout_s=10.0, max_sending_s=1.0,
                               max_bytes=60_000)
    with _responder(max_bytes=60_000) as answering:
        found = sender.measure(LOOPBACK, answering.port,
                               probe_order.Train(10, 100, 1000), settings,
                               KEY)
    assert found.bursts == 1


def test_trains_of_a_connection_share_its_bytes_but_no_cookie():
    with (_responder(max_bytes=250_000) as answering,
          _control(answering.port) as control,
          socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock):
        sock.connect((LOOPBACK, answering.port))
        for _ in range(3):
            _ask(control)
            cookie = next(control.cookies)
            for seq in range(20):
                sock.send(protocol.HEADER.pack(cookie, 0, seq))
            assert control.ask(protocol.Sent(20, 0.01),
                               protocol.Got) == protocol.Got(20)
            assert control.ask(protocol.End(),
                               protocol.Result).rate.bursts == 1
        with pytest.raises(protocol.ProbeError,
                           match='refused: 200000 .* more than 190000$'):
            _ask(control, bursts=4)


def test_too_many_trains_within_a_minute_are_refused():
    with _responder(max_trains_per_minute=2) as answering:
        for _ in range(2):
            with _control(answering.port) as control:
                _ask(control)
        with _control(answering.port) as control:
            with pytest.raises(protocol.ProbeError, match='too many trains'):
                _ask(control)


@pytest.mark.parametrize('line', [
    b'GET / HTTP/1.1\r\n\r\n', b'[1]\n', b'"train"\n', b'\xff\xfe\n',
    b'[' * 5000 + b'\n', b'{"op": "end"}\n', b'x' * 100_000,
    json.dumps({'op': 'train'}).encode() + b'\n',
])
def test_garbage_ends_the_connection_and_nothing_else(line):
    with _responder() as answering:
        with socket.create_connection((LOOPBACK, answering.port),
                                      timeout=5) as sock:
            with contextlib.suppress(OSError):
                sock.sendall(line)
                while sock.recv(1000):
                    pass
        with _control(answering.port) as control:
            assert _ask(control) == protocol.Go()


@pytest.mark.parametrize('packets, sending_s', [
    (51, 0.1), (0, 0.1), (10, 'soon'), (None, 0.1)])
def test_lies_about_a_burst_end_the_connection(packets, sending_s):
    with _responder() as answering, _control(answering.port) as control:
        _ask(control)
        with pytest.raises(protocol.ProbeError,
                           match='^refused: .*(packets|sending_s)'):
            control.ask(protocol.Sent(packets, sending_s), protocol.Got)
        with pytest.raises(protocol.ProbeError, match='closed|went away'):
            control.ask(protocol.End(), protocol.Result)


def test_silent_peers_are_dropped_and_the_next_one_served():
    """Within the time of a measurement, which both ends give up after 5 s."""
    with _responder() as answering, contextlib.ExitStack() as strangers:
        for word in 16 * (b'', b'{'):
            strangers.enter_context(socket.create_connection(
                (LOOPBACK, answering.port), timeout=5)).sendall(word)
        start_s = time.monotonic()
        with _control(answering.port) as second:
            assert _ask(second) == protocol.Go()
        assert time.monotonic() - start_s < 4.0


def _said(port, *lines):
    """All that the responder answers to somebody who says these lines."""
    with socket.create_connection((LOOPBACK, port), timeout=5) as sock:
        found = b''
        with contextlib.suppress(OSError):
            sock.sendall(b''.join(json.dumps(line).encode() + b'\n'
                                  for line in lines))
            while data := sock.recv(4000):
                found += data
        return found


NONCE = '00' * protocol.NONCE_BYTES
HELLO = {'op': 'hello', 'probe_id': 'p', 'nonce': NONCE}
TRAIN = {'op': 'train', 'bursts': 2, 'packets': 50, 'packet_bytes': 1000}


@pytest.mark.parametrize('lines', [
    [TRAIN], [{'op': 'ping'}], [HELLO | {'probe_id': 'other'}],
    [HELLO | {'probe_id': ['p']}], [HELLO | {'nonce': 'short'}],
    [HELLO | {'nonce': None}]])
def test_a_stranger_gets_no_word(lines):
    with _responder() as answering:
        assert _said(answering.port, *lines) == b''


def test_nobody_is_served_unless_the_controller_announced_it():
    with _responder(key=None) as answering:
        assert _said(answering.port, HELLO, TRAIN) == b''
        answering.expect(KEY, -1.0)
        assert _said(answering.port, HELLO, TRAIN) == b''
        answering.expect(KEY, 60.0)
        assert b'challenge' in _said(answering.port, HELLO)


@pytest.mark.parametrize('proof', [
    None, '', 'zz', '00' * 32, 'é' * 64, ['x'],
    protocol.Key('p', bytes(32)).sign('sender', NONCE, NONCE)])
def test_a_false_proof_gets_one_short_answer_and_no_train(proof):
    with _responder() as answering:
        lines = HELLO, {'op': 'proof', 'proof': proof}, TRAIN
        found = _said(answering.port, *lines)
        assert found.count(b'\n') == 1 and b'"go"' not in found
        # Not more than was asked with: nothing is amplified.
        assert len(found) < sum(len(json.dumps(line)) for line in lines)


def test_the_receivers_proof_is_no_senders_proof():
    with _responder() as answering, _stranger(answering.port) as control:
        answer = control.ask(protocol.Hello('p', NONCE), protocol.Challenge)
        control.send(protocol.Proof(answer.proof))
        with pytest.raises(protocol.ProbeError, match='closed|went away'):
            _ask(control)


def test_a_conversation_cannot_be_replayed():
    with _responder() as answering:
        with _stranger(answering.port) as control:
            answer = control.ask(protocol.Hello('p', NONCE),
                                 protocol.Challenge)
            proof = KEY.sign('sender', NONCE, answer.nonce)
            control.send(protocol.Proof(proof))
            assert _ask(control) == protocol.Go()
        assert b'"go"' not in _said(
            answering.port, HELLO, {'op': 'proof', 'proof': proof}, TRAIN)


def test_an_impostor_gets_no_packets():
    """The address of a host may be wrong or taken over by somebody else."""
    server = socket.create_server((LOOPBACK, 0))
    victim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    victim.bind(server.getsockname())
    victim.settimeout(0.2)

    def claim():
        with server.accept()[0] as sock:
            sock.recv(4000)
            sock.sendall(json.dumps({
                'op': 'challenge', 'nonce': NONCE,
                'proof': '00' * 32}).encode() + b'\n{"op": "go"}\n')
            sock.recv(4000)

    thread = threading.Thread(target=claim)
    thread.start()
    with server, victim:
        with pytest.raises(protocol.ProbeError, match='not have the key'):
            sender.measure(LOOPBACK, server.getsockname()[1],
                           probe_order.Train(2, 50, 500), SENDING, KEY)
        with pytest.raises(TimeoutError):
            victim.recv(100)
    thread.join(5)


def test_a_receiver_that_hears_of_it_later_is_waited_for():
    with _responder(key=None) as answering:
        timer = threading.Timer(0.3, answering.expect, (KEY, 60.0))
        timer.start()
        assert sender.measure(LOOPBACK, answering.port,
                              probe_order.Train(2, 50, 500), SENDING,
                              KEY).rate_bps > 0
        timer.join()


def test_a_key_is_never_shown():
    assert KEY.secret.hex() not in repr(KEY) + str(KEY)


def test_packets_without_the_cookie_do_not_count():
    with _responder() as answering, _control(answering.port) as control:
        _ask(control)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for seq in range(50):
                sock.sendto(protocol.HEADER.pack(bytes(8), 0, seq),
                            (LOOPBACK, answering.port))
                sock.sendto(b'', (LOOPBACK, answering.port))
            sock.settimeout(0.1)
            assert control.ask(protocol.Sent(50, 0.01),
                               protocol.Got) == protocol.Got(0)
            with pytest.raises(TimeoutError):
                sock.recv(100)
        with pytest.raises(protocol.ProbeError, match='too few packets'):
            control.ask(protocol.End(), protocol.Result)


@pytest.mark.parametrize('answer', [
    {'op': 'go'}, {'op': 'challenge'}, {'op': 'pong'}, {},
    {'op': 'challenge', 'nonce': 5, 'proof': 'aa'},
    {'op': 'challenge', 'nonce': NONCE, 'proof': 5},
    {'op': 'challenge', 'nonce': NONCE}])
def test_a_peer_that_answers_nonsense_is_a_probe_error(answer):
    server = socket.create_server((LOOPBACK, 0))

    def answer_once():
        with server.accept()[0] as sock:
            if sock.recv(4000):
                sock.sendall(json.dumps(answer).encode() + b'\n')

    thread = threading.Thread(target=answer_once)
    thread.start()
    with server, pytest.raises(protocol.ProbeError):
        sender.measure(LOOPBACK, server.getsockname()[1],
                       probe_order.Train(2, 50, 500), SENDING, KEY)
    thread.join(5)
    assert not thread.is_alive()


def test_counters_of_a_device():
    assert netdev.read_bytes('lo', netdev.SENT) > 0
    # Others use it meanwhile.
    assert netdev.read_bytes('lo', netdev.RECEIVED) == pytest.approx(
        netdev.read_bytes('lo', netdev.SENT), rel=0.01)
    assert netdev.read_bytes('no-such-dev', netdev.SENT) == 0
    assert netdev.read_bytes(None, netdev.SENT) == 0
    assert netdev.foreign_share(5, 5, 0) == 0
    assert netdev.address_of('lo') == LOOPBACK
    assert netdev.address_of('no-such-dev') is None
    assert netdev.address_towards(LOOPBACK) == LOOPBACK


@pytest.mark.parametrize('before, after, own, share', [
    (0, 0, 10, 0.0), (100, 0, 10, 0.0), (100, 200, 100, 0.0),
    (100, 200, 150, 0.0), (100, 200, 75, 0.25)])
def test_share_of_other_traffic(before, after, own, share):
    assert netdev.foreign_share(before, after, own) == share


def _conf(**changes):
    conf = cfg.ConfigOpts()
    edge_conf.register_opts(conf)
    conf([], project='virtco-edge', default_config_files=[])
    for name, value in {'address': LOOPBACK, 'port': 0, **changes}.items():
        conf.set_override(name, value, group='probe')
    return conf


class _Controller:
    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = 0
        self.measurements = []
        self.outbox = self
        self.idle = threading.Event()

    def wait_train(self, wait_s):
        self.asked += 1
        if self._answers:
            answer = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        self.idle.set()
        time.sleep(0.01)
        return None

    def put_measurement(self, measurement):
        self.measurements.append(measurement)


def _probe(port, traffic=probe_order.Train(2, 50, 1000), **changes):
    return probe_order.Send(
        probe_id='p', peer='h2', address=LOOPBACK, port=port, traffic=traffic,
        key=KEY.secret.hex(), **changes)


def test_the_service_expects_whom_the_controller_announces():
    controller = _Controller(probe_order.Receive(
        probe_id='p', peer='h1', key=KEY.secret.hex()))
    answering = service.ProbeService(_conf(), controller)
    answering.start()
    try:
        assert controller.idle.wait(20)
        assert sender.measure(LOOPBACK, answering.port,
                              probe_order.Train(2, 50, 500), SENDING,
                              KEY).rate_bps > 0
    finally:
        answering.stop()


def test_the_service_sends_no_more_trains_than_it_may():
    with _responder() as answering:
        sending = service.ProbeService(_conf(), _Controller())
        sending._pace = protocol.Pace(1)
        sending.measure(_probe(answering.port))
        with pytest.raises(protocol.ProbeError, match='too many trains'):
            sending.measure(_probe(answering.port))


def test_the_service_goes_on_after_an_order_that_was_wrong():
    with _responder() as answering:
        controller = _Controller(
            _probe(answering.port, probe_order.Train(2, 0, 1000)),
            _probe(1), _probe(answering.port))
        asking = service.ProbeService(_conf(), controller)
        asking.start()
        assert controller.idle.wait(20)
        asking.stop()
    assert [m.dst for m in controller.measurements] == ['h2']


def test_the_edge_needs_the_standard_library_only_for_a_train():
    code = ('import sys, edge_module.probe.train_sender, '
            'edge_module.probe.responder;'
            'print(sorted({name.partition(".")[0] for name in sys.modules} '
            '- set(sys.stdlib_module_names)))')
    found = subprocess.run([sys.executable, '-c', code], check=True,
                           capture_output=True, text=True).stdout
    for name in ('numpy', 'scipy', 'requests', 'eventlet', 'pyroute2'):
        assert name not in found


def test_a_bulk_connection_is_counted_in_windows():
    with _responder() as answering:
        found = bulk.transfer(LOOPBACK, answering.port,
                              probe_order.Bulk(0.3), SENDING, KEY)
        assert found.rate_bps > 1e6
        assert 0 < sum(found.windows_bytes)
        assert 1 < len(found.windows_bytes) < 1000
        # The responder is free again.
        assert sender.measure(LOOPBACK, answering.port,
                              probe_order.Train(2, 50, 500), SENDING,
                              KEY).rate_bps > 0


def test_a_bulk_connection_keeps_to_its_bytes():
    with _responder() as answering:
        found = bulk.transfer(LOOPBACK, answering.port,
                              probe_order.Bulk(5.0, 2 ** 20), SENDING, KEY)
        assert sum(found.windows_bytes) == 2 ** 20
    with _responder() as answering, _control(answering.port) as control:
        control.ask(probe_order.Bulk(0.5, 2 ** 16), protocol.Go)
        with pytest.raises(protocol.ProbeError), contextlib.suppress(OSError):
            control.sock.sendall(bytes(2 ** 16 + 1))
            control.receive(protocol.Counted)


def test_bulk_connections_count_like_trains():
    with _responder(max_trains_per_minute=1) as answering:
        asked = (LOOPBACK, answering.port, probe_order.Bulk(0.1, 2 ** 12),
                 SENDING, KEY)
        bulk.transfer(*asked)
        with pytest.raises(protocol.ProbeError, match='too many trains'):
            bulk.transfer(*asked)


@pytest.mark.parametrize('lasts_s', [0.0, 11.0, None, 'x', True])
def test_a_bulk_connection_out_of_bounds_is_refused(lasts_s):
    with _responder() as answering, _control(answering.port) as control:
        with pytest.raises(protocol.ProbeError,
                           match='refused: .*: lasts_s: '):
            control.ask(probe_order.Bulk(lasts_s), protocol.Go)


def test_connections_of_a_round_are_counted_from_a_common_start():
    """The receiver that hears of it first counts zeros until data comes."""
    start_s = time.monotonic() + 0.4
    asked = probe_order.Bulk(5.0, 2 ** 20, 0.01)
    with _responder(key=None) as answering:
        answering.expect(KEY, 60.0, start_s)
        found = bulk.transfer(LOOPBACK, answering.port, asked, SENDING, KEY,
                                start_s + 0.1)
    assert time.monotonic() > start_s + 0.1
    # Whole frames count.
    assert 2 ** 20 < sum(found.windows_bytes) < 1.1 * 2 ** 20
    assert len(found.windows_bytes) >= 10
    assert not any(found.windows_bytes[:9])
    assert found.rate_bps == pytest.approx(
        sum(found.windows_bytes) * 8 / (0.01 * len(found.windows_bytes)))


def test_what_comes_before_the_start_counts_in_the_first_window():
    with _responder(key=None) as answering:
        answering.expect(KEY, 60.0, time.monotonic() + 5.0)
        found = bulk.transfer(LOOPBACK, answering.port,
                                probe_order.Bulk(5.0, 2 ** 16), SENDING, KEY,
                                time.monotonic())
    (window_bytes,) = found.windows_bytes
    assert 2 ** 16 < window_bytes < 2 ** 17


@pytest.mark.parametrize('field, value', [
    ('size_bytes', 0), ('size_bytes', 2 ** 28 + 1), ('size_bytes', 1e6),
    ('window_s', 0.0), ('window_s', 2.0), ('window_s', '1')])
def test_a_transfer_out_of_bounds_is_refused(field, value):
    with _responder() as answering, _control(answering.port) as control:
        with pytest.raises(protocol.ProbeError,
                           match=f'refused: .*: {field}: '):
            control.ask(probe_order.Bulk(**{'lasts_s': 1.0, field: value}),
                        protocol.Go)


def test_the_service_takes_part_in_a_round():
    with _responder(key=None) as answering:
        answering.expect(KEY, 60.0, time.monotonic() + 0.1)
        found = service.ProbeService(_conf(), _Controller()).measure(
            _probe(answering.port, probe_order.Bulk(1.0, 2 ** 18, 0.002),
                   start_in_s=0.1))
    assert found.method == 'bulk'
    assert found.sent_bytes == sum(found.windows_bytes) > 2 ** 18


def test_the_steady_rate_leaves_slow_start_and_the_last_window_out():
    assert bulk._steady_bps((10 ** 6, 0, 125, 125, 125, 125, 125, 125,
                             1)) == pytest.approx(1e5)
    assert bulk._steady_bps(()) == bulk._steady_bps((9,)) == 0
