# SPDX-License-Identifier: Apache-2.0

"""Hosts that report each MAC address. Pure."""

from collections.abc import Iterator


class Reporters:
    """Hosts by the MAC addresses in their reports.

    A cloud has many hosts, and two of them seldom report one address: a host
    is compared with those few alone.
    """

    def __init__(self) -> None:
        self._macs: dict[str, frozenset[str]] = {}
        self._hosts: dict[str, tuple[str, ...]] = {}

    def update(self, host: str, macs: frozenset[str]) -> None:
        """Set the addresses that a host reports; none forgets it."""
        before = self._macs.pop(host, frozenset())
        for mac in before - macs:
            others = tuple(other for other in self._hosts.pop(mac)
                           if other != host)
            if others:
                self._hosts[mac] = others
        alone = (host,)
        for mac in macs - before:
            self._hosts[mac] = self._hosts.get(mac, ()) + alone
        if macs:
            self._macs[host] = macs

    def of(self, mac: str) -> tuple[str, ...]:
        """Return the hosts that report an address."""
        return self._hosts.get(mac, ())

    def shared(self, host: str) -> Iterator[tuple[str, str]]:
        """Yield each address of a host that another one reports, too, and
        that one.
        """
        for mac in self._macs.get(host, ()):
            for other in self._hosts[mac]:
                if other != host:
                    yield mac, other
