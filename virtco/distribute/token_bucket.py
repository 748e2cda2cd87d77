# SPDX-License-Identifier: Apache-2.0

"""Token buckets: what one host may say, and may cost the controller. Pure."""

import math

from virtco.wire import frames

#: A host where 500 coflows send to five others each reports 165 kB a second,
#: which take 6 ms of processor time.
BYTES_PER_S = 256 * 1024
CPU_PER_S = 0.01
#: For a whole report after a reconnection.
BURST_BYTES = frames.MOST_BYTES
BURST_CPU_S = 0.1


class Bucket:
    """Tokens that come back at a steady rate (GCRA, ITU-T I.371).

    An expense above what is left is owed, so that it may have any size.

    :param per_s: tokens that come back per second.
    :param burst: tokens in a full bucket, which it is at first.
    """

    def __init__(self, per_s: float, burst: float):
        self._per_s = per_s
        self._burst_s = burst / per_s
        self._full_s = -math.inf

    def spend(self, amount: float, now_s: float) -> None:
        self._full_s = max(self._full_s, now_s) + amount / self._per_s

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until nothing is owed, 0 where nothing is."""
        return max(0.0, self._full_s - now_s - self._burst_s)

    def is_full(self, now_s: float) -> bool:
        return self._full_s <= now_s


class Budget:
    """Bytes and processor time of one host."""

    def __init__(self) -> None:
        self._bytes = Bucket(BYTES_PER_S, BURST_BYTES)
        self._cpu = Bucket(CPU_PER_S, BURST_CPU_S)

    def spend(self, size_bytes: int, cpu_s: float, now_s: float) -> None:
        self._bytes.spend(size_bytes, now_s)
        self._cpu.spend(cpu_s, now_s)

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until nothing is owed, 0 where nothing is."""
        return max(self._bytes.wait_s(now_s), self._cpu.wait_s(now_s))

    def is_full(self, now_s: float) -> bool:
        """Tell whether the host has nothing to pay for any more."""
        return self._bytes.is_full(now_s) and self._cpu.is_full(now_s)
