# SPDX-License-Identifier: Apache-2.0

"""Time-shifts: jobs that share links send in turn (after CASSINI).

CASSINI rolls a job's demand around a circle; jobs of one link are rotated
until their sum exceeds the link least. The perimeter is a common multiple of
the periods. Here it is a *round*: a time in which job j sends n_j times, once
per round / n_j, which is its gate's period. A round need not be an exact
multiple: a job may be held back a little in each iteration, where that spares
it more. A job has one shift for all of its links, so that the shifts of jobs
that meet at several links agree; they are found along the graph of jobs that
share links, and improved one job at a time.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import math

import numpy as np

from virtco.scheduling.periodic import jobs as jobs_model
from virtco.scheduling.periodic import rehearsal

#: Parts of a circle that demand is summed up in (CASSINI: 5 degrees each).
SLOTS = 120
#: Shifts that are tried besides those right behind or before another job.
STEPS = 24
#: Passes over all jobs that improve their shifts.
SWEEPS = 4
#: A job sends this often in a round at most.
MOST_SENDS = 8
#: Rounds that are looked at, of those that hold jobs back least …
LOOKED_AT = 6
#: … and rehearsed, of those that look best.
REHEARSED = 4
#: A rehearsal takes this many of the longest periods, the first half of them
#: to warm up.
REHEARSED_PERIODS = 12
#: More jobs than these have no round in common; those of one link may.
MOST_TOGETHER = 6
#: Places by which a job is moved in the order.
MOVES = (-4, -2, -1, 1, 2, 4)
#: Beginnings that a plan is rehearsed from, as parts of the jobs' periods: all
#: at once, and scattered by multiples of the golden ratio.
BEGINNINGS = (0.0, 0.6180339887498949)
#: A gain that is smaller is none.
GAIN = 1e-6
#: Of all computing; less may be lost again to what is not rehearsed.
LEAST_GAIN = 0.004


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """When jobs send.

    :ivar order: ids, first the one that is served first.
    :ivar gates: of the jobs that are held back, by id.
    :ivar score: CASSINI's compatibility: 1 minus the mean excess of demand
        over a link, as a share of it, averaged over the shared links.
    """

    order: tuple[str, ...]
    gates: Mapping[str, rehearsal.Gate]
    score: float = 1.0


def plan(jobs: Sequence[jobs_model.PeriodicJob], fair: bool = False) -> Plan:
    """An order and gates for those that gain by them.

    It begins with Crux's order and no gates, and takes what keeps more
    workers computing in a rehearsal. Deterministic; ids must be unique.

    :param fair: who sends is not ordered in time; jobs share links equally
        then, and gates are all that keeps them apart.
    """
    order: dict[str, None] = {}
    gates: dict[str, rehearsal.Gate] = {}
    excess, n_links = 0.0, 0
    for group in components(jobs):
        found = _Search(jobs_model.by_intensity(group), fair)
        found.run()
        order.update(dict.fromkeys(found.names()))
        gates.update(found.gates)
        width = jobs_model.busy_matrix(group, shared_only=True).shape[1]
        excess += (1 - found.score) * width
        n_links += width
    order.update(dict.fromkeys(
        job.job_id for job in jobs_model.by_intensity(jobs)))
    return Plan(tuple(order), gates,
                1 - excess / n_links if n_links else 1.0)


def components(jobs: Sequence[jobs_model.PeriodicJob]
               ) -> Iterator[list[jobs_model.PeriodicJob]]:
    """Jobs that meet at links, directly or through others; two or more.

    Each is in the order of a traversal of the graph of jobs and links that
    begins with the most intense job.
    """
    meets = jobs_model.busy_matrix(jobs, shared_only=True) > 0
    place = {job.job_id: j for j, job in enumerate(jobs)}
    left = dict.fromkeys(place[job.job_id]
                         for job in jobs_model.by_intensity(jobs))
    while left:
        queue = [next(iter(left))]
        del left[queue[0]]
        for j in queue:
            near = [k for k in left if (meets[j] & meets[k]).any()]
            queue += near
            for k in near:
                del left[k]
        if len(queue) > 1:
            yield [jobs[j] for j in queue]


def compatibility(jobs: Sequence[jobs_model.PeriodicJob]) -> float:
    """How well jobs can share their links, at the best of their shifts.

    1: none ever waits. 0: on average twice a link's rate is asked for. Jobs
    whose rounds only fit when they are held back count as held back.
    """
    worst = 1.0
    for group in components(jobs):
        ordered = jobs_model.by_intensity(group)
        best = -math.inf
        for counts, round_s in _rounds(ordered):
            stretch = max(round_s / n / job.period_s
                          for n, job in zip(counts, ordered))
            circle = _Circle(ordered, counts, round_s)
            circle.shift()
            best = max(best, circle.score() - (stretch - 1))
        worst = min(worst, best)
    return max(0.0, worst)


class _Search:
    """The best order and gates found for jobs that meet.

    :ivar gates: by id.
    :ivar score: compatibility of the best shifts of all, or of the links'.
    """

    def __init__(self, ordered: list[jobs_model.PeriodicJob], fair: bool):
        self._jobs, self._fair = ordered, fair
        self._order = list(range(len(ordered)))
        self._rehearsal = rehearsal.Rehearsal(ordered)
        self._horizon_s = REHEARSED_PERIODS * max(
            job.period_s for job in ordered)
        self.gates: dict[str, rehearsal.Gate] = {}
        self.score = 1.0
        # Without an order a common beginning is the worst: jobs that share
        # links equally keep together then.
        self._beginnings = BEGINNINGS[:1] if fair else BEGINNINGS
        self._best = [self._judged(self._order, self.gates, step)
                      for step in self._beginnings]

    def run(self) -> None:
        scores = []
        for group in self._groups():
            circles = _circles(group)
            scores.append(circles[0].score())
            for circle in circles[:REHEARSED]:
                self._try(self._order, {**self.gates, **circle.gates()})
        self.score = min(scores, default=1.0)
        for place in range(0 if self._fair else len(self._order)):
            for move in MOVES:
                if 0 <= place + move < len(self._order):
                    order = list(self._order)
                    order.insert(place + move, order.pop(place))
                    self._try(order, self.gates)

    def names(self) -> list[str]:
        """Ids in order."""
        return [self._jobs[j].job_id for j in self._order]

    def _groups(self) -> Iterator[list[jobs_model.PeriodicJob]]:
        """Jobs that may share a round: all of a few, else those of a link."""
        if len(self._jobs) <= MOST_TOGETHER:
            yield self._jobs
            return
        busy_s = jobs_model.busy_matrix(self._jobs, shared_only=True)
        per_s = busy_s / np.array([job.period_s for job in self._jobs])[:,
                                                                        None]
        seen = set()
        for link in np.argsort(-per_s.sum(axis=0), kind='stable').tolist():
            users = np.flatnonzero(busy_s[:, link] > 0)
            users = users[np.argsort(-per_s[users, link], kind='stable')]
            group = tuple(sorted(users[:MOST_TOGETHER].tolist()))
            if group not in seen:
                seen.add(group)
                yield [self._jobs[j] for j in group]

    def _try(self, order: list[int], gates: dict[str, rehearsal.Gate]
             ) -> None:
        """Take what gains, and loses from no beginning."""
        reached: list[float] = []
        for step, best in zip(self._beginnings, self._best):
            reached.append(self._judged(order, gates, step))
            if reached[-1] < best:
                return
        if sum(reached) > sum(self._best) + LEAST_GAIN * len(reached):
            self._best, self._order, self.gates = reached, order, gates

    def _judged(self, order: list[int], gates: Mapping[str, rehearsal.Gate],
                step: float) -> float:
        """Share of workers that compute, 0 to 1."""
        begins_s = [step * j % 1 * job.period_s
                    for j, job in enumerate(self._jobs)]
        return jobs_model.utilisation(self._jobs, self._rehearsal.run(
            gates, self._horizon_s, self._horizon_s / 2, order, self._fair,
            begins_s).tolist())


def _circles(group: list[jobs_model.PeriodicJob]) -> list['_Circle']:
    """Rounds of some jobs with their shifts, what seems best first."""
    found = sorted((_Circle(group, counts, round_s)
                    for counts, round_s in _rounds(group)),
                   key=_Circle.held)[:LOOKED_AT]
    for circle in found:
        circle.shift()
    return sorted(found, key=_Circle.lost)


def _rounds(jobs: Sequence[jobs_model.PeriodicJob]
            ) -> Iterator[tuple[tuple[int, ...], float]]:
    """How often each job sends in a round, and how long that takes.

    A round is as long as the slowest of its jobs needs, and no link is asked
    for more than there is.
    """
    longest_s = max(job.period_s for job in jobs)
    busy_s = jobs_model.busy_matrix(jobs, shared_only=True)
    seen = set()
    lengths_s = {k * job.period_s for job in jobs
                 for k in range(1, MOST_SENDS + 1)}
    for length_s, more in itertools.product(
            sorted(lengths_s), (0.05, 0.0)):
        if not longest_s * (1 - 1e-9) <= length_s <= 3 * longest_s:
            continue
        counts = tuple(
            max(1, min(MOST_SENDS, int(length_s / job.period_s + more + 1e-9)))
            for job in jobs)
        if counts in seen:
            continue
        seen.add(counts)
        yield counts, max(
            max(n * job.period_s for n, job in zip(counts, jobs)),
            float((np.array(counts) @ busy_s).max(initial=0.0)))


class _Circle:
    """Demand of the jobs of one component around a round."""

    def __init__(self, jobs: Sequence[jobs_model.PeriodicJob],
                 counts: Sequence[int], round_s: float):
        self._jobs, self._counts, self._round_s = jobs, counts, round_s
        self._busy_s = jobs_model.busy_matrix(jobs, shared_only=True)
        self._links = [np.flatnonzero(row > 0) for row in self._busy_s]
        self._share = [
            row[links, None] / job.send_s
            for row, links, job in zip(self._busy_s, self._links, jobs)]
        self._offset_s = [0.0] * len(jobs)
        self._total = np.zeros((self._busy_s.shape[1], SLOTS))

    def shift(self) -> None:
        """Place the jobs one after another, then improve one at a time."""
        for j in range(len(self._jobs)):
            self._place(j, range(j))
        for _ in range(SWEEPS):
            moved = False
            for j in range(len(self._jobs)):
                others = [k for k in range(len(self._jobs)) if k != j]
                moved |= self._replace(j, others)
            if not moved:
                break

    def gates(self) -> dict[str, rehearsal.Gate]:
        return {job.job_id: rehearsal.Gate(self._round_s / n, offset_s)
                for job, n, offset_s in zip(self._jobs, self._counts,
                                            self._offset_s)}

    def score(self) -> float:
        return 1 - float(np.maximum(self._total - 1, 0).mean())

    def held(self) -> float:
        """Computing that is lost to the gates, as a share of all workers."""
        workers = sum(job.workers for job in self._jobs)
        return sum(job.workers * job.compute_s * (
            1 / job.period_s - n / self._round_s)
            for n, job in zip(self._counts, self._jobs)) / workers

    def lost(self) -> float:
        """About how much is lost in all, where jobs still meet as well."""
        excess = np.maximum(self._total - 1, 0).mean(axis=1).max(initial=0.0)
        return self.held() + float(excess)

    def _place(self, j: int, others: Sequence[int]) -> None:
        links = self._links[j]
        offsets_s = self._offsets_s(j, others)
        demand = self._share[j][None] * self._covered(j, offsets_s)[:, None]
        excess = np.maximum(self._total[links][None] + demand - 1, 0).sum(
            axis=(1, 2))
        best = int(np.argmin(np.round(excess, 9)))
        self._offset_s[j] = float(offsets_s[best])
        self._total[links] += demand[best]

    def _replace(self, j: int, others: Sequence[int]) -> bool:
        links = self._links[j]
        before = np.maximum(self._total[links] - 1, 0).sum()
        if before <= GAIN:
            return False
        kept, total = self._offset_s[j], self._total.copy()
        self._total[links] -= self._share[j] * self._covered(
            j, np.array([kept]))[0]
        self._place(j, others)
        if np.maximum(self._total[links] - 1, 0).sum() < before - GAIN:
            return True
        self._offset_s[j], self._total = kept, total
        return False

    def _offsets_s(self, j: int, others: Sequence[int]) -> np.ndarray:
        """Shifts to try, in seconds, the least one first among equals."""
        period_s = self._round_s / self._counts[j]
        found = [np.arange(STEPS) * period_s / STEPS]
        for k in others:
            turns_s = (self._offset_s[k] + np.arange(self._counts[k])
                       * self._round_s / self._counts[k])
            found += [turns_s + self._jobs[k].send_s,
                      turns_s - self._jobs[j].send_s]
        return np.unique(np.concatenate(found) % period_s)

    def _covered(self, j: int, offsets_s: np.ndarray) -> np.ndarray:
        """Share of each slot in which the job sends, shape (n, SLOTS)."""
        slot_s = self._round_s / SLOTS
        period_s = self._round_s / self._counts[j]
        send_s = min(self._jobs[j].send_s, period_s)
        edges_s = np.arange(SLOTS + 1) * slot_s - offsets_s[:, None]
        turns = np.floor(edges_s / period_s)
        sent_s = turns * send_s + np.minimum(edges_s - turns * period_s,
                                             send_s)
        covered: np.ndarray = np.diff(sent_s, axis=1) / slot_s
        return covered
