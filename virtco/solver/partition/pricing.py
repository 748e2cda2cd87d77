# SPDX-License-Identifier: Apache-2.0

"""Kernel that prices a column: the most valuable set one host can hold.

Given a value per node, a host class and a time t, find the set G of largest
value that fits, sends at most t * B_e and receives at most t * B_in. Branch
and bound: a set I that may still grow, with X ruled out and U undecided,
sends at least

    cut_out(I) - sum_{u joins} (p(I, u) - max(p(u, X), least_out(u)))

where least_out(u) is what u sends out of any set that fits the host. This
and the same inwards are knapsack rows like those of the capacity, with what
I leaves of each as the right side. All rows are put into the objective with
multipliers (Lagrange), which are improved by a few subgradient steps at
every tree node; then values decide for themselves, and nodes whose choice is
forced are settled on the spot. See :mod:`virtco.solver.partition.columns`.
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
#: Who settled a node: a branch still to be turned round, or the last word.
FIRST = cython.declare(cython.Py_ssize_t, 0)
LAST = cython.declare(cython.Py_ssize_t, 1)
#: Subgradient steps per look at a tree node.
STEPS = cython.declare(cython.Py_ssize_t, 6)


@cython.dataclasses.dataclass(repr=False, eq=False)
@cython.cclass
class Prices:
    """One host class at one time; arrays of n, or n * D for D = R + 2 rows.

    Rows are the R resources, then bytes out and bytes in, each in units of
    what the empty host has.

    :ivar demand: resources taken, n * R.
    :ivar total_out: all that a node sends, total_in: and receives.
    :ivar least_out: what it sends at least out of any set that fits.
    :ivar placed: nodes that no set may have.
    :ivar unit: per byte out and per byte in.
    :ivar room: left per row, with all undecided nodes outside, and what
        rounding may cost on top.
    :ivar multiplier: per tree level and row, then those on trial,
        (n + 2) * D.
    :ivar bound: per tree level, of what is still open there.
    :ivar sums: value of the set; bytes that may be rounding.
    :ivar found: the sets found last, of n each.
    :ivar counts: how many sets were found; tree nodes visited.
    """

    n: cython.Py_ssize_t
    n_resources: cython.Py_ssize_t
    adj_start: cython.Py_ssize_t[::1]
    adj_node: cython.Py_ssize_t[::1]
    adj_out: cython.double[::1]
    adj_in: cython.double[::1]
    demand: cython.double[::1]
    total_out: cython.double[::1]
    total_in: cython.double[::1]
    least_out: cython.double[::1]
    least_in: cython.double[::1]
    unit: cython.double[::1]
    value: cython.double[::1]
    placed: cython.uchar[::1]
    status: cython.Py_ssize_t[::1]
    room: cython.double[::1]
    from_set: cython.double[::1]
    to_set: cython.double[::1]
    from_outside: cython.double[::1]
    to_outside: cython.double[::1]
    multiplier: cython.double[::1]
    slack: cython.double[::1]
    bound: cython.double[::1]
    trail_node: cython.Py_ssize_t[::1]
    trail_by: cython.Py_ssize_t[::1]
    sums: cython.double[::1]
    found: cython.Py_ssize_t[::1]
    counts: cython.Py_ssize_t[::1]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def join(g: Prices, node: cython.Py_ssize_t, sign: cython.double
         ) -> cython.void:
    """Take an undecided node into the set (sign 1) or undo that (-1)."""
    r_out = g.n_resources
    for r in range(r_out):
        g.room[r] -= sign * g.demand[node * r_out + r]
    inner = g.from_set[node] + g.to_set[node]
    g.room[r_out] -= sign * g.unit[0] * (g.total_out[node] - inner)
    g.room[r_out + 1] -= sign * g.unit[1] * (g.total_in[node] - inner)
    g.sums[0] += sign * g.value[node]
    g.status[node] = INSIDE if sign > 0 else UNDECIDED
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        other = g.adj_node[e]
        g.from_set[other] += sign * g.adj_out[e]
        g.to_set[other] += sign * g.adj_in[e]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def rule_out(g: Prices, node: cython.Py_ssize_t, sign: cython.double
             ) -> cython.void:
    """Keep an undecided node out of the set (sign 1) or undo that (-1)."""
    g.status[node] = OUTSIDE if sign > 0 else UNDECIDED
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        other = g.adj_node[e]
        g.to_outside[other] += sign * g.adj_in[e]
        g.from_outside[other] += sign * g.adj_out[e]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def can_join(g: Prices, node: cython.Py_ssize_t) -> cython.bint:
    for r in range(g.n_resources):
        need = g.demand[node * g.n_resources + r]
        if need > 0 and need > g.room[r]:
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def least_sent(g: Prices, node: cython.Py_ssize_t) -> cython.double:
    """What the set sends more at least when the node joins; may be < 0."""
    return g.unit[0] * (max(g.to_outside[node], g.least_out[node])
                        - g.from_set[node])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def least_received(g: Prices, node: cython.Py_ssize_t) -> cython.double:
    return g.unit[1] * (max(g.from_outside[node], g.least_in[node])
                        - g.to_set[node])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def reduced_value(g: Prices, node: cython.Py_ssize_t,
                  offset: cython.Py_ssize_t) -> cython.double:
    """Value of a node less what it takes of every row."""
    rows = g.n_resources
    worth = g.value[node]
    for r in range(rows):
        worth -= g.multiplier[offset + r] * g.demand[node * rows + r]
    worth -= g.multiplier[offset + rows] * least_sent(g, node)
    worth -= g.multiplier[offset + rows + 1] * least_received(g, node)
    return worth


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def relaxed(g: Prices, offset: cython.Py_ssize_t) -> cython.double:
    """Upper bound on any completion; g.slack gets what it leaves free."""
    rows = g.n_resources
    total = g.sums[0]
    for d in range(rows + 2):
        total += g.multiplier[offset + d] * g.room[d]
        g.slack[d] = g.room[d]
    out_price = g.multiplier[offset + rows]
    in_price = g.multiplier[offset + rows + 1]
    out_left = g.slack[rows]
    in_left = g.slack[rows + 1]
    for node in range(g.n):
        if g.status[node] != UNDECIDED or not can_join(g, node):
            continue
        worth = g.value[node]
        for r in range(rows):
            worth -= g.multiplier[offset + r] * g.demand[node * rows + r]
        out = least_sent(g, node)
        into = least_received(g, node)
        worth -= out_price * out
        worth -= in_price * into
        if worth <= 0:
            continue
        total += worth
        for r in range(rows):
            g.slack[r] -= g.demand[node * rows + r]
        out_left -= out
        in_left -= into
    g.slack[rows] = out_left
    g.slack[rows + 1] = in_left
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def improve(g: Prices, level: cython.Py_ssize_t, cutoff: cython.double
            ) -> cython.double:
    """Least bound found by some steps; its multipliers stay at the level."""
    rows = g.n_resources + 2
    first = level * rows
    trial = (g.n + 1) * rows
    for d in range(rows):
        g.multiplier[trial + d] = g.multiplier[first + d]
    best = relaxed(g, trial)
    now = best
    factor = 1.0
    for _ in range(STEPS):
        if best <= cutoff:
            break
        norm = 0.0
        for d in range(rows):
            if g.multiplier[trial + d] > 0 or g.slack[d] < 0:
                norm += g.slack[d] * g.slack[d]
        if norm <= 0:
            break
        step = factor * (now - cutoff) / norm
        for d in range(rows):
            g.multiplier[trial + d] = max(
                0.0, g.multiplier[trial + d] - step * g.slack[d])
        now = relaxed(g, trial)
        if now < best:
            best = now
            for d in range(rows):
                g.multiplier[first + d] = g.multiplier[trial + d]
        else:
            factor *= 0.5
    return best


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def settle(g: Prices, level: cython.Py_ssize_t, bound: cython.double,
           cutoff: cython.double, depth: cython.Py_ssize_t
           ) -> cython.Py_ssize_t:
    """Settle what the bound forces; the trail's new length."""
    first = level * (g.n_resources + 2)
    for node in range(g.n):
        if g.status[node] != UNDECIDED:
            continue
        if not can_join(g, node):
            rule_out(g, node, 1.0)
        else:
            worth = reduced_value(g, node, first)
            if worth <= 0 and bound + worth <= cutoff:
                rule_out(g, node, 1.0)
            elif worth > 0 and bound - worth <= cutoff:
                join(g, node, 1.0)
            else:
                continue
        g.trail_node[depth] = node
        g.trail_by[depth] = LAST
        depth += 1
    return depth


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def undo(g: Prices, depth: cython.Py_ssize_t) -> cython.void:
    node = g.trail_node[depth]
    if g.status[node] == INSIDE:
        join(g, node, -1.0)
    else:
        rule_out(g, node, -1.0)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def keep_if_better(g: Prices, cutoff: cython.double) -> cython.double:
    """Record the set as it is, all undecided nodes elsewhere."""
    if g.sums[0] <= cutoff:
        return cutoff
    for d in range(g.n_resources + 2):
        if g.room[d] < 0:
            return cutoff
    first = (g.counts[0] * g.n) % len(g.found)
    g.counts[0] += 1
    for node in range(g.n):
        g.found[first + node] = g.status[node] == INSIDE
    return g.sums[0]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def choose(g: Prices, level: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Undecided node of the largest reduced value, -1 to stop here.

    A part of a set that has no traffic with the rest of it and no node of
    value can be left away: only nodes of value or with traffic to the set
    need to be tried.
    """
    branch = -1
    most = 0.0
    for node in range(g.n):
        if g.status[node] != UNDECIDED or (
                g.value[node] <= 0
                and g.from_set[node] + g.to_set[node] <= g.sums[1]):
            continue
        worth = reduced_value(g, node, level * (g.n_resources + 2))
        if branch < 0 or worth > most:
            most = worth
            branch = node
    return branch


def most_valuable(g: Prices, cutoff: cython.double, limit: cython.Py_ssize_t
                  ) -> float:
    """Upper bound on the value of any set that the class can hold.

    It is the cutoff when no set is worth more. Sets worth more than those
    found before, and than the cutoff, are counted in g.counts and the last
    of them kept in g.found.

    :param limit: nodes of the search tree.
    """
    with cython.nogil:
        bound = search(g, cutoff, limit)
    return bound


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def search(g: Prices, cutoff: cython.double, limit: cython.Py_ssize_t
           ) -> cython.double:
    for node in range(g.n):
        if g.placed[node] and g.status[node] == UNDECIDED:
            rule_out(g, node, 1.0)
    rows = g.n_resources + 2
    depth = 0
    level = 0
    best = cutoff
    open_above = cutoff
    visited = 0
    while True:
        visited += 1
        best = keep_if_better(g, best)
        bound = improve(g, level, best)
        before = -1
        while bound > best and before != depth:
            before = depth
            depth = settle(g, level, bound, best, depth)
            if before != depth:
                best = keep_if_better(g, best)
                bound = improve(g, level, best)
        branch = -1
        if bound > best:
            branch = choose(g, level)
        if visited > limit:
            if bound > best:
                open_above = bound
            break
        if branch >= 0:
            g.bound[level] = bound
            for d in range(rows):
                g.multiplier[(level + 1) * rows + d] = g.multiplier[
                    level * rows + d]
            level += 1
            g.trail_node[depth] = branch
            g.trail_by[depth] = FIRST
            depth += 1
            join(g, branch, 1.0)
            continue
        while depth > 0 and g.trail_by[depth - 1] == LAST:
            depth -= 1
            undo(g, depth)
        if depth == 0:
            break
        undo(g, depth - 1)
        level -= 1
        # The other side of the branch continues on the parent's level.
        g.trail_by[depth - 1] = LAST
        rule_out(g, g.trail_node[depth - 1], 1.0)
    while depth > 0:
        depth -= 1
        if g.trail_by[depth] == FIRST:
            level -= 1
            open_above = max(open_above, g.bound[level])
        undo(g, depth)
    g.counts[1] = visited
    return max(best, open_above)
