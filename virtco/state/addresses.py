# SPDX-License-Identifier: Apache-2.0

"""Hosts, addresses and caps of VMs, by reports of ports and by Nova. Pure."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set
import re

from virtco import units
from virtco.state import holders
from virtco.wire import reports

#: VMs that are learned in a row.
AT_ONCE = 500
MAC = re.compile(r'[0-9a-f]{2}(:[0-9a-f]{2}){5}')
# Host, IP addresses, caps and Ethernet addresses; none of a VM of which one is
# not known.
_Known = tuple[str, tuple[str, ...], tuple[float, float], tuple[str, ...]]


def of_ports(host: str, ports: Iterable[reports.Port]) -> dict[str, _Known]:
    """Return addresses and caps of the VMs by the ports of a host."""
    after: dict[str, _Known] = {}
    for port in ports:
        is_first = port.vm not in after
        _, ips, (egress_bps, ingress_bps), macs = after.get(
            port.vm, (host, (), (0.0, 0.0), ()))
        mac = port.mac.lower()
        # A VM may use all of its ports.
        after[port.vm] = host, ips + port.ips, (
            egress_bps + units.number(port.egress_cap_bps),
            ingress_bps + units.number(port.ingress_cap_bps)), (
                *macs, mac) if MAC.fullmatch(mac) and (
                    macs or is_first) else ()
    return after


class Addresses:
    """Hosts, IP addresses and caps of the VMs whose ports hosts report.

    A host that reads its ports from Open vSwitch reports no addresses; those
    that Nova told count there. During a migration two hosts report a VM: that
    on which Nova has it counts, else the one that told last.

    :ivar of_vm: host, IP addresses, caps (egress, ingress) in bit/s and
        Ethernet addresses, by VM.
    """

    def __init__(self) -> None:
        self.of_vm: dict[str, _Known] = {}
        # VM -> host -> its report of the VM, the newest last.
        self._reported: dict[str, dict[str, _Known]] = {}
        self._places: dict[str, str] = {}
        self._told: dict[str, tuple[str, ...]] = {}
        self._vms: dict[str, set[str]] = {}
        self._holders = holders.Holders()

    def vm_at(self, ip: str) -> str | None:
        """Return the only VM with the address; None if tenants share it."""
        found = self._holders.of(ip)
        return next(iter(found)) if len(found) == 1 else None

    def runs_at(self, vm: str) -> str | None:
        """Return the host on which a VM runs, as Nova tells."""
        return self._places.get(vm)

    def tell(self, told: Mapping[str, tuple[str, ...]],
             places: Mapping[str, str] = {}, vms: Set[str] | None = None
             ) -> Collection[str]:
        """Take the addresses that Nova tells, in place of those before;
        return the VMs whose addresses changed.

        :param places: hosts on which VMs run, as Nova tells.
        :param vms: VMs of which all is told; the others stay. None: all VMs.
        """
        if vms is None:
            vms = told.keys() | self._told.keys()
        changed = {vm for vm in vms
                   if told.get(vm) != self._told.get(vm)
                   or places.get(vm) != self._places.get(vm)}
        for vm in changed:
            self._told.pop(vm, None)
            self._places.pop(vm, None)
        self._told.update(told)
        self._places.update(places)
        return {vm for vm in changed if self._has_changed(vm)}

    def learn(self, host: str, ports: Iterable[reports.Port]
              ) -> Collection[str]:
        """Take the ports of a host; return the VMs whose addresses or caps
        changed.
        """
        return {vm for part in self.parts(host, of_ports(host, ports))
                for vm in part}

    def parts(self, host: str, after: Mapping[str, _Known]
              ) -> Iterator[Collection[str]]:
        """Learn the ports of a host, some VMs at a time; yield those changed.

        :param after: see :func:`of_ports`.
        """
        # A repeated report does not become the newest.
        new = [vm for vm in self._vms.get(host, set()) | after.keys()
               if self._reported.get(vm, {}).get(host) != after.get(vm)]
        for start in range(0, len(new), AT_ONCE):
            some = new[start:start + AT_ONCE]
            for vm in some:
                self._report(host, vm, after.get(vm))
            yield {vm for vm in some if self._has_changed(vm)}

    def _report(self, host: str, vm: str, known: _Known | None) -> None:
        """Set a host's report of a VM; None: there is none any more."""
        # The host may have been forgotten since the last part.
        vms = self._vms.setdefault(host, set())
        by_host = self._reported.setdefault(vm, {})
        by_host.pop(host, None)
        if known is not None:
            by_host[host] = known
            vms.add(vm)
            return
        vms.discard(vm)
        if not vms:
            del self._vms[host]
        if not by_host:
            del self._reported[vm]

    def _has_changed(self, vm: str) -> bool:
        """Take over the addresses of a VM; return whether they are new."""
        by_host = self._reported.get(vm)
        known = None if by_host is None else by_host.get(
            self._places.get(vm, ''), by_host[next(reversed(by_host))])
        if known is not None and not known[1]:
            known = known[0], self._told.get(vm, ()), *known[2:]
        before = self.of_vm.pop(vm, None)
        if known is not None:
            self.of_vm[vm] = known
        if known == before:
            return False
        self._holders.update(vm, before[1] if before is not None else (),
                             known[1] if known is not None else ())
        return True
