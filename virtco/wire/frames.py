# SPDX-License-Identifier: Apache-2.0

"""Frames of the edge protocol: a length of four bytes, and as much JSON.

A relay speaks for many hosts on one connection. It puts the payload of each
host into an envelope: a zero byte, the length of the host's name, the name and
the payload, which is empty when the host is gone. JSON never begins with a
zero byte.
"""

from collections.abc import Iterator

from virtco import exception

#: Version of the protocol; a peer that speaks another one is refused by its
#: number.
VERSION = 1
HEADER_BYTES = 4
#: Limit of an edge's frame, unless the controller names another. Decoding one
#: takes 4 ms, during which no other thread runs. The rows of a longer report
#: are sent in parts (:mod:`virtco.wire.parts`).
MOST_BYTES = 256 * 1024


def frame(payload: bytes) -> bytes:
    """Put the payload's length in front of it, in four bytes, big-endian."""
    return len(payload).to_bytes(HEADER_BYTES, 'big') + payload


def enveloped(host: str, payload: bytes) -> bytes:
    """Make a frame with an envelope of one of many hosts."""
    name = host.encode()
    return frame(b'\0%c%b%b' % (len(name), name, payload))


def is_enveloped(payload: bytes) -> bool:
    """Tell whether a payload is an envelope of one of many hosts."""
    return payload[:1] == b'\0'


def opened(payload: bytes) -> tuple[str, bytes]:
    """Open an envelope: its host and payload.

    :raises virtco.exception.Invalid: for a name that is none.
    """
    end = 2 + payload[1] if len(payload) > 1 else 0
    try:
        host = payload[2:end].decode('ascii')
    except UnicodeDecodeError:
        host = ''
    if not host or len(payload) < end:
        raise exception.Invalid(field='envelope', value=repr(payload[:40]),
                                limit='the name of a host and a payload')
    return host, payload[end:]


class Reader:
    """Cuts arriving bytes into payloads.

    :ivar most_bytes: largest payload.
    """

    def __init__(self, most_bytes: int = MOST_BYTES):
        self.most_bytes = most_bytes
        self._buffer = bytearray()

    def is_empty(self) -> bool:
        """Tell whether the next byte begins a frame."""
        return not self._buffer

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        """Yield complete payloads; the next call has those that nobody took.

        :raises virtco.exception.Invalid: for a frame above the limit, as
            soon as its length is there.
        """
        self._buffer += data
        return self._cut()

    def _cut(self) -> Iterator[bytes]:
        """Yield the complete frames of the buffer, and remove them."""
        buffer = self._buffer
        start = 0
        try:
            while len(buffer) - start >= HEADER_BYTES:
                begin = start + HEADER_BYTES
                length = int.from_bytes(buffer[start:begin], 'big')
                if length > self.most_bytes:
                    raise exception.Invalid(
                        field='frame', value=f'{length} bytes',
                        limit=f'at most {self.most_bytes} bytes')
                if len(buffer) < begin + length:
                    break
                start = begin + length
                yield bytes(buffer[begin:start])
        finally:
            del buffer[:start]
