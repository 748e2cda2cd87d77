# SPDX-License-Identifier: Apache-2.0

"""What no schedule of periodic jobs can beat.

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
import dataclasses
import math

import numpy as np
import scipy

from virtco.scheduling.periodic import jobs as jobs_model

#: Rounds in which violated windows are added to a linear program; it is a
#: bound after each of them.
ROUNDS = 8
VIOLATED = 1e-7


def most_utilisation(jobs: Sequence[jobs_model.PeriodicJob],
                     slowdown: float = math.inf) -> float:
    """No schedule keeps a larger share of the workers computing, 0 to 1.

    The linear program over x above, solved by HiGHS.

    :param slowdown: iteration time over that alone, that no job exceeds; at
        least :func:`least_worst_slowdown`.
    """
    if not jobs:
        return 0.0
    gain = np.array([job.workers * job.compute_s for job in jobs])
    most = 1 / np.array([job.period_s for job in jobs])
    limits = _Limits.of(jobs)
    rows = limits.rows(most)
    for _ in range(ROUNDS):
        result = scipy.optimize.linprog(
            -gain, A_ub=rows, b_ub=np.ones(len(rows)),
            bounds=np.column_stack([most / slowdown, most]), method='highs')
        violated = [row for row in limits.rows(result.x)
                    if row @ result.x > 1 + VIOLATED]
        if not violated:
            break
        rows = np.vstack([rows, *violated])
    return float(-result.fun / sum(job.workers for job in jobs))


def least_mean_iteration_s(jobs: Sequence[jobs_model.PeriodicJob]) -> float:
    """No schedule has a smaller mean, over jobs, of their iteration times.

    The least of mean 1 / x_j is convex. Any prices of the limits prove a
    bound; those that prove most are searched for by quasi-Newton steps.
    """
    if not jobs:
        return 0.0
    period_s = np.array([job.period_s for job in jobs])
    rows = _Limits.of(jobs).rows(1 / period_s)
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


def least_worst_slowdown(jobs: Sequence[jobs_model.PeriodicJob]) -> float:
    """The slowest job, iteration time over that alone, is never faster."""
    if not jobs:
        return 1.0
    most = 1 / np.array([job.period_s for job in jobs])
    return float(max(1.0, (_Limits.of(jobs).rows(most) @ most).max(
        initial=0.0)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Link:
    """Jobs that meet at a link.

    :ivar users: their places, shape (n,).
    :ivar busy_s: of an iteration of each, shape (n,).
    :ivar compute_s: shape (n,).
    :ivar most_s: that k sends while i computes, by i and k, shape (n, n).
    """

    users: np.ndarray
    busy_s: np.ndarray
    compute_s: np.ndarray
    most_s: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class _Limits:
    """Rows of coefficients, whose product with x is 1 at most."""

    n_jobs: int
    links: tuple[_Link, ...]

    @classmethod
    def of(cls, jobs: Sequence[jobs_model.PeriodicJob]) -> '_Limits':
        compute_s = np.array([job.compute_s for job in jobs])
        period_s = np.array([job.period_s for job in jobs])
        links = []
        for column in jobs_model.busy_matrix(jobs).T:
            users = np.flatnonzero(column > 0)
            busy_s, each_s = column[users], compute_s[users]
            links.append(_Link(users, busy_s, each_s, _most_sent_s(
                busy_s, each_s, period_s[users], each_s[:, None])))
        return cls(len(jobs), tuple(links))

    def rows(self, x: np.ndarray) -> np.ndarray:
        """Links, and of the windows of each job those that x is nearest to.

        :param x: iterations per second, shape (J,).
        """
        found = []
        for link in self.links:
            row = np.zeros(self.n_jobs)
            row[link.users] = link.busy_s
            found.append(row)
            mine = x[link.users]
            others = mine * link.busy_s > mine[:, None] * link.most_s
            np.fill_diagonal(others, False)
            idle_s = link.compute_s - (link.most_s * others).sum(axis=1)
            for i in np.flatnonzero((idle_s > 0) & others.any(axis=1)):
                row = np.zeros(self.n_jobs)
                row[link.users[others[i]]] = link.busy_s[others[i]]
                row[link.users[i]] = link.busy_s[i] + idle_s[i]
                found.append(row)
        return np.array(found).reshape(-1, self.n_jobs)


def _most_sent_s(busy_s: np.ndarray, compute_s: np.ndarray,
                 period_s: np.ndarray, window_s: np.ndarray) -> np.ndarray:
    """For how long a job keeps a link busy within a time, at most.

    At best the end of one iteration's sending is within it, then a
    computation, and from then on one sending per period.
    """
    after_s = window_s - busy_s - compute_s
    turns = np.maximum(np.floor(after_s / period_s), 0.0)
    sent_s: np.ndarray = np.minimum(window_s, busy_s) + turns * busy_s + (
        np.clip(after_s - turns * period_s, 0.0, busy_s))
    return sent_s
