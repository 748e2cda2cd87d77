# SPDX-License-Identifier: Apache-2.0

"""Classification as values: VM ports, the table of entries, counters."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import ipaddress
import re

from edge_module.tcplan import minors
from virtco.wire import edge_policy

_DEV = re.compile(r'^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$')


@dataclasses.dataclass(frozen=True, slots=True)
class VmPort:
    """Where a VM's packets enter the hypervisor.

    :ivar vm: the instance's uuid.
    :ivar ips: addresses of this port; empty when nobody told them.
    :ivar ifindex: tells a device from a later one of the same name; 0 while
        there is none.
    :ivar notes: why its traffic is not, or not all, managed.
    """

    vm: str
    dev: str
    ifindex: int = 0
    mac: str = ''
    ips: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_here(self) -> bool:
        """Whether there is a device, of a name that commands may contain."""
        return self.ifindex > 0 and _DEV.match(self.dev) is not None


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Key:
    """Packets that enter by ``dev`` from src_ip to dst_ip."""

    dev: str
    src_ip: str
    dst_ip: str
    dst_port: int = 0

    @property
    def is_ipv6(self) -> bool:
        return ':' in self.src_ip


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """Counters of one key since its entry was made."""

    sent_bytes: int
    sent_packets: int


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A whole classification: every port, and a class for each flow entry.

    A packet that matches no entry goes to its port's own class. A TCP packet
    without data (SYN, FIN, RST, acknowledgement) goes to the class of control
    packets of its coflow or port, so it never waits behind data. Other
    unmanaged packets go to a class of ``limits``, chosen by their destination
    Ethernet address.

    :ivar hooks: (device, ifindex) of each port.
    :ivar entries: minor of the class of each key.
    :ivar control: minor of the class of control packets, by minor of the
        class of data.
    :ivar limits: minor by (device, destination Ethernet address).
    :ivar others: by device, the minor for broadcasts and for packets to more
        addresses than can be followed. Empty: no address is followed.
    """

    hooks: frozenset[tuple[str, int]] = frozenset()
    entries: Mapping[Key, int] = dataclasses.field(default_factory=dict)
    control: Mapping[int, int] = dataclasses.field(default_factory=dict)
    limits: Mapping[tuple[str, str], int] = dataclasses.field(
        default_factory=dict)
    others: Mapping[str, int] = dataclasses.field(default_factory=dict)


def limited(table: Table, unmanaged: edge_policy.Unmanaged | None) -> Table:
    """Return the table with the limits of a policy added at each port."""
    if unmanaged is None:
        return table
    slots = dict.fromkeys(unmanaged.others_macs, 0) | {
        mac: limit.slot for limit in unmanaged.limits for mac in limit.macs}
    seats = minors.seats(ifindex for _, ifindex in table.hooks)
    return dataclasses.replace(
        table, limits={(dev, mac): minors.of_limited(slot, seats[ifindex])
                       for dev, ifindex in table.hooks
                       for mac, slot in slots.items()},
        others={dev: minors.of_limited(0, seats[ifindex])
                for dev, ifindex in table.hooks})


def control_of(policy: edge_policy.EdgePolicy) -> dict[int, int]:
    """Map the minor of each class of data to that of its control packets."""
    return {minor: minors.of_control(coflow.minor)
            for coflow in policy.classes
            for minor in (coflow.minor, *(child.minor for child
                                          in coflow.destinations))}


def build_table(flows: Iterable[edge_policy.FlowEntry],
                ports: Iterable[VmPort],
                control: Mapping[int, int] | None = None) -> Table:
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
    entries: dict[Key, int] = {}
    for flow in flows:
        for port in by_vm.get(flow.src_vm, ()):
            if not port.ips or flow.src_ip in port.ips:
                minor = (own[port.ifindex]
                         if flow.minor == edge_policy.DEFAULT_MINOR
                         else flow.minor)
                entries.setdefault(
                    Key(port.dev, flow.src_ip, flow.dst_ip,
                        flow.dst_port or 0), minor)
    return Table(frozenset(hooks), entries, used(control, entries) | (
        {} if control is None else {
            minor: minors.of_port_control(minor)
            for minor in own.values()}))


def used(control: Mapping[int, int] | None, entries: Mapping[Key, int]
         ) -> dict[int, int]:
    """Return the part of ``control`` whose classes have an entry.

    :param control: see :attr:`Table.control`; None counts as empty.
    """
    return {minor: control[minor] for minor in set(entries.values())
            if minor in control} if control else {}


def address(text: str) -> str:
    """Return an IP address in canonical form, for comparison."""
    return str(ipaddress.ip_address(text)) if ':' in text else text
