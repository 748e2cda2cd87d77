# SPDX-License-Identifier: Apache-2.0

"""Kernel that places nodes one after another on every host.

A port may have less than its limit of bytes, which falls with every better
placement. Loads only grow on the way. So a host that a node cannot take
beside those placed before it stays closed to it further down, and a node
without an open host ends the branch, however early that shows. With pipes, a
host is closed, too, that does not hold the node with all others that it draws
there, since no pair of hosts carries the bytes between them and it. The node
with the fewest open hosts for its weight is placed next, on the host that
leaves its ports idlest first. A node weighs its bytes, and as much again for
each branch that it ended, so that those hard to place come first. Of hosts
that are alike and empty one is tried.
"""

import cython

#: Units of work (:mod:`virtco.solver.budget`) to look at a node and host, for
#: each row of ports that an arc of the node may pass, and for a pair of hosts.
LOOK = cython.declare(cython.double, 12.0)
ARC = cython.declare(cython.double, 8.0)
PAIR = cython.declare(cython.double, 3.0)
#: To copy and count a node and host.
CELL = cython.declare(cython.double, 4.0)


@cython.dataclasses.dataclass(repr=False, eq=False)
@cython.cclass
class Search:
    """Problem and state; n nodes, M hosts, R resources, P ports.

    :ivar n_rows: hosts, then the tiers of subtrees above them.
    :ivar alike: hosts with one number are interchangeable while empty.
    :ivar port_out: ports of an instance, n_rows * M.
    :ivar traffic: bytes of a node both ways.
    :ivar weight: traffic, added once more for each branch that a node ended.
    :ivar limit: bytes of each port.
    :ivar load: bytes of each port by depth, (n + 1) * P.
    :ivar free: free resources by depth, (n + 1) * M * R.
    :ivar extra: bytes of a node on trial, by port; touched: these ports.
    :ivar drawn: nodes that exchange bytes with a set on trial.
    :ivar sent: bytes of that set to each node, -1 for its members; received:
        bytes from each node to it.
    :ivar need: need of that set, by resource.
    :ivar n_on: nodes of every host.
    :ivar near: nodes to be checked on every host.
    :ivar open: whether a node may go to a host, by depth, (n + 1) * n * M.
    :ivar node_at: node that is placed at a depth.
    :ivar best: the best placement; least_s: its time.
    :ivar counts: ports touched, depth, whether that is new, placements found.
    :ivar work: units done.
    """

    n: cython.Py_ssize_t
    n_hosts: cython.Py_ssize_t
    n_resources: cython.Py_ssize_t
    n_uplinks: cython.Py_ssize_t
    n_rows: cython.Py_ssize_t
    n_ports: cython.Py_ssize_t
    pipe: cython.Py_ssize_t
    demand: cython.double[::1]
    slot: cython.Py_ssize_t[::1]
    alike: cython.Py_ssize_t[::1]
    port_out: cython.Py_ssize_t[::1]
    adj_start: cython.Py_ssize_t[::1]
    adj_node: cython.Py_ssize_t[::1]
    adj_out: cython.double[::1]
    adj_in: cython.double[::1]
    traffic: cython.double[::1]
    weight: cython.double[::1]
    s_per_byte: cython.double[::1]
    limit: cython.double[::1]
    load: cython.double[::1]
    free: cython.double[::1]
    extra: cython.double[::1]
    touched: cython.Py_ssize_t[::1]
    drawn: cython.Py_ssize_t[::1]
    sent: cython.double[::1]
    received: cython.double[::1]
    need: cython.double[::1]
    n_on: cython.Py_ssize_t[::1]
    assign: cython.Py_ssize_t[::1]
    near: cython.uchar[::1]
    open: cython.uchar[::1]
    node_at: cython.Py_ssize_t[::1]
    best: cython.Py_ssize_t[::1]
    least_s: cython.double[::1]
    counts: cython.Py_ssize_t[::1]
    work: cython.double[::1]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pass_port(g: Search, port: cython.Py_ssize_t, size: cython.double
              ) -> cython.void:
    """Add bytes on trial to a port; one that had none is now touched."""
    if size > 0:
        if g.extra[port] == 0:
            g.touched[g.counts[0]] = port
            g.counts[0] += 1
        g.extra[port] += size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add_up(g: Search, node: cython.Py_ssize_t, host: cython.Py_ssize_t
           ) -> cython.void:
    """Add up the bytes between a node on a host and placed nodes."""
    m = g.n_hosts
    pairs = 2 * (m + g.n_uplinks)
    g.counts[0] = 0
    g.work[0] += LOOK
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        other = g.assign[g.adj_node[e]]
        if other < 0 or other == host:
            continue
        g.work[0] += ARC * g.n_rows
        out = g.adj_out[e]
        into = g.adj_in[e]
        for row in range(g.n_rows):
            mine = g.port_out[row * m + host]
            its = g.port_out[row * m + other]
            if mine == its:
                continue
            behind = m
            if row > 0:
                behind = g.n_uplinks
            if mine >= 0:
                pass_port(g, mine, out)
                pass_port(g, mine + behind, into)
            if its >= 0:
                pass_port(g, its + behind, out)
                pass_port(g, its, into)
        if g.pipe:
            pass_port(g, pairs + host * m + other, out)
            pass_port(g, pairs + other * m + host, into)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def busiest(g: Search, depth: cython.Py_ssize_t, node: cython.Py_ssize_t,
            host: cython.Py_ssize_t) -> cython.double:
    """Return the largest part of a limit that is used, -1 beyond a limit."""
    for r in range(g.n_resources):
        need = g.demand[node * g.n_resources + r]
        if need > 0 and need > g.free[
                depth * g.n_hosts * g.n_resources
                + g.slot[host * g.n_resources + r]]:
            return -1.0
    add_up(g, node, host)
    most = 0.0
    for i in range(g.counts[0]):
        port = g.touched[i]
        total = g.load[depth * g.n_ports + port] + g.extra[port]
        g.extra[port] = 0.0
        if total > g.limit[port]:
            most = -1.0
        elif most >= 0:
            most = max(most, total / g.limit[port])
    return most


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put(g: Search, depth: cython.Py_ssize_t, node: cython.Py_ssize_t,
        host: cython.Py_ssize_t) -> cython.void:
    """Place a node; loads and rooms of the next depth follow."""
    ports = g.n_ports
    rooms = g.n_hosts * g.n_resources
    for port in range(ports):
        g.load[(depth + 1) * ports + port] = g.load[depth * ports + port]
    for i in range(rooms):
        g.free[(depth + 1) * rooms + i] = g.free[depth * rooms + i]
    g.work[0] += ports + rooms
    add_up(g, node, host)
    for i in range(g.counts[0]):
        port = g.touched[i]
        g.load[(depth + 1) * ports + port] += g.extra[port]
        g.extra[port] = 0.0
    for r in range(g.n_resources):
        g.free[(depth + 1) * rooms + g.slot[host * g.n_resources + r]] -= (
            g.demand[node * g.n_resources + r])
    g.assign[node] = host
    g.n_on[host] += 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def draw_in(g: Search, node: cython.Py_ssize_t, size: cython.Py_ssize_t
            ) -> cython.Py_ssize_t:
    """Take a node into the set on trial; return how many nodes it touches."""
    g.work[0] += LOOK
    for e in range(g.adj_start[node], g.adj_start[node + 1]):
        g.work[0] += PAIR
        other = g.adj_node[e]
        if g.sent[other] < 0:
            continue
        if g.sent[other] == 0 and g.received[other] == 0:
            g.drawn[size] = other
            size += 1
        g.sent[other] += g.adj_out[e]
        g.received[other] += g.adj_in[e]
    g.sent[node] = -1.0
    return size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def has_pair(g: Search, depth: cython.Py_ssize_t, node: cython.Py_ssize_t,
             host: cython.Py_ssize_t) -> cython.bint:
    """Return whether a node may be on another host than the set on trial."""
    m = g.n_hosts
    pairs = 2 * (m + g.n_uplinks)
    first = depth * g.n_ports + pairs
    low = 0
    high = m
    if g.assign[node] >= 0:
        low = g.assign[node]
        high = low + 1
    for other in range(low, high):
        g.work[0] += PAIR
        if other == host or (high > low + 1 and not g.open[
                (depth * g.n + node) * m + other]):
            continue
        there = host * m + other
        back = other * m + host
        if (g.load[first + there] + g.sent[node] <= g.limit[pairs + there]
                and g.load[first + back] + g.received[node]
                <= g.limit[pairs + back]):
            return True
    return False


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def holds_drawn(g: Search, depth: cython.Py_ssize_t,
                node: cython.Py_ssize_t, host: cython.Py_ssize_t
                ) -> cython.bint:
    """Return whether a host holds a node with all nodes that it draws.

    A node that no pair of hosts can connect to the set has to join it.
    """
    rooms = g.n_hosts * g.n_resources
    size = draw_in(g, node, 0)
    fits: cython.bint = True
    joined = node
    for r in range(g.n_resources):
        g.need[r] = g.demand[node * g.n_resources + r]
    while fits and joined >= 0:
        joined = -1
        for i in range(size):
            other = g.drawn[i]
            if g.sent[other] < 0 or g.assign[other] == host or has_pair(
                    g, depth, other, host):
                continue
            if g.assign[other] >= 0 or not g.open[
                    (depth * g.n + other) * g.n_hosts + host]:
                fits = False
                break
            joined = other
            for r in range(g.n_resources):
                g.need[r] += g.demand[other * g.n_resources + r]
                if g.need[r] > 0 and g.need[r] > g.free[
                        depth * rooms + g.slot[host * g.n_resources + r]]:
                    fits = False
            size = draw_in(g, other, size)
    g.sent[node] = 0.0
    g.received[node] = 0.0
    for i in range(size):
        g.sent[g.drawn[i]] = 0.0
        g.received[g.drawn[i]] = 0.0
    return fits


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def look_near(g: Search, depth: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Mark the nodes to be checked on every host; return the last host.

    With pipes these are the nodes that exchange bytes with the node placed
    last: the others find only its host changed, or very few pairs. A host
    that stays open for longer costs work and never a placement.
    """
    everyone: cython.bint = depth == 0 or not g.pipe
    for node in range(g.n):
        g.near[node] = everyone
    if everyone:
        return -1
    last = g.node_at[depth - 1]
    for e in range(g.adj_start[last], g.adj_start[last + 1]):
        g.near[g.adj_node[e]] = True
    return g.assign[last]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def tightest(g: Search, depth: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Close hosts; return the node with the fewest open ones for its weight.

    -1 where a node has none, n where all nodes are placed. On 8 instances
    of 18 hosts and 40 VMs with pipes, least square of the number per byte
    needed 0.1 to 1 times the work of least number. On 3 others, weights that
    grow wherever a node has no host needed 0.1 to 1.5 times the work of bytes
    alone, and on 3 more left 0.2 to 0.8 times the gap.
    """
    cells = g.n * g.n_hosts
    chosen = g.n
    fewest = g.n_hosts + 1
    last = look_near(g, depth)
    if depth > 0:
        for i in range(depth * cells, (depth + 1) * cells):
            g.open[i] = g.open[i - cells]
    g.work[0] += CELL * cells
    for node in range(g.n):
        if g.assign[node] >= 0:
            continue
        count = 0
        for host in range(g.n_hosts):
            i = depth * cells + node * g.n_hosts + host
            if g.open[i] and (g.near[node] or host == last) and (
                    busiest(g, depth, node, host) < 0 or (
                        g.pipe and not holds_drawn(g, depth, node, host))):
                g.open[i] = 0
            count += g.open[i]
        if count == 0:
            g.weight[node] += g.traffic[node]
            return -1
        if chosen == g.n or (count * count * g.weight[chosen]
                             < fewest * fewest * g.weight[node]):
            chosen = node
            fewest = count
    return chosen


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def take_host(g: Search, depth: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Close and return the open host of the depth's node that is best, or -1.
    """
    node = g.node_at[depth]
    first = (depth * g.n + node) * g.n_hosts
    best = -1
    least = 0.0
    for host in range(g.n_hosts):
        if not g.open[first + host]:
            continue
        part = busiest(g, depth, node, host)
        if part < 0:
            g.open[first + host] = 0
        elif best < 0 or part < least:
            best = host
            least = part
    if best < 0:
        return -1
    g.open[first + best] = 0
    for host in range(g.n_hosts):
        if (g.alike[host] == g.alike[best] and g.n_on[host] == 0
                and g.n_on[best] == 0):
            g.open[first + host] = 0
    return best


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def keep(g: Search, depth: cython.Py_ssize_t, closer: cython.double
         ) -> cython.void:
    """Record the placement; the next one has to be better."""
    most = 0.0
    for port in range(g.n_ports):
        size = g.load[depth * g.n_ports + port]
        if size > 0:
            most = max(most, size * g.s_per_byte[port])
    for port in range(g.n_ports):
        if g.s_per_byte[port] > 0:
            g.limit[port] = most * closer / g.s_per_byte[port]
    g.least_s[0] = most
    g.counts[3] += 1
    for node in range(g.n):
        g.best[node] = g.assign[node]


def search(g: Search, closer: cython.double, units: cython.double) -> bool:
    """Continue the search; return whether all placements are done.

    :param closer: part of the best time that a better one takes at most.
    :param units: value of ``work`` at which the search pauses.
    """
    depth: cython.Py_ssize_t = g.counts[1]
    host: cython.Py_ssize_t = -1
    is_new: cython.bint = g.counts[2] > 0
    is_done: cython.bint = False
    with cython.nogil:
        g.work[0] = 0.0
        while not is_done and g.work[0] < units:
            if is_new:
                g.node_at[depth] = tightest(g, depth)
                if g.node_at[depth] == g.n:
                    keep(g, depth, closer)
            host = -1
            if 0 <= g.node_at[depth] < g.n:
                host = take_host(g, depth)
            is_new = host >= 0
            if is_new:
                put(g, depth, g.node_at[depth], host)
                depth += 1
            elif depth == 0:
                is_done = True
            else:
                depth -= 1
                node = g.node_at[depth]
                g.n_on[g.assign[node]] -= 1
                g.assign[node] = -1
        g.counts[1] = depth
        g.counts[2] = is_new
    return is_done
