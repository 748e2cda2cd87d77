# SPDX-License-Identifier: Apache-2.0

"""Coflows under the controller's own code, with any hints about them.

The controller is :class:`virtco.state.live_state.LiveState` and
:func:`virtco.decide.policy_documents.compute`: it learns the bytes sent from
reports, detects the end of a coflow by its rules, and its policies come into
force with a delay.

Only the packets are a fluid. The flows of a class share it equally, and its
queue is not empty before they have ended. Without borrowing a class has its
rate and no more, and traffic in no class shares what the classes leave as TCP
does. With borrowing (``options.work_conserving``) a class is sure of its rate
and borrows by its coflow's rank up to its ceil, as in
:mod:`virtco_lab.sim.borrowing`; traffic in no class has the default class's
guarantee and borrows last, in turns of the VMs. Order *fair* is plain TCP,
without edges. When a class comes for a flow that sends already,
to a host to which others have classes, a window of it still waits beside them,
and TCP sends no more before that has arrived.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import math
from typing import Literal

import numpy as np

from edge_module import activity
from edge_module.qdisc import wire
from virtco import units
from virtco.db import codec
from virtco.db import models
from virtco.decide import policy_documents
from virtco.model import coflow as coflow_model
from virtco.model import states
from virtco.scheduling import endings
from virtco.state import live_state
from virtco.state import schedule_input
from virtco.state import uplink_rates
from virtco.wire import reports
from virtco_lab.emulation import tcp_sharing
from virtco_lab.sim import borrowing

#: A flow with less than this left has ended.
_ENDED_BYTES = 1.0
#: Traffic without a class has at least this share of a link.
_LEAST_SHARE = 1e-3
#: Bytes in the queue of a class whose flows have bytes left.
_QUEUED_BYTES = 1500
#: Times of reports that differ by less are the same.
_ROUNDING_S = 1e-9
# Coflow, source and destination host.
_Way = tuple[int, str, str]
#: Model of sharing a receiver's link among borrowing flows.
Receiver = Literal['tcp', 'order']


@dataclasses.dataclass(frozen=True, slots=True)
class _Class:
    """:ivar rank: of the coflow, 0 borrows first."""

    rate_bps: float
    ceil_bps: float
    rank: int


_Classes = Mapping[_Way, _Class]


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """How late the controller knows, and its word holds.

    :ivar report_s: from one report of a host to its next; the hosts take
        turns.
    :ivar interval_s: from one computation to the next; one that a report
        calls for is made at once.
    :ivar delay_s: from a computation until its rates are in force.
    :ivar look_s: from one look of a host at its classes to the next; it
        reports where one began or ceased to send.
    """

    report_s: float = 0.1
    interval_s: float = 0.1
    delay_s: float = 0.05
    look_s: float = math.inf


#: By default options: ``report_interval_s`` and ``interval_s``.
AS_INSTALLED = Timing(1.0, 0.2, 0.1, 0.2)


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """A coflow as it is, and as its tenant says that it is.

    :ivar truth: what is sent, all of it from ``start_s`` on.
    :ivar told: what the controller hears of it, over the same VMs …
    :ivar told_s: … and when. What is sent before is in no class.
    :ivar hosts: of each of its VMs.
    :ivar promised_s: by when it was promised to end; inf for no promise.
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
                 options: schedule_input.Options):
        self._coflows = coflows
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

    def report(self, host: str, sent_bytes: Mapping[_Way, float],
               pairs_bytes: Mapping[tuple[int, int, int], float],
               now_s: float, queued: Collection[_Way] = ()) -> bool:
        """Take in a host's report.

        :param sent_bytes: by the host's classes, in all.
        :param queued: classes with a queue.
        :param pairs_bytes: of coflow, source and destination VM, from the
            host.
        :returns: whether the controller computes at once.
        """
        destinations: dict[int, list[reports.DestinationCounter]] = {
            number: [] for number in self._known}
        for way, size in sent_bytes.items():
            destinations[way[0]].append(reports.DestinationCounter(
                way[2], round(size), _QUEUED_BYTES * (way in queued)))
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

    def decide(self, now_s: float) -> _Classes:
        self._state.advance(now_s)
        self._policies = policy_documents.compute(
            self._state.snapshot(self._options, now_s), self._policies)
        self._state.keep_minors(self._policies.minors)
        found = {}
        for host, made in self._policies.of_host.items():
            ids = [one.coflow_id for one in made.layout.classes]
            for of, peer, rate_bps, ceil_bps in zip(
                    made.layout.class_of.tolist(), made.layout.peers,
                    made.child_bps.tolist(),
                    made.child_ceil_bps.tolist()):
                found[int(ids[of]), host, peer] = _Class(
                    rate_bps, ceil_bps, made.ranks[ids[of]])
        return found


class _Flows:
    """The fluid: what each flow between two hosts has left."""

    def __init__(self, coflows: Sequence[Sent],
                 rates_bps: Mapping[str, float], window_bytes: float,
                 default_share: float, receiver: Receiver | None):
        """:param receiver: None where classes do not borrow."""
        hosts = {name: i for i, name in enumerate(rates_bps)}
        self._link_bps = np.array([*rates_bps.values()])
        self._cap_bps = np.tile(self._link_bps, 2)
        self._default_bps = default_share * self._link_bps
        self._receiver = receiver
        self.pairs = [(number, flow.src, flow.dst)
                      for number, one in enumerate(coflows)
                      for flow in one.truth.flows
                      if one.hosts[flow.src] != one.hosts[flow.dst]]
        self.ways: list[_Way] = [
            (number, coflows[number].hosts[src], coflows[number].hosts[dst])
            for number, src, dst in self.pairs]
        number_of = {way: i for i, way in enumerate(dict.fromkeys(self.ways))}
        self._all_ways = list(number_of)
        self._way = np.array([number_of[way] for way in self.ways], int)
        sizes = {(number, flow.src, flow.dst): flow.size_bytes
                 for number, one in enumerate(coflows)
                 for flow in one.truth.flows}
        self._src = np.array([hosts[src] for _, src, _ in self.ways], int)
        self._dst = np.array([hosts[dst] for *_, dst in self.ways], int)
        self.left_bytes = np.array([sizes[pair] for pair in self.pairs])
        self.sent_bytes = np.zeros(len(self.pairs))
        self.coflow = np.array([number for number, *_ in self.ways], int)
        self._window_bytes = window_bytes
        # Of each flow that waits where it has no class.
        self.stuck_bytes = np.zeros(len(self.pairs))
        self._vm = np.unique([(number, vm) for number, vm, _ in self.pairs],
                             axis=0, return_inverse=True)[1]
        self._prices = np.ones(len(self._cap_bps))
        self._level_bps = self._link_bps
        # Flows that send, those of them that are stuck, and their rates.
        self._rated: tuple[tuple[bytes, bytes], np.ndarray] | None = None
        # Of each way; NaN where it has no class.
        self._rate_bps = np.full(len(self._all_ways), np.nan)
        self._ceil_bps = self._rate_bps.copy()
        self._rank = np.zeros(len(self._all_ways), int)
        # Hosts to which there are classes.
        self._limited: set[str] = set()
        self._in_class_bytes = np.zeros(len(self._all_ways))
        self._ways_from = {host: [
            (i, way) for i, way in enumerate(self._all_ways)
            if way[1] == host] for host in rates_bps}
        self._pairs_from = {host: [
            (i, pair) for i, (pair, way) in enumerate(zip(
                self.pairs, self.ways)) if way[1] == host]
            for host in rates_bps}

    def in_class_bytes(self, host: str) -> dict[_Way, float]:
        """Return the bytes that a host's classes have sent, if any."""
        return {way: size for i, way in self._ways_from[host]
                if (size := float(self._in_class_bytes[i])) > 0}

    def pairs_bytes(self, host: str) -> dict[tuple[int, int, int], float]:
        """Return the bytes that each pair of VMs has sent from a host."""
        return {pair: float(self.sent_bytes[i])
                for i, pair in self._pairs_from[host]}

    def rates_bps(self, active: np.ndarray) -> np.ndarray:
        """Compute the rates of the flows that send.

        :param active: indices of the flows that send.
        """
        is_stuck = self.stuck_bytes[active] > 0
        of = active.tobytes(), is_stuck.tobytes()
        # Most events are reports, which change no rate.
        if self._rated is None or self._rated[0] != of:
            self._rated = of, self._new_rates_bps(active, is_stuck)
        return self._rated[1]

    def _new_rates_bps(self, active: np.ndarray, is_stuck: np.ndarray
                       ) -> np.ndarray:
        way = self._way[active]
        rates: np.ndarray = self._rate_bps[way] / np.bincount(way)[way]
        free = np.isnan(rates) | is_stuck
        if self._receiver is not None:
            return self._borrowed_bps(active, np.where(free, np.nan, rates))
        # What waits elsewhere leaves the class its rate.
        given = np.nan_to_num(rates)
        if free.any():
            shared, n_hosts = active[free], len(self._link_bps)
            load = np.concatenate([
                np.bincount(ends[active], given, n_hosts)
                for ends in (self._src, self._dst)])
            # Prices are close to those of the step before.
            rates[free], self._prices = tcp_sharing.shares_bps(
                self._src[shared], n_hosts + self._dst[shared], np.maximum(
                    self._cap_bps - load, _LEAST_SHARE * self._cap_bps),
                self._prices)
        return rates

    def _borrowed_bps(self, active: np.ndarray, rates_bps: np.ndarray
                      ) -> np.ndarray:
        """Return the rates of active flows with borrowing, in bit/s.

        :param active: indices of the flows.
        :param rates_bps: guarantees; NaN for flows in no class.
        """
        way, src, dst = (of[active] for of in (self._way, self._src,
                                               self._dst))
        free = np.isnan(rates_bps)
        # The edges give each VM's port its turn, however many flows it has.
        turn = free / np.maximum(1, np.bincount(
            self._vm[active], free)[self._vm[active]])
        turns = np.bincount(src, turn, len(self._link_bps))
        guarantee_bps = np.where(free, self._default_bps[src] * turn
                                 / np.maximum(1, turns[src]), rates_bps)
        flows = borrowing.Demands(
            src, dst, guarantee_bps,
            np.where(free, self._link_bps[src], np.maximum(
                guarantee_bps, self._ceil_bps[way])),
            np.where(free, self._rank.max() + 1, self._rank[way]),
            np.maximum(1.0, guarantee_bps))
        if self._receiver == 'order':
            return borrowing.in_order_bps(flows, self._link_bps,
                                          self._link_bps)
        rates, self._level_bps = borrowing.over_tcp_bps(
            flows, self._link_bps, self._link_bps, self._level_bps)
        return rates

    def send(self, active: np.ndarray, rates_bps: np.ndarray, dt_s: float
             ) -> None:
        moved = np.minimum(self.left_bytes[active],
                           units.bps_to_bytes_per_s(1.0) * rates_bps * dt_s)
        self.left_bytes[active] -= moved
        self.sent_bytes[active] += moved
        way, is_stuck = self._way[active], self.stuck_bytes[active] > 0
        self.stuck_bytes[active] -= moved
        self.stuck_bytes[self.stuck_bytes < _ENDED_BYTES] = 0.0
        self._in_class_bytes += np.bincount(
            way, np.where(is_stuck | np.isnan(self._rate_bps[way]), 0.0,
                          moved), len(self._all_ways))

    def get_classes(self, classes: _Classes) -> None:
        """Set the classes of the ways from now on.

        A flow that sent without a class to a host to which others had one was
        limited.
        """
        self._rated = None
        had, limited = ~np.isnan(self._rate_bps), self._limited
        self._limited = {dst for *_, dst in classes}
        for i, way in enumerate(self._all_ways):
            its = classes.get(way)
            self._rate_bps[i] = its.rate_bps if its else np.nan
            self._ceil_bps[i] = its.ceil_bps if its else np.nan
            self._rank[i] = its.rank if its else 0
        for i in np.flatnonzero((self.sent_bytes > 0) & (
                ~had & ~np.isnan(self._rate_bps))[self._way]).tolist():
            if self.ways[i][2] in limited:
                self.stuck_bytes[i] = min(self.left_bytes[i],
                                          self._window_bytes)

    def next_bytes(self, active: np.ndarray) -> np.ndarray:
        """Compute the bytes until each flow ends or its class serves it."""
        found: np.ndarray = self.left_bytes[active]
        is_stuck = self.stuck_bytes[active] > 0
        found[is_stuck] = self.stuck_bytes[active][is_stuck]
        return found

    def queued(self, begun: np.ndarray) -> set[_Way]:
        """Find the classes in which bytes wait.

        :param begun: whether each coflow has begun.
        """
        sends = ((self.left_bytes >= _ENDED_BYTES) & begun[self.coflow]
                 & ~np.isnan(self._rate_bps[self._way]))
        return {self.ways[i] for i in np.flatnonzero(sends)}


def simulate(coflows: Sequence[Sent], rates_bps: Mapping[str, float],
             options: schedule_input.Options = schedule_input.Options(
                 beta=0.0),
             timing: Timing = Timing(), window_bytes: float = 0.0,
             receiver: Receiver = 'tcp') -> list[float]:
    """Simulate the coflows; return CCTs, 0 of one without flows between hosts.

    :param rates_bps: of each host's link, the same both ways, as payload.
    :param window_bytes: of each TCP connection.
    :param receiver: where classes borrow, whether a receiver's link is shared
        by TCP or by guarantees and ranks.
    """
    controller = _Controller(coflows, rates_bps, options)
    flows = _Flows(coflows, rates_bps, window_bytes, options.default_share,
                   receiver if options.work_conserving
                   and not options.is_fair else None)
    starts_s = np.array([one.start_s for one in coflows])
    ends_s = starts_s.copy()
    untold = sorted(range(len(coflows)), key=lambda i: -coflows[i].told_s)
    reporting = {name: _Reporting(timing) for name in rates_bps}
    turns = _turns(tuple(rates_bps), min(timing.report_s, timing.look_s))
    report_s, host = next(turns)
    decide_s = now_s = 0.0
    coming: list[tuple[float, _Classes]] = []
    classes: _Classes = {}
    for name in rates_bps:
        controller.report(name, {}, {}, 0.0)
    while True:
        while untold and coflows[untold[-1]].told_s <= now_s:
            controller.hear_of(untold.pop(), now_s)
            decide_s = now_s
        if now_s >= decide_s:
            coming.append((now_s + timing.delay_s if now_s else 0.0,
                           controller.decide(now_s)))
            decide_s = now_s + timing.interval_s
        while coming and coming[0][0] <= now_s:
            before, classes = classes, coming.pop(0)[1]
            if classes != before:
                flows.get_classes(classes)
        is_left = flows.left_bytes >= _ENDED_BYTES
        if not is_left.any():
            return [float(cct_s) for cct_s in ends_s - starts_s]
        active = np.flatnonzero(is_left
                                & (starts_s[flows.coflow] <= now_s))
        flow_bps = flows.rates_bps(active)
        next_s = min([report_s, decide_s, *(at_s for at_s, _ in coming[:1]),
                      *starts_s[starts_s > now_s].tolist(),
                      *(coflows[i].told_s for i in untold[-1:]),
                      now_s + _soonest_s(flows.next_bytes(active), flow_bps)])
        flows.send(active, flow_bps, next_s - now_s)
        now_s = next_s
        ended = active[flows.left_bytes[active] < _ENDED_BYTES]
        ends_s[flows.coflow[ended]] = now_s
        while report_s <= now_s:
            queued = flows.queued(starts_s <= now_s)
            sent_bytes = flows.in_class_bytes(host)
            if reporting[host].is_wanted(now_s, sent_bytes, queued) and (
                    controller.report(host, sent_bytes,
                                      flows.pairs_bytes(host), now_s, queued)):
                decide_s = now_s
            report_s, host = next(turns)


class _Reporting:
    """When a host reports: as :mod:`edge_module.reporting`."""

    def __init__(self, timing: Timing):
        self._timing = timing
        self._activity = activity.Activity[_Way]()
        self._due_s = 0.0

    def is_wanted(self, now_s: float, sent_bytes: Mapping[_Way, float],
                  queued: Set[_Way]) -> bool:
        """Return whether a look at the classes makes a report."""
        if self._timing.look_s >= self._timing.report_s:
            return True
        has_changed = self._activity.has_changed(sent_bytes, {
            way: wire.ClassStats(round(sent), 0, way in queued)
            for way, sent in sent_bytes.items()})
        is_due = now_s >= self._due_s
        if is_due or has_changed:
            self._due_s = now_s + self._timing.report_s - _ROUNDING_S
        if is_due:
            self._activity.forget_told()
        return is_due or has_changed


def _soonest_s(left_bytes: np.ndarray, flow_bps: np.ndarray) -> float:
    """Compute the seconds until a flow ends."""
    with np.errstate(divide='ignore'):
        found = left_bytes * units.BITS_PER_BYTE / flow_bps
    return max(1e-6, float(found.min(initial=math.inf)))


def _turns(hosts: Sequence[str], period_s: float
           ) -> Iterator[tuple[float, str]]:
    """Yield when which host reports."""
    turn = 1
    while True:
        yield turn * period_s / len(hosts), hosts[turn % len(hosts)]
        turn += 1


def _vm(number: int, row: int) -> str:
    return f'{number}-{row}'


def _address(number: int, row: int) -> str:
    return f'10.{number // 250}.{number % 250}.{row + 1}'
