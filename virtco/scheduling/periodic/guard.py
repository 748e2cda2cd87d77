# SPDX-License-Identifier: Apache-2.0

"""No job falls far behind the others: who is late goes first. Pure.

An order by intensity starves jobs of few GPUs that send much. A guard gives
each iteration of a job a deadline, ``limit`` times the job's period after the
one before. A job is late once it would miss its deadline even if it sent alone
from now on. Late jobs go before the others, the one that is late for longest
first.
"""

from collections.abc import Sequence

from virtco.scheduling.periodic import job_bounds as bounds
from virtco.scheduling.periodic import jobs as jobs_model

#: Periods that a job may be ahead of its deadlines; a longer lead is cut.
MOST_AHEAD = 2.0
#: Factor on the bound: where links are never idle, no schedule reaches it.
ALLOWED = 1.02


class Guard:
    """Deadlines of jobs that run, by their place in the list.

    :param limit: iteration time over that alone, that no job should exceed;
        None is a little more than the least that any schedule has for its
        slowest job.
    """

    def __init__(self, jobs: Sequence[jobs_model.PeriodicJob],
                 limit: float | None = None):
        self.limit = (ALLOWED * bounds.least_worst_slowdown(jobs)
                      if limit is None else limit)
        self._most_s = [self.limit * job.period_s for job in jobs]
        self._send_s = [job.send_s for job in jobs]
        self._deadline_s = [0.0] * len(jobs)

    def began(self, job: int, now_s: float) -> None:
        """Note that the job's first iteration begins."""
        self._deadline_s[job] = now_s + self._most_s[job]

    def ended(self, job: int, now_s: float) -> None:
        """Note that an iteration ended and the next one begins."""
        latest_s = now_s + (1 + MOST_AHEAD) * self._most_s[job]
        self._deadline_s[job] = min(
            latest_s, self._deadline_s[job] + self._most_s[job])

    def late_s(self, job: int) -> float:
        """Return when the job goes first unless its iteration has ended."""
        return self._deadline_s[job] - self._send_s[job]
