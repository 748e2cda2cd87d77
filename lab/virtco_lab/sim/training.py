# SPDX-License-Identifier: Apache-2.0

"""Training jobs on a fabric: they compute, send a coflow, and begin again.

Flows run in the simulator's exact event loop, under the same kernels as all
other coflows, which may run beside them.
"""

from collections.abc import Sequence
import dataclasses
import heapq
import math

import numpy as np

from virtco import exception
from virtco.fluid import run_kernels
from virtco.model import uplinks
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling.periodic import guard as guard_model
from virtco.scheduling.periodic import jobs as jobs_model
from virtco_lab.sim import demands as demand_model
from virtco_lab.sim import simulation


@dataclasses.dataclass(frozen=True, slots=True)
class Scheme:
    """How training jobs are served.

    :ivar policy: the simulator's.
    :ivar by_intensity: whether they go by intensity among themselves.
    :ivar guarded: whether who is late goes first.
    :ivar other_class: class of other coflows.
    """

    policy: str
    by_intensity: bool = False
    guarded: bool = False
    other_class: int = 0


SCHEMES = {'fair': Scheme('fair'),
           'mrtf': Scheme('mrtf'),
           'order': Scheme('mrtf', True),
           'training first': Scheme('mrtf', True, other_class=1),
           'order, guarded': Scheme('mrtf', True, guarded=True)}


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A training job at its place.

    :ivar demand: bytes of one iteration.
    :ivar workers: GPUs.
    :ivar start_s: start of its first iteration.
    """

    name: str
    compute_s: float
    demand: fabric_model.Demand
    workers: int = 1
    start_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Ordinary:
    """A coflow that is sent once."""

    arrival_s: float
    demand: fabric_model.Demand


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """Result of the jobs in the measured time, after the warm-up.

    :ivar iteration_s: seconds of each job's iterations in order, shape (n,)
        each.
    :ivar mean_s: mean seconds of each job's iterations, with parts of those
        at the ends of the measured time; inf for a job that never computed;
        shape (J,).
    :ivar utilisation: share of all workers that computed, 0 to 1.
    :ivar cct_s: seconds of the ordinary coflows that ended.
    """

    iteration_s: tuple[np.ndarray, ...]
    mean_s: np.ndarray
    utilisation: float
    cct_s: np.ndarray


class Cluster:
    """Where jobs run.

    :param cap_bps: egress of each host, then ingress, shape (2H,).
    :param above: the uplinks above the hosts.
    """

    def __init__(self, cap_bps: np.ndarray,
                 above: uplinks.Uplinks = uplinks.NONE):
        self.cap_bps, self.above = cap_bps, above

    def periodic(self, jobs: Sequence[Job]) -> list[jobs_model.PeriodicJob]:
        """Convert the jobs to the scheduler's model; links are ports."""
        fabric = demand_model.fabric_of(
            self.cap_bps, [job.demand for job in jobs], self.above)
        busy_s = (fabric.load / fabric.cap[fabric.port]).tolist()
        port = fabric.port.tolist()
        return [jobs_model.PeriodicJob(
            job.name, job.compute_s,
            dict(zip(port[first:last], busy_s[first:last])), job.workers)
            for job, first, last in zip(jobs, fabric.entry_ptr.tolist(),
                                        fabric.entry_ptr[1:].tolist())]

    def run(self, jobs: Sequence[Job], scheme: str, horizon_s: float,
            warm_up_s: float = 0.0, ordinary: Sequence[Ordinary] = ()
            ) -> Result:
        """Let jobs and coflows run.

        :param scheme: one of :data:`SCHEMES`.
        :param warm_up_s: time before which ends do not count.
        :raises virtco.exception.Invalid: for a scheme that is none.
        """
        if scheme not in SCHEMES:
            raise exception.Invalid(field='scheme', value=scheme,
                                    limit='one of ' + ', '.join(SCHEMES))
        how = SCHEMES[scheme]
        periodic = self.periodic(jobs)
        sim = simulation.Simulation(
            self.cap_bps, simulation.Config(how.policy),
            [*(job.demand for job in jobs), *(one.demand for one in ordinary)
             ], self.above)
        if how.by_intensity:
            place = {job.job_id: i for i, job in enumerate(
                jobs_model.by_intensity(periodic))}
            sim.state.intensity[:len(jobs)] = [
                len(jobs) - place[job.name] for job in jobs]
        guard = guard_model.Guard(periodic) if how.guarded else None
        return _Run(sim, jobs, horizon_s, warm_up_s, ordinary,
                    how.other_class, guard).result()


class _Run:
    """Run of jobs, which are the first coflows of its simulation."""

    def __init__(self, sim: simulation.Simulation, jobs: Sequence[Job],
                 horizon_s: float, warm_up_s: float,
                 ordinary: Sequence[Ordinary], other_class: int,
                 guard: guard_model.Guard | None):
        self._other_class, self._guard = other_class, guard
        self._intensity = sim.state.intensity.copy()
        self._sim, self._jobs = sim, jobs
        self._horizon_s, self._warm_up_s = horizon_s, warm_up_s
        fabric = sim.fabric
        self._whole = (fabric.base.copy(), fabric.load.copy(),
                       fabric.alive.copy())
        self._began_s = [job.start_s for job in jobs]
        self._computed_s = [0.0] * len(jobs)
        self._times_s: list[list[float]] = [[] for _ in jobs]
        self._sending: set[int] = set()
        # A sorted list is a heap.
        self._starts: list[tuple[float, int]] = sorted(
            (one.arrival_s, number) for number, one in enumerate(
                ordinary, len(jobs)))
        for j, job in enumerate(jobs):
            if guard is not None:
                guard.began(j, job.start_s)
            self._compute(j, job.start_s)

    def result(self) -> Result:
        sim = self._sim
        while sim.now_s < self._horizon_s:
            until_s = min(self._horizon_s, self._starts[0][0]
                          if self._starts else math.inf)
            sim.run(min(until_s, self._lift_late()), stop_at_end=True)
            for j in [j for j in self._sending if sim.ended(j)]:
                self._iterated(j)
            while self._starts and self._starts[0][0] <= sim.now_s:
                self._start(heapq.heappop(self._starts)[1])
        workers = sum(job.workers for job in self._jobs)
        counted_s = self._horizon_s - self._warm_up_s
        cct_s = sim.completion_s()[len(self._jobs):]
        with np.errstate(divide='ignore'):
            mean_s = counted_s * np.array([
                job.compute_s for job in self._jobs]) / self._computed_s
        return Result(
            tuple(map(np.array, self._times_s)), mean_s,
            sum(job.workers * computed_s for job, computed_s in zip(
                self._jobs, self._computed_s)) / (workers * counted_s),
            cct_s[~np.isnan(cct_s)])

    def _lift_late(self) -> float:
        """Let late jobs go first; return when the next one will be late."""
        next_s = math.inf
        if self._guard is None:
            return next_s
        intensity = self._sim.state.intensity
        for j in self._sending:
            late_s = self._guard.late_s(j)
            if late_s > self._sim.now_s:
                next_s = min(next_s, late_s)
            elif intensity[j] == self._intensity[j]:
                # Above all others, the earlier the more.
                intensity[j] = len(self._jobs) + math.exp(
                    -late_s / self._horizon_s)
        return next_s

    def _start(self, index: int) -> None:
        is_job = index < len(self._jobs)
        if is_job:
            run_kernels.release(self._sim.rater, self._sim.run_of, index,
                                *self._whole)
            self._sending.add(index)
        self._sim.start(
            index, priority_class=0 if is_job else self._other_class)
        if is_job and self._sim.ended(index):
            self._iterated(index)

    def _iterated(self, j: int) -> None:
        """Note the end of a job's iteration, whose coflow has ended."""
        self._sending.discard(j)
        now_s = self._sim.now_s
        if self._guard is not None:
            self._guard.ended(j, now_s)
            self._sim.state.intensity[j] = self._intensity[j]
        if now_s > self._warm_up_s:
            self._times_s[j].append(now_s - self._began_s[j])
        self._began_s[j] = now_s
        self._compute(j, now_s)

    def _compute(self, j: int, now_s: float) -> None:
        job = self._jobs[j]
        ready_s = now_s + job.compute_s
        self._computed_s[j] += max(0.0, min(ready_s, self._horizon_s)
                                   - max(now_s, self._warm_up_s))
        heapq.heappush(self._starts, (ready_s, j))
