# SPDX-License-Identifier: Apache-2.0

"""Replay of a trace of unknown sizes, which pilots estimate.

As :mod:`virtco_lab.sim.deployed`, but the controller believes
:func:`virtco.scheduling.pilots.remaining_bytes` instead of the truth. It
knows the flows, the bytes that each has sent at every report, and which flows
have ended. Pilots are a coflow of their own with a hundredth of the other's
size, so MRTF serves them first; their bytes count as part of the coflow.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from virtco import exception
from virtco import units
from virtco.fluid import run_kernels
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import pilots
from virtco.scheduling import policies
from virtco.scheduling import rater_kernel
from virtco_lab.sim import demands as demand_model
from virtco_lab.sim import deployed
from virtco_lab.sim import replay
from virtco_lab.sim import simulation
from virtco_lab.sim import traces


def run(trace: traces.Trace, rate_bps: float, policy: str,
        deployment: deployed.Deployment = deployed.Deployment(),
        progress: Callable[[float, int], None] | None = None
        ) -> replay.Replay:
    """Replay a trace of which the controller knows no size.

    :raises virtco.exception.Invalid: for a policy that does not order by the
        bytes left.
    """
    if (policy not in policies.POLICIES
            or policies.get(policy).key != policies.BY_REMAINING):
        raise exception.Invalid(field='policy', value=policy,
                                limit='a policy by remaining bytes')
    whole = [coflow.demand() for coflow in trace.coflows]
    cap_bps = np.full(2 * trace.n_ports, rate_bps)
    sim = simulation.Simulation(
        cap_bps, simulation.Config(policy, 'in-order'),
        [part for demand in whole for part in _parts(demand)])
    late = deployed.Late(sim, deployment, Mind(sim))
    for index, coflow in enumerate(trace.coflows):
        late.run(coflow.arrival_s, progress)
        sim.now_s = coflow.arrival_s
        for part in (2 * index, 2 * index + 1):
            sim.start(part)
        late.rate()
    late.run(np.inf, progress)
    return replay.Replay(
        sim.completion_s().reshape(-1, 2).max(axis=1),
        simulation.alone_s(demand_model.fabric_of(cap_bps, whole)), sim.events)


def _parts(demand: fabric_model.Demand) -> list[fabric_model.Demand]:
    """Split the flows of a coflow into pilots and others."""
    is_pilot = pilots.choose(len(demand.bits))
    return [fabric_model.Demand(*(column[which] for column in demand))
            for which in (is_pilot, ~is_pilot)]


class _Coflow(NamedTuple):
    """Flows and entries of both parts of a coflow, which follow each other.

    :ivar receiver: numbers of the flows' ingress ports among its own.
    """

    flows: slice
    entries: slice
    is_pilot: np.ndarray
    receiver: np.ndarray


class Mind:
    """The controller's estimate of the bytes left, by pilots.

    The ends of flows are true: those arrays are shared with the simulation.
    """

    def __init__(self, sim: simulation.Simulation):
        fabric = sim.fabric
        self._size_bits = fabric.base.copy()
        self._truth = fabric
        self._fabric = fabric._replace(
            base=np.zeros_like(fabric.base), load=np.zeros_like(fabric.load),
            scale=np.ones_like(fabric.scale))
        self._bound = np.zeros(len(fabric.scale))
        # Without sets of ports: they do not hear of flows that end.
        self.rater = rater_kernel.Rater(self._fabric, False)
        self.run_of = run_kernels.Run(
            self.rater, sim.state._replace(bound=self._bound), sim.rules)
        self._coflows = [_layout(fabric, c)
                         for c in range(len(fabric.scale) // 2)]

    def look(self, order: np.ndarray) -> None:
        for number in np.unique(order // 2).tolist():
            self._believe(number, self._coflows[number])

    def _believe(self, number: int, coflow: _Coflow) -> None:
        fabric = self._fabric
        left_bits = self._truth.base[coflow.flows]
        sent_bits = self._size_bits[coflow.flows] - left_bits
        base = fabric.base[coflow.flows]
        base[:] = units.BITS_PER_BYTE * pilots.remaining_bytes(
            coflow.receiver, sent_bits / units.BITS_PER_BYTE, left_bits <= 0,
            coflow.is_pilot)
        first = coflow.entries.start
        load = fabric.load[coflow.entries]
        load[:] = sum(np.bincount(ends[coflow.flows] - first, base, len(load))
                      for ends in (fabric.src, fabric.dst))
        busy_s = load / fabric.cap[fabric.port[coflow.entries]]
        for part in (2 * number, 2 * number + 1):
            begin, end = fabric.entry_ptr[part:part + 2] - first
            self._bound[part] = busy_s[begin:end].max(initial=0.0)


def _layout(fabric: fabric_model.Fabric, number: int) -> _Coflow:
    parts = slice(2 * number, 2 * number + 3)
    first, middle, end = fabric.flow_ptr[parts].tolist()
    flows = slice(first, end)
    begin, _, stop = fabric.entry_ptr[parts].tolist()
    receiver = fabric.port[fabric.dst[flows]]
    return _Coflow(flows, slice(begin, stop),
                   np.arange(first, end) < middle,
                   np.unique(receiver, return_inverse=True)[1])
