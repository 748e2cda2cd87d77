# SPDX-License-Identifier: Apache-2.0

"""Who goes first."""

import numpy as np

from virtco.scheduling import policies


def levels(policy: policies.Policy, classes: np.ndarray,
           demoted: np.ndarray) -> np.ndarray:
    """Coarse rank: operators' class first, offenders last within it.

    :param classes: priority class of each coflow, lower goes first.
    :param demoted: 0 for the honest, up to 2 for those that policing put
        behind them.
    """
    level = demoted.astype(np.int64)
    if policy.classes:
        level += 3 * np.unique(classes, return_inverse=True)[1].reshape(-1)
    return level
