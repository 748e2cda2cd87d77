# SPDX-License-Identifier: Apache-2.0

"""Holds a job's iterations back until its gate opens, by counters alone. Pure.

The job is not asked. An iteration begins where bytes wait in the job's queue,
and has ended where as many bytes were counted as it has, and none wait. Sizes
and times are hints: whatever they are, a gate holds an iteration back for less
than its period, and one that does so again and again is kept no more.
"""

from virtco.table import edge_policy

#: Of an iteration's bytes, and in bytes at most: less is no beginning but the
#: end of the one before, such as packets that TCP sends again. TCP begins
#: with ten packets; what is more comes only as fast as the trickle.
A_LITTLE, A_LITTLE_BYTES = 0.01, 8 * 1024
#: This much of an iteration was counted at its end. Sizes are hints.
NEARLY = 0.97
#: Parts of the period after which one that sends nothing has ended: with as
#: many bytes, and however many it sent. What is sent again comes after a
#: pause, and should not wait for another turn.
QUIET, SILENT = 0.1, 0.25
#: A job that has missed this much of its turn waits for the next one; it would
#: take another's.
MISSED = 0.5
#: Who is held back for more of the period, so often in a row, has other
#: iterations than were hinted.
LONG, MOST_LONG = 0.6, 4


class Keeper:
    """One job's gate.

    :param ahead_s: of the gate's clock before the one of :meth:`look`.
    :param sent_bytes: counted of the job so far.
    :ivar is_open: whether the job may send at the link's rate.
    :ivar gave_up: whether it is open for good, until there is another plan.
    :ivar opened: times at which it opened.
    :ivar missed: of them, after more than ``LONG`` of a period.
    :ivar held_s: for how long all iterations together were held back.
    :ivar open_s: for how long it was open, of ``looked_s`` since it is kept.
    """

    def __init__(self, gate: edge_policy.Gate, ahead_s: float = 0.0,
                 sent_bytes: float = 0.0):
        self.gate, self._ahead_s = gate, ahead_s
        self.is_open = self.gave_up = False
        self.opened = self.missed = 0
        self.held_s = self.open_s = self.looked_s = 0.0
        self._look_s: float | None = None
        self._began_bytes = self._last_bytes = sent_bytes
        self._moved_s: float | None = None
        self._ready_s: float | None = None
        self._opens_s = 0.0
        self._long = 0

    def set(self, gate: edge_policy.Gate, ahead_s: float) -> None:
        """Another plan, or another difference of the clocks."""
        if gate.epoch != self.gate.epoch:
            self.gave_up, self._long = False, 0
        self.gate, self._ahead_s = gate, ahead_s
        if self._ready_s is not None:
            self._opens_s = min(self._opens_at(self._ready_s),
                                self._ready_s + gate.period_s)

    def look(self, now_s: float, sent_bytes: float, waiting_bytes: float
             ) -> bool:
        """Whether the gate is open from now on.

        :param now_s: on a clock that never steps.
        :param sent_bytes: counted of the job; less than before: anew.
        :param waiting_bytes: in its queues.
        """
        self._count(now_s)
        if sent_bytes < self._last_bytes:
            self._began_bytes = self._last_bytes = 0.0
        moves = sent_bytes > self._last_bytes or waiting_bytes > 0
        self._last_bytes = sent_bytes
        if moves or self._moved_s is None:
            self._moved_s = now_s
        if self.gave_up:
            return True
        if self.is_open:
            self._close(now_s, sent_bytes, moves)
        else:
            self._hold(now_s, waiting_bytes)
        return self.is_open

    def _count(self, now_s: float) -> None:
        if self._look_s is not None:
            self.looked_s += now_s - self._look_s
            if self.is_open or self.gave_up:
                self.open_s += now_s - self._look_s
        self._look_s = now_s

    def _close(self, now_s: float, sent_bytes: float, moves: bool) -> None:
        counted = sent_bytes - self._began_bytes
        silent_s = now_s - (self._moved_s or 0.0)
        if not moves and silent_s >= self.gate.period_s * (
                QUIET if counted >= NEARLY * self.gate.iteration_bytes
                else SILENT):
            self.is_open = False
            self._began_bytes = sent_bytes

    def _hold(self, now_s: float, waiting_bytes: float) -> None:
        if self._ready_s is None and waiting_bytes >= min(
                A_LITTLE * self.gate.iteration_bytes, A_LITTLE_BYTES):
            self._ready_s = now_s
            self._opens_s = self._opens_at(now_s)
        if self._ready_s is not None and now_s >= self._opens_s:
            held_s = now_s - self._ready_s
            self.held_s += held_s
            self._ready_s = None
            self.is_open = True
            self.opened += 1
            is_long = held_s > LONG * self.gate.period_s
            self.missed += is_long
            self._long = self._long + 1 if is_long else 0
            self.gave_up = self._long >= MOST_LONG

    def _opens_at(self, ready_s: float) -> float:
        """When one that is ready may send; less than a period later."""
        gate = self.gate
        late_s = (ready_s + self._ahead_s - gate.offset_s) % gate.period_s
        if late_s <= MISSED * gate.open_s:
            return ready_s
        return ready_s + gate.period_s - late_s
