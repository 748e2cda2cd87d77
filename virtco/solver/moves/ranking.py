# SPDX-License-Identifier: Apache-2.0

"""Every candidate host of one VM, ranked, the others staying as planned.

Exact, at the price of what changes: see
:mod:`virtco.solver.moves.rank_kernel`.
"""

from collections.abc import Callable
import dataclasses
import math

import numpy as np

from virtco.model import cluster
from virtco.model import snapshot
from virtco.solver.model import instance as instances
from virtco.solver.model import loads
from virtco.solver.model import objectives
from virtco.solver.moves import rank_kernel

#: Hosts between two looks at the clock.
CHUNK_HOSTS = 256
#: Names of one unit and of several units of a resource.
RESOURCES = {'vcpus': ('vCPU', 'vCPUs'),
             'memory_mb': ('MB of memory',) * 2,
             'disk_gb': ('GB of disk',) * 2}


@dataclasses.dataclass(frozen=True)
class Values:
    """Costs of T hosts; arrays of shape (T,).

    :ivar objective_s: exact, or a lower bound.
    :ivar cct_s: own coflows together.
    :ivar port: the one that decides it, -1 for none.
    :ivar is_exact: whether there was time to look closely.
    """

    objective_s: np.ndarray
    cct_s: np.ndarray
    port: np.ndarray
    is_exact: np.ndarray


def rank(inst: instances.Instance, objective: snapshot.Objective,
         assign: np.ndarray, vm_index: int,
         in_time: Callable[[], bool] = lambda: True,
         most: int | None = None) -> tuple[snapshot.RankedHost, ...]:
    """Rank the hosts, infeasible last; ties keep the planned host in front.

    The VMs of its affinity group go where the VM goes.

    :param inst: instance with all hosts.
    :param assign: planned host per node.
    :param in_time: asked now and then; once it says no, the hosts not looked
        at yet are ranked by a lower bound, behind the others.
    """
    node = int(inst.node_of_vm[vm_index])
    planned = int(assign[node])
    why_not = _why_not(inst, assign, node)
    feasible = np.array([not text for text in why_not], dtype=bool)
    hosts = np.flatnonzero(feasible)
    hosts = np.concatenate([hosts[hosts == planned], hosts[hosts != planned]])
    values = evaluate(inst, objective, assign, node, hosts, in_time)
    order = np.lexsort((hosts, hosts != planned, values.cct_s,
                        values.objective_s, ~values.is_exact))
    if most is not None:
        order = order[(np.arange(len(order)) < most)
                      | (hosts[order] == planned)]
    ranked = [snapshot.RankedHost(inst.host_name(host), True, objective_s,
                                  cct_s, why)
              for host, objective_s, cct_s, why in zip(
                  hosts[order].tolist(), values.objective_s[order].tolist(),
                  values.cct_s[order].tolist(),
                  _whys(inst, values, assign, node, hosts, order))]
    behind = sorted(np.flatnonzero(~feasible).tolist(),
                    key=lambda host: host != planned)
    if most is not None:
        behind = behind[:max(0, most - len(ranked))]
    ranked += [snapshot.RankedHost(inst.host_name(host), False, math.inf,
                                   math.inf, why_not[host])
               for host in behind]
    return tuple(ranked)


def evaluate(inst: instances.Instance, objective: snapshot.Objective,
             assign: np.ndarray, node: int, hosts: np.ndarray,
             in_time: Callable[[], bool]) -> Values:
    """Evaluate the node on each host, as :func:`objectives.evaluate` does.

    :param hosts: hosts in the order in which they are looked at.
    """
    n_hosts, n_own = len(hosts), len(inst.arcs)
    n_base = 2 * len(inst.port_out)
    peers = _Peers.of(inst, assign, node)
    n_slots = n_base + (2 * len(peers.host) if inst.pipe else 0)
    slot_port = np.full((n_hosts, n_slots), -1, dtype=np.int64)
    slot_bytes = np.zeros((n_hosts, n_own, n_slots))
    own_s = np.zeros((n_hosts, n_own + 1))
    port = np.full(n_hosts, -1, dtype=np.int64)
    together = np.vstack([peers.elsewhere, peers.elsewhere.sum(axis=0)])
    tops = _tops(together, inst.s_per_byte, n_base + 1)
    seen = 0
    while seen < n_hosts and (not seen or in_time()):
        last = min(n_hosts, seen + CHUNK_HOSTS)
        rank_kernel.fill_slots(
            seen, last, hosts, inst.port_out, len(inst.uplinks),
            inst.pipe, peers.host, peers.out, peers.into, peers.absent,
            slot_port, slot_bytes)
        rank_kernel.own_times(
            seen, last, n_base, inst.s_per_byte, slot_port, slot_bytes,
            *tops, own_s, port)
        seen = last
    cct_s = own_s[:, n_own]
    is_exact = np.arange(n_hosts) < seen
    if objective == snapshot.Objective.ISOLATED:
        return Values(cct_s.copy(), cct_s, port, is_exact)
    ahead_s = _ahead_s(inst, objective, together[-1], slot_port, slot_bytes)
    ahead_s[seen:] = 0.0
    prefixes = _Prefixes(inst, peers.elsewhere, n_base, slot_port,
                         slot_bytes, own_s[:, :n_own])
    prefix_s, looked = prefixes.sums_s(is_exact, in_time)
    return Values(prefix_s + ahead_s, cct_s, port, looked)


@dataclasses.dataclass(frozen=True)
class _Peers:
    """Traffic of a node with the hosts of its peers.

    :ivar host: hosts of its peers, shape (S,).
    :ivar out: bytes to each per own coflow, shape (C, S).
    :ivar into: bytes from each.
    :ivar absent: bytes per own coflow and port without the node's; (C, P).
    :ivar elsewhere: the same with the peers' ends of the node's.
    """

    host: np.ndarray
    out: np.ndarray
    into: np.ndarray
    absent: np.ndarray
    elsewhere: np.ndarray

    @classmethod
    def of(cls, inst: instances.Instance, assign: np.ndarray, node: int
           ) -> '_Peers':
        out, into = np.zeros((2, len(inst.arcs), inst.n_hosts))
        others = []
        for c, (src, dst, size_bytes) in enumerate(inst.arcs):
            sends, receives = src == node, dst == node
            np.add.at(out[c], assign[dst[sends]], size_bytes[sends])
            np.add.at(into[c], assign[src[receives]], size_bytes[receives])
            rest = ~(sends | receives)
            others.append((src[rest], dst[rest], size_bytes[rest]))
        absent = objectives.own_loads(
            dataclasses.replace(inst, arcs=tuple(others)), assign)
        host = np.flatnonzero((out + into).sum(axis=0))
        elsewhere = absent.copy()
        rows = np.arange(len(inst.arcs))[:, None]
        for port_out, behind in inst.ways():
            up = port_out[host]
            has = up >= 0
            np.add.at(elsewhere, (rows, up[None, has]), into[:, host[has]])
            np.add.at(elsewhere, (rows, behind + up[None, has]),
                      out[:, host[has]])
        return cls(host, np.ascontiguousarray(out[:, host]),
                   np.ascontiguousarray(into[:, host]), absent, elsewhere)


def _tops(rows: np.ndarray, s_per_byte: np.ndarray, width: int
          ) -> tuple[np.ndarray, np.ndarray]:
    """Find the slowest ports of each row of loads, and their times.

    :returns: two arrays of shape (1, n, width); port -1 for none.
    """
    nobody = loads.of_dense(np.zeros((0, len(s_per_byte))))
    found = [nobody.prefix_tops(s_per_byte, width, before=row)
             for row in rows]
    ports, times = (np.concatenate(part)[None] for part in zip(*found))
    return ports, times


def _ahead_s(inst: instances.Instance, objective: snapshot.Objective,
             elsewhere: np.ndarray, slot_port: np.ndarray,
             slot_bytes: np.ndarray) -> np.ndarray:
    """Compute the wait of coflows to come per trial, shape (T,)."""
    ahead = objectives.Ahead.of(inst, objective)
    if not ahead.rate:
        return np.zeros(len(slot_port))
    fabric = slice(inst.n_fabric)
    times = ahead.per_port_s(
        instances.times_s(elsewhere[fabric], inst.s_per_byte[fabric]))
    n_base = 2 * len(inst.port_out)
    own = slot_port[:, :n_base]
    has = own >= 0
    changed = np.where(has, ahead.per_port_s(
        instances.times_s(slot_bytes[:, :, :n_base].sum(axis=1),
                          inst.s_per_byte[own]), own), 0.0)
    infinite = np.isinf(times)
    finite = np.where(infinite, 0.0, times)
    total = finite.sum() - (finite[own] * has).sum(axis=1)
    left = infinite.sum() - (infinite[own] & has).sum(axis=1)
    wait_s: np.ndarray = changed.sum(axis=1) + np.where(
        left > 0, math.inf, np.maximum(total, 0.0))
    return wait_s


class _Prefixes:
    """Sums of prefix CCTs of many trials."""

    def __init__(self, inst: instances.Instance, elsewhere: np.ndarray,
                 n_base: int, slot_port: np.ndarray, slot_bytes: np.ndarray,
                 own_s: np.ndarray):
        self.inst, self.elsewhere = inst, elsewhere
        self.n_base = n_base
        self.slots = slot_port, slot_bytes
        self.order = np.argsort(own_s, axis=1, kind='stable')
        self.own_s = np.take_along_axis(own_s, self.order, axis=1)
        #: Running coflows go first on a tie.
        self.before = np.searchsorted(inst.active_cct_s, self.own_s, 'right')
        self.tops: dict[frozenset[int], tuple[np.ndarray, np.ndarray]] = {}
        self.stages: dict[tuple[int, ...], list[np.ndarray]] = {}
        _ports, alone_s = self._tops(frozenset())
        self.alone_s = np.maximum(alone_s[:, 0], inst.floor_s)
        self.running_s = np.concatenate([[0.0], np.cumsum(self.alone_s[1:])])

    def _tops(self, own: frozenset[int]) -> tuple[np.ndarray, np.ndarray]:
        """Find the slowest ports with these own coflows ahead of all running.
        """
        if own not in self.tops:
            self.tops[own] = self.inst.running.prefix_tops(
                self.inst.s_per_byte, self.n_base + 1,
                before=self.elsewhere[sorted(own)].sum(axis=0))
        return self.tops[own]

    def _stages(self, order: tuple[int, ...]) -> list[np.ndarray]:
        """Collect the tops with the first 0 ... C own coflows of an order."""
        if order not in self.stages:
            self.stages[order] = [np.stack(part) for part in zip(*(
                self._tops(frozenset(order[:i]))
                for i in range(len(order) + 1)))]
        return self.stages[order]

    def sums_s(self, known: np.ndarray, in_time: Callable[[], bool]
               ) -> tuple[np.ndarray, np.ndarray]:
        """Compute the sum of CCTs of each trial, in seconds, and whether it is
        exact or a lower bound.

        Trials with the least bounds are made exact first.

        :param known: trials whose slots are filled.
        """
        sums_s = self.running_s[-1] + np.maximum(
            self.own_s, self.alone_s[self.before]).sum(axis=1)
        is_exact = np.zeros(len(sums_s), dtype=bool)
        trials = np.flatnonzero(known)
        # The first one is where the others are compared with.
        trials = trials[np.lexsort((sums_s[trials], trials > 0))]
        entries = self.inst.running.by_port()
        scratch = (np.zeros(len(self.inst.running)),
                   np.zeros(self.order.shape[1]))
        for first in range(0, len(trials), CHUNK_HOSTS):
            if first and not in_time():
                break
            chunk = trials[first:first + CHUNK_HOSTS]
            for order, members in self._by_order(chunk):
                ports, times = self._stages(order)
                rank_kernel.prefix_sums(
                    members, self.n_base, self.inst.s_per_byte, *self.slots,
                    np.array(order, dtype=np.int64), self.before, *entries,
                    ports, times, self.inst.floor_s, self.running_s,
                    *scratch, sums_s)
            is_exact[chunk] = True
        return sums_s, is_exact

    def _by_order(self, trials: np.ndarray
                  ) -> list[tuple[tuple[int, ...], np.ndarray]]:
        """Group trials by the order that they give the coflows."""
        if self.order.shape[1] < 2:
            return [(tuple(self.order[0].tolist()), trials)]
        orders, which = np.unique(self.order[trials], axis=0,
                                  return_inverse=True)
        return [(tuple(order), trials[which.reshape(-1) == i])
                for i, order in enumerate(orders.tolist())]


def _why_not(inst: instances.Instance, assign: np.ndarray, node: int
             ) -> list[str]:
    """Explain per host why it is forbidden, empty where it is not."""
    problem = inst.problem
    others = np.arange(inst.n_nodes) != node
    free = inst.left(inst.room, assign[others], inst.demand[others])
    need = inst.demand[node]
    lacks = (need > 0) & (need > free)
    pin = int(inst.fixed[node])
    if pin >= 0:
        text = f'it is pinned to {inst.host_name(pin)}'
        return ['' if host == pin else text for host in range(inst.n_hosts)]
    texts = [''] * inst.n_hosts
    apart = np.zeros(inst.n_hosts, dtype=bool)
    for wish in inst.together:
        rest = assign[wish.nodes & others]
        if wish.nodes[node] and len(rest):
            apart |= wish.switch != wish.switch[rest[0]]
    suspects = np.flatnonzero(lacks.any(axis=1) | ~inst.allowed[node] | apart)
    for host in suspects.tolist():
        name = inst.host_name(host)
        strangers = [problem.vms[vm].name for vm in inst.node_vms[node]
                     if not _may_use(problem.vms[vm], name)]
        if name in problem.excluded_hosts:
            texts[host] = 'the host is excluded'
        elif strangers:
            texts[host] = f'not a candidate host of {strangers[0]}'
        elif lacks[host].any():
            texts[host] = _lack(inst, need, free[host],
                                int(lacks[host].argmax()))
        elif apart[host]:
            texts[host] = 'it has to share a switch with its group'
        elif problem.within or problem.spread:
            texts[host] = 'not below a switch that its wishes allow'
        else:
            texts[host] = 'its affinity group is elsewhere'
    return texts


def _may_use(vm: cluster.Vm, host: str) -> bool:
    return vm.allowed is None or host in vm.allowed


def _lack(inst: instances.Instance, need: np.ndarray, free: np.ndarray,
          r: int) -> str:
    """Explain why resource r of a host does not hold a VM."""
    if r >= len(need) - len(inst.sharing):
        return 'no share of its group is left below that switch'
    if r >= len(inst.problem.resources):
        return 'its anti-affinity group already has VMs there'
    # Rounded down, so that a tiny rest of a sum is 0.
    left = math.floor(1000 * max(0.0, float(free[r])) + 1e-3) / 1000
    one, many = RESOURCES.get(inst.problem.resources[r],
                              (inst.problem.resources[r],) * 2)
    return (f'{left:.15g} of {need[r]:.15g} {one if need[r] == 1 else many} '
            'left beside the planned VMs')


def _whys(inst: instances.Instance, values: Values, assign: np.ndarray,
          node: int, hosts: np.ndarray, order: np.ndarray) -> list[str]:
    """Explain the rank of each host, in the order given."""
    planned = int(assign[node])
    n_vms = np.array([len(vms) for vms in inst.node_vms])
    beside = np.bincount(assign, n_vms, inst.n_hosts).astype(int)
    texts = []
    for host, company, port, cct_s, is_exact in zip(
            hosts[order].tolist(), beside[hosts[order]].tolist(),
            values.port[order].tolist(), values.cct_s[order].tolist(),
            values.is_exact[order].tolist()):
        where = ('planned' if host == planned else
                 f'beside {company} VMs of its group' if company else
                 'alone there')
        decides = inst.port_name(port) if port >= 0 else 'no port'
        texts.append(f'{where}; {decides} decides with {cct_s:.4g} s'
                     if is_exact else
                     f'{where}; no time to look closely: a lower bound')
    return texts
