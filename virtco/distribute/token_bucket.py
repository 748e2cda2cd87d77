# SPDX-License-Identifier: Apache-2.0

"""Token buckets: bounds on the bytes and the time of a host or a caller."""

import threading

from virtco.wire import reports

#: A host where 500 coflows send to five others each reports 165 kB a second,
#: which take 6 ms of processor time.
BYTES_PER_S = 256 * 1024
CPU_PER_S = 0.01
#: Burst of a name: a whole report after a reconnection.
BURST_BYTES = reports.MOST_BYTES
BURST_CPU_S = 0.1
#: Names whose buckets are looked through for full ones.
MOST_NAMES = 10_000


class Buckets:
    """A bucket of tokens that come back at a steady rate, for each name (GCRA,
    ITU-T I.371).

    An expense above what is left is owed, so that it may have any size. A full
    bucket is as one that nobody used, and is forgotten.

    :param per_s: tokens that come back per second.
    :param burst: tokens in a full bucket, which it is at first.
    """

    def __init__(self, per_s: float, burst: float):
        self._per_s = per_s
        self._burst_s = burst / per_s
        self._full_s: dict[str, float] = {}
        self._most = MOST_NAMES
        self._lock = threading.Lock()

    def spend(self, name: str, amount: float, now_s: float) -> None:
        with self._lock:
            if len(self._full_s) >= self._most:
                self._full_s = {
                    other: full_s for other, full_s in self._full_s.items()
                    if full_s > now_s}
                # Not again with each name where most of them owe.
                self._most = max(MOST_NAMES, 2 * len(self._full_s))
            self._full_s[name] = (max(self._full_s.get(name, now_s), now_s)
                                  + amount / self._per_s)

    def wait_s(self, name: str, now_s: float) -> float:
        """Return the seconds until nothing is owed, 0 where nothing is."""
        full_s = self._full_s.get(name, now_s)
        return max(0.0, full_s - now_s - self._burst_s)
