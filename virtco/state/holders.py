# SPDX-License-Identifier: Apache-2.0

"""Hosts or VMs that hold each address. Pure."""

from collections.abc import Iterable


class Holders:
    """Names of hosts or VMs by the addresses that they hold.

    A cloud has many, and two of them seldom hold one address: each is compared
    with those few alone.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, ...]] = {}

    def of(self, address: str) -> tuple[str, ...]:
        """Return those that hold an address."""
        return self._of.get(address, ())

    def update(self, name: str, before: Iterable[str], after: Iterable[str]
               ) -> None:
        """Set the addresses that one holds, in place of those before."""
        before, after = frozenset(before), frozenset(after)
        for address in before - after:
            others = tuple(other for other in self._of.pop(address)
                           if other != name)
            if others:
                self._of[address] = others
        alone = (name,)
        for address in after - before:
            self._of[address] = self._of.get(address, ()) + alone
