# SPDX-License-Identifier: Apache-2.0

"""Keys and values of the maps of ``classify.c``, packed and unpacked. Pure."""

from collections.abc import Iterable
from collections.abc import Iterator
import functools
import ipaddress
import struct
from typing import Literal
from typing import NamedTuple

from edge_module.classify import classified as base
from edge_module.qdisc import wire
from edge_module.tcplan import model

Program = Literal['from_vm', 'to_vm', 'to_wire', 'from_wire', 'by_address']
PROGRAMS: tuple[Program, ...] = (
    'from_vm', 'to_vm', 'to_wire', 'from_wire', 'by_address')
#: Programs that see received packets; the others see sent ones.
AT_INGRESS = ('from_vm', 'from_wire')
#: Maps that all devices share.
MAPS = ('devices', 'flows', 'macs', 'reached', 'fragments', 'of_ports',
        'of_exits', 'settings')
#: Buckets of a port: of neighbours, then of the IP addresses that it sends to.
NEIGHBOURS, _PEERS = 1 << 9, 1 << 6
#: Number of buckets of a device's cache, by the map that has it.
BUCKETS = {'of_ports': NEIGHBOURS + _PEERS, 'of_exits': 1 << 13}
#: Seconds for which a destination counts as reached.
REACHED_S = 4

SETTINGS = struct.Struct('=II')
HAS_PORTS, HAS_PAIRS = 1, 2
MAC_KEY, CLASSID = struct.Struct('=IH6s'), struct.Struct('=I')
TO, HOME, PEER = 0, 1, 2
#: Kinds of keys in the map ``macs``, by the small map that is kept there.
KINDS: dict[base.SmallMap, int] = {'to': TO, 'home': HOME, 'peer': PEER}
IFINDEX = struct.Struct('=I')
LINK = struct.Struct('=II')
_DEVICE = struct.Struct('=IIIIQQQQQQ')
DEVICE_BYTES = _DEVICE.size
FLOW_KEY, FLOW = struct.Struct('=I2sBx16s16s'), struct.Struct('=IIQQ')
#: Class, and sums over the processors.
FLOW_SUM = struct.Struct('=IQQ')
# Keys and values as they are read.
_DEVICE_READ, _MAC_READ, _FLOW_READ = map(struct.Struct, (
    '=IIIIIQQQQQQ', '=IH6sI', '=40sIQQ'))
_PEER = struct.Struct('=16sI12xQQ')
#: Bytes of keys and of values.
SIZES = {'devices': (IFINDEX.size, DEVICE_BYTES),
         'macs': (MAC_KEY.size, CLASSID.size),
         'settings': (IFINDEX.size, SETTINGS.size)}
#: Room for eight neighbours or four IP addresses.
BUCKET_BYTES = 4 * _PEER.size
# TCP and UDP.
_PORT_PROTOCOLS = 6, 17
# Many entries have the same addresses, and all of them are read again.
_MOST_ADDRESSES = 1 << 16
_IPV4 = bytes(10) + b'\xff\xff'


class Device(NamedTuple):
    """Value of the map of devices; see ``struct device``."""

    own: int = 0
    control: int = 0
    others: int = 0
    learns: int = 0
    seed: int = 0
    meeting_ns: int = 0
    reaching_ns: int = 0
    spare_ns: int = 0
    received_bytes: int = 0
    received_packets: int = 0

    def pack(self) -> bytes:
        """Return the value in bytes."""
        return _DEVICE.pack(*self)


def device(packed: bytes) -> Device:
    """Unpack a device, the inverse of :meth:`Device.pack`."""
    return Device(*_DEVICE.unpack(packed))


def devices(packed: bytes) -> dict[int, Device]:
    """Unpack all devices, by ifindex."""
    return {ifindex: Device(*values)
            for ifindex, *values in _DEVICE_READ.iter_unpack(packed)}


def classid(minor: int) -> int:
    """Return the class of a minor; 0 stays no class."""
    return minor and wire.ROOT_HANDLE | minor


def minor(classid: int) -> int:
    """Return the minor of a class, the inverse of :func:`classid`."""
    return classid & 0xffff


@functools.lru_cache(maxsize=_MOST_ADDRESSES)
def _address(text: str) -> bytes:
    """Pack an IP address; one of IPv4 is mapped to IPv6."""
    packed = ipaddress.ip_address(text).packed
    return packed if len(packed) > 4 else _IPV4 + packed


@functools.lru_cache(maxsize=_MOST_ADDRESSES)
def _text(packed: bytes) -> str:
    """Write an IP address, the inverse of :func:`_address`."""
    return str(ipaddress.IPv4Address(packed[len(_IPV4):])
               if packed.startswith(_IPV4) else ipaddress.IPv6Address(packed))


def flow_keys(entry: base.Entry) -> Iterator[bytes]:
    """Yield the keys of an entry; one with a port has one per protocol."""
    source, target = _address(entry.src_ip), _address(entry.dst_ip)
    for protocol in _PORT_PROTOCOLS if entry.dst_port else (0,):
        yield FLOW_KEY.pack(entry.ifindex, entry.dst_port.to_bytes(2),
                            protocol, source, target)


def flows(packed: bytes) -> Iterator[tuple[base.Entry, int, model.Counts]]:
    """Yield entry, minor and counter of each key."""
    for key, found, sent_bytes, packets in _FLOW_READ.iter_unpack(packed):
        ifindex, port, _, source, target = FLOW_KEY.unpack(key)
        yield base.Entry(ifindex, _text(source), _text(target),
                         int.from_bytes(port)), minor(found), model.Counts(
                             sent_bytes, packets)


def mac_key(kind: int, key: base.MapKey) -> bytes:
    """Pack the key of an Ethernet address, of kind TO, HOME or PEER."""
    return MAC_KEY.pack(key.number, kind,
                        bytes.fromhex(key.mac.replace(':', '')))


def macs(packed: bytes) -> Iterator[tuple[int, base.MapKey, int]]:
    """Yield kind, key and value of each Ethernet address."""
    for ifindex, kind, mac, value in _MAC_READ.iter_unpack(packed):
        yield kind, base.MapKey(ifindex, mac.hex(':')), value


def peers(packed: bytes) -> dict[str, model.Counts]:
    """Unpack a port's cache: the counters of IP addresses."""
    return {_text(address): model.Counts(sent_bytes, packets)
            for address, used_s, sent_bytes, packets in
            _PEER.iter_unpack(packed[NEIGHBOURS * BUCKET_BYTES:]) if used_s}


def links(packed: bytes) -> dict[Program, frozenset[int]]:
    """Return the ifindexes to which each program is attached."""
    found: dict[Program, set[int]] = {name: set() for name in PROGRAMS}
    for program, ifindex in LINK.iter_unpack(packed):
        found[PROGRAMS[program]].add(ifindex)
    return {name: frozenset(seen) for name, seen in found.items()}


def kinds(rules: Iterable[str]) -> int:
    """Return the kinds of entries of some rules, as a setting has them."""
    return (HAS_PORTS * any(name.startswith('port') for name in rules)
            | HAS_PAIRS * any(name.startswith('pair') for name in rules))
