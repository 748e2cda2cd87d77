# SPDX-License-Identifier: Apache-2.0

"""Other tenants' traffic, over the loopback device."""

import io
import json
import select
import socket
import time
import types

import numpy as np
import pytest

from virtco_lab.emulation.measured import background


@pytest.fixture(autouse=True)
def _entered(monkeypatch):
    names = []
    monkeypatch.setattr(background.namespaces, 'call', lambda name, function: (
        names.append(name), function())[1])
    return names


def _connection(*periods_s):
    return background.Connection('src', 'dst', '127.0.0.1', periods_s)


def test_connections_are_made_inside_of_their_namespaces(
        _entered, waits_s):
    src, dst = background._pair(_connection())
    with src, dst:
        assert waits_s == [30.0, 30.0]
        assert _entered == ['dst', 'src']
        assert src.getpeername() == dst.getsockname()
        assert src.getpeername()[1] != 1
        assert not src.getblocking() and not dst.getblocking()
        assert src.getsockopt(socket.IPPROTO_TCP,
                              socket.TCP_NOTSENT_LOWAT) == 128 * 1024


def test_a_connection_sends_in_its_periods():
    traffic = background._Traffic([_connection((1.0, 2.0), (3.0, 4.0)),
                                   _connection((2.0, 5.0))])
    (one, _), (other, _) = traffic._sources
    names = {one.fileno(): 'one', other.fileno(): 'other'}
    sending = {}
    for now_s, wanted in ((0.5, []), (1.0, ['one']), (1.5, ['one']),
                          (2.0, ['other']), (3.0, ['one', 'other']),
                          (4.0, ['other']), (4.99, ['other']), (5.0, []),
                          (6.0, [])):
        traffic._turn(now_s, sending)
        assert sorted(names[fd] for fd in sending) == wanted, now_s
        # Those who send are told when they may.
        ready = {fd for fd, event in traffic._poll.poll(0.01)
                 if event == select.EPOLLOUT}
        assert ready == set(sending)
    _close(traffic)


def test_who_was_late_begins_with_the_period_that_is_due():
    traffic = background._Traffic([_connection((1.0, 2.0), (3.0, 4.0))])
    sending = {}
    traffic._turn(3.5, sending)
    assert len(sending) == 1
    assert traffic._sources[0][1] == [(3.0, 4.0)]
    _close(traffic)


def _close(traffic):
    for src, _ in traffic._sources:
        src.close()
    for dst in traffic._sinks.values():
        dst.close()


def test_bytes_flow_while_one_sends_and_it_ends_with_its_input(monkeypatch):
    ours, theirs = socket.socketpair()
    traffic = background._Traffic([_connection((0.0, 0.05), (0.1, 60.0))])
    sink, = traffic._sinks.values()
    got = []

    class Sink:
        def fileno(self):
            return sink.fileno()

        def recv_into(self, buffer):
            got.append((time.monotonic() - began_s, sink.recv_into(buffer)))
            if got[-1][0] > 0.15:
                theirs.close()

    poll, waits_s = traffic._poll, []
    monkeypatch.setattr(traffic, '_poll', types.SimpleNamespace(
        poll=lambda wait_s: (waits_s.append(wait_s), poll.poll(wait_s))[1],
        register=poll.register, unregister=poll.unregister))
    traffic._sinks[sink.fileno()] = Sink()
    monkeypatch.setattr(background.sys, 'stdin', ours)
    began_s = time.monotonic()
    traffic.run(began_s)
    assert sum(size for at_s, size in got if at_s < 0.05) > 64 * 1024
    assert max(size for _, size in got) <= 256 * 1024
    # A period begins a few milliseconds late at most.
    assert set(waits_s) == {0.005}
    sink.close()
    traffic._sources[0][0].close()
    ours.close()


def test_a_process_connects_and_says_when_it_begins(monkeypatch, capsys):
    monkeypatch.setattr(background.sys, 'stdin', io.StringIO(json.dumps([
        {'src_namespace': 'a', 'dst_namespace': 'b',
         'dst_address': '127.0.0.1', 'periods_s': [[1.0, 2.0]]}])))
    ran = []
    monkeypatch.setattr(background._Traffic, 'run', lambda self, begin_s: (
        ran.append((self._sources[0][1], begin_s)), _close(self)))
    before_s = time.monotonic()
    assert background.main() == 0
    (periods, begin_s), = ran
    assert periods == [(1.0, 2.0)]
    assert before_s + 0.3 <= begin_s <= time.monotonic() + 0.3
    assert float(capsys.readouterr().out) == begin_s


def test_a_child_has_the_connections_and_is_stopped(monkeypatch):
    story = []

    class Child:
        def __init__(self, what, argv, log, piped):
            assert argv[1:] == [
                '-m', 'virtco_lab.emulation.measured.background'] and piped
            assert log.parent.is_dir()

        def write_line(self, line):
            story.append(json.loads(line))

        def has_line(self):
            return True

        def read_line(self):
            return '123.5\n'

        def stop(self):
            story.append('stopped')

    monkeypatch.setattr(background, 'process', types.SimpleNamespace(
        Child=Child, wait_until=lambda condition, *_, **__: (
            story.append(condition()))))
    with pytest.raises(ValueError), background.running(
            [_connection((1.0, 2.0))]) as begin_s:
        assert begin_s == 123.5
        raise ValueError
    assert story == [[{
        'src_namespace': 'src', 'dst_namespace': 'dst',
        'dst_address': '127.0.0.1', 'periods_s': [[1.0, 2.0]]}], True,
        'stopped']


def test_periods_begin_with_one_or_a_pause():
    class Rng:
        def __init__(self, first):
            self._first = first

        def random(self):
            return self._first

        def exponential(self, mean_s):
            return mean_s

    # Sends a fifth of the time: pauses are four times as long.
    assert background.on_off(Rng(0.1), 21.0, 2.0, 0.2) == (
        (0.0, 2.0), (10.0, 12.0), (20.0, 22.0))
    assert background.on_off(Rng(0.2), 19.0, 2.0, 0.2) == (
        (8.0, 10.0), (18.0, 20.0))
    assert background.on_off(Rng(0.2), 18.0, 2.0, 0.2) == ((8.0, 10.0),)
    rng = np.random.default_rng(1)
    assert background.on_off(rng, 0.0, 2.0, 0.5) == ()
