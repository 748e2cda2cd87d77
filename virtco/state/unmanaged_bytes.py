# SPDX-License-Identifier: Apache-2.0

"""Destinations and rates of each host's unmanaged traffic. Pure."""

import math

from virtco import units
from virtco.state import byte_counters
from virtco.wire import edge_policy
from virtco.wire import reports

# A destination that is not named any more keeps its limit for so long, and one
# that was named while the host sent much: a second at full speed after each
# pause, or to each VM of a host in turn, would be a flood without a limit.
KEPT_S, _MUCH_KEPT_S = 10.0, 600.0
# Part of the uplink that unmanaged traffic has where it is much.
_MUCH = 1 / 8
# Addresses that are kept for longer, the newest ones.
_MOST_FLOODED = 512


class Towards:
    """Ethernet addresses, and rates to the destinations that are limited.

    :ivar sent_bps: see :class:`virtco.table.unmanaged.Sender`.
    :ivar flooded: addresses named while the host sent much.
    """

    def __init__(self) -> None:
        self.sent_bps: dict[str, float] = {}
        self.flooded = byte_counters.NOTHING
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
        self.flooded = (frozenset(mac for _, mac in longer[:_MOST_FLOODED])
                        or byte_counters.NOTHING)
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
