# SPDX-License-Identifier: Apache-2.0

"""Hosts, the tree above them and VMs as the planner sees them."""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
import math


@dataclass(frozen=True, slots=True)
class Host:
    """A hypervisor h_m with its free capacity.

    :ivar free: capacity vector slot_m, one entry per resource of the problem
        (one-dimensional "slots", or vCPU, RAM, disk).
    :ivar egress_bps: B_e^m, rate towards the core.
    :ivar ingress_bps: B_in^m, rate from the core.
    """

    name: str
    free: tuple[float, ...]
    egress_bps: float
    ingress_bps: float


@dataclass(frozen=True, slots=True)
class Subtree:
    """A part of the fabric below one uplink: a rack, a pod, a room.

    Bytes between a host in it and one that is not pass its uplink.

    :ivar uplink_out_bps: rate towards the core, inf for no limit.
    :ivar uplink_in_bps: rate from the core.
    :ivar parent: name of the subtree that it is part of, None for the core.
    :ivar level: operators' name of its level. Only they tell levels by their
        names; the planner goes by the parents.
    """

    name: str
    uplink_out_bps: float
    uplink_in_bps: float
    parent: str | None = None
    level: str = 'rack'


@dataclass(frozen=True, slots=True)
class Tree:
    """The tree of subtrees above the hosts, below the core.

    It may have any depth, and hosts may be at any of it. Two racks of a pod,
    a host in each, and a third host that is right below the core::

        Tree((Subtree('p0', 4e10, 4e10, level='pod'),
              Subtree('r0', 2e10, 2e10, 'p0'),
              Subtree('r1', 2e10, 2e10, 'p0')),
             {'h0': 'r0', 'h1': 'r1'})

    :ivar subtrees: subtrees of all levels, in any order; their names differ.
    :ivar leaf_of: host name -> name of the subtree right above it. A host
        that is missing is right below the core. It may name hosts that are
        not candidates: what running coflows send there passes uplinks, too.
    """

    subtrees: tuple[Subtree, ...] = ()
    leaf_of: Mapping[str, str] = field(default_factory=dict)

    def chains(self) -> dict[str, tuple[Subtree, ...]]:
        """Return the subtrees that each subtree is in, core first, itself
        last.

        :raises KeyError: for a parent that is not among the subtrees.
        :raises ValueError: for subtrees that contain each other.
        """
        by_name = {one.name: one for one in self.subtrees}
        found: dict[str, tuple[Subtree, ...]] = {}
        for one in self.subtrees:
            above: list[Subtree] = []
            name: str | None = one.name
            while name is not None and name not in found:
                above.append(by_name[name])
                if len(above) > len(by_name):
                    raise ValueError(one.name)
                name = above[-1].parent
            chain = found[name] if name is not None else ()
            for inner in reversed(above):
                chain = (*chain, inner)
                found[inner.name] = chain
        return found


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM v_j of the group that is placed.

    :ivar demand: size_j, one entry per resource, in Host.free's order.
    :ivar pinned: host it already runs on. Its demand is *already* taken from
        that host's ``free`` when ``counted`` is True.
    :ivar counted: see pinned.
    :ivar allowed: hosts it may go to (Nova's candidates), None = all.
    :ivar egress_cap_bps: the most that it sends, to its own host as well.
    :ivar ingress_cap_bps: the most that it receives, likewise.
    :ivar egress_burst_bytes: bytes that it may send at once beyond its cap.
    :ivar ingress_burst_bytes: bytes that it may receive at once beyond its
        cap.
    """

    name: str
    demand: tuple[float, ...]
    pinned: str | None = None
    counted: bool = False
    allowed: frozenset[str] | None = None
    egress_cap_bps: float = math.inf
    ingress_cap_bps: float = math.inf
    egress_burst_bytes: float = 0.0
    ingress_burst_bytes: float = 0.0
