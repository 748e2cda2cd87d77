# SPDX-License-Identifier: Apache-2.0

"""The least mean CCT of any placement and any schedule, by branch and bound.

All coflows start together. The search serves one coflow after another, each
where some assignment of its VMs puts it: a node is an order of some coflows
with their hosts. In any fluid schedule in which the coflows end in that order,
the k-th ends no sooner than any port can carry the first k (the port as one
machine), so that

* the k-th of them ends after ``max_p sum_{j <= k} p_jp`` at least, where p is
  the time that a coflow takes at a port alone, and
* a coflow that is not served yet ends no sooner than it would next, at its
  best assignment to the slots that are left, and no sooner than all links
  together can carry the bytes that any assignments send.

At a leaf both placement and order of the ends are given. The best schedule is
then a linear program: between two ends the rates of all flows may be constant,
since all constraints are linear. Its value is exact, so the search ends with
the optimum to its tolerance, or with an interval.
"""

from collections.abc import Sequence
import dataclasses
import itertools

import numpy as np
import scipy

from virtco import units
from virtco.model import coflow as coflow_model

#: Relative distance of optimum and bound at which the search ends.
TOLERANCE = 0.001
#: Slots that a host may have too few, by rounding.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Coflows that start together, on hosts with slots.

    :ivar bytes_between: bytes from VM to VM of each coflow, shape (V, V).
    :ivar egress_bps: rate out of each host, shape (H,).
    :ivar ingress_bps: rate into each host, shape (H,).
    :ivar slots: VMs that each host has room for, shape (H,).
    """

    bytes_between: Sequence[np.ndarray]
    egress_bps: np.ndarray
    ingress_bps: np.ndarray
    slots: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class Optimum:
    """Best placement and schedule that were found, with a proven bound.

    :ivar mean_s: mean CCT of the schedule.
    :ivar bound_s: no placement and schedule has a mean CCT below.
    :ivar hosts: host of each VM, by coflow.
    :ivar order: coflows in the order of their ends.
    :ivar nodes: nodes of the search.
    """

    mean_s: float
    bound_s: float
    hosts: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    nodes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """Assignments of one coflow's VMs to hosts.

    :ivar hosts: host of each VM, shape (A, V).
    :ivar taken: slots that each takes, shape (A, H).
    :ivar busy_s: time of each port, egress first, shape (A, 2H).
    :ivar least_bits: bits that any of them sends between hosts.
    """

    hosts: np.ndarray
    taken: np.ndarray
    busy_s: np.ndarray
    least_bits: float


def solve(problem: Problem, tolerance: float = TOLERANCE,
          most_nodes: int = 1_000_000) -> Optimum:
    """Find the least mean CCT of any placement and schedule.

    :param tolerance: relative distance of the bound at which it is proven.
    :param most_nodes: nodes after which an interval is returned instead.
    """
    search = _Search(problem, tolerance, most_nodes)
    search.visit(_Node((), (), np.zeros(2 * len(problem.slots)),
                       problem.slots, 0.0))
    n_coflows = len(problem.bytes_between)
    best = dict(zip(search.best.order, search.best.rows, strict=True))
    return Optimum(
        search.best_s / n_coflows,
        min(search.best_s, search.open_s,
            search.best_s / (1 + tolerance)) / n_coflows,
        tuple(tuple(search.choices[coflow].hosts[best[coflow]].tolist())
              for coflow in range(n_coflows)),
        search.best.order, search.nodes)


@dataclasses.dataclass(frozen=True, slots=True)
class _Node:
    """Coflows in the order of their ends, with their assignments.

    :ivar rows: assignment of each, a row of its choices.
    :ivar busy_s: time that they take at each port, shape (2H,).
    :ivar left: slots that they leave, shape (H,).
    :ivar sum_s: sum of their least CCTs.
    """

    order: tuple[int, ...]
    rows: tuple[int, ...]
    busy_s: np.ndarray
    left: np.ndarray
    sum_s: float

    def child(self, coflow: int, row: int, choices: Choices) -> '_Node':
        busy_s = self.busy_s + choices.busy_s[row]
        return _Node((*self.order, coflow), (*self.rows, row), busy_s,
                     self.left - choices.taken[row],
                     self.sum_s + float(busy_s.max()))


class _Search:
    """Depth-first branch and bound, the child of the least bound first."""

    def __init__(self, problem: Problem, tolerance: float, most_nodes: int):
        self.problem = problem
        self.choices = [choices(problem, one)
                        for one in problem.bytes_between]
        self.best_s = self.open_s = np.inf
        self.best: _Node
        self.nodes = 0
        self._slack = 1 + tolerance
        self._most_nodes = most_nodes
        self._link_bps = np.array([problem.egress_bps.sum(),
                                   problem.ingress_bps.sum()])
        # Least sum by assigned coflows: in any other order they are no better.
        self._seen: dict[frozenset[tuple[int, int]], float] = {}

    def visit(self, node: _Node) -> None:
        """Search below a node."""
        if len(node.order) == len(self.choices):
            self._end(node)
            return
        self.nodes += 1
        key = frozenset(zip(node.order, node.rows, strict=True))
        if self._seen.get(key, np.inf) <= node.sum_s:
            return
        self._seen[key] = node.sum_s
        for bound_s, coflow, row in self._children(node):
            if bound_s * self._slack >= self.best_s:
                break
            if self.nodes >= self._most_nodes and self.best_s < np.inf:
                self.open_s = min(self.open_s, bound_s)
                break
            self.visit(node.child(coflow, row, self.choices[coflow]))

    def _children(self, node: _Node) -> list[tuple[float, int, int]]:
        """List coflow and assignment of the children with their bounds."""
        rest = [coflow for coflow in range(len(self.choices))
                if coflow not in node.order]
        rows, ends_s = {}, {}
        for coflow in rest:
            its = self.choices[coflow]
            fits = np.flatnonzero((its.taken <= node.left + _ROUNDING).all(1))
            if not len(fits):
                return []
            rows[coflow] = fits
            ends_s[coflow] = (node.busy_s + its.busy_s[fits]).max(1)
        next_s = {coflow: float(found.min())
                  for coflow, found in ends_s.items()}
        half = len(node.busy_s) // 2
        sent_bits = np.array([
            node.busy_s[:half] @ self.problem.egress_bps,
            node.busy_s[half:] @ self.problem.ingress_bps])
        found: list[tuple[float, int, int]] = []
        for coflow in rest:
            others = [other for other in rest if other != coflow]
            carried_s = ((sent_bits + np.cumsum([
                self.choices[coflow].least_bits, *sorted(
                    self.choices[other].least_bits for other in others)
            ])[:, None]) / self._link_bps).max(1)
            bound_s = node.sum_s + ends_s[coflow]
            for other_s, all_s in zip(
                    sorted(next_s[other] for other in others),
                    carried_s[1:], strict=True):
                bound_s = bound_s + np.maximum(
                    max(other_s, all_s), ends_s[coflow])
            open_rows = np.flatnonzero(bound_s * self._slack < self.best_s)
            found += zip(bound_s[open_rows].tolist(),
                         itertools.repeat(coflow),
                         rows[coflow][open_rows].tolist())
        found.sort()
        return found

    def _end(self, node: _Node) -> None:
        """Schedule a placement whose coflows end in a given order."""
        sum_s = least_sum_s(self.problem, {
            coflow: self.choices[coflow].hosts[row]
            for coflow, row in zip(node.order, node.rows, strict=True)})
        if sum_s < self.best_s:
            self.best_s, self.best = sum_s, node


def best_mean_s(problem: Problem, hosts: Sequence[np.ndarray]) -> float:
    """Compute the least mean CCT of any schedule of a placement.

    :param hosts: host of each VM, by coflow.
    """
    return min(least_sum_s(problem, {coflow: hosts[coflow]
                                     for coflow in order})
               for order in itertools.permutations(range(len(hosts)))
               ) / len(hosts)


def bytes_between(coflow: coflow_model.Coflow) -> np.ndarray:
    """Return the bytes from VM to VM of a coflow, shape (V, V)."""
    found = np.zeros((coflow.n_vms, coflow.n_vms))
    for src, dst, size_bytes in coflow.matrix.rows():
        found[src, dst] = size_bytes
    return found


def choices(problem: Problem, bytes_between: np.ndarray,
            vm_slots: np.ndarray | float = 1) -> Choices:
    """List the assignments of a coflow's VMs that the slots have room for.

    :param vm_slots: slots that each VM takes, shape (V,), or all alike.
    """
    n_hosts, n_vms = len(problem.slots), len(bytes_between)
    hosts = np.array(list(itertools.product(range(n_hosts), repeat=n_vms)))
    at = (hosts[:, :, None] == np.arange(n_hosts)).astype(float)
    taken = np.einsum('avh,v->ah', at, np.broadcast_to(vm_slots, n_vms))
    fits = (taken <= problem.slots + _ROUNDING).all(1)
    hosts, at, taken = hosts[fits], at[fits], taken[fits]
    bits = (hosts[:, :, None] != hosts[:, None, :]) * (
        bytes_between * units.BITS_PER_BYTE)
    sent_bits = np.einsum('auv,auh->ah', bits, at)
    received_bits = np.einsum('auv,avh->ah', bits, at)
    return Choices(
        hosts, taken, np.concatenate((
            sent_bits / problem.egress_bps,
            received_bits / problem.ingress_bps), axis=1),
        float(sent_bits.sum(1).min(initial=np.inf)))


def least_sum_s(problem: Problem, hosts: dict[int, np.ndarray]) -> float:
    """Compute the least sum of CCTs of a placement, by linear programming.

    Variables are the times between two ends, and the bits of each flow in each
    of them; flows of a coflow that ended have none.

    :param hosts: host of each VM by coflow, in the order of the ends.
    """
    n_hosts, n_coflows = len(problem.slots), len(hosts)
    flows = [(place, at[src], n_hosts + at[dst], problem.bytes_between[
                  coflow][src, dst] * units.BITS_PER_BYTE)
             for place, (coflow, at) in enumerate(hosts.items())
             for src, dst in zip(*np.nonzero(problem.bytes_between[coflow]))
             if at[src] != at[dst]]
    if not flows:
        return 0.0
    place, src, dst, size_bits = (np.array(column) for column in zip(*flows))
    # A flow of the coflow that ends first is sent before the first end.
    flow = np.repeat(np.arange(len(flows)), place + 1)
    phase = np.concatenate([np.arange(one + 1) for one in place])
    column = n_coflows + np.arange(len(flow))
    n_columns = n_coflows + len(flow)
    whole = np.zeros((len(flows), n_columns))
    whole[flow, column] = 1
    cap_bps = np.concatenate((problem.egress_bps, problem.ingress_bps))
    carried = np.zeros((n_coflows, len(cap_bps), n_columns))
    carried[phase, src[flow], column] = 1
    carried[phase, dst[flow], column] = 1
    ends = np.arange(n_coflows)
    carried[ends, :, ends] = -cap_bps / cap_bps.max()
    # A time between two ends counts for all coflows that end after it.
    cost = np.append(n_coflows - ends, np.zeros(len(flow)))
    scale_bits = size_bits.max()
    found = scipy.optimize.linprog(
        cost, A_ub=carried.reshape(-1, n_columns),
        b_ub=np.zeros(n_coflows * len(cap_bps)), A_eq=whole,
        b_eq=size_bits / scale_bits, method='highs')
    return float(found.fun * scale_bits / cap_bps.max())
