# SPDX-License-Identifier: Apache-2.0

"""Jobs that compute and send in turn: what a placement makes of them.

What counts for a job is not when the bytes that it has left are sent, but how
long its iterations are beside the jobs that it shares links with, once they
are shifted against each other as well as they can be
(:mod:`virtco.scheduling.periodic.shifts`, after CASSINI).
"""

from collections.abc import Sequence
import dataclasses
import functools
import itertools

import numpy as np

from virtco.model import snapshot
from virtco.scheduling.periodic import jobs as jobs_model
from virtco.scheduling.periodic import rehearsal
from virtco.scheduling.periodic import shifts
from virtco.solver.model import instance as instances
from virtco.solver.model import loads
from virtco.solver.model import objectives

#: Jobs that are rehearsed with the own ones, those that meet them most.
MOST_MET = 5
#: Of a link's rate; two that ask for no more share it without a wait.
TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class Shared:
    """A running job that an own coflow has to share links with.

    :ivar coflow_id: of the running job.
    :ivar coflow: name of the own one.
    :ivar links: that cannot carry both at once, by name.
    :ivar score: compatibility of the two, 0 to 1.
    """

    coflow_id: str
    coflow: str
    links: tuple[str, ...]
    score: float


def applies(problem: snapshot.PlacementProblem) -> bool:
    """Whether a job is placed beside jobs, and pairs have no rates."""
    return (problem.pair_rate_bps is None
            and any(coflow.computes for coflow in problem.coflows)
            and any(one.iteration is not None for one in problem.active))


class Jobs:
    """The jobs of a problem, running and own.

    :param inst: with all hosts of the problem; links are its ports.
    """

    def __init__(self, inst: instances.Instance):
        self._inst = inst
        active = [one for one in inst.problem.active
                  if one.iteration is not None]
        self.running = _running(inst, active)
        self._own = [(number, coflow) for number, coflow in enumerate(
            inst.problem.coflows) if coflow.computes]
        self._uses = {job.job_id: frozenset(job.busy_s)
                      for job in self.running}

    def own(self, assign: np.ndarray) -> list[jobs_model.PeriodicJob]:
        """Own jobs with that host per node; ids are the coflows' numbers."""
        busy_s = instances.times_s(
            objectives.own_loads(self._inst, assign), self._inst.s_per_byte)
        return [_job(f'own {number}', coflow.compute_s or 0.0,
                     coflow.n_users, busy_s[number])
                for number, coflow in self._own]

    def computing(self, assign: np.ndarray) -> float:
        """Own workers that compute in the mean, less those of other jobs that
        compute no more, where all are shifted at best.
        """
        own = self.own(assign)
        met = self._met(own)
        return (_computing([*own, *met]) - self._without(tuple(
            job.job_id for job in met)))

    def shared(self, assign: np.ndarray) -> tuple[Shared, ...]:
        """What the own jobs meet, the least compatible first."""
        found = []
        for (_number, coflow), job in zip(self._own, self.own(assign),
                                          strict=True):
            for other in self.running:
                links = [link for link in range(self._inst.n_fabric)
                         if _clash(job, other, link)]
                if links:
                    found.append(Shared(
                        other.job_id, coflow.name, tuple(
                            self._inst.port_name(link) for link in links),
                        shifts.compatibility([job, other])))
        return tuple(sorted(found, key=lambda one: (one.score,
                                                    one.coflow_id)))

    def _met(self, own: Sequence[jobs_model.PeriodicJob]
             ) -> list[jobs_model.PeriodicJob]:
        """Those that keep the own jobs' links busy for most of the time."""
        links = frozenset[object]().union(*(job.busy_s for job in own))
        found = [(max(job.busy_s[link] for link in shared) / job.period_s, i)
                 for i, job in enumerate(self.running)
                 if (shared := links & self._uses[job.job_id])]
        return [self.running[i] for _share, i in sorted(
            found, key=lambda one: (-one[0], one[1]))[:MOST_MET]]

    @functools.cached_property
    def _by_id(self) -> dict[str, jobs_model.PeriodicJob]:
        return {job.job_id: job for job in self.running}

    @functools.cached_property
    def _known(self) -> dict[tuple[str, ...], float]:
        return {}

    def _without(self, ids: tuple[str, ...]) -> float:
        """What these running jobs compute as it is."""
        if ids not in self._known:
            self._known[ids] = _computing([self._by_id[one] for one in ids])
        return self._known[ids]


def shared(problem: snapshot.PlacementProblem, plan: snapshot.Plan
           ) -> tuple[Shared, ...]:
    """Jobs that a plan's share links with.

    :raises virtco.exception.Invalid: when the problem makes no sense.
    """
    if not applies(problem):
        return ()
    inst = instances.build(problem, reduce=False)
    index = {host.name: i for i, host in enumerate(problem.hosts)}
    return Jobs(inst).shared(np.array([
        index[plan.hosts[vms[0]]] for vms in inst.node_vms], np.int64))


def _clash(one: jobs_model.PeriodicJob, other: jobs_model.PeriodicJob,
           link: int) -> bool:
    """Whether the link cannot carry both at once."""
    both = [job.busy_s.get(link, 0.0) / job.send_s for job in (one, other)
            if job.busy_s]
    return min(both, default=0.0) > 0 and sum(both) > 1 + TOLERANCE


def _running(inst: instances.Instance,
             active: Sequence[snapshot.ActiveCoflow]
             ) -> list[jobs_model.PeriodicJob]:
    """Whole iterations on the ports of the problem's hosts and uplinks."""
    whole = tuple(_whole(one) for one in active)
    names = {host.name: i for i, host in enumerate(inst.problem.hosts)}
    found = loads.read(whole, names)
    if inst.uplinks:
        found = found.with_more(inst.uplinks.running(whole))
    busy_s = found.size_bytes * inst.s_per_byte[found.port]
    jobs = []
    for one, (first, last) in zip(active, itertools.pairwise(
            found.start.tolist()), strict=True):
        assert one.iteration is not None
        jobs.append(jobs_model.PeriodicJob(
            one.coflow_id, one.iteration.compute_s, {
                port: each_s for port, each_s in zip(
                    found.port[first:last].tolist(),
                    busy_s[first:last].tolist()) if each_s < np.inf},
            max(1, one.iteration.workers)))
    return jobs


def _whole(one: snapshot.ActiveCoflow) -> snapshot.ActiveCoflow:
    assert one.iteration is not None
    out: dict[str, float] = {}
    into: dict[str, float] = {}
    for src, dst, size_bytes in one.iteration.pairs:
        out[src] = out.get(src, 0.0) + size_bytes
        into[dst] = into.get(dst, 0.0) + size_bytes
    return snapshot.ActiveCoflow(one.coflow_id, tuple(out.items()),
                                 tuple(into.items()), one.iteration.pairs)


def _job(name: str, compute_s: float, workers: int, busy_s: np.ndarray
         ) -> jobs_model.PeriodicJob:
    """:param busy_s: shape (P,)."""
    ports = np.flatnonzero((busy_s > 0) & (busy_s < np.inf))
    return jobs_model.PeriodicJob(name, compute_s, dict(zip(
        ports.tolist(), busy_s[ports].tolist())), max(1, workers))


def _computing(jobs: Sequence[jobs_model.PeriodicJob]) -> float:
    """Workers that compute in the mean, by a rehearsal of the best shifts."""
    if not jobs:
        return 0.0
    workers = sum(job.workers for job in jobs)
    if not any(True for _group in shifts.components(jobs)):
        return workers * jobs_model.utilisation(
            jobs, [job.period_s for job in jobs])
    jobs = _thinned(jobs)
    found = shifts.plan(jobs)
    horizon_s = shifts.REHEARSED_PERIODS * max(job.period_s for job in jobs)
    place = {job.job_id: i for i, job in enumerate(jobs)}
    return workers * jobs_model.utilisation(
        jobs, rehearsal.Rehearsal(jobs).run(
            found.gates, horizon_s, horizon_s / 2,
            [place[name] for name in found.order]).tolist())


def _thinned(jobs: Sequence[jobs_model.PeriodicJob]
             ) -> list[jobs_model.PeriodicJob]:
    """The same jobs on fewer links: of those that the same jobs use the
    busiest. What a job sends at its slowest link keeps its time.
    """
    users: dict[object, list[int]] = {}
    for j, job in enumerate(jobs):
        for link in job.busy_s:
            users.setdefault(link, []).append(j)
    busiest: dict[tuple[int, ...], tuple[float, object]] = {}
    for link, some in users.items():
        share = sum(jobs[j].busy_s[link] / jobs[j].period_s for j in some)
        if len(some) > 1 and share > busiest.get(tuple(some), (0.0,))[0]:
            busiest[tuple(some)] = share, link
    kept = {link for _share, link in busiest.values()}
    return [dataclasses.replace(job, busy_s={
        **{link: busy_s for link, busy_s in job.busy_s.items()
           if link in kept}, ('own', job.job_id): job.send_s})
        for job in jobs]
