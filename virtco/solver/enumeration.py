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

"""Kernel of exhaustive branch and bound, for any model of ports.

Nodes are placed one after another on every host; loads only grow on the
way, so a partial placement that takes as long as the best full one is left.
"""

from typing import Any

from virtco.solver import compiled

PATH_PORTS = 5


@compiled.jit
def place(n: int, node: int, host: int, n_hosts: int, n_ports: int,
          sent: Any, paths: Any, s_per_byte: Any, load: Any,
          hosts: Any) -> float:
    """Loads of level node + 1 from level node; the time of its ports."""
    before = node * n_ports
    after = before + n_ports
    top = 0.0
    for port in range(n_ports):
        load[after + port] = load[before + port]
    for other in range(node):
        g = hosts[other]
        if g == host:
            continue
        for way in range(2):
            size = sent[node * n + other] if way == 0 else \
                sent[other * n + node]
            path = host * n_hosts + g if way == 0 else g * n_hosts + host
            if size <= 0:
                continue
            for i in range(PATH_PORTS):
                port = paths[path * PATH_PORTS + i]
                if port >= 0:
                    load[after + port] += size
    for port in range(n_ports):
        if load[after + port] > 0:
            top = max(top, load[after + port] * s_per_byte[port])
    return top


@compiled.jit
def fits(node: int, host: int, n_hosts: int, n_resources: int,
         demand: Any, allowed: Any, free: Any) -> bool:
    if allowed[node * n_hosts + host] == 0:
        return False
    for r in range(n_resources):
        need = demand[node * n_resources + r]
        if need > 0 and need > free[host * n_resources + r]:
            return False
    return True


@compiled.jit
def take(node: int, host: int, n_resources: int, demand: Any, free: Any,
         sign: float) -> None:
    for r in range(n_resources):
        free[host * n_resources + r] -= sign * demand[
            node * n_resources + r]


@compiled.jit
def search(n: int, n_hosts: int, n_ports: int, n_resources: int,
           sent: Any, paths: Any, s_per_byte: Any, demand: Any,
           allowed: Any, free: Any, load: Any, hosts: Any, best: Any,
           cutoff: float, limit: int) -> float:
    """Least time below cutoff; cutoff if there is none, -1.0 at limit.

    :param sent: bytes from node to node, n * n, nodes in placing order.
    :param paths: ports between two hosts, -1 for none.
    :param hosts: scratch of n, all -1.
    :param best: receives the hosts of the best placement.
    """
    node = 0
    visited = 0
    while node >= 0:
        if hosts[node] >= 0:
            take(node, hosts[node], n_resources, demand, free, -1.0)
        host = hosts[node] + 1
        while host < n_hosts and not fits(node, host, n_hosts, n_resources,
                                          demand, allowed, free):
            host += 1
        if host >= n_hosts:
            hosts[node] = -1
            node -= 1
            continue
        visited += 1
        if visited > limit:
            return -1.0
        hosts[node] = host
        take(node, host, n_resources, demand, free, 1.0)
        time_s = place(n, node, host, n_hosts, n_ports, sent, paths,
                       s_per_byte, load, hosts)
        if time_s >= cutoff:
            continue
        if node < n - 1:
            node += 1
            continue
        cutoff = time_s
        for i in range(n):
            best[i] = hosts[i]
    return cutoff
