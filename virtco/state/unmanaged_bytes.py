# SPDX-License-Identifier: Apache-2.0

"""Where a host sends what belongs to no coflow, as it reports. Pure."""

import math

from virtco import units
from virtco.wire import edge_policy
from virtco.wire import reports

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
        :param elapsed_s: since the last one, 0 where none counts.
        """
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
        return bool(self._seen_s or self.sent_bps.get(''))

    @property
    def macs(self) -> frozenset[str]:
        return frozenset(self._seen_s)
