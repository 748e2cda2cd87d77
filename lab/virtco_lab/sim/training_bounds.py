# SPDX-License-Identifier: Apache-2.0

"""Bounds of any schedule on the computing and the times of periodic jobs.

They follow from the inequalities of
:mod:`virtco.scheduling.periodic.job_bounds`.
"""

from collections.abc import Sequence
import math

import numpy as np
import scipy

from virtco.scheduling.periodic import job_bounds as bounds
from virtco.scheduling.periodic import jobs as jobs_model

#: Rounds in which violated windows are added to a linear program; it is a
#: bound after each of them.
ROUNDS = 8
VIOLATED = 1e-7


def most_utilisation(jobs: Sequence[jobs_model.PeriodicJob],
                     slowdown: float = math.inf) -> float:
    """Bound the share of workers that any schedule keeps computing, 0 to 1.

    The linear program over x above, solved by HiGHS.

    :param slowdown: iteration time over that alone, that no job exceeds; at
        least :func:`bounds.least_worst_slowdown`.
    """
    if not jobs:
        return 0.0
    gain = np.array([job.workers * job.compute_s for job in jobs])
    most = 1 / np.array([job.period_s for job in jobs])
    rows = bounds.limits(jobs, most)
    for _ in range(ROUNDS):
        result = scipy.optimize.linprog(
            -gain, A_ub=rows, b_ub=np.ones(len(rows)),
            bounds=np.column_stack([most / slowdown, most]), method='highs')
        violated = [row for row in bounds.limits(jobs, result.x)
                    if row @ result.x > 1 + VIOLATED]
        if not violated:
            break
        rows = np.vstack([rows, *violated])
    return float(-result.fun / sum(job.workers for job in jobs))


def least_mean_iteration_s(jobs: Sequence[jobs_model.PeriodicJob]) -> float:
    """Bound the mean iteration time of jobs from below for any schedule, in s.

    The least of mean 1 / x_j is convex. Any prices of the limits prove a
    bound; those that prove most are searched for by quasi-Newton steps.
    """
    if not jobs:
        return 0.0
    period_s = np.array([job.period_s for job in jobs])
    rows = bounds.limits(jobs, 1 / period_s)
    best_s = float(period_s.mean())
    if not len(rows):
        return best_s

    def dual(price: np.ndarray) -> tuple[float, np.ndarray]:
        charge = price @ rows
        # 1/x + charge x is least at x = 1/sqrt(charge), if that is allowed.
        each_s = np.maximum(np.sqrt(charge), period_s)
        value = float((each_s + charge / each_s).sum() - price.sum())
        return -value, 1 - (rows / each_s).sum(axis=1)

    found = scipy.optimize.minimize(
        dual, rows.sum(axis=1), jac=True, method='L-BFGS-B',
        bounds=[(0, None)] * len(rows))
    return max(best_s, -float(found.fun) / len(jobs))
