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

"""Hosts, racks and VMs as the planner sees them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """A hypervisor h_m with what is left on it.

    :ivar free: capacity vector slot_m, one entry per resource of the problem
        (one-dimensional "slots", or vCPU, RAM, disk).
    :ivar egress_bps: B_e^m, rate towards the core.
    :ivar ingress_bps: B_in^m, rate from the core.
    :ivar rack: name of a :class:`Rack` or None.
    """

    name: str
    free: tuple[float, ...]
    egress_bps: float
    ingress_bps: float
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Rack:
    """A rack whose uplink may be oversubscribed."""

    name: str
    uplink_out_bps: float
    uplink_in_bps: float


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM v_j of the group that is placed.

    :ivar demand: size_j, one entry per resource, in Host.free's order.
    :ivar pinned: host it already runs on. Its demand is *already* taken from
        that host's ``free`` when ``counted`` is True.
    :ivar counted: see pinned.
    :ivar allowed: hosts it may go to (Nova's candidates), None = all.
    """

    name: str
    demand: tuple[float, ...]
    pinned: str | None = None
    counted: bool = False
    allowed: frozenset[str] | None = None
