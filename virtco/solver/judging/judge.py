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

"""What a placement costs the known coflows when they are really scheduled.

The prefix CCT is an estimate only: a coflow that shares ports waits at one of
them, and MADD then sends nothing at its others either. So the candidates that
a search ends with are judged by the schedule that they will get, simulated as
a fluid with the scheduler's rules (:mod:`virtco.solver.judging.judge_kernel`).
"""

from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.judging import judge_kernel
from virtco.solver.model import instance as instances
from virtco import units

#: Looks at a flow that one simulation may take, and units of work of one.
MOST_LOOKS = 1e6
LOOK_UNITS = 50.0
#: Calls of numpy to begin a simulation, and cells for each flow.
JUDGE_CALLS = 60
FLOW_CELLS = 500
#: Fewest times that rates are set anew for an answer to mean anything.
FEWEST_EVENTS = 50
#: Rate of what is not a port of the problem.
UNLIMITED_BPS = 1e300

#: Source port, destination port, bytes.
Flow = tuple[int, int, float]


class Judge:
    """Simulates the running coflows together with a placement's own.

    It knows the ports of hosts only.

    :param inst: its hosts are those of the assignments; may be reduced, then
        running coflows have unlimited rates on the dropped hosts.
    :param budget: is charged; how much one simulation may take is a rule of
        its own, so that candidates are judged alike.
    """

    def __init__(self, inst: instances.Instance, budget: budgets.Budget):
        self.inst = inst
        self.budget = budget
        m = inst.n_hosts
        index = {inst.host_name(h): h for h in range(m)}
        self.running = [_flows_of(active, index, m)
                        for active in inst.problem.active]
        rates = [host.egress_bps for host in inst.problem.hosts]
        rates += [host.ingress_bps for host in inst.problem.hosts]
        ports = np.concatenate([
            inst.host_index, inst.host_index + len(inst.problem.hosts)])
        self.rate_of = np.append(
            np.array(rates)[ports] / units.BITS_PER_BYTE,
            [UNLIMITED_BPS, UNLIMITED_BPS])

    def total_s(self, assign: np.ndarray) -> float | None:
        """Sum of the remaining CCTs of all coflows, None when too many.

        :param assign: host per node.
        """
        coflows = self.running + list(self._own(assign))
        flows = [flow for coflow in coflows for flow in coflow]
        if not flows:
            return 0.0
        n_events = MOST_LOOKS / len(flows)
        grain_s = 0.0
        if n_events < FEWEST_EVENTS:
            return None
        if n_events < len(flows) / 2:
            grain_s = self._longest_s(flows) / n_events
        start = np.concatenate([[0], np.cumsum(
            [len(coflow) for coflow in coflows])]).astype(np.int64)
        src, dst = np.array([flow[:2] for flow in flows], np.int64).T.copy()
        left = np.array([flow[2] for flow in flows])
        n, n_ports, work = len(coflows), len(self.rate_of), np.zeros(1)
        total_s = judge_kernel.total_s(
            start, src, dst, left, self.rate_of, grain_s, 4 * MOST_LOOKS,
            np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n),
            np.zeros(len(flows)), np.zeros(n_ports), np.zeros(n_ports), work)
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
            yield [(a, m + b, size) for a, b, size in zip(
                (pairs // m).tolist(), (pairs % m).tolist(), total.tolist())]

    def _longest_s(self, flows: Sequence[Flow]) -> float:
        """Time of all flows together on their slowest port."""
        load = np.zeros(len(self.rate_of))
        for src, dst, size_bytes in flows:
            load[src] += size_bytes
            load[dst] += size_bytes
        busy = load > 0
        with np.errstate(divide='ignore'):
            return float((load[busy] / self.rate_of[busy]).max())


def _flows_of(active: snapshot.ActiveCoflow, index: dict[str, int], m: int
              ) -> list[Flow]:
    """Flows between ports, by source and destination.

    Where the pairs are not known, the hosts' bytes are matched in order. What
    has no other end among the hosts has it beyond any limit.
    """
    outside = 2 * m
    total: dict[tuple[int, int], float] = {}
    for src, dst, size_bytes in active.pairs or _matched(active):
        a = index.get(src, outside)
        b = m + index[dst] if dst in index else outside + 1
        if size_bytes > 0 and (a, b) != (outside, outside + 1):
            total[a, b] = total.get((a, b), 0.0) + size_bytes
    return [(a, b, size) for (a, b), size in sorted(total.items())]


def _matched(active: snapshot.ActiveCoflow
             ) -> Iterable[tuple[str, str, float]]:
    out, into = list(active.out_bytes), list(active.in_bytes)
    while out or into:
        src, left = out.pop() if out else ('', np.inf)
        dst, room = into.pop() if into else ('', np.inf)
        size_bytes = min(left, room)
        yield src, dst, size_bytes
        if left > size_bytes and src:
            out.append((src, left - size_bytes))
        if room > size_bytes and dst:
            into.append((dst, room - size_bytes))
