# SPDX-License-Identifier: Apache-2.0

"""Keeps the rates of virtual functions of cards without switchdev mode.

Such a card shows no representors, so a function is known by its Ethernet
address, and no mark tells whose rate it has: where this is wanted, the rates
of all functions of the uplinks are virtco's.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import itertools
import os
from typing import NamedTuple

from edge_module import virtual_functions
from edge_module.classify import classified as classify
from edge_module.privileged import devices
from edge_module.privileged import helper_protocol as protocol
from edge_module.privileged import kernel_calls
from edge_module.privileged import operations
from edge_module.qdisc import vf_link
from edge_module.tcplan import model
from edge_module.tcplan import vf_rates
from virtco.wire import edge_policy

SET = ('VF rate: the card holds it, but no order, no limit by destination and '
       'no counter')
_NO_RATE = vf_rates.Rate()


class Function(NamedTuple):
    """A virtual function as its card shows it.

    :ivar ifindex: index of the card's own device.
    """

    ifindex: int
    number: int
    mac: str
    rate: vf_rates.Rate


class CardRates:
    """Rates of the virtual functions of some devices.

    :param devs: names of the cards' own devices.
    :ivar notes: rate of a port, or why it has none, by Ethernet address.
    """

    def __init__(self, kernel: protocol.Kernel, devs: Collection[str]):
        self.kernel = kernel
        self.devs = devs
        self.notes: dict[str, str] = {}
        self._without_share: set[int] = set()

    def plan(self, tree: Callable[[], model.Tree],
             policy: edge_policy.EdgePolicy | None,
             ports: Iterable[classify.VmPort]
             ) -> dict[Function, vf_rates.Rate]:
        """Return the rate of a policy for each function.

        :param tree: returns the tree of the uplink; not called without a
            virtual function.
        """
        functions = [*self._functions()]
        if not functions:
            return {}
        names = {one.mac: vf_rates.Name('vf', str(one.ifindex), one.number)
                 for one in functions}
        # A port without a device gets a number of its own as an index.
        here = [dataclasses.replace(port, ifindex=index) for index, port
                in enumerate(ports, 1) if port.mac.lower() in names]
        wanted = {} if policy is None or not here else vf_rates.of_ports(
            tree(), classify.build_table(policy, here).entries,
            {port.ifindex: names[port.mac.lower()] for port in here})
        return {one: self._possible(one, wanted.get(names[one.mac], _NO_RATE))
                for one in functions}

    def _possible(self, one: Function, rate: vf_rates.Rate) -> vf_rates.Rate:
        return rate._replace(group=0, share_mbps=0 if (
            one.ifindex in self._without_share) else rate.share_mbps)

    def ensure(self, tree: Callable[[], model.Tree],
               policy: edge_policy.EdgePolicy | None,
               ports: Iterable[classify.VmPort]) -> None:
        """Set the rates of a policy; a refusal becomes a note of the port.

        Many cards limit a function and guarantee it nothing.
        """
        self.notes = {}
        for one, rate in self.plan(tree, policy, ports).items():
            if any(rate):
                self.notes[one.mac] = SET
            refused = self._set(one, rate) if rate != one.rate else []
            if refused and rate.share_mbps:
                self._without_share.add(one.ifindex)
                refused = self._set(one, self._possible(one, rate))
            if refused:
                self.notes[one.mac] = (f'{virtual_functions.REFUSED} '
                                       f'({os.strerror(refused[0])})')

    def remove(self) -> bool:
        """Take back all rates; False when there was none."""
        changed = [one for one in self._functions() if any(one.rate)]
        for one in changed:
            self._set(one, _NO_RATE)
        return bool(changed)

    def _set(self, one: Function, rate: vf_rates.Rate) -> list[int]:
        return self.kernel.tc_change([operations.SetFunction(
            one.ifindex, one.number, rate.share_mbps, rate.most_mbps)])

    def _functions(self) -> Iterable[Function]:
        return itertools.chain.from_iterable(map(read, self.devs))


def read(dev: str) -> list[Function]:
    """Read the virtual functions of a card; none without the device."""
    ifindex = devices.ifindex(dev)
    if not ifindex:
        return []
    try:
        answer = kernel_calls.ask(vf_link.request(ifindex))
    except OSError:
        return []
    return [Function(ifindex, *one) for one in vf_link.read(answer)]
