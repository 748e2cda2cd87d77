# SPDX-License-Identifier: Apache-2.0

"""Time to spend, by whatever clock is given.

In production a clock is that of the machine. For figures and tests it is a
:class:`Counter`, which only work moves on: whoever works charges what that
costs by a stated rule, so that one snapshot, seed and number of seconds give
one plan on any machine, compiled or not.

A unit of work is about a nanosecond of compiled code on a core of an Intel
Xeon; ``python -m benchmarks.clock`` compares the two.
"""

from collections.abc import Callable
import math

UNITS_PER_S = 1e9
#: Work between two looks at the clock, at most.
CHUNK_UNITS = 4e6
#: Steps where the time has no end: libraries want an integer.
MOST_STEPS = 1_000_000
#: A call of numpy, and one of its array's cells.
CALL_UNITS = 1500.0
CELL_UNITS = 1.0
#: Work of asking for the time, so that a loop ends that does nothing else.
ASK_UNITS = 200.0


class Timer:
    """A machine's clock; work takes its own time.

    :ivar units: work that was charged.
    """

    def __init__(self, read: Callable[[], float]):
        self._read = read
        self.units = 0.0

    def __call__(self) -> float:
        return self._read()

    def spend(self, units: float) -> None:
        self.units += units


class Counter(Timer):
    """A clock of which a second is :data:`UNITS_PER_S` units of work."""

    def __init__(self) -> None:
        super().__init__(lambda: self.units / UNITS_PER_S)


def clock_of(read: Callable[[], float]) -> Timer:
    """Return the clock itself, or one that reads a machine's."""
    return read if isinstance(read, Timer) else Timer(read)


class Budget:
    """Seconds that a stage may take; it asks, nobody interrupts it.

    :param whole: the budget of which this is a slice.
    :param is_cancelled: whether nobody wants the result any more; it is asked
        as often as the clock, and there is no time left from then on.
    """

    def __init__(self, clock: Timer, seconds: float,
                 whole: 'Budget | None' = None,
                 is_cancelled: Callable[[], bool] | None = None):
        self.clock = clock
        self._since_s = clock()
        self._until_s = self._since_s + seconds
        self._whole = whole
        self._stopped = False
        self._is_cancelled = is_cancelled

    def stop(self) -> None:
        """Stop this budget and all of its slices."""
        self._stopped = True

    def is_stopped(self) -> bool:
        """Tell whether the search was cancelled."""
        if self._is_cancelled is not None and not self._stopped:
            self._stopped = self._is_cancelled()
        return self._stopped or (self._whole is not None
                                 and self._whole.is_stopped())

    def spent_s(self) -> float:
        """Return the seconds since it began."""
        return self.clock() - self._since_s

    def left_s(self) -> float:
        """Return the seconds left, at least 0."""
        if self.is_stopped():
            return 0.0
        return max(0.0, self._until_s - self.clock())

    def in_time(self) -> bool:
        """Return whether there is time left."""
        self.clock.spend(ASK_UNITS)
        return self.left_s() > 0

    def spend(self, units: float) -> None:
        """Charge work that was done."""
        self.clock.spend(units)

    def spend_numpy(self, calls: float, cells: float = 0.0) -> None:
        """Charge calls of numpy, and the cells that they handle in total."""
        self.clock.spend(CALL_UNITS * calls + CELL_UNITS * cells)

    def units(self) -> float:
        """Return about how much work fits into the time left, in units."""
        return UNITS_PER_S * self.left_s()

    def holds(self, units: float) -> bool:
        """Return whether this much work fits into the time left, about."""
        return units <= self.units()

    def steps(self, units: float) -> int:
        """Return how many steps of this much work fit into the time left."""
        return int(min(MOST_STEPS, self.units() / units))

    def chunk(self) -> float:
        """Return the units that a kernel may do before it must ask again."""
        return min(CHUNK_UNITS, self.units())

    def machine_s(self) -> float:
        """Return the seconds for a library that reads the machine's clock.

        A counter is none of the library's, which must be limited by what it
        does.
        """
        if isinstance(self.clock, Counter):
            return math.inf
        return self.left_s()

    def slice(self, share: float, most_s: float = math.inf) -> 'Budget':
        """Make a budget of a share of the time left, at most ``most_s``."""
        return Budget(self.clock, min(most_s, share * self.left_s()), self)


def unlimited() -> Budget:
    """Create a budget without a limit."""
    return Budget(Counter(), math.inf)
