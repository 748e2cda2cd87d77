# SPDX-License-Identifier: Apache-2.0

"""What a sender makes of the path, of its budget and of the answers.

The clock moves only where the test says so.
"""

import errno
import itertools
import select
import socket
import types

import pytest

from edge_module.probe import train_protocol as protocol
from edge_module.probe import train_sender as sender
from edge_module.probe import trains
from virtco.wire import probe_order

KEY = protocol.Key('p', bytes(32))
RESULT = {'rate_bps': 8e6, 'throughput_bps': 7e6, 'lower_bound': False,
          'agrees': True, 'loss': 0.25, 'bursts': 3}


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(s=1000.0, slept=[])

    def sleep(wait_s):
        now.slept.append(wait_s)
        now.s += wait_s

    now.monotonic = now.perf_counter = lambda: now.s
    now.sleep = sleep
    monkeypatch.setattr(sender, 'time', now)
    return now


@pytest.fixture
def receiver():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(('127.0.0.1', 0))
        yield found


class Peer:
    """Answers every question; of results one after the other.

    :ivar asked: what it was asked, without round trips.
    """

    def __init__(self, clock, *results, receiver=None,
                 family=socket.AF_INET, ping_s=0.0, burst_s=0.0):
        self._clock, self._ping_s, self._burst_s = clock, ping_s, burst_s
        self._results = list(results)
        self.deadline_s = clock.s + 99.0
        self.asked, self.n_pings = [], 0
        self.received = itertools.repeat(1)
        self.sock = types.SimpleNamespace(
            family=family, getpeername=lambda: receiver.getsockname())

    def ask(self, message, wanted):
        found = self._answer(message)
        assert type(found) is wanted
        return found

    def _answer(self, message):
        if message == protocol.Ping():
            self._clock.s += self._ping_s
            self.n_pings += 1
            return protocol.Pong()
        self.asked.append(message)
        if isinstance(message, protocol.Sent):
            self._clock.s += self._burst_s
            return protocol.Got(next(self.received))
        if message == protocol.End():
            found = self._results.pop(0)
            if isinstance(found, Exception):
                raise found
            fields = {'foreign_share': 0.0} | RESULT | found
            foreign_share = fields.pop('foreign_share')
            return protocol.Result(trains.TrainRate(**fields), foreign_share)
        return protocol.Go()

    def trains(self):
        return [one for one in self.asked if isinstance(
            one, probe_order.Train)]


def session(peer, **settings):
    return sender._Session(peer, protocol.Settings(**settings),
                           KEY.cookies('a', 'b'))


def train(bursts, packets, packet_bytes):
    return probe_order.Train(bursts, packets, packet_bytes)


@pytest.mark.parametrize('family, mtu, left_bytes, found', [
    (socket.AF_INET, 9014, 2 ** 24, (10, 100, 1000)),
    (socket.AF_INET, 800, 2 ** 24, (10, 100, 772)),
    (socket.AF_INET6, 800, 2 ** 24, (10, 100, 752)),
    (socket.AF_INET, 9014, 1_000_000, (10, 100, 1000)),
    (socket.AF_INET, 9014, 999_999, (9, 100, 1000)),
    (socket.AF_INET, 9014, 99_999, (1, 99, 1000))])
def test_a_train_fits_the_path_and_the_budget(clock, family, mtu, left_bytes,
                                              found):
    made = session(Peer(clock, family=family), max_bytes=left_bytes)
    assert made._fitting(train(10, 100, 1000), mtu) == train(*found)


@pytest.mark.parametrize('first, left_bytes, found', [
    ((3, 100, 1000), 2 ** 24, (3, 800, 1000)),
    ((3, 100, 1000), 2_399_999, (2, 800, 1000)),
    ((30, 100, 1000), 799_999, (1, 799, 1000)),
    ((30, 100, 1000), 200_000, (1, 200, 1000)),
    ((30, 100, 1000), 199_999, None),
    ((2, 1000, 500), 2 ** 24, (2, 5000, 500)),
    ((2, 2500, 500), 2 ** 24, (2, 5000, 500)),
    ((2, 2501, 500), 2 ** 24, None)])
def test_a_second_train_is_longer_within_the_budget(clock, first, left_bytes,
                                                    found):
    """At least twice as long, or it would tell nothing new."""
    made = session(Peer(clock), max_bytes=left_bytes, max_sending_s=1.0)
    clock.s += 0.5
    assert made._longer(train(*first)) == (found and train(*found))
    clock.s += 0.5
    assert made._longer(train(*first)) is None


def test_a_train_is_announced_and_its_bursts_follow(clock, receiver):
    """The time that a burst took to send is told with it."""
    peer = Peer(clock, {}, receiver=receiver, burst_s=0.5)
    found = session(peer).run(train(3, 24, 100))
    assert peer.asked == [
        train(3, 24, 100), *[protocol.Sent(24, 0.0)] * 3, protocol.End()]
    assert clock.slept == [0.001] * 3
    assert found == sender.Measurement(
        rate_bps=8e6, throughput_bps=7e6, lower_bound=False, agrees=True,
        loss=0.25, bursts=3,
        rtt=trains.RoundTrips(0.0, 0.0, 0.0), sent_bytes=7200)
    cookie = next(KEY.cookies('a', 'b'))
    headers = [protocol.HEADER.unpack_from(receiver.recv(200))
               for _ in range(72)]
    assert headers == [(cookie, index, seq)
                       for index in range(3) for seq in range(24)]


def test_no_burst_begins_when_the_time_for_sending_is_over(clock, receiver):
    peer = Peer(clock, {}, {}, receiver=receiver, burst_s=0.5)
    assert session(peer, max_sending_s=1.0).run(
        train(9, 24, 100)).sent_bytes == 4800
    # One is sent in any case.
    assert session(peer, max_sending_s=0.0).run(
        train(9, 24, 100)).sent_bytes == 2400


def test_a_path_without_udp_is_told(clock, receiver):
    peer = Peer(clock, receiver=receiver)
    peer.received = iter([0])
    with pytest.raises(protocol.ProbeError, match='is UDP let through'):
        session(peer).run(train(3, 24, 100))
    # Only the first burst says so.
    peer = Peer(clock, {}, receiver=receiver)
    peer.received = iter([1, 0, 0])
    assert session(peer).run(train(3, 24, 100)).rate_bps == 8e6


BENT, BOUND = {'agrees': False}, {'lower_bound': True}
SECOND = {'rate_bps': 9e6}


@pytest.mark.parametrize('first, settings, n_trains, rate_bps, is_bound', [
    ({}, {}, 1, 8e6, False),
    (BENT, {}, 2, 9e6, False), (BOUND, {}, 2, 9e6, False),
    (BENT, {'repeats': False}, 1, 8e6, False),
    (BOUND, {'repeats': False}, 1, 8e6, True),
    # What others sent would bend the second one as well.
    (BOUND | {'foreign_share': 0.06}, {}, 1, 8e6, True),
    (BOUND | {'foreign_share': 0.05}, {}, 2, 9e6, False),
    ({'foreign_share': 0.06}, {}, 1, 8e6, True),
    ({'foreign_share': 0.05}, {}, 1, 8e6, False)])
def test_a_train_that_misleads_is_repeated(clock, receiver, first, settings,
                                           n_trains, rate_bps, is_bound):
    peer = Peer(clock, first, SECOND, receiver=receiver)
    found = session(peer, **settings).run(train(2, 24, 100))
    assert peer.trains() == [train(2, 24, 100),
                             train(2, 192, 100)][:n_trains]
    assert (found.rate_bps, found.lower_bound) == (rate_bps, is_bound)
    assert found.sent_bytes == 4800 + (n_trains - 1) * 2 * 192 * 100


def test_packets_of_the_second_train_have_another_cookie(clock, receiver):
    peer = Peer(clock, BENT, {}, receiver=receiver)
    session(peer).run(train(1, 24, 100))
    first, second = itertools.islice(KEY.cookies('a', 'b'), 2)
    cookies = [receiver.recv(200)[:protocol.COOKIE_BYTES]
               for _ in range(24 + 192)]
    assert cookies == [first] * 24 + [second] * 192


def test_a_second_train_that_fails_leaves_the_first(clock, receiver):
    peer = Peer(clock, BOUND, protocol.ProbeError('no'), receiver=receiver)
    found = session(peer).run(train(2, 24, 100))
    assert (found.rate_bps, found.lower_bound) == (8e6, True)
    peer = Peer(clock, BENT, protocol.ProbeError('no'), receiver=receiver)
    with pytest.raises(protocol.ProbeError, match='disagree'):
        session(peer).run(train(2, 24, 100))


@pytest.mark.parametrize('result, is_told', [
    (BENT, True), (BENT | BOUND, False), (BENT | {'foreign_share': 1.0},
                                          True)])
def test_segments_that_disagree_tell_no_rate(clock, receiver, result,
                                             is_told):
    peer = Peer(clock, result, result, receiver=receiver)
    if is_told:
        with pytest.raises(protocol.ProbeError, match='disagree'):
            session(peer).run(train(2, 24, 100))
    else:
        assert session(peer).run(train(2, 24, 100)).lower_bound


@pytest.mark.parametrize('before, after, is_bound', [
    (5000, 5000 + 48 * 142, False), (5000, 5000 + 48 * 142 * 2, True),
    (5000, 5000 + int(48 * 142 * 1.05), False),
    (5000, 5000 + int(48 * 142 * 1.06), True)])
def test_what_others_send_from_here_makes_it_a_lower_bound(
        clock, receiver, monkeypatch, before, after, is_bound):
    """Frames are counted as the device does, with all headers."""
    counts = iter([before, after])
    asked = []
    monkeypatch.setattr(sender.netdev, 'read_bytes', lambda *which: (
        asked.append(which) or next(counts)))
    peer = Peer(clock, {}, receiver=receiver)
    found = session(peer, uplink_dev='up1').run(train(2, 24, 100))
    assert found.lower_bound is is_bound and asked == [('up1', 8)] * 2


def test_round_trips_end_by_number_or_time(clock):
    for ping_s, n_pings in ((0.001, 100), (0.125, 3), (0.5, 1)):
        peer = Peer(clock, ping_s=ping_s)
        found = session(peer)._round_trips()
        assert [found.min_s, found.median_s, found.p99_s] == pytest.approx(
            [ping_s] * 3)
        assert peer.n_pings == n_pings


class Device:
    """Takes what it is sent, but for what a test has it refuse.

    :param refuses: errors of the first calls.
    """

    def __init__(self, clock, *refuses, fileno=None, send_s=0.0):
        self._clock, self._refuses, self._send_s = clock, refuses, send_s
        self._fileno = fileno
        self.sent, self.segments = [], []

    def setsockopt(self, level, option, value):
        self.segments.append(value)

    def send(self, data):
        self._clock.s += self._send_s
        if self._refuses:
            error, *self._refuses = self._refuses
            raise error
        self.sent.append(len(data))

    def fileno(self):
        """Of what select waits for, which takes a while."""
        self._clock.s += 5.0
        return self._fileno.fileno()


@pytest.mark.parametrize('packets, packet_bytes, segments', [
    (200, 100, 16), (24, 100, 2), (23, 100, 1), (2, 100, 1),
    (5000, 100, 44), (5000, 1472, 44), (5000, 1500, 43), (500, 8972, 7)])
def test_super_packets_are_large_and_a_dozen_at_least(clock, packets,
                                                      packet_bytes, segments):
    device = Device(clock)
    burst = sender.BurstSender(device, train(1, packets, packet_bytes),
                               bytes(8))
    assert burst.send(0, 0.0) == 0.0
    assert set(device.sent) == {segments * packet_bytes}
    assert burst.n_packets == packets // segments * segments
    assert device.segments == [packet_bytes] * (segments > 1)


@pytest.mark.parametrize('code, goes_on', [
    (errno.EIO, True), (errno.EINVAL, True), (errno.EMSGSIZE, True),
    (errno.EPERM, False), (errno.ENETUNREACH, False)])
def test_super_packets_are_given_up_where_nobody_cuts_them(clock, code,
                                                           goes_on):
    device = Device(clock, OSError(code, 'told to'))
    burst = sender.BurstSender(device, train(1, 24, 100), bytes(8))
    if goes_on:
        burst.send(0, 0.0)
        assert device.sent == [100] * 24 and device.segments == [100, 0]
    else:
        with pytest.raises(protocol.ProbeError, match='told to'):
            burst.send(0, 0.0)
    # A single packet has nothing to give up.
    device = Device(clock, OSError(code, 'told to'))
    with pytest.raises(protocol.ProbeError, match='told to'):
        sender.BurstSender(device, train(1, 23, 100), bytes(8)).send(0, 0.0)


def test_a_kernel_without_super_packets_gets_single_ones(clock):
    device = Device(clock)

    def refuse(*option):
        raise OSError(errno.ENOPROTOOPT, 'told to')

    device.setsockopt = refuse
    sender.BurstSender(device, train(1, 24, 100), bytes(8)).send(0, 0.0)
    assert device.sent == [100] * 24


def test_time_in_which_the_queue_is_full_is_no_sending(clock, receiver):
    """Two super-packets of 0.25 s each, and one that was refused."""
    device = Device(clock, BlockingIOError(), fileno=receiver, send_s=0.25)
    burst = sender.BurstSender(device, train(1, 2, 100), bytes(8))
    begin_s = clock.s
    assert burst.send(0, clock.s + 1.0) == 0.75
    assert clock.s - begin_s == 5.75 and device.sent == [100, 100]


@pytest.mark.parametrize('left_s', [0.0, 0.01])
def test_an_uplink_that_sends_nothing_is_told(clock, left_s):
    """Either the time is up already, or while it is waited for."""
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        while select.select([], [near], [], 0)[1]:
            near.send(bytes(2 ** 16))
        device = Device(clock, BlockingIOError(), fileno=near)
        burst = sender.BurstSender(device, train(1, 2, 100), bytes(8))
        with pytest.raises(protocol.ProbeError, match='uplink does not'):
            burst.send(0, clock.s + left_s)
        assert device.sent == []


@pytest.mark.parametrize('bypasses', [True, False])
def test_trains_pass_the_classes_if_they_may(clock, receiver, monkeypatch,
                                             bypasses):
    options = []

    class Socket(socket.socket):
        def setsockopt(self, *option):
            options.append(option)
            raise PermissionError

    monkeypatch.setattr(sender.socket, 'socket', Socket)
    def mtu(found):
        assert found.getpeername() == receiver.getsockname()
        assert found.getblocking() is False
        raise protocol.ProbeError('told to')

    monkeypatch.setattr(sender.protocol, 'mtu', mtu)
    with pytest.raises(protocol.ProbeError, match='told to'):
        session(Peer(clock, receiver=receiver),
                bypass_classes=bypasses).run(train(1, 24, 100))
    assert options == [(socket.SOL_SOCKET, socket.SO_PRIORITY, 0x70000000)
                       ] * bypasses
