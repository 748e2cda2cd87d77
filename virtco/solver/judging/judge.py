# SPDX-License-Identifier: Apache-2.0

"""Cost of a placement for the known coflows, by simulating their schedule.

The prefix CCT is an estimate only: a coflow that shares ports waits at one of
them, and MADD then sends nothing at its others either. So the candidates that
a search ends with are judged by the schedule that they will get, simulated as
a fluid with the scheduler's rules (:mod:`virtco.solver.judging.judge_kernel`).
"""

from collections.abc import Iterable
import dataclasses

import numpy as np

from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.judging import judge_kernel
from virtco.solver.model import instance as instances
from virtco.solver.model import loads

#: Looks at a flow that one simulation may take, and units of work of one.
MOST_LOOKS = 1e6
LOOK_UNITS = 50.0
#: Calls of numpy to begin a simulation, and cells for each flow.
JUDGE_CALLS = 60
FLOW_CELLS = 500
#: Fewest times that rates are set anew for an answer to mean anything.
FEWEST_EVENTS = 50
#: Bytes per second of what is not a port of the problem.
UNLIMITED = 1e300
#: A host that nobody knows: its ports have no limit.
BEYOND = -1

#: Source host, destination host, bytes.
Flow = tuple[int, int, float]


class Judge:
    """Simulates the running coflows together with a placement's own.

    It knows the ports of hosts and uplinks, not of pairs.

    :param inst: its hosts are those of the assignments; may be reduced, then
        running coflows have unlimited rates on the dropped hosts.
    :param budget: is charged; how much one simulation may take is a rule of
        its own, so that candidates are judged alike.
    """

    def __init__(self, inst: instances.Instance, budget: budgets.Budget):
        self.inst = inst
        self.budget = budget
        index = {inst.host_name(h): h for h in range(inst.n_hosts)}
        # Other hosts have no port here, but those in the tree have uplinks.
        others = inst.uplinks.leaf_of.keys() - index.keys()
        index.update((name, h) for h, name in enumerate(
            sorted(others), start=inst.n_hosts))
        above = inst.uplinks.above([*list(index)[inst.n_hosts:], ''])
        self.wide = dataclasses.replace(
            inst, pipe=False, port_out=np.hstack([inst.port_out, np.vstack([
                np.full(above.shape[1], -1), np.where(
                    above >= 0, 2 * inst.n_hosts + above, -1)])]))
        self.running = [_flows_of(active, index)
                        for active in inst.problem.active]
        with np.errstate(divide='ignore'):
            self.rate_of = np.append(1 / inst.s_per_byte[:inst.n_fabric],
                                     UNLIMITED)

    def total_s(self, assign: np.ndarray) -> float | None:
        """Sum up the remaining CCTs of all coflows; return None when too many.

        :param assign: host per node.
        """
        coflows = self.running + list(self._own(assign))
        flows = [flow for coflow in coflows for flow in coflow]
        if not flows:
            return 0.0
        n_events = MOST_LOOKS / len(flows)
        if n_events < FEWEST_EVENTS:
            return None
        src, dst = np.array([flow[:2] for flow in flows], np.int64).T
        left = np.array([flow[2] for flow in flows])
        path = self.wide.paths(src, dst)
        path[path < 0] = len(self.rate_of) - 1
        grain_s = 0.0
        if n_events < len(flows) / 2:
            load = np.bincount(path.ravel(), np.repeat(left, path.shape[1]),
                               len(self.rate_of))
            grain_s = float(np.divide(
                load, self.rate_of, where=load > 0,
                out=np.zeros(len(load))).max()) / n_events
        start = np.concatenate([[0], np.cumsum(
            [len(coflow) for coflow in coflows])]).astype(np.int64)
        n, n_ports, work = len(coflows), len(self.rate_of), np.zeros(1)
        total_s = judge_kernel.total_s(
            start, path, left, self.rate_of, grain_s, 4 * MOST_LOOKS,
            np.zeros(n, np.int64), np.zeros(n, np.int64),
            np.zeros(n, np.int64), np.zeros(n), np.zeros(len(flows)),
            np.zeros(n_ports), np.zeros(n_ports), work)
        self.budget.spend_numpy(JUDGE_CALLS, FLOW_CELLS * len(flows))
        self.budget.spend(LOOK_UNITS * work[0])
        return None if total_s < 0 else total_s

    def _own(self, assign: np.ndarray) -> Iterable[list[Flow]]:
        m = self.inst.n_hosts
        for src, dst, size_bytes in self.inst.arcs:
            pair = assign[src] * m + assign[dst]
            crosses = assign[src] != assign[dst]
            pairs, which = np.unique(pair[crosses], return_inverse=True)
            total = np.bincount(which, size_bytes[crosses], len(pairs))
            yield list(zip((pairs // m).tolist(), (pairs % m).tolist(),
                           total.tolist()))


def _flows_of(active: snapshot.ActiveCoflow, index: dict[str, int]
              ) -> list[Flow]:
    """List a coflow's flows between hosts, by source and destination."""
    total: dict[tuple[int, int], float] = {}
    for src, dst, size_bytes in loads.pairs_of(active):
        pair = index.get(src, BEYOND), index.get(dst, BEYOND)
        if size_bytes > 0 and pair != (BEYOND, BEYOND):
            total[pair] = total.get(pair, 0.0) + size_bytes
    return [(a, b, size) for (a, b), size in sorted(total.items())]
