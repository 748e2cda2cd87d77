# SPDX-License-Identifier: Apache-2.0

"""Hypervisors as network namespaces around a non-blocking core.

::

   vm ns: eth0 == tapX :br-int: uplink0 == <host> :fabric0: ...  core ns
                   hypervisor ns                  (rate both ways here)
   control ns: mgmt0 bridge == mgmt0 of every hypervisor

Switches between hosts and core are bridges in the core's namespace, each with
a cable to the one above that is shaped at both of its ends.

All links are made between namespaces of the run: nothing ever appears in,
listens on or talks over the machine's own network.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import ipaddress
import json
import pathlib
import subprocess

from virtco import exception
from virtco.topology import tree
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import janitor
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import shaping

UPLINK_DEV = 'uplink0'
VM_BRIDGE = 'br-int'
MGMT_DEV = 'mgmt0'
CORE_BRIDGE = 'fabric0'
DATA_NET = ipaddress.ip_network('10.0.0.0/8')
_VM_OFFSET = 1 << 16
_MGMT_NET = ipaddress.ip_network('172.30.0.0/16')
_RTO_MIN_MS = 3_000
_FIRST_PAIR_MINOR = 0x20
# After the filter of small packets, which the kernel numbers 49152.
_PAIR_PRIO = 60000
_PAIR_BURST_BYTES = 6000
#: Longest name of a Linux interface, less ``-down``.
_MOST_NAME = 10
_EARLY_RETRANS = pathlib.Path('/proc/sys/net/ipv4/tcp_early_retrans')


@dataclasses.dataclass(frozen=True, slots=True)
class Hypervisor:
    """Namespace of a hypervisor, with its addresses."""

    host: str
    namespace: str
    address: str
    mgmt_address: str


@dataclasses.dataclass(frozen=True, slots=True)
class VmPort:
    """A VM's namespace and its port on the hypervisor's switch."""

    vm: str
    host: str
    namespace: str
    dev: str
    mac: str
    address: str


class Fabric:
    """Builds, grows and shrinks the emulated network of one run.

    Removing it is :func:`namespaces.release`'s job, for whoever is left to
    do it.
    """

    def __init__(self, run: str):
        self.run = run
        self.bed = beds.Bed({})
        self.hypervisors: dict[str, Hypervisor] = {}
        self.vms: dict[str, VmPort] = {}
        self._n_vms_ever = 0

    @property
    def core(self) -> str:
        """Name of the namespace whose bridge connects all uplinks."""
        return namespaces.name(self.run, 'core')

    @property
    def control(self) -> str:
        """Name of the controller's namespace, with the management bridge."""
        return namespaces.name(self.run, 'control')

    @property
    def control_address(self) -> str:
        """IPv4 address of the control namespace in the management network."""
        return str(_MGMT_NET[1])

    def build(self, bed: beds.Bed) -> None:
        """Make core, switches, management network and every hypervisor."""
        self.bed = bed
        namespaces.mount_bpf()
        self._make(self.core, [f'link add {CORE_BRIDGE} up type bridge'])
        self._make(self.control, [
            f'link add {MGMT_DEV} up type bridge',
            f'address add {self.control_address}/{_MGMT_NET.prefixlen} dev '
            f'{MGMT_DEV}'])
        for host, rate_bps in bed.rates_bps.items():
            self._add_hypervisor(host, rate_bps)
            if bed.segments is not None:
                shaping.limit_segments(self.hypervisors[host].namespace, (
                    VM_BRIDGE, UPLINK_DEV), bed.segments)
        for root in bed.plane.roots:
            self._add_switch(root, CORE_BRIDGE)
        if bed.pairs_bps:
            self.set_pair_rates(bed.pairs_bps, 'add')

    def set_switch_uplink(self, name: str, uplink: tree.Uplink,
                          verb: str = 'replace') -> None:
        """Change the rate of a switch's uplink; nobody is told."""
        # Packets leave by the lower end upwards, by the upper end downwards.
        shaping.run_batch(self.core, [
            shaping.bucket_command(f'{name}-{way}', rate_bps,
                                   self.bed.queue_s, verb)
            for way, rate_bps in (('up', uplink.up_bps),
                                  ('down', uplink.down_bps))])

    def set_pair_rates(self, rates_bps: Mapping[tuple[str, str], float],
                       verb: str = 'change') -> None:
        """Give pairs their rates; open connections go on with them.

        Each sender's ingress of the core has a class per receiver.

        :param rates_bps: rates by (sender, receiver), at most their cables'.
        """
        minors = {host: f'1:{number:x}' for number, host in enumerate(
            self.hypervisors, _FIRST_PAIR_MINOR)}
        lines = []
        for (src, dst), rate_bps in rates_bps.items():
            dev, minor = shaping.ifb_name(src), minors[dst]
            rate = max(1, round(rate_bps))
            lines.append(
                f'class {verb} dev {dev} parent 1:9 classid {minor} htb '
                f'rate {rate}bit ceil {rate}bit burst {_PAIR_BURST_BYTES} '
                f'cburst {_PAIR_BURST_BYTES} quantum 3000 prio 1')
            if verb == 'add':
                lines += [
                    f'qdisc add dev {dev} parent {minor} bfifo limit '
                    f'{shaping.QUEUE_BYTES}',
                    f'filter add dev {dev} parent 1: protocol ip prio '
                    f'{_PAIR_PRIO} u32 match ip dst '
                    f'{self.hypervisors[dst].address}/32 flowid {minor}']
        shaping.run_batch(self.core, lines)

    def switches_bytes(self) -> int:
        """Read the bytes sent over uplinks of switches, both directions."""
        shown = json.loads(subprocess.check_output(
            ['ip', '-n', self.core, '-s', '-j', 'link']))
        return sum(int(link['stats64']['tx']['bytes']) for link in shown
                   if link['ifname'].endswith(('-up', '-down')))

    def set_uplink_rate(self, host: str, rate_bps: float) -> None:
        """Change the rate of the cable each way; nobody is told."""
        if host not in self.hypervisors:
            raise exception.NotFound(what='Hypervisor', id=host)
        shaping.run_batch(self.core, shaping.limit_commands(
            host, rate_bps, verb='change'))

    def clear_uplink(self, host: str) -> None:
        """Remove the queue at the hypervisor's end of the cable."""
        shaping.run_batch(self.hypervisors[host].namespace,
                          [f'qdisc del dev {UPLINK_DEV} root'])

    def add_vm(self, vm: str, host: str) -> VmPort:
        """Boot a VM: a namespace with one port on the host's switch."""
        hypervisor = self.hypervisors[host]
        number = self._n_vms_ever
        self._n_vms_ever += 1
        port = VmPort(
            vm, host, namespaces.name(self.run, f'vm{number}'),
            f'tap{vm[:11]}', _mac(number),
            str(DATA_NET[_VM_OFFSET + number + 1]))
        self._make(port.namespace)
        shaping.run_batch(hypervisor.namespace, [
            f'link add {port.dev} up master {VM_BRIDGE} type veth peer name '
            f'eth0 address {port.mac} netns {port.namespace}'], 'ip')
        # Queues of slow links hold seconds of data while a coflow waits for
        # its turn; with its usual timer TCP would send them again and again.
        shaping.run_batch(port.namespace, [
            'link set eth0 up',
            f'address add {port.address}/{DATA_NET.prefixlen} dev eth0',
            f'route replace {DATA_NET} dev eth0 scope link src {port.address} '
            f'rto_min {_RTO_MIN_MS}ms'], 'ip')
        namespaces.call(port.namespace, lambda: _EARLY_RETRANS.write_text('0'))
        self.vms[vm] = port
        return port

    def remove_vm(self, vm: str) -> None:
        """Remove a VM's namespace and with it its port."""
        port = self.vms.pop(vm)
        shaping.run_batch(self.hypervisors[port.host].namespace,
                          [f'link delete {port.dev}'], 'ip')
        namespaces.remove(port.namespace)

    def introduce(self, pairs: Iterable[tuple[VmPort, VmPort]]) -> None:
        """Tell VMs each other's hardware addresses.

        The kernel's table of addresses that it learned by asking is one for
        all namespaces and holds 1,024; those that it was told do not count.
        """
        known: dict[VmPort, set[VmPort]] = collections.defaultdict(set)
        for one, other in pairs:
            known[one].add(other)
            known[other].add(one)
        for port, peers in known.items():
            shaping.run_batch(port.namespace, [
                f'neighbour replace {peer.address} lladdr {peer.mac} dev eth0 '
                'nud permanent' for peer in peers], 'ip')

    def _add_switch(self, node: tree.Node, above: str) -> None:
        """Put a switch and those below it under another one."""
        name = node.name
        assert len(name) <= _MOST_NAME, name
        shaping.run_batch(self.core, [
            f'link add {name} up type bridge',
            f'link add {name}-up up master {name} type veth peer name '
            f'{name}-down', f'link set {name}-down master {above} up',
            *(f'link set {host} master {name}' for host in node.hosts)], 'ip')
        self.set_switch_uplink(name, node.uplink, 'add')
        for child in node.children:
            self._add_switch(child, name)

    def _add_hypervisor(self, host: str, rate_bps: float) -> None:
        number = len(self.hypervisors)
        made = Hypervisor(
            host, namespaces.name(self.run, host),
            str(DATA_NET[number + 1]), str(_MGMT_NET[256 + number + 1]))
        self._make(made.namespace, [
            f'link add {VM_BRIDGE} up type bridge',
            f'address add {made.address}/{DATA_NET.prefixlen} dev '
            f'{VM_BRIDGE}'])
        shaping.run_batch(self.core, [
            f'link add {host} up master {CORE_BRIDGE} type veth peer name '
            f'{UPLINK_DEV} netns {made.namespace}',
            f'link add {shaping.ifb_name(host)} up type ifb'], 'ip')
        queue_s = self.bed.queue_s
        if queue_s is None:
            shaping.run_batch(self.core, shaping.limit_commands(
                host, rate_bps, burst_bytes=self.bed.bucket_bytes))
        else:
            for namespace, dev in ((self.core, host),
                                   (made.namespace, UPLINK_DEV)):
                shaping.run_batch(namespace, [
                    shaping.bucket_command(dev, rate_bps, queue_s)])
        shaping.run_batch(self.control, [
            f'link add {host} up master {MGMT_DEV} type veth peer name '
            f'{MGMT_DEV} netns {made.namespace}'], 'ip')
        shaping.run_batch(made.namespace, [
            f'link set {UPLINK_DEV} up master {VM_BRIDGE}',
            f'link set {MGMT_DEV} up',
            f'address add {made.mgmt_address}/{_MGMT_NET.prefixlen} dev '
            f'{MGMT_DEV}'], 'ip')
        self.hypervisors[host] = made

    @staticmethod
    def _make(namespace: str, lines: Iterable[str] = ()) -> None:
        """Make a namespace, and run these lines of ``ip`` in it."""
        namespaces.create(namespace)
        namespaces.call(namespace, _disable_ipv6)
        shaping.run_batch(namespace, ['link set lo up', *lines], 'ip')


@contextlib.contextmanager
def built(bed: beds.Bed) -> Iterator[Fabric]:
    """Build a bed's network in a run of its own; remove all of it at last."""
    with janitor.run() as run:
        fabric = Fabric(run)
        fabric.build(bed)
        yield fabric


def _mac(number: int) -> str:
    """Format a locally administered MAC address with this number."""
    high, low = divmod(number, 256)
    return f'0a:76:74:00:{high:02x}:{low:02x}'


def _disable_ipv6() -> None:
    """Disable IPv6 in this namespace: neighbour discovery is only noise."""
    for scope in ('all', 'default'):
        switch = pathlib.Path(
            f'/proc/sys/net/ipv6/conf/{scope}/disable_ipv6')
        if switch.exists():
            switch.write_text('1')
