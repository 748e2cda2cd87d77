# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What no schedule of periodic jobs can beat.

In the long run job j makes x_j iterations per second. It cannot make more
than alone, x_j <= 1 / P_j, and no link is busy for more than all of the time:
sum_j b_je x_j <= 1. Everything here follows from these two.
"""

from collections.abc import Sequence
import math

import numpy as np
import scipy

from virtco.scheduling.periodic import jobs as jobs_model


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
    busy_s = jobs_model.busy_matrix(jobs, shared_only=True)
    result = scipy.optimize.linprog(
        -gain, A_ub=busy_s.T, b_ub=np.ones(busy_s.shape[1]),
        bounds=[(1 / job.period_s / slowdown, 1 / job.period_s)
                for job in jobs], method='highs')
    return float(-result.fun / sum(job.workers for job in jobs))


def least_mean_iteration_s(jobs: Sequence[jobs_model.PeriodicJob]) -> float:
    """No schedule has a smaller mean, over jobs, of their iteration times.

    The least of mean 1 / x_j is convex. Any prices of the links prove a
    bound; those that prove most are searched for by quasi-Newton steps.
    """
    if not jobs:
        return 0.0
    period_s = np.array([job.period_s for job in jobs])
    busy_s = jobs_model.busy_matrix(jobs, shared_only=True)
    best_s = float(period_s.mean())
    if not busy_s.shape[1]:
        return best_s

    def dual(price: np.ndarray) -> tuple[float, np.ndarray]:
        charge = busy_s @ price
        # 1/x + charge x is least at x = 1/sqrt(charge), if that is allowed.
        each_s = np.maximum(np.sqrt(charge), period_s)
        value = float((each_s + charge / each_s).sum() - price.sum())
        return -value, 1 - (busy_s / each_s[:, None]).sum(axis=0)

    found = scipy.optimize.minimize(
        dual, busy_s.sum(axis=0), jac=True, method='L-BFGS-B',
        bounds=[(0, None)] * busy_s.shape[1])
    return max(best_s, -float(found.fun) / len(jobs))


def least_worst_slowdown(jobs: Sequence[jobs_model.PeriodicJob]) -> float:
    """The slowest job, iteration time over that alone, is never faster."""
    if not jobs:
        return 1.0
    period_s = np.array([job.period_s for job in jobs])
    busy_s = jobs_model.busy_matrix(jobs, shared_only=True)
    return float(max(1.0, (busy_s / period_s[:, None]).sum(axis=0).max(
        initial=0.0)))
