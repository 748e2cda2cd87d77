# SPDX-License-Identifier: Apache-2.0

"""Orders of the controller to measure a path: a packet train, or TCP."""

from typing import Annotated

import msgspec

from virtco.wire import fields
from virtco.wire import reports

#: Length of the key of a measurement, which both of its ends get.
KEY_BYTES = 32
MAX_PACKETS = 5000
MAX_PACKET_BYTES = 8972
MAX_BULK_BYTES = 2 ** 28
Bursts = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Packets = Annotated[int, msgspec.Meta(ge=2, le=MAX_PACKETS)]
PacketBytes = Annotated[int, msgspec.Meta(ge=64, le=MAX_PACKET_BYTES)]
MOST_BULK_S = 10
BulkTime = Annotated[float, msgspec.Meta(gt=0, le=MOST_BULK_S)]


class Train(msgspec.Struct, frozen=True, tag_field='op', tag='train'):
    """A packet train.

    :ivar packets: packets of a burst.
    :ivar packet_bytes: payload of a packet.
    """

    bursts: Bursts
    packets: Packets
    packet_bytes: PacketBytes

    @property
    def size_bytes(self) -> int:
        """Payload of all packets."""
        return self.bursts * self.packets * self.packet_bytes


class Bulk(msgspec.Struct, frozen=True, tag_field='op', tag='bulk'):
    """A bulk TCP connection.

    :ivar lasts_s: the sender stops after this time, or after ``size_bytes``.
    :ivar window_s: the receiver counts bytes in windows of this length.
    """

    lasts_s: BulkTime
    size_bytes: Annotated[int, msgspec.Meta(
        ge=1, le=MAX_BULK_BYTES)] = MAX_BULK_BYTES
    window_s: Annotated[float, msgspec.Meta(
        ge=0.001, le=1)] = reports.WINDOW_S


Traffic = Train | Bulk


class _Order(msgspec.Struct, frozen=True, kw_only=True, tag_field='role',
            tag=str.lower):
    """Order to one end of a measurement.

    :ivar key: secret of the measurement, in hexadecimal digits.
    :ivar peer: host at the other end.
    :ivar start_in_s: time from the arrival of the order to the common start of
        a round of connections; null without a round.
    """

    probe_id: fields.Key
    key: Annotated[str, msgspec.Meta(
        pattern=rf'^[0-9a-f]{{{2 * KEY_BYTES}}}\Z')]
    peer: fields.Host
    start_in_s: Annotated[float, msgspec.Meta(ge=0, le=10)] | None = None


class Send(_Order, frozen=True, kw_only=True):
    """Order to send.

    :ivar address: address at which the peer receives.
    :ivar repeats: whether a train whose bursts are too short is followed by a
        longer one.
    """

    address: fields.Address
    port: fields.Port
    traffic: Traffic
    repeats: bool = True


class Receive(_Order, frozen=True, kw_only=True):
    """Order to expect traffic of the peer."""


Order = Send | Receive
