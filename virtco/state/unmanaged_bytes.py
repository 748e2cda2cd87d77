# SPDX-License-Identifier: Apache-2.0

"""Destinations and rates of each host's unmanaged traffic. Pure."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import math
from typing import TYPE_CHECKING

from virtco import units
from virtco.table import coflow_table
from virtco.table import unmanaged
from virtco.wire import edge_policy
from virtco.wire import reports

if TYPE_CHECKING:
    from virtco.state import host_state

# A destination that is not named any more keeps its limit for so long, and one
# that was named while the host sent much: a second at full speed after each
# pause, or to each VM of a host in turn, would be a flood without a limit.
KEPT_S, _MUCH_KEPT_S = 10.0, 600.0
# Part of the uplink that unmanaged traffic has where it is much.
_MUCH = 1 / 8
# Addresses that are kept for longer, the newest ones, and addresses of all of
# their hosts together that are limited with them.
_MOST_FLOODED, _MOST_OTHERS = 512, 256


class Towards:
    """Ethernet addresses, and rates to the destinations that are limited.

    :ivar sent_bps: see :class:`virtco.table.unmanaged.Sender`.
    :ivar flooded: addresses named while the host sent much.
    """

    def __init__(self) -> None:
        self.sent_bps: dict[str, float] = {}
        self.flooded: frozenset[str] = frozenset()
        self._kept_until_s: dict[str, float] = {}
        self._sent_bytes: dict[str, float] = {}
        self._unmanaged_bytes = 0.0

    def update(self, report: reports.Report, told: edge_policy.Unmanaged
               | None, elapsed_s: float, now_s: float) -> bool:
        """Take in a report; return whether limits should follow at once.

        :param told: the limits that the host has: packets to these
            destinations are not looked at any more, but counted.
        :param elapsed_s: time since the last report, 0 where none counts.
        """
        is_much = self._is_much(report, elapsed_s)
        kept_s = _MUCH_KEPT_S if is_much else KEPT_S
        if not (report.unmanaged.macs or report.unmanaged.limited
                or self._kept_until_s or self._sent_bytes):
            # Most hosts of most clouds send nothing of the kind.
            if elapsed_s > 0:
                self.sent_bps = {}
            return False
        macs = {} if told is None else {
            '': told.others_macs,
            **{limit.host: limit.macs for limit in told.limits}}
        found = set(report.unmanaged.macs)
        sent: dict[str, float] = {}
        rates: dict[str, float] = {}
        for counter in report.unmanaged.limited:
            host = counter.host or ''
            sent[host] = counter.sent_bytes
            moved = sent[host] - self._sent_bytes.get(host, sent[host])
            if moved > 0 or counter.backlog_bytes:
                found.update(macs.get(host, ()))
            if elapsed_s > 0:
                rates[host] = (
                    math.inf if counter.backlog_bytes else
                    units.bytes_per_s_to_bps(max(0.0, moved) / elapsed_s))
        self._sent_bytes = sent
        if elapsed_s > 0:
            self.sent_bps = rates
        has_new = is_much and not found <= self._kept_until_s.keys()
        for mac in found:
            self._kept_until_s[mac] = max(
                now_s + kept_s, self._kept_until_s.get(mac, 0.0))
        self._kept_until_s = {
            mac: until_s for mac, until_s in self._kept_until_s.items()
            if now_s <= until_s}
        longer = sorted(((until_s, mac) for mac, until_s
                         in self._kept_until_s.items()
                         if until_s > now_s + KEPT_S), reverse=True)
        for _, mac in longer[_MOST_FLOODED:]:
            self._kept_until_s[mac] = now_s + KEPT_S
        self.flooded = frozenset(mac for _, mac in longer[:_MOST_FLOODED])
        return has_new

    def _is_much(self, report: reports.Report, elapsed_s: float) -> bool:
        """Return whether unmanaged traffic had much of the uplink since the
        last report.
        """
        seen = report.shared.get('unmanaged', reports.PartCounters())
        moved_bytes = seen.sent_bytes - self._unmanaged_bytes
        self._unmanaged_bytes = seen.sent_bytes
        egress_bps = report.link.egress_bps or math.inf
        return elapsed_s > 0 and (units.bytes_per_s_to_bps(moved_bytes)
                                  > _MUCH * elapsed_s * egress_bps)

    @property
    def is_sending(self) -> bool:
        """Whether the host sent unmanaged traffic lately, by its reports."""
        return bool(self._kept_until_s or self.sent_bps.get(''))

    @property
    def macs(self) -> frozenset[str]:
        """Ethernet addresses that the host sent to lately."""
        return frozenset(self._kept_until_s)


def senders(hosts: 'Mapping[str, host_state.HostState]', names: Set[str],
            links: Iterable[coflow_table.Link],
            runs_at: Callable[[str], str | None] = lambda vm: None
            ) -> dict[str, unmanaged.Sender]:
    """Return the hosts among ``names`` with the destinations and rates of
    their unmanaged traffic.

    :param runs_at: returns the host on which Nova has a VM. Of hosts that
        report the same address that one counts.
    """
    if not names:
        return {}
    sending = [link for link in links if link.host in names]
    places: dict[str, list[str]] = {}
    for name, at in hosts.items():
        for mac in at.macs:
            places.setdefault(mac, []).append(name)
    found = {}
    for link in sending:
        host = hosts[link.host]
        macs: dict[str, set[str]] = {}
        flooded: set[str] = set()
        for mac in host.towards.macs:
            claimed = places.get(mac, [])
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
                mac for mac in hosts[place].macs if len(places[mac]) == 1)[
                    :_MOST_OTHERS // len(flooded)])
        before = host.unmanaged.limits if host.unmanaged is not None else ()
        found[link.host] = unmanaged.Sender(
            link.egress_bps, link.default_rate_bps,
            {name: frozenset(some) for name, some in macs.items()},
            host.towards.sent_bps,
            {limit.host: limit.slot for limit in before})
    return found
