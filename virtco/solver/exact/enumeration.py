# SPDX-License-Identifier: Apache-2.0

"""Kernel of exhaustive branch and bound, for any model of ports.

Nodes are placed one after another on every host; loads only grow on the
way, so a partial placement that takes as long as the best full one is left.
"""

import cython


@cython.dataclasses.dataclass(repr=False, eq=False)
@cython.cclass
class Tree:
    """n nodes in placing order, M hosts, P ports, R resources.

    :ivar sent: bytes from node to node, n * n.
    :ivar paths: ports between two hosts, -1 for none, M * M * n_path.
    :ivar load: scratch of (n + 1) * P, 0 at first.
    :ivar hosts: scratch of n, all -1.
    :ivar best: receives the hosts of the best placement.
    :ivar counts: placements of a node that were tried.
    """

    n: cython.Py_ssize_t
    n_hosts: cython.Py_ssize_t
    n_ports: cython.Py_ssize_t
    n_resources: cython.Py_ssize_t
    n_path: cython.Py_ssize_t
    sent: cython.double[::1]
    paths: cython.Py_ssize_t[::1]
    s_per_byte: cython.double[::1]
    demand: cython.double[::1]
    allowed: cython.uchar[::1]
    free: cython.double[::1]
    load: cython.double[::1]
    hosts: cython.Py_ssize_t[::1]
    best: cython.Py_ssize_t[::1]
    counts: cython.Py_ssize_t[::1]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def place(t: Tree, node: cython.Py_ssize_t, host: cython.Py_ssize_t
          ) -> cython.double:
    """Loads of level node + 1 from level node; the time of its ports."""
    before = node * t.n_ports
    after = before + t.n_ports
    top = 0.0
    for port in range(t.n_ports):
        t.load[after + port] = t.load[before + port]
    for other in range(node):
        g = t.hosts[other]
        if g != host:
            add(t, after, host, g, t.sent[node * t.n + other])
            add(t, after, g, host, t.sent[other * t.n + node])
    for port in range(t.n_ports):
        if t.load[after + port] > 0:
            top = max(top, t.load[after + port] * t.s_per_byte[port])
    return top


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add(t: Tree, after: cython.Py_ssize_t, src: cython.Py_ssize_t,
        dst: cython.Py_ssize_t, size_bytes: cython.double) -> cython.void:
    if size_bytes <= 0:
        return
    path = (src * t.n_hosts + dst) * t.n_path
    for i in range(path, path + t.n_path):
        port = t.paths[i]
        if port >= 0:
            t.load[after + port] += size_bytes


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fits(t: Tree, node: cython.Py_ssize_t, host: cython.Py_ssize_t
         ) -> cython.bint:
    if t.allowed[node * t.n_hosts + host] == 0:
        return False
    for r in range(t.n_resources):
        need = t.demand[node * t.n_resources + r]
        if need > 0 and need > t.free[host * t.n_resources + r]:
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def take(t: Tree, node: cython.Py_ssize_t, host: cython.Py_ssize_t,
         sign: cython.double) -> cython.void:
    for r in range(t.n_resources):
        t.free[host * t.n_resources + r] -= sign * t.demand[
            node * t.n_resources + r]


def search(t: Tree, cutoff: cython.double, limit: cython.Py_ssize_t) -> float:
    """Least time below cutoff; cutoff if there is none, -1.0 at limit."""
    with cython.nogil:
        least = visit(t, cutoff, limit)
    return least


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def visit(t: Tree, cutoff: cython.double, limit: cython.Py_ssize_t
          ) -> cython.double:
    node: cython.Py_ssize_t = 0
    visited: cython.Py_ssize_t = 0
    while node >= 0:
        if t.hosts[node] >= 0:
            take(t, node, t.hosts[node], -1.0)
        host = t.hosts[node] + 1
        while host < t.n_hosts and not fits(t, node, host):
            host += 1
        if host >= t.n_hosts:
            t.hosts[node] = -1
            node -= 1
            continue
        visited += 1
        t.counts[0] = visited
        if visited > limit:
            return -1.0
        t.hosts[node] = host
        take(t, node, host, 1.0)
        time_s = place(t, node, host)
        if time_s >= cutoff:
            continue
        if node < t.n - 1:
            node += 1
            continue
        cutoff = time_s
        for i in range(t.n):
            t.best[i] = t.hosts[i]
    return cutoff
