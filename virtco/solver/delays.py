# SPDX-License-Identifier: Apache-2.0

"""Running coflows that a placement would delay. Pure."""

import dataclasses

import numpy as np

from virtco.model import snapshot
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives


@dataclasses.dataclass(frozen=True, slots=True)
class Delay:
    """Delay of a running coflow, by prefix CCTs in MRTF order.

    :ivar before_s: time without the problem's own coflows.
    :ivar after_s: time with them where the plan puts them.
    """

    coflow_id: str
    before_s: float
    after_s: float


def delays(problem: snapshot.PlacementProblem, plan: snapshot.Plan
           ) -> tuple[Delay, ...]:
    """List running coflows that would end later, the longest delay first.

    :raises virtco.exception.Invalid: when the problem makes no sense.
    """
    inst = instances.build(problem)
    own = objectives.own_loads(inst, inst.from_hosts(plan.hosts))
    after_s = objectives.prefix_cct_s(inst, own)[:len(inst.running)]
    before_s = inst.running_prefix_s
    found = [Delay(problem.active[inst.running_order[i]].coflow_id,
                   float(before_s[i]),
                   float(after_s[i]))
             for i in np.flatnonzero(after_s > before_s * (1 + 1e-9))]
    return tuple(sorted(found, key=lambda one: one.before_s - one.after_s))
