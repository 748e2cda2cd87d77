# SPDX-License-Identifier: Apache-2.0

"""Packet trains that suit a network: K bursts of B packets.

Each setting is tried on some paths and compared with a bulk TCP connection on
the same paths. The cheapest setting that is near enough is taken (Choreo
section 4.1: 10 bursts of 200 packets on EC2, of 2000 on Rackspace).
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import statistics

from virtco.wire import probe as wire

#: Choreo's error on Rackspace.
NEAR_ENOUGH = 0.04
#: Ethernet, IPv4 and TCP headers with timestamps.
_HEADERS_BYTES = 66
_ETHERNET_BYTES = 14


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Setting:
    """K and B; ordered by K, then B."""

    bursts: int
    packets: int

    @property
    def train_bytes(self) -> int:
        """Bytes of payload of one train: all packets of all bursts."""
        return self.bursts * self.packets * wire.PACKET_BYTES


GRID = tuple(Setting(bursts, packets) for bursts in (5, 10, 20)
             for packets in (50, 100, 200, 500, 1000, 2000))


@dataclasses.dataclass(frozen=True, slots=True)
class Error:
    """Relative errors of a setting against TCP over all paths.

    :ivar failed: share of the paths on which the train said nothing; they
        are not in the others.
    """

    mean: float
    median: float
    worst: float
    failed: float


def tcp_bps(rate_bps: float, mtu_bytes: int = 1500) -> float:
    """Convert a rate of Ethernet frames to TCP payload, bit/s."""
    frame_bytes = mtu_bytes + _ETHERNET_BYTES
    return rate_bps * (frame_bytes - _HEADERS_BYTES) / frame_bytes


def error(truth_bps: Sequence[float], found_bps: Sequence[float | None]
          ) -> Error:
    """Compare the rates found by trains with those measured by TCP.

    :param truth_bps: rate of each path by TCP.
    :param found_bps: rate of the same paths by trains; None without a result.
    """
    errors = [abs(found / truth - 1) for truth, found
              in zip(truth_bps, found_bps, strict=True) if found is not None]
    if not errors:
        return Error(1.0, 1.0, 1.0, 1.0)
    return Error(statistics.mean(errors), statistics.median(errors),
                 max(errors), 1 - len(errors) / len(found_bps))


def as_config(chosen: Setting, found: Error, how: str, *,
              near_enough: float = NEAR_ENOUGH) -> str:
    """Write the controller's configuration with a setting.

    :param how: pairs and time of the measurement, for the comment; one line.
    """
    remark = ('' if found.mean <= near_enough else
              f'# No setting came within {near_enough:.1%}; this is the '
              'nearest.\n')
    return (f'# {how}\n'
            f'# Error against TCP: mean {found.mean:.1%}, median '
            f'{found.median:.1%}, worst {found.worst:.1%}.\n{remark}'
            f'[probe]\nbursts = {chosen.bursts}\n'
            f'packets = {chosen.packets}\n')


def choose(errors: Mapping[Setting, Error], *,
           near_enough: float = NEAR_ENOUGH) -> Setting | None:
    """Choose the cheapest setting whose mean error is near enough.

    :returns: the one with the least error if none is; None without any
        setting that worked on all paths.
    """
    good: Iterable[Setting] = [one for one, found in errors.items()
                               if found.failed == 0]
    near = [one for one in good if errors[one].mean <= near_enough]
    if near:
        return min(near, key=lambda one: (one.train_bytes, one))
    return min(good, key=lambda one: (errors[one].mean, one), default=None)
