# SPDX-License-Identifier: Apache-2.0

"""The compact relaxation with capacity-safe rounding: a planner of its own.

VirtCO's Algorithm 2 puts each VM on the host with its largest x_j^m, which
breaks the slots of most instances. Here the largest share that still fits is
taken first, over all VMs and hosts; among equal shares the host with more
of the VM's traffic wins.
"""

import numpy as np

from virtco.solver import budget as budgets
from virtco.solver.exact import relaxation
from virtco.solver.model import instance as instances
from virtco.solver.model import traffic
from virtco.solver.starts import candidates


def place(inst: instances.Instance, budget: budgets.Budget
          ) -> tuple[np.ndarray | None, float]:
    """Hosts per node, and the relaxation's bound of t.

    None instead of hosts, and a bound of 0, when the budget does not do or
    what is left over fits nowhere.
    """
    if not budget.holds(relaxation.build_units(inst)):
        return None, 0.0
    solution = relaxation.solve(inst, budget)
    if solution is None:
        return None, 0.0
    return round_shares(inst, solution.share), solution.lower_s


def round_shares(inst: instances.Instance, share: np.ndarray
                 ) -> np.ndarray | None:
    """Hosts per node, or None when the nodes left over do not fit.

    :param share: x_j^m, shape (n, M).
    """
    filler = candidates.Filler(inst)
    bytes_between = traffic.both_ways(inst)
    left = set(np.flatnonzero(filler.assign < 0).tolist())
    while left:
        best, where = -1.0, (-1, -1)
        for node in sorted(left):
            hosts = filler.hosts_for(node)
            if not len(hosts):
                return None
            pull = _pull(filler, node, bytes_between)
            value = np.round(share[node, hosts], 6) + 1e-7 * pull[hosts]
            if value.max() > best:
                best = float(value.max())
                where = node, int(hosts[value.argmax()])
        filler.put(*where)
        left.discard(where[0])
    return filler.done()


def _pull(filler: candidates.Filler, node: int,
          bytes_between: np.ndarray) -> np.ndarray:
    """Part of the node's traffic that is with nodes on each host."""
    pull = np.zeros(filler.inst.n_hosts)
    placed = np.flatnonzero(filler.assign >= 0)
    np.add.at(pull, filler.assign[placed], bytes_between[node, placed])
    return pull / max(float(bytes_between[node].sum()), 1e-300)
