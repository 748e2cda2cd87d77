# SPDX-License-Identifier: Apache-2.0

"""Frames of the edge protocol: a length of four bytes, and as much JSON.

The edge module and the distributor share this module; msgspec is all that it
needs.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from virtco import exception

#: Of the protocol; whoever speaks another one is refused by its number.
VERSION = 2
HEADER_BYTES = 4
#: What an edge may send at once, unless the controller says otherwise.
MOST_BYTES = 4 * 1024 * 1024
MOST_DEPTH = 64


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(HEADER_BYTES, 'big') + payload


def pack(kind: str, **fields: Any) -> bytes:
    """A whole frame."""
    return frame(msgspec.json.encode({'type': kind, **fields}))


class Reader:
    """Cuts what arrives into payloads."""

    def __init__(self, most_bytes: int = MOST_BYTES):
        self._most_bytes = most_bytes
        self._buffer = bytearray()

    def is_empty(self) -> bool:
        """Whether the next byte begins a frame."""
        return not self._buffer

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads that are complete.

        :raises virtco.exception.Invalid: for a frame above the limit, as
            soon as its length is there.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= HEADER_BYTES:
            begin = start + HEADER_BYTES
            length = int.from_bytes(buffer[start:begin], 'big')
            if length > self._most_bytes:
                raise exception.Invalid(
                    field='frame', value=f'{length} bytes',
                    limit=f'at most {self._most_bytes} bytes')
            if len(buffer) < begin + length:
                break
            start = begin + length
            yield bytes(buffer[begin:start])
        del buffer[:start]


def unpack(payload: bytes) -> dict[str, Any]:
    """The message of a payload, for the side that trusts the other one.

    :raises virtco.exception.Invalid:
    """
    try:
        message = msgspec.json.decode(payload)
    except (ValueError, RecursionError) as error:
        raise exception.Invalid(field='frame', value=repr(payload[:40]),
                                limit='JSON') from error
    return checked(message)


def checked(message: Any) -> dict[str, Any]:
    """:raises virtco.exception.Invalid: for what is no message."""
    if not isinstance(message, dict) or not isinstance(
            message.get('type'), str):
        raise exception.Invalid(field='frame', value=repr(message)[:80],
                                limit='an object with a type')
    if is_deeper(message, MOST_DEPTH):
        raise exception.Invalid(field='frame', value='deep nesting',
                                limit=f'at most {MOST_DEPTH} levels')
    return message


def is_deeper(value: Any, most: int) -> bool:
    """Whether lists and objects are nested deeper than ``most`` levels."""
    level = [value]
    for _ in range(most):
        level = [child for item in level for child in (
            item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))]
        if not level:
            return False
    return True
