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


"""Broadcast and reduce trees on the alpha-beta model, and their times.

A message from one member to another takes ``cost_s[sender, receiver]``, its
latency and its bytes over the pair's rate. A machine sends one message at a
time and receives one at a time, and members of one machine share its port; a
message between two of them is free where its cost is 0.

A reduce along a tree takes as long as a broadcast along it with every message
turned round: its tree is that of the transposed costs, read backwards.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from numpy import typing as npt

from virtco import exception
from virtco import units

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Swaps are tried until so many edges were looked at; 30 ms.
_WORK = 60_000
_SAME = 1e-9

#: (sender, receiver) in the order in which each member sends.
Edges = list[tuple[int, int]]


def message_s(size_bytes: float, rates_bps: Matrix,
              latency_s: Matrix) -> Matrix:
    """Cost of a message between all pairs, shape (n, n); 0 to oneself."""
    with np.errstate(divide='ignore'):
        found: Matrix = (latency_s + units.BITS_PER_BYTE * size_bytes
                         / rates_bps)
    np.fill_diagonal(found, 0.0)
    return found


def fastest_node_first(cost_s: Matrix, root: int) -> Edges:
    """FNF: each member that has the data sends to the one that it reaches
    best, one per iteration (Banikazemi et al., RPCA section II-C).
    """
    cost = np.array(cost_s, dtype=np.float64)
    np.fill_diagonal(cost, np.inf)
    cost[:, root] = np.inf
    open_ = np.ones(len(cost), bool)
    open_[root] = False
    has, edges = [root], []
    while open_.any():
        for sender in list(has):
            if not open_.any():
                break
            receiver = int(np.argmin(cost[sender]))
            if not open_[receiver]:
                # Nothing that is left can be reached at a finite cost.
                receiver = int(np.argmax(open_))
            cost[:, receiver] = np.inf
            open_[receiver] = False
            edges.append((sender, receiver))
            has.append(receiver)
    return edges


def earliest_first(cost_s: Matrix, root: int,
                   machines: Sequence[int] | Indices | None = None) -> Edges:
    """The message that would end first, again and again.

    Unlike FNF it lets a member rest that reaches the others slowly, and sees
    the ports that members share.
    """
    n = len(cost_s)
    at = _machines(machines, n)
    has_s, n_machines = np.full(n, np.inf), int(at.max()) + 1
    out_s, in_s = np.zeros(n_machines), np.zeros(n_machines)
    has_s[root] = 0.0
    has, left = [root], [i for i in range(n) if i != root]
    edges: Edges = []
    while left:
        begin_s = np.maximum(np.maximum(has_s, out_s[at])[has][:, None],
                             in_s[at[left]][None, :])
        begin_s = np.where(at[has][:, None] == at[left][None, :],
                           has_s[has][:, None], begin_s)
        end_s = begin_s + cost_s[np.ix_(has, left)]
        first = int(np.argmin(end_s))
        sender, receiver = (has[first // len(left)],
                            left.pop(first % len(left)))
        has_s[receiver] = end_s.flat[first]
        if at[sender] != at[receiver]:
            out_s[at[sender]] = in_s[at[receiver]] = has_s[receiver]
        has.append(receiver)
        edges.append((sender, receiver))
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


def in_order(order: Sequence[int]) -> Edges:
    """Open MPI's binomial tree over ranks, of which ``order[0]`` is the root.

    Rank r hears from r without its highest bit. That is FNF's shape: with its
    members ranked as FNF adds them, MPI builds FNF's tree.
    """
    return [(order[rank - (1 << rank.bit_length() - 1)], order[rank])
            for rank in range(1, len(order))]


def swapped(order: Sequence[int], cost_s: Matrix,
            machines: Sequence[int] | Indices | None = None
            ) -> tuple[list[int], float]:
    """An order whose tree is faster, and its time; the root stays.

    Members on the way to the one that is served last change places with
    others, as long as that helps.
    """
    best, left = list(order), _WORK // max(1, len(order))
    best_s = broadcast_s(in_order(best), cost_s, machines)
    is_better = True
    while is_better:
        is_better = False
        rank = _last(best, cost_s, machines)
        while rank and not is_better:
            for other in range(1, len(best)):
                if left == 0:
                    return best, best_s
                left -= 1
                one = best.copy()
                one[rank], one[other] = best[other], best[rank]
                took_s = broadcast_s(in_order(one), cost_s, machines)
                if took_s < best_s * (1 - _SAME):
                    best, best_s, is_better = one, took_s, True
                    break
            rank -= 1 << rank.bit_length() - 1
    return best, best_s


def _last(order: Sequence[int], cost_s: Matrix,
          machines: Sequence[int] | Indices | None) -> int:
    """The rank that is served last."""
    edges = in_order(order)
    ends_s = [0.0, *_ends_s(edges, [float(cost_s[edge]) for edge in edges],
                            machines)]
    return int(np.argmax(ends_s))


def flat(n: int, root: int) -> Edges:
    """The root sends to everybody."""
    return [(root, (root + i) % n) for i in range(1, n)]


def chain(n: int, root: int) -> Edges:
    """Each sends to the next."""
    return [((root + i - 1) % n, (root + i) % n) for i in range(1, n)]


def added(edges: Edges, root: int) -> list[int]:
    """The members in the order in which they get the data."""
    return [root, *(receiver for _sender, receiver in edges)]


def finish_s(edges: Edges, costs_s: Sequence[float],
             machines: Sequence[int] | Indices | None = None) -> float:
    """Until every member has its message.

    :param costs_s: of each edge.
    :param machines: number of each member's machine; None = one each.
    """
    return max(_ends_s(edges, costs_s, machines), default=0.0)


def _ends_s(edges: Edges, costs_s: Sequence[float],
            machines: Sequence[int] | Indices | None) -> list[float]:
    """When each edge has delivered its message."""
    n = 1 + max((max(edge) for edge in edges), default=0)
    at = _machines(machines, n).tolist()
    has_s: dict[int, float] = {}
    out_s: dict[int, float] = {}
    in_s: dict[int, float] = {}
    ends_s = []
    for (sender, receiver), cost_s in zip(edges, costs_s, strict=True):
        begin_s = has_s.get(sender, 0.0)
        src, dst = at[sender], at[receiver]
        if src == dst:
            end_s = begin_s + cost_s
        else:
            end_s = max(begin_s, out_s.get(src, 0.0),
                        in_s.get(dst, 0.0)) + cost_s
            out_s[src] = in_s[dst] = end_s
        has_s[receiver] = end_s
        ends_s.append(end_s)
    return ends_s


def broadcast_s(edges: Edges, cost_s: Matrix,
                machines: Sequence[int] | Indices | None = None) -> float:
    """Of one message along a tree, whose edges are in a possible order."""
    return finish_s(edges, [float(cost_s[edge]) for edge in edges], machines)


def scatter_s(edges: Edges, size_bytes: float, rates_bps: Matrix,
              latency_s: Matrix) -> float:
    """Until every member has its part; an edge carries a whole subtree's.

    :param size_bytes: of all parts together.
    """
    part = size_bytes / len(rates_bps)
    carried = dict.fromkeys(range(len(rates_bps)), part)
    for sender, receiver in reversed(edges):
        carried[sender] += carried[receiver]
    return finish_s(edges, [
        latency_s[edge] + units.BITS_PER_BYTE * carried[edge[1]]
        / rates_bps[edge] for edge in edges])


def lower_bound_s(cost_s: Matrix, root: int,
                  machines: Sequence[int] | Indices | None = None) -> float:
    """No tree is faster.

    The data come to a member over the shortest path at best; and in the time
    of the cheapest message between machines the machines that have it double
    at best.
    """
    n = len(cost_s)
    at = _machines(machines, n)
    near_s = np.full(n, np.inf)
    near_s[root], left = 0.0, np.ones(n, bool)
    for _ in range(n):
        here = int(np.argmin(np.where(left, near_s, np.inf)))
        left[here] = False
        near_s = np.minimum(near_s, near_s[here] + cost_s[here])
    n_machines = len(set(at.tolist()))
    between = cost_s[at[:, None] != at[None, :]]
    doubling_s = (math.ceil(math.log2(n_machines)) * float(between.min())
                  if n_machines > 1 else 0.0)
    return max(float(near_s.max()), doubling_s)


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """:ivar edges: (sender, receiver); of a reduce in the order in which each
        member receives.
    """

    name: str
    edges: Edges
    predicted_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """:ivar trees: the fastest first; of equal ones FNF, then as listed.
    :ivar order: members by the rank that they should have: as FNF adds them
        or as they are, and then swapped; Open MPI's binomial tree from rank 0
        is the tree ``ranked`` and takes ``order_s``.
    """

    trees: tuple[Tree, ...]
    order: tuple[int, ...]
    order_s: float
    bound_s: float

    @property
    def best(self) -> Tree:
        return self.trees[0]

    def tree(self, name: str) -> Tree:
        return next(tree for tree in self.trees if tree.name == name)


def advise(cost_s: Matrix, root: int,
           machines: Sequence[int] | Indices | None = None,
           is_reduce: bool = False) -> Advice:
    """Every tree for one message from or to ``root``, and an order of ranks.

    :raises virtco.exception.Invalid: for a root that is no member.
    """
    n = len(cost_s)
    if not 0 <= root < n:
        raise exception.Invalid(field='root', value=root,
                                limit=f'a rank between 0 and {n - 1}')
    costs = np.ascontiguousarray(cost_s.T) if is_reduce else cost_s
    made = candidates(costs, root, machines)
    by_rank = [(root + i) % n for i in range(n)]
    orders = [added(made['fnf'], root), by_rank]
    times_s = [broadcast_s(in_order(order), costs, machines)
               for order in orders]
    order, order_s = swapped(orders[int(np.argmin(times_s))], costs, machines)
    trees = [Tree(name, turned(edges) if is_reduce else edges,
                  broadcast_s(edges, costs, machines))
             for name, edges in (made | {'ranked': in_order(order)}).items()]
    return Advice(tuple(sorted(trees, key=lambda tree: tree.predicted_s)),
                  tuple(order), order_s,
                  lower_bound_s(costs, root, machines))


def candidates(cost_s: Matrix, root: int,
               machines: Sequence[int] | Indices | None = None
               ) -> dict[str, Edges]:
    """The trees that need no search, by name."""
    n = len(cost_s)
    return {'fnf': fastest_node_first(cost_s, root),
            'earliest': earliest_first(cost_s, root, machines),
            'binomial': binomial(n, root), 'flat': flat(n, root),
            'chain': chain(n, root)}


def turned(edges: Edges) -> Edges:
    """A broadcast's tree for a reduce, and the other way round."""
    return [(receiver, sender) for sender, receiver in reversed(edges)]


def _machines(machines: Sequence[int] | Indices | None, n: int) -> Indices:
    return np.arange(n) if machines is None else np.asarray(machines,
                                                            np.int64)
