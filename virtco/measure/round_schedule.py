# SPDX-License-Identifier: Apache-2.0

"""Schedule of measurements between hosts. Pure: times come in as arguments.

A host takes part in at most one train at a time, and trains that run at the
same time fit into the uplinks of racks and pods that they pass: "at each step
N/2 instances send and the other N/2 receive" (RPCA section IV-B; Cloud
Monitoring Framework section 3.1 schedules its readings for the same reason).

Few hosts measure all their pairs. Many hosts would need n^2 trains for that,
so there each one gets a fixed number of readings per direction, with some
peers from all over the cloud: enough for :mod:`virtco.measure.hostrates`, and
O(n) trains and pairs.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import itertools
import math

from virtco.measure import probe_budget as budgets
from virtco.model import cluster

Pair = tuple[str, str]

#: Peers of a host where not all pairs are measured, and peers looked at to
#: find one that is free.
PEERS = 32
LOOKS = 16
#: Multiple of their freshness for which readings are remembered, so that the
#: pair that waits longest is known.
_REMEMBERED = 32
_NOBODY: frozenset[str] = frozenset()


# Address and port of a responder.
Target = tuple[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Measurable:
    """Hosts and links that can be measured now.

    :ivar targets: address and port where each host receives trains.
    :ivar links_bps: slower direction of each link.
    :ivar awaited: hosts for which VMs are planned that do not run yet.
    :ivar tree: uplinks above the hosts; empty when unknown.
    """

    targets: Mapping[str, Target]
    links_bps: Mapping[str, float]
    awaited: Set[str] = frozenset()
    tree: cluster.Tree = cluster.Tree()


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """When a pair is due.

    :ivar freshness_s: a reading younger than that need not be repeated.
    :ivar awaited_s: the same for hosts that are about to be used.
    :ivar retry_s: a pair that failed rests for so long.
    :ivar train_bytes: bytes of one train, before its real number is known.
    :ivar all_pairs_hosts: up to so many hosts measure all their pairs, at
        128 at a time within ``freshness_s``.
    :ivar readings: readings that each host is to have per direction if there
        are more.
    :ivar most_trains: at the same time.
    """

    freshness_s: float
    awaited_s: float
    retry_s: float
    train_bytes: int
    all_pairs_hosts: int = 256
    readings: int = 8
    most_trains: int = 128


class Schedule:
    """Memory of who measured whom, and choice of the next pairs.

    :ivar under_way: bytes that were set aside for each pair under way.
    :ivar n_hosts: hosts that could be measured at the last look.
    :ivar n_fresh: hosts that have all readings they are to have.
    :ivar n_held: hosts that wanted a reading which the budget did not allow.
    :ivar all_pairs: whether each pair is measured, not only some per host.
    """

    def __init__(self, rules: Rules, budget: budgets.Budget):
        self.rules = rules
        self.budget = budget
        #: Time of the last reading by host and peer, the oldest first.
        self._sent: dict[str, dict[str, float]] = {}
        self._received: dict[str, dict[str, float]] = {}
        self._failed: dict[Pair, float] = {}
        self._cursors: dict[tuple[str, bool], int] = {}
        self.under_way: dict[Pair, int] = {}
        self._tree = cluster.Tree()
        #: Subtrees that each host is in, the highest first.
        self._above: dict[str, tuple[cluster.Subtree, ...]] = {}
        self.n_hosts = self.n_fresh = self.n_held = 0
        self.all_pairs = True

    def measured(self, pair: Pair, at_s: float) -> None:
        """Remember a reading of a pair."""
        src, dst = pair
        for readings, peer in ((self._sent.setdefault(src, {}), dst),
                               (self._received.setdefault(dst, {}), src)):
            readings.pop(peer, None)
            readings[peer] = at_s
            _forget(readings, at_s - _REMEMBERED * self.rules.freshness_s)
        self._failed.pop(pair, None)

    def begin(self, pair: Pair, size_bytes: int, now_s: float) -> None:
        """Remember a train that begins, and charge the budget.

        One that somebody asked for counts but is not held back.
        """
        self.under_way[pair] = size_bytes
        self.budget.spend(*pair, size_bytes, now_s)

    def ended(self, pair: Pair, now_s: float, sent_bytes: int | None) -> None:
        """Forget a train that is over.

        :param sent_bytes: None when it is not known; what was set aside for
            it then counts as sent.
        """
        if pair in self.under_way:
            set_aside_bytes = self.under_way.pop(pair)
            if sent_bytes is not None:
                self.budget.spend(*pair, sent_bytes - set_aside_bytes, now_s)

    def failed(self, pair: Pair, now_s: float) -> None:
        self.ended(pair, now_s, None)
        self._failed[pair] = now_s

    def next(self, links_bps: Mapping[str, float], now_s: float, *,
             awaited: Set[str] = _NOBODY,
             tree: cluster.Tree | None = None) -> tuple[Pair, ...]:
        """Choose trains for hosts that are in none.

        :param links_bps: rates of the hosts that can be measured now, the
            slower direction. Hosts on which coflows are busy should be left
            out.
        :param awaited: hosts that are about to be used: they are first.
        :param tree: tree of uplinks above the hosts, None when unknown.
        :returns: (sender, receiver) of each, disjoint, also with the trains
            under way.
        """
        if tree is not None and tree is not self._tree:
            self._tree, chains = tree, tree.chains()
            self._above = {host: chains[leaf]
                           for host, leaf in tree.leaf_of.items()}
        look = _Look(self, links_bps, now_s, awaited)
        found = tuple(look.pairs())
        self.n_hosts, self.n_fresh = len(look.names), look.n_fresh
        self.n_held, self.all_pairs = len(look.held), look.all_pairs
        self._failed = {pair: at_s for pair, at_s in self._failed.items()
                        if now_s - at_s < self.rules.retry_s}
        return found

    # Used by _Look.

    def readings(self, host: str, sends: bool) -> dict[str, float]:
        return (self._sent if sends else self._received).get(host, {})

    def passed(self, pair: Pair) -> Iterable[tuple[tuple[str, bool], float]]:
        """Yield ((name of the subtree, whether upwards), its rate)."""
        up, down = (self._above.get(host, ()) for host in pair)
        shared = sum(1 for _ in itertools.takewhile(
            lambda two: two[0] is two[1], zip(up, down)))
        for one in up[shared:]:
            yield (one.name, True), one.uplink_out_bps
        for one in down[shared:]:
            yield (one.name, False), one.uplink_in_bps

    def rests(self, pair: Pair, now_s: float) -> bool:
        return now_s - self._failed.get(pair, -math.inf) < self.rules.retry_s


def _forget(readings: dict[str, float], until_s: float) -> None:
    while (oldest := next(iter(readings))) and readings[oldest] < until_s:
        del readings[oldest]


class _Look:
    """Search for pairs among the hosts of one moment."""

    def __init__(self, schedule: Schedule, links_bps: Mapping[str, float],
                 now_s: float, awaited: Set[str]):
        rules = schedule.rules
        self._schedule = schedule
        self._links_bps = links_bps
        self._now_s = now_s
        self._awaited = awaited
        self.names: Sequence[str] = sorted(links_bps)
        n_peers = len(self.names) - 1
        self.all_pairs = n_peers < rules.all_pairs_hosts
        self._wanted = n_peers if self.all_pairs else min(n_peers,
                                                          rules.readings)
        self._looks = n_peers if self.all_pairs else LOOKS
        self._n_turns = n_peers if self.all_pairs else min(n_peers, PEERS)
        self._stride = 1 if self.all_pairs else n_peers // self._n_turns
        under_way = schedule.under_way
        busy = set(itertools.chain.from_iterable(under_way))
        self._free = {name for name in self.names if name not in busy}
        #: Rates that trains take of each uplink.
        self._used_bps: dict[tuple[str, bool], float] = {}
        for pair in under_way:
            self._use(pair)
        self._busy = busy & links_bps.keys() if self.all_pairs else set()
        self._owed: dict[str, float] = {}
        self.n_fresh = 0
        self.held: set[str] = set()

    def pairs(self) -> Iterable[Pair]:
        if self._wanted < 1:
            return
        lacks = {host: self._lacks(host) for host in self.names}
        self.n_fresh = sum(not ways for ways in lacks.values())
        place = {name: number for number, name in enumerate(self.names)}
        waiting = [host for host in self.names if lacks[host]]
        waiting.sort(key=lambda host: (host not in self._awaited,
                                       self._last_s(host)))
        under_way = self._schedule.under_way
        for host in waiting:
            if len(under_way) >= self._schedule.rules.most_trains:
                return
            if host not in self._free:
                continue
            for sends in lacks[host]:
                pair = self._find(host, sends, place[host])
                if pair is not None:
                    self._take(pair)
                    yield pair
                    break

    def _lacks(self, host: str) -> tuple[bool, ...]:
        """List the directions with too few readings; True is sending.

        The direction that is further behind comes first.
        """
        since_s = self._now_s - self._freshness_s(host)
        oldest_s = {sends: self._nth_s(host, sends, self._wanted)
                    for sends in (True, False)}
        return tuple(sends for sends in sorted(oldest_s, key=lambda sends: (
            oldest_s[sends], self._nth_s(host, sends, 1)))
            if oldest_s[sends] <= since_s)

    def _nth_s(self, host: str, sends: bool, n: int) -> float:
        """Return the time of the n-th newest reading."""
        newest = reversed(self._schedule.readings(host, sends).values())
        return next(itertools.islice(newest, n - 1, None), -math.inf)

    def _last_s(self, host: str) -> float:
        return min(self._nth_s(host, True, 1), self._nth_s(host, False, 1))

    def _freshness_s(self, host: str) -> float:
        rules = self._schedule.rules
        return rules.awaited_s if host in self._awaited else rules.freshness_s

    def _find(self, host: str, sends: bool, place: int) -> Pair | None:
        """Find the next peer in turn with which it may be measured now.

        Where all pairs are measured, the one that waits longest comes first.
        """
        cursors = self._schedule._cursors
        cursor = cursors.get((host, sends), 0)
        since_s = self._now_s - self._freshness_s(host)
        readings = self._schedule.readings(host, sends)
        turns = [(cursor + step) % self._n_turns
                 for step in range(self._looks)]
        peers = [(turn, self.names[(place + 1 + turn * self._stride)
                                   % len(self.names)]) for turn in turns]
        if self.all_pairs:
            peers.sort(key=lambda one: readings.get(one[1], -math.inf))
        for turn, peer in peers:
            at_s = readings.get(peer, -math.inf)
            if peer not in self._free or at_s > since_s:
                continue
            pair = (host, peer) if sends else (peer, host)
            if (self._schedule.rests(pair, self._now_s)
                    or self._waits(host, at_s) or self._waits(peer, at_s)
                    or not self._has_room(pair)):
                continue
            if not self._schedule.budget.allows(
                    *pair, self._schedule.rules.train_bytes,
                    self._rate_bps(*pair), self._now_s):
                self.held.add(host)
                continue
            cursors[host, sends] = turn + 1
            return pair
        cursors[host, sends] = cursor + self._looks
        return None

    def _waits(self, host: str, at_s: float) -> bool:
        """Tell whether a host stays free for a pair that waits far longer.

        That pair's other host is in a train now. Without waiting, two hosts
        whose trains never end together never measure each other.

        :param at_s: time of the last reading of the pair that could begin.
        """
        if at_s == -math.inf:
            return False
        owed_s = self._owed.get(host)
        if owed_s is None:
            owed_s = self._owed[host] = self._oldest_owed_s(host)
        age_s = self._now_s - at_s
        return (self._now_s - owed_s
                > 2 * age_s + self._schedule.rules.freshness_s)

    def _oldest_owed_s(self, host: str) -> float:
        """Return when the longest waiting reading with a busy peer was taken.
        """
        schedule = self._schedule
        return min((schedule.readings(host, sends).get(peer, -math.inf)
                    for peer in self._busy - {host} for sends in (True, False)
                    if not schedule.rests((host, peer) if sends
                                          else (peer, host), self._now_s)),
                   default=math.inf)

    def _take(self, pair: Pair) -> None:
        """Begin a pair's train, and take its hosts and uplinks."""
        schedule = self._schedule
        self._free.difference_update(pair)
        self._use(pair)
        schedule.begin(pair, schedule.rules.train_bytes, self._now_s)

    def _rate_bps(self, src: str, dst: str) -> float:
        return min(self._links_bps.get(src, math.inf),
                   self._links_bps.get(dst, math.inf))

    def _has_room(self, pair: Pair) -> bool:
        """Tell whether the uplinks of a pair carry its train, too.

        An uplink carries one train, or as many as its rate is enough for.
        """
        rate_bps = self._rate_bps(*pair)
        return all(key not in self._used_bps
                   or self._used_bps[key] + rate_bps <= uplink_bps
                   for key, uplink_bps in self._schedule.passed(pair))

    def _use(self, pair: Pair) -> None:
        """Take the rate of a pair's train from the uplinks that it passes."""
        for key, _uplink_bps in self._schedule.passed(pair):
            self._used_bps[key] = self._used_bps.get(
                key, 0.0) + self._rate_bps(*pair)
