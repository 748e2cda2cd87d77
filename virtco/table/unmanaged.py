# SPDX-License-Identifier: Apache-2.0

"""Limits of unmanaged traffic towards hosts where coflows arrive. Pure.

What does not belong to a coflow is limited where it is sent, by the host it
goes to: there is nothing that a receiver could do about a sender that does not
slow down (EyeQ, NSDI 2013; ElasticSwitch, SIGCOMM 2013). All senders together
get what the coflows leave of a receiver's link, by max-min fairness: who wants
less than an equal share leaves the rest to the others.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
import math

from virtco.wire import edge_policy

# A sender may grow by this before it is asked again.
_GROWTH = 1.5
# Share of an equal share that each sender has at least: one that begins must
# be heard of.
_LEAST_SHARE = 0.125
# A sender floods from this part of the limit of broadcasts on. 64 senders that
# do not flood keep to the limit together.
_FLOOD_PART = 1 / 64


@dataclasses.dataclass(frozen=True, slots=True)
class Sender:
    """The unmanaged traffic of one host.

    :ivar egress_bps: speed of its uplink.
    :ivar others_bps: highest rate to all other destinations together.
    :ivar macs: addresses of the destination VMs, by destination host. An
        address that two networks have may be at several hosts.
    :ivar sent_bps: recent rate to each limited destination, infinity where
        packets wait; the key '' stands for the others.
    :ivar slots: slot of each destination that is limited already.
    """

    egress_bps: float
    others_bps: float
    macs: Mapping[str, frozenset[str]]
    sent_bps: Mapping[str, float]
    slots: Mapping[str, int]

    @property
    def floods(self) -> bool:
        """Whether it sends much to everybody, such as broadcasts."""
        return self.sent_bps.get('', 0.0) > _FLOOD_PART * self.others_bps


def shares(total_bps: float, wanted_bps: Mapping[str, float]
           ) -> dict[str, float]:
    """Split a rate by max-min fairness; the unwanted rest is split, too.

    :param wanted_bps: wanted rate per sender; infinity for all it can get.
    """
    given: dict[str, float] = {}
    left_bps = total_bps
    for number, name in enumerate(sorted(wanted_bps, key=lambda key: (
            wanted_bps[key], key))):
        fair_bps = left_bps / (len(wanted_bps) - number)
        given[name] = min(wanted_bps[name], fair_bps)
        left_bps -= given[name]
    return {name: rate_bps + left_bps / len(given)
            for name, rate_bps in given.items()}


@functools.lru_cache(maxsize=256)
def nothing_limited(others_bps: float) -> edge_policy.Unmanaged:
    """Return the limits of a host without limited destinations."""
    return edge_policy.Unmanaged(others_bps)


def limits(left_bps: Mapping[str, float], senders: Mapping[str, Sender]
           ) -> dict[str, edge_policy.Unmanaged]:
    """Return the limits for each sender.

    :param left_bps: rate that coflows leave of the link of each host where
        they arrive.
    """
    rates: dict[str, dict[str, float]] = {name: {} for name in senders}
    to: dict[str, dict[str, Sender]] = {}
    for name, sender in senders.items():
        for host, macs in sender.macs.items():
            if name != host and macs:
                to.setdefault(host, {})[name] = sender
    for host, total_bps in left_bps.items():
        towards = to.get(host, {})
        if not towards:
            continue
        least_bps = _LEAST_SHARE * total_bps / len(towards)
        wanted_bps = {name: max(least_bps, _GROWTH * sender.sent_bps.get(
            host, math.inf)) for name, sender in towards.items()}
        for name, rate_bps in shares(total_bps, wanted_bps).items():
            rates[name][host] = rate_bps
    flooding = sum(sender.floods for sender in senders.values())
    return {name: _of_sender(
        sender, rates[name], len(left_bps) > (name in left_bps), flooding)
        for name, sender in senders.items()}


def _of_sender(sender: Sender, rates: Mapping[str, float],
               is_needed: bool, flooding: int) -> edge_policy.Unmanaged:
    """Build the limits of one sender's unmanaged traffic."""
    slots = _slots(sender, rates)
    places = collections.Counter(
        mac for macs in sender.macs.values() for mac in macs)
    # Addresses of hosts without a class, or at several hosts: a packet to them
    # is not known to go to one host.
    others = {mac for host in rates for mac in sender.macs[host]
              if host not in slots or places[mac] > 1}
    return edge_policy.Unmanaged(
        sender.others_bps / max(1, flooding) if is_needed
        else sender.egress_bps, _some(others),
        tuple(edge_policy.DestinationLimit(host, slot, rates[host],
                                           _some(sender.macs[host] - others))
              for slot, host in sorted(
                  (slot, host) for host, slot in slots.items())))


def _some(macs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(macs)[:edge_policy.MAX_MACS])


def _slots(sender: Sender, wanted: Iterable[str]) -> dict[str, int]:
    """Assign slots to destinations, first to those that are sent to; one that
    has a slot keeps it.
    """
    before = sender.slots
    wanted = sorted(wanted, key=lambda host: (
        sender.sent_bps.get(host, math.inf) <= 0, host not in before, host)
        )[:edge_policy.MAX_LIMITS]
    kept = {host: before[host] for host in wanted if host in before}
    free = iter(sorted(set(range(1, edge_policy.MAX_LIMITS + 1))
                       - set(kept.values())))
    new = dict(zip((host for host in wanted if host not in kept), free))
    return kept | new


def is_close(old: edge_policy.Unmanaged | None,
             new: edge_policy.Unmanaged | None, tolerance: float) -> bool:
    """Return whether two are equal up to small changes of rates."""
    if old is new or old is None or new is None:
        return old is new
    return _names(old) == _names(new) and near(
        _rates(old), _rates(new), tolerance)


def near(old: Iterable[float], new: Iterable[float], tolerance: float
         ) -> bool:
    """Return whether each two rates differ by little of the larger one."""
    return all(abs(mine - other) <= tolerance * max(mine, other)
               for mine, other in zip(old, new))


def _names(some: edge_policy.Unmanaged) -> object:
    return some.others_macs, [(limit.host, limit.slot, limit.macs)
                              for limit in some.limits]


def _rates(some: edge_policy.Unmanaged) -> list[float]:
    return [some.others_bps, *(limit.rate_bps for limit in some.limits)]
