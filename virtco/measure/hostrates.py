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


"""From rates of host pairs to the rates of the hosts themselves.

In the hose model a train from m to n sees the narrower of two pipes, R_mn =
min(B_e^m, B_in^n): a pair's rate is a lower bound of both.
The widest recent pair of a host is therefore its estimate, and the question
is whom to blame for the pairs that are narrow (Choreo sections 3.3.2 and 4.3
find the sender to be the bottleneck in this way).
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import heapq
import operator
import statistics

#: Rates that differ by less than this are the same rate measured twice.
TOLERANCE = 0.1
#: So many of the newest readings speak for one direction of one host. More
#: would keep a rate alive that the link no longer has.
RECENT = 4
#: After this time a reading is worth half of a new one. Rates of clouds stay
#: within 6 % for half an hour (Choreo section 4.1).
HALF_LIFE_S = 1800.0

_SRC = operator.attrgetter('src')
_DST = operator.attrgetter('dst')
_MEASURED = operator.attrgetter('measured_s')


@dataclasses.dataclass(frozen=True, slots=True)
class PairRate:
    """The newest rate from one host to another.

    :ivar measured_s: when, on the clock of ``now_s``.
    :ivar lower_bound: the pipe is at least this wide: the sender was the
        limit, or other traffic shared the link.
    """

    src: str
    dst: str
    rate_bps: float
    measured_s: float
    lower_bound: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class HostRate:
    """What the uplink of one host does, None where nothing is known.

    :ivar age_s: since the newest reading of the direction that is older.
    :ivar egress_confidence: 0 to 1: how surely this host, and not its peers,
        explains the rate, times what age leaves of it.
    :ivar egress_lower_bound: the uplink may be faster, because either the
        trains were limited elsewhere or the peers are known to be slow. The
        link's nominal rate is then the better guess if it is higher.
    """

    egress_bps: float | None
    ingress_bps: float | None
    age_s: float
    egress_confidence: float = 0.0
    ingress_confidence: float = 0.0
    egress_lower_bound: bool = False
    ingress_lower_bound: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class _Side:
    """One direction of one host: the readings at its widest.

    :ivar readings: (peer, rate_bps) of each.
    """

    rate_bps: float
    newest_s: float
    lower_bound: bool
    readings: tuple[tuple[str, float], ...]


def confidence(age_s: float, half_life_s: float = HALF_LIFE_S) -> float:
    """How much a reading of that age still counts, 1 (now) towards 0."""
    return float(0.5 ** (max(0.0, age_s) / half_life_s))


def estimate(pair_rates: Iterable[PairRate],
             now_s: float) -> dict[str, HostRate]:
    """Estimate egress and ingress of every host that was measured.

    Without noise an estimate never exceeds the true rate, and it is the true
    rate as soon as one recent peer is at least as fast.

    :param pair_rates: at most one reading per (src, dst) is used, the newest.
    """
    newest: dict[tuple[str, str], PairRate] = {}
    for pair in pair_rates:
        known = newest.get((pair.src, pair.dst))
        if known is None or known.measured_s <= pair.measured_s:
            newest[pair.src, pair.dst] = pair
    egress: dict[str, list[PairRate]] = {}
    ingress: dict[str, list[PairRate]] = {}
    for pair in newest.values():
        egress.setdefault(pair.src, []).append(pair)
        ingress.setdefault(pair.dst, []).append(pair)
    out_sides = {host: _widest(found, _DST)
                 for host, found in egress.items()}
    in_sides = {host: _widest(found, _SRC)
                for host, found in ingress.items()}
    return {host: _host_rate(host, out_sides, in_sides, now_s)
            for host in sorted(out_sides.keys() | in_sides.keys())}


def _widest(readings: list[PairRate], peer: Callable[[PairRate], str]
            ) -> _Side:
    """The rate at which the newest readings of a side agree at the top."""
    plain = heapq.nlargest(RECENT, (r for r in readings if not r.lower_bound),
                           key=_MEASURED)
    bounds = heapq.nlargest(RECENT, (r for r in readings if r.lower_bound),
                            key=_MEASURED)
    widest_bps = max((r.rate_bps for r in plain), default=0.0)
    top = [r for r in plain if _same(r.rate_bps, widest_bps)]
    rate_bps = statistics.median(r.rate_bps for r in top) if top else 0.0
    bound_bps = max((r.rate_bps for r in bounds), default=0.0)
    is_bound = not top or bound_bps > rate_bps * (1 + TOLERANCE)
    return _Side(
        rate_bps=bound_bps if is_bound else rate_bps,
        newest_s=max(r.measured_s for r in (*plain, *bounds)),
        lower_bound=is_bound,
        readings=tuple((peer(r), r.rate_bps)
                       for r in (bounds if is_bound else top)))


def _same(rate_bps: float, widest_bps: float) -> bool:
    return rate_bps >= widest_bps * (1 - TOLERANCE)


def _host_rate(host: str, out_sides: Mapping[str, _Side],
               in_sides: Mapping[str, _Side], now_s: float) -> HostRate:
    egress = out_sides.get(host)
    ingress = in_sides.get(host)
    sides = [side for side in (egress, ingress) if side is not None]
    out_confidence, out_bound = _attribute(egress, in_sides, out_sides, now_s)
    in_confidence, in_bound = _attribute(ingress, out_sides, in_sides, now_s)
    return HostRate(
        egress_bps=egress.rate_bps if egress else None,
        ingress_bps=ingress.rate_bps if ingress else None,
        age_s=max(0.0, now_s - min(side.newest_s for side in sides)),
        egress_confidence=out_confidence, ingress_confidence=in_confidence,
        egress_lower_bound=out_bound, ingress_lower_bound=in_bound)


def _attribute(side: _Side | None, peers: Mapping[str, _Side],
               own: Mapping[str, _Side],
               now_s: float) -> tuple[float, bool]:
    """Confidence that a side is its own bottleneck; is it a lower bound?

    A peer that did better with someone else clears itself. A peer that is
    blamed by others explains the rate, so this side may be faster. All other
    peers share the blame evenly with this side, and that all of them are
    equally slow gets less likely with each.
    """
    if side is None:
        return 0.0, False
    fresh = confidence(now_s - side.newest_s)
    if side.lower_bound:
        return 0.5 * fresh, True
    if any(_clears(peers[peer], rate_bps) for peer, rate_bps in side.readings):
        return fresh, False
    open_peers = sum(not _is_blamed(peers[peer], own)
                     for peer, _ in side.readings)
    if open_peers == 0:
        return 0.5 * fresh, True
    return (1 - 0.5 ** open_peers) * fresh, False


def _clears(peer: _Side, rate_bps: float) -> bool:
    """Whether the peer was seen to be faster than in this reading."""
    return rate_bps < peer.rate_bps * (1 - TOLERANCE)


def _is_blamed(side: _Side, peers: Mapping[str, _Side]) -> bool:
    """Whether one of its readings was narrow with a fast peer."""
    return any(_clears(peers[peer], rate_bps)
               for peer, rate_bps in side.readings)
