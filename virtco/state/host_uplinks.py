# SPDX-License-Identifier: Apache-2.0

"""The uplinks of all hosts, as they are told until something changes. Pure.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import math

import numpy as np

from virtco.measure import hostrates
from virtco.state import host_state
from virtco.state import measured_rates
from virtco.state import schedule_input as snapshots
from virtco.state import uplink_rates
from virtco.table import coflow_table
from virtco.table import unmanaged

# Addresses that are limited beside those that a host floods, of all hosts of
# these together.
_MOST_OTHERS = 256


class HostUplinks:
    """Capacities of the hosts' uplinks, read again where a host changed.

    :param hosts: hosts that report or that Nova has; the caller says when one
        came or changed, and locks.
    :ivar known: hosts as last told; equal values stay the same object.
    :ivar capacities: capacity of each host.
    :ivar strangers: hosts on which VMs run and of which nothing is known.
    """

    def __init__(self, rules: uplink_rates.Rules, share: snapshots.Share,
                 rates: measured_rates.Rates,
                 hosts: Mapping[str, host_state.HostState]):
        self._rules = rules
        self._share = share
        self._rates = rates
        self._hosts = hosts
        self.known = snapshots.Hosts()
        self.capacities: dict[str, uplink_rates.Capacity] = {}
        self.strangers: frozenset[str] = frozenset()
        # As in HostState.others.
        self._others_bps = np.zeros((3, 0))
        # Hosts of which something changed; None: any may have.
        self._changed: set[str] | None = None
        self._measured: Mapping[str, hostrates.HostRate] | None = None
        self._rates_hold_until_s = math.inf

    def set_strangers(self, hosts: Set[str]) -> bool:
        """Set the unknown hosts; return whether they changed."""
        if hosts == self.strangers:
            return False
        self.strangers = frozenset(hosts)
        self._changed = None
        return True

    def rehost(self, gone: str = '') -> None:
        """Read all hosts again: one came, or ``gone`` went."""
        self.capacities.pop(gone, None)
        self._changed = None

    def changed(self, host: str) -> None:
        """Read the host's link again."""
        if self._changed is not None:
            self._changed.add(host)

    def observed(self, host: str) -> None:
        """Read the host's other traffic."""
        place = self.known.number_of.get(host)
        if place is not None:
            self._others_bps[:, place] = [
                average.value for average in self._hosts[host].others]

    def refresh(self, now_s: float) -> None:
        """Look again at those of which something changed."""
        measured = self._rates.hosts()
        if measured is not self._measured or now_s > self._rates_hold_until_s:
            self._measured = measured
            self._rates_hold_until_s = min(
                (until_s for rate in measured.values() for until_s in [
                    rate.measured_s + self._rules.max_age_s]
                 if until_s >= now_s), default=math.inf)
            self._changed = None
        elif self._changed is not None and not self._changed:
            return
        before = {host.name: host for host in self.known}
        found = dict(before)
        if self._changed is None:
            self._changed = set(self._hosts)
            found = {name: snapshots.Host(name, None, 0.0, 0.0)
                     for name in self.strangers}
        for name in self._changed:
            found[name] = self._uplink(name, measured.get(name), now_s)
        self._changed = set()
        if found == before:
            return
        self.known = snapshots.Hosts(
            before[name] if before.get(name) == found[name] else found[name]
            for name in sorted(found))
        self._others_bps = np.zeros((3, len(self.known)))
        for name in self._hosts:
            self.observed(name)

    def _uplink(self, name: str, rate: hostrates.HostRate | None,
                now_s: float) -> snapshots.Host:
        """Combine a host's reported link and its measured rate."""
        state = self._hosts[name]
        found = self.capacities[name] = uplink_rates.of_host(
            state.report.link, rate, self._rules, now_s)
        link = None
        if state.last_report is not None:
            said = state.report.link
            egress_bps = said.egress_bps or found.egress_bps
            link = coflow_table.Link(
                name, egress_bps, said.ingress_bps or found.ingress_bps,
                egress_bps * self._share.default_share)
        return snapshots.Host(name, link, found.egress_bps, found.ingress_bps)

    def residual(self, is_fair: bool) -> tuple[np.ndarray, np.ndarray]:
        """Compute the rates that are left for coflows, egress and ingress.

        See :meth:`virtco.state.schedule_input.Share.residual`.
        """
        return self._share.residual(self.known, is_fair, *self._others_bps)

    def background_share(self) -> float:
        """Return the share of traffic that belongs to no coflow."""
        total_bps = self.known.links_bps
        low_bps = float(self._others_bps[0].sum())
        return min(1.0, low_bps / total_bps) if total_bps else 0.0


def senders(hosts: Mapping[str, host_state.HostState], names: Set[str],
            links: Iterable[coflow_table.Link],
            reporters: Callable[[str], Collection[str]],
            runs_at: Callable[[str], str | None] = lambda vm: None
            ) -> dict[str, unmanaged.Sender]:
    """Return the hosts among ``names`` with the destinations and rates of
    their unmanaged traffic.

    :param reporters: returns the hosts that report a MAC address.
    :param runs_at: returns the host on which Nova has a VM. Of hosts that
        report the same address that one counts.
    """
    found = {}
    for link in links if names else ():
        if link.host not in names:
            continue
        host = hosts[link.host]
        macs: dict[str, set[str]] = {}
        flooded: set[str] = set()
        for mac in host.towards.macs:
            claimed = reporters(mac)
            homes = claimed if len(claimed) == 1 else [
                place for place in claimed
                if hosts[place].is_home(mac, runs_at)] or claimed
            for place in homes:
                if place != link.host:
                    macs.setdefault(place, set()).add(mac)
                    if mac in host.towards.flooded:
                        flooded.add(place)
        for place in flooded:
            macs[place].update(sorted(
                mac for mac in hosts[place].macs if len(reporters(mac)) == 1)[
                    :_MOST_OTHERS // len(flooded)])
        before = host.unmanaged.limits if host.unmanaged is not None else ()
        found[link.host] = unmanaged.Sender(
            link.egress_bps, link.default_rate_bps,
            {name: frozenset(some) for name, some in macs.items()},
            host.towards.sent_bps,
            {limit.host: limit.slot for limit in before})
    return found
