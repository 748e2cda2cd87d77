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

"""Periodic jobs over time, in one order and behind gates, as a fluid.

A job's flows keep their proportions (MADD), so a job is one number. This is
what a plan of shifts is judged by; the simulator runs flows.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from virtco import exception
from virtco.scheduling.periodic import jobs as jobs_model

#: Events closer together than this part of the clock are one.
SAME_TIME = 1e-12
#: A job that is late by more of its gate's period waits for the next one.
MOST_LATE = 0.25


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
        turn = math.floor((ready_s - self.offset_s) / self.period_s + 1e-9)
        late_s = ready_s - self.offset_s - turn * self.period_s
        if late_s <= most_late * self.period_s:
            return ready_s
        return max(ready_s, self.offset_s + (turn + 1) * self.period_s)


def rehearse(jobs: Sequence[jobs_model.PeriodicJob],
             gates: Sequence[Gate | None], horizon_s: float,
             warm_up_s: float = 0.0) -> np.ndarray:
    """Mean iteration time of each job, shape (J,), all starting at 0.

    :param jobs: in the order in which they are served.
    :param gates: of each job; None lets it send when it has computed.
    :param warm_up_s: iterations that end before are not counted.
    :returns: inf for a job that ended none in the time that counts.
    """
    busy_s = jobs_model.busy_matrix(jobs, shared_only=True)
    send_s = np.array([job.send_s for job in jobs])
    compute_s = np.array([job.compute_s for job in jobs])
    starts_s = np.array([_release_s(job, gate, 0.0)
                         for job, gate in zip(jobs, gates)])
    left = np.zeros(len(jobs))
    began_s = np.zeros(len(jobs))
    counted, total_s = np.zeros(len(jobs), int), np.zeros(len(jobs))
    now_s = 0.0
    while now_s < horizon_s:
        pace = _paces(left > 0, busy_s, send_s)
        with np.errstate(divide='ignore', invalid='ignore'):
            ends_s = np.where(pace > 0, left / pace, math.inf)
        step_s = min(float(ends_s.min(initial=math.inf)),
                     float(starts_s.min(initial=math.inf)) - now_s,
                     horizon_s - now_s)
        now_s += step_s
        slack_s = step_s + now_s * SAME_TIME
        left = np.where(ends_s <= slack_s, 0.0, left - pace * step_s)
        released = starts_s <= now_s * (1 + SAME_TIME)
        left[released] = 1.0
        starts_s[released] = math.inf
        for j in np.flatnonzero((ends_s <= slack_s)
                                | (released & (send_s <= 0))).tolist():
            left[j] = 0.0
            if now_s > warm_up_s:
                counted[j] += 1
                total_s[j] += now_s - began_s[j]
            began_s[j] = now_s
            starts_s[j] = _release_s(jobs[j], gates[j],
                                     now_s + compute_s[j])
    with np.errstate(divide='ignore', invalid='ignore'):
        return np.where(counted > 0, total_s / counted, math.inf)


def _release_s(job: jobs_model.PeriodicJob, gate: Gate | None,
               ready_s: float) -> float:
    return ready_s if gate is None else gate.opens_s(ready_s)


def _paces(sending: np.ndarray, busy_s: np.ndarray, send_s: np.ndarray
           ) -> np.ndarray:
    """Iterations per second that each job sends, in order (MADD)."""
    pace = np.zeros(len(sending))
    free = np.ones(busy_s.shape[1])
    for j in np.flatnonzero(sending).tolist():
        used = busy_s[j] > 0
        most = float((free[used] / busy_s[j][used]).min(initial=math.inf))
        pace[j] = min(most, 1 / send_s[j] if send_s[j] > 0 else math.inf)
        if pace[j] < 1e-9 / max(send_s[j], 1e-300):
            pace[j] = 0.0
        free = np.maximum(0.0, free - pace[j] * busy_s[j])
    return pace
