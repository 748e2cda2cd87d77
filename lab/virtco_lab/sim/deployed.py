# SPDX-License-Identifier: Apache-2.0

"""Replay of a trace whose rates come into force late.

Edges report the bytes left at set times. A policy rates all coflows again at
reports and at arrivals, and its rates arrive after a delay. In between they do
not change: the rate of an ended flow is unused, and a coflow without a rate
waits. Classes without a rate keep a small one. This is not the controller's
code, which :mod:`virtco_lab.sim.controlled` runs.
"""

from collections.abc import Callable
import dataclasses
import math

import numpy as np

from virtco import exception
from virtco.fluid import deployed_kernels
from virtco.fluid import event_kernels
from virtco_lab.sim import replay
from virtco_lab.sim import simulation
from virtco_lab.sim import traces


@dataclasses.dataclass(frozen=True, slots=True)
class Deployment:
    """How late and how rough enforcement is.

    :ivar report_s: from one report to the next.
    :ivar delay_s: from a report or an arrival until the rates are in force.
    :ivar floor: share of a link that classes without a rate get together.
    """

    report_s: float = 1.0
    delay_s: float = 0.1
    floor: float = 0.01

    def __post_init__(self) -> None:
        for field, value in (('report_s', self.report_s),
                             ('delay_s', self.delay_s)):
            if not 0 < value < math.inf:
                raise exception.Invalid(field=field, value=value,
                                        limit='a finite time above 0 s')


def run(trace: traces.Trace, rate_bps: float, policy: str,
        deployment: Deployment,
        progress: Callable[[float, int], None] | None = None
        ) -> replay.Replay:
    """Replay a trace as the controller and the edges would serve it.

    Events are the policies that came into force.

    :raises virtco.exception.Invalid: for a policy without sizes.
    """
    if policy in ('fair', 'dark'):
        raise exception.Invalid(field='policy', value=policy,
                                limit='a policy that gives rates to coflows')
    sim = simulation.Simulation(
        np.full(2 * trace.n_ports, rate_bps),
        simulation.Config(policy, 'in-order'),
        [coflow.demand() for coflow in trace.coflows])
    alone_s = simulation.alone_s(sim.fabric)
    late = Late(sim, deployment)
    for index, coflow in enumerate(trace.coflows):
        late.run(coflow.arrival_s, progress)
        sim.now_s = coflow.arrival_s
        sim.start(index)
        late.rate()
    late.run(math.inf, progress)
    return replay.Replay(sim.completion_s(), alone_s, sim.events)


class Late:
    """A simulation whose rates come into force late."""

    def __init__(self, sim: simulation.Simulation, deployment: Deployment):
        self._sim = sim
        self._deployment = deployment
        self._flow_bps = np.zeros(len(sim.fabric.base))
        self._spare: list[np.ndarray] = []
        #: When they come into force, in order, and rates of all flows.
        self._coming: list[tuple[float, np.ndarray]] = []
        self._report_s = 0.0

    def run(self, until_s: float,
            progress: Callable[[float, int], None] | None) -> None:
        """Let time pass until ``until_s`` or until all have ended."""
        sim = self._sim
        while sim.n_live and sim.now_s < until_s:
            policy_s = self._coming[0][0] if self._coming else math.inf
            next_s = min(until_s, policy_s, self._report_s)
            self._send(next_s)
            if next_s == policy_s:
                self._spare.append(self._flow_bps)
                self._flow_bps = self._coming.pop(0)[1]
                sim.events += 1
                if progress is not None:
                    progress(sim.now_s, sim.events)
            elif next_s == self._report_s:
                self._report_s += self._deployment.report_s
                self.rate()
        if sim.n_live == 0 and until_s < math.inf:
            step_s = self._deployment.report_s
            self._report_s = step_s * math.ceil(until_s / step_s)

    def rate(self) -> None:
        """Rate all live coflows from the bytes left now, for a new policy."""
        sim = self._sim
        order = sim.live[:sim.n_live]
        event_kernels.rerate(sim.rater, sim.run_of, order, sim.now_s)
        flow_bps = (self._spare.pop() if self._spare
                    else np.zeros(len(sim.fabric.base)))
        # Coflows that arrive later have no rate by this policy.
        deployed_kernels.write_rates(sim.rater, order, self._deployment.floor,
                                     flow_bps)
        self._coming.append((sim.now_s + self._deployment.delay_s, flow_bps))

    def _send(self, until_s: float) -> None:
        sim = self._sim
        order = sim.live[:sim.n_live]
        deployed_kernels.send(sim.rater, sim.run_of, order, self._flow_bps,
                              sim.now_s, until_s)
        kept = order[sim.state.left[order] > 0]
        sim.live[:len(kept)] = kept
        sim.n_live = len(kept)
        sim.now_s = until_s
