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

"""The local search kernel: annealing over placements on a smoothed maximum.

One run holds a coflow order fixed. *Levels* are the prefixes of that order
from the first own coflow on: level k holds the bytes of all coflows up to
there, and the objective is the sum over levels of w_k max_port load x time
per byte. With one level this is VirtCO Eq. (3). The maximum is smoothed to
a p-norm with p = 2 ** power (power 0: the plain sum, for min-cut). A byte
may have a price, too, on every port that it passes.

Everything is one-dimensional: ``load[port * K + level]``,
``demand[node * R + r]``, ``free[host * R + r]``. See
:mod:`virtco.solver.localsearch` for the caller and
:mod:`virtco.solver.compiled` for why.
"""

import math
from typing import Any
from typing import NamedTuple

from virtco.solver import compiled

MAX_MOVE_NODES = 64
RECOMPUTE_EVERY = 2048
#: A level's sum of powers is added up anew when it falls to this fraction
#: of what it was, before cancellation eats its digits.
CANCELLATION = 1e-6


class Graph(NamedTuple):
    """What a run reads; n nodes, M hosts, R resources, P ports, K levels.

    :ivar floor_s: per level, what its maximum is at least.
    :ivar ceiling_s: per level, what no port may exceed by a move.
    :ivar price_s: what a byte on a port adds to the objective.
    """

    n: int
    n_hosts: int
    n_resources: int
    n_racks: int
    n_ports: int
    n_levels: int
    pipe: int
    movable: Any
    demand: Any
    allowed: Any
    rack_of: Any
    adj_start: Any
    adj_node: Any
    adj_level: Any
    adj_out: Any
    adj_in: Any
    s_per_byte: Any
    base: Any
    floor_s: Any
    ceiling_s: Any
    weight: Any
    price_s: Any


class State(NamedTuple):
    """What a run writes.

    :ivar priced_s: price of all bytes, and its change by the move.
    """

    assign: Any
    best: Any
    free: Any
    load: Any
    power_sum: Any
    power_top: Any
    delta: Any
    scale: Any
    top_s: Any
    top_port: Any
    members: Any
    n_members: Any
    place: Any
    touched: Any
    mark: Any
    saved: Any
    level_work: Any
    move_node: Any
    move_from: Any
    move_to: Any
    priced_s: Any
    counts: Any
    random: Any


@compiled.jit
def draw(random: Any, limit: int) -> int:
    """Integer in [0, limit) from a 32-bit xorshift; the same everywhere."""
    x = random[0]
    x ^= (x << 13) & 0xFFFFFFFF
    x ^= x >> 17
    x ^= (x << 5) & 0xFFFFFFFF
    random[0] = x
    return (x * limit) >> 32


@compiled.jit
def power_of(x: float, power: int) -> float:
    for _ in range(power):
        x = x * x
    return x


@compiled.jit
def root_of(x: float, power: int) -> float:
    for _ in range(power):
        x = math.sqrt(x)
    return x


@compiled.jit
def touch(g: Graph, s: State, port: int) -> None:
    """Remember a port's loads before they change."""
    if s.mark[port] == 0:
        count = s.counts[0]
        s.mark[port] = 1
        s.touched[count] = port
        for k in range(g.n_levels):
            s.saved[count * g.n_levels + k] = s.load[port * g.n_levels + k]
        s.counts[0] = count + 1


@compiled.jit
def add(g: Graph, s: State, port: int, level: int, size_bytes: float) -> None:
    touch(g, s, port)
    for k in range(level, g.n_levels):
        s.load[port * g.n_levels + k] += size_bytes


@compiled.jit
def add_path(g: Graph, s: State, src: int, dst: int, level: int,
             size_bytes: float) -> None:
    """Bytes on the ports of a path, without the hose ports."""
    if src == dst:
        return
    m = g.n_hosts
    if g.n_racks > 0 and g.rack_of[src] != g.rack_of[dst]:
        if g.rack_of[src] >= 0:
            add(g, s, 2 * m + g.rack_of[src], level, size_bytes)
        if g.rack_of[dst] >= 0:
            add(g, s, 2 * m + g.n_racks + g.rack_of[dst], level, size_bytes)
    if g.pipe:
        add(g, s, 2 * m + 2 * g.n_racks + src * m + dst, level, size_bytes)


@compiled.jit
def shift(g: Graph, s: State, node: int, b: int) -> None:
    """Move a node to host b in the loads only."""
    a = s.assign[node]
    m = g.n_hosts
    kk = g.n_levels
    work = s.level_work
    for k in range(4 * kk):
        work[k] = 0.0
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        h = s.assign[g.adj_node[e]]
        k = g.adj_level[e]
        out = g.adj_out[e]
        into = g.adj_in[e]
        if h == a:
            work[kk + k] += out
            work[k] += into
        else:
            work[k] -= out
            work[kk + k] -= into
        if h == b:
            work[3 * kk + k] -= out
            work[2 * kk + k] -= into
        else:
            work[2 * kk + k] += out
            work[3 * kk + k] += into
        if g.n_racks > 0 or g.pipe:
            if out > 0:
                add_path(g, s, a, h, k, -out)
                add_path(g, s, b, h, k, out)
            if into > 0:
                add_path(g, s, h, a, k, -into)
                add_path(g, s, h, b, k, into)
    for q in range(4):
        port = a if q == 0 else m + a if q == 1 else b if q == 2 else m + b
        touch(g, s, port)
        total = 0.0
        for k in range(kk):
            total += work[q * kk + k]
            s.load[port * kk + k] += total
    s.assign[node] = b


@compiled.jit
def revert(g: Graph, s: State) -> None:
    """Undo all loads since the journal was opened."""
    for i in range(s.counts[0]):
        port = s.touched[i]
        s.mark[port] = 0
        for k in range(g.n_levels):
            s.load[port * g.n_levels + k] = s.saved[i * g.n_levels + k]
    s.counts[0] = 0


@compiled.jit
def refresh(g: Graph, s: State, power: int) -> None:
    """Scales, sums of powers and true maxima from the loads."""
    kk = g.n_levels
    for k in range(kk):
        top = g.floor_s[k]
        where = -1
        for port in range(g.n_ports):
            x = s.load[port * kk + k] * g.s_per_byte[port]
            if x > top:
                top = x
                where = port
        s.top_s[k] = top
        s.top_port[k] = where
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


@compiled.jit
def smooth_cost(g: Graph, s: State, power: int) -> float:
    total = s.priced_s[0]
    for k in range(g.n_levels):
        total += g.weight[k] * s.scale[k] * root_of(s.power_sum[k], power)
    return total


@compiled.jit
def true_cost(g: Graph, s: State) -> float:
    total = s.priced_s[0]
    for k in range(g.n_levels):
        total += g.weight[k] * s.top_s[k]
    return total


@compiled.jit
def changed_cost(g: Graph, s: State, power: int) -> float:
    """Smoothed cost with the touched ports' new loads; fills the changes.

    Infinite when a port would exceed its level's ceiling.
    """
    kk = g.n_levels
    last = kk - 1
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
                    return math.inf
                change += power_of(x, power)
            x = s.saved[i * kk + k] * factor
            if x > 0:
                change -= power_of(x, power)
        s.delta[k] = change
        value = s.power_sum[k] + change
        if value > 0:
            total += g.weight[k] * s.scale[k] * root_of(value, power)
    return total


@compiled.jit
def settle(g: Graph, s: State, power: int) -> None:
    """Make the touched loads the state: sums, maxima, members."""
    kk = g.n_levels
    s.priced_s[0] += s.priced_s[1]
    stale = False
    for k in range(kk):
        s.power_sum[k] += s.delta[k]
        if s.power_sum[k] <= CANCELLATION * s.power_top[k]:
            stale = True
        rescan = False
        for i in range(s.counts[0]):
            port = s.touched[i]
            x = s.load[port * kk + k] * g.s_per_byte[port]
            if x > s.top_s[k]:
                s.top_s[k] = x
                s.top_port[k] = port
            elif port == s.top_port[k] and x < s.top_s[k]:
                rescan = True
        if rescan:
            top = g.floor_s[k]
            where = -1
            for port in range(g.n_ports):
                x = s.load[port * kk + k] * g.s_per_byte[port]
                if x > top:
                    top = x
                    where = port
            s.top_s[k] = top
            s.top_port[k] = where
    for i in range(s.counts[0]):
        s.mark[s.touched[i]] = 0
    s.counts[0] = 0
    for i in range(s.counts[1]):
        enlist(g, s, s.move_node[i], s.move_from[i], s.move_to[i])
    if stale:
        refresh(g, s, power)


@compiled.jit
def enlist(g: Graph, s: State, node: int, a: int, b: int) -> None:
    """Keep the list of movable nodes per host."""
    last = s.members[a * g.n + s.n_members[a] - 1]
    s.members[a * g.n + s.place[node]] = last
    s.place[last] = s.place[node]
    s.n_members[a] -= 1
    s.members[b * g.n + s.n_members[b]] = node
    s.place[node] = s.n_members[b]
    s.n_members[b] += 1


@compiled.jit
def set_up(g: Graph, s: State, power: int) -> None:
    """Loads, members and sums of the assignment in the state."""
    kk = g.n_levels
    for i in range(g.n_ports * kk):
        s.load[i] = g.base[i]
    for port in range(g.n_ports):
        s.mark[port] = 0
    s.counts[0] = 0
    for node in range(g.n):
        a = s.assign[node]
        for e in range(g.adj_start[node], g.adj_start[node + 1]):
            h = s.assign[g.adj_node[e]]
            out = g.adj_out[e]
            if h != a and out > 0:
                k = g.adj_level[e]
                add(g, s, a, k, out)
                add(g, s, g.n_hosts + h, k, out)
                add_path(g, s, a, h, k, out)
    for i in range(s.counts[0]):
        s.mark[s.touched[i]] = 0
    s.counts[0] = 0
    for host in range(g.n_hosts):
        s.n_members[host] = 0
    for i in range(len(g.movable)):
        node = g.movable[i]
        host = s.assign[node]
        s.members[host * g.n + s.n_members[host]] = node
        s.place[node] = s.n_members[host]
        s.n_members[host] += 1
    refresh(g, s, power)


@compiled.jit
def propose(g: Graph, s: State, node: int, b: int) -> bool:
    """Put one more node into the move; False when it may not go there."""
    a = s.assign[node]
    if a == b or g.allowed[node * g.n_hosts + b] == 0:
        return False
    count = s.counts[1]
    if count >= MAX_MOVE_NODES:
        return False
    for i in range(count):
        if s.move_node[i] == node:
            return False
    s.move_node[count] = node
    s.move_from[count] = a
    s.move_to[count] = b
    for r in range(g.n_resources):
        need = g.demand[node * g.n_resources + r]
        s.free[a * g.n_resources + r] += need
        s.free[b * g.n_resources + r] -= need
    s.counts[1] = count + 1
    return True


@compiled.jit
def withdraw(g: Graph, s: State) -> None:
    """Give the capacity of the proposed move back."""
    for i in range(s.counts[1]):
        node = s.move_node[i]
        a = s.move_from[i]
        b = s.move_to[i]
        for r in range(g.n_resources):
            need = g.demand[node * g.n_resources + r]
            s.free[a * g.n_resources + r] -= need
            s.free[b * g.n_resources + r] += need
    s.counts[1] = 0


@compiled.jit
def has_room(g: Graph, s: State, host: int) -> bool:
    for r in range(g.n_resources):
        if s.free[host * g.n_resources + r] < 0:
            return False
    return True


@compiled.jit
def fits(g: Graph, s: State) -> bool:
    for i in range(s.counts[1]):
        if not has_room(g, s, s.move_to[i]):
            return False
        if not has_room(g, s, s.move_from[i]):
            return False
    return True


@compiled.jit
def pick_node(g: Graph, s: State) -> int:
    """A node; half of the time one on a bottleneck's host."""
    if draw(s.random, 2) == 0:
        k = 0 if g.n_levels == 1 else draw(s.random, g.n_levels)
        port = s.top_port[k]
        m = g.n_hosts
        host = -1
        if 0 <= port < 2 * m:
            host = port % m
        elif port >= 2 * m + 2 * g.n_racks:
            pair = port - 2 * m - 2 * g.n_racks
            host = pair // m if draw(s.random, 2) == 0 else pair % m
        if host >= 0 and s.n_members[host] > 0:
            return s.members[host * g.n + draw(s.random, s.n_members[host])]
    return g.movable[draw(s.random, len(g.movable))]


@compiled.jit
def pick_target(g: Graph, s: State, node: int) -> int:
    """A host; 60 % of the time that of a neighbour."""
    first = g.adj_start[node]
    degree = g.adj_start[node + 1] - first
    if degree > 0 and draw(s.random, 10) < 6:
        return s.assign[g.adj_node[first + draw(s.random, degree)]]
    return draw(s.random, g.n_hosts)


@compiled.jit
def add_block(g: Graph, s: State, node: int, b: int) -> None:
    """Take 1 to 3 co-located neighbours along."""
    a = s.assign[node]
    first = g.adj_start[node]
    degree = g.adj_start[node + 1] - first
    if degree == 0:
        return
    for _ in range(1 + draw(s.random, 3)):
        other = g.adj_node[first + draw(s.random, degree)]
        if s.assign[other] == a and s.place[other] >= 0:
            propose(g, s, other, b)


@compiled.jit
def eject(g: Graph, s: State, a: int, b: int) -> None:
    """Send random nodes of b away until it has room; most go to a."""
    for _ in range(4):
        if has_room(g, s, b):
            return
        if s.n_members[b] == 0:
            return
        victim = s.members[b * g.n + draw(s.random, s.n_members[b])]
        target = a
        if draw(s.random, 4) == 0:
            target = draw(s.random, g.n_hosts)
        propose(g, s, victim, target)


@compiled.jit
def exchange_hosts(g: Graph, s: State, a: int, b: int) -> None:
    """Swap everything movable of two hosts."""
    if a == b or s.n_members[a] + s.n_members[b] > MAX_MOVE_NODES:
        return
    for i in range(s.n_members[a]):
        propose(g, s, s.members[a * g.n + i], b)
    for i in range(s.n_members[b]):
        propose(g, s, s.members[b * g.n + i], a)


@compiled.jit
def draw_move(g: Graph, s: State) -> bool:
    """Fill the move; True when it keeps every hard constraint."""
    s.counts[1] = 0
    node = pick_node(g, s)
    a = s.assign[node]
    b = pick_target(g, s, node)
    if a == b:
        return False
    kind = draw(s.random, 100)
    if kind < 5:
        exchange_hosts(g, s, a, b)
    else:
        if not propose(g, s, node, b):
            return False
        if kind < 25:
            add_block(g, s, node, b)
        if kind >= 75 and s.n_members[b] > 0:
            other = s.members[b * g.n + draw(s.random, s.n_members[b])]
            propose(g, s, other, a)
        if not has_room(g, s, b):
            eject(g, s, a, b)
    if s.counts[1] > 0 and fits(g, s):
        return True
    withdraw(g, s)
    return False


@compiled.jit
def anneal(g: Graph, s: State, power: int, moves: int, hot: float, cold: float,
           best_s: float, fixed_s: float, enough_s: float) -> float:
    """Make some moves from s.assign; s.best holds the best seen.

    :param hot: temperature at the first move, relative to best_s - fixed_s.
    :param cold: temperature at the last move.
    :param best_s: objective of s.best in this order of coflows.
    :param fixed_s: part of the objective that no move can change.
    :param enough_s: stop when best_s gets there.
    :returns: objective of s.best afterwards.
    """
    set_up(g, s, power)
    cost = smooth_cost(g, s, power)
    now_s = true_cost(g, s) if power > 0 else cost
    if now_s < best_s:
        best_s = now_s
        for node in range(g.n):
            s.best[node] = s.assign[node]
    step = 1.0
    if moves > 1 and cold > 0:
        step = math.exp(math.log(cold / hot) / (moves - 1))
    heat = hot
    for i in range(moves):
        if best_s <= enough_s:
            break
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
            limit = heat * max(best_s - fixed_s, 1e-6 * best_s)
            chance = 0.0
            if limit > 0 and new < math.inf:
                chance = math.exp((cost - new) / limit)
            if (draw(s.random, 1 << 24) + 1) / (1 << 24) >= chance:
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
