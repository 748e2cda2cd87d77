# SPDX-License-Identifier: Apache-2.0

"""Hosts, addresses and caps of VMs, by the ports of reports. Pure."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set

from virtco import units
from virtco.wire import reports


class Addresses:
    """Hosts, IP addresses and caps of the VMs, by the ports that hosts report.

    :ivar of_vm: host, IP addresses and caps; see
        :data:`virtco.state.inflight.Addresses`.
    """

    def __init__(self) -> None:
        self._of_vm: dict[str, tuple[str, tuple[str, ...],
                                     tuple[float, float]]] = {}
        self._vms: dict[str, Set[str]] = {}
        self._with: dict[str, set[str]] = {}

    @property
    def of_vm(self) -> Mapping[str, tuple[str, tuple[str, ...],
                                          tuple[float, float]]]:
        return self._of_vm

    def vm_at(self, ip: str) -> str | None:
        """Return the only VM with the address; None if tenants share it."""
        found = self._with.get(ip, ())
        return next(iter(found)) if len(found) == 1 else None

    def learn(self, host: str, ports: Iterable[reports.Port]
              ) -> Collection[str]:
        """Take the ports of a host; return the VMs whose addresses or caps
        changed.
        """
        after: dict[str, tuple[str, tuple[str, ...],
                               tuple[float, float]]] = {}
        for port in ports:
            _, ips, (egress_bps, ingress_bps) = after.get(
                port.vm, (host, (), (0.0, 0.0)))
            # A VM may use all of its ports.
            after[port.vm] = host, ips + port.ips, (
                egress_bps + units.number(port.egress_cap_bps),
                ingress_bps + units.number(port.ingress_cap_bps))
        # Of a VM that moved here the next host may have told already.
        gone = {vm for vm in self._vms.get(host, frozenset()) - after.keys()
                if vm in self._of_vm and self._of_vm[vm][0] == host}
        changed = {vm for vm, known in after.items()
                   if self._of_vm.get(vm) != known}
        for vm in gone | changed:
            for ip in self._of_vm.pop(vm)[1] if vm in self._of_vm else ():
                self._with[ip].discard(vm)
                if not self._with[ip]:
                    del self._with[ip]
        self._of_vm |= after
        for vm in changed:
            for ip in after[vm][1]:
                self._with.setdefault(ip, set()).add(vm)
        if after:
            self._vms[host] = after.keys()
        else:
            self._vms.pop(host, None)
        return gone | changed
