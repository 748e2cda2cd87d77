# SPDX-License-Identifier: Apache-2.0

"""The calls that need privileges, and nothing else.

It decides nothing. ``guarded`` offers the calls that take typed operations
through privsep; those that take bytes or text are for root alone.
"""

from collections.abc import Iterable
import ctypes
import errno
import functools
import itertools
import operator
import secrets
import socket
import struct
import threading

from edge_module.classify import nft_text
from edge_module.privileged import bpf
from edge_module.privileged import operations
from edge_module.qdisc import devlink

_ROUTE, _GENERIC = 0, 16
_NO_FAMILY = 0xffff
_HEADER = struct.Struct('=IHHII')
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_F_REQUEST = 1
_F_ACK = 4
_F_DUMP = 0x300
_F_DUMP_INTR = 0x10
_CHUNK_BYTES = 24 * 1024
_BUFFER_BYTES = 4 * 1024 * 1024
_TIMEOUT_S = 30.0
_DUMP_ATTEMPTS = 5
# JSON, and protocols as numbers.
_NFT_JSON_NUMERIC = 1 << 4 | 1 << 6
# Netlink ports of this module have this byte first; no process's number does,
# and the kernel gives out negative ones.
PORTS = 0x76 << 24


def open_socket(protocol: int = _ROUTE) -> socket.socket:
    """Open a netlink socket whose port marks its changes as this module's."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    sock.settimeout(_TIMEOUT_S)
    while True:
        try:
            sock.bind((PORTS | secrets.randbits(24), 0))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return sock


def split(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Split a datagram into (type, flags, sequence, body)."""
    found = []
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size:
            break
        found.append((kind, flags, sequence,
                      data[offset + _HEADER.size:offset + length]))
        offset += (length + 3) & ~3
    return found


def tc_change(changes: Iterable[operations.TcOperation]) -> list[int]:
    """Make typed changes in order; as :func:`tc_send`."""
    return tc_send([change.message() for change in changes])


def tc_send(messages: list[tuple[int, int, bytes]]) -> list[int]:
    """Send messages of rtnetlink, or of devlink, in order.

    Only the last one of a chunk asks for an acknowledgement; the kernel
    reports the errors of the others all the same.

    :returns: errno of each that failed.
    """
    failed: list[int] = []
    for protocol, some in itertools.groupby(
            map(_addressed, messages), key=operator.itemgetter(0)):
        with open_socket(protocol) as sock:
            failed += send_over(sock, [message for _, message in some])
    return failed


def send_over(sock: socket.socket, messages: list[tuple[int, int, bytes]]
              ) -> list[int]:
    """Send messages over a socket, in order; as :func:`tc_send`."""
    failed: list[int] = []
    chunk = bytearray()
    for number, (kind, flags, body) in enumerate(messages, 1):
        length = _HEADER.size + len(body)
        is_last = number == len(messages) or len(chunk) + length + len(
            messages[number][2]) >= _CHUNK_BYTES
        chunk += _HEADER.pack(length, kind, flags | _F_REQUEST
                              | _F_ACK * is_last, number, 0) + body
        if is_last:
            sock.send(chunk)
            chunk.clear()
            failed += _errors(sock, number)
    return failed


def _errors(sock: socket.socket, last: int) -> list[int]:
    """Receive the errno of each message that failed, until the one with this
    number is answered.
    """
    failed: list[int] = []
    while True:
        for kind, _, sequence, body in receive(sock):
            if kind != _NLMSG_ERROR:
                continue
            code = -struct.unpack_from('=i', body)[0]
            if code:
                failed.append(code)
            if sequence == last:
                return failed


def tc_dump(message: tuple[int, int, bytes]) -> list[bytes]:
    """Send a dump request; return the bodies of all answers.

    A dump that the kernel marks as interrupted by a change is repeated.

    :raises OSError: when the kernel refuses the dump.
    """
    for _ in range(_DUMP_ATTEMPTS):
        *answers, end = _answers(message, _F_DUMP)
        if not any(flags & _F_DUMP_INTR for flags, _ in (*answers, end)):
            break
    return [body for _, body in answers]


def ask(message: tuple[int, int, bytes], protocol: int = _ROUTE) -> bytes:
    """Send a request with a single answer; return the body of the answer.

    :raises OSError: when the kernel refuses, or only acknowledges.
    """
    (_, body), *_ = _answers(message, _F_ACK, protocol)
    return body


def _addressed(message: tuple[int, int, bytes], protocol: int = _ROUTE
               ) -> tuple[int, tuple[int, int, bytes]]:
    """Return a message with its type, and the protocol that has it."""
    if message[0] != devlink.KIND:
        return protocol, message
    return _GENERIC, (_devlink(), message[1], message[2])


@functools.cache
def _devlink() -> int:
    """Ask for the type of devlink's messages.

    :returns: for a kernel without devlink, a type that it refuses.
    """
    try:
        return devlink.family(ask(devlink.FAMILY, _GENERIC))
    except FileNotFoundError:
        return _NO_FAMILY


def _answers(message: tuple[int, int, bytes], more_flags: int,
             protocol: int = _ROUTE) -> list[tuple[int, bytes]]:
    """Send a request; return flags and body of each message of the answer.

    :raises OSError: when the kernel refuses, or only acknowledges.
    """
    protocol, (kind, flags, body) = _addressed(message, protocol)
    found: list[tuple[int, bytes]] = []
    with open_socket(protocol) as sock:
        sock.send(_HEADER.pack(_HEADER.size + len(body), kind,
                               flags | more_flags | _F_REQUEST, 1, 0) + body)
        while True:
            for kind, flags, _, answer in receive(sock):
                if kind == _NLMSG_ERROR:
                    raise OSError(-struct.unpack_from('=i', answer)[0],
                                  'netlink')
                found.append((flags, answer))
            if kind == _NLMSG_DONE or more_flags != _F_DUMP:
                return found


def receive(sock: socket.socket) -> list[tuple[int, int, int, bytes]]:
    """Receive the next datagram, of 32 KiB at most, and split it."""
    return split(sock.recv(1 << 17))


_nft_lock = threading.Lock()


@functools.cache
def _libnftables() -> ctypes.CDLL:
    library = ctypes.CDLL('libnftables.so.1')
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_get_output_buffer.restype = ctypes.c_char_p
    library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    return library


def nft_run(commands: str) -> tuple[int, str, str]:
    """Run nft commands in process, as one transaction.

    :returns: exit code, output (JSON), errors.
    :raises OSError: for lack of file descriptors.
    """
    with _nft_lock:
        # libnftables ends the process when it gets no socket.
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
        library = _libnftables()
        # A context of its own per call: one that is kept has a stale idea of
        # tables that others, or a restart of the network, took away.
        context = ctypes.c_void_p(library.nft_ctx_new(0))
        try:
            library.nft_ctx_buffer_output(context)
            library.nft_ctx_buffer_error(context)
            library.nft_ctx_output_set_flags(context, _NFT_JSON_NUMERIC)
            code = library.nft_run_cmd_from_buffer(context, commands.encode())
            return (code, library.nft_ctx_get_output_buffer(context).decode(),
                    library.nft_ctx_get_error_buffer(context).decode())
        finally:
            library.nft_ctx_free(context)


def nft_change(hook: operations.HookName,
               changes: Iterable[operations.ClassifyOperation]) -> str | None:
    """Make typed changes as one transaction; errors of nft, or None."""
    at = nft_text.HOOKS[hook]
    code, _, errors = nft_run(''.join(
        change.commands(at) for change in changes))
    return errors or 'refused' if code else None


def nft_read(listings: Iterable[operations.Listing]) -> list[str | None]:
    """Read parts of virtco's table as JSON; None where there is none."""
    # nftables 1.0.6 lists only the last of several sets in one text.
    found = (nft_run(listing.command()) for listing in listings)
    return [None if code else output for code, output, _ in found]


bpf_change, bpf_read, bpf_missing = (
    bpf.bpf_change, bpf.bpf_read, bpf.bpf_missing)


def alive() -> bool:
    """Return True: in this process the calls can always be made."""
    return True


def cpu_s() -> float:
    """Return 0: the calls take the time of this process, of no other."""
    return 0.0
