# SPDX-License-Identifier: Apache-2.0

"""Training jobs on a fabric: they compute, send a coflow, and begin again.

Flows run in the simulator's exact event loop, under the same kernels as all
other coflows, which may run beside them.
"""

from collections.abc import Sequence
import dataclasses
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
        return [jobs_model.PeriodicJob(
            job.name, job.compute_s,
            {port: busy_s for port, busy_s in enumerate(
                fabric.busy_s(j).tolist()) if busy_s > 0}, job.workers)
            for j, job in enumerate(jobs)]

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
        running = _Jobs(sim, jobs, horizon_s, warm_up_s,
                        guard_model.Guard(periodic) if how.guarded else None)
        sim.drive([*(running.process(j) for j in range(len(jobs))), _arrivals(
            sim, len(jobs), ordinary, how.other_class)], horizon_s)
        counted_s = horizon_s - warm_up_s
        workers, compute_s = np.array([
            (job.workers, job.compute_s) for job in jobs]).T
        cct_s = sim.completion_s()[len(jobs):]
        with np.errstate(divide='ignore'):
            mean_s = counted_s * compute_s / running.computed_s
        return Result(
            tuple(map(np.array, running.times_s)), mean_s,
            float(workers @ running.computed_s / (workers.sum() * counted_s)),
            cct_s[~np.isnan(cct_s)])


def _arrivals(sim: simulation.Simulation, first: int,
              ordinary: Sequence[Ordinary], priority_class: int
              ) -> simulation.Process:
    """Start the ordinary coflows, whose indices begin with ``first``."""
    for number, one in sorted(enumerate(ordinary, first),
                              key=lambda pair: pair[1].arrival_s):
        yield one.arrival_s, None
        sim.start(number, priority_class=priority_class)


class _Jobs:
    """Jobs, which are the first coflows of a simulation, and their times.

    :ivar times_s: seconds of each job's iterations that ended after the
        warm-up.
    :ivar computed_s: seconds that each job computed after it, shape (J,).
    """

    def __init__(self, sim: simulation.Simulation, jobs: Sequence[Job],
                 horizon_s: float, warm_up_s: float,
                 guard: guard_model.Guard | None):
        self._sim, self._jobs, self._guard = sim, jobs, guard
        self._horizon_s, self._warm_up_s = horizon_s, warm_up_s
        fabric = sim.fabric
        self._whole = (fabric.base.copy(), fabric.load.copy(),
                       fabric.alive.copy())
        self.times_s: list[list[float]] = [[] for _ in jobs]
        self.computed_s = np.zeros(len(jobs))

    def process(self, j: int) -> simulation.Process:
        """Compute and send, again and again."""
        sim, guard, job = self._sim, self._guard, self._jobs[j]
        intensity = sim.state.intensity
        usual = float(intensity[j])
        began_s = job.start_s
        late_s = math.inf
        if guard is not None:
            guard.began(j, began_s)
        while True:
            ready_s = began_s + job.compute_s
            self.computed_s[j] += max(0.0, min(ready_s, self._horizon_s)
                                      - max(began_s, self._warm_up_s))
            yield ready_s, None
            run_kernels.release(sim.rater, sim.run_of, j, *self._whole)
            sim.start(j)
            if guard is not None:
                late_s = guard.late_s(j)
            yield late_s, j
            if not sim.ended(j):
                # Above all others, the earlier the more.
                intensity[j] = len(self._jobs) + math.exp(
                    -late_s / self._horizon_s)
                yield math.inf, j
            if guard is not None:
                guard.ended(j, sim.now_s)
            intensity[j] = usual
            if sim.now_s > self._warm_up_s:
                self.times_s[j].append(sim.now_s - began_s)
            began_s = sim.now_s
