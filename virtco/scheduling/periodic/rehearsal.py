# SPDX-License-Identifier: Apache-2.0

"""Periodic jobs over time, in one order and behind gates, as a fluid.

A job's flows keep their proportions (MADD), so a job is one number. This is
what a plan of shifts is judged by; the simulator runs flows.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from virtco import exception
from virtco.scheduling.periodic import jobs as jobs_model
from virtco.scheduling.periodic import rehearsal_kernel

#: A job that is late by more of its gate's period waits for the next one.
MOST_LATE = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Gate:
    """Sending may begin at offset_s + k period_s, for any whole k."""

    period_s: float
    offset_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.period_s < math.inf:
            raise exception.Invalid(field='period of a gate',
                                    value=self.period_s,
                                    limit='seconds above 0')

    def opens_s(self, ready_s: float, most_late: float = MOST_LATE) -> float:
        """When a job that has computed until ``ready_s`` may send.

        Who is a little late goes at once: the next gate costs a whole period.
        Who is later than that has lost its turn, and would take another's.
        """
        return float(rehearsal_kernel.opens_s(ready_s, self.period_s,
                                              self.offset_s, most_late))


class Rehearsal:
    """Jobs that can be run again and again, in any order, with any gates."""

    def __init__(self, jobs: Sequence[jobs_model.PeriodicJob]):
        self._jobs = jobs
        busy_s = jobs_model.busy_matrix(jobs, shared_only=True)
        used = busy_s > 0
        self._ptr = np.concatenate(([0], np.cumsum(used.sum(axis=1)))).astype(
            np.int64)
        self._link = np.nonzero(used)[1].astype(np.int64)
        self._busy_s = busy_s[used]
        self._send_s = np.array([job.send_s for job in jobs])
        self._compute_s = np.array([job.compute_s for job in jobs])
        self._free = np.zeros(busy_s.shape[1])
        self._scratch = np.zeros((3, len(jobs)))

    def run(self, gates: Mapping[str, Gate], horizon_s: float,
            warm_up_s: float = 0.0, order: Sequence[int] | None = None,
            fair: bool = False, begins_s: Sequence[float] | None = None
            ) -> np.ndarray:
        """Mean iteration time of each job, shape (J,).

        :param gates: of jobs by id; others send when they have computed.
        :param warm_up_s: what is done before does not count.
        :param order: in which jobs are served; as given where None.
        :param fair: those that send share links equally instead.
        :param begins_s: when each job begins to compute; None is at once.
        :returns: inf for a job that did nothing in the time that counts.
        """
        jobs = self._jobs
        done = np.zeros(len(jobs))
        rehearsal_kernel.run(
            np.array(range(len(jobs)) if order is None else order, np.int64),
            self._ptr, self._link, self._busy_s, self._send_s,
            self._compute_s,
            np.array([gates[job.job_id].period_s if job.job_id in gates
                      else 0.0 for job in jobs]),
            np.array([gates[job.job_id].offset_s if job.job_id in gates
                      else 0.0 for job in jobs]),
            np.zeros(len(jobs)) if begins_s is None
            else np.array(begins_s, np.float64), MOST_LATE, fair, horizon_s,
            warm_up_s, self._free, *self._scratch, done)
        with np.errstate(divide='ignore'):
            each_s: np.ndarray = (horizon_s - warm_up_s) / done
        return each_s
