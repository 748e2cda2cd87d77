# SPDX-License-Identifier: Apache-2.0

"""Which hosts send each other what belongs to no coflow. Pure."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set

from virtco.state import host_state
from virtco.table import coflow_table
from virtco.table import unmanaged


def senders(hosts: Mapping[str, host_state.HostState], names: Set[str],
            links: Iterable[coflow_table.Link]
            ) -> dict[str, unmanaged.Sender]:
    """Return the hosts among ``names`` with the destinations and rates of
    their unmanaged traffic.
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
            for place in places.get(mac, ()):
                if place != link.host:
                    macs.setdefault(place, set()).add(mac)
        before = host.unmanaged.limits if host.unmanaged is not None else ()
        found[link.host] = unmanaged.Sender(
            link.egress_bps, link.default_rate_bps,
            {name: frozenset(some) for name, some in macs.items()},
            host.towards.sent_bps,
            {limit.host: limit.slot for limit in before})
    return found
