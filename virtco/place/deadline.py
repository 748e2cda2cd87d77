# SPDX-License-Identifier: Apache-2.0

"""The time limit of a placement, and the durations of its phases."""

from collections.abc import Callable
import math
import threading
import time

from virtco import exception

#: Phases of a placement, in turn.
PHASES = ('queue', 'read', 'hold', 'solve', 'rank', 'commit')
#: Half-life of the measured time of a phase, so that load is forgotten.
HALF_LIFE_S = 5.0
_WEIGHT = 0.3
#: Time after a placement in which that of the group's next VM begins.
NEXT_S = 0.02


class Deadline:
    """Time limit of one placement: one thread works, another waits.

    Either the work is committed or the one who waits gives up, never both.

    :param is_gone: whether the client closed its connection.
    """

    def __init__(self, limit_s: float,
                 clock: Callable[[], float] = time.monotonic,
                 is_gone: Callable[[], bool] = lambda: False):
        self.limit_s = limit_s
        self._clock = clock
        self._is_gone = is_gone
        self._until_s = clock() + limit_s
        self._lock = threading.Lock()
        self._is_over = self._is_committing = False
        self._phase, self._since_s = PHASES[0], clock()
        self._spent_s = dict.fromkeys(PHASES, 0.0)

    def left_s(self) -> float:
        if self.is_abandoned():
            return 0.0
        return max(0.0, self._until_s - self._clock())

    def is_abandoned(self) -> bool:
        """Tell whether nobody waits for the answer."""
        return self._is_over or self._is_gone()

    def solves_since_s(self) -> float | None:
        """Return the time at which its solve began; None in another phase."""
        return self._since_s if self._phase == 'solve' else None

    def enter(self, phase: str) -> None:
        """Begin a phase; the time since the last one is charged to that."""
        with self._lock:
            self._close()
            self._phase = phase

    def _close(self) -> None:
        now_s = self._clock()
        self._spent_s[self._phase] += now_s - self._since_s
        self._since_s = now_s

    def spent_s(self) -> dict[str, float]:
        """Return the seconds spent in each phase until now."""
        with self._lock:
            self._close()
            return dict(self._spent_s)

    def too_late(self) -> exception.TooLate:
        """Return the error that names the phase that took most of the time."""
        spent_s = self.spent_s()
        phase = max(PHASES, key=spent_s.__getitem__)
        gone = 'the client is gone, ' if self._is_gone() else ''
        return exception.TooLate(phase=phase, why=(
            f'{gone}{phase} took {spent_s[phase]:.2f} of {self.limit_s:g} s'))

    def claim(self) -> None:
        """Reserve the right to commit, right before the commit itself.

        :raises virtco.exception.TooLate: when nobody wants it any more.
        """
        with self._lock:
            in_time = self.left_s() > 0
            self._is_committing |= in_time
        if not in_time:
            raise self.too_late()

    def give_up(self) -> bool:
        """Forbid a later commit; return whether none was claimed before."""
        with self._lock:
            self._is_over = not self._is_committing
            return self._is_over


class Pace:
    """Recent mean durations of placement phases."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._took_s: dict[str, tuple[float, float]] = {}
        self._cpu = 'cpu'
        self._under_way: list[Deadline] = []
        self._left_s = -math.inf

    @property
    def n_under_way(self) -> int:
        """Number of placements under way."""
        return len(self._under_way)

    def needs_interpreter(self, within_s: float) -> bool:
        """Tell whether a placement does more than solve, or is expected to
        within so many seconds: only the solver lets others compute. One that
        nobody waits for may hang in the database, and needs nothing.
        """
        with self._lock:
            now_s = self._clock()
            earliest_s = now_s + within_s - self._expected_s('solve')
            return now_s - self._left_s < NEXT_S or any(
                since_s is None or since_s < earliest_s for since_s in (
                    deadline.solves_since_s() for deadline in self._under_way
                    if not deadline.is_abandoned()))

    def expected_s(self, *phases: str) -> float:
        """Return the seconds that these phases are expected to take in all.

        A mean halves each :data:`HALF_LIFE_S` without a new duration; a phase
        that was never measured counts 0.
        """
        with self._lock:
            return sum(map(self._expected_s, phases))

    def _expected_s(self, phase: str) -> float:
        """Return a phase's last time, less the longer ago it was."""
        if phase not in self._took_s:
            return 0.0
        took_s, at_s = self._took_s[phase]
        return took_s * math.pow(0.5, (self._clock() - at_s) / HALF_LIFE_S)

    def admit(self, deadline: Deadline) -> None:
        """Count a placement in; :meth:`leave` counts it out.

        Those under way share one processor. Without any there is nothing to
        wait for, so a placement is always tried.

        :raises virtco.exception.TooLate: when those under way leave it no
            time.
        """
        with self._lock:
            cpu_s = self._expected_s(self._cpu)
            if self.n_under_way and (
                    cpu_s * (self.n_under_way + 1) > deadline.limit_s):
                phase = max(PHASES[1:], key=self._expected_s)
                raise exception.TooLate(phase=phase, why=(
                    f'{self.n_under_way} placements are under way that take '
                    f'{cpu_s:.2f} s each, most of it to {phase}'))
            self._under_way.append(deadline)

    def leave(self, deadline: Deadline) -> None:
        with self._lock:
            self._under_way.remove(deadline)
            self._left_s = self._clock()

    def learn(self, deadline: Deadline, cpu_s: float) -> None:
        """Add the durations of a finished placement to the means.

        The phases that it left out say nothing of those of others.
        """
        with self._lock:
            now_s = self._clock()
            for phase, took_s in (*deadline.spent_s().items(),
                                  (self._cpu, cpu_s)):
                if not took_s:
                    continue
                before_s = (self._expected_s(phase)
                            if phase in self._took_s else took_s)
                self._took_s[phase] = (
                    before_s + _WEIGHT * (took_s - before_s), now_s)
