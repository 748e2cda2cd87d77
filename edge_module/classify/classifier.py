# SPDX-License-Identifier: Apache-2.0

"""Classification in the kernel, at the VM's port or at the uplink.

A packet's priority becomes the classid of its HTB class (HTB needs no filter
for that), and it keeps it through the bridge, Open vSwitch's kernel datapath
and VLAN, VXLAN or Geneve encapsulation to the uplink's qdisc. A tenant is
recognised by the port, so equal addresses do not meet.
"""

import abc
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import logging
from typing import Literal
from typing import TypeVar

from edge_module.classify import classified as base
from edge_module.classify import nft_text
from edge_module.privileged import devices
from edge_module.privileged import helper_protocol as protocol
from edge_module.privileged import operations
from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco import exception
from virtco.wire import edge_policy

LOG = logging.getLogger(__name__)

_Key = TypeVar('_Key', base.Entry, base.MapKey)


def _difference(have: Mapping[_Key, int], wanted: Mapping[_Key, int]
                ) -> tuple[list[_Key], list[tuple[_Key, int]]]:
    """Return the keys to delete, and those to add with their minors."""
    return ([key for key, minor in have.items() if wanted.get(key) != minor],
            [(key, minor) for key, minor in wanted.items()
             if have.get(key) != minor])


class Classifier(abc.ABC):
    """Keeps the kernel equal to a classification.

    :meth:`replace` changes only the differences from the contents that it
    last wrote or read.

    :param uplink_dev: the uplink to classify at, for Open vSwitch's userspace
        datapath; None: at the ports of VMs. The uplink shows the outermost
        addresses only, so this serves networks without encapsulation whose
        tenants have different addresses.
    :param reason: why nothing better classifies; None: nothing is better.
    :cvar how: kind of the classifier.
    :ivar refused: reason by port, as (device, ifindex), that the kernel or
        the helper refused to attach; tried again after :meth:`forget`.
    """

    how: Literal['bpf', 'nft']

    def __init__(self, kernel: protocol.Kernel,
                 uplink_dev: str | None = None, reason: str | None = None):
        self.kernel = kernel
        self.reason = reason
        self.uplink_dev = uplink_dev
        self.hook = nft_text.EGRESS if uplink_dev else nft_text.INGRESS
        self.name = f'{self.how}-egress' if uplink_dev else self.how
        self.known: base.Standing | None = None
        self.refused: dict[tuple[str, int], str] = {}

    def build_table(self, policy: edge_policy.EdgePolicy,
                    ports: Iterable[base.VmPort], home: base.Home
                    ) -> base.Table:
        """Build the table for :meth:`replace` from a policy, ports and the
        host's own addresses.

        :raises virtco.exception.NotFound: without the uplink.
        """
        if self.uplink_dev is None:
            return base.build_table(policy, ports, home)
        ifindex = devices.ifindex(self.uplink_dev)
        if not ifindex:
            raise exception.NotFound(what='uplink device', id=self.uplink_dev)
        return base.build_table_by_address(
            policy, ports, self.uplink_dev, ifindex)

    def replace(self, table: base.Table) -> int:
        """Make the kernel hold exactly this table, in one transaction.

        Entries that are right stay untouched, with their counters.

        :returns: number of entries and ports that were changed.
        :raises virtco.exception.KernelRefused: the next call reads what
            stands, and goes on.
        """
        entries = table.entries
        if self.known is None:
            self.known = self.dump()
        have = self.known
        rules = self.hook.rules(entries)
        stale, fresh = _difference(have.entries, entries)
        own = minors.of_ports(ifindex for _, ifindex in table.hooks)
        kept = {hook for hook in table.hooks & have.hooks
                if own[hook[1]] == have.own.get(hook[1])}
        gone = have.hooks - kept
        self.refused = {port: why for port, why in self.refused.items()
                        if port in table.hooks}
        new = table.hooks - kept - self.refused.keys()
        follows = bool(table.maps.get('others'))
        changes: list[operations.ClassifyOperation] = []
        gone_peers, new_peers = _difference(have.maps.get('peer', {}),
                                            table.maps.get('peer', {}))
        # A class has all its receivers while entries or limits need them.
        if new_peers:
            changes.append(operations.ChangeMap(
                'peer', [], sorted(new_peers, reverse=True)))
        for kind in {**have.maps, **table.maps}:
            old, wanted = have.maps.get(kind, {}), table.maps.get(kind, {})
            if old != wanted and kind != 'peer':
                changes.append(operations.ChangeMap(
                    kind, *_difference(old, wanted)))
        if stale or fresh:
            changes.append(operations.ChangeEntries(stale, fresh))
        if gone_peers:
            changes.append(operations.ChangeMap(
                'peer', sorted(gone_peers), []))
        if (rules, follows) != (have.rules, have.follows):
            changes.append(operations.SetRules([*rules], follows))
        changes += [operations.DetachPort(ifindex)
                    for _, ifindex in sorted(gone)]
        changes += [operations.DetachUplink(one.ifindex, one.learns)
                    for one in sorted(have.uplinks - table.uplinks)]
        changes += [operations.AttachUplink(*one)
                    for one in sorted(table.uplinks - have.uplinks)]
        if not have.is_whole:
            changes.insert(0, operations.AddTable())
        if not changes and not new:
            return 0
        try:
            self._change_and_attach(changes, [
                operations.AttachPort(*hook, own[hook[1]])
                for hook in sorted(new)])
        except exception.KernelRefused:
            self.known = None
            raise
        if not have.is_whole:
            # An earlier start may have had reasons for the other kind.
            self._ask([operations.DeleteTable()], is_other=True)
        self.known = base.Standing(
            table.hooks - self.refused.keys(), entries, table.maps,
            table.uplinks, own, rules, follows, is_whole=True)
        return len(stale) + len(fresh) + len(gone) + len(new)

    def _change_and_attach(self, changes: list[operations.ClassifyOperation],
                           attach: list[operations.AttachPort]) -> None:
        """Change the table and attach ports, in one transaction if possible.

        Where the kernel refuses that, each port is attached alone, so that
        one that cannot be leaves the others classified.
        """
        try:
            self._change([*changes, *attach])
            return
        except exception.KernelRefused:
            if not attach:
                raise
        # A part of a port that stands goes only as the port comes again.
        again = [operations.DetachPort(port.ifindex) for port in attach]
        others = [one for one in changes if one not in again]
        if others:
            self._change(others)
        for port, leave in zip(attach, again):
            try:
                self._change([*(
                    one for one in changes if one == leave), port])
            except exception.KernelRefused as error:
                LOG.error('Port %s is not classified: %s', port.dev, error)
                self.refused[port.dev, port.ifindex] = str(error)

    def forget(self) -> None:
        """Have the next replace read the kernel and try all ports again."""
        self.known = None
        self.refused = {}

    @abc.abstractmethod
    def dump(self) -> base.Standing:
        """Read the classification from the kernel, even if one is known."""

    def counted(self) -> dict[tuple[str, base.Entry], model.Counts]:
        """Read the counters of the entries; empty if they were lost.

        :returns: counters by (device, entry); no device at the uplink.
        """
        known = self.known if self.known is not None else self.dump()
        names = {ifindex: dev if self.hook.is_at_ports else ''
                 for dev, ifindex in known.hooks if dev}
        found: dict[tuple[str, base.Entry], model.Counts] = {}
        for entry, seen in self._counted(known):
            # An entry of a device that is gone belongs to no port.
            key = names.get(entry.ifindex, f'({entry.ifindex})'), entry
            found[key] = found[key].plus(seen) if key in found else seen
        return found

    @abc.abstractmethod
    def _counted(self, known: base.Standing
                 ) -> Iterable[tuple[base.Entry, model.Counts]]:
        """Read the counters; an entry with a port has one per protocol."""

    @abc.abstractmethod
    def destinations(self) -> frozenset[tuple[str, str]]:
        """Read (device, Ethernet address) of recent unmanaged packets."""

    @abc.abstractmethod
    def received(self) -> dict[str, model.Counts]:
        """Read the counters of TCP data from other hosts, by device."""

    @abc.abstractmethod
    def peers(self, ifindexes: Collection[int] | None = None
              ) -> dict[tuple[str, str], model.Counts]:
        """Read the counters of packets that matched no entry.

        :param ifindexes: ports to read, of :meth:`ports`; None: all of them.
        :returns: counters by (device, destination IP address).
        """

    def _ask(self, changes: list[operations.ClassifyOperation],
             is_other: bool = False) -> str | None:
        """Have the kernel make changes; why it refuses, or None.

        :param is_other: changes of what the other kind of classifier made.
        """
        change = (self.kernel.bpf_change if (self.how == 'bpf') != is_other
                  else self.kernel.nft_change)
        return change(self.hook.name, changes)

    @property
    def _ports(self) -> Collection[tuple[str, int]]:
        """Device and ifindex of each attached port; none at the uplink."""
        return (self.known.hooks if self.known is not None
                and self.hook.is_at_ports else ())

    def ports(self) -> Collection[int]:
        """Return the ifindex of each attached port; none at the uplink."""
        return [ifindex for _, ifindex in self._ports]

    def remove(self) -> bool:
        """Delete the table, of either kind; False when there was none."""
        self.known = None
        return None in [self._ask([operations.DeleteTable()], is_other)
                        for is_other in (False, True)]

    def _change(self, changes: list[operations.ClassifyOperation]) -> None:
        errors = self._ask(changes)
        if errors is not None:
            raise exception.KernelRefused(
                what='change the classification', count=1,
                why=errors.strip()[:400])
