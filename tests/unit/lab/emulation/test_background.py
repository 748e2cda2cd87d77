# SPDX-License-Identifier: Apache-2.0

"""Other tenants' traffic, over the loopback device."""

import concurrent.futures
import io
import json
import queue
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
        assert src.gettimeout() is dst.gettimeout() is None
        assert src.getsockopt(socket.IPPROTO_TCP,
                              socket.TCP_NOTSENT_LOWAT) == 128 * 1024


class Source:
    """Takes a chunk in 0.3 s of a clock that only it and sleep move."""

    def __init__(self):
        self.now_s, self.sent = 0.0, []

    def monotonic(self):
        return self.now_s

    def sleep(self, wait_s):
        self.now_s += wait_s

    def send(self, chunk):
        assert len(chunk) == 16 * 1024
        self.sent.append(round(self.now_s, 3))
        self.now_s += 0.3


def test_a_connection_sends_in_its_periods(monkeypatch):
    source = Source()
    monkeypatch.setattr(background, 'time', source)
    background._send(source, [(1.0, 2.0), (3.0, 3.5)], 10.0)
    assert source.sent == [11.0, 11.3, 11.6, 11.9, 13.0, 13.3]


def test_who_was_late_begins_with_the_period_that_is_due(monkeypatch):
    source = Source()
    source.now_s = 13.2
    monkeypatch.setattr(background, 'time', source)
    background._send(source, [(1.0, 2.0), (3.0, 3.5)], 10.0)
    assert source.sent == [13.2]


def test_bytes_flow_until_the_last_period_is_over():
    src, dst = background._pair(_connection())
    began_s = time.monotonic()
    with src, dst, concurrent.futures.ThreadPoolExecutor(2) as pool:
        sending = pool.submit(background._send, src,
                              [(0.0, 0.05), (0.1, 0.15)], began_s)
        pool.submit(background._receive, dst)
        assert sending.result(10) is None
        took_s = time.monotonic() - began_s
        src.close()
    assert took_s >= 0.15


def test_what_arrives_is_taken_until_the_other_end_is_closed():
    ours, theirs = socket.socketpair()
    with theirs, concurrent.futures.ThreadPoolExecutor(1) as pool:
        taking = pool.submit(background._receive, theirs)
        ours.sendall(bytes(1 << 20))
        assert not taking.done()
        ours.close()
        assert taking.result(10) is None


def test_a_process_connects_and_says_when_it_begins(monkeypatch, capsys):
    monkeypatch.setattr(background.sys, 'stdin', io.StringIO(json.dumps([
        {'src_namespace': 'a', 'dst_namespace': 'b',
         'dst_address': '127.0.0.1', 'periods_s': [[1.0, 2.0]]}])))
    ran = queue.SimpleQueue()
    monkeypatch.setattr(background, '_send', lambda src, *given: (
        ran.put(given), src.close()))
    before_s = time.monotonic()
    assert background.main() == 0
    periods, begin_s = ran.get(timeout=10)
    assert periods == ((1.0, 2.0),)
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
