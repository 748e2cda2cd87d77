# SPDX-License-Identifier: Apache-2.0

"""Opens and closes the gates of this host's periodic coflows.

A thread looks at the counters of the gated classes, some fifty times a second
and only while there are any. Whatever goes wrong, gates are open: without a
controller for the policy's time to live, with a clock that nobody keeps or
that differs from the controller's, and when this thread ends or stands still.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import math
import threading
import time
from typing import Any

from oslo_log import log as logging

from edge_module import enforcer as edge_enforcer
from edge_module.gates import clock
from edge_module.gates import keeper
from edge_module.qdisc import wire
from virtco import exception
from virtco.know import reports
from virtco.table import edge_policy

LOG = logging.getLogger(__name__)

#: From one look to the next; longer where a look costs more than this part.
LOOK_S, MOST_COST = 0.015, 0.05
#: A look that comes later than this part of the shortest turn keeps no turns;
#: until the next attempt.
LATE, RETRY_S = 0.25, 30.0
#: From one question about the clock to the next.
CLOCK_S = 1.0
#: A difference of the clocks that changed by less is the same.
SAME_S = 0.001
#: Gates that nobody looked at for so long are opened.
STALE_S = 2.0
_NO_STATS = wire.ClassStats()


@dataclasses.dataclass(slots=True)
class _Gated:
    """:ivar leaves: minors of its queues."""

    coflow: edge_policy.CoflowClass
    keeper: keeper.Keeper

    @property
    def leaves(self) -> tuple[int, ...]:
        return (tuple(child.minor for child in self.coflow.destinations)
                or (self.coflow.minor,))


class Gates:
    """The gates of one host.

    :param most_error_s: no gate is kept while the clock may be further off;
        0: that is not asked.
    :param error_s: how far the wall clock may be off.
    :param off_s: how far the controller's is from it at least, by the time
        and by how much the wall clock is ahead of the monotonic one.
    :ivar why_open: why no gate of the policy is kept; None while they are.
    """

    def __init__(self, enforcer: edge_enforcer.Enforcer,
                 stop: threading.Event, most_error_s: float,
                 error_s: Callable[[], float] = clock.error_s,
                 off_s: Callable[[float, float], float]
                 = lambda now_s, ahead_s: 0.0,
                 wall_s: Callable[[], float] = time.time,
                 now_s: Callable[[], float] = time.monotonic):
        self._enforcer = enforcer
        self._stop = stop
        self._most_error_s = most_error_s
        self._error_s, self._off_s = error_s, off_s
        self.why_open: str | None = None
        self._wall_s, self._now_s = wall_s, now_s
        self._wake = threading.Event()
        self._looking = threading.RLock()
        self._gated: dict[str, _Gated] = {}
        self._policy: edge_policy.EdgePolicy | None = None
        self._read_for: edge_policy.EdgePolicy | None = None
        self._minors: frozenset[int] = frozenset()
        self._why_clock: str | None = None
        self._ahead_s = 0.0
        self._asked_s = self._looked_s = now_s()

    def wake(self) -> None:
        """There may be gates now."""
        self._wake.set()

    def run(self) -> None:
        """Look until told to stop."""
        try:
            while not self._stop.is_set():
                cost_s = -time.thread_time()
                is_needed = self.look()
                cost_s += time.thread_time()
                if is_needed:
                    self._pause(cost_s)
                else:
                    self._wake.wait(CLOCK_S)
                    self._wake.clear()
        finally:
            self.open_all()

    def _pause(self, cost_s: float) -> None:
        """Until the next look, which costs as much."""
        pause_s = max(LOOK_S, cost_s / MOST_COST)
        if pause_s > LATE * min((one.keeper.gate.open_s
                                 for one in self._gated.values()),
                                default=math.inf):
            self.open_all(f'a look at the classes takes {cost_s:.3g} s of '
                          'CPU')
            pause_s = RETRY_S
        self._stop.wait(pause_s)

    def look(self) -> bool:
        """Whether there are gates to look at again.

        :raises virtco.exception.VirtcoException: when the kernel refuses.
        """
        with self._looking:
            return not self._stop.is_set() and self._look()

    def _look(self) -> bool:
        now_s = self._now_s()
        if not self._is_any(now_s):
            if self._gated:
                self.open_all()
            return False
        stats = self._enforcer.uplink.class_stats(self._wanted())
        self._follow(stats)
        closed = frozenset(
            one.coflow.minor for one in self._gated.values()
            if not self._is_open(one, stats, now_s))
        self._enforcer.turn_gates(closed)
        self._looked_s, self.why_open = now_s, None
        return True

    def check(self) -> None:
        """Open what the thread does not look at any more; call it often."""
        if self._gated and self._now_s() - self._looked_s > STALE_S:
            self.open_all('nobody looks at the classes')

    def open_all(self, why: str | None = None) -> None:
        """Let all coflows send; they are kept no more.

        :param why: what is wrong.
        """
        if why is not None:
            LOG.warning('Gates are open: %s', why)
            self.why_open = why
        # Also where the thread hangs in the middle of a look.
        is_alone = self._looking.acquire(timeout=STALE_S)
        try:
            self._gated, self._policy = {}, None
            self._enforcer.turn_gates(frozenset())
        except (exception.VirtcoException, OSError) as error:
            # The next policy or audit makes them as they should be.
            LOG.warning('Gates are not opened yet: %s', error)
        finally:
            if is_alone:
                self._looking.release()

    def states(self) -> tuple[reports.GateState, ...]:
        """Of the gates that are kept."""
        return tuple(_state(coflow_id, one.keeper)
                     for coflow_id, one in list(self._gated.items()))

    def about(self) -> dict[str, Any]:
        """What a report says of them."""
        return {'gates': self.states(), 'why_gates_open': self.why_open}

    def _is_any(self, now_s: float) -> bool:
        """Whether the policy has gates, and the clock is good for them."""
        policy = self._enforcer.policy
        if policy is None or not any(
                coflow.gate is not None for coflow in policy.classes):
            self.why_open = None
            return False
        if self._enforcer.fair:
            self.why_open = 'no controller renews the policy'
            return False
        if self._most_error_s and now_s >= self._asked_s:
            self._asked_s = now_s + CLOCK_S
            self._check_clock(now_s)
        self.why_open = self._why_clock
        return self._why_clock is None

    def _check_clock(self, now_s: float) -> None:
        most_s, error_s = self._most_error_s, self._error_s()
        off_s = self._off_s(now_s, self._wall_s() - now_s)
        why = None
        if error_s > most_s:
            why = ('no daemon keeps the clock' if math.isinf(error_s)
                   else f'the clock may be off by {error_s:.1g} s')
        elif off_s > most_s:
            why = ('the clock and the controller\'s differ by at least '
                   f'{off_s:.1g} s')
        if (why is None) != (self._why_clock is None):
            LOG.warning('Gates are %s: %s, allowed are %g s',
                        'kept' if why is None else 'open',
                        why or 'the clock is good', most_s)
        self._why_clock = why

    def _wanted(self) -> frozenset[int]:
        """Minors of gated coflows' classes and queues."""
        policy = self._enforcer.policy
        if policy is not self._read_for:
            self._read_for = policy
            self._minors = frozenset(
                minor for coflow in (policy.classes if policy else ())
                if coflow.gate is not None for minor in (
                    coflow.minor,
                    *(child.minor for child in coflow.destinations)))
        return self._minors

    def _follow(self, stats: Mapping[int, wire.ClassStats]) -> None:
        """Take over another policy, or another difference of the clocks."""
        policy = self._enforcer.policy
        ahead_s = self._wall_s() - self._now_s()
        is_same = abs(ahead_s - self._ahead_s) < SAME_S
        if policy is self._policy and is_same or policy is None:
            return
        self._policy, self._ahead_s = policy, ahead_s
        gated: dict[str, _Gated] = {}
        for coflow in policy.classes:
            if coflow.gate is None or coflow.minor not in stats:
                continue
            one = self._gated.get(coflow.coflow_id)
            if one is None or one.coflow.minor != coflow.minor:
                one = _Gated(coflow, keeper.Keeper(
                    coflow.gate, ahead_s, stats[coflow.minor].sent_bytes))
            else:
                one.coflow = coflow
                one.keeper.set(coflow.gate, ahead_s)
            gated[coflow.coflow_id] = one
        self._gated = gated

    def _is_open(self, one: _Gated, stats: Mapping[int, wire.ClassStats],
                 now_s: float) -> bool:
        seen = stats.get(one.coflow.minor)
        return seen is None or one.keeper.look(
            now_s, seen.sent_bytes, sum(
                stats.get(minor, _NO_STATS).backlog_bytes
                for minor in one.leaves))


def _state(coflow_id: str, kept: keeper.Keeper) -> reports.GateState:
    gate = kept.gate
    return reports.GateState(
        coflow_id, gate.period_s, gate.offset_s, gate.open_s,
        kept.is_open or kept.gave_up, kept.gave_up, kept.opened, kept.missed,
        round(kept.held_s, 3),
        round(kept.open_s / kept.looked_s, 2) if kept.looked_s else 0.0)
