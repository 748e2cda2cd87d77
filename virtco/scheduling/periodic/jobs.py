# SPDX-License-Identifier: Apache-2.0

"""Jobs that compute and send in turn."""

from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import scipy

Link = Hashable


@dataclasses.dataclass(frozen=True, slots=True)
class PeriodicJob:
    """Training job; it computes or sends for some time.

    :ivar compute_s: time of an iteration in which nothing is sent.
    :ivar busy_s: time for which an iteration's bytes keep each link busy.
    :ivar workers: GPUs, or whatever waits while the job sends.
    """

    job_id: str
    compute_s: float
    busy_s: Mapping[Link, float]
    workers: int = 1

    @property
    def send_s(self) -> float:
        """Seconds it sends when alone: the slowest link decides."""
        return max(self.busy_s.values(), default=0.0)

    @property
    def period_s(self) -> float:
        """Seconds of an iteration when alone."""
        return self.compute_s + self.send_s

    @property
    def intensity(self) -> float:
        """Computation per iteration over time on the slowest link (Crux)."""
        send_s = self.send_s
        return (self.compute_s * self.workers / send_s if send_s > 0
                else math.inf)


def by_intensity(jobs: Iterable[PeriodicJob]) -> list[PeriodicJob]:
    """Sort by Crux: intensity, then the shorter time of sending."""
    return sorted(jobs, key=lambda job: (-job.intensity, job.send_s,
                                         job.job_id))


def meeting(jobs: Sequence[PeriodicJob]) -> list[list[PeriodicJob]]:
    """Group jobs that meet at links, directly or through others."""
    if not jobs:
        return []
    uses = scipy.sparse.csr_array(
        (busy_matrix(jobs) > 0).astype(np.int64))
    found: dict[int, list[PeriodicJob]] = {}
    for job, number in zip(jobs, scipy.sparse.csgraph.connected_components(
            uses @ uses.T, directed=False)[1].tolist(), strict=True):
        found.setdefault(number, []).append(job)
    return [group for group in found.values() if len(group) > 1]


def busy_matrix(jobs: Sequence[PeriodicJob]) -> np.ndarray:
    """Compute seconds by job and shared link, shape (J, L).

    Links are in order of appearance, without those that all jobs together
    cannot fill.
    """
    links: dict[Link, dict[int, float]] = {}
    for j, job in enumerate(jobs):
        for link, busy_s in job.busy_s.items():
            links.setdefault(link, {})[j] = busy_s
    chosen = [users for users in links.values() if _can_clash(jobs, users)]
    found = np.zeros((len(jobs), len(chosen)))
    for column, users in enumerate(chosen):
        found[list(users), column] = list(users.values())
    return found


def _can_clash(jobs: Sequence[PeriodicJob], users: Mapping[int, float]
               ) -> bool:
    """Tell whether the jobs exceed the link when all send at once."""
    return sum(busy_s / jobs[j].send_s
               for j, busy_s in users.items()) > 1 + 1e-9
