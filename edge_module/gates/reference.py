# SPDX-License-Identifier: Apache-2.0

"""How far the controller's wall clock and this host's are apart, at least.

The daemon that keeps a clock may follow a wrong source and not know. The
controller tells its time in answers, as NTP servers do: it read its clock
between the question and the answer. Pure.
"""

import collections

#: Answers that are kept: the quickest of them tells most.
KEPT = 8
#: Two clocks that nobody keeps drift apart by so much, in s/s.
DRIFT = 1e-4
#: Questions without an answer for so long get none.
LOST_S = 5.0


class Reference:
    """The controller's wall clock, on the monotonic clock of this host."""

    def __init__(self) -> None:
        self._asked_s: collections.deque[float] = collections.deque()
        self._heard: collections.deque[tuple[float, float, float]] = (
            collections.deque(maxlen=KEPT))

    def restart(self) -> None:
        """Questions so far have no answer."""
        self._asked_s.clear()

    def ask(self, now_s: float) -> None:
        """A question goes out; answers come in the order of questions."""
        if self._asked_s and now_s - self._asked_s[-1] > LOST_S:
            self._asked_s.clear()
        self._asked_s.append(now_s)

    def answer(self, now_s: float, wall_s: float) -> None:
        """The answer to the oldest question.

        If an earlier answer was lost, this one seems slower than it was: the
        bounds are wider, and still true.
        """
        if self._asked_s:
            self.hear(self._asked_s.popleft(), now_s, wall_s)

    def hear(self, asked_s: float, heard_s: float, wall_s: float) -> None:
        """:param wall_s: the controller's, some time between the others."""
        self._heard.append((asked_s, heard_s, wall_s))

    def off_s(self, now_s: float, ahead_s: float) -> float:
        """By how much the wall clocks differ at least; 0 if unknown.

        :param ahead_s: this host's wall clock less its monotonic one.
        """
        least_s, most_s = -float('inf'), float('inf')
        for asked_s, heard_s, wall_s in list(self._heard):
            drift_s = DRIFT * (now_s - heard_s)
            least_s = max(least_s, wall_s - heard_s - drift_s)
            most_s = min(most_s, wall_s - asked_s + drift_s)
        if least_s > most_s:
            # The controller's clock was set, or it is another controller's.
            while len(self._heard) > 1:
                self._heard.popleft()
            return self.off_s(now_s, ahead_s)
        return max(0.0, least_s - ahead_s, ahead_s - most_s)
