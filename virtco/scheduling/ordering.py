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
