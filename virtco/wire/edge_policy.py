# SPDX-License-Identifier: Apache-2.0

"""The policy document: the whole truth for one host at one generation.

The controller writes it (:meth:`EdgePolicy.to_dict`), the edge module reads
it (:meth:`EdgePolicy.from_dict`, which refuses a malformed document whole).
"""

import dataclasses
import ipaddress
import math
import re
from typing import Any
from typing import NoReturn

from virtco import exception

ROOT_MINOR = 1
DEFAULT_MINOR = 2
FIRST_MINOR = 0x10
LAST_MINOR = 0x6fff  # the edge module derives its own from the others
PRIOS = 8
MAX_CLASSES = LAST_MINOR - FIRST_MINOR + 1
MAX_FLOWS = 1_000_000
MAX_TEXT = 255
# Of destinations of unmanaged traffic; one more class is for all others.
MAX_LIMITS = 63
MAX_MACS = 1024
MAX_RATE_BPS = 1e13
MAX_TTL_S = 7 * 86400.0
MAC = re.compile(r'[0-9a-f]{2}(?::[0-9a-f]{2}){5}')


@dataclasses.dataclass(frozen=True, slots=True)
class Destination:
    """Child class of a coflow: what it sends from here to one host.

    :ivar minor: HTB minor of the child, stable for the pair's life.
    :ivar weight: w = p/s of VirtCO Eq. (2); the weights of a class sum to 1.
    """

    host: str
    minor: int
    weight: float
    rate_bps: float
    ceil_bps: float


@dataclasses.dataclass(frozen=True, slots=True)
class CoflowClass:
    """One coflow on this host.

    :ivar minor: HTB minor of the coflow's class, stable for its life.
    :ivar prio: place in the order of the host's coflows, 0 (first) to 7 (this
        one and all later ones); decides about leftover bandwidth only.
    """

    coflow_id: str
    name: str
    minor: int
    rate_bps: float
    ceil_bps: float
    prio: int
    destinations: tuple[Destination, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class FlowEntry:
    """Packets of VM src_vm from src_ip to dst_ip go to class ``minor``.

    :ivar minor: minor of a Destination; :data:`DEFAULT_MINOR` for a pair that
        is only counted.
    :ivar dst_port: TCP/UDP destination port, None = any.
    """

    coflow_id: str
    src_vm: str
    src_ip: str
    dst_ip: str
    minor: int
    dst_port: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedPair:
    """Packets that arrive here for a coflow, as the receiver tells them.

    :ivar dst_port: TCP/UDP destination port, None = any.
    """

    src_ip: str
    dst_ip: str
    dst_port: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DestinationLimit:
    """What all VMs here together may send unmanaged to one other host.

    :ivar slot: number of its class, 1 to :data:`MAX_LIMITS`; stays while it
        is limited.
    :ivar macs: of the VMs there, as ``aa:bb:cc:dd:ee:ff``.
    """

    host: str
    slot: int
    rate_bps: float
    macs: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Unmanaged:
    """Limits by which senders protect coflows where these arrive.

    :ivar others_bps: limit of what goes to everybody at once (broadcast), and
        to ``others_macs``.
    :ivar others_macs: of VMs at hosts for which there is no limit of their
        own left.
    """

    others_bps: float
    others_macs: tuple[str, ...] = ()
    limits: tuple[DestinationLimit, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class EdgePolicy:
    """Policy of one host.

    :ivar default_rate_bps: guaranteed to everything unmanaged.
    :ivar ttl_s: how long it holds without a controller.
    :ivar received: what a receiver that protects its coflows from other
        traffic must know; empty where none does.
    :ivar unmanaged: None follows and limits nothing.
    """

    host: str
    generation: int
    ttl_s: float
    egress_bps: float
    ingress_bps: float
    default_rate_bps: float
    classes: tuple[CoflowClass, ...] = ()
    flows: tuple[FlowEntry, ...] = ()
    received: tuple[ReceivedPair, ...] = ()
    unmanaged: Unmanaged | None = None

    def to_dict(self) -> dict[str, Any]:
        """The document as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, document: Any) -> 'EdgePolicy':
        """Read a document; a malformed one is refused whole.

        Fields that are not known are ignored, so that an older edge module
        reads the document of a newer controller.

        :raises virtco.exception.PolicyInvalid: naming field, value and limit.
        """
        top = _Reader('', document)
        policy = cls(
            host=top.text('host'),
            generation=top.integer('generation', 0, 2 ** 63 - 1),
            ttl_s=top.number('ttl_s', 0.0, MAX_TTL_S),
            egress_bps=top.number('egress_bps', 8.0, MAX_RATE_BPS),
            ingress_bps=top.number('ingress_bps', 8.0, MAX_RATE_BPS),
            default_rate_bps=top.number('default_rate_bps', 8.0,
                                        MAX_RATE_BPS),
            classes=tuple(_read_class(item) for item in top.items(
                'classes', MAX_CLASSES)),
            flows=tuple(_read_flow(item) for item in top.items(
                'flows', MAX_FLOWS)),
            received=tuple(_read_received(item) for item in top.items(
                'received', MAX_FLOWS)),
            unmanaged=_read_unmanaged(top))
        _check_whole(policy)
        return policy


def _read_class(item: '_Reader') -> CoflowClass:
    return CoflowClass(
        coflow_id=item.text('coflow_id'),
        name=item.text('name', ''),
        minor=item.integer('minor', FIRST_MINOR, LAST_MINOR),
        rate_bps=item.number('rate_bps', 0.0, MAX_RATE_BPS),
        ceil_bps=item.number('ceil_bps', 8.0, MAX_RATE_BPS),
        prio=item.integer('prio', 0, PRIOS - 1),
        destinations=tuple(_read_destination(child) for child in item.items(
            'destinations', MAX_CLASSES)))


def _read_destination(item: '_Reader') -> Destination:
    return Destination(
        host=item.text('host'),
        minor=item.integer('minor', FIRST_MINOR, LAST_MINOR),
        weight=item.number('weight', 0.0, 1.0 + 1e-6),
        rate_bps=item.number('rate_bps', 0.0, MAX_RATE_BPS),
        ceil_bps=item.number('ceil_bps', 8.0, MAX_RATE_BPS))


def _read_flow(item: '_Reader') -> FlowEntry:
    return FlowEntry(
        coflow_id=item.text('coflow_id'),
        src_vm=item.text('src_vm'),
        src_ip=item.address('src_ip'),
        dst_ip=item.address('dst_ip'),
        minor=item.integer('minor', DEFAULT_MINOR, LAST_MINOR),
        dst_port=item.optional_port('dst_port'))


def _read_received(item: '_Reader') -> ReceivedPair:
    pair = ReceivedPair(src_ip=item.address('src_ip'),
                        dst_ip=item.address('dst_ip'),
                        dst_port=item.optional_port('dst_port'))
    if (':' in pair.src_ip) != (':' in pair.dst_ip):
        item.fail('dst_ip', pair.dst_ip, 'of the same IP version as src_ip')
    return pair


def _read_unmanaged(top: '_Reader') -> Unmanaged | None:
    if top.value.get('unmanaged') is None:
        return None
    item = _Reader('unmanaged', top.value['unmanaged'])
    return Unmanaged(
        others_bps=item.number('others_bps', 8.0, MAX_RATE_BPS),
        others_macs=item.macs('others_macs'),
        limits=tuple(DestinationLimit(
            host=limit.text('host'),
            slot=limit.integer('slot', 1, MAX_LIMITS),
            rate_bps=limit.number('rate_bps', 8.0, MAX_RATE_BPS),
            macs=limit.macs('macs'))
            for limit in item.items('limits', MAX_LIMITS)))


def _check_whole(policy: EdgePolicy) -> None:
    """What no single field shows: unique minors, flows that have a class."""
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
        raise exception.PolicyInvalid(
            field='default_rate_bps', value=policy.default_rate_bps,
            limit=f'at most egress_bps, {policy.egress_bps}')
    for position, flow in enumerate(policy.flows):
        path = f'flows[{position}]'
        if (flow.minor != DEFAULT_MINOR
                and leaves.get(flow.minor) != flow.coflow_id):
            raise exception.PolicyInvalid(
                field=f'{path}.minor', value=flow.minor,
                limit=f'the minor of a destination of {flow.coflow_id}')
        if (':' in flow.src_ip) != (':' in flow.dst_ip):
            raise exception.PolicyInvalid(
                field=f'{path}.dst_ip', value=flow.dst_ip,
                limit='of the same IP version as src_ip')


def _unused(used: set[int], minor: int, field: str) -> None:
    if minor in used:
        raise exception.PolicyInvalid(
            field=field, value=minor, limit='used once in the document')
    used.add(minor)


class _Reader:
    """Typed access to one JSON object that remembers where it stands."""

    def __init__(self, path: str, value: Any):
        self.path = path
        if not isinstance(value, dict):
            self.fail('', value, 'a JSON object')
        self.value: dict[str, Any] = value

    def fail(self, key: str, value: Any, limit: str) -> NoReturn:
        field = '.'.join(part for part in (self.path, key) if part)
        shown = repr(value)
        if len(shown) > 80:
            shown = shown[:77] + '...'
        raise exception.PolicyInvalid(field=field or 'document', value=shown,
                                      limit=limit)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.value.get(key, default)
        if not isinstance(value, str) or len(value) > MAX_TEXT or (
                not value and default is None):
            self.fail(key, value, f'a text of 1 to {MAX_TEXT} characters')
        return value

    def integer(self, key: str, low: int, high: int) -> int:
        value = self.value.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not (
                low <= value <= high):
            self.fail(key, value, f'a whole number from {low} to {high}')
        return value

    def number(self, key: str, low: float, high: float) -> float:
        value = self.value.get(key)
        if isinstance(value, bool) or not isinstance(
                value, (int, float)) or not math.isfinite(value) or not (
                low <= value <= high):
            self.fail(key, value, f'a number from {low:g} to {high:g}')
        return float(value)

    def items(self, key: str, most: int) -> list['_Reader']:
        value = self.value.get(key, [])
        if not isinstance(value, (list, tuple)) or len(value) > most:
            self.fail(key, value, f'a list of at most {most} entries')
        prefix = f'{self.path}.{key}' if self.path else key
        return [_Reader(f'{prefix}[{index}]', item)
                for index, item in enumerate(value)]

    def address(self, key: str) -> str:
        value = self.value.get(key)
        try:
            # A zone (``fe80::1%eth0``) may hold any text at all.
            if not isinstance(value, str) or '%' in value:
                raise ValueError
            return str(ipaddress.ip_address(value))
        except ValueError:
            self.fail(key, value, 'an IPv4 or IPv6 address')

    def macs(self, key: str) -> tuple[str, ...]:
        value = self.value.get(key, [])
        if not isinstance(value, (list, tuple)) or len(value) > MAX_MACS:
            self.fail(key, value, f'a list of at most {MAX_MACS} addresses')
        for mac in value:
            if not isinstance(mac, str) or not MAC.fullmatch(mac):
                self.fail(key, mac, 'an Ethernet address in small letters')
        return tuple(value)

    def optional_port(self, key: str) -> int | None:
        if self.value.get(key) is None:
            return None
        return self.integer(key, 1, 65535)
