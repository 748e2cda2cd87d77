# SPDX-License-Identifier: Apache-2.0

"""Reports and measurements of edge modules: their only description.

The edge module builds these values, the doors of the controller decode them
(:mod:`virtco.decoding`), the API's document is generated from them, and all
who read a report read these fields. Fields of another release are ignored.
Counters are cumulative since ``epoch``; bytes are those on the wire, as the
queueing discipline counts them.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from virtco import exception
from virtco.wire import fields

#: Limit of a whole report, in one frame or in parts: 10,000 coflows that send
#: to one host each need 1.6 MB.
MOST_BYTES = 2 * 1024 * 1024
MOST_COFLOWS = 10_000
MOST_PAIRS = 100_000
MOST_PORTS = 10_000
#: Destinations of all coflows together: a qdisc has no more classes.
MOST_CHILDREN = 65_535
#: Length of a window of a bulk connection.
WINDOW_S = 0.01
RoundTrip = Annotated[float, msgspec.Meta(ge=0, le=3600)]


# Untracked by the garbage collector, which would look through the thousands
# of rows of a report while no other thread runs: none is part of a cycle.
class Link(msgspec.Struct, frozen=True, gc=False):
    """The uplink; a rate is null where the device does not tell.

    :ivar macs: addresses of the host's own devices, to which VMs may send.
    """

    egress_bps: fields.LinkRate | None
    ingress_bps: fields.LinkRate | None
    dev: fields.Name | None = None
    macs: Annotated[tuple[fields.Mac, ...],
                    msgspec.Meta(max_length=1024)] = ()


class Responder(msgspec.Struct, frozen=True, gc=False):
    """Where packet trains of other hosts are received."""

    address: fields.Address
    port: fields.Port


class Port(msgspec.Struct, frozen=True, gc=False):
    """A VM's port on the virtual switch.

    :ivar notes: why its traffic is not, or not all, managed.
    :ivar egress_cap_bps: the most that the VM sends by it, as the device is
        set; null: no limit.
    :ivar ingress_cap_bps: the most that the VM receives by it, likewise.
    """

    vm: fields.Id
    dev: fields.Name | None = None
    mac: Annotated[str, msgspec.Meta(max_length=32)] = ''
    ips: Annotated[tuple[fields.Address, ...],
                   msgspec.Meta(max_length=256)] = ()
    notes: Annotated[tuple[fields.LongText, ...],
                     msgspec.Meta(max_length=64)] = ()
    egress_cap_bps: fields.LinkRate | None = None
    ingress_cap_bps: fields.LinkRate | None = None


class DestinationCounter(msgspec.Struct, frozen=True, gc=False):
    """Counter of a child class of a coflow.

    :ivar backlog_bytes: in its queue now.
    """

    host: fields.Host
    sent_bytes: fields.Bytes
    backlog_bytes: fields.Bytes = 0


class CoflowCounters(msgspec.Struct, frozen=True, gc=False):
    """Counters of a coflow's class.

    :ivar drops: packets.
    :ivar backlog_bytes: in its queue now.
    :ivar destinations: counters of its child classes; they may be fewer than
        all.
    """

    coflow_id: fields.Id
    sent_bytes: fields.Bytes
    sent_packets: fields.Bytes = 0
    drops: fields.Bytes = 0
    backlog_bytes: fields.Bytes = 0
    destinations: Annotated[tuple[DestinationCounter, ...], msgspec.Meta(
        max_length=MOST_COFLOWS)] = ()

    @property
    def key(self) -> tuple[str]:
        return (self.coflow_id,)


class PairCounter(msgspec.Struct, frozen=True, gc=False):
    """Counter of a pair of VMs at the sender's port."""

    src_ip: fields.Address
    dst_ip: fields.Address
    sent_bytes: fields.Bytes
    dev: fields.Name | None = None
    dst_port: fields.Port | None = None
    sent_packets: fields.Bytes = 0

    @property
    def key(self) -> tuple[str | None, str, str, int | None]:
        return self.dev, self.src_ip, self.dst_ip, self.dst_port


class PeerCounter(msgspec.Struct, frozen=True, gc=False):
    """Counter of bytes of no coflow from a port to an address."""

    dev: fields.Name
    dst_ip: fields.Address
    sent_bytes: fields.Bytes
    sent_packets: fields.Bytes


class PartCounters(msgspec.Struct, frozen=True, gc=False):
    """Counters of a part of the uplink other than the coflows' data."""

    sent_bytes: fields.Bytes = 0
    drops: fields.Bytes = 0
    backlog_bytes: fields.Bytes = 0


class LimitCounter(msgspec.Struct, frozen=True, gc=False):
    """Counter of unmanaged traffic to a limited destination.

    :ivar host: name of the destination; null: all others.
    """

    host: fields.Host | None
    sent_bytes: fields.Bytes
    backlog_bytes: fields.Bytes = 0


class UnmanagedCounters(msgspec.Struct, frozen=True):
    """Counters of traffic without a coflow, by destination.

    :ivar macs: addresses to which packets of no coflow went in the last
        seconds.
    :ivar limited: counters of the classes with a limit.
    """

    macs: Annotated[tuple[fields.Mac, ...],
                    msgspec.Meta(max_length=1024)] = ()
    limited: Annotated[tuple[LimitCounter, ...],
                       msgspec.Meta(max_length=64)] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Report of an edge module on its host.

    :ivar boot_ms: time of the report since the boot ``boot_id``. A report that
        arrives after a later one, such as by a relay that was halted, is not
        counted.
    :ivar pairs: counters by which coflows end that have no class.
    :ivar peers: other bytes that VMs sent, for their profiles.
    :ivar default_sent_bytes: bytes that belong to no coflow.
    :ivar unshaped_sent_bytes: bytes of the uplink that pass no class: RDMA and
        queues of other programs.
    :ivar rdma_received_bytes: bytes of RDMA that came by the uplink.
    :ivar shared: counters of the parts ``host``, ``unmanaged`` and
        ``control``.
    :ivar error: why a policy was refused or is not, or not all, enforced;
        while health is ok, who else shapes the uplink.
    :ivar cpu_s: processor time of the edge module.
    """

    epoch: fields.Key
    applied_generation: fields.Generation
    link: Link
    ports: Annotated[tuple[Port, ...], msgspec.Meta(
        max_length=MOST_PORTS)]
    coflows: Annotated[tuple[CoflowCounters, ...], msgspec.Meta(
        max_length=MOST_COFLOWS)]
    uplink_sent_bytes: fields.Bytes
    boot_id: Annotated[str, msgspec.Meta(max_length=64)] = ''
    boot_ms: Annotated[int, msgspec.Meta(ge=0, le=2 ** 53)] | None = None
    probe: Responder | None = None
    pairs: Annotated[tuple[PairCounter, ...], msgspec.Meta(
        max_length=MOST_PAIRS)] = ()
    peers: Annotated[tuple[PeerCounter, ...], msgspec.Meta(
        max_length=MOST_PAIRS)] = ()
    default_sent_bytes: fields.Bytes = 0
    unshaped_sent_bytes: fields.Bytes = 0
    rdma_received_bytes: fields.Bytes = 0
    shared: Annotated[Mapping[str, PartCounters],
                      msgspec.Meta(max_length=16)] = {}
    unmanaged: UnmanagedCounters = UnmanagedCounters()
    health: fields.LongText | None = None
    error: fields.LongText | None = None
    cpu_s: fields.Amount | None = None


#: The most rows of each table.
MOST_ROWS = {'coflows': MOST_COFLOWS, 'pairs': MOST_PAIRS,
             'peers': MOST_PAIRS, 'ports': MOST_PORTS}


def check(report: Report) -> None:
    """Check the rows of a report that several messages told.

    :raises virtco.exception.Invalid: for more rows than a report may have.
    """
    for name, most in MOST_ROWS.items():
        n_rows = len(getattr(report, name))
        if n_rows > most:
            raise exception.Invalid(field=name, value=n_rows,
                                    limit=f'at most {most} in a report')
    n_children = sum(len(row.destinations) for row in report.coflows)
    if n_children > MOST_CHILDREN:
        raise exception.Invalid(
            field='coflows', value=f'{n_children} destinations',
            limit=f'at most {MOST_CHILDREN} in a report')


#: Report of a host that has not reported yet.
NO_REPORT = Report(epoch='', applied_generation=0, link=Link(None, None),
                   ports=(), coflows=(), uplink_sent_bytes=0)


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a packet train, or of a connection.

    :ivar lower_bound: the path is at least that fast.
    :ivar loss: share of the packets.
    :ivar rtt_s: the least of several round trips.
    :ivar windows_bytes: bytes that a bulk connection received in each
        :data:`WINDOW_S`.
    :ivar sent_bytes: bytes that it cost; None when the sender does not say.
    """

    probe_id: fields.Key
    src: fields.Host
    dst: fields.Host
    rate_bps: fields.LinkRate
    lower_bound: bool = False
    loss: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    rtt_s: RoundTrip | None = None
    rtt_median_s: RoundTrip | None = None
    rtt_p99_s: RoundTrip | None = None
    sent_bytes: fields.Bytes | None = None
    windows_bytes: Annotated[list[fields.Count], msgspec.Meta(
        max_length=1500)] | None = None
    method: Annotated[str, msgspec.Meta(max_length=64)] = ''
