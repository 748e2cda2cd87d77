# SPDX-License-Identifier: Apache-2.0

"""Real bytes over the loopback device, which is in no namespace."""

import io
import resource
import socket
import struct
import time

import msgspec
import pytest

from virtco_lab.emulation import traffic
from virtco_lab.services import service

WINDOW = 32 * 1024


@pytest.fixture(autouse=True)
def _entered(monkeypatch):
    """Which namespace a thread would have entered, one after the other."""
    names = []
    monkeypatch.setattr(traffic.namespaces, 'enter', names.append)
    return names


@pytest.fixture(name='ports')
def _ports():
    return iter(service.free_ports(9))


def _flow(port, size_bytes, coflow=0, host=None):
    return traffic.FlowSpec(coflow, 'src', f'dst{port}', '127.0.0.1', port,
                            size_bytes, host)


def _close(flows):
    for flow in flows:
        flow.sender.close()
        flow.receiver.close()


def _run(job):
    flows = traffic.connect(job.flows, job.window_bytes)
    events = []
    try:
        found = traffic.Transfer(job, flows, events.append).run()
    finally:
        _close(flows)
    return found, events


def test_a_job_is_one_line():
    job = traffic.Job((0.0, 1.5), (_flow(1, 2), _flow(3, 4, 1, 'h0')), 7.0,
                      8, 9.0, 0.5)
    line = msgspec.json.encode(job)
    assert b'\n' not in line
    assert msgspec.json.decode(line, type=traffic.Job) == job
    usual = traffic.Job((), ())
    assert (usual.stall_s, usual.window_bytes, usual.local_bps,
            usual.bin_s) == (60.0, 64 * 1024, None, 0.1)


def test_sockets_are_made_inside_of_their_namespaces(ports, _entered):
    one, other = next(ports), next(ports)
    specs = [_flow(one, 2), _flow(other, 6), _flow(one, 7),
             _flow(one, 8, 0, 'h0')]
    flows = traffic.connect(specs, WINDOW)
    try:
        # Of each it comes back.
        assert _entered[::2] == [name for flow in specs
                                 for name in (flow.dst_namespace, 'src')]
        assert {type(name) for name in _entered[1::2]} == {int}
        assert [flow.spec for flow in flows] == specs
        for flow in flows:
            assert flow.receiver.getpeername() == flow.sender.getsockname()
            assert not flow.sender.getblocking()
            assert not flow.receiver.getblocking()
            is_local = flow.spec.local_host is not None
            assert flow.sender.getpeername()[1] == flow.spec.dst_port
            # The kernel doubles it.
            window = 1024 * 1024 if is_local else WINDOW
            assert flow.receiver.getsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF) == min(
                    2 * window, 2 * int(open('/proc/sys/net/core/rmem_max'
                                             ).read()))
            assert flow.sender.getsockopt(
                socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 128 * 1024
            assert flow.sender.getsockopt(
                socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(
                    b'cubic')
            flow.wake_late()
            assert flow.receiver.getsockopt(
                socket.SOL_SOCKET, socket.SO_RCVLOWAT) == flow.spec.size_bytes
            # From its listener, whose port may be one that was just left.
            assert flow.receiver.getsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
    finally:
        _close(flows)


def test_a_receiver_is_woken_by_a_quarter_of_its_window_or_the_last_byte(
        ports):
    flow, = flows = traffic.connect([_flow(next(ports), 10_000)], WINDOW)
    try:
        for left, woken in ((10_000, 8192), (8192, 8192), (100, 100),
                            (0, 100)):
            flow.to_receive = left
            flow.wake_late()
            assert flow.receiver.getsockopt(
                socket.SOL_SOCKET, socket.SO_RCVLOWAT) == woken
    finally:
        _close(flows)


def test_every_byte_arrives_and_is_counted(ports):
    sizes = [3_000_000, 1, 70_000]
    job = traffic.Job((0.0, 0.3), (
        _flow(next(ports), sizes[0], 0), _flow(next(ports), sizes[1], 0),
        _flow(next(ports), sizes[2], 1),
        _flow(next(ports), 1_000_000, 1, 'h0')), window_bytes=WINDOW,
        bin_s=0.05)
    began_s = time.monotonic()
    found, events = _run(job)
    took_s = time.monotonic() - began_s
    assert found.bin_s == 0.05
    assert 0.3 <= found.wall_s <= took_s
    assert 0 <= found.retransmits < 100
    # Each is measured from its own start.
    first_s, second_s = found.ccts_s
    assert 0 < first_s < found.wall_s
    assert 0 < second_s <= found.wall_s - 0.3 + 1e-3
    # What is inside of a host crosses no link.
    assert [sum(column) for column in zip(*found.timeline)] == [
        sizes[0] + sizes[1], sizes[2]]
    assert all(row[1] == 0 for row in found.timeline[:5])
    assert len(found.timeline) <= int(found.wall_s / 0.05) + 1
    progress = [event.received for event in events]
    assert progress[0] == (0, 0)
    assert 2 <= len(progress) <= 2 + found.wall_s / 0.25
    assert progress[-1][0] <= sizes[0] + sizes[1]


def test_coflows_start_one_after_the_other(ports, monkeypatch):
    started = []
    start = traffic.Transfer._start
    monkeypatch.setattr(traffic.Transfer, '_start', lambda self, coflow: (
        started.append(coflow), start(self, coflow)))
    monkeypatch.setattr(traffic._Flow, 'wake_late',
                        lambda self: started.append('late'))
    found, _events = _run(traffic.Job((0.1, 0.0), (
        _flow(next(ports), 5), _flow(next(ports), 5, 1))))
    # Receivers that wait for all are not woken by the first segment.
    assert started[:3] == ['late', 'late', 1] and 0 in started[3:]
    assert min(found.ccts_s) > 0


def test_nobody_is_waited_for_without_an_end(ports, waits_s):
    _close(traffic.connect([_flow(next(ports), 5)]))
    assert waits_s == [60.0, 60.0]


def test_flows_inside_of_a_host_share_its_pace(ports):
    """0.1 s for all: both at half of it, then the longer one at all."""
    job = traffic.Job((0.0,), (
        _flow(next(ports), 20_000, 0, 'h0'),
        _flow(next(ports), 60_000, 0, 'h0'),
        _flow(next(ports), 10, 0, 'h1')), local_bps=8 * 800_000.0)
    flows = traffic.connect(job.flows)
    transfer = traffic.Transfer(job, flows, lambda event: None)
    try:
        def paces():
            return [struct.unpack('=Q', flow.sender.getsockopt(
                socket.SOL_SOCKET, 47, 8))[0] for flow in flows]

        for flow in flows:
            transfer._epoll.register(flow.receiver, 1)
        transfer._start(0)
        assert paces() == [400_000, 400_000, 800_000]
        began_s = time.monotonic()
        while transfer._open[0] > 1:
            transfer._serve(began_s)
        # Whoever is last has all of it.
        assert paces()[1] == 800_000
        while any(transfer._open):
            transfer._serve(began_s)
        assert not transfer._timeline
        assert transfer._received == [80_010]
        # Who has handed over all is not looked at any more.
        assert not transfer._epoll.poll(0)
    finally:
        _close(flows)


def test_without_a_pace_nothing_is_limited(ports):
    job = traffic.Job((0.0, 0.0), (_flow(next(ports), 500_000, 0, 'h0'),))
    found, _events = _run(job)
    assert found.timeline == ()
    # One without flows takes no time.
    assert found.ccts_s[0] < 10 and found.ccts_s[1] == 0


def test_a_job_that_stalls_says_how_many_flows_wait(ports, monkeypatch):
    monkeypatch.setattr(traffic._Flow, 'send', lambda self, fd: True)
    job = traffic.Job((0.0, 0.1), (_flow(next(ports), 5),
                                   _flow(next(ports), 5, 1)), stall_s=0.15)
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match=(
            'no byte of 2 unfinished flows arrived for 0.15 s')):
        _run(job)
    # It counts from the last start or byte.
    assert time.monotonic() - began_s >= 0.25


def test_a_job_waits_for_a_start_that_is_late(ports):
    job = traffic.Job((0.3,), (_flow(next(ports), 5),), stall_s=0.1)
    found, _events = _run(job)
    assert found.wall_s >= 0.3 > found.ccts_s[0]


def test_a_flow_that_ends_early_is_named(ports):
    port = next(ports)
    flow, = flows = traffic.connect([_flow(port, 10)])
    try:
        assert flow.receive() == 0
        flow.sender.sendall(b'1234')
        flow.sender.shutdown(socket.SHUT_WR)
        while flow.to_receive == 10:
            flow.receive()
        with pytest.raises(ConnectionError, match=(
                f'the flow to 127.0.0.1:{port} ended 6 bytes early')):
            while True:
                flow.receive()
    finally:
        _close(flows)


def test_a_sender_hands_over_what_the_kernel_takes(ports):
    flow, = flows = traffic.connect([_flow(next(ports), 5_000_000)], WINDOW)
    job = traffic.Job((0.0,), (flow.spec,))
    transfer = traffic.Transfer(job, flows, print)
    try:
        assert flow.send(transfer._payload_fd) is False
        assert 5_000_000 - 512 * 1024 <= flow.to_send < 5_000_000
        for _ in range(20):
            flow.send(transfer._payload_fd)
        # A full one is no error.
        assert flow.send(transfer._payload_fd) is False
        # The kernel's timers may send some again where it has to wait.
        assert flow.retransmits() < 10
    finally:
        _close(flows)


@pytest.mark.parametrize(('word', 'code'), [('go', 0), ('stop', 1)])
def test_a_process_connects_and_waits_for_its_word(
        word, code, ports, monkeypatch, capsys):
    limits = []
    monkeypatch.setattr(resource, 'setrlimit',
                        lambda what, both: limits.append((what, both)))
    monkeypatch.setattr(resource, 'getrlimit', lambda what: (10, 50))
    job = traffic.Job((0.0,), (_flow(next(ports), 1000),))
    monkeypatch.setattr(traffic.sys, 'stdin', io.StringIO(
        f'{msgspec.json.encode(job).decode()}\n {word} \n'))
    assert traffic.main() == code
    events = [msgspec.json.decode(
        line, type=traffic.Progress | traffic.Outcome)
        for line in capsys.readouterr().out.splitlines()]
    assert events[0] == traffic.Progress((0,))
    assert isinstance(events[-1], traffic.Outcome) is (code == 0)
    # Two sockets and a listener for each flow.
    assert limits == [(resource.RLIMIT_NOFILE, (67, 67))]
