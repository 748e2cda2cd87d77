# SPDX-License-Identifier: Apache-2.0

"""The policy document: the whole truth for one host at one generation.

The controller encodes it as it is, the edge module reads it
(:meth:`EdgePolicy.from_dict`, which refuses a malformed document whole).
"""

from collections.abc import Iterable
from collections.abc import Iterator
import functools
import ipaddress
from typing import Annotated
from typing import Any
from typing import NoReturn
from typing import TypeVar

import msgspec
from msgspec import structs

from virtco import decoding
from virtco import exception
from virtco.wire import fields

#: Major of the classes' ids, as in ``7000:10``. Open vSwitch and OVN have 1.
CLASS_MAJOR = 0x7000
ROOT_MINOR = 1
DEFAULT_MINOR = 2
FIRST_MINOR = 0x10
LAST_MINOR = 0x6fff  # the edge module derives its own from the others
PRIOS = 8
MAX_CLASSES = LAST_MINOR - FIRST_MINOR + 1
MAX_FLOWS = 1_000_000
# Classes for one destination of unmanaged traffic; one more is for all others.
MAX_LIMITS = 63
MAX_MACS = 1024

Minor = Annotated[int, msgspec.Meta(ge=FIRST_MINOR, le=LAST_MINOR)]
#: In bits per second: a byte per second is the least that HTB takes.
WholeRate = Annotated[float, msgspec.Meta(ge=8, le=1e13)]
ShareRate = Annotated[float, msgspec.Meta(ge=0, le=1e13)]
Macs = Annotated[tuple[fields.Mac, ...], msgspec.Meta(max_length=MAX_MACS)]


class Destination(msgspec.Struct, frozen=True, gc=False):
    """Child class of a coflow for its bytes from here to one host.

    :ivar host: name of the host that receives.
    :ivar minor: HTB minor of the child, stable for the pair's life.
    :ivar weight: w = p/s of VirtCO Eq. (2); the weights of a class sum to 1.
    :ivar rate_bps: guaranteed rate.
    :ivar ceil_bps: upper limit.
    :ivar macs: addresses of the coflow's VMs there, where all are known.
    """

    host: fields.Name
    minor: Minor
    weight: Annotated[float, msgspec.Meta(ge=0, le=1 + 1e-6)]
    rate_bps: ShareRate
    ceil_bps: WholeRate
    macs: Macs = ()


class CoflowClass(msgspec.Struct, frozen=True, gc=False):
    """The class of a coflow on this host.

    :ivar coflow_id: id of the coflow.
    :ivar name: name of the coflow.
    :ivar minor: HTB minor of the coflow's class, stable for its life.
    :ivar rate_bps: guaranteed rate.
    :ivar ceil_bps: upper limit.
    :ivar prio: place in the order of the host's coflows, 0 (first) to 7 (this
        one and all later ones); decides about leftover bandwidth only.
    :ivar destinations: child classes, one for each host that it sends to.
    """

    coflow_id: fields.Name
    name: fields.Text
    minor: Minor
    rate_bps: ShareRate
    ceil_bps: WholeRate
    prio: Annotated[int, msgspec.Meta(ge=0, le=PRIOS - 1)]
    destinations: Annotated[tuple[Destination, ...],
                            msgspec.Meta(max_length=MAX_CLASSES)]


class FlowEntry(msgspec.Struct, frozen=True, gc=False):
    """Packets of VM src_vm from src_ip to dst_ip go to class ``minor``.

    :ivar coflow_id: id of the coflow.
    :ivar src_vm: instance that sends.
    :ivar src_ip: address of the instance that sends.
    :ivar dst_ip: address of the instance that receives.
    :ivar minor: minor of a Destination; :data:`DEFAULT_MINOR` for a pair that
        is only counted.
    :ivar dst_port: TCP/UDP destination port, None = any.
    """

    coflow_id: fields.Name
    src_vm: fields.Name
    src_ip: fields.Address
    dst_ip: fields.Address
    minor: Annotated[int, msgspec.Meta(ge=DEFAULT_MINOR, le=LAST_MINOR)]
    dst_port: fields.Port | None = None


class ReceivedPair(msgspec.Struct, frozen=True, gc=False):
    """Packets that arrive here for a coflow, as the receiver tells them.

    :ivar src_ip: address of the instance that sends.
    :ivar dst_ip: address of the instance that receives.
    :ivar dst_port: TCP/UDP destination port, None = any.
    """

    src_ip: fields.Address
    dst_ip: fields.Address
    dst_port: fields.Port | None = None


class DestinationLimit(msgspec.Struct, frozen=True, gc=False):
    """Limit of the unmanaged traffic of all VMs here to one other host.

    :ivar host: name of the other host.
    :ivar slot: number of its class, 1 to :data:`MAX_LIMITS`; stays while it
        is limited.
    :ivar rate_bps: upper limit.
    :ivar macs: addresses of the VMs there, as ``aa:bb:cc:dd:ee:ff``.
    """

    host: fields.Name
    slot: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMITS)]
    rate_bps: WholeRate
    macs: Macs


class Unmanaged(msgspec.Struct, frozen=True, gc=False):
    """Limits by which senders protect coflows where these arrive.

    :ivar others_bps: limit of what goes to everybody at once (broadcast), and
        to ``others_macs``.
    :ivar others_macs: addresses of VMs at hosts without a limit of their own,
        and addresses that VMs at several hosts have.
    :ivar limits: limits to single hosts.
    """

    others_bps: WholeRate
    others_macs: Macs = ()
    limits: Annotated[tuple[DestinationLimit, ...],
                      msgspec.Meta(max_length=MAX_LIMITS)] = ()


class EdgePolicy(msgspec.Struct, frozen=True, gc=False):
    """Policy of one host.

    :ivar host: name of the host.
    :ivar generation: number of the policy, higher than that of earlier ones.
    :ivar ttl_s: time for which it holds without a controller.
    :ivar egress_bps: rate out of the host that coflows are scheduled by.
    :ivar ingress_bps: rate into the host that coflows are scheduled by.
    :ivar default_rate_bps: guaranteed to everything unmanaged.
    :ivar classes: classes of the coflows that send from here.
    :ivar flows: packets that belong to each class.
    :ivar received: limits that a receiver needs that protects its coflows from
        other traffic; empty where none does.
    :ivar unmanaged: None follows and limits nothing.
    """

    host: fields.Name
    generation: Annotated[int, msgspec.Meta(ge=0, le=2 ** 63 - 1)]
    ttl_s: Annotated[float, msgspec.Meta(ge=0, le=7 * 86400)]
    egress_bps: WholeRate
    ingress_bps: WholeRate
    default_rate_bps: WholeRate
    classes: Annotated[tuple[CoflowClass, ...],
                       msgspec.Meta(max_length=MAX_CLASSES)] = ()
    flows: Annotated[tuple[FlowEntry, ...],
                     msgspec.Meta(max_length=MAX_FLOWS)] = ()
    received: Annotated[tuple[ReceivedPair, ...],
                        msgspec.Meta(max_length=MAX_FLOWS)] = ()
    unmanaged: Unmanaged | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the document as JSON values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_dict(cls, document: Any) -> 'EdgePolicy':
        """Read a document; a malformed one is refused whole.

        Fields that are not known are ignored, so that an older edge module
        reads the document of a newer controller.

        :raises virtco.exception.PolicyInvalid: naming field, value and limit.
        """
        try:
            return _checked(_READER.convert(document))
        except exception.Invalid as error:
            raise exception.PolicyInvalid(**error.kwargs) from None


_Pair = TypeVar('_Pair', FlowEntry, ReceivedPair)
_READER: 'decoding.Decoder[EdgePolicy]' = decoding.Decoder(
    EdgePolicy, 'document')


def _checked(policy: EdgePolicy) -> EdgePolicy:
    """Check fields against each other; write addresses in their short form.

    A minor is used once, and a flow has a class of its coflow or none.
    """
    used: set[int] = set()
    leaves: dict[int, str] = {}
    for position, coflow in enumerate(policy.classes):
        path = f'classes[{position}]'
        _unused(used, coflow.minor, f'{path}.minor')
        for index, destination in enumerate(coflow.destinations):
            _unused(used, destination.minor,
                    f'{path}.destinations[{index}].minor')
            leaves[destination.minor] = coflow.coflow_id
    limits = policy.unmanaged.limits if policy.unmanaged else ()
    slots: set[int] = set()
    for position, limit in enumerate(limits):
        _unused(slots, limit.slot, f'unmanaged.limits[{position}].slot')
    if policy.default_rate_bps > policy.egress_bps:
        _refuse('default_rate_bps', policy.default_rate_bps,
                f'at most egress_bps ({policy.egress_bps})')
    for position, flow in enumerate(policy.flows):
        if (flow.minor != DEFAULT_MINOR
                and leaves.get(flow.minor) != flow.coflow_id):
            _refuse(f'flows[{position}].minor', flow.minor,
                    f'the minor of a destination of {flow.coflow_id}')
    return structs.replace(
        policy, flows=tuple(_shortened(policy.flows, 'flows')),
        received=tuple(_shortened(policy.received, 'received')))


def _shortened(pairs: Iterable[_Pair], field: str) -> Iterator[_Pair]:
    """Check addresses, and write each in its shortest form."""
    for position, pair in enumerate(pairs):
        try:
            ends = _ends(pair.src_ip, pair.dst_ip)
        except exception.Invalid as error:
            _refuse(f'{field}[{position}].{error.kwargs["field"]}',
                    error.kwargs['value'], error.kwargs['limit'])
        yield (pair if ends == (pair.src_ip, pair.dst_ip)
               else structs.replace(pair, src_ip=ends[0], dst_ip=ends[1]))


# Each policy of a host has the same pairs and addresses.
@functools.lru_cache(16_384)
def _ends(src_ip: str, dst_ip: str) -> tuple[str, str]:
    """Return the shortest forms of a pair's addresses, of one IP version."""
    src, dst = _address('src_ip', src_ip), _address('dst_ip', dst_ip)
    if src.version != dst.version:
        _refuse('dst_ip', dst_ip, 'an address of the IP version of src_ip')
    return str(src), str(dst)


@functools.lru_cache(16_384)
def _address(field: str, text: str
             ) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        _refuse(field, text, 'an IPv4 or IPv6 address')


def _unused(used: set[int], minor: int, field: str) -> None:
    if minor in used:
        _refuse(field, minor, 'a number used once in the document')
    used.add(minor)


def _refuse(field: str, value: Any, limit: str) -> NoReturn:
    raise exception.Invalid(field=field, value=value, limit=limit)
