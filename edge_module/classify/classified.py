# SPDX-License-Identifier: Apache-2.0

"""Classification as values: VM ports, the table of entries, counters."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import ipaddress
import re
import types
from typing import Annotated
from typing import Literal
from typing import NamedTuple

import msgspec

from edge_module.tcplan import minors
from virtco.wire import edge_policy

_DEV = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]{0,14}')


def may_name(dev: str) -> bool:
    """Return whether commands of nft may contain the name of a device."""
    return _DEV.fullmatch(dev) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class VmPort:
    """Where a VM's packets enter the hypervisor.

    :ivar vm: the instance's uuid.
    :ivar ips: addresses of this port; empty when nobody told them.
    :ivar ifindex: tells a device from a later one of the same name; 0 while
        there is none.
    :ivar notes: why its traffic is not, or not all, managed.
    :ivar caps_bps: the most that the VM sends and receives by it; None: no
        limit.
    """

    vm: str
    dev: str
    ifindex: int = 0
    mac: str = ''
    ips: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    caps_bps: tuple[float | None, float | None] = (None, None)

    @property
    def is_here(self) -> bool:
        """Whether there is a device, of a name that commands may contain."""
        return self.ifindex > 0 and may_name(self.dev)


class Entry(NamedTuple):
    """Key of a flow entry: packets that enter by a port.

    :ivar ifindex: index of the VM's port, or of the uplink for a classifier
        there.
    :ivar dst_port: 0 matches every port and protocol.
    """

    ifindex: Annotated[int, msgspec.Meta(ge=0, lt=2 ** 31)]
    src_ip: str
    dst_ip: str
    dst_port: Annotated[int, msgspec.Meta(ge=0, lt=2 ** 16)] = 0

    @property
    def is_ipv6(self) -> bool:
        """Whether the addresses are of IPv6; both are of one family."""
        return ':' in self.src_ip


class MapKey(NamedTuple):
    """Key of a small map.

    :ivar number: ifindex of a port, or of the uplink for a classifier there
        and in the map of the host's addresses; minor of the class in the map
        of receivers.
    :ivar mac: address of the destination where the map has limits by
        destination, or receivers; of the sender in the map of the host's
        addresses.
    """

    number: Annotated[int, msgspec.Meta(ge=0, lt=2 ** 31)]
    mac: Annotated[str, msgspec.Meta(
        pattern=r'\A(?:[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5})?\Z')] = ''


#: The map of the classes of control packets, by port; of limits by port and
#: destination Ethernet address; by port, for broadcasts and for packets to
#: more addresses than can be followed; of the host's packets, by uplink and
#: source Ethernet address; and of coflows' classes with the Ethernet addresses
#: of their receivers, and :data:`ANY`.
SmallMap = Literal['control', 'to', 'others', 'home', 'peer']
#: Tells that the receivers of a class are known.
ANY = '00:00:00:00:00:00'
#: Elements of the map of receivers, which shares its room with the limits, and
#: needs twice as much while the receivers change.
MOST_PEERS = 30_000


class Exit(NamedTuple):
    """Device by which packets leave the host: an uplink, or a tunnel in front
    of one.

    :ivar learns: whether packets that arrive by it show who is near; nobody
        is a stranger otherwise.
    """

    dev: str
    ifindex: int
    learns: bool


#: Ethernet addresses of the host's own devices, by the uplinks by which it
#: sends; none where it sends nothing itself.
Home = Mapping[Exit, Iterable[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A whole classification: every port, and a class for each flow entry.

    A packet that matches no entry goes to its port's own class. A TCP packet
    without data (SYN, FIN, RST, acknowledgement) goes to the port's class of
    control packets, so it never waits behind data. Other unmanaged packets go
    to a class of the map ``to``, chosen by their destination Ethernet address,
    as do packets of an entry to an address there that is none of a receiver.

    :ivar hooks: (device, ifindex) of each port.
    :ivar entries: minor of the class of each flow entry.
    :ivar maps: minors by key, for each of the small maps; without ``others``
        no address is followed.
    :ivar uplinks: devices where the host's own packets are told from those
        of unknown ports.
    """

    hooks: frozenset[tuple[str, int]] = frozenset()
    entries: Mapping[Entry, int] = dataclasses.field(default_factory=dict)
    maps: Mapping[SmallMap, Mapping[MapKey, int]] = dataclasses.field(
        default_factory=dict)
    uplinks: frozenset[Exit] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Standing(Table):
    """Classification of the kernel, as read or as last written.

    A port or an uplink of which a part stands has no name.

    :ivar own: minor of the own class of each attached port, by ifindex, where
        it is known.
    :ivar rules: names of the rules for packets of flows.
    :ivar follows: whether destinations of unmanaged packets are followed.
    :ivar is_whole: whether all that does not depend on ports and policy is as
        it should be; otherwise all is made anew.
    """

    own: Mapping[int, int] = dataclasses.field(default_factory=dict)
    rules: tuple[str, ...] = ()
    follows: bool = False
    is_whole: bool = False


def _peers(policy: edge_policy.EdgePolicy) -> dict[MapKey, int]:
    """Return the map of receivers; those without room stay unknown."""
    found: dict[MapKey, int] = {}
    # In an order that stays, unlike the one in which coflows are served.
    for minor, macs in sorted(
            (one.minor, one.macs) for coflow in policy.classes
            for one in coflow.destinations if one.macs):
        if len(found) + len(macs) < MOST_PEERS:
            found.update((MapKey(minor, mac), minor) for mac in (*macs, ANY))
    return found


def _limits(policy: edge_policy.EdgePolicy,
            ifindexes: Iterable[int], uplinks: Iterable[Exit]
            ) -> dict[SmallMap, dict[MapKey, int]]:
    """Return the maps for the limits of a policy: by destination, for all
    devices, and of the others at each port and, for unknown ports, uplink; and
    of the receivers, to which alone the limits do not apply.
    """
    unmanaged = policy.unmanaged
    if unmanaged is None:
        return {}
    slots = dict.fromkeys(unmanaged.others_macs, 0) | {
        mac: limit.slot for limit in unmanaged.limits for mac in limit.macs}
    peers = _peers(policy)
    seats = [*minors.seats(ifindexes).items(), *(
        (uplink.ifindex, minors.UNKNOWN_SEAT) for uplink in uplinks)]
    return {'to': {MapKey(0, mac): minors.of_limit(slot)
                   for mac, slot in slots.items()},
            'others': {MapKey(ifindex): minors.of_limited(0, seat)
                       for ifindex, seat in seats},
            **({'peer': peers} if peers else {})}


def build_table(policy: edge_policy.EdgePolicy, ports: Iterable[VmPort],
                home: Home = types.MappingProxyType({})) -> Table:
    """Bind the flows of a policy to the ports that are here.

    A flow of a VM with several ports belongs to the one that has the source
    address; ports whose addresses are not known may all send it. Flows of VMs
    that are not here (yet) are left out. Of two flows with the same key the
    first wins: the policy lists coflows in the order of service. A flow that
    is only counted stays in its port's class.
    """
    by_vm: dict[str, list[VmPort]] = {}
    hooks = set()
    for port in ports:
        if port.is_here:
            by_vm.setdefault(port.vm, []).append(port)
            hooks.add((port.dev, port.ifindex))
    own = minors.of_ports(ifindex for _, ifindex in hooks)
    entries: dict[Entry, int] = {}
    for flow in policy.flows:
        for port in by_vm.get(flow.src_vm, ()):
            if not port.ips or flow.src_ip in port.ips:
                minor = (own[port.ifindex]
                         if flow.minor == edge_policy.DEFAULT_MINOR
                         else flow.minor)
                entries.setdefault(
                    Entry(port.ifindex, flow.src_ip, flow.dst_ip,
                          flow.dst_port or 0), minor)
    return Table(frozenset(hooks), entries, {
        'control': {MapKey(ifindex): minors.of_control(minor)
                    for ifindex, minor in own.items()},
        'home': {MapKey(uplink.ifindex, mac): minors.HOST
                 for uplink, macs in home.items() for mac in macs},
        **_limits(policy, own, home)}, frozenset(home))


def build_table_by_address(policy: edge_policy.EdgePolicy,
                           ports: Iterable[VmPort], dev: str, ifindex: int
                           ) -> Table:
    """Bind the flows of a policy to the uplink, for VMs that are here."""
    here = {port.vm for port in ports}
    entries: dict[Entry, int] = {}
    for flow in policy.flows:
        if flow.src_vm in here:
            entries.setdefault(Entry(ifindex, flow.src_ip, flow.dst_ip,
                                     flow.dst_port or 0), flow.minor)
    return Table(frozenset({(dev, ifindex)}), entries,
                 {'control': {MapKey(ifindex): minors.UPLINK_CONTROL}})


def address(text: str) -> str:
    """Return an IP address in canonical form, for comparison."""
    return str(ipaddress.ip_address(text)) if ':' in text else text
