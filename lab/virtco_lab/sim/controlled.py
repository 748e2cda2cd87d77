# SPDX-License-Identifier: Apache-2.0

"""Coflows under the controller's own code, with any hints about them.

The controller is :class:`virtco.state.live_state.LiveState` and
:func:`virtco.decide.policy_documents.compute`: it learns the bytes sent from
reports, detects the end of a coflow by its rules, and its policies come into
force with a delay.

Only the packets are a fluid, :mod:`virtco.fluid.flow_kernels`. The flows of a
class share it equally, and its queue is not empty before they have ended.
Without borrowing a class has its rate and no more, and traffic in no class
shares what the classes leave as TCP does. With borrowing
(``options.work_conserving``) a class is sure of its rate and borrows by its
coflow's rank up to its ceil; traffic in no class has the default class's
guarantee and borrows last, in turns of the VMs. Order *fair* is plain TCP,
without edges. When a class comes for a flow that sends already,
to a host to which others have classes, a window of it still waits beside them,
and TCP sends no more before that has arrived.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import math
from typing import Literal

import numpy as np

from edge_module import activity
from edge_module.qdisc import wire
from virtco.db import codec
from virtco.db import models
from virtco.decide import policy_documents
from virtco.fluid import flow_kernels
from virtco.model import coflow as coflow_model
from virtco.model import states
from virtco.scheduling import endings
from virtco.state import live_state
from virtco.state import schedule_input
from virtco.state import uplink_rates
from virtco.wire import reports

#: Bytes in the queue of a class whose flows have bytes left.
_QUEUED_BYTES = 1500
#: Times of reports that differ by less are the same.
_ROUNDING_S = 1e-9
# Coflow, source and destination host.
_Way = tuple[int, str, str]
#: Model of sharing a receiver's link among borrowing flows.
Receiver = Literal['tcp', 'order']


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """How late the controller knows, and its word holds.

    :ivar report_s: time from one report of a host to its next; the hosts take
        turns.
    :ivar interval_s: time from one computation to the next; one that a report
        calls for is made at once.
    :ivar delay_s: time from a computation until its rates are in force.
    :ivar look_s: time from one look of a host at its classes to the next; it
        reports where one began or ceased to send.
    """

    report_s: float = 0.1
    interval_s: float = 0.1
    delay_s: float = 0.05
    look_s: float = math.inf


#: Timing by the default ``report_interval_s`` and ``interval_s``.
AS_INSTALLED = Timing(1.0, 0.2, 0.1, 0.2)


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """A coflow as it is, and as its tenant says that it is.

    :ivar truth: coflow as it is sent, all of it from ``start_s`` on.
    :ivar told: coflow as the controller hears of it, over the same VMs …
    :ivar told_s: … and when. What is sent before is in no class.
    :ivar hosts: host of each of its VMs.
    :ivar promised_s: time by which it was promised to end; inf for no promise.
    """

    truth: coflow_model.Coflow
    told: coflow_model.Coflow
    hosts: tuple[str, ...]
    start_s: float = 0.0
    told_s: float = 0.0
    promised_s: float = math.inf


class _Controller:
    """Reports in, rates of classes out."""

    def __init__(self, coflows: Sequence[Sent], rates_bps: Mapping[str, float],
                 options: schedule_input.Options, ways: Sequence[_Way]):
        """Give each pair of hosts the index of its class.

        :param ways: pairs of hosts that have a class each, or none.
        """
        self._coflows = coflows
        self._class_of = {way: k for k, way in enumerate(ways)}
        self._options = options
        self._rates_bps = rates_bps
        self._state = live_state.LiveState(schedule_input.Rules(
            ending=endings.Rules(quiet_s=options.quiet_s),
            uplink=uplink_rates.Rules(default_bps=max(rates_bps.values())),
            share=schedule_input.Share(options.default_share)))
        self._policies: policy_documents.Policies | None = None
        self._ports = {host: tuple(
            reports.Port(_vm(number, row), f'tap{number}-{row}',
                         ips=(_address(number, row),))
            for number, one in enumerate(coflows)
            for row, its in enumerate(one.hosts) if its == host)
            for host in rates_bps}
        self._known: list[int] = []

    def hear_of(self, number: int, now_s: float) -> None:
        """Take in a coflow, as its tenant announces it when its VMs run."""
        one = self._coflows[number]
        self._known.append(number)
        told, name = one.told, str(number)
        self._state.load_groups([models.Member(
            group_id=name, row_index=row, instance_uuid=_vm(number, row),
            host=host, state=states.MemberState.RUNNING)
            for row, host in enumerate(one.hosts)], [models.Coflow(
                id=name, group_id=name, project_id=name, name=name,
                state=states.CoflowState.ACTIVE, n_vms=told.n_vms,
                tm=codec.encode_matrix(told.matrix), dst_port=None,
                iterations=told.iterations, iteration=1,
                is_estimated=told.is_estimated, progress='[]',
                priority_class=0, weight=1.0, arrival=now_s,
                deadline_at=codec.finite(one.promised_s),
                is_promised=one.promised_s < math.inf)],
            only={name})

    def report(self, host: str, classes: Mapping[_Way, wire.ClassStats],
               pairs_bytes: Mapping[tuple[int, int, int], float],
               now_s: float) -> bool:
        """Take in a host's report.

        :param pairs_bytes: bytes by coflow, source and destination VM, from
            the host.
        :returns: whether the controller computes at once.
        """
        destinations: dict[int, list[reports.DestinationCounter]] = {
            number: [] for number in self._known}
        for (number, _, peer), stats in classes.items():
            destinations[number].append(reports.DestinationCounter(
                peer, stats.sent_bytes, stats.backlog_bytes))
        counters = [reports.CoflowCounters(
            str(number), sum(one.sent_bytes for one in its),
            backlog_bytes=sum(one.backlog_bytes for one in its),
            destinations=tuple(its))
            for number, its in destinations.items() if its]
        rate_bps = self._rates_bps[host]
        return self._state.intake(host, reports.Report(
            epoch='e', applied_generation=0,
            link=reports.Link(rate_bps, rate_bps), ports=self._ports[host],
            coflows=tuple(counters), uplink_sent_bytes=sum(
                counter.sent_bytes for counter in counters),
            pairs=tuple(reports.PairCounter(
                _address(number, src), _address(number, dst), round(size),
                f'tap{number}-{src}')
                for (number, src, dst), size in pairs_bytes.items())), now_s)

    def decide(self, now_s: float) -> np.ndarray:
        """Return rate, ceil and rank of each class, NaN where there is none.

        :returns: shape (3, number of classes).
        """
        self._state.advance(now_s)
        self._policies = policy_documents.compute(
            self._state.snapshot(self._options, now_s), self._policies)
        self._state.keep_minors(self._policies.minors)
        found = np.full((3, len(self._class_of)), np.nan)
        for host, made in self._policies.of_host.items():
            ids = [made.layout.classes[of].coflow_id
                   for of in made.layout.class_of.tolist()]
            found[:, [self._class_of[int(name), host, peer] for name, peer
                      in zip(ids, made.layout.peers)]] = (
                made.numbers.child_bps, made.numbers.child_ceil_bps,
                [made.ranks[name] for name in ids])
        return found


class _Fluid:
    """The flows between hosts, in the classes that the controller makes."""

    def __init__(self, coflows: Sequence[Sent],
                 rates_bps: Mapping[str, float],
                 options: schedule_input.Options, window_bytes: float,
                 receiver: Receiver):
        hosts = {name: i for i, name in enumerate(rates_bps)}
        self._link_bps = np.array([*rates_bps.values()], float)
        self._borrows = options.work_conserving and not options.is_fair
        self._share, self._window_bytes = options.default_share, window_bytes
        # Also those of flows that are told of and never sent.
        self.ways: list[_Way] = list(dict.fromkeys(
            (number, one.hosts[flow.src], one.hosts[flow.dst])
            for number, one in enumerate(coflows)
            for flow in (*one.truth.flows, *one.told.flows)))
        sizes = {(number, flow.src, flow.dst): flow.size_bytes
                 for number, one in enumerate(coflows)
                 for flow in one.truth.flows
                 if one.hosts[flow.src] != one.hosts[flow.dst]}
        self._pairs = list(sizes)
        at = [one.hosts for one in coflows]
        ways = [(number, at[number][src], at[number][dst])
                for number, src, dst in sizes]
        class_of = {way: k for k, way in enumerate(self.ways)}
        self._of = np.array([class_of[way] for way in ways], int)
        self._src = np.array([hosts[src] for _, src, _ in ways], int)
        dst = np.array([hosts[dst] for *_, dst in ways], int)
        vms = {pair[:2]: i for i, pair in enumerate(sizes)}
        self._vm = np.array([vms[pair[:2]] for pair in sizes], int)
        self.owner = np.array([number for number, *_ in sizes], int)
        self.flows = flow_kernels.Flows(
            np.tile(self._link_bps, 2), self._src, len(hosts) + dst, self._of,
            len(self.ways), np.array([*sizes.values()], float),
            np.array([one.start_s for one in coflows])[self.owner],
            receiver if self._borrows else '')
        # Rates, ceils and ranks; NaN where there is no class.
        self._classes = np.full((3, len(self.ways)), np.nan)
        self._seen_bytes = np.zeros(len(self.ways))
        self._stats: dict[str, dict[_Way, wire.ClassStats]] = {
            host: {} for host in hosts}
        self._ways_from = {host: np.array([
            k for way, k in class_of.items() if way[1] == host], int)
            for host in hosts}
        self._pairs_from = {host: np.flatnonzero(self._src == i).tolist()
                            for host, i in hosts.items()}

    def step(self, until_s: float) -> float:
        """Let time pass until the next event; return the time reached."""
        if not self.flows.is_rated:
            self._demand()
        flow_kernels.step(self.flows, until_s)
        now_s: float = self.flows.now_s
        return now_s

    def _demand(self) -> None:
        """Set each flow's guaranteed rate, and how it borrows."""
        flows, of = self.flows, self._of
        is_live = np.asarray(flows.is_live)
        link_bps = self._link_bps[self._src]
        rate_bps, ceil_bps, rank = self._classes[:, of]
        rate_bps /= np.maximum(1, np.asarray(flows.n_live)[of])
        is_free = np.isnan(rate_bps) | (np.asarray(flows.stuck) > 0)
        # Packets that wait in other classes leave the class its rate.
        guarantee_bps = np.nan_to_num(rate_bps)
        if self._borrows:
            # The edges give a VM its turn, however many flows it has.
            turn = is_free * is_live / np.maximum(1, np.bincount(
                self._vm, is_free * is_live)[self._vm])
            turns = np.maximum(1, np.bincount(self._src, turn)[self._src])
            guarantee_bps = np.where(
                is_free, self._share * link_bps * turn / turns, guarantee_bps)
        flows.guarantee = guarantee_bps
        flows.ceil = np.where(is_free, link_bps,
                              np.maximum(guarantee_bps, ceil_bps))
        flows.weight = np.maximum(1.0, guarantee_bps)
        flows.rank = np.where(is_free, 1 + np.fmax.reduce(
            self._classes[2], initial=-1), rank).astype(int)
        flows.is_free = is_free.view(np.uint8)

    def set_classes(self, classes: np.ndarray) -> None:
        """Set the classes of the ways from now on.

        A flow that sent without a class to a host to which others had one was
        limited.
        """
        if np.array_equal(classes, self._classes, equal_nan=True):
            return
        flows, had = self.flows, ~np.isnan(self._classes[0])
        limited = {way[2] for way, it in zip(self.ways, had) if it}
        for i in np.flatnonzero((~np.isnan(classes[0]) & ~had)[self._of]):
            if flows.sent[i] > 0 and self.ways[self._of[i]][2] in limited:
                flows.stuck[i] = min(flows.left[i], self._window_bytes)
        self._classes, flows.is_rated = classes, False

    def look(self, host: str) -> Mapping[_Way, wire.ClassStats]:
        """Return the counters of a host's classes that have sent."""
        its, stats = self._ways_from[host], self._stats[host]
        sent_bytes = np.asarray(self.flows.in_class)[its]
        is_queued = (np.asarray(self.flows.n_live)[its] > 0) & ~np.isnan(
            self._classes[0, its])
        for i in np.flatnonzero((sent_bytes > 0) & (
                is_queued | (sent_bytes > self._seen_bytes[its]))):
            stats[self.ways[its[i]]] = wire.ClassStats(
                round(float(sent_bytes[i])), 0,
                _QUEUED_BYTES * bool(is_queued[i]))
        # A queue may be empty at the next look, with no byte counted since.
        self._seen_bytes[its] = np.where(is_queued, -1.0, sent_bytes)
        return stats

    def pairs_bytes(self, host: str) -> dict[tuple[int, int, int], float]:
        """Return the bytes that each pair of VMs has sent from a host."""
        sent_bytes = self.flows.sent
        return {self._pairs[i]: sent_bytes[i] for i in self._pairs_from[host]}


def simulate(coflows: Sequence[Sent], rates_bps: Mapping[str, float],
             options: schedule_input.Options = schedule_input.Options(
                 beta=0.0),
             timing: Timing = Timing(), window_bytes: float = 0.0,
             receiver: Receiver = 'tcp') -> list[float]:
    """Simulate the coflows; return CCTs, 0 of one without flows between hosts.

    :param rates_bps: rate of each host's link, the same both ways, as payload.
    :param window_bytes: window of each TCP connection.
    :param receiver: sharing of a receiver's link where classes borrow: by TCP,
        or by guarantees and ranks.
    """
    fluid = _Fluid(coflows, rates_bps, options, window_bytes, receiver)
    controller = _Controller(coflows, rates_bps, options, fluid.ways)
    untold = sorted(range(len(coflows)), key=lambda i: -coflows[i].told_s)
    reporting = {name: _Reporting(timing) for name in rates_bps}
    # The hosts take turns.
    period_s = min(timing.report_s, timing.look_s)
    turns = zip((turn * period_s / len(rates_bps)
                 for turn in itertools.count(1)),
                itertools.islice(itertools.cycle(rates_bps), 1, None))
    report_s, host = next(turns)
    decide_s = now_s = 0.0
    coming: list[tuple[float, np.ndarray]] = []
    for name in rates_bps:
        controller.report(name, {}, {}, 0.0)
    while fluid.flows.n_left:
        while untold and coflows[untold[-1]].told_s <= now_s:
            controller.hear_of(untold.pop(), now_s)
            decide_s = now_s
        if now_s >= decide_s:
            coming.append((now_s + timing.delay_s if now_s else 0.0,
                           controller.decide(now_s)))
            decide_s = now_s + timing.interval_s
        while coming and coming[0][0] <= now_s:
            fluid.set_classes(coming.pop(0)[1])
        now_s = fluid.step(min([
            report_s, decide_s, *(at_s for at_s, _ in coming[:1]),
            *(coflows[i].told_s for i in untold[-1:])]))
        while report_s <= now_s:
            classes = fluid.look(host)
            if reporting[host].is_wanted(now_s, classes) and (
                    controller.report(host, classes,
                                      fluid.pairs_bytes(host), now_s)):
                decide_s = now_s
            report_s, host = next(turns)
    starts_s = np.array([one.start_s for one in coflows])
    ends_s = starts_s.copy()
    np.maximum.at(ends_s, fluid.owner, fluid.flows.end_s)
    return [float(cct_s) for cct_s in ends_s - starts_s]


class _Reporting:
    """When a host reports: as :mod:`edge_module.reporting`."""

    def __init__(self, timing: Timing):
        self._timing = timing
        self._activity = activity.Activity[_Way]()
        self._due_s = 0.0

    def is_wanted(self, now_s: float,
                  classes: Mapping[_Way, wire.ClassStats]) -> bool:
        """Return whether a look at the classes makes a report."""
        if self._timing.look_s >= self._timing.report_s:
            return True
        has_changed = self._activity.has_changed(classes, classes)
        is_due = now_s >= self._due_s
        if is_due or has_changed:
            self._due_s = now_s + self._timing.report_s - _ROUNDING_S
        if is_due:
            self._activity.forget_told()
        return is_due or has_changed


def _vm(number: int, row: int) -> str:
    return f'{number}-{row}'


@functools.cache
def _address(number: int, row: int) -> str:
    return f'10.{number // 250}.{number % 250}.{row + 1}'
