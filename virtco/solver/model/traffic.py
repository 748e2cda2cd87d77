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
