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

"""Frozen inputs and outputs of the planner."""

import dataclasses
import enum

from virtco.model import cluster
from virtco.model import coflow as coflow_model


class Objective(enum.StrEnum):
    """What a placement minimises (ALGORITHMS section 6).

    ONLINE: sum of prefix CCTs of all active coflows in MRTF order, the others
    fixed, and what coflows to come are expected to wait. ISOLATED: the
    newcomer's own t, VirtCO Eq. (3). JOINT: the sum over all coflows of the
    problem that wait together, nobody else in mind.
    """

    ONLINE = 'online'
    ISOLATED = 'isolated'
    JOINT = 'joint'


class GroupPolicy(enum.StrEnum):
    AFFINITY = 'affinity'
    ANTI_AFFINITY = 'anti-affinity'
    SOFT_AFFINITY = 'soft-affinity'
    SOFT_ANTI_AFFINITY = 'soft-anti-affinity'


@dataclasses.dataclass(frozen=True, slots=True)
class ActiveCoflow:
    """A coflow that already runs elsewhere: its remaining load per host.

    :ivar out_bytes: host name -> bytes it still has to send from there.
    :ivar in_bytes: host name -> bytes it still has to receive there.
    :ivar pairs: (source host, destination host, bytes) of the same; empty
        where they are not known.
    """

    coflow_id: str
    out_bytes: tuple[tuple[str, float], ...]
    in_bytes: tuple[tuple[str, float], ...]
    pairs: tuple[tuple[str, str, float], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ServerGroup:
    """Nova server group over VM indices and the hosts its others hold."""

    policy: GroupPolicy
    members: tuple[int, ...]
    taken_hosts: frozenset[str] = frozenset()
    max_per_host: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class PlacementProblem:
    """Everything the planner looks at; it reads nothing else.

    :ivar hosts: candidate hosts and hosts of pinned VMs.
    :ivar vms: the group's VMs; coflow rows index into them.
    :ivar coflows: the group's coflows (several may share the VMs, Fig. 1).
    :ivar active: coflows of other groups, with what they still have to move.
    :ivar pair_rate_bps: Choreo's pipe matrix R_mn by (host, host); when given
        it replaces the hose rows, with ``hose_limits`` True both hold.
    :ivar resources: names of the entries of the capacity vectors.
    """

    hosts: tuple[cluster.Host, ...]
    vms: tuple[cluster.Vm, ...]
    coflows: tuple[coflow_model.Coflow, ...]
    racks: tuple[cluster.Rack, ...] = ()
    active: tuple[ActiveCoflow, ...] = ()
    server_groups: tuple[ServerGroup, ...] = ()
    pair_rate_bps: dict[tuple[str, str], float] | None = None
    hose_limits: bool = False
    resources: tuple[str, ...] = ('slots',)
    excluded_hosts: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A valid placement with its certificate.

    :ivar hosts: host name per VM, in the problem's order.
    :ivar cct_s: t of the group's coflows together, VirtCO Eq. (3), on the
        problem's bandwidth.
    :ivar coflow_cct_s: predicted CCT per coflow under MRTF order with the
        active ones, in the problem's coflow order.
    :ivar objective_s: value of the objective that was minimised.
    :ivar lower_bound_s: no valid placement has a smaller t than this.
    :ivar gap: cct_s / lower_bound_s - 1; 0 when both are 0, inf when only
        the bound is 0.
    :ivar method: which candidate or search stage gave it.
    :ivar bottleneck: the port that decides t, e.g. ``'h3 egress'``.
    :ivar objective_bound_s: no valid placement has a smaller objective; 0
        where nothing is known.
    :ivar set_partition: whether its linear relaxation was solved; without
        it, what came before was good enough or the time was over.
    """

    hosts: tuple[str, ...]
    cct_s: float
    coflow_cct_s: tuple[float, ...]
    objective: Objective
    objective_s: float
    lower_bound_s: float
    gap: float
    method: str
    iterations: int = 0
    bottleneck: str = 'none'
    notes: tuple[str, ...] = ()
    objective_bound_s: float = 0.0
    set_partition: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class RankedHost:
    """One candidate host of one VM, the others staying where planned."""

    host: str
    feasible: bool
    objective_s: float
    cct_s: float
    why: str
