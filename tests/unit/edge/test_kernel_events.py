# SPDX-License-Identifier: Apache-2.0

"""What announcements of the kernel mean; numbers are those of its headers."""

import ctypes
import os
import pathlib
import socket
import struct
import subprocess
import time

import pytest

from edge_module import kernel_events
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import wire

NEWLINK, DELLINK, NEWQDISC, NEWTCLASS = 16, 17, 36, 40
NEWTABLE, NEWGEN = 0x0A00, 0x0A0F


class Socket:
    """Announcements that wait, in as many datagrams."""

    def __init__(self, *datagrams):
        self.waiting = list(datagrams)
        self.options = []

    def recv(self, most):
        if not self.waiting:
            raise BlockingIOError
        found = self.waiting.pop(0)
        if isinstance(found, OSError):
            raise found
        return found[:most]

    def setsockopt(self, level, option, value):
        # What it points to goes with its caller.
        length, address = struct.unpack('HP', value)
        self.options.append((level, option,
                             ctypes.string_at(address, length * 8)))


def message(kind, body):
    return struct.pack('=IHHII', 16 + len(body), kind, 0, 0, 0) + body + (
        b'\0' * (-len(body) % 4))


def qdisc(ifindex, handle, kind=NEWQDISC):
    return message(kind, struct.pack('=BxxxiIII', 0, ifindex, handle, 0, 0))


def link(ifindex):
    return struct.pack('=BxHiII', 0, 1, ifindex, 0, 0)


def attribute(kind, data):
    return struct.pack('=HH', 4 + len(data), kind) + data + (
        b'\0' * (-len(data) % 4))


def table(name):
    return message(NEWTABLE, bytes(4) + attribute(1, name + b'\0'))


def ended(process=0):
    """The end of a transaction of a process; 0 is the one of the tests."""
    return message(NEWGEN, bytes(4) + attribute(1, bytes(4)) + attribute(
        2, (process or os.getpid()).to_bytes(4, 'big')))


def watch(route=(), tables=()):
    found = object.__new__(kernel_events.KernelWatch)
    found._route = Socket(*route)
    found._tables = None if tables is None else Socket(*tables)
    found._in_transaction = False
    return found


def changes(**values):
    return kernel_events.Changes(**values)


@pytest.mark.parametrize(('route', 'devices', 'links'), [
    ([], set(), False),
    ([qdisc(7, 1), qdisc(9, 2)], {7, 9}, False),
    # Several may come at once.
    ([qdisc(7, 1) + qdisc(9, 2)], {7, 9}, False),
    # A default qdisc gives way to ours.
    ([qdisc(7, 0)], set(), False),
    ([qdisc(7, 0, kind=37)], set(), False),
    ([qdisc(7, 0, NEWTCLASS)], {7}, False),
    ([message(NEWLINK, link(9))], set(), True),
    # Announcements were lost, perhaps of any device.
    ([qdisc(7, 1), OSError(105, '')], None, True)])
def test_which_devices_were_changed(route, devices, links):
    assert watch(route, None).changes() == changes(
        devices=devices if devices is None else frozenset(devices),
        links=links)


def test_devices_that_went_are_told_although_they_may_be_back():
    assert watch([message(DELLINK, link(9)), message(NEWLINK, link(9)),
                  message(NEWLINK, link(8)), qdisc(7, 1)], None).changes() == (
                      changes(devices=frozenset({7}), links=True,
                              gone=frozenset({9})))


OTHER = 0x7fffffff


@pytest.mark.parametrize(('tables', 'changed'), [
    ([], False), ([table(b'virtco'), OTHER], True),
    ([table(b'virtco') + table(b'filter'), OTHER], True),
    ([table(b'filter'), OTHER], False), ([table(b'virtcode'), OTHER], False),
    ([table(b'virtco'), 0], False),
    # One of ours beside one of somebody else's.
    ([table(b'virtco'), 0, table(b'virtco'), OTHER], True),
    ([table(b'virtco'), OTHER, table(b'filter'), 0], True),
    ([OTHER], False), ([OSError(105, '')], True)])
def test_who_changed_our_table(tables, changed):
    """Numbers are processes whose transactions end."""
    assert watch(tables=[ended(one) if isinstance(one, int) else one
                         for one in tables]).changes().tables is changed


def test_changes_of_a_child_are_our_own():
    """The helper is one; a process may have any name."""
    name = pathlib.Path('/proc/self/comm')
    before = name.read_text()
    name.write_text('a:b: c')
    try:
        with subprocess.Popen('cat', stdin=subprocess.PIPE) as child:
            for process, changed in (
                    (child.pid, False), (0, False), (1, True)):
                found = watch(tables=[table(b'virtco'), ended(process)])
                assert found.changes().tables is changed
    finally:
        name.write_text(before)


def test_a_transaction_may_end_later():
    found = watch(tables=[table(b'virtco')])
    assert not found.changes().tables
    found._tables.waiting.append(ended(OTHER))
    assert found.changes().tables
    found._tables.waiting.append(ended(OTHER))
    assert not found.changes().tables


def run(program, packet):
    """The bytes of a packet that a filter of the kernel's takes."""
    steps = list(struct.iter_unpack('HBBI', program))
    at, loaded = 0, 0
    while True:
        code, if_so, if_not, value = steps[at]
        at += 1
        match code:
            case 0x30:  # ld [value], one byte
                loaded = packet[value]
            case 0x15:  # jeq
                at += if_so if loaded == value else if_not
            case 0x06:  # ret
                return value


def test_answers_to_our_own_messages_are_dropped():
    sock = Socket()
    kernel_events._drop_own(sock)
    ((level, option, program),) = sock.options
    assert (level, option) == (socket.SOL_SOCKET, 26)
    for port, is_taken in ((kernel.PORTS, False), (kernel.PORTS + 5, False),
                           (0, True), (os.getpid(), True),
                           (kernel.PORTS ^ 1 << 24, True)):
        found = run(program, struct.pack('=IHHII', 16, 0, 0, 0, port))
        assert found == (0xffffffff if is_taken else 0)


def test_numbers_of_messages():
    assert (wire.RTM_NEWQDISC, wire.RTM_DELQDISC) == (NEWQDISC, 37)


@pytest.mark.parametrize('deaf_s', [0.0, 60.0])
def test_a_wake_ends_one_wait(deaf_s):
    found = watch(tables=None)
    found._wake, announced = (os.eventfd(0, os.EFD_NONBLOCK)
                              for _ in range(2))
    found._route.fileno = lambda: announced
    for _ in range(2):
        found.wake()
        found.wait(60, deaf_s)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(found._wake)
    # What is announced ends only a wait that hears of it.
    os.eventfd_write(announced, 1)
    found.wait(60, 0.0)
    started_s = time.monotonic()
    found.wait(0.05, 0.05)
    assert time.monotonic() - started_s >= 0.05
    found.wait(60, 0.05)
    assert time.monotonic() - started_s < 30
    for descriptor in (found._wake, announced):
        os.close(descriptor)


@pytest.fixture
def woken():
    """A watch whose announcements come from a socket of the test."""
    found = object.__new__(kernel_events.KernelWatch)
    found._route, there = socket.socketpair()
    found._tables, tables = socket.socketpair()
    found._wake = os.eventfd(0, os.EFD_NONBLOCK)
    yield found, there, tables
    found.close()
    assert found._route.fileno() == found._tables.fileno() == -1
    os.close(found._wake)
    there.close()
    tables.close()


def test_a_wait_ends_once_for_each_wake(woken):
    watch, there, tables = woken
    for deaf_s in 0.0, 20.0:
        watch.wake()
        watch.wake()
        watch.wait(20, deaf_s)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(watch._wake)
        watch.wait(0.001, deaf_s)
    for peer, here in (there, watch._route), (tables, watch._tables):
        peer.send(b'x')
        # It stays there for whoever reads it, and ends no deaf wait.
        watch.wait(20)
        watch.wait(0.001, 0.001)
        assert here.recv(9) == b'x'


def test_links_and_qdiscs_of_this_namespace_are_announced():
    """RTMGRP_LINK and RTMGRP_TC of rtnetlink.h; no wait has to read them."""
    # Another one, as of a test beside this one, has other ports.
    watch, other = kernel_events.KernelWatch(), kernel_events.KernelWatch()
    other.close()
    os.close(other._wake)
    try:
        # Four instructions of a filter: see SO_GET_FILTER in socket(7).
        assert len(watch._route.getsockopt(socket.SOL_SOCKET, 26, 32)) == 4
        assert watch._route.getsockopt(
            socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.NETLINK_ROUTE
        assert watch._route.getsockname()[1] == 1 | 8
        assert not watch._route.getblocking()
        # Nobody woke it yet, and no transaction is under way.
        with pytest.raises(BlockingIOError):
            os.eventfd_read(watch._wake)
        if watch._tables is not None:
            watch._tables.close()
        watch._tables = Socket(ended(OTHER))
        assert watch.changes().tables is False
        watch._tables = None
        watch.wake()
        watch.wait(20)
    finally:
        watch.close()
        os.close(watch._wake)


def test_without_the_privilege_no_socket_is_left(monkeypatch):
    made = []

    class Refused(socket.socket):
        def setsockopt(self, *args):
            made.append(self)
            raise PermissionError

    monkeypatch.setattr(kernel_events.socket, 'socket', Refused)
    assert kernel_events._listen_to_tables() is None
    assert [sock.fileno() for sock in made] == [-1]


def test_tables_are_announced_to_who_has_a_port_and_the_privilege():
    sock = kernel_events._listen_to_tables()
    if sock is None:
        pytest.skip('without CAP_NET_ADMIN nothing is announced')
    # Another one, as of a test beside this one, has another port.
    with sock, kernel_events._listen_to_tables():
        port, groups = sock.getsockname()
        assert port != 0 and groups == 1 << 6
        assert sock.getblocking() is False
        # The kernel doubles what it is asked for.
        assert sock.getsockopt(socket.SOL_SOCKET,
                               socket.SO_RCVBUF) == 2 * 4 * 2 ** 20
