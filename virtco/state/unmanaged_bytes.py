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

# A destination that is not named any more keeps its limit for so long.
KEPT_S = 10.0


class Towards:
    """Ethernet addresses, and rates to the destinations that are limited.

    :ivar sent_bps: see :class:`virtco.table.unmanaged.Sender`.
    """

    def __init__(self) -> None:
        self.sent_bps: dict[str, float] = {}
        self._seen_s: dict[str, float] = {}
        self._sent_bytes: dict[str, float] = {}

    def update(self, report: reports.Report, told: edge_policy.Unmanaged
               | None, elapsed_s: float, now_s: float) -> None:
        """Take in a report.

        :param told: the limits that the host has: packets to these
            destinations are not looked at any more, but counted.
        :param elapsed_s: time since the last report, 0 where none counts.
        """
        if not (report.unmanaged.macs or report.unmanaged.limited
                or self._seen_s or self._sent_bytes):
            # Most hosts of most clouds send nothing of the kind.
            if elapsed_s > 0:
                self.sent_bps = {}
            return
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
        self._seen_s.update(dict.fromkeys(found, now_s))
        self._seen_s = {mac: seen_s for mac, seen_s in self._seen_s.items()
                        if now_s - seen_s <= KEPT_S}

    @property
    def is_sending(self) -> bool:
        """Whether the host sent unmanaged traffic lately, by its reports."""
        return bool(self._seen_s or self.sent_bps.get(''))

    @property
    def macs(self) -> frozenset[str]:
        """Ethernet addresses that the host sent to within :data:`KEPT_S`."""
        return frozenset(self._seen_s)


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
        for mac in host.towards.macs:
            claimed = places.get(mac, [])
            homes = claimed if len(claimed) == 1 else [
                place for place in claimed
                if hosts[place].is_home(mac, runs_at)] or claimed
            for place in homes:
                if place != link.host:
                    macs.setdefault(place, set()).add(mac)
        before = host.unmanaged.limits if host.unmanaged is not None else ()
        found[link.host] = unmanaged.Sender(
            link.egress_bps, link.default_rate_bps,
            {name: frozenset(some) for name, some in macs.items()},
            host.towards.sent_bps,
            {limit.host: limit.slot for limit in before})
    return found
