# SPDX-License-Identifier: Apache-2.0

"""Keeps the rates of virtual functions, set at their network cards."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import errno
import itertools
import os

from edge_module.classify import classified as classify
from edge_module.privileged import devices
from edge_module.privileged import helper_protocol as protocol
from edge_module.privileged import kernel_calls
from edge_module.privileged import operations
from edge_module.qdisc import devlink
from edge_module.qdisc import htb
from edge_module.qdisc import vf_link
from edge_module.tcplan import model
from edge_module.tcplan import vf_rates
from virtco.wire import edge_policy

NO_RATE = 'VF rate: the card takes none'
OTHERS = 'VF rate: another program set it'
REFUSED = 'VF rate: the card refuses it'
SET = ('VF rate: the card holds it, but no order, no limit by destination and '
       'no counter')

#: Function of a card without representors: Ethernet address, name and rate.
Function = tuple[str, vf_rates.Name, vf_rates.Rate]


class VirtualFunctions:
    """The virtual functions of a host's cards, and their rates.

    A function with a representor has a rate by devlink. Cards that are not in
    switchdev mode have no representors, so a function is known by its Ethernet
    address, and no mark tells whose rate it has: where this is wanted, the
    rates of all functions of the uplinks are virtco's.

    :param devs: names of the own devices of cards without representors.
    :ivar notes: rate of a port, or why it has none, by the ifindex of its
        representor or by its Ethernet address.
    """

    def __init__(self, kernel: protocol.Kernel, devs: Collection[str] = ()):
        self.kernel = kernel
        self.devs = devs
        self.notes: dict[int | str, str] = {}
        self._functions: dict[int | str, vf_rates.Name] = {}
        self._have: vf_rates.Rates = {}
        self._seen: Collection[int] | None = None
        # Addresses of cards that guarantee nothing.
        self._without_share: set[str] = set()

    def forget(self) -> None:
        """Make the next call read the rates of the card."""
        self._seen = None

    def plan(self, tree: Callable[[], model.Tree],
             policy: edge_policy.EdgePolicy | None,
             entries: Mapping[classify.Entry, int],
             ports: Sequence[classify.VmPort]
             ) -> tuple[vf_rates.Rates, list[vf_rates.Step]]:
        """Return the rates of a policy and the changes that make them so.

        :param tree: returns the tree of the uplink; not called without a
            virtual function.
        """
        here = {port.ifindex for port in ports if port.is_here}
        # Nothing tells when a function without representor gets its address.
        if self.devs or self._seen is None or here - set(self._seen):
            self._functions = dict(filter(None, map(
                devlink.read_function, self._dump(devlink.PORT_GET))))
            self._functions |= {mac: name for mac, name, _ in self._cards()}
            self._have = self._rates()
            self._seen = here
        rates = {key: self._have.get(name) for key, name
                 in self._functions.items() if key in here}
        self.notes = {key: NO_RATE if rate is None else OTHERS
                      for key, rate in rates.items()
                      if rate is None or rate.is_others}
        usable = {ifindex: self._functions[ifindex] for ifindex in here
                  if ifindex in rates and ifindex not in self.notes}
        wanted = (vf_rates.of_ports(tree(), entries, usable) if usable
                  else {})
        # A port without a device gets a number of its own as an index.
        numbered = [(dataclasses.replace(port, ifindex=index), name)
                    for index, port in enumerate(ports, 1)
                    if (name := self._functions.get(port.mac.lower()))]
        if policy is not None and numbered:
            found = vf_rates.of_ports(tree(), classify.build_table(
                policy, [port for port, _ in numbered]).entries,
                {port.ifindex: name for port, name in numbered})
            wanted |= {name: vf_link.rate_of(
                0 if name.card in self._without_share else rate.share_mbps,
                rate.most_mbps)
                for name, rate in found.items() if name.port is not None}
        return wanted, [*vf_rates.steps(self._have, wanted)]

    def ensure(self, tree: Callable[[], model.Tree],
               policy: edge_policy.EdgePolicy | None,
               entries: Mapping[classify.Entry, int],
               ports: Sequence[classify.VmPort]) -> None:
        """Set the rates of a policy; a refusal becomes a note of the port."""
        wanted, steps = self.plan(tree, policy, entries, ports)
        refused = self._set(steps)
        lacking = {name.card for name, rate in wanted.items()
                   if name.bus == vf_rates.CARD and rate.share_mbps
                   and self._have.get(name) != rate}
        if lacking:
            # Many cards limit a function and guarantee it nothing.
            self._without_share |= lacking
            wanted, steps = self.plan(tree, policy, entries, ports)
            refused = self._set(steps)
        for key, name in self._functions.items():
            is_card, rate = name.bus == vf_rates.CARD, wanted.get(name)
            if refused and (rate or is_card) and self._have.get(name) != (
                    rate or vf_rates.Rate()):
                self.notes[key] = f'{REFUSED} ({os.strerror(refused[0])})'
            elif is_card and rate and any(rate):
                self.notes[key] = SET

    def remove(self) -> bool:
        """Take back the rates and groups; False when there was none."""
        self._have = self._rates()
        steps = [*vf_rates.steps(self._have, {})]
        htb.check(self._set(steps),
                  'take back the rates of virtual functions')
        return bool(steps)

    def _set(self, steps: Iterable[vf_rates.Step]) -> list[int]:
        """Make changes; return the errno of each that failed."""
        changes = [operations.SetRate(step) for step in steps]
        if not changes:
            return []
        refused = self.kernel.tc_change(changes)
        self._have = self._rates()
        return refused

    def _rates(self) -> vf_rates.Rates:
        return {name: rate for name, rate in map(
            devlink.read_rate, self._dump(devlink.RATE_GET))
            if name.group != vf_rates.OTHERS} | {
                name: rate for _, name, rate in self._cards()}

    def _cards(self) -> Iterable[Function]:
        return itertools.chain.from_iterable(map(read, self.devs))

    def _dump(self, command: int) -> list[bytes]:
        try:
            return self.kernel.tc_dump(devlink.request(command))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return []  # a kernel without devlink


def read(dev: str) -> list[Function]:
    """Read the functions of a card without representors."""
    ifindex = devices.ifindex(dev)
    if ifindex:
        with contextlib.suppress(OSError):
            return [*vf_link.read(kernel_calls.ask(vf_link.request(ifindex)))]
    return []
