# SPDX-License-Identifier: Apache-2.0

"""Replay a trace of coflows whose ports are given."""

from collections.abc import Callable
import dataclasses
import math

import numpy as np

from virtco import exception
from virtco.scheduling import policies
from virtco_lab.sim import bound
from virtco_lab.sim import demands as demand_model
from virtco_lab.sim import order_bound
from virtco_lab.sim import simulation
from virtco_lab.sim import traces

#: Published rules of SEBF and Aalo: new rates only when a coflow starts, ends
#: or (Aalo) changes its queue; SEBF shares MADD's rest between all flows.
AS_PUBLISHED = {
    'sebf': simulation.Config('sebf', 'max-min', each_flow=False),
    'dark': simulation.Config('dark', each_flow=False)}


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """CCT and time alone on the fabric of each coflow of a trace, seconds.

    :ivar cct_s: shape (C,), in the trace's order.
    :ivar alone_s: shape (C,), a lower bound of cct_s.
    """

    cct_s: np.ndarray
    alone_s: np.ndarray
    events: int


def config_of(policy: str | policies.Policy, theta_s: float = math.inf
              ) -> simulation.Config:
    """Return the configuration of a policy, or of its name, in a replay."""
    published = (AS_PUBLISHED.get(policy) if isinstance(policy, str)
                 else None)
    return dataclasses.replace(published or simulation.Config(policy),
                               theta_s=theta_s)


def replay(trace: traces.Trace, rate_bps: float, config: simulation.Config,
           progress: Callable[[float, int], None] | None = None) -> Replay:
    """Run every coflow from its arrival on ports of ``rate_bps`` both ways.

    :raises virtco.exception.Invalid: for a rate that is not above 0.
    """
    cap_bps = _capacity_bps(trace, rate_bps)
    sim = simulation.Simulation(
        cap_bps, config, (coflow.demand() for coflow in trace.coflows))
    alone_s = simulation.alone_s(sim.fabric)
    for index, coflow in enumerate(trace.coflows):
        sim.run(coflow.arrival_s, progress=progress)
        sim.start(index)
    sim.run(progress=progress)
    return Replay(sim.completion_s(), alone_s, sim.events)


def least_mean_cct_s(trace: traces.Trace, rate_bps: float) -> float:
    """Bound the mean CCT of any schedule of the trace from below, in s.

    :raises virtco.exception.Invalid: for a rate that is not above 0.
    """
    fabric = demand_model.fabric_of(
        _capacity_bps(trace, rate_bps),
        (coflow.demand() for coflow in trace.coflows))
    release_s = np.array([coflow.arrival_s for coflow in trace.coflows])
    return max(bound.least_mean_cct_s(fabric, release_s),
               order_bound.least_mean_cct_s(fabric, release_s))


def _capacity_bps(trace: traces.Trace, rate_bps: float) -> np.ndarray:
    if not (math.isfinite(rate_bps) and rate_bps > 0):
        raise exception.Invalid(field='rate_bps', value=rate_bps,
                                limit='a finite rate above 0')
    return np.full(2 * trace.n_ports, rate_bps)


def quantile(values: np.ndarray, fraction: float) -> float:
    """Find the order statistic below which that fraction of values lies.

    Of no values it is 0.
    """
    ordered = np.sort(values)
    return float(ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]
                 if len(ordered) else 0.0)


def summary(values: np.ndarray) -> dict[str, float]:
    """Return mean, median and 95th percentile of times in seconds."""
    return {'mean_s': float(values.mean()) if len(values) else 0.0,
            'median_s': quantile(values, 0.5), 'p95_s': quantile(values, 0.95)}
