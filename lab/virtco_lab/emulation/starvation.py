# SPDX-License-Identifier: Apache-2.0

"""Waiting times for processors, which tell whether a run is valid.

The kernel counts for each thread how long it ran and how long it waited for a
processor. A sender, edge module or controller that waits makes transfers
longer, whatever virtco does. Time that a hypervisor steals from this machine
delays all threads and is in no thread's count.
"""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import os
import time

import psutil

from virtco_lab.emulation import patience

_NS = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Shares of the time between two looks.

    :ivar waited: waiting time of the thread that waited most for a processor,
        and the time stolen from the processors.
    :ivar ran: process -> share of one processor, its threads together.
    """

    waited: float
    ran: dict[int, float]

    def ran_by(self, pids: Iterable[int]) -> float:
        """Sum the shares of one processor that processes used.

        A process that was not looked at counts as 0.
        """
        return sum(self.ran.get(pid, 0.0) for pid in pids)


class Watch:
    """Counts from when it is made.

    :param pids: gives the processes to look at.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]):
        self._pids = list(pids())
        self._began_s = time.monotonic()
        self._stolen_s = _stolen_s()
        self._both = patience.task_times(self._pids)
        self._waits = patience.task_times(self._pids, only_waits=True)

    def read(self) -> Usage:
        passed_ns = (time.monotonic() - self._began_s) / _NS
        waits = {task: now - self._waits.get(task, 0) for task, now in
                 patience.task_times(self._pids, only_waits=True).items()}
        ran: dict[int, float] = {}
        for task, now in patience.task_times(self._pids).items():
            spent = now - self._both.get(task, 0) - waits.get(task, 0)
            ran[task[0]] = ran.get(task[0], 0.0) + max(0, spent) / passed_ns
        stolen_ns = (_stolen_s() - self._stolen_s) / _NS
        stolen_ns /= os.cpu_count() or 1
        return Usage((max(waits.values(), default=0) + stolen_ns) / passed_ns,
                     ran)


def _stolen_s() -> float:
    """Return seconds stolen by the hypervisor since boot, all processors."""
    return float(getattr(psutil.cpu_times(), 'steal', 0.0))
