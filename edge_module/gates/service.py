# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Opens and closes the gates of this host's periodic coflows.

A thread looks at the counters of the gated classes, some fifty times a second
and only while there are any. Whatever goes wrong, gates are open: without a
controller for the policy's time to live, with a clock that nobody keeps, and
when this thread ends or stands still.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import math
import threading
import time

from oslo_log import log as logging

from edge_module import enforcer as edge_enforcer
from edge_module.gates import clock
from edge_module.gates import keeper
from edge_module.qdisc import wire
from virtco import exception
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


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """Of one gate, for people."""

    coflow_id: str
    is_open: bool
    gave_up: bool
    opened: int
    held_s: float


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
    """

    def __init__(self, enforcer: edge_enforcer.Enforcer,
                 stop: threading.Event, most_error_s: float,
                 error_s: Callable[[], float] = clock.error_s,
                 wall_s: Callable[[], float] = time.time,
                 now_s: Callable[[], float] = time.monotonic):
        self._enforcer = enforcer
        self._stop = stop
        self._most_error_s = most_error_s
        self._error_s = error_s
        self._wall_s, self._now_s = wall_s, now_s
        self._wake = threading.Event()
        self._looking = threading.RLock()
        self._gated: dict[str, _Gated] = {}
        self._policy: edge_policy.EdgePolicy | None = None
        self._is_kept = True
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
            LOG.warning('Gates are open: a look at the classes takes %g s of '
                        'CPU', cost_s)
            self.open_all()
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
        stats = self._enforcer.uplink.class_stats()
        self._follow(stats)
        closed = frozenset(
            one.coflow.minor for one in self._gated.values()
            if not self._is_open(one, stats, now_s))
        self._enforcer.turn_gates(closed)
        self._looked_s = now_s
        return True

    def check(self) -> None:
        """Open what the thread does not look at any more; call it often."""
        if self._gated and self._now_s() - self._looked_s > STALE_S:
            LOG.warning('Nobody looks at the gates: they are open')
            self.open_all()

    def open_all(self) -> None:
        """Let all coflows send; they are kept no more."""
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

    def states(self) -> list[State]:
        """Of the gates that are kept."""
        return [State(coflow_id, one.keeper.is_open or one.keeper.gave_up,
                      one.keeper.gave_up, one.keeper.opened,
                      one.keeper.held_s)
                for coflow_id, one in list(self._gated.items())]

    def _is_any(self, now_s: float) -> bool:
        """Whether the policy has gates, and the clock is good for them."""
        policy = self._enforcer.policy
        if policy is None or self._enforcer.fair or not any(
                coflow.gate is not None for coflow in policy.classes):
            return False
        if self._most_error_s and now_s >= self._asked_s:
            self._asked_s = now_s + CLOCK_S
            error_s = self._error_s()
            is_kept = error_s <= self._most_error_s
            if is_kept != self._is_kept:
                LOG.warning('Gates are %s: the clock may be off by %g s, %g s '
                            'are allowed', 'kept' if is_kept else 'open',
                            error_s, self._most_error_s)
            self._is_kept = is_kept
        return self._is_kept

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
