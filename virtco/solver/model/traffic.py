# SPDX-License-Identifier: Apache-2.0

"""Bytes between the nodes of an instance."""

import numpy as np

from virtco.solver.model import instance as instances


def one_way(inst: instances.Instance) -> np.ndarray:
    """Bytes from node to node, all coflows; shape (n, n)."""
    total = np.zeros((inst.n_nodes, inst.n_nodes))
    for src, dst, size_bytes in inst.arcs:
        np.add.at(total, (src, dst), size_bytes)
    return total


def both_ways(inst: instances.Instance) -> np.ndarray:
    """Bytes between nodes, all coflows, both ways; shape (n, n)."""
    sent = one_way(inst)
    total: np.ndarray = sent + sent.T
    return total
