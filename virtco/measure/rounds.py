# SPDX-License-Identifier: Apache-2.0

"""Rounds of pairs of hosts that measure without disturbing each other.

A host takes part in at most one train at a time, so no train shares an
uplink with another one: "at each step N/2 instances send and the other N/2
receive", 2N steps for all links (RPCA section IV-B; Cloud Monitoring
Framework section 3.1 schedules its readings for the same reason).

The sum over connections that share an uplink is the uplink's rate only while
all of them send: one that begins late, or ends early, leaves its part to the
others. Packet trains are too short for that. So the connections of a round
begin at a common time, each receiver counts its bytes in windows from then on,
and only the windows count in which all of them were under way.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools

from virtco import units
from virtco.wire import probe_order

Pair = tuple[str, str]

#: Receivers count in windows of this length.
WINDOW_S = 0.002
#: Fewer common windows tell nothing, nor does a smaller share of the time that
#: the longest connection takes.
LEAST_WINDOWS = 6
LEAST_SHARE = 0.1
#: Share of the common time that is left out at its begin: slow start, and the
#: bursts that token buckets let through.
WARM_UP = 0.25


def disjoint_rounds(hosts: Sequence[str]) -> tuple[tuple[Pair, ...], ...]:
    """Order every (sender, receiver) pair into rounds of disjoint pairs.

    The circle method: one host stands still, the others walk around it. Each
    round comes twice in a row, the second time with the roles swapped, so
    that two rounds give every host one reading per direction (all but one
    host, when their number is odd).

    :param hosts: names, all different; their order decides who meets whom
        first.
    :returns: 2 (n - 1) rounds of n/2 pairs for an even number n of hosts, 2 n
        rounds of (n - 1)/2 pairs for an odd one.
    """
    if len(hosts) < 2:
        return ()
    # An odd one out meets nobody.
    circle = [*hosts, *[''] * (len(hosts) % 2)]
    half = len(circle) // 2
    rounds = []
    for turn in range(len(circle) - 1):
        # Alternate, or the standing host would always send first.
        forth = tuple((right, left) if turn % 2 else (left, right)
                      for left, right in zip(
                          circle[:half], reversed(circle[half:]))
                      if left and right)
        rounds.append(forth)
        rounds.append(tuple((dst, src) for src, dst in forth))
        circle = circle[:1] + circle[-1:] + circle[1:-1]
    return tuple(rounds)


def by_leaf(hosts: Iterable[str], leaf_of: Mapping[str, str]
            ) -> dict[str, list[str]]:
    """Group hosts by their leaves; those of unknown leaves are of one, ''."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        found.setdefault(leaf_of.get(host, ''), []).append(host)
    return found


def interleaved(groups: Iterable[Sequence[str]]) -> list[str]:
    """List the first host of each group, then the second of each, …"""
    return [host for row in itertools.zip_longest(*groups) for host in row
            if host is not None]


def paired(members: Sequence[str], peers: Sequence[str], turn: int,
           n_chosen: int) -> tuple[Pair, ...]:
    """Pair members with peers, the chosen peers rotated by the turn."""
    begin = turn * len(members) % max(n_chosen, 1)
    turned = [*peers[begin:n_chosen], *peers[:begin], *peers[n_chosen:]]
    n_pairs = min(len(members), len(turned))
    shift = turn * n_pairs % len(members)
    senders = [*members[shift:], *members[:shift]][:n_pairs]
    return tuple(zip(senders, turned[:n_pairs]))


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """Amount that a connection of a round sends.

    It fills a fast link for ``fill_s``, sends ``least_bytes`` where that is
    more, and stops after ``most_s`` or MAX_BULK_BYTES in any case.
    """

    least_bytes: int
    fill_s: float
    most_s: float

    def size_bytes(self, link_bps: float) -> int:
        """Choose the size of a transfer by the rate of its link.

        :param link_bps: rate of the slower of the two hosts' links.
        """
        bytes_per_s = units.bps_to_bytes_per_s(link_bps)
        return max(1, round(min(
            max(float(self.least_bytes), bytes_per_s * self.fill_s),
            bytes_per_s * self.most_s, probe_order.MAX_BULK_BYTES)))


#: Transfer of a check: each host takes part in a dozen rounds, and all that it
#: sends stays below 1 % of the bytes that a 1 Gbit/s link carries in a minute.
CHECK = Transfer(3 * 2 ** 20, 0.025, 0.3)
DISCOVER = Transfer(16 * 2 ** 20, 0.05, 0.5)


def rates_bps(windows_bytes: Mapping[Pair, Sequence[int]]
              ) -> dict[Pair, float]:
    """Compute each pair's rate while all of them sent, bit/s.

    :param windows_bytes: bytes of each pair from the common start on, by
        windows; the last window has the pair's last byte.
    :returns: nothing where they did not send together for long enough.
    """
    if not windows_bytes:
        return {}
    begin = max(next((i for i, size_bytes in enumerate(windows)
                      if size_bytes), len(windows))
                for windows in windows_bytes.values())
    # The last window of each ends early.
    end = min(map(len, windows_bytes.values())) - 1
    begin += int(WARM_UP * (end - begin))
    longest = max(map(len, windows_bytes.values()))
    if end - begin < max(LEAST_WINDOWS, LEAST_SHARE * longest):
        return {}
    return {pair: units.bytes_per_s_to_bps(
        sum(windows[begin:end]) / ((end - begin) * WINDOW_S))
        for pair, windows in windows_bytes.items()}
