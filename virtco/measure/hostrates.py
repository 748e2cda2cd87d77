# SPDX-License-Identifier: Apache-2.0

"""From rates of host pairs to the rates of the hosts themselves.

In the hose model a train from m to n sees the narrower of two pipes, R_mn =
min(B_e^m, B_in^n): a pair's rate is a lower bound of both.
The widest recent pair of a host is therefore its estimate, and the question
is whom to blame for the pairs that are narrow (Choreo sections 3.3.2 and 4.3
find the sender to be the bottleneck in this way).
"""

from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import heapq
import operator
import statistics

from virtco.measure import history

#: Rates that differ by less than this are the same rate measured twice.
TOLERANCE = 0.1
#: Newest readings that speak for one direction of one host. More would keep a
#: rate alive that the link no longer has.
RECENT = 4
#: After this time a reading is worth half of a new one. Rates of clouds stay
#: within 6 % for half an hour (Choreo section 4.1).
HALF_LIFE_S = 1800.0
#: A reading so much older than the newest of its side says nothing any more.
STALE_S = 4 * HALF_LIFE_S

_MEASURED = operator.attrgetter('measured_s')


@dataclasses.dataclass(frozen=True, slots=True)
class HostRate:
    """Rates of a host's link out and in, None where unknown.

    :ivar measured_s: time of the newest reading of the direction that is
        older.
    :ivar egress_lower_bound: the uplink may be faster, because either the
        trains were limited elsewhere or the peers are known to be slow. The
        link's nominal rate is then the better guess if it is higher.
    """

    egress_bps: float | None
    ingress_bps: float | None
    measured_s: float
    egress_lower_bound: bool = False
    ingress_lower_bound: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class _Side:
    """Direction of a host's link: its rate and the readings behind it.

    :ivar readings: (peer, rate_bps) of each.
    """

    rate_bps: float
    newest_s: float
    lower_bound: bool
    readings: tuple[tuple[str, float], ...]


def confidence(age_s: float) -> float:
    """Weigh a reading by its age: 1 for now, towards 0."""
    return float(0.5 ** (max(0.0, age_s) / HALF_LIFE_S))


class Readings:
    """Newest reading of each pair, and the hosts' rates by them.

    A reading concerns two sides, and which readings speak for a side depends
    on how fast its peers are known to be. So that thousands of pairs cost
    little, only the sides are looked at again that a new reading concerns.
    """

    def __init__(self) -> None:
        #: Readings by whether the host sends, host and peer.
        self._by_peer: dict[bool, dict[str, dict[str, history.Reading]]] = {
            True: {}, False: {}}
        self._widest_bps: dict[bool, dict[str, float]] = {True: {}, False: {}}
        self._sides: dict[bool, dict[str, _Side]] = {True: {}, False: {}}

    def add(self, pair: history.Reading) -> None:
        """Take a reading, unless a newer one of the pair is known."""
        known = self._by_peer[True].get(pair.src, {}).get(pair.dst)
        if known is not None and known.measured_s > pair.measured_s:
            return
        self._put(True, pair.src, pair.dst, pair)
        self._put(False, pair.dst, pair.src, pair)

    def estimate(self) -> dict[str, HostRate]:
        """Estimate egress and ingress of every host that was measured.

        Without noise an estimate never exceeds the true rate, and it is the
        true rate as soon as two recent peers are at least as fast.
        """
        for sends, hosts in self._by_peer.items():
            for host in hosts:
                if host not in self._sides[sends]:
                    self._sides[sends][host] = self._choose(sends, host)
        out_sides = self._sides[True]
        in_sides = self._sides[False]
        slow_out = _blamed(out_sides, in_sides)
        slow_in = _blamed(in_sides, out_sides)
        found = {}
        for host in sorted(out_sides.keys() | in_sides.keys()):
            egress, ingress = out_sides.get(host), in_sides.get(host)
            found[host] = HostRate(
                egress.rate_bps if egress else None,
                ingress.rate_bps if ingress else None,
                min(side.newest_s for side in (egress, ingress)
                    if side is not None),
                _is_bound(host, egress, slow_out, slow_in),
                _is_bound(host, ingress, slow_in, slow_out))
        return found

    def _put(self, sends: bool, host: str, peer: str, pair: history.Reading
             ) -> None:
        """Store a reading, and mark the sides whose rate it may change."""
        by_peer = self._by_peer[sends].setdefault(host, {})
        replaced = by_peer.get(peer)
        by_peer[peer] = pair
        self._sides[sends].pop(host, None)
        widest_bps = known_bps = self._widest_bps[sends].get(host, 0.0)
        if replaced is not None and replaced.rate_bps >= known_bps:
            widest_bps = max(r.rate_bps for r in by_peer.values())
        widest_bps = max(widest_bps, pair.rate_bps)
        if widest_bps != known_bps:
            self._widest_bps[sends][host] = widest_bps
            for other in by_peer:
                self._sides[not sends].pop(other, None)

    def _choose(self, sends: bool, host: str) -> '_Side':
        """Choose the newest readings with peers that were not the limit.

        Where hosts differ, a reading with a slow peer says nothing of this
        side, however new. The second widest reading is what a peer must be
        able to do: a single one that is too high shall not silence the rest.
        """
        by_peer = self._by_peer[sends][host]
        peer_bps = self._widest_bps[not sends]
        oldest_s = max(map(_MEASURED, by_peer.values())) - STALE_S
        fresh = {peer: reading for peer, reading in by_peer.items()
                 if reading.measured_s >= oldest_s}
        plain = {peer: reading for peer, reading in fresh.items()
                 if not reading.lower_bound}
        needed_bps = (1 - TOLERANCE) * heapq.nlargest(
            2, (reading.rate_bps for reading in plain.values()))[-1] if (
                plain) else 0.0
        return _widest(
            {peer: reading for peer, reading in plain.items()
             if peer_bps[peer] >= needed_bps},
            {peer: reading for peer, reading in fresh.items()
             if reading.lower_bound})


def _widest(plain: Mapping[str, history.Reading],
            bounds: Mapping[str, history.Reading]) -> _Side:
    """Compute the rate at which a side's newest readings agree at the top.

    :param plain, bounds: readings by peer, and those that only bound the
        side's rate from below.
    """
    newest_bounds = _newest(bounds)
    newest = _newest(plain)
    widest_bps = max((r.rate_bps for r in newest), default=0.0)
    top_bps = [r.rate_bps for r in newest if _same(r.rate_bps, widest_bps)]
    rate_bps = statistics.median(top_bps) if top_bps else 0.0
    bound_bps = max((r.rate_bps for r in newest_bounds), default=0.0)
    is_bound = not top_bps or bound_bps > rate_bps * (1 + TOLERANCE)
    # All readings that agree with the rate explain it.
    return _Side(
        rate_bps=bound_bps if is_bound else rate_bps,
        newest_s=max(map(_MEASURED, (*newest, *newest_bounds))),
        lower_bound=is_bound, readings=tuple(
            (peer, r.rate_bps) for peer, r in plain.items()
            if _same(r.rate_bps, widest_bps)
            and _same(widest_bps, r.rate_bps)))


def _newest(readings: Mapping[str, history.Reading]) -> list[history.Reading]:
    return heapq.nlargest(RECENT, readings.values(), key=_MEASURED)


def _same(rate_bps: float, widest_bps: float) -> bool:
    return rate_bps >= widest_bps * (1 - TOLERANCE)


def _blamed(sides: Mapping[str, _Side], peers: Mapping[str, _Side]
            ) -> set[str]:
    """Find hosts that were narrow with a peer that did better elsewhere."""
    return {host for host, side in sides.items()
            if any(rate_bps < peers[peer].rate_bps * (1 - TOLERANCE)
                   for peer, rate_bps in side.readings)}


def _is_bound(host: str, side: _Side | None, blamed: Set[str],
              blamed_peers: Set[str]) -> bool:
    """Tell whether a side may be faster than its rate.

    A peer that did better with someone else clears itself. A peer that is
    blamed by others explains the rate.
    """
    return side is not None and (side.lower_bound or (
        host not in blamed and all(
            peer in blamed_peers for peer, _ in side.readings)))
