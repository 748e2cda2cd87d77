# SPDX-License-Identifier: Apache-2.0

"""Builds a PlacementProblem from Nova's offers and the known state. Pure."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

from virtco.model import booking
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.wire import placement as wire

# Egress and ingress per host, bits of payload per second.
Rates = Mapping[str, tuple[float, float]]


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A member of the group, with a VM or without one.

    :ivar host: host that it runs on or is planned on, None = none yet.
    :ivar fixed: whether it has a VM, so that it stays where it is.
    :ivar caps: the most that it sends, and receives, then the bursts of
        either; see :class:`virtco.model.cluster.Vm`.
    """

    index: int
    demand: booking.Vector
    host: str | None = None
    instance_uuid: str | None = None
    fixed: bool = False
    caps: tuple[float, float, float, float] = (math.inf, math.inf, 0.0, 0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """Input of a placement: members, coflows, hosts, loads.

    :ivar asked: index of the member that is asked about.
    :ivar free: candidate host -> what may be booked on it, see
        :class:`virtco.model.booking.Ledger`.
    :ivar tree: the fabric above the hosts.
    :ivar pairs_bps: payload rates of the pairs that are slower than their
        hosts.
    :ivar batch: members whose VMs come in the same request.
    """

    asked: int
    members: tuple[Member, ...]
    coflows: tuple[coflow_model.Coflow, ...]
    free: Mapping[str, booking.Vector]
    capacities: Rates
    tree: cluster.Tree = cluster.Tree()
    loads: tuple[snapshot.ActiveCoflow, ...] = ()
    pairs_bps: Mapping[tuple[str, str], float] = dataclasses.field(
        default_factory=dict)
    batch: frozenset[int] = frozenset()
    server_group: wire.ServerGroup | None = None


def sum_by_host(demands: Iterable[tuple[str, booking.Vector]]
                ) -> dict[str, booking.Vector]:
    """Sum the resources that are demanded of each host."""
    total: dict[str, booking.Vector] = {}
    for host, demand in demands:
        before = total.get(host, booking.NOTHING)
        total[host] = tuple(a + b for a, b in
                            zip(before, demand, strict=True))
    return total


def build(question: Question, *, keep_planned: bool = False,
          alone: bool = False) -> tuple[
              snapshot.PlacementProblem, tuple[int, ...]]:
    """Build the problem, and the member index of each of its VMs.

    :param keep_planned: members without a VM stay where they are planned, too;
        only the member in question is free.
    :param alone: members that have neither VM nor plan are left out.
    """
    members = [member for member in question.members
               if member.index == question.asked or member.fixed
               or not alone]
    free = dict(question.free)
    candidates = frozenset(free)
    vms = [_vm(member, question, keep_planned, candidates)
           for member in members]
    for vm in vms:
        if vm.pinned is not None:
            free.setdefault(vm.pinned, booking.NOTHING)
    position = {member.index: i for i, member in enumerate(members)}
    group = _server_group(question, position)
    capacities = question.capacities
    problem = snapshot.PlacementProblem(
        hosts=tuple([cluster.Host(name, free[name], *capacities[name])
                     for name in sorted(free)]),
        vms=tuple(vms),
        coflows=tuple(_restricted(c, position) for c in question.coflows),
        tree=question.tree,
        # Bytes between two other hosts pass uplinks, too.
        active=(question.loads if question.tree.subtrees
                else _known_loads(question.loads, free)),
        server_groups=(group,) if group is not None else (),
        pair_rate_bps={
            pair: rate_bps for pair, rate_bps in question.pairs_bps.items()
            if pair[0] in free and pair[1] in free} or None, hose_limits=True,
        resources=booking.RESOURCES)
    return problem, tuple(member.index for member in members)


def _vm(member: Member, question: Question, keep_planned: bool,
        candidates: frozenset[str]) -> cluster.Vm:
    """Describe a member to the solver, fixed to its host where it stays."""
    name = member.instance_uuid or f'member {member.index}'
    stays = member.host is not None and (member.fixed or keep_planned)
    if member.index == question.asked or not stays:
        return cluster.Vm(name, member.demand, None, False, candidates,
                          *member.caps)
    return cluster.Vm(name, member.demand, member.host, True, None,
                      *member.caps)


def _restricted(coflow: coflow_model.Coflow, position: Mapping[int, int]
                ) -> coflow_model.Coflow:
    """Renumber the coflow by the positions of the problem's VMs."""
    return coflow.renumbered(len(position), [
        position.get(member, -1) for member in range(coflow.n_vms)])


def _known_loads(loads: Sequence[snapshot.ActiveCoflow],
                 hosts: Mapping[str, booking.Vector]
                 ) -> tuple[snapshot.ActiveCoflow, ...]:
    """Keep the loads on the problem's hosts; others change nothing."""
    known = hosts.keys()
    if all(dict(load.out_bytes).keys() <= known
           and dict(load.in_bytes).keys() <= known for load in loads):
        return tuple(loads)
    return tuple(snapshot.ActiveCoflow(
        load.coflow_id,
        tuple((h, b) for h, b in load.out_bytes if h in hosts),
        tuple((h, b) for h, b in load.in_bytes if h in hosts),
        tuple(pair for pair in load.pairs
              if pair[0] in hosts or pair[1] in hosts))
        for load in loads)


def _server_group(question: Question, position: Mapping[int, int]
                  ) -> snapshot.ServerGroup | None:
    group = question.server_group
    if group is None:
        return None
    uuids = set(group.members)
    indices = {member.index for member in question.members
               if member.instance_uuid in uuids}
    # A batch is in its server group as a whole; the uuids of those that were
    # not asked about yet are not known to be members.
    indices |= question.batch | {question.asked}
    fixed_hosts = {member.host for member in question.members
                   if member.index in indices and member.fixed
                   and member.index != question.asked}
    return snapshot.ServerGroup(
        policy=snapshot.GroupPolicy(group.policy),
        members=tuple(sorted(position[i] for i in indices
                             if i in position)),
        taken_hosts=frozenset(group.hosts) - fixed_hosts,
        max_per_host=group.max_per_host or 1)
