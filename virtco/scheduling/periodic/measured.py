# SPDX-License-Identifier: Apache-2.0

"""Upper bounds on a job's computing time, by its counted bytes. Pure.

Jobs are served by how much they compute per iteration, so it pays to
overstate it. An iteration computes and sends, so it takes no less than both:
what takes T and sends for b alone computes T - b at most. T follows from
counters, without knowing where an iteration ends: bytes are counted over many
of them. A job that waits has a longer T, and so a weaker bound, until it is
served by what it claims; then T is what it truly needs. An honest job is never
bounded.
"""

import collections
import math

#: Iterations over which a period is measured, at least …
LEAST_ITERATIONS = 20
#: … and time, at least: hosts report by turns.
LEAST_S = 20.0
#: Latest counts, of which the shortest is the period: a job may pause.
COUNTS = 3
#: Relative error of a period that counters may cause.
TOLERANCE = 0.05


class Period:
    """Measured length of an iteration.

    :ivar least_s: inf as long as it is not known.
    """

    def __init__(self) -> None:
        self.least_s = math.inf
        self._counts: collections.deque[float] = collections.deque(
            maxlen=COUNTS)
        self._since_s: float | None = None
        self._sent_bytes = 0.0

    def count(self, new_bytes: float, between_s: tuple[float, float],
              iteration_bytes: float) -> bool:
        """Count bytes between two times; return whether a count is full.

        :param iteration_bytes: bytes of an iteration.
        """
        since_s, now_s = between_s
        # Hosts report by turns: of one that is late, the bytes may be older.
        self._since_s = min(since_s, math.inf if self._since_s is None
                            else self._since_s)
        self._sent_bytes += new_bytes
        # The first iteration may have begun before.
        n = self._sent_bytes / iteration_bytes - 1
        if n < LEAST_ITERATIONS or now_s - self._since_s < LEAST_S:
            return False
        self._counts.append((now_s - self._since_s) / n)
        self.least_s = min(self._counts)
        self._since_s, self._sent_bytes = None, 0.0
        return True

    def most_compute_s(self, send_s: float) -> float:
        """Bound an iteration's computing from above, seconds; inf at first.

        :param send_s: time that its bytes need on the slowest link, alone.
        """
        return max(0.0, self.least_s * (1 + TOLERANCE) - send_s)
