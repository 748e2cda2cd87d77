# SPDX-License-Identifier: Apache-2.0

"""Hypervisors as network namespaces around a non-blocking core.

::

   vm ns: eth0 == tapX :br-int: uplink0 == <host> :fabric0: ...  core ns
                   hypervisor ns                  (rate both ways here)
   control ns: mgmt0 bridge == mgmt0 of every hypervisor

All links are made between namespaces of the run: nothing ever appears in,
listens on or talks over the machine's own network.
"""

import collections
import collections.abc
import contextlib
import dataclasses
import ipaddress
import pathlib
import typing

import pyroute2
from pyroute2.netlink.rtnl import ndmsg
from pyroute2.netlink.rtnl import rt_scope

from virtco import exception
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
_RTAX_RTO_MIN = 13  # of linux/rtnetlink.h
_RTO_MIN_MS = 3_000
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
        self.hypervisors: dict[str, Hypervisor] = {}
        self.vms: dict[str, VmPort] = {}
        self._netlink: dict[str, pyroute2.IPRoute] = {}
        self._n_vms_ever = 0

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

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

    def build(self, rates_bps: collections.abc.Mapping[str, float]) -> None:
        """Make the core, the management network and every hypervisor.

        :param rates_bps: rate of each hypervisor's cable, each way.
        """
        self._make(self.core)
        self._make_bridge(self.core, CORE_BRIDGE)
        self._make(self.control)
        self._make_bridge(self.control, MGMT_DEV, self.control_address,
                          _MGMT_NET.prefixlen)
        for host, rate_bps in rates_bps.items():
            self._add_hypervisor(host, rate_bps)

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
        self._cable(hypervisor.namespace, port.dev, port.namespace, 'eth0',
                    mac=port.mac)
        self._up(port.namespace, 'eth0', port.address, DATA_NET.prefixlen)
        self._calm_tcp(port)
        self._enslave(hypervisor.namespace, port.dev, VM_BRIDGE)
        self._netlink.pop(port.namespace).close()
        self.vms[vm] = port
        return port

    def _calm_tcp(self, port: VmPort) -> None:
        """Have a VM's TCP wait for acknowledgements as slow links need it.

        A coflow that waits for its turn has full queues. On links that are
        hundreds of times slower than a datacentre's these take seconds, and
        TCP would send what is in them again and again.
        """
        netlink = self._netlink[port.namespace]
        index, = netlink.link_lookup(ifname='eth0')
        netlink.route('replace', dst=str(DATA_NET), oif=index,
                      scope=rt_scope['link'], prefsrc=port.address,
                      metrics={'lock': 1 << _RTAX_RTO_MIN,
                               'rto_min': _RTO_MIN_MS})
        namespaces.call(port.namespace, lambda: _EARLY_RETRANS.write_text('0'))

    def remove_vm(self, vm: str) -> None:
        """Remove a VM's namespace and with it its port."""
        port = self.vms.pop(vm)
        netlink = self._netlink[self.hypervisors[port.host].namespace]
        for index in netlink.link_lookup(ifname=port.dev):
            netlink.link('del', index=index)
        namespaces.remove(port.namespace)

    def introduce(self, pairs: collections.abc.Iterable[
            tuple[VmPort, VmPort]]) -> None:
        """Tell VMs each other's hardware addresses.

        The kernel's table of addresses that it learned by asking is one for
        all namespaces and holds 1,024; those that it was told do not count.
        """
        known: dict[VmPort, set[VmPort]] = collections.defaultdict(set)
        for one, other in pairs:
            known[one].add(other)
            known[other].add(one)
        for port, peers in known.items():
            with namespaces.netlink(port.namespace) as netlink:
                index, = netlink.link_lookup(ifname='eth0')
                for peer in peers:
                    netlink.neigh('replace', ifindex=index,
                                  dst=peer.address, lladdr=peer.mac,
                                  state=ndmsg.states['permanent'])

    def close(self) -> None:
        for netlink in self._netlink.values():
            netlink.close()
        self._netlink.clear()

    def _add_hypervisor(self, host: str, rate_bps: float) -> None:
        number = len(self.hypervisors)
        made = Hypervisor(
            host, namespaces.name(self.run, host),
            str(DATA_NET[number + 1]), str(_MGMT_NET[256 + number + 1]))
        self._make(made.namespace)
        self._cable(self.core, host, made.namespace, UPLINK_DEV)
        self._enslave(self.core, host, CORE_BRIDGE)
        ifb = shaping.ifb_name(host)
        self._netlink[self.core].link('add', ifname=ifb, kind='ifb')
        self._up(self.core, ifb)
        shaping.run_batch(self.core, shaping.limit_commands(host, rate_bps))
        self._make_bridge(made.namespace, VM_BRIDGE, made.address,
                          DATA_NET.prefixlen)
        self._enslave(made.namespace, UPLINK_DEV, VM_BRIDGE)
        self._cable(self.control, host, made.namespace, MGMT_DEV)
        self._enslave(self.control, host, MGMT_DEV)
        self._up(made.namespace, MGMT_DEV, made.mgmt_address,
                 _MGMT_NET.prefixlen)
        self.hypervisors[host] = made

    def _make(self, namespace: str) -> None:
        namespaces.create(namespace)
        namespaces.call(namespace, _disable_ipv6)
        self._netlink[namespace] = namespaces.netlink(namespace)
        self._up(namespace, 'lo')

    def _make_bridge(self, namespace: str, dev: str,
                     address: str | None = None, prefix: int = 0) -> None:
        self._netlink[namespace].link('add', ifname=dev, kind='bridge')
        self._up(namespace, dev, address, prefix)

    def _cable(self, near: str, near_dev: str, far: str, far_dev: str,
               mac: str | None = None) -> None:
        peer = {'ifname': far_dev, 'net_ns_fd': far}
        if mac is not None:
            peer['address'] = mac
        self._netlink[near].link('add', ifname=near_dev, kind='veth',
                                 peer=peer)

    def _enslave(self, namespace: str, dev: str, bridge: str) -> None:
        netlink = self._netlink[namespace]
        netlink.link('set', index=self._index(namespace, dev), state='up',
                     master=self._index(namespace, bridge))

    def _up(self, namespace: str, dev: str, address: str | None = None,
            prefix: int = 0) -> None:
        netlink = self._netlink[namespace]
        index = self._index(namespace, dev)
        if address is not None:
            netlink.addr('add', index=index, address=address,
                         prefixlen=prefix)
        netlink.link('set', index=index, state='up')

    def _index(self, namespace: str, dev: str) -> int:
        found = self._netlink[namespace].link_lookup(ifname=dev)
        if not found:
            raise exception.NotFound(what='Interface', id=dev)
        return int(found[0])


@contextlib.contextmanager
def built(rates_bps: collections.abc.Mapping[str, float]
          ) -> collections.abc.Iterator[Fabric]:
    """Build a fabric in a run of its own; remove all of it at last."""
    with janitor.run() as run, Fabric(run) as fabric:
        fabric.build(rates_bps)
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
