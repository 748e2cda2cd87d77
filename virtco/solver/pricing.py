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
forced are settled on the spot. See :mod:`virtco.solver.columns`.
"""

from typing import Any
from typing import NamedTuple

from virtco.solver import compiled

UNDECIDED, INSIDE, OUTSIDE = 0, 1, 2
#: Who settled a node: a branch still to be turned round, or the last word.
FIRST, LAST = 0, 1
#: Subgradient steps per look at a tree node.
STEPS = 6
#: How many of the sets found last are kept.
KEPT = 8


class Prices(NamedTuple):
    """One host class at one time; arrays of n, or n * D for D = R + 2 rows.

    Rows are the R resources, then bytes out and bytes in, each in units of
    what the empty host has.

    :ivar demand: resources taken, n * R.
    :ivar total_out: all that a node sends, total_in: and receives.
    :ivar least_out: what it sends at least out of any set that fits.
    :ivar unit: per byte out and per byte in.
    :ivar room: left per row, with all undecided nodes outside, and what
        rounding may cost on top.
    :ivar multiplier: per tree level and row, (n + 1) * D.
    :ivar bound: per tree level, of what is still open there.
    :ivar sums: value of the set; bytes that may be rounding.
    :ivar found: sets found, KEPT * n.
    :ivar counts: how many sets were found; tree nodes visited.
    """

    n: int
    n_resources: int
    adj_start: Any
    adj_node: Any
    adj_out: Any
    adj_in: Any
    demand: Any
    total_out: Any
    total_in: Any
    least_out: Any
    least_in: Any
    unit: Any
    value: Any
    status: Any
    room: Any
    from_set: Any
    to_set: Any
    from_outside: Any
    to_outside: Any
    multiplier: Any
    trial: Any
    slack: Any
    bound: Any
    trail_node: Any
    trail_by: Any
    sums: Any
    found: Any
    counts: Any


@compiled.jit
def join(g: Prices, node: int, sign: float) -> None:
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


@compiled.jit
def rule_out(g: Prices, node: int, sign: float) -> None:
    """Keep an undecided node out of the set (sign 1) or undo that (-1)."""
    g.status[node] = OUTSIDE if sign > 0 else UNDECIDED
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        other = g.adj_node[e]
        g.to_outside[other] += sign * g.adj_in[e]
        g.from_outside[other] += sign * g.adj_out[e]


@compiled.jit
def can_join(g: Prices, node: int) -> bool:
    for r in range(g.n_resources):
        need = g.demand[node * g.n_resources + r]
        if need > 0 and need > g.room[r]:
            return False
    return True


@compiled.jit
def reduced_value(g: Prices, node: int, at: Any, offset: int) -> float:
    """Value of a node less what it takes of every row."""
    rows = g.n_resources
    worth = g.value[node]
    for r in range(rows):
        worth -= at[offset + r] * g.demand[node * rows + r]
    out = max(g.to_outside[node], g.least_out[node]) - g.from_set[node]
    into = max(g.from_outside[node], g.least_in[node]) - g.to_set[node]
    worth -= at[offset + rows] * g.unit[0] * out
    worth -= at[offset + rows + 1] * g.unit[1] * into
    return worth


@compiled.jit
def relaxed(g: Prices, at: Any, offset: int) -> float:
    """Upper bound on any completion; g.slack gets what it leaves free."""
    rows = g.n_resources
    total = g.sums[0]
    for d in range(rows + 2):
        total += at[offset + d] * g.room[d]
        g.slack[d] = g.room[d]
    for node in range(g.n):
        if g.status[node] != UNDECIDED or not can_join(g, node):
            continue
        worth = reduced_value(g, node, at, offset)
        if worth <= 0:
            continue
        total += worth
        for r in range(rows):
            g.slack[r] -= g.demand[node * rows + r]
        g.slack[rows] -= g.unit[0] * (
            max(g.to_outside[node], g.least_out[node]) - g.from_set[node])
        g.slack[rows + 1] -= g.unit[1] * (
            max(g.from_outside[node], g.least_in[node]) - g.to_set[node])
    return total


@compiled.jit
def improve(g: Prices, level: int, cutoff: float) -> float:
    """Least bound found by some steps; its multipliers stay at the level."""
    rows = g.n_resources + 2
    first = level * rows
    for d in range(rows):
        g.trial[d] = g.multiplier[first + d]
    best = relaxed(g, g.trial, 0)
    now = best
    factor = 1.0
    for _ in range(STEPS):
        if best <= cutoff:
            break
        norm = 0.0
        for d in range(rows):
            if g.trial[d] > 0 or g.slack[d] < 0:
                norm += g.slack[d] * g.slack[d]
        if norm <= 0:
            break
        step = factor * (now - cutoff) / norm
        for d in range(rows):
            g.trial[d] = max(0.0, g.trial[d] - step * g.slack[d])
        now = relaxed(g, g.trial, 0)
        if now < best:
            best = now
            for d in range(rows):
                g.multiplier[first + d] = g.trial[d]
        else:
            factor *= 0.5
    return best


@compiled.jit
def settle(g: Prices, level: int, bound: float, cutoff: float, depth: int
           ) -> int:
    """Settle what the bound forces; the trail's new length."""
    first = level * (g.n_resources + 2)
    for node in range(g.n):
        if g.status[node] != UNDECIDED:
            continue
        if not can_join(g, node):
            rule_out(g, node, 1.0)
        else:
            worth = reduced_value(g, node, g.multiplier, first)
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


@compiled.jit
def undo(g: Prices, depth: int) -> None:
    node = g.trail_node[depth]
    if g.status[node] == INSIDE:
        join(g, node, -1.0)
    else:
        rule_out(g, node, -1.0)


@compiled.jit
def keep_if_better(g: Prices, cutoff: float) -> float:
    """Record the set as it is, all undecided nodes elsewhere."""
    if g.sums[0] <= cutoff:
        return cutoff
    for d in range(g.n_resources + 2):
        if g.room[d] < 0:
            return cutoff
    first = (g.counts[0] % KEPT) * g.n
    g.counts[0] += 1
    for node in range(g.n):
        g.found[first + node] = g.status[node] == INSIDE
    return g.sums[0]


@compiled.jit
def choose(g: Prices, level: int) -> int:
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
        worth = reduced_value(g, node, g.multiplier,
                              level * (g.n_resources + 2))
        if branch < 0 or worth > most:
            most = worth
            branch = node
    return branch


@compiled.jit
def most_valuable(g: Prices, cutoff: float, limit: int) -> float:
    """Upper bound on the value of any set that the class can hold.

    It is the cutoff when no set is worth more. Sets worth more than those
    found before, and than the cutoff, are counted in g.counts and the last
    of them kept in g.found.

    :param limit: nodes of the search tree.
    """
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
