# SPDX-License-Identifier: Apache-2.0

"""What an edge may say, decoded and checked at the door. Pure."""

from typing import Annotated

import msgspec

from virtco import decoding
from virtco import exception
from virtco.distribute import deltas
from virtco.wire import fields
from virtco.wire import reports


class Hello(msgspec.Struct, frozen=True, tag='hello'):
    """:ivar version: of the protocol.
    :ivar generation: of the policy that the edge has, 0 without one.
    :ivar ticket: of this host, where the controller gave one.
    """

    version: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    host: fields.Host
    epoch: fields.Generation = 0
    generation: fields.Generation = 0
    ticket: fields.Text = ''


class Ack(msgspec.Struct, frozen=True, tag='ack'):
    """The edge has taken the policy over."""

    generation: fields.Generation
    epoch: fields.Generation = 0


class Nack(msgspec.Struct, frozen=True, tag='nack'):
    """The edge refuses the policy, and the one before stays."""

    generation: fields.Generation
    error: fields.LongText
    epoch: fields.Generation = 0


class Whole(msgspec.Struct, frozen=True, tag='report'):
    report: reports.Report


class Heartbeat(msgspec.Struct, frozen=True, tag='heartbeat'):
    """The last report still holds."""


class Measured(msgspec.Struct, frozen=True, tag='measurement'):
    measurement: reports.Measurement


Said = Hello | Ack | Nack | Whole | deltas.Delta | Heartbeat | Measured
_DECODER: 'decoding.Decoder[Said]' = decoding.Decoder(Said, 'frame')


def decode(payload: bytes) -> Said:
    """:raises virtco.exception.Invalid: naming field, value and limit."""
    try:
        return _DECODER.decode(payload)
    except ValueError as error:
        raise exception.Invalid(
            field='frame', value=repr(payload[:40]),
            limit='JSON in UTF-8') from error
