# SPDX-License-Identifier: Apache-2.0

"""Hosts that hold connections to each other, over the loopback device."""

import contextlib
import socket
import threading
import time
import types

import numpy as np
import pytest

from virtco_lab.emulation import mesh as mesh_module


@pytest.fixture(name='story')
def _story(monkeypatch):
    made = []

    class Fabric:
        core = 'core'

        def __init__(self, run):
            self.run = run
            self.hypervisors = {}

        def build(self, bed):
            for number, host in enumerate(bed.rates_bps):
                made.append((host, bed.rates_bps[host]))
                self.hypervisors[host] = types.SimpleNamespace(
                    namespace=f'ns-{host}', address=f'127.0.0.{number + 1}')
            made.append(bed.pairs_bps)

        def set_pair_rates(self, rates_bps):
            made.append(rates_bps)

    monkeypatch.setattr(mesh_module.namespaces, 'new_run', lambda: 'abc123')
    monkeypatch.setattr(mesh_module.namespaces, 'call',
                        lambda name, function: function())
    fabric = mesh_module.fabric_module
    monkeypatch.setattr(fabric.janitor, 'Janitor', lambda run: (
        types.SimpleNamespace(dismiss=lambda: made.append('dismissed'))))
    monkeypatch.setattr(fabric, 'Fabric', Fabric)
    return made


@pytest.fixture(name='mesh')
def _mesh(story):
    with mesh_module.Mesh(3, 8e6).built() as found:
        yield found


def test_each_pair_has_a_class_of_its_own_and_all_is_removed(story):
    with mesh_module.Mesh(2, 8e6).built() as found:
        assert (found.run, found.names) == ('abc123', ['h0', 'h1'])
        assert found.addresses == ['127.0.0.1', '127.0.0.2']
        built = list(story)
        found.set_rates(np.array([[0, 0.2], [1.5e6, 0]]))
    pairs = [('h0', 'h1'), ('h1', 'h0')]
    assert built == [('h0', 8e6), ('h1', 8e6), dict.fromkeys(pairs, 8e6)]
    assert story[3:] == [dict(zip(pairs, (0.2, 1.5e6))), 'dismissed']


def test_every_host_is_connected_to_every_other_one(mesh):
    pairs = {(src, dst) for src in range(3) for dst in range(3) if src != dst}
    assert mesh._out.keys() == mesh._in.keys() == pairs
    for pair in pairs:
        sender, receiver = mesh._out[pair], mesh._in[pair]
        assert sender.getpeername() == receiver.getsockname()
        assert receiver.getsockname()[0] == mesh.addresses[pair[1]]
        for one in (sender, receiver):
            assert one.gettimeout() == 120
            assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_connections_end_with_the_mesh(story):
    with mesh_module.Mesh(2, 8e6).built() as found:
        sockets = [*found._out.values(), *found._in.values()]
    assert {one.fileno() for one in sockets} == {-1}


def test_rates_are_of_what_follows_the_first_part(mesh, monkeypatch):
    found = mesh.measure({(0, 1): 300_000, (2, 1): 10, (1, 0): 70_000})
    assert found.keys() == {(0, 1), (2, 1), (1, 0)}
    assert all(rate_bps >= 0 for rate_bps in found.values())
    # Nothing follows.
    assert found[2, 1] == 0
    clock = iter((100.0, 100.5))
    monkeypatch.setattr(mesh_module, 'time', types.SimpleNamespace(
        monotonic=lambda: next(clock)))
    sender = threading.Thread(target=mesh._send, args=((0, 1), 1_000_000))
    sender.start()
    rate_bps = mesh._receive((0, 1), 1_000_000)
    sender.join()
    # All but a part of 64 KB at most in half a second.
    assert 16 * (1_000_000 - 65536) <= rate_bps < 16e6


def test_a_message_is_passed_on_and_timed(mesh, monkeypatch):
    sent = []
    send = mesh._send
    monkeypatch.setattr(mesh, '_send', lambda pair, size: (
        sent.append((pair, size)), send(pair, size))[1])
    began_s = time.monotonic()
    took_s = mesh.broadcast([(0, 1), (1, 2)], 100_001, 3)
    assert 0 < took_s <= time.monotonic() - began_s
    # The last segment has what is left over.
    assert sorted(sent) == sorted(
        (edge, size) for edge in ((0, 1), (1, 2))
        for size in (33_333, 33_333, 33_335))
    sent.clear()
    mesh.broadcast([(2, 0), (2, 1)], 10)
    assert sent == [((2, 0), 10), ((2, 1), 10)]


def test_the_last_receiver_ends_a_broadcast(mesh, monkeypatch):
    receive = mesh._receive
    monkeypatch.setattr(mesh, '_receive', lambda pair, size: (
        time.sleep(0.05 * pair[1]), receive(pair, size))[1])
    assert mesh.broadcast([(0, 1), (0, 2)], 10) > 0.075


def test_a_sender_that_fails_says_so(mesh, monkeypatch):
    def fail(pair, size):
        raise ConnectionError('broken')

    monkeypatch.setattr(mesh, '_receive', lambda pair, size: None)
    monkeypatch.setattr(mesh, '_send', fail)
    with pytest.raises(ConnectionError, match='broken'):
        mesh.broadcast([(0, 1)], 10)


def test_a_host_passes_on_one_segment_after_another(mesh, monkeypatch):
    order = []
    lock = threading.Lock()
    receive, send = mesh._receive, mesh._send

    def log(what, pair):
        with lock:
            order.append((what, pair))

    monkeypatch.setattr(mesh, '_receive', lambda pair, size: (
        receive(pair, size), log('got', pair))[0])
    monkeypatch.setattr(mesh, '_send', lambda pair, size: (
        log('send', pair), send(pair, size))[1])
    mesh.broadcast([(0, 1), (1, 2)], 90_000, 3)
    for n in range(1, 4):
        sends = [i for i, what in enumerate(order)
                 if what == ('send', (1, 2))]
        gots = [i for i, what in enumerate(order) if what == ('got', (0, 1))]
        assert sends[n - 1] > gots[n - 1]


def test_who_gets_no_segment_says_so(mesh, monkeypatch):
    monkeypatch.setattr(mesh_module, '_TIMEOUT_S', 0.01)

    def fail(pair, size):
        if pair == (0, 1):
            raise ConnectionError('broken')

    monkeypatch.setattr(mesh, '_receive', fail)
    monkeypatch.setattr(mesh, '_send', lambda pair, size: None)
    with pytest.raises(ConnectionError, match='broken'):
        mesh.broadcast([(0, 1), (1, 2)], 10)


@pytest.mark.parametrize('is_sender', [True, False])
def test_an_end_that_is_gone_is_named(mesh, is_sender):
    pair = (0, 1)
    if is_sender:
        mesh._out[pair].sendall(b'1234')
        mesh._out[pair].shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError,
                           match=r'\(0, 1\): the sender is gone'):
            mesh._receive(pair, 10)
    else:
        mesh._in[pair].shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError,
                           match=r'\(0, 1\): the receiver is gone'):
            mesh._send(pair, 10)


def test_what_fails_while_it_is_built_is_removed(story, monkeypatch):
    monkeypatch.setattr(mesh_module.namespaces, 'connect', lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), contextlib.ExitStack() as stack:
        stack.enter_context(mesh_module.Mesh(2, 8e6).built())
    assert story[-1] == 'dismissed'
