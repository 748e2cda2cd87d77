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

"""Classes of hosts that are alike."""

import numpy as np

from virtco.solver.model import instance as instances


def alike(inst: instances.Instance, hose: np.ndarray) -> list[list[int]]:
    """Hosts of one subtree alike in everything; with pins they stay alone.

    :param hose: by what they differ beside capacity and candidates, shape
        (X, M).
    """
    pinned = np.isin(np.arange(inst.n_hosts), inst.fixed[inst.fixed >= 0])
    apart = np.where(pinned, np.arange(inst.n_hosts) + 1.0, 0.0)
    rows = np.column_stack([inst.free, hose.T, inst.allowed.T, apart,
                            inst.port_out[1:].T])
    _, which = np.unique(rows, axis=0, return_inverse=True)
    which = which.reshape(-1)
    return [np.flatnonzero(which == c).tolist()
            for c in range(which.max() + 1)]
