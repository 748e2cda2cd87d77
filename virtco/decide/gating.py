# SPDX-License-Identifier: Apache-2.0

"""Plans gates beside the scheduler loop, which waits for no plan."""

from collections.abc import Callable
import logging
import time

from virtco.decide import gates
from virtco.know import snapshot as known
from virtco import metrics
from virtco import periodic

LOG = logging.getLogger(__name__)

TURN_S = 0.5
#: A plan costs a tenth of a core at most.
PAUSES = 9.0


class Planner:
    """A thread that plans when periodic coflows come, leave or move.

    :param snapshot: the newest that the loop computed by.
    :param wire_factor: see :func:`virtco.decide.gates.plan`.
    :param changed: called with each new plan in place.
    :ivar plan: the newest.
    """

    def __init__(self, snapshot: Callable[[], known.Snapshot],
                 wire_factor: float, changed: Callable[[], object],
                 counts: metrics.Metrics):
        self.plan = gates.NONE
        self._snapshot = snapshot
        self._wire_factor = wire_factor
        self._changed = changed
        self._metrics = counts
        self._seen: known.Snapshot | None = None
        self._due_s = 0.0
        self._turns = periodic.Periodic('plan gates', TURN_S, self.turn,
                                        counts)

    def start(self) -> None:
        self._turns.start()

    def stop(self) -> None:
        self._turns.stop()

    def turn(self) -> None:
        """Plan, if anything is new."""
        snapshot = self._snapshot()
        if snapshot is self._seen or time.monotonic() < self._due_s:
            return
        self._seen = snapshot
        cost_s = -time.thread_time()
        found = gates.plan(snapshot, self._wire_factor, self.plan)
        cost_s += time.thread_time()
        self._due_s = time.monotonic() + PAUSES * cost_s
        if found is self.plan:
            return
        before, self.plan = self.plan, found
        self._metrics.gated.set(len(found.gated))
        if found.of_host is not before.of_host:
            LOG.info('Gates for %d of %d periodic coflows, planned in %.3f s '
                     'of CPU.', len(found.gated), len(found.jobs), cost_s)
            self._changed()
