# SPDX-License-Identifier: Apache-2.0

"""Schedule of a snapshot: the policies by which hosts send. Pure."""

from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import functools
import math
import types

import numpy as np

from virtco import scheduling
from virtco.decide import waiting
from virtco.model import live
from virtco.scheduling import deadlines
from virtco.scheduling import starvation
from virtco.state import schedule_input as known
from virtco.table import borrowing
from virtco.table import coflow_table
from virtco.table import host_policies
from virtco.table import host_policy
from virtco.table import layouts
from virtco.table import unmanaged
from virtco.wire import edge_policy


@dataclasses.dataclass(frozen=True, eq=False)
class Policies:
    """Schedule and policies of one snapshot.

    :ivar of_host: the policy of each host that reports, unnumbered.
    :ivar changed: hosts whose policy is another object than before.
    :ivar minors: class numbers of the hosts where they changed.
    :ivar schedule: all coflows by rank.
    :ivar next_check_s: latest time of the next look: a coflow has waited for
        theta then, or a periodic one is late.
    :ivar snapshot: input of all this.
    :ivar promises: plan that keeps the deadlines; None: there are no classes.
    :ivar waits: times since which coflows with a queue wait for progress;
        empty where theta is off.
    """

    of_host: Mapping[str, host_policy.HostPolicy]
    changed: tuple[str, ...]
    minors: Mapping[str, coflow_table.Minors]
    schedule: live.Schedule
    next_check_s: float
    told: host_policies.HostPolicies
    snapshot: known.Snapshot
    promises: deadlines.Plan | None = None
    waits: starvation.Waits = dataclasses.field(
        default_factory=lambda: starvation.NOBODY)

    @functools.cached_property
    def waiting(self) -> Mapping[str, waiting.Waiting]:
        """The port where each coflow waits."""
        return waiting.find(self.schedule, self.snapshot)

    def limits(self) -> dict[str, edge_policy.Unmanaged]:
        """Return limits of unmanaged traffic of changed hosts that have any.
        """
        return {host: told for host in self.changed
                if (told := self.of_host[host].unmanaged) is not None}


def compute(snapshot: known.Snapshot, before: Policies | None = None,
            late_s: Mapping[str, float] = types.MappingProxyType({})
            ) -> Policies:
    """Order the coflows and turn the order into a policy per host.

    :param late_s: time since which periodic coflows have to go first, by id.
    :param before: policies of an earlier snapshot. A host whose policy would
        say the same as there, up to ``rate_tolerance_fraction``, keeps the
        same object.
    """
    options = snapshot.options
    coflows = () if options.is_fair else snapshot.coflows
    promised = None if options.is_fair else renew_promises(
        snapshot, before.promises if before is not None else None)
    schedule, waits, next_check_s = _order(
        snapshot, coflows, late_s, promised,
        before.waits if before is not None else starvation.NOBODY)
    ranks = {coflow_id: rank for rank, coflow_id in enumerate(
        sorted(c.live.coflow_id for c in snapshot.coflows) if options.is_fair
        else [c.coflow_id for c in schedule.coflows])}
    told = before.told if before is not None else None
    laid = layouts.lay_out(
        snapshot.hosts.links, [c.table for c in snapshot.coflows],
        snapshot.minors, ranks, snapshot.now_s, options.minor_grace_s,
        is_counted=options.is_fair,
        protect=options.protect_receivers and not options.is_fair,
        before=told.layouts if told is not None else None)
    reached = _reached(snapshot)
    told = host_policies.update(
        laid, schedule,
        {c.live.coflow_id: c.live.flows.remaining_bytes for c in coflows},
        ranks,
        host_policies.Options(options.min_rate_fraction, options.policy_ttl_s),
        options.rate_tolerance_fraction, told,
        functools.partial(limit_senders, snapshot)
        if options.limits_senders else None,
        # A rate by a size that is not believed is a guess: nobody makes room.
        borrowing.Lending(
            laid, _shared(snapshot, reached), ranks,
            {c.live.coflow_id: c.sent_bps for c in coflows
             if c.live.served is None and c.sent_bps is not None},
            promised.floors().keys() if promised is not None
            else frozenset()).ceil_bps
        if options.work_conserving else None, reached)
    is_kept = before is not None and before.told.layouts is laid
    return Policies(told.of_host, told.changed,
                    {} if is_kept else laid.new_minors, schedule,
                    next_check_s, told, snapshot, promised, waits)


def _reached(snapshot: known.Snapshot) -> frozenset[str]:
    """Return the hosts to which unmanaged traffic goes.

    Coflows that borrowed its part of the link, too, would fill the queue
    before the link, and the host's own packets would wait in it.
    """
    if any(sender.floods for sender in snapshot.senders.values()):
        return frozenset(snapshot.hosts.names)
    return frozenset(host for sender in snapshot.senders.values()
                     for host, macs in sender.macs.items() if macs)


def _shared(snapshot: known.Snapshot, reached: Set[str]) -> borrowing.Ports:
    """Return the ports that TCP shares.

    :param reached: hosts to which unmanaged traffic goes.
    """
    hosts = snapshot.hosts
    speeds_bps = hosts.speeds_bps
    is_slow = np.isfinite(speeds_bps) & (
        np.array((hosts.egress_bps, hosts.ingress_bps)) < speeds_bps)
    lent = 1 - snapshot.options.default_share * np.array(
        [name in reached for name in hosts.names], np.float64)
    above_bps = snapshot.uplinks.cap_bps
    return borrowing.Ports(
        hosts.number_of,
        np.concatenate((np.full(len(hosts), math.inf), speeds_bps[1] * lent,
                        np.full(len(above_bps), math.inf))),
        np.concatenate((
            np.where(is_slow[0], snapshot.egress_bps, math.inf),
            np.where(is_slow[1], hosts.ingress_bps, speeds_bps[1]) * lent,
            above_bps)), snapshot.uplinks)


def _order(snapshot: known.Snapshot, coflows: Sequence[known.Coflow],
           late_s: Mapping[str, float], promised: deadlines.Plan | None,
           waits: starvation.Waits
           ) -> tuple[live.Schedule, starvation.Waits, float]:
    """Schedule busy coflows first, then idle ones, then resting ones.

    Coflows for which a promise holds a rate count as busy; idle ones get what
    those leave. Coflows that rest between two iterations come last: their
    classes are there so that the next beginning is counted and served at once.

    Bandwidth reserved for a coflow that does not send yet, or pauses, would
    be lost at the receivers' links, and under ``ceil = rate`` everywhere.
    Only those starve that have something waiting.
    """
    options, now_s = snapshot.options, snapshot.now_s
    ports = snapshot.ports
    late = {coflow_id: each_s for coflow_id, each_s in late_s.items()
            if each_s <= now_s}
    floors = promised.floors() if promised is not None else {}
    queued = {coflow.live.coflow_id for coflow in coflows
              if coflow.is_queued}
    tiers: tuple[list[live.LiveCoflow], ...] = ([], [], [])
    for coflow in coflows:
        tiers[2 if coflow.is_resting else
              0 if coflow.is_busy(now_s, options.quiet_s)
              or coflow.live.coflow_id in floors else 1].append(
                  coflow.live)
    tiers[0][:] = [starvation.waiting(
        coflow, starvation.begun(coflow, waits).since_s
        if coflow.coflow_id in queued else now_s,
        now_s, options.theta_s) for coflow in tiers[0]]
    found: list[live.CoflowSchedule] = []
    for tier in filter(None, tiers):
        made = scheduling.schedule(
            tier, ports, policy=options.own or options.order, now_s=now_s,
            theta_s=options.theta_s if tier is tiers[0] else math.inf,
            late=late, floors=floors, size_factor=snapshot.size_factor,
            first_rank=len(found))
        ports = made.left
        found += made.coflows
    if options.theta_s < math.inf:
        waits = starvation.renew(
            [coflow for coflow in tiers[0] if coflow.coflow_id in queued],
            {one.coflow_id: one.remaining_cct_s
             for one in found[:len(tiers[0])]}, waits, now_s, options.theta_s)
    return (live.Schedule(now_s, tuple(found), ports), waits,
            min([starvation.next_check_s(waits, now_s, options.theta_s),
                 promised.next_s if promised is not None else math.inf,
                 *(each_s for each_s in late_s.values() if each_s > now_s)]))


def none() -> Policies:
    """Return the policies of an empty cloud."""
    return compute(known.Snapshot(0.0, known.Options(), known.Hosts(),
                                  np.zeros(0), np.zeros(0)))


def limit_senders(snapshot: known.Snapshot, laid: layouts.Layouts,
                  child_bps: np.ndarray
                  ) -> Mapping[str, edge_policy.Unmanaged]:
    """Return the limits of unmanaged traffic for every reporting host.

    :param child_bps: rates of the coflows' classes, laid out as in ``laid``.
    """
    if not snapshot.senders:
        return laid.unlimited
    options = snapshot.options
    busy = {coflow.live.coflow_id for coflow in snapshot.coflows
            if coflow.is_busy(snapshot.now_s, options.quiet_s)}
    is_busy = np.array([one.coflow_id in busy for one in laid.coflows],
                       np.bool_)
    promised_bps = np.bincount(
        laid.peer_of,
        child_bps * is_busy[laid.coflow_of][laid.class_of],
        len(laid.peers))
    promised = dict(zip(laid.peers, promised_bps.tolist()))
    return {**laid.unlimited, **unmanaged.limits(
        _left_bps(snapshot, promised), snapshot.senders)}


def _left_bps(snapshot: known.Snapshot, promised: Mapping[str, float]
              ) -> dict[str, float]:
    """Return the rate that coflows leave of each link where they arrive.

    :param promised: to the coflows that send now; what the others are
        promised is free until they do.
    """
    least = snapshot.options.default_share
    return {link.host: max(least * link.ingress_bps,
                           (1 - least) * link.ingress_bps
                           - promised[link.host])
            for link in snapshot.hosts.links if link.host in promised}


#: Coflows are planned to end so much before their deadlines where they can:
#: reports are late, and rates come into force later.
LEAD_S = 0.5
#: Coflows without a promise that are looked at, the earliest deadlines first:
#: each costs a plan.
MOST_WISHES = 16


def renew_promises(snapshot: known.Snapshot,
                   before: deadlines.Plan | None) -> deadlines.Plan:
    """Plan the coflows whose deadlines were promised; then, with the rest,
    others that want a deadline, as far as they still fit.

    The latter were told no at their launch. While they send and there is room
    they are served as if promised; a promise at a launch takes it back. One
    that is lost holds no rate for a coflow of which nothing waits: others
    would have nothing until its deadline.

    :param before: the last plan.
    """
    wanting = [coflow for coflow in snapshot.coflows
               if snapshot.now_s < coflow.live.deadline_s < math.inf
               and not coflow.is_resting]
    ports = snapshot.ports
    promised: list[deadlines.Row] = []
    wishes: list[deadlines.Row] = []
    for coflow in sorted(wanting, key=lambda one: one.live.deadline_s):
        one = coflow.live
        if not one.is_promised and (len(wishes) == MOST_WISHES or (
                not coflow.is_busy(snapshot.now_s, snapshot.options.quiet_s))):
            continue
        size_s = snapshot.size_factor * ports.busy_s(
            one.flows, snapshot.hosts.number_of)
        left_s = one.deadline_s - snapshot.now_s
        caps_s = snapshot.size_factor * one.caps_s()
        row = one.coflow_id, size_s, left_s, caps_s
        if not one.is_promised:
            wishes.append(row)
        elif coflow.is_queued or size_s.max(initial=caps_s) <= left_s:
            promised.append(row)
    claims = deadlines.claims_of(len(ports.cap_bps), promised)
    for row in wishes:
        if deadlines.fits(claims, *row[1:]):
            claims = claims.joined(*row)
    early = deadlines.renew(dataclasses.replace(claims, left_s=np.maximum(
        claims.left_s - LEAD_S, claims.left_s / 2)), snapshot.now_s)
    return (early if early.is_whole
            else deadlines.renew(claims, snapshot.now_s, before))
