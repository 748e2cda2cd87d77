# SPDX-License-Identifier: Apache-2.0

"""Time of day of one process, which a set clock of the machine leaves alone.

Whatever waits, expires or ends by silence is a difference of two times. If the
machine's clock were used, setting it by an hour would end all reservations at
once, or keep ended coflows for an hour.
"""

from collections.abc import Callable
import logging
import time

LOG = logging.getLogger(__name__)

TOLD_S = 5.0


def _boot_s() -> float:
    """Return seconds since the boot, sleep of the machine included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """Wall clock that keeps its offset from the start of the process.

    Slewing, as of chrony and ntpd, is followed.

    :param wall: may be set at any time.
    :param steady: counts seconds, whatever happens to ``wall``.
    """

    def __init__(self, wall: Callable[[], float] = time.time,
                 steady: Callable[[], float] = _boot_s):
        self._wall = wall
        self._steady = steady
        self._began_s = wall() - steady()
        self._told_s = 0.0

    def __call__(self) -> float:
        return self._began_s + self._steady()

    def follow(self, now_s: float) -> None:
        """Go by another clock from here on, where this one is wrong.

        What one process writes down another one lets expire.
        """
        off_s = now_s - self()
        if abs(off_s) > TOLD_S:
            LOG.warning('The clock of this machine is %+.0f s off that of the '
                        'database, which this process goes by.', -off_s)
            self._began_s += off_s
            self._told_s = -off_s

    def check(self) -> float:
        """Return the seconds by which the machine's clock was set since the
        start, and log a change.
        """
        step_s = self._wall() - self()
        if abs(step_s - self._told_s) > TOLD_S:
            self._told_s = step_s
            LOG.warning('The clock was set by %+.0f s since the start; this '
                        'process goes on by the former time until it is '
                        'started again.', step_s)
        return step_s
