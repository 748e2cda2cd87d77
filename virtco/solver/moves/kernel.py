# SPDX-License-Identifier: Apache-2.0

"""The local search kernel: annealing over placements on a smoothed maximum.

One run holds a coflow order fixed. *Levels* are the prefixes of that order
from the first own coflow on: level k holds the bytes of all coflows up to
there, and the objective is the sum over levels of w_k max_port load x time
per byte. With one level this is VirtCO Eq. (3). The maximum is smoothed to
a p-norm with p = 2 ** power (power 0: the plain sum, for min-cut). A byte
may have a price, too, on every port that it passes.

Everything is one-dimensional: ``load[port * K + level]``,
``demand[node * R + r]``, ``free[slot[host * R + r]]``. See
:mod:`virtco.solver.moves.localsearch` for the caller and
:mod:`virtco.compiled` for how it is compiled.
"""

import cython
from cython.cimports.libc import math

INFINITE = cython.declare(cython.double, float('inf'))
RECOMPUTE_EVERY = cython.declare(cython.Py_ssize_t, 2048)
#: A level's sum of powers is added up again when it falls to this fraction of
#: its last full sum, before cancellation eats its digits.
CANCELLATION = cython.declare(cython.double, 1e-6)
#: Ports of which the largest is remembered.
BLOCK = cython.declare(cython.Py_ssize_t, 16)
WORD = cython.declare(cython.Py_ssize_t, 0xFFFFFFFF)
#: Units of work (:mod:`virtco.solver.budget`) of a proposal, of a node moved,
#: of one of its arcs, of a level of a port that is touched, of a level of a
#: port while all is added up, and of a move that is accepted.
DRAW = cython.declare(cython.Py_ssize_t, 35)
SHIFT = cython.declare(cython.Py_ssize_t, 20)
ARC = cython.declare(cython.Py_ssize_t, 2)
PORT = cython.declare(cython.Py_ssize_t, 12)
REFRESH = cython.declare(cython.Py_ssize_t, 3)
SETTLE = cython.declare(cython.Py_ssize_t, 60)


@cython.dataclasses.dataclass(repr=False, eq=False)
@cython.cclass
class Graph:
    """Input of a run; n nodes, M hosts, R resources, P ports, K levels.

    :ivar n_own: resources that hosts do not share.
    :ivar slot: index in ``free`` of a host's resource, M * R.
    :ivar n_rows: hosts, then the tiers of subtrees above them.
    :ivar port_out: port by which a host's bytes leave a row's part, -1 for
        none; n_rows * M.
    :ivar floor_s: least maximum of each level.
    :ivar ceiling_s: largest time of a port after a move, for each level.
    :ivar price_s: seconds that a byte on a port adds to the objective.
    :ivar fixed_s: part of the objective that no move can change.
    """

    n: cython.Py_ssize_t
    n_hosts: cython.Py_ssize_t
    n_resources: cython.Py_ssize_t
    n_own: cython.Py_ssize_t
    n_uplinks: cython.Py_ssize_t
    n_rows: cython.Py_ssize_t
    n_ports: cython.Py_ssize_t
    n_levels: cython.Py_ssize_t
    pipe: cython.Py_ssize_t
    movable: cython.Py_ssize_t[::1]
    demand: cython.double[::1]
    allowed: cython.uchar[::1]
    slot: cython.Py_ssize_t[::1]
    port_out: cython.Py_ssize_t[::1]
    adj_start: cython.Py_ssize_t[::1]
    adj_node: cython.Py_ssize_t[::1]
    adj_level: cython.Py_ssize_t[::1]
    adj_out: cython.double[::1]
    adj_in: cython.double[::1]
    s_per_byte: cython.double[::1]
    floor_s: cython.double[::1]
    ceiling_s: cython.double[::1]
    weight: cython.double[::1]
    price_s: cython.double[::1]
    fixed_s: cython.double


@cython.dataclasses.dataclass(repr=False, eq=False)
@cython.cclass
class State:
    """State of a run, which it changes.

    :ivar block_s: the largest of each block of ports, per level.
    :ivar priced_s: price of all bytes, and its change by the move.
    :ivar counts: ports touched, nodes in the move, moves made, work done.
    """

    assign: cython.Py_ssize_t[::1]
    best: cython.Py_ssize_t[::1]
    free: cython.double[::1]
    load: cython.double[::1]
    power_sum: cython.double[::1]
    power_top: cython.double[::1]
    delta: cython.double[::1]
    scale: cython.double[::1]
    top_s: cython.double[::1]
    top_port: cython.Py_ssize_t[::1]
    block_stale: cython.Py_ssize_t[::1]
    block_s: cython.double[::1]
    block_port: cython.Py_ssize_t[::1]
    members: cython.Py_ssize_t[::1]
    n_members: cython.Py_ssize_t[::1]
    place: cython.Py_ssize_t[::1]
    touched: cython.Py_ssize_t[::1]
    mark: cython.Py_ssize_t[::1]
    saved: cython.double[::1]
    level_work: cython.double[::1]
    move_node: cython.Py_ssize_t[::1]
    move_from: cython.Py_ssize_t[::1]
    move_to: cython.Py_ssize_t[::1]
    priced_s: cython.double[::1]
    counts: cython.Py_ssize_t[::1]
    random: cython.Py_ssize_t[::1]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def draw(s: State, limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Draw an integer in [0, limit) from a 32-bit xorshift, portably."""
    x = s.random[0]
    x ^= (x << 13) & WORD
    x ^= x >> 17
    x ^= (x << 5) & WORD
    s.random[0] = x
    return (x * limit) >> 32


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def power_of(x: cython.double, power: cython.Py_ssize_t) -> cython.double:
    """Compute x ** (2 ** power) by repeated squaring."""
    for _ in range(power):
        x = x * x
    return x


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def root_of(x: cython.double, power: cython.Py_ssize_t) -> cython.double:
    """Compute the inverse of :func:`power_of`, by repeated square roots."""
    for _ in range(power):
        x = math.sqrt(x)
    return x


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def touch(g: Graph, s: State, port: cython.Py_ssize_t) -> cython.void:
    """Remember a port's loads before they change."""
    if s.mark[port] == 0:
        count = s.counts[0]
        s.mark[port] = 1
        s.touched[count] = port
        for k in range(g.n_levels):
            s.saved[count * g.n_levels + k] = s.load[port * g.n_levels + k]
        s.counts[0] = count + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add(g: Graph, s: State, port: cython.Py_ssize_t, level: cython.Py_ssize_t,
        size_bytes: cython.double) -> cython.void:
    touch(g, s, port)
    for k in range(level, g.n_levels):
        s.load[port * g.n_levels + k] += size_bytes


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def shift(g: Graph, s: State, node: cython.Py_ssize_t, b: cython.Py_ssize_t
          ) -> cython.void:
    """Move a node to host b in the loads only."""
    a = s.assign[node]
    first = g.adj_start[node]
    last = g.adj_start[node + 1]
    if g.pipe:
        s.counts[3] += 2 * ARC * (last - first)
        shift_pairs(g, s, node, a, b)
    for row in range(g.n_rows):
        if row and g.port_out[row * g.n_hosts + a] == g.port_out[
                row * g.n_hosts + b]:
            continue
        if g.n_levels == 1:
            s.counts[3] += ARC * (last - first) + (0 if row else SHIFT)
            shift_row(g, s, row, first, last, a, b)
        else:
            s.counts[3] += 4 * g.n_levels + ARC * (last - first) + (
                0 if row else SHIFT)
            shift_levels(g, s, row, first, last, a, b)
    s.assign[node] = b


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def shift_row(g: Graph, s: State, row: cython.Py_ssize_t,
              first: cython.Py_ssize_t, last: cython.Py_ssize_t,
              a: cython.Py_ssize_t, b: cython.Py_ssize_t) -> cython.void:
    """Shift a node's bytes between two hosts, or their subtrees, at one level.
    """
    part = row * g.n_hosts
    behind = g.n_uplinks if row else g.n_hosts
    u = g.port_out[part + a]
    v = g.port_out[part + b]
    out_a = 0.0
    in_a = 0.0
    out_b = 0.0
    in_b = 0.0
    for e in range(first, last):
        w = g.port_out[part + s.assign[g.adj_node[e]]]
        out = g.adj_out[e]
        into = g.adj_in[e]
        if w == u:
            in_a += out
            out_a += into
        else:
            out_a -= out
            in_a -= into
        if w == v:
            in_b -= out
            out_b -= into
        else:
            out_b += out
            in_b += into
    if u >= 0:
        touch(g, s, u)
        s.load[u] += out_a
        touch(g, s, u + behind)
        s.load[u + behind] += in_a
    if v >= 0:
        touch(g, s, v)
        s.load[v] += out_b
        touch(g, s, v + behind)
        s.load[v + behind] += in_b


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def shift_levels(g: Graph, s: State, row: cython.Py_ssize_t,
                 first: cython.Py_ssize_t, last: cython.Py_ssize_t,
                 a: cython.Py_ssize_t, b: cython.Py_ssize_t) -> cython.void:
    """Shift a node's bytes as :func:`shift_row` does, at several levels."""
    kk = g.n_levels
    part = row * g.n_hosts
    behind = g.n_uplinks if row else g.n_hosts
    u = g.port_out[part + a]
    v = g.port_out[part + b]
    for k in range(4 * kk):
        s.level_work[k] = 0.0
    for e in range(first, last):
        w = g.port_out[part + s.assign[g.adj_node[e]]]
        k = g.adj_level[e]
        out = g.adj_out[e]
        into = g.adj_in[e]
        if w == u:
            s.level_work[kk + k] += out
            s.level_work[k] += into
        else:
            s.level_work[k] -= out
            s.level_work[kk + k] -= into
        if w == v:
            s.level_work[3 * kk + k] -= out
            s.level_work[2 * kk + k] -= into
        else:
            s.level_work[2 * kk + k] += out
            s.level_work[3 * kk + k] += into
    for q in range(4):
        port = u if q < 2 else v
        if port < 0:
            continue
        port += (q & 1) * behind
        touch(g, s, port)
        total = 0.0
        for k in range(kk):
            total += s.level_work[q * kk + k]
            s.load[port * kk + k] += total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def shift_pairs(g: Graph, s: State, node: cython.Py_ssize_t,
                a: cython.Py_ssize_t, b: cython.Py_ssize_t) -> cython.void:
    """Shift a node's bytes on the pairs of hosts that they pass."""
    m = g.n_hosts
    pairs = 2 * (m + g.n_uplinks)
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        h = s.assign[g.adj_node[e]]
        k = g.adj_level[e]
        out = g.adj_out[e]
        into = g.adj_in[e]
        if out > 0:
            if h != a:
                add(g, s, pairs + a * m + h, k, -out)
            if h != b:
                add(g, s, pairs + b * m + h, k, out)
        if into > 0:
            if h != a:
                add(g, s, pairs + h * m + a, k, -into)
            if h != b:
                add(g, s, pairs + h * m + b, k, into)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def revert(g: Graph, s: State) -> cython.void:
    """Undo all loads since the journal was opened."""
    for i in range(s.counts[0]):
        port = s.touched[i]
        s.mark[port] = 0
        for k in range(g.n_levels):
            s.load[port * g.n_levels + k] = s.saved[i * g.n_levels + k]
    s.counts[0] = 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_top(g: Graph, s: State, k: cython.Py_ssize_t) -> cython.void:
    """Find the level's maximum and its port, in blocks that changed."""
    kk = g.n_levels
    top = g.floor_s[k]
    where: cython.Py_ssize_t = -1
    for i in range((g.n_ports + BLOCK - 1) // BLOCK):
        block = i * kk + k
        if s.block_stale[block]:
            s.block_stale[block] = 0
            most = 0.0
            at: cython.Py_ssize_t = -1
            for port in range(i * BLOCK, min((i + 1) * BLOCK, g.n_ports)):
                x = s.load[port * kk + k] * g.s_per_byte[port]
                if x > most:
                    most = x
                    at = port
            s.block_s[block] = most
            s.block_port[block] = at
        if s.block_s[block] > top:
            top = s.block_s[block]
            where = s.block_port[block]
    s.top_s[k] = top
    s.top_port[k] = where


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def refresh(g: Graph, s: State, power: cython.Py_ssize_t) -> cython.void:
    """Recompute scales, sums of powers and true maxima from the loads."""
    kk = g.n_levels
    s.counts[3] += REFRESH * kk * g.n_ports
    for i in range(len(s.block_stale)):
        s.block_stale[i] = 1
    for k in range(kk):
        find_top(g, s, k)
        top = s.top_s[k]
        s.scale[k] = top if top > 0 and power > 0 else 1.0
        total = power_of(g.floor_s[k] / s.scale[k], power)
        for port in range(g.n_ports):
            x = s.load[port * kk + k]
            if x > 0:
                total += power_of(
                    x * g.s_per_byte[port] / s.scale[k], power)
        s.power_sum[k] = total
        s.power_top[k] = total
    s.priced_s[0] = 0.0
    for port in range(g.n_ports):
        s.priced_s[0] += s.load[port * kk + kk - 1] * g.price_s[port]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def smooth_cost(g: Graph, s: State, power: cython.Py_ssize_t) -> cython.double:
    """Compute the objective with smoothed maxima, in seconds."""
    total = s.priced_s[0]
    for k in range(g.n_levels):
        total += g.weight[k] * s.scale[k] * root_of(s.power_sum[k], power)
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def true_cost(g: Graph, s: State) -> cython.double:
    """Compute the objective with the true maxima, in seconds."""
    total = s.priced_s[0]
    for k in range(g.n_levels):
        total += g.weight[k] * s.top_s[k]
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def changed_cost(g: Graph, s: State, power: cython.Py_ssize_t
                 ) -> cython.double:
    """Compute the smoothed cost of the touched ports; fill the changes.

    Infinite when a port would exceed its level's ceiling.
    """
    kk = g.n_levels
    last = kk - 1
    s.counts[3] += PORT * s.counts[0] * kk
    change = 0.0
    for i in range(s.counts[0]):
        port = s.touched[i]
        change += g.price_s[port] * (
            s.load[port * kk + last] - s.saved[i * kk + last])
    s.priced_s[1] = change
    total = s.priced_s[0] + change
    for k in range(kk):
        change = 0.0
        for i in range(s.counts[0]):
            port = s.touched[i]
            factor = g.s_per_byte[port] / s.scale[k]
            x = s.load[port * kk + k] * factor
            if x > 0:
                if x * s.scale[k] > g.ceiling_s[k]:
                    return INFINITE
                change += power_of(x, power)
            x = s.saved[i * kk + k] * factor
            if x > 0:
                change -= power_of(x, power)
        s.delta[k] = change
        value = s.power_sum[k] + change
        if value > 0:
            total += g.weight[k] * s.scale[k] * root_of(value, power)
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def settle(g: Graph, s: State, power: cython.Py_ssize_t) -> cython.void:
    """Make the touched loads the state: sums, maxima, members."""
    kk = g.n_levels
    s.counts[3] += SETTLE * kk
    s.priced_s[0] += s.priced_s[1]
    stale = False
    for k in range(kk):
        s.power_sum[k] += s.delta[k]
        if s.power_sum[k] <= CANCELLATION * s.power_top[k]:
            stale = True
        rescan = False
        for i in range(s.counts[0]):
            port = s.touched[i]
            s.block_stale[(port // BLOCK) * kk + k] = 1
            x = s.load[port * kk + k] * g.s_per_byte[port]
            if x > s.top_s[k]:
                s.top_s[k] = x
                s.top_port[k] = port
            elif port == s.top_port[k] and x < s.top_s[k]:
                rescan = True
        if rescan:
            find_top(g, s, k)
    for i in range(s.counts[0]):
        s.mark[s.touched[i]] = 0
    s.counts[0] = 0
    for i in range(s.counts[1]):
        enlist(g, s, s.move_node[i], s.move_from[i], s.move_to[i])
    if stale:
        refresh(g, s, power)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def enlist(g: Graph, s: State, node: cython.Py_ssize_t, a: cython.Py_ssize_t,
           b: cython.Py_ssize_t) -> cython.void:
    """Keep the list of movable nodes per host."""
    last = s.members[a * g.n + s.n_members[a] - 1]
    s.members[a * g.n + s.place[node]] = last
    s.place[last] = s.place[node]
    s.n_members[a] -= 1
    s.members[b * g.n + s.n_members[b]] = node
    s.place[node] = s.n_members[b]
    s.n_members[b] += 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def propose(g: Graph, s: State, node: cython.Py_ssize_t, b: cython.Py_ssize_t
            ) -> cython.bint:
    """Put one more node into the move; False when it may not go there."""
    a = s.assign[node]
    if a == b or g.allowed[node * g.n_hosts + b] == 0:
        return False
    count = s.counts[1]
    if count >= len(s.move_node):
        return False
    for i in range(count):
        if s.move_node[i] == node:
            return False
    s.move_node[count] = node
    s.move_from[count] = a
    s.move_to[count] = b
    for r in range(g.n_resources):
        need = g.demand[node * g.n_resources + r]
        s.free[g.slot[a * g.n_resources + r]] += need
        s.free[g.slot[b * g.n_resources + r]] -= need
    s.counts[1] = count + 1
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def withdraw(g: Graph, s: State) -> cython.void:
    """Give the capacity of the proposed move back."""
    for i in range(s.counts[1]):
        node = s.move_node[i]
        a = s.move_from[i]
        b = s.move_to[i]
        for r in range(g.n_resources):
            need = g.demand[node * g.n_resources + r]
            s.free[g.slot[a * g.n_resources + r]] -= need
            s.free[g.slot[b * g.n_resources + r]] += need
    s.counts[1] = 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def has_room(g: Graph, s: State, host: cython.Py_ssize_t) -> cython.bint:
    """Tell whether no resource of the host is used beyond its capacity."""
    for r in range(g.n_resources):
        if s.free[g.slot[host * g.n_resources + r]] < 0:
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fits(g: Graph, s: State) -> cython.bint:
    for i in range(s.counts[1]):
        if not has_room(g, s, s.move_to[i]):
            return False
        if not has_room(g, s, s.move_from[i]):
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pick_node(g: Graph, s: State) -> cython.Py_ssize_t:
    """Draw a node, half of the time one on a bottleneck's host."""
    if draw(s, 2) == 0:
        k = 0 if g.n_levels == 1 else draw(s, g.n_levels)
        port = s.top_port[k]
        m = g.n_hosts
        host = -1
        if 0 <= port < 2 * m:
            host = port % m
        elif port >= 2 * (m + g.n_uplinks):
            pair = port - 2 * (m + g.n_uplinks)
            host = pair // m if draw(s, 2) == 0 else pair % m
        elif port >= 2 * m:
            return pick_below(g, s, 2 * m + (port - 2 * m) % g.n_uplinks)
        if host >= 0 and s.n_members[host] > 0:
            return s.members[host * g.n + draw(s, s.n_members[host])]
    return g.movable[draw(s, len(g.movable))]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pick_below(g: Graph, s: State, port: cython.Py_ssize_t
               ) -> cython.Py_ssize_t:
    """Draw a node in an uplink's subtree, or any after some trials."""
    node: cython.Py_ssize_t = 0
    for _ in range(4):
        node = g.movable[draw(s, len(g.movable))]
        for row in range(1, g.n_rows):
            if g.port_out[row * g.n_hosts + s.assign[node]] == port:
                return node
    return node


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pick_target(g: Graph, s: State, node: cython.Py_ssize_t
                ) -> cython.Py_ssize_t:
    """Draw a host, 60 % of the time that of a neighbour.

    With a tree, half of the other times one in the neighbour's subtree.
    """
    first = g.adj_start[node]
    degree = g.adj_start[node + 1] - first
    if degree == 0:
        return draw(s, g.n_hosts)
    kind = draw(s, 10)
    if kind < 6:
        return s.assign[g.adj_node[first + draw(s, degree)]]
    host = draw(s, g.n_hosts)
    if g.n_rows > 1 and kind < 8:
        near = s.assign[g.adj_node[first + draw(s, degree)]]
        row = (1 + draw(s, g.n_rows - 1)) * g.n_hosts
        for _ in range(4):
            if g.port_out[row + host] == g.port_out[row + near]:
                break
            host = draw(s, g.n_hosts)
    return host


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add_block(g: Graph, s: State, node: cython.Py_ssize_t,
              b: cython.Py_ssize_t) -> cython.void:
    """Take 1 to 3 co-located neighbours along."""
    a = s.assign[node]
    first = g.adj_start[node]
    degree = g.adj_start[node + 1] - first
    if degree == 0:
        return
    for _ in range(1 + draw(s, 3)):
        other = g.adj_node[first + draw(s, degree)]
        if s.assign[other] == a and s.place[other] >= 0:
            propose(g, s, other, b)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pick_sharing(g: Graph, s: State, host: cython.Py_ssize_t
                 ) -> cython.Py_ssize_t:
    """Draw a node that takes of the shared resource a host lacks, or -1."""
    for r in range(g.n_own, g.n_resources):
        slot = g.slot[host * g.n_resources + r]
        if s.free[slot] >= 0:
            continue
        first = draw(s, len(g.movable))
        for i in range(len(g.movable)):
            node = g.movable[(first + i) % len(g.movable)]
            if g.slot[s.assign[node] * g.n_resources + r] == slot and (
                    g.demand[node * g.n_resources + r] > 0):
                return node
    return -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def eject(g: Graph, s: State, a: cython.Py_ssize_t, b: cython.Py_ssize_t
          ) -> cython.void:
    """Send random nodes of b away until it has room; most go to a.

    Where b lacks a shared resource, nodes of the hosts that share it.
    """
    for _ in range(4):
        if has_room(g, s, b):
            return
        victim = pick_sharing(g, s, b)
        # Mostly one of b itself, so that no third host has to pay.
        if victim < 0 or (s.n_members[b] > 0 and draw(s, 16) > 0):
            if s.n_members[b] == 0:
                return
            victim = s.members[b * g.n + draw(s, s.n_members[b])]
        target = a
        if draw(s, 4) == 0:
            target = draw(s, g.n_hosts)
        propose(g, s, victim, target)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def exchange_hosts(g: Graph, s: State, a: cython.Py_ssize_t,
                   b: cython.Py_ssize_t) -> cython.void:
    """Swap everything movable of two hosts."""
    if s.n_members[a] + s.n_members[b] > len(s.move_node):
        return
    for i in range(s.n_members[a]):
        propose(g, s, s.members[a * g.n + i], b)
    for i in range(s.n_members[b]):
        propose(g, s, s.members[b * g.n + i], a)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def draw_move(g: Graph, s: State) -> cython.bint:
    """Fill the move; True when it keeps every hard constraint."""
    s.counts[1] = 0
    node = pick_node(g, s)
    a = s.assign[node]
    b = pick_target(g, s, node)
    if a == b:
        return False
    kind = draw(s, 100)
    if kind < 5:
        exchange_hosts(g, s, a, b)
    else:
        if not propose(g, s, node, b):
            return False
        if kind < 25:
            add_block(g, s, node, b)
        if kind >= 75 and s.n_members[b] > 0:
            other = s.members[b * g.n + draw(s, s.n_members[b])]
            propose(g, s, other, a)
        if not has_room(g, s, b):
            eject(g, s, a, b)
    if s.counts[1] > 0 and fits(g, s):
        return True
    withdraw(g, s)
    return False


def anneal(g: Graph, s: State, power: cython.Py_ssize_t,
           moves: cython.Py_ssize_t, hot: cython.double, cold: cython.double,
           best_s: cython.double, enough_s: cython.double,
           most: cython.double) -> float:
    """Make some moves from s.assign; s.best holds the best seen.

    How many were made and what they cost is in s.counts.

    :param hot: temperature at the first move, relative to best_s - g.fixed_s.
    :param cold: temperature at the last move.
    :param best_s: objective of s.best in this order of coflows.
    :param enough_s: stop when best_s gets there.
    :param most: units of work, beside adding up, after which it stops.
    :returns: objective of s.best afterwards.
    """
    with cython.nogil:
        s.counts[2] = 0
        s.counts[3] = 0
        refresh(g, s, power)
        cost = smooth_cost(g, s, power)
        now_s = true_cost(g, s) if power > 0 else cost
        if now_s < best_s:
            best_s = now_s
            for node in range(g.n):
                s.best[node] = s.assign[node]
        most += s.counts[3]
        step = 1.0
        if moves > 1 and cold > 0:
            step = math.exp(math.log(cold / hot) / (moves - 1))
        heat = hot
        for i in range(moves):
            if best_s <= enough_s or s.counts[3] >= most:
                break
            s.counts[2] += 1
            s.counts[3] += DRAW
            if i % RECOMPUTE_EVERY == RECOMPUTE_EVERY - 1:
                refresh(g, s, power)
                cost = smooth_cost(g, s, power)
            heat *= step
            if not draw_move(g, s):
                continue
            for j in range(s.counts[1]):
                shift(g, s, s.move_node[j], s.move_to[j])
            new = changed_cost(g, s, power)
            if new > cost:
                limit = heat * max(best_s - g.fixed_s, 1e-6 * best_s)
                chance = 0.0
                if limit > 0 and new < INFINITE:
                    chance = math.exp((cost - new) / limit)
                if (draw(s, 1 << 24) + 1.0) / (1 << 24) >= chance:
                    revert(g, s)
                    for j in range(s.counts[1]):
                        s.assign[s.move_node[j]] = s.move_from[j]
                    withdraw(g, s)
                    continue
            settle(g, s, power)
            cost = smooth_cost(g, s, power)
            now_s = true_cost(g, s) if power > 0 else cost
            if now_s < best_s:
                best_s = now_s
                for node in range(g.n):
                    s.best[node] = s.assign[node]
    return best_s
