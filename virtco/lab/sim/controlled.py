# SPDX-License-Identifier: Apache-2.0

"""Coflows under the controller's own code, whatever it is told of them.

The controller is :class:`virtco.know.live_state.LiveState` and
:func:`virtco.decide.policies.compute`: it learns what was sent from reports,
takes a coflow for ended by its rules, and its policies come into force later.
Only the packets are a fluid. A class has its rate and no more; its flows share
it equally, and its queue is not empty before they have ended. What is in no
class shares what the classes leave as TCP does. When a class comes for a flow
that sends already, to a host to which others have classes, a window of it
still waits beside them, and TCP sends no more before that has arrived.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from virtco.db import codec
from virtco.db import models
from virtco.decide import policies
from virtco.know import live_state
from virtco.know import reports
from virtco.know import rules
from virtco.know import snapshot
from virtco.know import uplinks
from virtco.lab.emulation import tcp_sharing
from virtco.model import coflow as coflow_model
from virtco.model import states
from virtco.scheduling import endings
from virtco import units

#: A flow with less than this left has ended.
_ENDED_BYTES = 1.0
#: Traffic without a class has at least this share of a link.
_LEAST_SHARE = 1e-3
#: In the queue of a class whose flows have bytes left.
_QUEUED_BYTES = 1500
# Coflow, source and destination host.
_Way = tuple[int, str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """How late the controller knows, and its word holds.

    :ivar report_s: from one report of a host to its next; the hosts take
        turns.
    :ivar interval_s: from one computation to the next; one that a report
        calls for is made at once.
    :ivar delay_s: from a computation until its rates are in force.
    """

    report_s: float = 0.1
    interval_s: float = 0.1
    delay_s: float = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """A coflow as it is, and as its tenant says that it is.

    :ivar truth: what is sent, all of it from ``start_s`` on.
    :ivar told: what the controller hears of it, over the same VMs …
    :ivar told_s: … and when. What is sent before is in no class.
    :ivar hosts: of each of its VMs.
    """

    truth: coflow_model.Coflow
    told: coflow_model.Coflow
    hosts: tuple[str, ...]
    start_s: float = 0.0
    told_s: float = 0.0


class _Controller:
    """Reports in, rates of classes out."""

    def __init__(self, coflows: Sequence[Sent], rates_bps: Mapping[str, float],
                 options: snapshot.Options):
        self._coflows = coflows
        self._options = options
        self._rates_bps = rates_bps
        self._state = live_state.LiveState(rules.Rules(
            ending=endings.Rules(quiet_s=options.quiet_s),
            uplink=uplinks.Rules(default_bps=max(rates_bps.values())),
            share=snapshot.Share(options.default_share)))
        self._policies: policies.Policies | None = None
        self._ports = {host: tuple(
            reports.Port(_vm(number, row), f'tap{number}-{row}',
                         ips=(_address(number, row),))
            for number, one in enumerate(coflows)
            for row, its in enumerate(one.hosts) if its == host)
            for host in rates_bps}
        self._known: list[int] = []

    def hear_of(self, number: int, now_s: float) -> None:
        """The tenant tells of a coflow whose VMs run."""
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
                priority_class=0, weight=1.0, arrival=now_s)],
            only={name})

    def report(self, host: str, sent_bytes: Mapping[_Way, float],
               pairs_bytes: Mapping[tuple[int, int, int], float],
               now_s: float, queued: Collection[_Way] = ()) -> bool:
        """:param sent_bytes: by the classes of the host, in all.
        :param queued: classes with a queue.
        :param pairs_bytes: of coflow, source and destination VM.
        :returns: whether the controller computes at once.
        """
        counters = []
        for number in self._known:
            its = [reports.DestinationCounter(
                way[2], round(size), _QUEUED_BYTES * (way in queued))
                for way, size in sent_bytes.items()
                if way[:2] == (number, host)]
            if its:
                counters.append(reports.CoflowCounters(
                    str(number), sum(one.sent_bytes for one in its),
                    backlog_bytes=sum(one.backlog_bytes for one in its),
                    destinations=tuple(its)))
        rate_bps = self._rates_bps[host]
        return self._state.intake(host, reports.Report(
            epoch='e', applied_generation=0,
            link=reports.Link(rate_bps, rate_bps), ports=self._ports[host],
            coflows=tuple(counters), uplink_sent_bytes=sum(
                counter.sent_bytes for counter in counters),
            pairs=tuple(reports.PairCounter(
                _address(number, src), _address(number, dst), round(size),
                f'tap{number}-{src}')
                for (number, src, dst), size in pairs_bytes.items()
                if self._coflows[number].hosts[src] == host)), now_s)

    def decide(self, now_s: float) -> dict[_Way, float]:
        """The rate of every class."""
        self._state.advance(now_s)
        self._policies = policies.compute(
            self._state.snapshot(self._options, now_s), self._policies)
        self._state.keep_minors(self._policies.minors)
        return {(int(made.layout.classes[of].coflow_id), host, peer): rate_bps
                for host, made in self._policies.of_host.items()
                for of, peer, rate_bps in zip(
                    made.layout.class_of.tolist(), made.layout.peers,
                    made.child_bps.tolist())}


class _Flows:
    """The fluid: what each flow between two hosts has left."""

    def __init__(self, coflows: Sequence[Sent],
                 rates_bps: Mapping[str, float], window_bytes: float):
        hosts = {name: i for i, name in enumerate(rates_bps)}
        self._cap_bps = np.array([*rates_bps.values()] * 2)
        self.pairs = [(number, flow.src, flow.dst)
                      for number, one in enumerate(coflows)
                      for flow in one.truth.flows
                      if one.hosts[flow.src] != one.hosts[flow.dst]]
        self.ways: list[_Way] = [
            (number, coflows[number].hosts[src], coflows[number].hosts[dst])
            for number, src, dst in self.pairs]
        sizes = {(number, flow.src, flow.dst): flow.size_bytes
                 for number, one in enumerate(coflows)
                 for flow in one.truth.flows}
        self._src = np.array([hosts[src] for _, src, _ in self.ways], int)
        self._dst = len(hosts) + np.array(
            [hosts[dst] for *_, dst in self.ways], int)
        self.left_bytes = np.array([sizes[pair] for pair in self.pairs])
        self.sent_bytes = np.zeros(len(self.pairs))
        self.coflow = np.array([number for number, *_ in self.ways], int)
        self.in_class: dict[_Way, float] = {}
        self._window_bytes = window_bytes
        # Of each flow that waits where it has no class.
        self.stuck_bytes = np.zeros(len(self.pairs))
        self._prices = np.ones(len(self._cap_bps))

    def rates_bps(self, active: np.ndarray, classes: Mapping[_Way, float]
                  ) -> np.ndarray:
        """:param active: indices of the flows that send."""
        ways = [self.ways[i] for i in active]
        count: dict[_Way, int] = {}
        for way in ways:
            count[way] = count.get(way, 0) + 1
        rates = np.array([classes.get(way, math.nan) / count[way]
                          for way in ways])
        # What waits elsewhere leaves the class its rate.
        given = np.nan_to_num(rates)
        rates[self.stuck_bytes[active] > 0] = math.nan
        free = np.isnan(rates)
        if free.any():
            shared = active[free]
            load = sum(np.bincount(ends[active], given, len(self._cap_bps))
                       for ends in (self._src, self._dst))
            # Prices are close to those of the step before.
            rates[free], self._prices = tcp_sharing.shares_bps(
                self._src[shared], self._dst[shared], np.maximum(
                    self._cap_bps - load, _LEAST_SHARE * self._cap_bps),
                self._prices)
        return rates

    def send(self, active: np.ndarray, rates_bps: np.ndarray, dt_s: float,
             classes: Mapping[_Way, float]) -> None:
        moved = np.minimum(self.left_bytes[active],
                           units.bps_to_bytes_per_s(1.0) * rates_bps * dt_s)
        self.left_bytes[active] -= moved
        self.sent_bytes[active] += moved
        is_stuck = self.stuck_bytes[active] > 0
        self.stuck_bytes[active] -= moved
        self.stuck_bytes[self.stuck_bytes < _ENDED_BYTES] = 0.0
        for i, size in zip(active[~is_stuck].tolist(),
                           moved[~is_stuck].tolist()):
            if self.ways[i] in classes:
                self.in_class[self.ways[i]] = size + self.in_class.get(
                    self.ways[i], 0.0)

    def get_classes(self, classes: Collection[_Way],
                    before: Collection[_Way]) -> None:
        """Ways have classes from now on.

        Who sent without one to a host to which others had one was limited.
        """
        limited = {dst for *_, dst in before}
        for i, way in enumerate(self.ways):
            if (way in classes and way not in before and way[2] in limited
                    and self.sent_bytes[i] > 0):
                self.stuck_bytes[i] = min(self.left_bytes[i],
                                          self._window_bytes)

    def next_bytes(self, active: np.ndarray) -> np.ndarray:
        """Until each flow ends or its class serves it."""
        found: np.ndarray = self.left_bytes[active]
        is_stuck = self.stuck_bytes[active] > 0
        found[is_stuck] = self.stuck_bytes[active][is_stuck]
        return found

    def queued(self, classes: Mapping[_Way, float], begun: np.ndarray
               ) -> set[_Way]:
        """Classes in which something waits.

        :param begun: whether each coflow has begun.
        """
        sends = (self.left_bytes >= _ENDED_BYTES) & begun[self.coflow]
        return {self.ways[i] for i in np.flatnonzero(sends)} & classes.keys()


def simulate(coflows: Sequence[Sent], rates_bps: Mapping[str, float],
             options: snapshot.Options = snapshot.Options(beta=0.0),
             timing: Timing = Timing(), window_bytes: float = 0.0
             ) -> list[float]:
    """CCT of each coflow; 0 of one that sends nothing between hosts.

    :param rates_bps: of each host's link, the same both ways, as payload.
    :param window_bytes: of each TCP connection.
    """
    controller = _Controller(coflows, rates_bps, options)
    flows = _Flows(coflows, rates_bps, window_bytes)
    starts_s = np.array([one.start_s for one in coflows])
    ends_s = starts_s.copy()
    untold = sorted(range(len(coflows)), key=lambda i: -coflows[i].told_s)
    turns = _turns(tuple(rates_bps), timing.report_s)
    report_s, host = next(turns)
    decide_s = now_s = 0.0
    coming: list[tuple[float, dict[_Way, float]]] = []
    classes: dict[_Way, float] = {}
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
            flows.get_classes(classes, before)
        is_left = flows.left_bytes >= _ENDED_BYTES
        if not is_left.any():
            return [float(cct_s) for cct_s in ends_s - starts_s]
        active = np.flatnonzero(is_left
                                & (starts_s[flows.coflow] <= now_s))
        flow_bps = flows.rates_bps(active, classes)
        next_s = min([report_s, decide_s, *(at_s for at_s, _ in coming[:1]),
                      *starts_s[starts_s > now_s].tolist(),
                      *(coflows[i].told_s for i in untold[-1:]),
                      now_s + _soonest_s(flows.next_bytes(active), flow_bps)])
        flows.send(active, flow_bps, next_s - now_s, classes)
        now_s = next_s
        ended = active[flows.left_bytes[active] < _ENDED_BYTES]
        ends_s[flows.coflow[ended]] = now_s
        while report_s <= now_s:
            if controller.report(host, flows.in_class, dict(zip(
                    flows.pairs, flows.sent_bytes.tolist())), now_s,
                    flows.queued(classes, starts_s <= now_s)):
                decide_s = now_s
            report_s, host = next(turns)


def _soonest_s(left_bytes: np.ndarray, flow_bps: np.ndarray) -> float:
    """Until a flow ends."""
    with np.errstate(divide='ignore'):
        found = left_bytes * units.BITS_PER_BYTE / flow_bps
    return max(1e-6, float(found.min(initial=math.inf)))


def _turns(hosts: Sequence[str], period_s: float
           ) -> Iterator[tuple[float, str]]:
    """When which host reports."""
    turn = 1
    while True:
        yield turn * period_s / len(hosts), hosts[turn % len(hosts)]
        turn += 1


def _vm(number: int, row: int) -> str:
    return f'{number}-{row}'


def _address(number: int, row: int) -> str:
    return f'10.{number // 250}.{number % 250}.{row + 1}'
