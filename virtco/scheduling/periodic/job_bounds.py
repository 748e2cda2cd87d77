# SPDX-License-Identifier: Apache-2.0

"""Bounds on any schedule of periodic jobs.

In the long run job j makes x_j iterations per second. It cannot make more
than alone, x_j <= 1 / P_j, and no link is busy for more than all of the time:
sum_j b_je x_j <= 1. While job i computes, a link is idle unless others send.
Within that time job k sends for S_k at most, since it has to compute, too. So
for each set K of others at link e (*windows*, our own bound)::

    sum_K b_ke x_k + (b_ie + c_i - sum_K S_ke(c_i)) x_i <= 1

With two jobs, one of 10 s computing and 10 s sending and one of 1 s each, it
says that the slowest is slowed down by 1.25, and the link alone says 1.
Everything here follows from these three.
"""

from collections.abc import Sequence

import numpy as np

from virtco.scheduling.periodic import jobs as jobs_model


def least_worst_slowdown(jobs: Sequence[jobs_model.PeriodicJob]) -> float:
    """Bound the slowest job's iteration time over that alone, from below."""
    if not jobs:
        return 1.0
    most = 1 / np.array([job.period_s for job in jobs])
    return float((limits(jobs, most) @ most).max(initial=1.0))


def limits(jobs: Sequence[jobs_model.PeriodicJob], x: np.ndarray
           ) -> np.ndarray:
    """Build rows of coefficients, whose product with x is 1 at most.

    They are those of links, and of each job's windows nearest to x.

    :param x: iterations per second, shape (J,).
    """
    compute_s = np.array([job.compute_s for job in jobs])
    period_s = np.array([job.period_s for job in jobs])
    found = []
    for link in jobs_model.busy_matrix(jobs).T:
        found.append(link)
        users = np.flatnonzero(link > 0)
        busy_s, each_s, mine = link[users], compute_s[users], x[users]
        # Seconds that job k sends at most while job i computes, most_s[i, k].
        most_s = _most_sent_s(busy_s, each_s, period_s[users],
                              each_s[:, None])
        others = mine * busy_s > mine[:, None] * most_s
        np.fill_diagonal(others, False)
        idle_s = each_s - (most_s * others).sum(axis=1)
        for i in np.flatnonzero((idle_s > 0) & others.any(axis=1)):
            row = np.zeros(len(jobs))
            row[users[others[i]]] = busy_s[others[i]]
            row[users[i]] = busy_s[i] + idle_s[i]
            found.append(row)
    return np.array(found).reshape(-1, len(jobs))


def _most_sent_s(busy_s: np.ndarray, compute_s: np.ndarray,
                 period_s: np.ndarray, window_s: np.ndarray) -> np.ndarray:
    """Bound the seconds a job keeps a link busy within a window.

    At best the end of one iteration's sending is within it, then a
    computation, and from then on one sending per period.
    """
    after_s = window_s - busy_s - compute_s
    turns = np.maximum(np.floor(after_s / period_s), 0.0)
    sent_s: np.ndarray = np.minimum(window_s, busy_s) + turns * busy_s + (
        np.clip(after_s - turns * period_s, 0.0, busy_s))
    return sent_s
