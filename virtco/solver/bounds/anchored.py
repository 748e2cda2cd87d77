# SPDX-License-Identifier: Apache-2.0

"""Kernel of the anchored-set bound: the cheapest set around one VM.

Whatever the placement, VM j is on some host together with some set G of
nodes that fits there, and that host alone takes max(cut_out(G) / B_e,
cut_in(G) / B_in). The minimum over G is found by branch and bound: the set
grows along the heaviest arc to an undecided neighbour, which either joins or
stays out. A set I that may still grow, with X ruled out, cuts at least

    p(I, X) + sum_u p(I, u) - max sum_{u joins} (p(I, u) - p(u, X))

where the maximum over the nodes that may join is bounded by the fractional
knapsack of the capacity left. Nodes that are not connected to the set need
not be tried: they only add cut. See :mod:`virtco.solver.bounds.lowerbounds`.
"""

import enum

import cython


class Status(enum.IntEnum):
    """Of a node in respect of the set."""

    UNDECIDED = 0
    INSIDE = 1
    OUTSIDE = 2


UNDECIDED = cython.declare(cython.Py_ssize_t, Status.UNDECIDED)
INSIDE = cython.declare(cython.Py_ssize_t, Status.INSIDE)
OUTSIDE = cython.declare(cython.Py_ssize_t, Status.OUTSIDE)
ROUNDING = cython.declare(cython.double, 1e-13)
#: Units of work (:mod:`virtco.solver.budget`) per node of the graph: to load
#: a class, and to look at a node of the search tree.
LOAD = cython.declare(cython.double, 8.0)
LOOK = cython.declare(cython.double, 25.0)


@cython.dataclasses.dataclass(repr=False, eq=False)
@cython.cclass
class Classes:
    """What a :class:`Sets` starts from, for each of C host classes.

    The set holds the nodes pinned to the host; those pinned elsewhere or
    not allowed are outside.

    :ivar use: the classes to look at.
    """

    use: cython.Py_ssize_t[::1]
    s_per_byte: cython.double[::1]
    weight: cython.double[::1]
    status: cython.Py_ssize_t[::1]
    room: cython.double[::1]
    sums: cython.double[::1]
    from_set: cython.double[::1]
    to_set: cython.double[::1]
    from_outside: cython.double[::1]
    to_outside: cython.double[::1]


@cython.dataclasses.dataclass(repr=False, eq=False)
@cython.cclass
class Sets:
    """The set on one host class and the traffic; arrays of n or n * R.

    :ivar s_per_byte: egress, ingress.
    :ivar status: UNDECIDED, INSIDE or OUTSIDE per node.
    :ivar weight: size of every node in the knapsack's one resource.
    :ivar room: capacity left per resource, then that of the knapsack.
    :ivar sums: bytes p(I, X), p(X, I), sum_u p(I, u), sum_u p(u, I), and
        how far rounding may have moved them.
    :ivar best: class of the cheapest set found, then status per node.
    :ivar work: units done, and at which to stop.
    """

    n: cython.Py_ssize_t
    n_resources: cython.Py_ssize_t
    adj_start: cython.Py_ssize_t[::1]
    adj_node: cython.Py_ssize_t[::1]
    adj_out: cython.double[::1]
    adj_in: cython.double[::1]
    demand: cython.double[::1]
    s_per_byte: cython.double[::1]
    weight: cython.double[::1]
    status: cython.Py_ssize_t[::1]
    room: cython.double[::1]
    sums: cython.double[::1]
    from_set: cython.double[::1]
    to_set: cython.double[::1]
    from_outside: cython.double[::1]
    to_outside: cython.double[::1]
    stack_node: cython.Py_ssize_t[::1]
    stack_phase: cython.Py_ssize_t[::1]
    ratio: cython.double[::1]
    item: cython.Py_ssize_t[::1]
    best: cython.Py_ssize_t[::1]
    work: cython.double[::1]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def join(g: Sets, node: cython.Py_ssize_t, sign: cython.double) -> cython.void:
    """Take an undecided node into the set (sign 1) or undo that (-1)."""
    if sign > 0:
        g.sums[2] -= g.from_set[node]
        g.sums[3] -= g.to_set[node]
        g.sums[0] += g.to_outside[node]
        g.sums[1] += g.from_outside[node]
        g.status[node] = INSIDE
    for r in range(g.n_resources):
        g.room[r] -= sign * g.demand[node * g.n_resources + r]
    g.room[g.n_resources] -= sign * g.weight[node]
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        other = g.adj_node[e]
        if g.status[other] == UNDECIDED:
            g.sums[2] += sign * g.adj_out[e]
            g.sums[3] += sign * g.adj_in[e]
        g.from_set[other] += sign * g.adj_out[e]
        g.to_set[other] += sign * g.adj_in[e]
    if sign < 0:
        g.status[node] = UNDECIDED
        g.sums[2] += g.from_set[node]
        g.sums[3] += g.to_set[node]
        g.sums[0] -= g.to_outside[node]
        g.sums[1] -= g.from_outside[node]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def rule_out(g: Sets, node: cython.Py_ssize_t, sign: cython.double
             ) -> cython.void:
    """Keep an undecided node out of the set (sign 1) or undo that (-1)."""
    g.sums[2] -= sign * g.from_set[node]
    g.sums[3] -= sign * g.to_set[node]
    g.sums[0] += sign * g.from_set[node]
    g.sums[1] += sign * g.to_set[node]
    g.status[node] = OUTSIDE if sign > 0 else UNDECIDED
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        other = g.adj_node[e]
        # What `other` sends to this node, and gets from it.
        g.to_outside[other] += sign * g.adj_in[e]
        g.from_outside[other] += sign * g.adj_out[e]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def can_join(g: Sets, node: cython.Py_ssize_t) -> cython.bint:
    for r in range(g.n_resources):
        need = g.demand[node * g.n_resources + r]
        if need > 0 and need > g.room[r]:
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def absorbable(g: Sets, share: cython.double) -> cython.double:
    """Most that joining can save of share * out + (1 - share) * in time."""
    count = 0
    saved = 0.0
    out_factor = share * g.s_per_byte[0]
    in_factor = (1.0 - share) * g.s_per_byte[1]
    for node in range(g.n):
        if g.status[node] != UNDECIDED:
            continue
        gain = (out_factor * (g.from_set[node] - g.to_outside[node])
                + in_factor * (g.to_set[node] - g.from_outside[node]))
        if gain <= 0 or not can_join(g, node):
            continue
        if g.weight[node] <= 0:
            saved += gain
            continue
        ratio = gain / g.weight[node]
        i = count
        while i > 0 and g.ratio[i - 1] < ratio:
            g.ratio[i] = g.ratio[i - 1]
            g.item[i] = g.item[i - 1]
            i -= 1
        g.ratio[i] = ratio
        g.item[i] = node
        count += 1
    left = g.room[g.n_resources]
    for i in range(count):
        weight = g.weight[g.item[i]]
        if weight >= left:
            return saved + left * g.ratio[i]
        saved += weight * g.ratio[i]
        left -= weight
    return saved


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def time_now(g: Sets) -> cython.double:
    """Time of the set as it is, all undecided nodes elsewhere."""
    return max(max(0.0, g.sums[0] + g.sums[2] - g.sums[4])
               * g.s_per_byte[0],
               max(0.0, g.sums[1] + g.sums[3] - g.sums[4])
               * g.s_per_byte[1])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def least_time(g: Sets, cutoff: cython.double) -> cython.double:
    """Lower bound over all ways to let the set grow.

    Differences of large sums are lowered by what rounding may have added.
    """
    out = (g.sums[0] + g.sums[2]) * g.s_per_byte[0]
    into = (g.sums[1] + g.sums[3]) * g.s_per_byte[1]
    best = 0.0
    if out >= cutoff:
        best = out - absorbable(g, 1.0) - ROUNDING * out
    if best < cutoff and into >= cutoff:
        best = max(best,
                   into - absorbable(g, 0.0) - ROUNDING * into)
    if best < cutoff and 0.5 * (out + into) >= cutoff:
        both = 0.5 * (out + into)
        best = max(best, both - absorbable(g, 0.5) - ROUNDING * both)
    return best


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def heaviest(g: Sets) -> cython.Py_ssize_t:
    """Undecided neighbour with the most traffic to the set that fits."""
    best = -1
    most = 0.0
    for node in range(g.n):
        if g.status[node] == UNDECIDED:
            gain = (g.from_set[node] * g.s_per_byte[0]
                    + g.to_set[node] * g.s_per_byte[1])
            if gain > most and can_join(g, node):
                most = gain
                best = node
    return best


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def cheapest_set(g: Sets, c: cython.Py_ssize_t, cutoff: cython.double,
                 enough: cython.double, limit: cython.Py_ssize_t
                 ) -> cython.double:
    """Least time of a set that contains the nodes INSIDE now.

    :param c: the class, for the record in g.best.
    :param cutoff: sets of at least this time are not looked for; cutoff is
        returned when there is no better one.
    :param enough: stop at the first set of at most this time.
    :param limit: nodes of the search tree; -1.0 is returned beyond it, and
        beyond the work that is allowed.
    """
    best = cutoff
    depth = 0
    visited = 0
    while True:
        visited += 1
        g.work[0] += LOOK * g.n
        if visited > limit or g.work[0] > g.work[1]:
            best = -1.0
            break
        if time_now(g) < best:
            best = time_now(g)
            g.best[0] = c
            for i in range(g.n):
                g.best[1 + i] = g.status[i]
        if best <= enough:
            break
        node = -1
        if least_time(g, best) < best:
            node = heaviest(g)
        if node >= 0:
            g.stack_node[depth] = node
            g.stack_phase[depth] = INSIDE
            depth += 1
            join(g, node, 1.0)
            continue
        while depth > 0 and g.stack_phase[depth - 1] == OUTSIDE:
            depth -= 1
            rule_out(g, g.stack_node[depth], -1.0)
        if depth == 0:
            break
        node = g.stack_node[depth - 1]
        join(g, node, -1.0)
        g.stack_phase[depth - 1] = OUTSIDE
        rule_out(g, node, 1.0)
    while depth > 0:
        depth -= 1
        if g.stack_phase[depth] == OUTSIDE:
            rule_out(g, g.stack_node[depth], -1.0)
        else:
            join(g, g.stack_node[depth], -1.0)
    return best


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def load(g: Sets, classes: Classes, c: cython.Py_ssize_t) -> cython.void:
    """Start over from class c."""
    n = g.n
    g.work[0] += LOAD * n
    for i in range(n):
        g.weight[i] = classes.weight[c * n + i]
        g.status[i] = classes.status[c * n + i]
        g.from_set[i] = classes.from_set[c * n + i]
        g.to_set[i] = classes.to_set[c * n + i]
        g.from_outside[i] = classes.from_outside[c * n + i]
        g.to_outside[i] = classes.to_outside[c * n + i]
    for i in range(g.n_resources + 1):
        g.room[i] = classes.room[c * (g.n_resources + 1) + i]
    for i in range(5):
        g.sums[i] = classes.sums[c * 5 + i]
    for i in range(2):
        g.s_per_byte[i] = classes.s_per_byte[c * 2 + i]


def least_around(g: Sets, classes: Classes, node: cython.Py_ssize_t,
                 cutoff: cython.double, enough: cython.double,
                 limit: cython.Py_ssize_t) -> float:
    """Least time over all host classes of a set with the node.

    :returns: as :func:`cheapest_set`; the set and its class in g.best.
    """
    with cython.nogil:
        least = try_classes(g, classes, node, cutoff, enough, limit)
    return least


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def try_classes(g: Sets, classes: Classes, node: cython.Py_ssize_t,
                cutoff: cython.double, enough: cython.double,
                limit: cython.Py_ssize_t) -> cython.double:
    best = cutoff
    g.best[0] = -1
    for i in range(len(classes.use)):
        c = classes.use[i]
        where = classes.status[c * g.n + node]
        if where == OUTSIDE:
            continue
        load(g, classes, c)
        if where == UNDECIDED:
            if not can_join(g, node):
                continue
            join(g, node, 1.0)
        best = cheapest_set(g, c, best, enough, limit)
        if best <= enough:
            break
    return best
