# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Where a host sends what belongs to no coflow, as it reports. Pure."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import math
from typing import TYPE_CHECKING

from virtco.know import reports
from virtco.table import coflow_table
from virtco.table import edge_policy
from virtco.table import unmanaged
from virtco import units

if TYPE_CHECKING:
    from virtco.know import host_state

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


def senders(hosts: Mapping[str, 'host_state.HostState'], names: Set[str],
            links: Iterable[coflow_table.Link]
            ) -> dict[str, unmanaged.Sender]:
    """What the hosts of these names, which send unmanaged traffic, send to
    which other ones.
    """
    if not names:
        return {}
    sending = [link for link in links if link.host in names]
    places = {mac: name for name, host in hosts.items()
              for mac in host.macs}
    found = {}
    for link in sending:
        host = hosts[link.host]
        macs: dict[str, set[str]] = {}
        for mac in host.towards.macs:
            place = places.get(mac)
            if place is not None and place != link.host:
                macs.setdefault(place, set()).add(mac)
        before = host.unmanaged.limits if host.unmanaged is not None else ()
        found[link.host] = unmanaged.Sender(
            link.egress_bps, link.default_rate_bps,
            {name: frozenset(some) for name, some in macs.items()},
            host.towards.sent_bps,
            {limit.host: limit.slot for limit in before})
    return found
