# SPDX-License-Identifier: Apache-2.0

"""Broadcast and reduce trees on the alpha-beta model, and their times.

A message from one member to another takes ``cost_s[sender, receiver]``, its
latency and its bytes over the pair's rate. A machine sends one message at a
time and receives one at a time, and members of one machine share its port; a
message between two of them is free where its cost is 0.

A large message may be cut into segments, each with its latency: a member
passes one on while it receives the next.

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
from virtco.advise import kernels

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: (sender, receiver) in the order in which each member sends.
Edges = list[tuple[int, int]]


def message_s(size_bytes: float, rates_bps: Matrix,
              latency_s: Matrix) -> Matrix:
    """Compute the cost of a message between all pairs, in s, shape (n, n).

    It is 0 from a member to itself.
    """
    with np.errstate(divide='ignore'):
        found: Matrix = (latency_s + units.BITS_PER_BYTE * size_bytes
                         / rates_bps)
    np.fill_diagonal(found, 0.0)
    return found


def fastest_node_first(cost_s: Matrix, root: int) -> Edges:
    """Build the FNF tree (Banikazemi et al., RPCA section II-C).

    In each iteration every member that has the data sends to the one that it
    reaches best.
    """
    cost = np.array(cost_s, dtype=np.float64)
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
                   machines: Sequence[int] | Indices | None = None,
                   streams: bool = False) -> Edges:
    """Grow a tree by the message that ends first, again and again.

    Unlike FNF it lets a member rest that reaches the others slowly, and sees
    the ports that members share.

    :param streams: a member passes on what it is still receiving, as with
        segments that are small enough; the busiest port is what counts then.
    """
    n = len(cost_s)
    at = _machines(machines, n)
    out_s, in_s = np.zeros((2, int(at.max()) + 1))
    has_s, key = np.full(n, np.inf), np.zeros(n)
    has_s[root] = 0.0
    member, parent, to = np.full((3, n), root)
    kernels.grow(np.ascontiguousarray(cost_s, np.float64), at, streams, has_s,
                 out_s, in_s, member, parent, key, to)
    return list(zip(parent[1:].tolist(), member[1:].tolist()))


def binomial(n: int, root: int) -> Edges:
    """Build MPICH's binomial tree by rank, the largest subtree served first.
    """
    spans = [1 << bit for bit in range(n.bit_length())]
    return [((rank + root) % n, (rank + span + root) % n)
            for span in reversed(spans)
            for rank in range(0, n, 2 * span) if rank + span < n]


def flat(n: int, root: int) -> Edges:
    """Build the tree in which the root sends to everybody."""
    return [(root, (root + i) % n) for i in range(1, n)]


def chain(n: int, root: int) -> Edges:
    """Build the tree in which each member sends to the next."""
    return [((root + i - 1) % n, (root + i) % n) for i in range(1, n)]


def finish_s(edges: Edges, costs_s: Sequence[float],
             machines: Sequence[int] | Indices | None = None) -> float:
    """Compute when every member has its message, in s.

    :param costs_s: time of each edge.
    :param machines: number of each member's machine; None = one each.
    """
    if not edges:
        return 0.0
    ends = np.array(edges, np.int64)
    at = _machines(machines, int(ends.max()) + 1)
    return float(delivered_s(ends, np.array(costs_s, np.float64), at).max())


def delivered_s(ends: Indices, costs_s: Matrix, machines: Indices,
                n_segments: int = 1) -> Matrix:
    """Compute when each edge has delivered all segments, shape (n_edges,).

    :param ends: edges in a possible order, shape (n_edges, 2).
    :param costs_s: time of a segment on each of them.
    """
    sender, receiver = np.ascontiguousarray(ends.T)
    found = np.zeros(len(ends))
    out_s, in_s = np.zeros((2, int(machines.max()) + 1))
    kernels.deliver(sender, receiver, costs_s, machines, n_segments,
                    np.zeros(len(machines)), out_s, in_s, found)
    return found


def broadcast_s(edges: Edges, cost_s: Matrix,
                machines: Sequence[int] | Indices | None = None) -> float:
    """Return the time of a broadcast of one message along a tree, in s.

    :param edges: in an order in which each sender has the message.
    :param cost_s: time of the message between all pairs, shape (n, n).
    :param machines: number of each member's machine; None: all differ.
    """
    return finish_s(edges, [float(cost_s[edge]) for edge in edges], machines)


def scatter_s(edges: Edges, size_bytes: float, rates_bps: Matrix,
              latency_s: Matrix) -> float:
    """Compute when every member has its part, in s.

    An edge carries the parts of a whole subtree.

    :param size_bytes: bytes of all parts together.
    """
    part = size_bytes / len(rates_bps)
    carried = dict.fromkeys(range(len(rates_bps)), part)
    for sender, receiver in reversed(edges):
        carried[sender] += carried[receiver]
    return finish_s(edges, [
        latency_s[edge] + units.BITS_PER_BYTE * carried[edge[1]]
        / rates_bps[edge] for edge in edges])


@dataclasses.dataclass(frozen=True)
class Message:
    """Times of a message between all pairs, whole and in segments.

    :ivar cost_s: time of the whole message, shape (n, n).
    :ivar machines: number of each member's machine, shape (n,).
    :ivar latency_s: part of ``cost_s`` that every segment takes, (n, n).
    :ivar most_segments: most segments into which it may be cut.
    """

    cost_s: Matrix
    machines: Indices
    latency_s: Matrix
    most_segments: int = 1

    def turned(self) -> 'Message':
        """Return the message with the directions of all pairs swapped."""
        return dataclasses.replace(
            self, cost_s=np.ascontiguousarray(self.cost_s.T),
            latency_s=np.ascontiguousarray(self.latency_s.T))

    def segment_s(self, n_segments: int) -> Matrix:
        """Return the time of one of ``n_segments`` segments, shape (n, n)."""
        found: Matrix = self.latency_s + (
            self.cost_s - self.latency_s) / n_segments
        return found

    def delivered_s(self, edges: Edges | Indices, n_segments: int) -> Matrix:
        """Return the time at which each edge has delivered the message."""
        ends = np.asarray(edges, np.int64).reshape(-1, 2)
        at = ends[:, 0], ends[:, 1]
        latency_s = self.latency_s[at]
        return delivered_s(
            ends, latency_s + (self.cost_s[at] - latency_s) / n_segments,
            self.machines, n_segments)

    def took_s(self, edges: Edges | Indices, n_segments: int = 1) -> float:
        """Return the time until every member has the message, in s."""
        return float(self.delivered_s(edges, n_segments).max(initial=0.0))

    def best(self, edges: Edges | Indices) -> tuple[int, float]:
        """Return the best number of segments, a power of two, and its time.
        """
        count, best_s = 1, self.took_s(edges)
        while 2 * count <= self.most_segments:
            took_s = self.took_s(edges, 2 * count)
            if took_s >= best_s:
                break
            count, best_s = 2 * count, took_s
        return count, best_s


def lower_bound_s(sent: Message, root: int) -> float:
    """Bound the time of any tree from below, with any number of segments.

    A member gets all segments over one edge, and on its way from the root each
    member's path has an edge as slow as on the path whose slowest edge is
    fastest. The last segment comes over the shortest path at best; and in the
    time of the cheapest segment between machines the machines that have it
    double at best.
    """
    n, at = len(sent.cost_s), sent.machines
    segment_s = sent.segment_s(sent.most_segments)
    near_s, slowest_s = np.full((2, n), np.inf)
    for found, cost_s, join in ((near_s, segment_s, np.add),
                                (slowest_s, sent.cost_s, np.maximum)):
        found[root], left = 0.0, np.ones(n, bool)
        for _ in range(n):
            here = int(np.argmin(np.where(left, found, np.inf)))
            left[here] = False
            np.minimum(found, join(found[here], cost_s[here]), out=found)
    n_machines = len(set(at.tolist()))
    between = segment_s[at[:, None] != at[None, :]]
    doubling_s = (math.ceil(math.log2(n_machines)) * float(between.min())
                  if n_machines > 1 else 0.0)
    return max(float(near_s.max()), float(slowest_s.max()), doubling_s)


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """Tree of one message with its predicted time.

    :ivar edges: (sender, receiver); of a reduce in the order in which each
        member receives.
    :ivar n_segments: segments into which the message is best cut.
    """

    name: str
    edges: Edges
    predicted_s: float
    n_segments: int = 1


def turned(edges: Edges) -> Edges:
    """Turn a broadcast's tree into a reduce's, and the other way round."""
    return [(receiver, sender) for sender, receiver in reversed(edges)]


def message(cost_s: Matrix, machines: Sequence[int] | Indices | None = None,
            latency_s: Matrix | None = None, most_segments: int = 1
            ) -> Message:
    """Build a :class:`Message`, by default with a machine for each member."""
    return Message(cost_s, _machines(machines, len(cost_s)),
                   np.zeros_like(cost_s) if latency_s is None else latency_s,
                   most_segments)


def candidates(sent: Message, root: int) -> dict[str, Edges]:
    """Build the trees that need no search, by name."""
    n, cost_s = len(sent.cost_s), sent.cost_s
    return {'fnf': fastest_node_first(cost_s, root),
            'earliest': earliest_first(cost_s, root, sent.machines),
            'stream': earliest_first(cost_s, root, sent.machines, True),
            'binomial': binomial(n, root), 'flat': flat(n, root),
            'chain': chain(n, root)}


def checked_root(root: int, n: int) -> int:
    """Check that the root is a member's rank; return it.

    :raises virtco.exception.Invalid: for a root that is no member.
    """
    if not 0 <= root < n:
        raise exception.Invalid(field='root', value=root,
                                limit=f'a rank between 0 and {n - 1}')
    return root


def _machines(machines: Sequence[int] | Indices | None, n: int) -> Indices:
    return np.arange(n) if machines is None else np.asarray(machines,
                                                            np.int64)
