# SPDX-License-Identifier: Apache-2.0

"""Frozen inputs and outputs of the planner."""

from collections.abc import Iterable
import dataclasses
import enum
import math

from virtco.model import cluster
from virtco.model import coflow as coflow_model


class Objective(enum.StrEnum):
    """The quantity that a placement minimises (ALGORITHMS section 6).

    ONLINE: sum of prefix CCTs of all active coflows in MRTF order, the others
    fixed, and what coflows to come are expected to wait. ISOLATED: the
    newcomer's own t, VirtCO Eq. (3). JOINT: the sum over all coflows of the
    problem that wait together, nobody else in mind.
    """

    ONLINE = 'online'
    ISOLATED = 'isolated'
    JOINT = 'joint'


class Scope(enum.StrEnum):
    """The placements and schedules for which a lower bound holds.

    The constraints are those of the problem: what is free, pinned and
    allowed, server groups, and switches that are shared or spread over.
    """

    PLACEMENT = 'this placement'
    CONSTRAINTS = 'any placement under these constraints'
    SCHEDULE = 'any schedule'


class GroupPolicy(enum.StrEnum):
    """Policy of Nova's server group."""

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

    @classmethod
    def of(cls, coflow_id: str, pairs: Iterable[tuple[str, str, float]]
           ) -> 'ActiveCoflow':
        """Sum up the bytes of pairs of hosts at each of their ends."""
        pairs = tuple(pairs)
        out_bytes: dict[str, float] = {}
        in_bytes: dict[str, float] = {}
        for src, dst, size_bytes in pairs:
            out_bytes[src] = out_bytes.get(src, 0.0) + size_bytes
            in_bytes[dst] = in_bytes.get(dst, 0.0) + size_bytes
        return cls(coflow_id, tuple(out_bytes.items()),
                   tuple(in_bytes.items()), pairs)


@dataclasses.dataclass(frozen=True, slots=True)
class ServerGroup:
    """Nova server group over VM indices and the hosts its others hold."""

    policy: GroupPolicy
    members: tuple[int, ...]
    taken_hosts: frozenset[str] = frozenset()
    max_per_host: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Within:
    """VMs that have to be below one switch of a level, whichever it is.

    Where some of them are pinned, the others go below the switch that holds
    most of those.

    :ivar level: level of the tree's subtrees.
    :ivar members: VM indices.
    """

    level: str
    members: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """VMs of which no switch of a level may have more than a share.

    The share is the number of members by that of usable switches, rounded up,
    plus the skew. A switch is usable when it is above a host that a member
    may go to or is pinned to. Hosts below no switch of the level are closed
    to the members.

    :ivar level: level of the tree's subtrees.
    :ivar members: VM indices.
    :ivar skew: VMs that a switch may have beyond its even share.
    """

    level: str
    members: tuple[int, ...]
    skew: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PlacementProblem:
    """Everything the planner looks at; it reads nothing else.

    :ivar hosts: candidate hosts and hosts of pinned VMs.
    :ivar vms: the group's VMs; coflow rows index into them.
    :ivar coflows: the group's coflows (several may share the VMs, Fig. 1).
    :ivar active: coflows of other groups, with what they still have to move.
    :ivar tree: the fabric above the hosts; empty where only hosts limit.
    :ivar pair_rate_bps: Choreo's pipe matrix R_mn by (host, host); when given
        it replaces the rows of hosts and of the tree, with ``hose_limits``
        True all hold.
    :ivar resources: names of the entries of the capacity vectors.
    :ivar within: VMs that share a switch.
    :ivar spread: VMs that are spread over the switches of a level.
    """

    hosts: tuple[cluster.Host, ...]
    vms: tuple[cluster.Vm, ...]
    coflows: tuple[coflow_model.Coflow, ...]
    tree: cluster.Tree = cluster.Tree()
    active: tuple[ActiveCoflow, ...] = ()
    server_groups: tuple[ServerGroup, ...] = ()
    pair_rate_bps: dict[tuple[str, str], float] | None = None
    hose_limits: bool = False
    resources: tuple[str, ...] = ('slots',)
    excluded_hosts: frozenset[str] = frozenset()
    within: tuple[Within, ...] = ()
    spread: tuple[Spread, ...] = ()


class Method(enum.StrEnum):
    """The candidate or stage of the search that gave an answer."""

    BEST_FIT = 'best fit'
    SPREAD = 'spread'
    MIN_CUT = 'min-cut'
    LOCAL_SEARCH = 'local search'
    SET_PARTITION = 'set partition'
    EXHAUSTIVE = 'exhaustive search'
    #: The search as if the group were alone, on the bandwidth that others
    #: leave.
    VIRTCO_PRINTED = 'virtco-printed'
    #: A method of the laboratory.
    OTHER = 'other'


class Relaxed(enum.StrEnum):
    """The fate of a launch's linear relaxation and its rounding."""

    SOLVED = 'solved'
    CERTIFIED_BEFORE = 'certified before'
    NO_TIME = 'no time'
    #: A rule's placement, not a search's.
    NOT_APPLICABLE = 'not applicable'


def gap(value: float, bound: float) -> float:
    """Return by how much a value may exceed the least, relative to a bound.

    0 where they meet, inf where the bound is 0.
    """
    if value <= bound:
        return 0.0
    return value / bound - 1 if bound > 0 else math.inf


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """State of a search that still runs.

    :ivar stage: stage of the search that found it.
    :ivar seconds: time since the start, by the planner's clock.
    :ivar objective_s: objective of the best placement so far.
    :ivar bound_s: lower bound of the objective under these constraints.
    :ivar hosts: host name per VM of the best placement.
    """

    stage: str
    seconds: float
    objective_s: float
    bound_s: float
    hosts: tuple[str, ...]

    @property
    def gap(self) -> float:
        """As that of :class:`Plan`, for the objective."""
        return gap(self.objective_s, self.bound_s)

    def __str__(self) -> str:
        """Return a line for a log."""
        return (f'{self.stage:16} {self.seconds:8.3f} s, incumbent '
                f'{self.objective_s:.6g} s, bound {self.bound_s:.6g} s for '
                f'{Scope.CONSTRAINTS}, gap {self.gap:.2%}')


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A valid placement with its certificate.

    :ivar hosts: host name per VM, in the problem's order.
    :ivar cct_s: t of the group's coflows together, VirtCO Eq. (3), on the
        problem's bandwidth.
    :ivar coflow_cct_s: predicted CCT per coflow under MRTF order with the
        active ones, in the problem's coflow order.
    :ivar objective_s: value of the objective that was minimised.
    :ivar lower_bound_s: lower bound of t in ``bound_scope``.
    :ivar bound_scope: scope of this bound and of the objective's. That of t
        holds for any schedule, too, that of the objective for none.
    :ivar gap: cct_s / lower_bound_s - 1; 0 when both are 0, inf when only
        the bound is 0.
    :ivar bottleneck: the port that decides t, e.g. ``'h3 egress'``.
    :ivar objective_bound_s: lower bound of the objective in ``bound_scope``; 0
        where it is unknown.
    :ivar relaxed: whether the linear relaxation was solved and rounded.
    """

    hosts: tuple[str, ...]
    cct_s: float
    coflow_cct_s: tuple[float, ...]
    objective: Objective
    objective_s: float
    lower_bound_s: float
    gap: float
    method: Method
    iterations: int = 0
    bottleneck: str = 'none'
    notes: tuple[str, ...] = ()
    objective_bound_s: float = 0.0
    bound_scope: Scope = Scope.CONSTRAINTS
    relaxed: Relaxed = Relaxed.NOT_APPLICABLE


@dataclasses.dataclass(frozen=True, slots=True)
class RankedHost:
    """A candidate host of a VM, the others staying where planned."""

    host: str
    feasible: bool
    objective_s: float
    cct_s: float
    why: str
