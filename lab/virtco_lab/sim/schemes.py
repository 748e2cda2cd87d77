# SPDX-License-Identifier: Apache-2.0

"""Schemes of placement and scheduling that the papers compare.

The baselines are given the same scheduler as virtco where they have one at
all (re-rated at each flow end, back-filled), so that a difference between
two schemes with the same order comes from the placement.
"""

import dataclasses

from virtco import exception
from virtco import own_policies
from virtco.model import snapshot
from virtco_lab.sim import simulation


@dataclasses.dataclass(frozen=True, slots=True)
class Scheme:
    """How VMs are placed and coflows served.

    :ivar planner: a name that :func:`virtco_lab.placement.baselines.plan`
        knows.
    :ivar order: a scheduling policy.
    :ivar objective: objective that virtco's planner minimises.
    :ivar window_s: groups that come within this of the first one that waits
        are placed in one go, when it has passed; None: one after another.
    :ivar ceil: the controller's setting; None leaves its default.
    """

    name: str
    label: str
    planner: str
    order: str
    objective: snapshot.Objective = snapshot.Objective.ONLINE
    window_s: float | None = None
    ceil: str | None = None

    def config(self) -> simulation.Config:
        """Return a simulation's configuration with the scheme's policy.

        :raises virtco.exception.Invalid: for an own order, and none installed.
        """
        return simulation.Config(own_policies.named(self.order))

    def settings(self) -> dict[str, str]:
        """Build the body of ``PATCH /v1/settings`` of the controller."""
        made = {'planner': self.planner, 'order': self.order,
                'objective': str(self.objective)}
        return made if self.ceil is None else made | {'ceil': self.ceil}


SCHEMES = {scheme.name: scheme for scheme in (
    Scheme('baseline', 'Baseline', 'spread', 'fair'),
    Scheme('sebf-r', 'SEBF-R', 'random', 'sebf'),
    Scheme('fs-ta', 'FS-TA', 'min-cut', 'fair'),
    Scheme('sebf-ta-greedy', 'SEBF-TA (greedy)', 'choreo', 'sebf'),
    Scheme('sebf-ta', 'SEBF-TA (min-cut)', 'min-cut', 'sebf'),
    Scheme('sincronia', 'Sincronia (min-cut)', 'min-cut', 'sincronia'),
    Scheme('virtco-printed', 'VirtCO as printed', 'virtco-printed', 'mrtf'),
    Scheme('virtco-isolated', 'VirtCO, full bandwidth', 'virtco', 'mrtf',
           snapshot.Objective.ISOLATED),
    Scheme('virtco-tcp', "virtco's placement, TCP", 'virtco', 'fair'),
    Scheme('virtco', 'virtco (online)', 'virtco', 'mrtf'),
    Scheme('virtco-joint', 'virtco (batch)', 'virtco', 'mrtf',
           snapshot.Objective.JOINT, window_s=0.0),
)}


def get(name: str) -> Scheme:
    """Look a scheme up by name.

    :raises virtco.exception.Invalid: for a name that is none.
    """
    if name not in SCHEMES:
        raise exception.Invalid(field='scheme', value=name,
                                limit='one of ' + ', '.join(SCHEMES))
    return SCHEMES[name]
