# SPDX-License-Identifier: Apache-2.0

"""One coflow in flight: its members, its progress and its way. Pure."""

import collections
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import functools
import json
import math
from typing import TYPE_CHECKING

import numpy as np

from virtco import units
from virtco.db import codec
from virtco.model import coflow as coflow_model
from virtco.model import live
from virtco.model import snapshot
from virtco.model import states
from virtco.scheduling import endings
from virtco.scheduling.periodic import measured
from virtco.state import byte_counters
from virtco.state import route as routes
from virtco.state import schedule_input as snapshots
from virtco.state import silence
from virtco.table import coflow_table

if TYPE_CHECKING:
    from virtco.db import models

#: A claim of computing beyond this multiple of what is possible is told.
OVERSTATED = 1.25
#: A job stays one, however little it computes.
LEAST_COMPUTE_S = 1e-6
#: Routes that are remembered for bytes that are reported late.
MOST_FORMER = 16
# VM -> its host and its addresses.
Addresses = Mapping[str, tuple[str, tuple[str, ...]]]


@dataclasses.dataclass(eq=False)
class Tracked:
    """A coflow in flight.

    :ivar iteration: number of the iteration under way or last under way, from
        1; 0 before the first.
    :ivar upcoming: progress of the next iteration, while the coflow rests
        between two; the last one is done then.
    :ivar planned_cct_s: completion time of the last plan; None without a plan.
    :ivar expires_s: time at which the coflow is given up; None = never.
    :ivar moved_s: time at which its counters last moved; None = never.
    :ivar deadline_s: deadline that its tenant wants; inf = none.
    :ivar is_promised: whether the deadline was promised at the launch.
    :ivar was_placed: whether all its VMs ran at some time; a VM that is
        missing since then was deleted, and its flows with it.
    :ivar is_dirty: whether the database lacks its last change.
    :ivar check_s: time before which its state changes only if it is touched.
    :ivar period: counted period of its iterations.
    :ivar most_compute_s: upper bound of its computing per iteration, by the
        period.
    :ivar hosts: hosts where its VMs are, will be or were.
    :ivar former: routes before VMs moved, the latest first.
    :ivar why: rule that ended it.
    :ivar watched_since_s: time at which this process first looked at it.
    """

    coflow_id: str
    group_id: str
    project_id: str
    name: str
    state: str
    model: coflow_model.Coflow
    progress: byte_counters.CoflowProgress
    iteration: int = 0
    upcoming: byte_counters.CoflowProgress | None = None
    priority_class: int = 0
    weight: float = 1.0
    planned_cct_s: float | None = None
    arrival_s: float | None = None
    ended_s: float | None = None
    expires_s: float | None = None
    moved_s: float | None = None
    deadline_s: float = math.inf
    is_promised: bool = False
    queues: silence.Queues = dataclasses.field(default_factory=silence.Queues)
    was_placed: bool = False
    is_dirty: bool = False
    check_s: float = -math.inf
    period: measured.Period = dataclasses.field(
        default_factory=measured.Period)
    most_compute_s: float = math.inf
    hosts: set[str] = dataclasses.field(default_factory=set)
    former: list[routes.Route] = dataclasses.field(default_factory=list)
    why: str = ''
    watched_since_s: float | None = None
    members: Mapping[int, routes.Member] = dataclasses.field(
        default_factory=dict)
    # Whether its project owed when it was last shown.
    _owed: bool = False

    # Made of the above, until something of it changes.
    _table: coflow_table.TableCoflow | None = None
    _shown: snapshots.Coflow | None = None

    def place(self, members: Mapping[int, routes.Member]) -> None:
        """Set the VMs and their hosts."""
        if members != self.members:
            if self.route.pairs:
                self.former = [self.route, *self.former[:MOST_FORMER - 1]]
            self.members = members
            now = {member.host for member in members.values()
                   if member.host is not None}
            self.hosts |= now
            self.queues.keep(now)
            for name in ('route', 'planned_route', 'awaited_hosts', 'whole',
                         '_ends'):
                self.__dict__.pop(name, None)
            self._table = None
            self.touch()

    def touch(self) -> None:
        """Forget the derived values, since bytes, a queue or a state changed.
        """
        self.__dict__.pop('load', None)
        self._shown = None
        self.check_s = -math.inf

    def readdress(self) -> None:
        """Forget entries made of the addresses that its VMs had before."""
        self._table = self._shown = None

    @functools.cached_property
    def route(self) -> routes.Route:
        """Route of the flows between running VMs."""
        return routes.find_route(self.model.matrix, self.members, True)

    @functools.cached_property
    def planned_route(self) -> routes.Route:
        """Route of the flows between running or planned VMs."""
        return routes.find_route(self.model.matrix, self.members, False)

    @functools.cached_property
    def awaited_hosts(self) -> frozenset[str]:
        """Hosts of its VMs that are planned and do not run yet."""
        return frozenset(
            host for pair in (set(self.planned_route.pairs)
                              - set(self.route.pairs)) for host in pair)

    @functools.cached_property
    def whole(self) -> live.Flows:
        """All bytes between hosts, as at its beginning."""
        return live.Flows(self.route.pairs, self.route.per_pair(
            self.counting.sizes_bytes))

    def left_bytes(self, route: routes.Route) -> np.ndarray:
        """Return the bytes left per pair of hosts, shape (n_pairs,)."""
        counting = self.counting
        return route.per_pair(np.maximum(counting.remaining_bytes(),
                                         silence.TAIL * counting.sizes_bytes))

    @property
    def reserved(self) -> live.Flows | None:
        """Remaining flows that a promised deadline holds, planned VMs
        included; None without a promise.
        """
        if not self.is_promised:
            return None
        route = self.planned_route
        return live.Flows(route.pairs, self.left_bytes(route))

    def _queued_bytes(self, route: routes.Route) -> np.ndarray:
        """Estimate the bytes in queues per pair, for a coflow all of whose
        bytes were counted, shape (n_pairs,).

        Counters see packets that TCP sends twice, so some data may still be
        on its way. It waits where there is a queue. Tails everywhere would
        hold all of the coflow's ports for what is left on one of them.
        """
        left_bytes = self.left_bytes(route)
        per_host: dict[str, float] = collections.defaultdict(float)
        for (src, _), tail_bytes in zip(route.pairs, left_bytes.tolist()):
            per_host[src] += tail_bytes
        return left_bytes * [
            self.queues.whole_bytes.get(src, 0.0) / per_host[src]
            if per_host[src] > 0 else 0.0 for src, _ in route.pairs]

    def _crossed_bytes(self) -> tuple[float, float]:
        """Return the bytes between hosts: hinted, and sent."""
        counting, local = self.counting, self.route.local
        return (float(counting.sizes_bytes.sum()
                      - counting.sizes_bytes[local].sum()),
                counting.all_bytes - float(counting.sent_bytes[local].sum()))

    def _is_exceeded(self, rules: endings.Rules) -> bool:
        return endings.is_exceeded(*self._crossed_bytes(), rules)

    def _is_overrun(self, rules: endings.Rules) -> bool:
        return not self.model.is_estimated and endings.is_overrun(
            *self._crossed_bytes(), rules)

    def _unhinted_bytes(self, rules: endings.Rules) -> np.ndarray:
        """Estimate the bytes that an overrun will still send, shape
        (n_pairs,): the rest up to twice the hint, then up to four times, and
        further on, for the flows that send.
        """
        counting = self.counting
        size_bytes, sent_bytes = self._crossed_bytes()
        expected_bytes = size_bytes * 2 ** math.floor(
            1 + math.log2(sent_bytes / size_bytes))
        sends = counting.rested_s(self.moved_s or 0.0) < rules.quiet_s
        return self.route.per_pair(counting.sizes_bytes * (
            sends * ((expected_bytes - sent_bytes) / size_bytes)))

    def _left_now_bytes(self, rules: endings.Rules) -> np.ndarray:
        """Return the bytes left per pair, hinted or expected, shape
        (n_pairs,).
        """
        if self.model.is_estimated or not endings.is_all_sent(
                self.model.size_bytes, self.cross_remaining(self.counting),
                rules):
            return self.left_bytes(self.route)
        if self._is_overrun(rules):
            return self._unhinted_bytes(rules)
        if self.queues or not self._is_exceeded(rules):
            return self._queued_bytes(self.route)
        return self.left_bytes(self.route)

    def _served(self) -> live.Flows:
        """Return the sent bytes per pair."""
        counting = self.counting
        named_bytes = float(counting.sent_bytes.sum())
        return live.Flows(self.route.pairs, self.route.per_pair(
            counting.sent_bytes) * (counting.all_bytes / named_bytes
                                    if named_bytes > 0 else 1.0))

    def _sending(self, left_bytes: np.ndarray, rules: endings.Rules,
                 heard_s: silence.Heard) -> live.Flows | None:
        """Return the remaining flows without silent ones; None where none is
        silent.

        :param left_bytes: of each pair.
        """
        if self.model.is_estimated or self.moved_s is None:
            return None
        silent_bytes = silence.silent_bytes(
            self.counting, self.route, self.queues, self.moved_s, heard_s,
            rules)
        if silent_bytes is None:
            return None
        return live.Flows(self.route.pairs,
                          np.maximum(0.0, left_bytes - silent_bytes))

    def _live(self, strangers: Collection[str], rules: endings.Rules,
              heard_s: silence.Heard, in_debt: bool) -> live.LiveCoflow:
        pairs = self.route.pairs
        left_bytes = self._left_now_bytes(rules)
        has_strangers = not pairs.hosts.isdisjoint(strangers)
        if has_strangers:
            left_bytes *= [src not in strangers and dst not in strangers
                           for src, dst in pairs]
        return live.LiveCoflow(
            self.coflow_id, live.Flows(pairs, left_bytes),
            self.arrival_s or 0.0, self.moved_s or self.arrival_s or 0.0,
            self.counting.all_bytes, self.claimed_bytes, self.project_id,
            self.priority_class, self.weight, len(self.model.matrix),
            whole=None if has_strangers or self.model.is_estimated
            else self.whole,
            served=self._served() if self.model.is_estimated or in_debt
            or self._is_overrun(rules) else None,
            compute_s=self.compute_s if self.model.is_by_intensity else 0.0,
            workers=self.model.n_vms,
            sending=self._sending(left_bytes, rules, heard_s),
            deadline_s=self.deadline_s, is_promised=self.is_promised)

    @functools.cached_property
    def load(self) -> snapshot.ActiveCoflow:
        """Remaining bytes per host and pair, planned members included."""
        route = self.planned_route
        sizes_bytes = self.left_bytes(route)
        out_bytes, in_bytes = (
            tuple(zip(names, np.bincount(
                of_pair, sizes_bytes, len(names)).tolist()))
            for names, of_pair in self._ends)
        return snapshot.ActiveCoflow(
            self.coflow_id, out_bytes, in_bytes,
            tuple([(src, dst, size_bytes) for (src, dst), size_bytes
                   in zip(route.pairs, sizes_bytes.tolist())]))

    @functools.cached_property
    def _ends(self) -> tuple[tuple[tuple[str, ...], np.ndarray], ...]:
        """Names of the sending and the receiving hosts, each with the index of
        each pair's host.
        """
        found = []
        for end in (0, 1):
            hosts = [pair[end] for pair in self.planned_route.pairs]
            number = {host: i for i, host in enumerate(sorted(set(hosts)))}
            found.append((tuple(number), np.array(
                [number[host] for host in hosts], np.int64)))
        return tuple(found)

    def _table_of(self, addresses: Addresses) -> coflow_table.TableCoflow:
        route = self.route
        flows = []
        for i in route.crossing.tolist():
            src_vm, dst_vm = self.vms(i)
            src_host, dst_host = route.pairs[route.pair_of[i]]
            flows.append(coflow_table.VmFlow(
                src_vm=src_vm, src_host=src_host,
                src_ips=addresses.get(src_vm, ('', ()))[1],
                dst_host=dst_host,
                dst_ips=addresses.get(dst_vm, ('', ()))[1]))
        return coflow_table.TableCoflow.from_flows(
            self.coflow_id, self.name, flows, self.model.dst_port,
            route.pairs)

    def shown(self, strangers: Collection[str], rules: endings.Rules,
              addresses: Addresses,
              heard_s: silence.Heard = silence.never, in_debt: bool = False
              ) -> snapshots.Coflow:
        """Show the coflow to the scheduler; the same object until a change.

        :param strangers: hosts of which nothing is known; a flow of theirs
            waits and delays no other.
        :param heard_s: when a host last reported; -inf = never.
        :param in_debt: its project owes, so its hints are not believed.
        """
        if in_debt != self._owed:
            self._owed = in_debt
            self.touch()
        if self._shown is None:
            if self._table is None:
                self._table = self._table_of(addresses)
            self._shown = snapshots.Coflow(
                self._live(strangers, rules, heard_s, in_debt), self._table,
                self.moved_s, bool(self.queues), self.upcoming is not None)
        return self._shown

    def vms(self, flow: int) -> tuple[str, str]:
        """Return the sending and the receiving instance of a flow."""
        matrix = self.model.matrix
        return (self.members[matrix.src[flow]].instance_uuid or '',
                self.members[matrix.dst[flow]].instance_uuid or '')

    # Its bytes.

    @property
    def counting(self) -> byte_counters.CoflowProgress:
        """Progress to which bytes that are counted now belong."""
        return self.upcoming or self.progress

    @property
    def has_more(self) -> bool:
        """Whether an iteration follows the present one."""
        return (self.model.iterations == 0
                or self.iteration < self.model.iterations)

    @property
    def claimed_bytes(self) -> float:
        """Bytes that it may send in this and all later iterations; 0 = no end.

        A report may count the end of an iteration and the beginning of the
        next in one.
        """
        n_left = max(0, self.model.iterations - self.iteration + 1)
        return self.model.size_bytes * n_left

    def counted_bytes(self, flow: int) -> float:
        """Return the counted payload of a flow in all iterations."""
        n_ended = self.iteration - (self.upcoming is None)
        return float(max(0, n_ended) * self.model.matrix.size_bytes[flow]
                     + self.counting.sent_bytes[flow])

    def credit(self, host: str, dst_host: str | None, new_bytes: float,
               shares: np.ndarray | None = None) -> None:
        """Count bytes that a host sent, for the flows from there.

        What these cannot have sent is of flows that left the host before: its
        report came late. What was sent beyond all hints counts, too.

        :param shares: of the flows of the present route.
        """
        flows = self.route.flows(host, dst_host)
        if not self.model.is_estimated:
            for some in (flows, *(route.flows(host, dst_host)
                                  for route in self.former)):
                new_bytes -= self.counting.fill(some, new_bytes)
        elif not len(flows):
            flows = next((some for route in self.former if len(
                some := route.flows(host, dst_host))), flows)
        if new_bytes > 0:
            self.counting.credit(flows, new_bytes, shares)

    def credited(self, new_bytes: float, since_s: float, now_s: float,
                 rules: endings.Rules) -> None:
        """Record that bytes which moved between these two times were counted.
        """
        counting = self.counting
        silent_s = now_s - (now_s if self.moved_s is None else self.moved_s)
        if silent_s >= rules.quiet_s:
            counting.resumed(now_s)
        counting.moved((since_s, now_s), silent_s >= rules.pause_s
                       and endings.is_noise(self.model.size_bytes,
                                            counting.all_bytes - new_bytes,
                                            rules))
        self.moved_s = now_s
        self.is_dirty = True
        self.touch()

    # What it computes.

    @property
    def compute_s(self) -> float:
        """Computing per iteration in seconds: the claim, as far as it is
        possible; 0 for coflows that do not alternate.
        """
        if not self.model.computes:
            return 0.0
        return max(LEAST_COMPUTE_S, min(self.model.compute_s or 0.0,
                                        self.most_compute_s))

    @property
    def overstates(self) -> bool:
        """Whether it claims to compute more than its iterations have time."""
        return (self.model.compute_s or 0.0) > OVERSTATED * self.compute_s > 0

    def measures(self, new_bytes: float, between_s: tuple[float, float]
                 ) -> bool:
        """Count bytes for the period; return whether the period changed."""
        if not self.model.computes or self.model.is_estimated:
            return False
        iteration_bytes = float(self.whole.remaining_bytes.sum())
        return iteration_bytes > 0 and self.period.count(
            new_bytes, between_s, iteration_bytes)

    def send_s(self, rates_bps: Mapping[str, tuple[float, float]]) -> float:
        """Return the sending time of an iteration alone, on its slowest link.

        :param rates_bps: egress and ingress of each host, in payload.
        """
        found = 0.0
        for end in (0, 1):
            per_host: dict[str, float] = collections.defaultdict(float)
            for pair, size_bytes in zip(
                    self.whole.pairs, self.whole.remaining_bytes.tolist()):
                per_host[pair[end]] += size_bytes
            found = max([found, *(
                size_bytes * units.BITS_PER_BYTE / rates_bps[host][end]
                for host, size_bytes in per_host.items()
                if host in rates_bps and rates_bps[host][end] > 0)])
        return found

    def remaining_fraction(self) -> float:
        """Return the share of this iteration's bytes that is left."""
        if self.model.size_bytes <= 0:
            return 1.0
        left = float(self.counting.remaining_bytes().sum())
        return max(silence.TAIL, left / self.model.size_bytes)

    def cross_remaining(self, progress: byte_counters.CoflowProgress | None
                        = None) -> float:
        """Return the bytes left between hosts."""
        left_bytes = (progress or self.progress).remaining_bytes()
        return float(left_bytes[self.route.crossing].sum())

    def _away_remaining(self) -> float:
        """Return the bytes left to or from VMs on no host (shelved)."""
        away = {index for index, member in self.members.items()
                if member.instance_uuid
                and not (member.running and member.host)}
        if not away:
            return 0.0
        matrix, absent = self.model.matrix, list(away)
        return float(self.progress.remaining_bytes()[
            np.isin(matrix.src, absent) | np.isin(matrix.dst, absent)].sum())

    # Its life.

    def begin(self, now_s: float) -> None:
        """Begin the first or the next iteration."""
        self.progress, self.upcoming = self.counting, None
        self.state = states.CoflowState.ACTIVE
        self.iteration += 1
        self.arrival_s = now_s
        self.ended_s = None
        self.why = ''
        self.is_dirty = True
        self.touch()

    def end(self, now_s: float) -> None:
        self.state = states.CoflowState.DONE
        self.ended_s = now_s
        if not self.route.is_complete or self.has_expired(now_s):
            # Flows, such as those of a deleted VM, were not sent to their
            # end.
            self.progress.span = None
        if self.has_expired(now_s):
            self.iteration = max(1, self.iteration)
        self.is_dirty = True
        self.touch()

    def rest(self) -> None:
        """Wait for the next iteration, of which nothing was seen so far."""
        self.upcoming = (
            self.progress.anew() if isinstance(
                self.progress, byte_counters.Estimated)
            else byte_counters.CoflowProgress(self.progress.sizes_bytes))
        self.touch()

    def begins(self, now_s: float, rules: endings.Rules) -> bool:
        if self.state == states.CoflowState.PLANNED:
            return any(member.running for member in self.members.values())
        if self.upcoming is None:
            return False
        if (self.upcoming.all_bytes
                and now_s - (self.moved_s or 0.0) >= rules.pause_s):
            self.rest()
        return self.begins_anew(now_s, rules)

    def begins_anew(self, now_s: float, rules: endings.Rules) -> bool:
        return self.upcoming is not None and endings.begins_anew(
            self.model.size_bytes, self.upcoming.all_bytes,
            now_s - (self.ended_s or 0.0), rules)

    def is_all_sent(self, rules: endings.Rules) -> bool:
        return not self.model.is_estimated and endings.is_all_sent(
            self.model.size_bytes, self.cross_remaining(), rules)

    def has_expired(self, now_s: float) -> bool:
        return self.expires_s is not None and now_s >= self.expires_s

    def find_end(self, now_s: float, rules: endings.Rules,
                 has_sibling: bool = False) -> str:
        """Return the rule that ends the coflow now; empty for none.

        :param has_sibling: another coflow of the group is in flight: what
            its VMs send beyond this one's size may be that one's.
        """
        if self.state != states.CoflowState.ACTIVE:
            return ''
        if self.watched_since_s is None:
            self.watched_since_s = now_s
        if now_s - self.idle_since_s >= rules.give_up_s:
            left_bytes = float(self.progress.remaining_bytes().sum())
            return (f'given up: no byte for {rules.give_up_s:g} s, '
                    f'{left_bytes:.0f} bytes were not counted')
        self.was_placed |= self.route.is_complete
        if not self.was_placed:
            return ''
        if self.route.local.size:
            self.progress.complete(self.route.local)
        if self.queues:
            return ''
        silent_s = None if self.moved_s is None else now_s - self.moved_s
        if self.model.is_estimated:
            # Silence alone tells, and that of any VM may be a pause.
            return 'silent, of no hinted size' if (
                silent_s is not None and silent_s
                >= max(rules.quiet_s, byte_counters.FLOW_RESTS_S)) else ''
        if (self._is_exceeded(rules) and not self.has_more
                and not has_sibling):
            # More than was hinted: perhaps it goes on.
            return 'silent after more than the hint' if (
                silent_s is not None and silent_s >= rules.quiet_s) else ''
        left_bytes = self.cross_remaining() + self._away_remaining()
        if not endings.has_ended(self.model.size_bytes, left_bytes, silent_s,
                                 rules):
            return ''
        return 'all bytes sent' if endings.is_all_sent(
            self.model.size_bytes, left_bytes, rules) else (
                'silent after most of the hint')

    @property
    def idle_since_s(self) -> float:
        """Time of the last byte, or since when one is waited for.

        A process that begins waits anew: the machine's clock may have been
        set since the coflow arrived.
        """
        return max(self.moved_s or 0.0, self.arrival_s or 0.0,
                   self.watched_since_s or 0.0)

    def rest_until(self, now_s: float, rules: endings.Rules) -> None:
        """Set the time at which silence may change the state next."""
        times_s = [math.inf if self.expires_s is None else self.expires_s,
                   math.inf]
        if self.state == states.CoflowState.ACTIVE:
            times_s.append(self.idle_since_s + rules.give_up_s)
        if self.moved_s is not None:
            times_s += [self.moved_s + rules.quiet_s,
                        self.moved_s + rules.pause_s]
            if self.model.is_estimated:
                times_s.append(self.moved_s + max(
                    rules.quiet_s, byte_counters.FLOW_RESTS_S))
        if self.ended_s is not None:
            times_s.append(self.ended_s + rules.settle_s)
        # A rounding error must not let the moment pass by.
        self.check_s = min(time_s for time_s in times_s
                           if time_s >= now_s - 1e-6)


def load(stored: 'models.Coflow') -> Tracked:
    model = codec.decode_coflow(stored)
    sent_bytes = json.loads(stored.progress)
    tracked = Tracked(
        coflow_id=stored.id, group_id=stored.group_id or '',
        project_id=stored.project_id, name=stored.name, state=stored.state,
        model=model,
        progress=byte_counters.Estimated(
            np.array(model.matrix.dst), sent_bytes)
        if model.is_estimated else byte_counters.CoflowProgress(
            np.asarray(model.matrix.size_bytes), sent_bytes),
        iteration=stored.iteration, priority_class=stored.priority_class,
        weight=stored.weight, arrival_s=stored.arrival,
        planned_cct_s=stored.cct_s, ended_s=stored.ended_at,
        expires_s=stored.expires_at,
        deadline_s=(math.inf if stored.deadline_at is None
                    else stored.deadline_at),
        is_promised=bool(stored.is_promised), why=stored.why or '')
    if (stored.first_byte_at is not None and stored.last_byte_at is not None
            and stored.measured_cct_error_s is not None):
        tracked.progress.span = byte_counters.Span.load(
            stored.first_byte_at, stored.last_byte_at,
            stored.measured_cct_error_s)
    if tracked.state == states.CoflowState.DONE:
        tracked.rest()
    return tracked
