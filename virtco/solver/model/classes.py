# SPDX-License-Identifier: Apache-2.0

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
