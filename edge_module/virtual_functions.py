# SPDX-License-Identifier: Apache-2.0

"""Keeps the rates of virtual functions, set at their network cards."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import errno
import os

from edge_module.classify import classified as classify
from edge_module.privileged import helper_protocol as protocol
from edge_module.privileged import operations
from edge_module.qdisc import devlink
from edge_module.qdisc import htb
from edge_module.tcplan import model
from edge_module.tcplan import vf_rates

NO_RATE = 'VF rate: the card takes none'
OTHERS = 'VF rate: another program set it'
REFUSED = 'VF rate: the card refuses it'


class VirtualFunctions:
    """The virtual functions of a host's cards, and their rates.

    :ivar notes: why a port has no rate of the policy, by ifindex.
    """

    def __init__(self, kernel: protocol.Kernel):
        self.kernel = kernel
        self.notes: dict[int, str] = {}
        self._functions: dict[int, vf_rates.Name] = {}
        self._have: vf_rates.Rates = {}
        self._seen: Collection[int] | None = None

    def forget(self) -> None:
        """Make the next call read the rates of the card."""
        self._seen = None

    def plan(self, tree: Callable[[], model.Tree],
             entries: Mapping[classify.Entry, int], ports: Collection[int]
             ) -> tuple[vf_rates.Rates, list[vf_rates.Step]]:
        """Return the rates of a policy and the changes that make them so.

        :param tree: returns the tree of the uplink; not called without a
            virtual function.
        :param ports: ifindexes of the VM ports.
        """
        if self._seen is None or set(ports) - set(self._seen):
            self._functions = dict(filter(None, map(
                devlink.read_function, self._dump(devlink.PORT_GET))))
            self._have = self._rates()
            self._seen = ports
        rates = {ifindex: self._have.get(name) for ifindex, name
                 in self._functions.items() if ifindex in ports}
        self.notes = {ifindex: NO_RATE if rate is None else OTHERS
                      for ifindex, rate in rates.items()
                      if rate is None or rate.is_others}
        usable = {ifindex: self._functions[ifindex] for ifindex in rates
                  if ifindex not in self.notes}
        wanted = (vf_rates.of_ports(tree(), entries, usable) if usable
                  else {})
        return wanted, [*vf_rates.steps(self._have, wanted)]

    def ensure(self, tree: Callable[[], model.Tree],
               entries: Mapping[classify.Entry, int], ports: Collection[int]
               ) -> None:
        """Set the rates of a policy; a refusal becomes a note of the port."""
        wanted, steps = self.plan(tree, entries, ports)
        if not steps:
            return
        refused = self.kernel.tc_change(
            [operations.SetRate(step) for step in steps])
        self._have = self._rates()
        for ifindex, name in self._functions.items():
            if refused and name in wanted and (
                    self._have.get(name) != wanted[name]):
                self.notes[ifindex] = (
                    f'{REFUSED} ({os.strerror(refused[0])})')

    def remove(self) -> bool:
        """Take back the rates and groups; False when there was none."""
        steps = [*vf_rates.steps(self._rates(), {})]
        htb.check(self.kernel.tc_change(
            [operations.SetRate(step) for step in steps]),
            'take back the rates of virtual functions')
        return bool(steps)

    def _rates(self) -> vf_rates.Rates:
        return {name: rate for name, rate in map(
            devlink.read_rate, self._dump(devlink.RATE_GET))
            if name.group != vf_rates.OTHERS}

    def _dump(self, command: int) -> list[bytes]:
        try:
            return self.kernel.tc_dump(devlink.request(command))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return []  # a kernel without devlink
