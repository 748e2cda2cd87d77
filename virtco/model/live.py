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
"""Coflows in flight, and what the scheduler decides about them."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class LiveFlow:
    """Remaining bytes of one coflow from one host to another.

    Flows between VMs of the same host pair are one LiveFlow: enforcement is
    at the granularity of coflows and hypervisors (VirtCO Corollary 1).
    """

    src_host: str
    dst_host: str
    remaining_bytes: float


@dataclasses.dataclass(frozen=True, slots=True)
class LiveCoflow:
    """An unfinished coflow as the scheduler sees it.

    :ivar arrival_s: when it became active (any clock, the same for all).
    :ivar served_s: when it last made progress (theta counts from here).
    :ivar sent_bytes: counted at the edges.
    :ivar claimed_bytes: what the tenant hinted.
    :ivar priority_class: set by an operator, lower is served first.
    :ivar weight: for weighted fair sharing.
    :ivar n_flows: number of VM-to-VM flows (per-flow fair sharing).
    """

    coflow_id: str
    flows: tuple[LiveFlow, ...]
    arrival_s: float = 0.0
    served_s: float = 0.0
    sent_bytes: float = 0.0
    claimed_bytes: float = 0.0
    project_id: str = ''
    priority_class: int = 0
    weight: float = 1.0
    n_flows: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Port:
    """Capacity of one host's uplink that coflows may use."""

    host: str
    egress_bps: float
    ingress_bps: float


@dataclasses.dataclass(frozen=True, slots=True)
class FlowRate:
    src_host: str
    dst_host: str
    rate_bps: float


@dataclasses.dataclass(frozen=True, slots=True)
class CoflowSchedule:
    """What one coflow gets until the next event.

    :ivar rank: 0 is served first.
    :ivar remaining_cct_s: its remaining time alone on the fabric.
    :ivar predicted_end_s: with the order and the rates of this schedule.
    :ivar starving: True when theta lifted it to the front.
    """

    coflow_id: str
    rank: int
    remaining_cct_s: float
    predicted_end_s: float
    flow_rates: tuple[FlowRate, ...]
    starving: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """All coflows in order of rank."""

    now_s: float
    coflows: tuple[CoflowSchedule, ...]
