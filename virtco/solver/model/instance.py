# SPDX-License-Identifier: Apache-2.0

"""A placement problem as arrays, with everything exact done to it.

VMs that an affinity group ties together become one *node*, an anti-affinity
group becomes one more resource of which a host has ``max_per_host``, pinned
VMs become terminals, and hosts that cannot be needed are dropped
(:mod:`virtco.solver.model.reduction`). What remains is one model for hose,
trees and Choreo's pipes: *ports*, each with a time per byte, that the bytes
between two hosts pass.

Ports are numbered egress of host m = m, ingress = M + m, uplink of subtree q
out = 2M + q, in = 2M + Q + q, pair (a, b) = 2M + 2Q + aM + b. All but pairs
are the *fabric's*. Hosts and the subtrees of a tier cut traffic alike: what
crosses between two of a *row* leaves one through its port out and enters the
other through its port in.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools

import numpy as np

from virtco import exception
from virtco import units
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.model import constraints
from virtco.solver.model import loads
from virtco.solver.model import reduction
from virtco.solver.model import switches
from virtco.solver.model import uplink_arrays as trees
from virtco.solver.model import validation

#: Cost of a port of no bandwidth where arithmetic must stay finite, in costs
#: of the slowest real port.
ZERO_RATE_PENALTY = 1e6


@dataclasses.dataclass(frozen=True)
class Instance:
    """Arrays of a problem with all of its hosts, or with those that are kept.

    There are n nodes, M hosts, P ports and R resources.

    :ivar host_index: index in ``problem.hosts`` of every host.
    :ivar node_vms: VM indices of every node.
    :ivar node_of_vm: node of every VM.
    :ivar fixed: host of a pinned node, else -1; shape (n,).
    :ivar demand: shape (n, R), 0 for pinned nodes.
    :ivar free: shape (M, R), after the pinned nodes took theirs.
    :ivar allowed: shape (n, M), bool.
    :ivar sharing: the hosts that share the last K resources have one number,
        shape (K, M): a switch's share of VMs that are spread.
    :ivar together: nodes that have to be below one switch.
    :ivar arcs: (src nodes, dst nodes, bytes) per coflow, merged.
    :ivar uplinks: uplinks of the subtrees above the hosts that can decide.
    :ivar port_out: the port out that every host's bytes pass when they leave
        its host (row 0) and its subtree per tier, from the core down; -1 for
        none; shape (1 + L, M).
    :ivar s_per_byte: shape (P,); inf for a port of no bandwidth.
    :ivar pipe: whether the pair ports exist.
    :ivar running: the running coflows in order of rising isolated CCT.
    :ivar running_order: index in ``problem.active`` of each, shape (A,).
    :ivar active_cct_s: the running coflows' isolated CCTs, shape (A,).
    :ivar floor_s: shape (A + 1,), the prefix CCT of the first i active
        coflows on the dropped hosts.
    """

    problem: snapshot.PlacementProblem
    host_index: np.ndarray
    node_vms: tuple[tuple[int, ...], ...]
    node_of_vm: np.ndarray
    fixed: np.ndarray
    demand: np.ndarray
    free: np.ndarray
    allowed: np.ndarray
    sharing: np.ndarray
    together: tuple[switches.Together, ...]
    arcs: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]
    uplinks: trees.Uplinks
    port_out: np.ndarray
    s_per_byte: np.ndarray
    pipe: bool
    running: loads.Loads
    running_order: np.ndarray
    active_cct_s: np.ndarray
    floor_s: np.ndarray

    def below(self, choice: tuple[int, ...]) -> 'Instance':
        """Return the problem in which each wish to be together has its switch.
        """
        allowed = self.allowed.copy()
        for wish, number in zip(self.together, choice):
            allowed[wish.nodes] &= wish.switch == number
        return dataclasses.replace(self, allowed=allowed, together=())

    def reduced(self, budget: budgets.Budget) -> 'Instance':
        """Drop hosts that cannot be needed, unless pairs of them have rates.

        What runs there sets a floor only.

        :param budget: budget of a search; it limits how many are compared.
        """
        m, n_ports = self.n_hosts, len(self.s_per_byte)
        if self.pipe or not m:
            return self
        keep = reduction.needed_hosts(
            self.free, self.s_per_byte[:2 * m].reshape(2, m), self.running,
            self.allowed, self.fixed, np.vstack([
                self.port_out[1:], self.sharing,
                *(wish.switch for wish in self.together)]),
            reduction.most_compared(budget))
        # The last one is for -1.
        position = np.full(m + 1, -1, dtype=np.int64)
        position[keep] = np.arange(len(keep))
        ports = np.concatenate([keep, keep + m, np.arange(2 * m, n_ports)])
        port_position = np.full(n_ports + 1, -1, dtype=np.int64)
        port_position[ports] = np.arange(len(ports))
        dropped = np.where(port_position < 0, np.arange(n_ports + 1), -1)
        _ports, slowest_s = self.running.moved(dropped, n_ports).prefix_tops(
            self.s_per_byte, 1)
        return dataclasses.replace(
            self, host_index=self.host_index[keep],
            fixed=position[self.fixed], free=self.free[keep],
            allowed=np.ascontiguousarray(self.allowed[:, keep]),
            sharing=self.sharing[:, keep], together=tuple(
                dataclasses.replace(wish, switch=wish.switch[keep])
                for wish in self.together),
            port_out=np.ascontiguousarray(
                port_position[self.port_out[:, keep]]),
            s_per_byte=self.s_per_byte[ports],
            running=self.running.moved(port_position, len(ports)),
            floor_s=slowest_s[:, 0])

    @functools.cached_property
    def running_prefix_s(self) -> np.ndarray:
        """Prefix CCTs of the running coflows alone, shape (A,)."""
        _ports, slowest_s = self.running.prefix_tops(self.s_per_byte, 1)
        prefix_s: np.ndarray = np.maximum(slowest_s[1:, 0], self.floor_s[1:])
        return prefix_s

    @functools.cached_property
    def backlog_s(self) -> np.ndarray:
        """Time of all running coflows per port, shape (P,)."""
        return times_s(self.running.per_port(), self.s_per_byte)

    @functools.cached_property
    def room(self) -> np.ndarray:
        """Free capacity with the slack of comparisons, shape (M, R)."""
        free: np.ndarray = np.maximum(self.free, 0.0)
        free = free + constraints.CAPACITY_EPS * np.maximum(1.0, free)
        return free

    @functools.cached_property
    def slot(self) -> np.ndarray:
        """A number per host and resource, the same where it is shared."""
        m, r = self.free.shape
        result: np.ndarray = np.arange(m * r).reshape(m, r)
        for column, which in enumerate(self.sharing, r - len(self.sharing)):
            _, first, number = np.unique(which, return_index=True,
                                         return_inverse=True)
            result[:, column] = first[number.reshape(-1)] * r + column
        return result

    def left(self, free: np.ndarray, assign: np.ndarray,
             demand: np.ndarray) -> np.ndarray:
        """Subtract the demand of nodes on hosts from the free room, (M, R)."""
        used = np.zeros(free.size)
        np.add.at(used, self.slot[assign], demand)
        result: np.ndarray = free - used[self.slot]
        return result

    @functools.cached_property
    def sent(self) -> np.ndarray:
        """Bytes from node to node, all coflows; shape (n, n)."""
        total = np.zeros((self.n_nodes, self.n_nodes))
        for src, dst, size_bytes in self.arcs:
            np.add.at(total, (src, dst), size_bytes)
        return total

    @property
    def exchanged(self) -> np.ndarray:
        """Bytes between nodes, all coflows, both ways; shape (n, n)."""
        total: np.ndarray = self.sent + self.sent.T
        return total

    @property
    def n_nodes(self) -> int:
        """Number of nodes; a node has one VM or several that are tied."""
        return len(self.node_vms)

    @property
    def n_hosts(self) -> int:
        return len(self.host_index)

    @property
    def n_fabric(self) -> int:
        """Ports of hosts and subtrees; pairs come behind them."""
        return 2 * (self.n_hosts + len(self.uplinks))

    def paths(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Find the ports that bytes between hosts pass, -1 for none.

        :returns: the shape of ``src`` and ``dst``, and a last axis of ports.
        """
        ports = []
        for port_out, behind in self.ways():
            up, down = port_out[src], port_out[dst]
            ports += [np.where(up != down, up, -1), np.where(
                (up != down) & (down >= 0), down + behind, -1)]
        if self.pipe:
            ports.append(np.where(
                src != dst, self.n_fabric + src * self.n_hosts + dst, -1))
        return np.stack(ports, axis=-1)

    def ways(self) -> Iterator[tuple[np.ndarray, int]]:
        """Yield each row's ports out, and how far behind are those in."""
        for i, row in enumerate(self.port_out):
            yield row, len(self.uplinks) if i else self.n_hosts

    @property
    def is_tied(self) -> bool:
        """Whether hosts share uplinks, or pairs of them have rates."""
        return self.pipe or bool(self.uplinks)

    @property
    def are_apart(self) -> bool:
        """Whether several own coflows are there, none over VMs of another."""
        ends = [np.union1d(src, dst) for src, dst, _ in self.arcs]
        return len(ends) > 1 and bool(
            np.bincount(np.concatenate(ends)).max(initial=0) == 1)

    @property
    def movable(self) -> np.ndarray:
        """Indices of the nodes that are not pinned to a host, rising."""
        return np.flatnonzero(self.fixed < 0)

    def host_name(self, host: int) -> str:
        """Return the name of a kept host by its index in these arrays."""
        return self.problem.hosts[int(self.host_index[host])].name

    def port_name(self, port: int) -> str:
        """Name a port for people, such as ``h1 egress`` or ``rack r1 up``."""
        m, q = self.n_hosts, len(self.uplinks)
        if port < 2 * m:
            way = 'egress' if port < m else 'ingress'
            return f'{self.host_name(port % m)} {way}'
        if port < self.n_fabric:
            way = 'up' if port < 2 * m + q else 'down'
            one = self.uplinks.subtrees[(port - 2 * m) % q]
            return f'{one.level} {one.name} {way}'
        a, b = divmod(port - self.n_fabric, m)
        return f'{self.host_name(a)}->{self.host_name(b)}'

    def alike(self, apart: np.ndarray) -> list[list[int]]:
        """List classes of hosts alike in everything and of one subtree.

        A host with pinned nodes stays alone: no other may hold these.

        :param apart: values by which hosts differ other than capacity and
            candidates, shape (X, M).
        """
        which, first, _counts = reduction.classes(np.column_stack([
            self.free, apart.T, self.allowed.T, self.port_out[1:].T,
            self.sharing.T]))
        return [np.flatnonzero(which == c).tolist()
                for c in range(len(first))]

    def from_hosts(self, names: Sequence[str]) -> np.ndarray:
        """Convert host names per VM to hosts per node; all hosts must be kept.
        """
        index = {host.name: i for i, host in enumerate(self.problem.hosts)}
        return np.array([index[names[vms[0]]] for vms in self.node_vms],
                        dtype=np.int64)

    def to_hosts(self, assign: np.ndarray) -> tuple[str, ...]:
        """Convert an assignment of nodes to host names per VM."""
        return tuple(self.host_name(assign[node])
                     for node in self.node_of_vm)

    def fits(self, assign: np.ndarray) -> bool:
        """Return whether an assignment keeps every hard constraint."""
        return bool((assign >= 0).all() and self.fit_all(assign[None])[0])

    def fit_all(self, assigns: np.ndarray) -> np.ndarray:
        """Return which of N assignments, (N, n), keep every hard constraint.
        """
        fit: np.ndarray = self.allowed[np.arange(self.n_nodes), assigns].all(
            axis=1)
        rows = np.arange(len(assigns))[:, None]
        used = np.zeros((len(assigns), self.free.size))
        for node in range(self.n_nodes):
            used[rows, self.slot[assigns[:, node]]] += self.demand[node]
        used = used[:, self.slot]
        slack = constraints.CAPACITY_EPS * np.maximum(1.0, np.abs(self.free))
        fit &= ((used <= self.free + slack) | (used <= 0)).all(axis=(1, 2))
        for wish in self.together:
            fit &= wish.holds(assigns)
        return fit


def build(problem: snapshot.PlacementProblem,
          budget: budgets.Budget | None = None) -> Instance:
    """Check a problem and turn it into arrays.

    :param budget: see :meth:`Instance.reduced`; None keeps all hosts.
    :raises virtco.exception.Invalid: for NaN, negative or dangling input.
    :raises virtco.exception.PlacementInfeasible: where a single VM or pin
        already shows that no placement exists.
    """
    validation.check(problem)
    if problem.vms and not problem.hosts:
        raise exception.PlacementInfeasible(
            what=f'{len(problem.vms)} VMs', why='there are no hosts')
    index = {host.name: i for i, host in enumerate(problem.hosts)}
    node_vms, node_of_vm = constraints.merge_affinity(problem)
    fixed = constraints.pins(problem, index, node_vms)
    allowed = constraints.allowed(problem, index, node_vms, fixed)
    together = switches.together(problem, node_of_vm, fixed, allowed)
    shares = switches.shares(problem, node_of_vm, fixed, allowed)
    demand, free = constraints.capacities(problem, index, node_vms,
                                          node_of_vm, fixed)
    demand = np.hstack([demand, shares.demand])
    free = np.hstack([free, shares.free])
    allowed &= constraints.fits_alone(demand, free)
    constraints.check_hostless(problem, node_vms, allowed)
    uplinks = trees.of(problem)
    fabric = _fabric_s_per_byte(problem, uplinks)
    running = loads.read(problem.active, index)
    if uplinks:
        running = running.with_more(uplinks.running(problem.active))
    cct_s = running.isolated_s(fabric)
    order = np.argsort(cct_s, kind='stable')
    s_per_byte = _ports(problem, fabric)
    above, m = uplinks.above(index), len(index)
    whole = Instance(
        problem=problem, host_index=np.arange(m), node_vms=node_vms,
        node_of_vm=node_of_vm, fixed=fixed, demand=demand, free=free,
        allowed=np.ascontiguousarray(allowed), sharing=shares.switch,
        together=together,
        arcs=_arcs(problem, node_of_vm), uplinks=uplinks,
        port_out=np.ascontiguousarray(np.vstack([
            np.arange(m), np.where(above >= 0, 2 * m + above, -1)])),
        s_per_byte=s_per_byte, pipe=problem.pair_rate_bps is not None,
        running=dataclasses.replace(running.ordered(order),
                                    n_ports=len(s_per_byte)),
        running_order=order, active_cct_s=cct_s[order],
        floor_s=np.zeros(len(order) + 1))
    return whole if budget is None else whole.reduced(budget)


def _seconds(rates_bps: list[float]) -> np.ndarray:
    rates = np.array(rates_bps, dtype=float)
    with np.errstate(divide='ignore', over='ignore'):
        return units.BITS_PER_BYTE / rates


def _fabric_s_per_byte(problem: snapshot.PlacementProblem,
                       uplinks: trees.Uplinks) -> np.ndarray:
    """Compute time per byte of all hosts' ports, then of uplinks, shape (P,).
    """
    return _seconds([host.egress_bps for host in problem.hosts]
                    + [host.ingress_bps for host in problem.hosts]
                    + [one.uplink_out_bps for one in uplinks.subtrees]
                    + [one.uplink_in_bps for one in uplinks.subtrees])


def times_s(loads: np.ndarray, s_per_byte: np.ndarray) -> np.ndarray:
    """Compute loads * s_per_byte with 0 * inf = 0."""
    with np.errstate(invalid='ignore'):
        return np.where(loads > 0, loads * s_per_byte, 0.0)


def finite(s_per_byte: np.ndarray) -> np.ndarray:
    """Make ports of no bandwidth slow instead, by :data:`ZERO_RATE_PENALTY`.

    It only lowers a bound.
    """
    usual = s_per_byte[np.isfinite(s_per_byte)]
    worst = float(usual.max(initial=0.0)) or 1.0
    result: np.ndarray = np.minimum(s_per_byte, worst * ZERO_RATE_PENALTY)
    return result


def _arcs(problem: snapshot.PlacementProblem, node_of_vm: np.ndarray
          ) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]:
    """List (source, destination, bytes) per coflow, one entry per node pair.
    """
    n, result = int(node_of_vm.max(initial=0)) + 1, []
    for coflow in problem.coflows:
        src = node_of_vm[np.asarray(coflow.matrix.src)]
        dst = node_of_vm[np.asarray(coflow.matrix.dst)]
        sizes = np.asarray(coflow.matrix.size_bytes)
        keep = (src != dst) & (sizes > 0)
        keys, entry = np.unique(src[keep] * n + dst[keep],
                                return_inverse=True)
        result.append((keys // n, keys % n,
                       np.bincount(entry, sizes[keep], len(keys))))
    return tuple(result)


def _ports(problem: snapshot.PlacementProblem, fabric: np.ndarray
           ) -> np.ndarray:
    """Compute the seconds per byte of every port, those of pairs included.

    :param fabric: seconds per byte of the hosts' ports and of uplinks.
    """
    pairs = problem.pair_rate_bps
    if pairs is None:
        return fabric
    rates = [pairs.get((a.name, b.name), min(a.egress_bps, b.ingress_bps))
             for a in problem.hosts for b in problem.hosts]
    if not problem.hose_limits:
        fabric = np.zeros_like(fabric)
    return np.concatenate([fabric, _seconds(rates)])
