# SPDX-License-Identifier: Apache-2.0

"""Measurements that an operator asks for, and those of the schedule."""

from typing import Annotated
from typing import Literal

import msgspec

from virtco.wire import fields
from virtco.wire import operation
from virtco.wire import probe_order

#: Payload of a UDP packet that fills an Ethernet frame of 1500 bytes; senders
#: cut it to the MTU of the path.
PACKET_BYTES = 1472


class ProbeRequest(operation.Request, frozen=True, kw_only=True):
    """Pairs of hosts to measure; those without a common host at once.

    :ivar pairs: sender and receiver of each.
    :ivar kind: ``train``, taken as it is even if its bursts are too short, or
        ``bulk``, one TCP connection for ``lasts_s``.
    :ivar bursts: bursts of a train.
    :ivar packets: packets of a burst.
    :ivar packet_bytes: payload of a packet.
    :ivar lasts_s: duration of a TCP connection.
    """

    pairs: Annotated[list[tuple[fields.Host, fields.Host]],
                     msgspec.Meta(min_length=1, max_length=1000)]
    kind: Literal['train', 'bulk'] = 'train'
    bursts: probe_order.Bursts = 10
    packets: probe_order.Packets = 200
    packet_bytes: probe_order.PacketBytes = PACKET_BYTES
    lasts_s: probe_order.BulkTime = 3.0


class Ordered(operation.Response, frozen=True):
    """Id of the results of an order of measurements.

    :ivar id: id of the results.
    """

    id: str


class Result(fields.Pair, frozen=True, kw_only=True):
    """Result of a pair; without a rate where the measurement failed.

    :ivar rate_bps: measured rate.
    :ivar lower_bound: whether the path may carry more.
    :ivar loss: fraction of the packets.
    :ivar rtt_s: shortest round trip.
    :ivar sent_bytes: bytes that the measurement sent.
    :ivar windows_bytes: received in each window of a TCP connection.
    """

    rate_bps: float | msgspec.UnsetType = msgspec.UNSET
    lower_bound: bool | msgspec.UnsetType = msgspec.UNSET
    loss: float | None | msgspec.UnsetType = msgspec.UNSET
    rtt_s: float | None | msgspec.UnsetType = msgspec.UNSET
    sent_bytes: float | None | msgspec.UnsetType = msgspec.UNSET
    windows_bytes: tuple[float, ...] | None | msgspec.UnsetType = (
        msgspec.UNSET)


class Results(operation.Response, frozen=True, kw_only=True):
    """Results of a request so far.

    :ivar done: whether there is a result of each pair.
    :ivar results: results of the measured pairs.
    :ivar why: reason why it was not carried out.
    """

    done: bool
    results: list[Result]
    why: str | msgspec.UnsetType = msgspec.UNSET


class Schedule(operation.Response, frozen=True, kw_only=True):
    """State and cost of the scheduled measurements.

    :ivar enabled: whether anything is.
    :ivar n_hosts: hosts that can be measured.
    :ivar n_fresh: hosts that have all readings that they are to have.
    :ivar n_held: hosts that want a reading which the budget does not allow.
    :ivar all_pairs: whether each pair is measured, not only some per host.
    :ivar freshness_s: age at which a pair is measured again.
    :ivar under_way: pairs that are measured now.
    :ivar max_link_share: share of a link that measurements may take.
    :ivar max_bytes_per_hour: bytes that measurements may send in an hour;
        null: any number.
    :ivar last_hour_bytes: bytes that measurements sent in the last hour.
    """

    enabled: bool
    n_hosts: int
    n_fresh: int
    n_held: int
    all_pairs: bool
    freshness_s: float
    under_way: list[fields.Pair]
    max_link_share: float
    max_bytes_per_hour: float | None
    last_hour_bytes: float


SCHEDULE = operation.Operation(
    'showProbing', 'GET', '/v1/probes', Schedule,
    'Show the scheduled measurements and the use of their budget.')
ORDER = operation.Operation(
    'orderProbes', 'POST', '/v1/probes', Ordered,
    'Measure pairs of hosts soon.', body=ProbeRequest, status=202,
    conflict=operation.OVERTAKEN)
SHOW = operation.Operation(
    'showProbe', 'GET', '/v1/probes/{probe_id}', Results,
    'Show what came of ordered measurements.')
