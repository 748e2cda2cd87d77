# SPDX-License-Identifier: Apache-2.0

"""Rates of TCP connections while all of a round send.

The sum over connections that share an uplink is the uplink's rate only while
all of them send: one that begins late, or ends early, leaves its part to the
others. Packet trains are too short for that. So the connections of a round
begin at a common time, each receiver counts its bytes in windows from then on,
and only the windows count in which all of them were under way.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from virtco import units
from virtco.measure import rounds

#: Receivers count in windows of this length.
WINDOW_S = 0.002
#: Fewer common windows tell nothing, nor does a smaller share of the time that
#: the longest connection takes.
LEAST_WINDOWS = 6
LEAST_SHARE = 0.1
#: Share of the common time that is left out at its begin: slow start, and
#: what token buckets let through.
WARM_UP = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """Amount that a connection of a round sends.

    It fills a fast link for ``fill_s``, sends ``least_bytes`` where that is
    more, and stops after ``most_s`` in any case.
    """

    least_bytes: int
    fill_s: float
    most_s: float

    def size_bytes(self, link_bps: float) -> int:
        """:param link_bps: of the slower of the two hosts' links."""
        bytes_per_s = units.bps_to_bytes_per_s(link_bps)
        return max(1, round(min(
            max(float(self.least_bytes), bytes_per_s * self.fill_s),
            bytes_per_s * self.most_s)))


#: In a check each host takes part in a dozen rounds, and all that it sends is
#: to stay below 1 % of what a 1 Gbit/s link carries in a minute.
CHECK = Transfer(3 * 2 ** 20, 0.025, 0.3)
DISCOVER = Transfer(16 * 2 ** 20, 0.05, 0.5)


def rates_bps(windows_bytes: Mapping[rounds.Pair, Sequence[int]],
              window_s: float = WINDOW_S) -> dict[rounds.Pair, float]:
    """Compute each pair's rate while all of them sent, bit/s.

    :param windows_bytes: of each pair, from the common start on; it ends with
        the window of the pair's last byte.
    :returns: nothing where they did not send together for long enough.
    """
    if not windows_bytes:
        return {}
    begin = max(next((i for i, size_bytes in enumerate(windows)
                      if size_bytes), len(windows))
                for windows in windows_bytes.values())
    # The last window of each ends early.
    end = min(map(len, windows_bytes.values())) - 1
    begin += int(WARM_UP * max(0, end - begin))
    longest = max(map(len, windows_bytes.values()))
    if end - begin < max(LEAST_WINDOWS, LEAST_SHARE * longest):
        return {}
    return {pair: units.bytes_per_s_to_bps(
        sum(windows[begin:end]) / ((end - begin) * window_s))
        for pair, windows in windows_bytes.items()}
