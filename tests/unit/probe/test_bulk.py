# SPDX-License-Identifier: Apache-2.0

"""What one TCP connection sends, and what its windows tell."""

import socket
import threading
import types

import pytest

from edge_module.probe import bulk
from edge_module.probe import netdev
from edge_module.probe import train_protocol as protocol
from virtco.wire import probe_order

LOOPBACK = '127.0.0.1'


@pytest.mark.parametrize('windows, rate_bps', [
    ((), 0.0), ((9,), 0.0), ((9, 5), 9 * 8 / 0.01),
    ((1, 2, 3), 3 * 8 / 0.02), ((10 ** 6, 1, 2, 4, 9 ** 6),
                                7 * 8 / 0.03),
    ((9, 9, 1, 2, 3, 4, 5, 9), 15 * 8 / 0.05)])
def test_the_rate_leaves_out_a_quarter_and_the_end(windows, rate_bps):
    assert bulk._steady_bps(windows) == pytest.approx(rate_bps)


class Sink:
    """Takes a second for each piece."""

    def __init__(self, clock):
        self._clock, self.sizes = clock, []

    def sendall(self, data):
        self.sizes.append(len(data))
        self._clock.s += 1.0


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(s=100.0)
    now.monotonic = lambda: now.s
    monkeypatch.setattr(bulk, 'time', now)
    return now


@pytest.mark.parametrize('stop_s, left_bytes, sizes', [
    (999.0, 2 ** 17 + 5, [2 ** 16, 2 ** 16, 5]), (999.0, 2 ** 16, [2 ** 16]),
    (102.0, 2 ** 30, [2 ** 16] * 2), (102.5, 2 ** 30, [2 ** 16] * 3),
    (100.0, 9, []), (999.0, 0, [])])
def test_it_ends_with_its_bytes_or_its_time(clock, stop_s, left_bytes, sizes):
    sink = Sink(clock)
    bulk._fill(sink, stop_s, left_bytes)
    assert sink.sizes == sizes


@pytest.mark.parametrize('bypasses', [True, False])
def test_a_round_fills_the_link_past_the_classes(bypasses):
    """As far as the kernel lets it."""
    options = []

    def setsockopt(*option):
        options.append(option)
        raise PermissionError

    bulk._prepare(types.SimpleNamespace(setsockopt=setsockopt),
                  protocol.Settings(bypass_classes=bypasses))
    assert options == [
        (socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')] + [
        (socket.SOL_SOCKET, socket.SO_PRIORITY, 0x70000000)] * bypasses


class Control:
    """Of a responder that says ``answer`` after all was sent."""

    def __init__(self, sock, answer):
        self.sock, self._answer, self.asked = sock, answer, []
        self.timeout_s = None

    def ask(self, message, wanted):
        self.asked.append(message)

    def receive(self, wanted):
        self.timeout_s = self.sock.gettimeout()
        return protocol.Counted(self._answer)


@pytest.fixture
def ends():
    with socket.create_server((LOOPBACK, 0)) as server:
        near = socket.create_connection(server.getsockname(), timeout=5)
        far, _ = server.accept()
    with near, far:
        far.settimeout(5)
        yield near, far


@pytest.mark.parametrize('start_s, slept, deadline_s', [
    (None, [], 108.0), (103.0, [3.0], 111.0), (90.0, [0.0], 108.0)])
def test_a_connection_begins_at_its_time_and_ends(
        monkeypatch, clock, ends, start_s, slept, deadline_s):
    near, far = ends
    control = Control(near, (5000, 0, 6000))
    # Frames are three times as long as their payload.
    monkeypatch.setattr(bulk.protocol, 'mtu', lambda sock: (
        3 * sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) - 14))
    found, sleeps, prepared = [], [], []
    clock.sleep = sleeps.append

    def connect(*args):
        found.append(args)
        return control, None

    monkeypatch.setattr(bulk.protocol, 'connect', connect)
    monkeypatch.setattr(bulk, '_prepare', lambda *args: prepared.append(args))
    settings = protocol.Settings(timeout_s=5.0)
    received = []

    def drain():
        while data := far.recv(2 ** 16):
            received.append(len(data))

    draining = threading.Thread(target=drain)
    draining.start()
    flow = bulk.transfer('a', 9, probe_order.Bulk(3.0, 80_000, 0.5), settings,
                         'key', start_s)
    # The stream ends, or the peer would wait for more.
    draining.join(5)
    assert not draining.is_alive() and sum(received) == 80_000
    assert found == [('a', 9, deadline_s, 'key')]
    assert control.asked == [probe_order.Bulk(3.0, 80_000, 0.5)]
    assert sleeps == slept
    assert prepared == [(near, settings)] * len(slept)
    if start_s is None:
        assert flow == bulk.Flow(2e6, (5000, 0, 6000))
    else:
        assert flow == bulk.Flow(33_000 * 8 / 1.5, (15_000, 0, 18_000))
    # A peer that takes nothing is left when its time is over.
    assert control.timeout_s == 8.0
    assert near.fileno() == -1


def test_a_peer_that_is_gone_is_told(monkeypatch, ends):
    near, far = ends
    far.close()
    monkeypatch.setattr(bulk.protocol, 'connect', lambda *args: (
        Control(near, ()), None))
    with pytest.raises(protocol.ProbeError, match='cannot send'):
        bulk.transfer('a', 9, probe_order.Bulk(5.0), protocol.Settings(),
                      'key')


def test_devices_are_read_by_their_whole_names():
    """The name of one may be the beginning of another's."""
    assert netdev.read_bytes('l', netdev.RECEIVED) == 0
    assert netdev.read_bytes('', netdev.SENT) == 0
    assert netdev.address_towards('no-such-host.invalid') is None
