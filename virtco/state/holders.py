# SPDX-License-Identifier: Apache-2.0

"""Hosts or VMs that hold each address. Pure."""

from collections.abc import Collection
from collections.abc import Iterable


class Holders:
    """Names of hosts or VMs by the addresses that they hold.

    Thousands of VMs may hold one address, each in a network of its tenant.
    """

    def __init__(self) -> None:
        # Names as keys, in the order in which they came.
        self._of: dict[str, dict[str, None]] = {}

    def of(self, address: str) -> Collection[str]:
        """Return those that hold an address."""
        return self._of.get(address, {}).keys()

    def update(self, name: str, before: Iterable[str], after: Iterable[str]
               ) -> None:
        """Set the addresses that one holds, in place of those before."""
        before, after = frozenset(before), frozenset(after)
        for address in before - after:
            others = self._of[address]
            del others[name]
            if not others:
                del self._of[address]
        for address in after - before:
            self._of.setdefault(address, {})[name] = None
