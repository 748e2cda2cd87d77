# SPDX-License-Identifier: Apache-2.0

"""Training jobs that fall behind and go first, by snapshots. Pure.

The rule is :class:`virtco.scheduling.periodic.guard.Guard`, as in the
simulator. An iteration ends when the next one begins to send, less the
computing time between them.
"""

from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np

from virtco.model import live
from virtco.scheduling.periodic import guard as guard_model
from virtco.scheduling.periodic import jobs as jobs_model
from virtco.state import schedule_input as known

#: Jobs that are guarded at most, the most intense ones.
MOST_JOBS = 64
#: Shortest iteration of a guarded job: of shorter ones the controller hears
#: too late.
LEAST_PERIOD_S = 20.0
#: TCP takes a little longer than a link at its full rate.
LONGER = 1.1
#: Relative change of a job's times up to which it keeps its deadlines: rates
#: change with the other traffic on the links.
SAME = 0.1
#: Periods that a job may be behind its deadline. A job further behind has
#: paused, or has other iterations than were hinted: its deadlines restart, at
#: most MOST_ANEW times while the same jobs meet.
MOST_BEHIND, MOST_ANEW = 2.0, 3


class _Group:
    """Jobs that meet at links."""

    def __init__(self, jobs: Iterable[jobs_model.PeriodicJob]):
        self.jobs = sorted(jobs, key=lambda job: job.job_id)
        self._guard = guard_model.Guard(self.jobs)
        self._arrival_s: dict[int, float] = {}
        self._anew = dict.fromkeys(range(len(self.jobs)), 0)

    def late_s(self, coflows: Mapping[str, known.Coflow]
               ) -> dict[str, float]:
        found = {}
        for place, job in enumerate(self.jobs):
            coflow = coflows[job.job_id]
            if coflow.is_resting:
                continue
            self._follow(place, coflow.live.arrival_s)
            if self._anew[place] <= MOST_ANEW:
                found[job.job_id] = self._guard.late_s(place)
        return found

    def _follow(self, place: int, arrival_s: float) -> None:
        """Note that an iteration began to send at ``arrival_s``."""
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
    """Deadlines of all jobs that meet; a new leader begins with new ones.

    :param wire_factor: bytes on the wire for each of the matrix.
    """

    def __init__(self, wire_factor: float = 1.0) -> None:
        self._factor = LONGER * wire_factor
        self._jobs: dict[str, jobs_model.PeriodicJob] = {}
        self._groups: list[_Group] = []

    def follow(self, snapshot: known.Snapshot) -> dict[str, float]:
        """Return the times from which sending jobs go first, by id.

        :param snapshot: call it with each.
        """
        jobs = {}
        for job in _jobs(snapshot, self._factor):
            before = self._jobs.get(job.job_id)
            jobs[job.job_id] = (before if before is not None
                                and _is_close(job, before) else job)
        if jobs != self._jobs:
            self._take(jobs)
        if not self._groups:
            return {}
        by_id = {coflow.live.coflow_id: coflow for coflow in snapshot.coflows}
        return {job_id: late_s for group in self._groups
                for job_id, late_s in group.late_s(by_id).items()}

    def _take(self, jobs: dict[str, jobs_model.PeriodicJob]) -> None:
        """Group the jobs that meet; groups that stay keep their deadlines."""
        before = {frozenset(map(id, group.jobs)): group
                  for group in self._groups}
        self._jobs = jobs
        # Jobs that stay are the same objects.
        self._groups = [
            before.get(frozenset(map(id, some))) or _Group(some)
            for some in jobs_model.meeting(list(jobs.values()))
            if min(job.period_s for job in some) >= LEAST_PERIOD_S]


def _jobs(snapshot: known.Snapshot, factor: float
          ) -> list[jobs_model.PeriodicJob]:
    """Return the periodic jobs whose hints say enough."""
    if snapshot.options.is_fair:
        return []
    found = [job for coflow in snapshot.coflows
             if coflow.live.compute_s > 0 and coflow.live.whole is not None
             and (job := _job(coflow.live, coflow.live.whole, snapshot,
                              factor)) is not None]
    return jobs_model.by_intensity(found)[:MOST_JOBS]


def _job(one: live.LiveCoflow, whole: live.Flows, snapshot: known.Snapshot,
         factor: float) -> jobs_model.PeriodicJob | None:
    """Return a coflow's job; None where it sends nothing, or a link of it
    carries nothing.
    """
    found_s = factor * snapshot.ports.busy_s(whole, snapshot.hosts.number_of)
    if np.isinf(found_s).any():
        return None
    names = snapshot.hosts.names
    # Names that a host that comes or goes does not change.
    busy_s: dict[jobs_model.Link, float] = {
        (port // len(names), names[port % len(names)])
        if port < 2 * len(names) else port - 2 * len(names):
            float(found_s[port]) for port in np.flatnonzero(found_s).tolist()}
    if one.capped is not None:
        busy_s |= {cap: factor * cap_s for cap, cap_s in one.capped.busy_s(
            whole).items() if cap_s}
    return (jobs_model.PeriodicJob(one.coflow_id, float(one.compute_s),
                                   busy_s, one.workers) if busy_s else None)


def _is_close(job: jobs_model.PeriodicJob, before: jobs_model.PeriodicJob
              ) -> bool:
    """Return whether a job equals an earlier one within the tolerance."""
    return (job.workers == before.workers
            and job.busy_s.keys() == before.busy_s.keys()
            and all(abs(new_s - old_s) <= SAME * old_s for new_s, old_s in (
                (job.compute_s, before.compute_s), *(
                    (busy_s, before.busy_s[link])
                    for link, busy_s in job.busy_s.items()))))
