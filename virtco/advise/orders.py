# SPDX-License-Identifier: Apache-2.0

"""Orders of ranks for the trees that a library builds of them.

MPI and NCCL do not take a tree: they build one of the ranks. So the advice is,
for each shape that a library knows, the order of the members that makes it
fast, and which shape suits the size of the message.
"""

from collections.abc import Sequence
import dataclasses
import enum
import functools

import numpy as np

from virtco.advise import kernels
from virtco.advise import mappings
from virtco.advise import trees

Edges = trees.Edges
Tree = trees.Tree
Indices = trees.Indices

#: Messages that swaps of a shape pass on, at most; 10 ms.
WORK = 4_000_000
_CHAIN_WORK = mappings.WORK // 10


class Shape(enum.StrEnum):
    """Trees over ranks, of which 0 is the root, as Open MPI builds them.

    A broadcast's ``binomial`` tree has rank r hear from r without its highest
    bit, a reduce's has r send to r without its lowest one. In ``binary`` the
    m-th rank of a level hears from rank m (modulo its length) of the level
    above. A ``chain`` is what NCCL's ring is for a broadcast, too.
    """

    BINOMIAL = 'binomial'
    BINARY = 'binary'
    CHAIN = 'chain'


@functools.lru_cache(maxsize=64)
def edges_of(shape: Shape, n: int, is_reduce: bool = False) -> Indices:
    """List the (sender, receiver) ranks of a broadcast, shape (n - 1, 2).

    Those of a reduce are to be turned round.
    """
    ranks = range(1, n)
    if shape is Shape.CHAIN:
        found = [(rank - 1, rank) for rank in ranks]
    elif shape is Shape.BINARY:
        found = [(_above(rank), rank) for rank in ranks]
        if is_reduce:  # A parent hears from the lower rank first.
            found.sort(key=lambda edge: (_level(edge[1]), -edge[1]))
    elif is_reduce:
        found = trees.binomial(n, 0)
    else:
        found = [(rank - (1 << rank.bit_length() - 1), rank)
                 for rank in ranks]
    return np.array(found, np.int64).reshape(-1, 2)


def _level(rank: int) -> int:
    return (rank + 1).bit_length() - 1


def _above(rank: int) -> int:
    """Return the parent of a rank in Open MPI's tree of fan-out 2."""
    level = _level(rank)
    n_above = 1 << level - 1
    return n_above - 1 + (rank - (2 * n_above - 1)) % n_above


def shaped(shape: Shape, order: Sequence[int], is_reduce: bool = False
           ) -> Edges:
    """Build the tree in which a member's rank is its place in ``order``."""
    members = np.asarray(order, np.int64)[edges_of(shape, len(order),
                                                   is_reduce)]
    return [(sender, receiver) for sender, receiver in members.tolist()]


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """Order of ranks for one shape of tree with its predicted time.

    :ivar order: members by the rank that they should have.
    :ivar n_segments: segments into which the message is best cut.
    """

    shape: Shape
    order: tuple[int, ...]
    predicted_s: float
    n_segments: int


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """Trees and orders of ranks for one message.

    :ivar trees: the fastest first; of equal ones FNF, then as listed.
    :ivar orders: the fastest first; the trees ``ranked …`` are theirs.
    """

    trees: tuple[Tree, ...]
    orders: tuple[Order, ...]
    bound_s: float

    @property
    def best(self) -> Tree:
        return self.trees[0]

    def tree(self, name: str) -> Tree:
        return next(tree for tree in self.trees if tree.name == name)


def advise(message: trees.Message, root: int, is_reduce: bool = False
           ) -> Advice:
    """Compute trees for a message from or to ``root``, and orders of ranks.

    :raises virtco.exception.Invalid: for a root that is no member.
    """
    trees.checked_root(root, len(message.cost_s))
    sent = message.turned() if is_reduce else message
    made = trees.candidates(sent, root)
    orders = sorted((_order(shape, sent, root, made, is_reduce)
                     for shape in Shape), key=lambda one: one.predicted_s)
    all_of = [_tree(name, edges, sent, is_reduce)
              for name, edges in made.items()]
    all_of += [Tree(f'ranked {one.shape}', _as_sent(
        shaped(one.shape, one.order, is_reduce), is_reduce),
        one.predicted_s, one.n_segments) for one in orders]
    return Advice(
        tuple(sorted(all_of, key=lambda tree: tree.predicted_s)),
        tuple(orders), trees.lower_bound_s(sent, root))


def _tree(name: str, edges: Edges, sent: trees.Message, is_reduce: bool
          ) -> Tree:
    n_segments, took_s = sent.best(edges)
    return Tree(name, _as_sent(edges, is_reduce), took_s, n_segments)


def _as_sent(edges: Edges, is_reduce: bool) -> Edges:
    return trees.turned(edges) if is_reduce else edges


def _order(shape: Shape, sent: trees.Message, root: int,
           made: dict[str, Edges], is_reduce: bool) -> Order:
    """Find an order: choose the best of several starts, then swap members."""
    n = len(sent.cost_s)
    begins = [[(root + i) % n for i in range(n)],
              *([root, *(receiver for _sender, receiver in made[name])]
                for name in ('fnf', 'earliest', 'stream'))]
    if shape is Shape.CHAIN:
        begins.append(_relieved(_nearest(sent.cost_s, root), sent))
    times = [sent.best(shaped(shape, order, is_reduce)) for order in begins]
    first = min(range(len(begins)), key=lambda i: times[i][1])
    order, n_segments = swapped(shape, begins[first], sent, times[first][0],
                                is_reduce), times[first][0]
    n_segments, took_s = min(
        (sent.best(shaped(shape, order, is_reduce)),
         (n_segments, sent.took_s(shaped(shape, order, is_reduce),
                                  n_segments))), key=lambda one: one[1])
    return Order(shape, tuple(order), took_s, n_segments)


def _nearest(cost_s: trees.Matrix, root: int) -> list[int]:
    """Order members so that each is followed by the one it reaches best."""
    order, left = [root], np.ones(len(cost_s), bool)
    left[root] = False
    while left.any():
        order.append(int(np.argmin(np.where(left, cost_s[order[-1]],
                                            np.inf))))
        if not left[order[-1]]:  # Nothing is reached at a finite cost.
            order[-1] = int(np.argmax(left))
        left[order[-1]] = False
    return order


def _relieved(order: list[int], sent: trees.Message) -> list[int]:
    """Reorder a chain to relieve its busiest port.

    A chain in segments takes about as long as its busiest port.
    """
    ranks = np.arange(len(order))
    volumes = (ranks[:, None] + 1 == ranks[None, :]).astype(float)
    with np.errstate(divide='ignore'):
        paths = mappings.Paths(8 / sent.cost_s, np.zeros_like(sent.cost_s),
                               sent.machines)
    found: list[int] = mappings.search(
        volumes, paths, np.array(order), 1, _CHAIN_WORK).tolist()
    return found


def swapped(shape: Shape, order: Sequence[int], sent: trees.Message,
            n_segments: int, is_reduce: bool, work: int = WORK
            ) -> list[int]:
    """Swap members of an order to make its tree faster; the root stays.

    Members on the way to the one that is served last change places with
    others, as long as that helps.

    :param work: messages that are passed on, at most.
    """
    found = np.array(order, np.int64)
    ranks = edges_of(shape, len(found), is_reduce)
    if len(ranks):
        parent = np.zeros(len(found), np.int64)
        parent[ranks[:, 1]] = ranks[:, 0]
        sender, receiver = np.ascontiguousarray(ranks.T)
        kernels.serve_sooner(
            found, sender, receiver, parent, sent.segment_s(n_segments),
            sent.machines, n_segments, np.zeros((2, len(ranks)), np.int64),
            np.zeros((2, len(ranks))), np.zeros((3, len(found))), work)
    return [int(member) for member in found]
