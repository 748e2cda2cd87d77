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

"""What runs now, in memory: groups, coflows in flight and hosts.

The database holds the same facts for a restart; the scheduler loop reads only
this, so that it goes on when the database does not. Nothing here reads a
clock, the callers say what time it is. The lock is nobody else's: others get
values that do not change.
"""

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import json
import math
import threading
from typing import Any
from typing import TYPE_CHECKING

from virtco.know import above
from virtco.know import byte_counters
from virtco.know import debts
from virtco.know import host_state
from virtco.know import host_uplinks
from virtco.know import inflight
from virtco.know import pair_counters
from virtco.know import rates as measured_rates
from virtco.know import reports
from virtco.know import route as routes
from virtco.know import snapshot as snapshots
from virtco.know import towards
from virtco.know import uplinks
from virtco.model import cluster
from virtco.model import snapshot as model
from virtco.model import states
from virtco.scheduling import endings
from virtco.scheduling import policing
from virtco.table import coflow_table
from virtco.table import edge_policy
from virtco.topology import tree

if TYPE_CHECKING:
    from virtco.db import models


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """See ``[scheduler]``, ``[probe]`` and ``[placement]``."""

    half_life_s: float = 5.0
    wire_overhead_fraction: float = 0.0
    ending: endings.Rules = endings.Rules()
    uplink: uplinks.Rules = uplinks.Rules()
    share: snapshots.Share = snapshots.Share()
    max_debt_bytes: float = math.inf

    @property
    def wire_factor(self) -> float:
        """Bytes on the wire per byte of payload."""
        return 1 + self.wire_overhead_fraction


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """How far a coflow is.

    :ivar span: of the iteration that is or was under way.
    """

    coflow_id: str
    name: str
    state: str
    iteration: int
    sent_bytes: float
    arrival_s: float | None
    ended_s: float | None
    planned_cct_s: float | None
    span: byte_counters.Span | None


@dataclasses.dataclass(frozen=True, slots=True)
class Unsaved:
    """What the database does not know yet.

    :ivar coflows: columns of each.
    :ivar debts: bytes per project.
    :ivar ended: ids of the coflows that are over with it.
    """

    coflows: list[dict[str, Any]]
    hosts: list[host_state.Stored]
    debts: dict[str, float]
    ended: tuple[str, ...]

    def is_empty(self) -> bool:
        return not (self.coflows or self.hosts or self.debts)


class LiveState:
    """All of it, behind one lock that is held for computations only.

    :param rates: as measured between the hosts.
    :param plane: tells which switches are above the hosts.
    """

    def __init__(self, rules: Rules = Rules(),
                 rates: measured_rates.Rates | None = None,
                 plane: Callable[[], tree.Plane | None] = lambda: None):
        #: Hosts that take no new group.
        self.drained: frozenset[str] = frozenset()
        self._lock = threading.RLock()
        self._rules = rules
        self._endings = rules.ending
        self._groups: dict[str, dict[int, routes.Member]] = {}
        self._coflows: dict[str, inflight.Tracked] = {}
        # Done for good, but not yet so in the database.
        self._ended: dict[str, inflight.Tracked] = {}
        self._hosts: dict[str, host_state.HostState] = {}
        self._unsaved_hosts: set[str] = set()
        # Those that send what belongs to no coflow.
        self._sending: set[str] = set()
        self._debts = debts.Debts(most_bytes=rules.max_debt_bytes)
        self._addresses: dict[str, tuple[str, tuple[str, ...]]] = {}
        # VMs whose hosts Nova has not confirmed, and whether one is planned;
        # hosts that only they or their coflows name.
        self._waiting: dict[str, bool] = {}
        self._group_of: dict[str, str] = {}
        self._coflows_of: dict[str, list[inflight.Tracked]] = {}
        self._owners: (
            dict[pair_counters.Key, pair_counters.Owner] | None) = None
        self._counts_pairs = False
        self._minors: Mapping[str, coflow_table.Minors] = {}
        self._uplinks = host_uplinks.HostUplinks(
            rules.uplink, rules.share, rates or measured_rates.Rates(),
            self._hosts)
        self._above = above.Above(plane, rules.share.default_share,
                                  rules.uplink.default_bps)

    # Groups and their members.

    def load_groups(self, members: 'Iterable[models.Member]',
                    coflows: 'Iterable[models.Coflow]',
                    only: Set[str] | None = None,
                    anew: bool = False) -> None:
        """Take over what the database says about the living groups.

        What is already tracked keeps its progress, which is newer here.

        :param only: ids of the groups that were read; None: all of them.
        :param anew: somebody else counts, so the database is newer.
        """
        groups: dict[str, dict[int, routes.Member]] = {}
        for member in members:
            found = groups.setdefault(member.group_id, {})
            found[member.row_index] = routes.Member(
                member.instance_uuid, member.host,
                member.state == states.MemberState.RUNNING)
        with self._lock:
            read = groups.keys() | self._groups if only is None else only
            for group_id in read - groups.keys():
                self._groups.pop(group_id, None)
            self._groups |= groups
            known = self._coflows
            self._coflows = {coflow_id: tracked
                             for coflow_id, tracked in known.items()
                             if tracked.group_id not in read}
            for stored in coflows:
                if stored.id in self._ended:
                    continue
                tracked = ((None if anew else known.get(stored.id))
                           or inflight.load(stored))
                if (tracked.priority_class, tracked.weight) != (
                        stored.priority_class, stored.weight):
                    tracked.priority_class = stored.priority_class
                    tracked.weight = stored.weight
                    tracked.touch()
                tracked.planned_cct_s = stored.cct_s
                tracked.place(self._groups.get(tracked.group_id, {}))
                self._coflows[stored.id] = tracked
            for coflow_id in known.keys() - self._coflows.keys():
                self._debts.end(known[coflow_id].project_id, coflow_id)
            self._owners = None
            everyone = [member for rows in self._groups.values()
                        for member in rows.values()]
            self._group_of = {
                member.instance_uuid: group_id
                for group_id, rows in self._groups.items()
                for member in rows.values() if member.instance_uuid}
            self._coflows_of = collections.defaultdict(list)
            for tracked in self._coflows.values():
                self._coflows_of[tracked.group_id].append(tracked)
            self._waiting = {
                member.instance_uuid: member.host is not None
                for member in everyone
                if member.instance_uuid and not member.running}
            self._note_strangers({member.host for member in everyone
                                  if member.host is not None
                                  and member.running} - self._hosts.keys())

    def count_members(self, host: str) -> int:
        """VMs of groups that are or will be on the host."""
        with self._lock:
            return sum(member.host == host for rows in self._groups.values()
                       for member in rows.values())

    def _note_strangers(self, hosts: Set[str]) -> None:
        if self._uplinks.set_strangers(hosts):
            for tracked in self._coflows.values():
                tracked.touch()

    def waiting(self, host: str) -> Set[str]:
        """VMs that the host last reported, and that Nova has not confirmed to
        run anywhere.

        The port of a VM that was shelved may outlive it for a moment. So
        where no host is planned, only a port that is new counts.
        """
        with self._lock:
            state = self._hosts[host]
            return {vm for vm in state.vms & self._waiting.keys()
                    if self._waiting[vm] or vm in state.new_vms}

    # Hosts.

    def load_hosts(self, hosts: 'Iterable[models.Host]') -> None:
        with self._lock:
            minors = dict(self._minors)
            for stored in hosts:
                state = self._host(stored.host, stored.first_seen)
                link = state.known_link
                if state.load(stored):
                    self._learn_addresses(stored.host, state.report.ports)
                if state.known_link != link:
                    self._uplinks.changed(stored.host)
                minors[stored.host] = state.minors
            self._minors = minors
            self._changed_hosts = None

    def meet(self, hosts: Collection[str], now_s: float) -> None:
        """Nova has these hosts."""
        with self._lock:
            for host in hosts - self._hosts.keys():
                self._host(host, now_s)

    def _host(self, name: str, now_s: float) -> host_state.HostState:
        if name not in self._hosts:
            self._hosts[name] = host_state.HostState(
                name, now_s, self._rules.half_life_s)
            self._uplinks.came()
            self._note_strangers(self._uplinks.strangers - {name})
        return self._hosts[name]

    def _learn_addresses(self, host: str, ports: Iterable[reports.Port]
                         ) -> None:
        before = {uuid: self._addresses[uuid]
                  for uuid in self._hosts[host].addressed
                  if self._addresses.get(uuid, ('',))[0] == host}
        found: dict[str, tuple[str, ...]] = {}
        for port in ports:
            found[port.vm] = found.get(port.vm, ()) + port.ips
        after = {uuid: (host, ips) for uuid, ips in found.items()}
        gone = before.keys() - after.keys()
        changed = {uuid for uuid, known in after.items()
                   if self._addresses.get(uuid) != known}
        for uuid in gone:
            del self._addresses[uuid]
        self._addresses |= after
        self._hosts[host].addressed = after.keys()
        self._readdress(gone | changed)

    def _readdress(self, vms: Collection[str]) -> None:
        self._owners = None
        for group_id in {self._group_of[vm] for vm in vms
                         if vm in self._group_of}:
            for tracked in self._coflows_of.get(group_id, ()):
                tracked.readdress()

    def views(self, now_s: float) -> list[host_state.View]:
        """All hosts by name, as an operator wants to see them."""
        with self._lock:
            self._uplinks.refresh(now_s)
            return [self._hosts[name].view(self._uplinks.capacities[name])
                    for name in sorted(self._hosts)]

    def view(self, host: str, now_s: float) -> host_state.View | None:
        with self._lock:
            self._uplinks.refresh(now_s)
            return (self._hosts[host].view(self._uplinks.capacities[host])
                    if host in self._hosts else None)

    def is_used(self) -> bool:
        """Whether there are hosts."""
        return bool(self._hosts)

    def is_known(self, host: str) -> bool:
        return host in self._hosts

    def responders(self, now_s: float, stale_s: float, only_idle: bool
                   ) -> dict[str, tuple[str, int]]:
        """Address and port of each host that can be measured now.

        :param stale_s: its last report is no older.
        :param only_idle: no coflow sends from there or to there.
        """
        with self._lock:
            busy = {host for tracked in self._coflows.values()
                    if only_idle and self._shown(tracked).is_busy(
                        now_s, self._rules.ending.quiet_s)
                    for pair in tracked.route.pairs for host in pair}
            return {name: (probe.address, probe.port)
                    for name, host in self._hosts.items()
                    if name not in busy and host.last_report is not None
                    and now_s - host.last_report < stale_s
                    and (probe := host.report.probe) is not None}

    def awaited_hosts(self) -> set[str]:
        """Hosts for which VMs of a coflow are planned that do not run yet."""
        with self._lock:
            return set().union(*(tracked.awaited_hosts
                                 for tracked in self._coflows.values()))

    # Their uplinks.

    def payload_rates(self, hosts: Iterable[str], now_s: float, is_fair: bool
                      ) -> dict[str, tuple[float, float]]:
        """Egress and ingress of each known host that coflows may use, in
        bits of payload per second.
        """
        with self._lock:
            self._uplinks.refresh(now_s)
            out_bps, in_bps = self._uplinks.residual(is_fair)
            number_of = self._uplinks.known.number_of
        factor = self._rules.wire_factor
        rates = list(zip((out_bps / factor).tolist(),
                         (in_bps / factor).tolist()))
        return {host: rates[number_of[host]] for host in hosts
                if host in number_of}

    def links_bps(self, hosts: Iterable[str], now_s: float
                  ) -> dict[str, float]:
        """The slower direction of each known host, whatever is busy."""
        with self._lock:
            self._uplinks.refresh(now_s)
            return {host: min(found.egress_bps, found.ingress_bps)
                    for host in hosts
                    if (found := self._uplinks.capacities.get(host))}

    def payload_tree(self, now_s: float) -> cluster.Tree:
        """What is above the hosts, in bits of payload per second."""
        with self._lock:
            self._uplinks.refresh(now_s)
            found = self._above.tree(self._uplinks.known)
        return above.scaled(found, 1 / self._rules.wire_factor)

    def wire_tree(self, now_s: float) -> cluster.Tree:
        """What is above the hosts, as their devices count bits."""
        with self._lock:
            self._uplinks.refresh(now_s)
            found = self._above.tree(self._uplinks.known)
        return above.scaled(found, 1 / (1 - self._rules.share.default_share))

    def payload_pairs(self, rates_bps: Mapping[tuple[str, str], float]
                      ) -> dict[tuple[str, str], float]:
        """What coflows may use of rates between hosts, in payload."""
        factor = ((1 - self._rules.share.default_share)
                  / self._rules.wire_factor)
        return {pair: rate_bps * factor
                for pair, rate_bps in rates_bps.items()}

    # Reports.

    def count_pairs(self, wanted: bool) -> None:
        """Whether coflows have no classes, so that the VM pairs tell."""
        with self._lock:
            if wanted == self._counts_pairs:
                return
            self._counts_pairs = wanted
            self._endings = self._rules.ending
            if wanted:
                self._endings = dataclasses.replace(
                    self._endings, quiet_s=max(self._endings.quiet_s,
                                               pair_counters.QUIET_S))
            for tracked in self._coflows.values():
                tracked.touch()

    def intake(self, host: str, report: reports.Report,
               now_s: float) -> bool:
        """Count a report; True when the schedule should follow at once."""
        with self._lock:
            state = self._host(host, now_s)
            if state.has_overtaken(report):
                return False
            self._unsaved_hosts.add(host)
            since_s = (state.last_report if state.last_report is not None
                       and state.counters.epoch == report.epoch else now_s)
            elapsed_s = now_s - since_s
            new_ports = state.report.ports != report.ports
            new_link = (state.report.link != report.link
                        or state.last_report is None)
            if new_link:
                self._uplinks.changed(host)
            urgent = new_ports or new_link
            deltas, background_bytes = state.counters.update(report)
            vms, state.report = state.vms, report
            state.new_vms = state.vms - vms
            if elapsed_s > 0:
                state.observe(deltas, elapsed_s, background_bytes, now_s)
                self._uplinks.observed(host)
            state.last_report = now_s
            state.towards.update(report, state.unmanaged, elapsed_s, now_s)
            (self._sending.add if state.towards.is_sending
             else self._sending.discard)(host)
            if new_ports:
                state.learn_ports()
                self._learn_addresses(host, report.ports)
            urgent |= self._take_backlogs(state)
            for delta in deltas:
                urgent |= self._credit(host, delta, since_s, now_s)
            return self._credit_pairs(state, since_s, now_s) or urgent

    def heard(self, hosts: Collection[str], now_s: float) -> None:
        """What these reported last still holds."""
        with self._lock:
            for name in hosts & self._hosts.keys():
                self._hosts[name].heard(now_s)

    def _take_backlogs(self, state: host_state.HostState) -> bool:
        """True when a coflow may have ended, now that its queue is empty."""
        host = state.host
        after = {counters.coflow_id: counters.backlog_bytes
                 for counters in state.report.coflows
                 if counters.backlog_bytes}
        drained = False
        for coflow_id in after.keys() | state.queued:
            tracked = self._coflows.get(coflow_id)
            if tracked is None:
                continue
            if coflow_id in after:
                tracked.backlog_bytes[host] = after[coflow_id]
            elif tracked.backlog_bytes.pop(host, 0):
                drained |= tracked.is_all_sent(self._endings)
            tracked.touch()
        state.queued = after.keys()
        return drained

    def _credit(self, host: str, delta: byte_counters.Delta,
                since_s: float, now_s: float) -> bool:
        """Credit one delta; True when the coflow starts or may have ended."""
        tracked = self._coflows.get(delta.coflow_id)
        if tracked is None:
            return False
        flows = tracked.route.flows(host, delta.dst_host)
        new_bytes = delta.wire_bytes / self._rules.wire_factor
        tracked.counting.credit(flows, new_bytes)
        return self._moved(tracked, new_bytes, since_s, now_s)

    def _moved(self, tracked: inflight.Tracked, new_bytes: float,
               since_s: float, now_s: float) -> bool:
        """True when the coflow starts, goes on, or may have ended."""
        started = (tracked.moved_s is None
                   or now_s - tracked.moved_s >= self._endings.quiet_s)
        tracked.credited(new_bytes, since_s, now_s, self._endings)
        if tracked.upcoming is not None:
            return tracked.begins_anew(now_s, self._endings)
        self._debts.charge(tracked.project_id, policing.Report(
            tracked.coflow_id, tracked.claimed_bytes,
            tracked.progress.all_bytes, new_bytes))
        return started or tracked.is_all_sent(self._endings)

    def _credit_pairs(self, state: host_state.HostState,
                      since_s: float, now_s: float) -> bool:
        """True when a coflow that has no class starts or may have ended."""
        if not self._counts_pairs:
            state.pair_counters = None
            return False
        if state.pair_counters is None:
            state.pair_counters = pair_counters.PairCounters()
        if self._owners is None:
            self._owners = pair_counters.find_owners(self._in_turn(),
                                                     self._addresses)
        return any([self._moved(tracked, new_bytes, since_s, now_s)
                    for tracked, new_bytes in state.pair_counters.credit(
                        state.report, self._owners,
                        self._rules.wire_factor)])

    # Coflows.

    def _in_turn(self) -> list[inflight.Tracked]:
        """Coflows whose VMs run; those that rest between two iterations last.
        """
        return sorted((tracked for tracked in self._coflows.values()
                       if tracked.state != states.CoflowState.PLANNED),
                      key=lambda tracked: tracked.upcoming is not None)

    def advance(self, now_s: float) -> list[Status]:
        """Move coflows along their life; those whose state changed."""
        changed = []
        with self._lock:
            for tracked in [tracked for tracked in self._coflows.values()
                            if tracked.check_s <= now_s]:
                begun = tracked.begins(now_s, self._endings)
                if begun:
                    tracked.begin(now_s)
                    self._owners = None
                    changed.append(_status(tracked))
                if tracked.has_ended(now_s, self._endings):
                    self._finish(tracked, now_s)
                    changed.append(_status(tracked))
                tracked.rest_until(now_s, self._endings)
        return changed

    def finish(self, coflow_id: str, now_s: float) -> None:
        """It is over for good, also when iterations are still to come."""
        with self._lock:
            tracked = self._coflows.get(coflow_id)
            if tracked is not None:
                self._finish(tracked, now_s, for_good=True)

    def _finish(self, tracked: inflight.Tracked, now_s: float,
                for_good: bool = False) -> None:
        if tracked.upcoming is None:
            tracked.end(now_s)
            self._debts.end(tracked.project_id, tracked.coflow_id)
        self._owners = None
        if tracked.has_more and not for_good:
            tracked.rest()
            return
        self._coflows.pop(tracked.coflow_id, None)
        self._ended[tracked.coflow_id] = tracked
        for host in tracked.route.pairs.hosts & self._hosts.keys():
            self._hosts[host].counters.forget(tracked.coflow_id)

    def drop(self, coflow_id: str) -> None:
        """It was deleted."""
        with self._lock:
            tracked = self._coflows.pop(coflow_id, None)
            if tracked is not None:
                self._debts.end(tracked.project_id, coflow_id)

    def status(self, coflow_id: str) -> Status | None:
        """None for a coflow that is not, or no longer, in flight."""
        with self._lock:
            tracked = (self._coflows.get(coflow_id)
                       or self._ended.get(coflow_id))
            return _status(tracked) if tracked is not None else None

    def remaining_fraction(self, coflow_id: str) -> float:
        """Of its size; 1 for a coflow of which nothing is known."""
        with self._lock:
            tracked = self._coflows.get(coflow_id)
            if tracked is None or tracked.model.size_bytes <= 0:
                return 1.0
            left = float(tracked.counting.remaining_bytes().sum())
            return max(inflight.TAIL, left / tracked.model.size_bytes)

    def loads(self, except_group: str | None = None
              ) -> tuple[model.ActiveCoflow, ...]:
        """What the coflows of other groups still have to move per host."""
        with self._lock:
            return tuple(
                tracked.load for tracked in self._coflows.values()
                if tracked.group_id != except_group
                and tracked.load.out_bytes)

    # What is decided by.

    def snapshot(self, options: snapshots.Options,
                 now_s: float) -> snapshots.Snapshot:
        with self._lock:
            self._uplinks.refresh(now_s)
            beta = (options.beta if options.beta >= 0
                    else self._uplinks.background_share())
            self._debts.tolerance = max(options.policing_tolerance, beta)
            in_turn = self._in_turn()
            egress_bps, ingress_bps = self._uplinks.residual(options.is_fair)
            return snapshots.Snapshot(
                now_s, options, self._uplinks.known, egress_bps, ingress_bps,
                tuple(map(self._shown, in_turn)), self._minors,
                self._rules.wire_factor * (1 + beta), self._debts.tolerance,
                self._debts.behind({
                    tracked.coflow_id: tracked.project_id
                    for tracked in in_turn} if self._debts.all() else {}),
                towards.senders(self._hosts, self._sending,
                                self._uplinks.known.links)
                if options.limits_senders else {},
                self._above.uplinks(self._uplinks.known))

    def _shown(self, tracked: inflight.Tracked) -> snapshots.Coflow:
        return tracked.shown(self._uplinks.strangers, self._endings,
                             self._addresses)

    def keep_minors(self, minors: Mapping[str, coflow_table.Minors]) -> None:
        """What is assigned to these hosts' classes."""
        if not minors:
            return
        with self._lock:
            for name, some in minors.items():
                self._hosts[name].minors = some
            self._minors = {**self._minors, **minors}
            self._unsaved_hosts |= minors.keys()

    def keep_limits(self, told: Mapping[str, edge_policy.Unmanaged]) -> None:
        """Of these hosts' unmanaged traffic; by it their reports are read."""
        with self._lock:
            for name, some in told.items():
                self._hosts[name].unmanaged = some

    # Debts.

    def load_debts(self, owing: Mapping[str, float]) -> None:
        with self._lock:
            self._debts.load(owing)

    def debts(self) -> dict[str, float]:
        """Bytes that projects owe."""
        with self._lock:
            return self._debts.all()

    def forgive(self, project_id: str) -> None:
        with self._lock:
            self._debts.forgive(project_id)

    # What the database is to know.

    def take_unsaved(self, also: Collection[str] = ()) -> Unsaved:
        """What changed since the last call; see :meth:`saved`.

        :param also: hosts to write in any case.
        """
        with self._lock:
            hosts = (self._unsaved_hosts | set(also)) & self._hosts.keys()
            self._unsaved_hosts = set()
            unsaved = Unsaved(
                [_columns(tracked) for tracked in
                 (*self._coflows.values(), *self._ended.values())
                 if tracked.is_dirty],
                [self._hosts[name].to_stored() for name in sorted(hosts)],
                self._debts.take_unsaved(), tuple(self._ended))
            for tracked in self._coflows.values():
                tracked.is_dirty = False
        return unsaved

    def saved(self, unsaved: Unsaved) -> None:
        with self._lock:
            for coflow_id in unsaved.ended:
                self._ended.pop(coflow_id, None)

    def not_saved(self, unsaved: Unsaved) -> None:
        """The database did not take it; again with the next."""
        with self._lock:
            self._unsaved_hosts |= {stored.host for stored in unsaved.hosts}
            for row in unsaved.coflows:
                if row['id'] in self._coflows:
                    self._coflows[row['id']].is_dirty = True
            self._debts.not_saved(unsaved.debts)


def _status(tracked: inflight.Tracked) -> Status:
    return Status(tracked.coflow_id, tracked.name, tracked.state,
                  tracked.iteration,
                  float(tracked.progress.sent_bytes.sum()),
                  tracked.arrival_s, tracked.ended_s, tracked.planned_cct_s,
                  tracked.progress.span)


def _columns(tracked: inflight.Tracked) -> dict[str, Any]:
    sent_bytes = tracked.progress.sent_bytes
    return {'id': tracked.coflow_id, 'state': tracked.state,
            'iteration': tracked.iteration,
            'progress': json.dumps(sent_bytes.round().tolist()),
            'sent_bytes': float(sent_bytes.sum()),
            'arrival': tracked.arrival_s, 'ended_at': tracked.ended_s,
            **measured(tracked.progress.span)}


def measured(span: byte_counters.Span | None) -> dict[str, float | None]:
    """As columns of a coflow."""
    values = ((None,) * 4 if span is None else
              (span.first_byte_s, span.last_byte_s, span.cct_s,
               span.cct_error_s))
    return dict(zip(('first_byte_at', 'last_byte_at', 'measured_cct_s',
                     'measured_cct_error_s'), values, strict=True))
