# SPDX-License-Identifier: Apache-2.0

"""Kernel of sets on one host: the cheapest around a node, the most valuable.

A set I grows by branch and bound; X is ruled out, U undecided. All bounds
rest on what the set sends when it grows by some A within U, at least

    cut_out(I) - sum_{u in A} (p(I, u) - max(p(u, X), least_out(u)))

where least_out(u) is what u sends out of any set that fits the host, and on
the same inwards.

*Cheapest*: whatever the placement, VM j is on some host together with some
set of nodes that fits there, and that host alone takes max(cut_out / B_e,
cut_in / B_in). The set grows along the heaviest arc; what joining can save is
bounded by the fractional knapsack of the capacity left. Nodes that are not
connected to the set need not be tried: they only add cut. See
:mod:`virtco.solver.bounds.lowerbounds`.

*Most valuable*: given a value per node and limits of what is sent and
received, both are knapsack rows like those of the capacity. All rows are put
into the objective with multipliers (Lagrange), which are improved by a few
subgradient steps at every tree node; then values decide for themselves, and
nodes whose choice is forced are settled on the spot. See
:mod:`virtco.solver.partition.columns`.
"""

import enum

import cython


class Status(enum.IntEnum):
    """Whether a node is in the set, out of it, or undecided."""

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
ROUNDING = cython.declare(cython.double, 1e-13)
#: Units of work (:mod:`virtco.solver.budget`) per node of the graph: to load
#: a class, and to look at a node of the search tree.
LOAD = cython.declare(cython.double, 8.0)
LOOK = cython.declare(cython.double, 25.0)


@cython.dataclasses.dataclass(repr=False, eq=False)
@cython.cclass
class Classes:
    """Start values of :class:`Sets` for C host classes and R resources.

    The set holds the nodes pinned to the host; those pinned elsewhere or not
    allowed are outside.

    :ivar demand: parts of the empty host's resources, C * n * R.
    :ivar knapsack: the resource that says most about what fits, C.
    :ivar cut: bytes that the pinned nodes send and receive, C * 2.
    :ivar unit: time, or part of a limit, per byte out and in, C * 2.
    :ivar least_out: bytes that a node at least sends out of any set that
        fits, C * n; the fields below likewise.
    """

    demand: cython.double[::1]
    knapsack: cython.Py_ssize_t[::1]
    cut: cython.double[::1]
    unit: cython.double[::1]
    least_out: cython.double[::1]
    least_in: cython.double[::1]
    status: cython.Py_ssize_t[::1]
    from_set: cython.double[::1]
    to_set: cython.double[::1]
    from_outside: cython.double[::1]
    to_outside: cython.double[::1]


@cython.dataclasses.dataclass(repr=False, eq=False)
@cython.cclass
class Sets:
    """The set on one host class, and the traffic; arrays of n or n * R.

    :ivar total_out: all that a node sends, total_in: and receives.
    :ivar rounding: bytes that may be none.
    :ivar value: value of each node; placed: nodes that no set may have.
    :ivar room: room left per resource, then for bytes out and in, with all
        undecided nodes outside; R + 2 rows.
    :ivar multiplier: multiplier of each tree level and row, then those on
        trial, (n + 2) * (R + 2).
    :ivar bound: bound of the part still open, per tree level.
    :ivar sums: value of the set.
    :ivar found: sets found last, n nodes each.
    :ivar counts: number of sets found; tree nodes visited.
    :ivar work: units done, and at which to stop.
    """

    n: cython.Py_ssize_t
    n_resources: cython.Py_ssize_t
    rounding: cython.double
    adj_start: cython.Py_ssize_t[::1]
    adj_node: cython.Py_ssize_t[::1]
    adj_out: cython.double[::1]
    adj_in: cython.double[::1]
    total_out: cython.double[::1]
    total_in: cython.double[::1]
    value: cython.double[::1]
    placed: cython.uchar[::1]
    demand: cython.double[::1]
    unit: cython.double[::1]
    least_out: cython.double[::1]
    least_in: cython.double[::1]
    status: cython.Py_ssize_t[::1]
    from_set: cython.double[::1]
    to_set: cython.double[::1]
    from_outside: cython.double[::1]
    to_outside: cython.double[::1]
    room: cython.double[::1]
    multiplier: cython.double[::1]
    slack: cython.double[::1]
    bound: cython.double[::1]
    ratio: cython.double[::1]
    item: cython.Py_ssize_t[::1]
    trail_node: cython.Py_ssize_t[::1]
    trail_by: cython.Py_ssize_t[::1]
    sums: cython.double[::1]
    found: cython.Py_ssize_t[::1]
    counts: cython.Py_ssize_t[::1]
    work: cython.double[::1]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def load(g: Sets, classes: Classes, c: cython.Py_ssize_t,
         allowance: cython.double) -> cython.void:
    """Start over from class c; allowance is the room for bytes, in units."""
    rows = g.n_resources
    n = g.n
    g.work[0] += LOAD * n
    for i in range(n * rows):
        g.demand[i] = classes.demand[c * n * rows + i]
    for i in range(n):
        g.status[i] = classes.status[c * n + i]
        g.from_set[i] = classes.from_set[c * n + i]
        g.to_set[i] = classes.to_set[c * n + i]
        g.from_outside[i] = classes.from_outside[c * n + i]
        g.to_outside[i] = classes.to_outside[c * n + i]
        g.least_out[i] = classes.least_out[c * n + i]
        g.least_in[i] = classes.least_in[c * n + i]
    for r in range(rows):
        g.room[r] = 1.0
    for way in range(2):
        g.unit[way] = classes.unit[c * 2 + way]
        g.room[rows + way] = allowance - g.unit[way] * (
            classes.cut[c * 2 + way] - g.rounding)
    g.sums[0] = 0.0
    g.counts[0] = 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def join(g: Sets, node: cython.Py_ssize_t, sign: cython.double) -> cython.void:
    """Take an undecided node into the set (sign 1) or undo that (-1)."""
    rows = g.n_resources
    for r in range(rows):
        g.room[r] -= sign * g.demand[node * rows + r]
    inner = g.from_set[node] + g.to_set[node]
    g.room[rows] -= sign * g.unit[0] * (g.total_out[node] - inner)
    g.room[rows + 1] -= sign * g.unit[1] * (g.total_in[node] - inner)
    g.sums[0] += sign * g.value[node]
    g.status[node] = INSIDE if sign > 0 else UNDECIDED
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        other = g.adj_node[e]
        g.from_set[other] += sign * g.adj_out[e]
        g.to_set[other] += sign * g.adj_in[e]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def rule_out(g: Sets, node: cython.Py_ssize_t, sign: cython.double
             ) -> cython.void:
    """Keep an undecided node out of the set (sign 1) or undo that (-1)."""
    g.status[node] = OUTSIDE if sign > 0 else UNDECIDED
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        other = g.adj_node[e]
        # Bytes from `other` to this node, and back.
        g.to_outside[other] += sign * g.adj_in[e]
        g.from_outside[other] += sign * g.adj_out[e]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def undo(g: Sets, depth: cython.Py_ssize_t) -> cython.void:
    """Make the node that was settled at this depth undecided again."""
    node = g.trail_node[depth]
    if g.status[node] == INSIDE:
        join(g, node, -1.0)
    else:
        rule_out(g, node, -1.0)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def branch_on(g: Sets, node: cython.Py_ssize_t, depth: cython.Py_ssize_t
              ) -> cython.void:
    """Join first; :func:`turn_round` tries the other side."""
    g.trail_node[depth] = node
    g.trail_by[depth] = FIRST
    join(g, node, 1.0)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def turn_round(g: Sets, depth: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Rule out the last node that joined first; return the trail's length."""
    while depth > 0 and g.trail_by[depth - 1] == LAST:
        depth -= 1
        undo(g, depth)
    if depth > 0:
        undo(g, depth - 1)
        g.trail_by[depth - 1] = LAST
        rule_out(g, g.trail_node[depth - 1], 1.0)
    return depth


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def can_join(g: Sets, node: cython.Py_ssize_t) -> cython.bint:
    """Tell whether the node fits in the room left of each resource."""
    for r in range(g.n_resources):
        need = g.demand[node * g.n_resources + r]
        if need > 0 and need > g.room[r]:
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def least_sent(g: Sets, node: cython.Py_ssize_t) -> cython.double:
    """Bound from below the bytes that the node adds to the set; may be < 0."""
    return g.unit[0] * (max(g.to_outside[node], g.least_out[node])
                        - g.from_set[node])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def least_received(g: Sets, node: cython.Py_ssize_t) -> cython.double:
    """Bound from below the received bytes that the node adds; may be < 0."""
    return g.unit[1] * (max(g.from_outside[node], g.least_in[node])
                        - g.to_set[node])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def absorbable(g: Sets, knapsack: cython.Py_ssize_t, share: cython.double
               ) -> cython.double:
    """Bound the saving by joining in share * out + (1 - share) * in time."""
    count = 0
    saved = 0.0
    for node in range(g.n):
        if g.status[node] != UNDECIDED:
            continue
        gain = -share * least_sent(g, node) - (
            1.0 - share) * least_received(g, node)
        if gain <= 0 or not can_join(g, node):
            continue
        weight = g.demand[node * g.n_resources + knapsack]
        if weight <= 0:
            saved += gain
            continue
        ratio = gain / weight
        i = count
        while i > 0 and g.ratio[i - 1] < ratio:
            g.ratio[i] = g.ratio[i - 1]
            g.item[i] = g.item[i - 1]
            i -= 1
        g.ratio[i] = ratio
        g.item[i] = node
        count += 1
    left = g.room[knapsack]
    for i in range(count):
        weight = g.demand[g.item[i] * g.n_resources + knapsack]
        if weight >= left:
            return saved + left * g.ratio[i]
        saved += weight * g.ratio[i]
        left -= weight
    return saved


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def least_time(g: Sets, knapsack: cython.Py_ssize_t, cutoff: cython.double
               ) -> cython.double:
    """Bound the time from below over all ways to let the set grow.

    Differences of large sums are lowered by what rounding may have added.
    """
    out = -g.room[g.n_resources]
    into = -g.room[g.n_resources + 1]
    best = 0.0
    if out >= cutoff:
        best = out - absorbable(g, knapsack, 1.0) - ROUNDING * out
    if best < cutoff and into >= cutoff:
        best = max(best, into - absorbable(g, knapsack, 0.0)
                   - ROUNDING * into)
    if best < cutoff and 0.5 * (out + into) >= cutoff:
        both = 0.5 * (out + into)
        best = max(best, both - absorbable(g, knapsack, 0.5)
                   - ROUNDING * both)
    return best


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def heaviest(g: Sets) -> cython.Py_ssize_t:
    """Find the fitting neighbour with the most traffic to the set, or -1."""
    best = -1
    most = 0.0
    for node in range(g.n):
        if g.status[node] == UNDECIDED:
            gain = (g.from_set[node] * g.unit[0]
                    + g.to_set[node] * g.unit[1])
            if gain > most and can_join(g, node):
                most = gain
                best = node
    return best


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def cheapest(g: Sets, knapsack: cython.Py_ssize_t, cutoff: cython.double,
             enough: cython.double, limit: cython.Py_ssize_t) -> cython.double:
    """Find the least time of a set that contains the nodes INSIDE now.

    :param cutoff: sets of at least this time are not looked for; cutoff is
        returned when there is no better one.
    :param enough: stop at the first set of at most this time.
    :param limit: nodes of the search tree; -1.0 is returned beyond it, and
        beyond the work that is allowed.
    """
    best = cutoff
    depth: cython.Py_ssize_t = 0
    visited = 0
    while True:
        visited += 1
        g.work[0] += LOOK * g.n
        if visited > limit or g.work[0] > g.work[1]:
            return -1.0
        now = max(0.0, max(-g.room[g.n_resources],
                           -g.room[g.n_resources + 1]))
        if now < best:
            best = now
            for i in range(g.n):
                g.found[i] = g.status[i] == INSIDE
        if best <= enough:
            return best
        node = -1
        if least_time(g, knapsack, best) < best:
            node = heaviest(g)
        if node >= 0:
            branch_on(g, node, depth)
            depth += 1
        else:
            depth = turn_round(g, depth)
            if depth == 0:
                return best


def least_around(g: Sets, classes: Classes, node: cython.Py_ssize_t,
                 cutoff: cython.double, enough: cython.double,
                 limit: cython.Py_ssize_t) -> float:
    """Find the least time over all host classes of a set with the node.

    :returns: as :func:`cheapest`; the set in g.found.
    """
    best = cutoff
    with cython.nogil:
        for i in range(g.n):
            g.found[i] = 0
        for c in range(len(classes.knapsack)):
            where = classes.status[c * g.n + node]
            if where == OUTSIDE:
                continue
            load(g, classes, c, 0.0)
            if where == UNDECIDED:
                if not can_join(g, node):
                    continue
                join(g, node, 1.0)
            best = cheapest(g, classes.knapsack[c], best, enough, limit)
            if best <= enough:
                break
    return best


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def reduced_value(g: Sets, node: cython.Py_ssize_t,
                  offset: cython.Py_ssize_t) -> cython.double:
    """Return the value of a node less the price of its share of every row."""
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
def relaxed(g: Sets, offset: cython.Py_ssize_t) -> cython.double:
    """Bound any completion from above; g.slack gets the room it leaves."""
    rows = g.n_resources
    total = g.sums[0]
    for d in range(rows + 2):
        total += g.multiplier[offset + d] * g.room[d]
        g.slack[d] = g.room[d]
    for node in range(g.n):
        if g.status[node] != UNDECIDED or not can_join(g, node):
            continue
        out = least_sent(g, node)
        into = least_received(g, node)
        worth = (g.value[node] - g.multiplier[offset + rows] * out
                 - g.multiplier[offset + rows + 1] * into)
        for r in range(rows):
            worth -= g.multiplier[offset + r] * g.demand[node * rows + r]
        if worth <= 0:
            continue
        total += worth
        for r in range(rows):
            g.slack[r] -= g.demand[node * rows + r]
        g.slack[rows] -= out
        g.slack[rows + 1] -= into
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def improve(g: Sets, level: cython.Py_ssize_t, cutoff: cython.double
            ) -> cython.double:
    """Lower the bound by some steps; its multipliers stay at the level."""
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
def settle(g: Sets, level: cython.Py_ssize_t, bound: cython.double,
           cutoff: cython.double, depth: cython.Py_ssize_t
           ) -> cython.Py_ssize_t:
    """Settle nodes as the bound forces; return the trail's new length."""
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
def keep_if_better(g: Sets, cutoff: cython.double) -> cython.double:
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
def choose(g: Sets, level: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Choose the undecided node of largest reduced value, -1 to stop here.

    A part of a set that has no traffic with the rest of it and no node of
    value can be left away: only nodes of value or with traffic to the set
    need to be tried.
    """
    branch = -1
    most = 0.0
    for node in range(g.n):
        if g.status[node] != UNDECIDED or (
                g.value[node] <= 0
                and g.from_set[node] + g.to_set[node] <= g.rounding):
            continue
        worth = reduced_value(g, node, level * (g.n_resources + 2))
        if branch < 0 or worth > most:
            most = worth
            branch = node
    return branch


def most_valuable(g: Sets, classes: Classes, c: cython.Py_ssize_t,
                  allowance: cython.double, cutoff: cython.double,
                  limit: cython.Py_ssize_t) -> float:
    """Bound from above the value of any set that class c can hold.

    It is the cutoff when no set is worth more. Sets worth more than those
    found before, and than the cutoff, are counted in g.counts and the last
    of them kept in g.found.

    :param allowance: room for bytes out and in, in units.
    :param limit: nodes of the search tree.
    """
    depth: cython.Py_ssize_t = 0
    level = 0
    best = cutoff
    visited = 0
    rows = g.n_resources + 2
    with cython.nogil:
        load(g, classes, c, allowance)
        for node in range(g.n):
            if g.placed[node] and g.status[node] == UNDECIDED:
                rule_out(g, node, 1.0)
        for d in range(rows):
            g.multiplier[d] = 0.0
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
                best = max(best, bound)
                break
            if branch >= 0:
                g.bound[level] = bound
                for d in range(rows):
                    g.multiplier[(level + 1) * rows + d] = g.multiplier[
                        level * rows + d]
                level += 1
                branch_on(g, branch, depth)
                depth += 1
                continue
            # The other side of the branch continues on the parent's level.
            depth = turn_round(g, depth)
            if depth == 0:
                break
            level -= 1
        for i in range(level):
            best = max(best, g.bound[i])
        g.counts[1] = visited
    return best
