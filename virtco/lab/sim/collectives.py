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

"""Collective operations and task mapping by a matrix of rates (RPCA II-C).

Times follow the alpha-beta model: latency + bytes / rate for each message.
"""

import numpy as np
from numpy import typing as npt

from virtco import units

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: (sender, receiver) in the order in which a node sends.
Edges = list[tuple[int, int]]


def fastest_node_first(rates_bps: Matrix, root: int) -> Edges:
    """FNF: each machine that has the data sends to the machine it reaches
    best, one per iteration (Banikazemi et al., RPCA section II-C).
    """
    score = np.array(rates_bps, dtype=np.float64)
    np.fill_diagonal(score, -np.inf)
    score[:, root] = -np.inf
    has, edges, left = [root], [], len(score) - 1
    while left:
        for sender in list(has):
            if not left:
                break
            receiver = int(np.argmax(score[sender]))
            score[:, receiver] = -np.inf
            edges.append((sender, receiver))
            has.append(receiver)
            left -= 1
    return edges


def binomial(n: int, root: int) -> Edges:
    """MPICH's binomial tree by rank; the largest subtree is served first."""
    edges: Edges = []
    span = 1
    while span < n:
        span *= 2
    while span > 1:
        span //= 2
        edges += [((rank + root) % n, (rank + span + root) % n)
                  for rank in range(0, n, 2 * span) if rank + span < n]
    return edges


def broadcast_s(edges: Edges, size_bytes: float, rates_bps: Matrix,
                latency_s: Matrix) -> float:
    """Until every machine has the message; a machine sends one at a time."""
    return _finish_s(edges, dict.fromkeys(range(len(rates_bps)), size_bytes),
                     rates_bps, latency_s)


def scatter_s(edges: Edges, size_bytes: float, rates_bps: Matrix,
              latency_s: Matrix) -> float:
    """Until every machine has its part; an edge carries a whole subtree's.

    :param size_bytes: of all parts together.
    """
    part = size_bytes / len(rates_bps)
    carried = dict.fromkeys(range(len(rates_bps)), part)
    for sender, receiver in reversed(edges):
        carried[sender] += carried[receiver]
    return _finish_s(edges, carried, rates_bps, latency_s)


def _finish_s(edges: Edges, carried_bytes: dict[int, float],
              rates_bps: Matrix, latency_s: Matrix) -> float:
    free_s: dict[int, float] = {}
    latest_s = 0.0
    for sender, receiver in edges:
        start_s = free_s.get(sender, 0.0)
        end_s = (start_s + latency_s[sender, receiver]
                 + units.BITS_PER_BYTE * carried_bytes[receiver]
                 / rates_bps[sender, receiver])
        free_s[sender] = free_s[receiver] = end_s
        latest_s = max(latest_s, end_s)
    return latest_s


def greedy_mapping(volumes: Matrix, rates_bps: Matrix) -> Indices:
    """Machine of each task: the heaviest task to the best connected machine,
    then heaviest neighbours to the best neighbours (RPCA section II-C).
    """
    n = len(volumes)
    volume, rate = volumes + volumes.T, rates_bps + rates_bps.T
    machine = np.full(n, -1, dtype=np.int64)
    task = int(np.argmax(volume.sum(axis=0)))
    place = int(np.argmax(rate.sum(axis=0)))
    open_task, open_place = np.ones(n, bool), np.ones(n, bool)
    to_tasks, to_places = np.zeros(n), np.zeros(n)
    for _ in range(n):
        machine[task] = place
        open_task[task] = open_place[place] = False
        # Weight of each open vertex towards those that are mapped.
        to_tasks += volume[task]
        to_places += rate[place]
        task = int(np.argmax(np.where(open_task, to_tasks, -np.inf)))
        place = int(np.argmax(np.where(open_place, to_places, -np.inf)))
    return machine


def mapped_s(volumes: Matrix, machine: Indices, rates_bps: Matrix,
             latency_s: Matrix) -> float:
    """Until the task that takes longest has sent all of its messages."""
    rates = rates_bps[np.ix_(machine, machine)]
    with np.errstate(divide='ignore', invalid='ignore'):
        each_s = np.where(volumes > 0, latency_s[np.ix_(machine, machine)]
                          + units.BITS_PER_BYTE * volumes / rates, 0.0)
    return float(each_s.sum(axis=1).max())
