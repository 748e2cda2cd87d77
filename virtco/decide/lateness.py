# SPDX-License-Identifier: Apache-2.0

"""Which training jobs fall behind and go first, by a snapshot. Pure.

The rule is :class:`virtco.scheduling.periodic.guard.Guard`, as in the
simulator. An iteration ends where the next one begins to send, less the
computing between them.
"""

from collections.abc import Iterable
from collections.abc import Mapping

from virtco.decide import gates
from virtco.know import snapshot as known
from virtco.scheduling.periodic import guard as guard_model
from virtco.scheduling.periodic import jobs as jobs_model

#: Periods that a job may be behind its deadline. Who is further behind has
#: paused, or has other iterations than were hinted: its deadlines begin anew,
#: so often at most while the plan holds.
MOST_BEHIND, MOST_ANEW = 2.0, 3


class _Group:
    """Jobs that meet at links, and the controller serves in order."""

    def __init__(self, jobs: Iterable[jobs_model.PeriodicJob]):
        self.jobs = sorted(jobs, key=lambda job: job.job_id)
        self._guard = guard_model.Guard(self.jobs)
        self._arrival_s: dict[int, float] = {}
        self._anew = dict.fromkeys(range(len(self.jobs)), 0)

    def late_s(self, coflows: Mapping[str, known.Coflow]
               ) -> dict[str, float]:
        found = {}
        for place, job in enumerate(self.jobs):
            coflow = coflows.get(job.job_id)
            if coflow is None or coflow.is_resting:
                continue
            self._follow(place, coflow.live.arrival_s)
            if self._anew[place] <= MOST_ANEW:
                found[job.job_id] = self._guard.late_s(place)
        return found

    def _follow(self, place: int, arrival_s: float) -> None:
        """An iteration began to send then, or still does."""
        before_s = self._arrival_s.get(place)
        if before_s == arrival_s:
            return
        self._arrival_s[place] = arrival_s
        job = self.jobs[place]
        ended_s = arrival_s - job.compute_s
        if before_s is None:
            self._guard.began(place, ended_s)
            return
        deadline_s = self._guard.late_s(place) + job.send_s
        if ended_s > deadline_s + MOST_BEHIND * job.period_s:
            self._anew[place] += 1
            self._guard.began(place, ended_s)
        else:
            self._guard.ended(place, ended_s)


class Lateness:
    """Deadlines of all jobs of a plan; a new leader begins with new ones."""

    def __init__(self) -> None:
        self._plan = gates.NONE
        self._groups: dict[frozenset[str], _Group] = {}

    def follow(self, plan: gates.Gates, coflows: Iterable[known.Coflow]
               ) -> dict[str, float]:
        """When jobs that send have to go first, by their ids.

        :param plan: whose jobs are guarded.
        :param coflows: as they are now; call it with each snapshot.
        """
        if plan is not self._plan:
            self._take(plan)
        if not self._groups:
            return {}
        by_id = {coflow.live.coflow_id: coflow for coflow in coflows}
        return {job_id: late_s for group in self._groups.values()
                for job_id, late_s in group.late_s(by_id).items()}

    def _take(self, plan: gates.Gates) -> None:
        before, self._groups, self._plan = self._groups, {}, plan
        for ids in plan.groups:
            jobs = {job_id: plan.jobs[job_id] for job_id in ids}
            if len(ids) < 2 or not gates.are_in_order(jobs.values()):
                continue
            old = before.get(ids)
            # Jobs that stay are the same objects.
            self._groups[ids] = old if old is not None and all(
                job is jobs[job.job_id] for job in old.jobs) else _Group(
                    jobs.values())
