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

The database holds the same facts for a restart; the scheduler loop reads
only this, so that it goes on when the database does not. Nothing here reads
a clock, the callers say what time it is.
"""

import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import itertools
import operator
import threading
from typing import Any

import numpy as np

from virtco.db import models
from virtco.know import byte_counters
from virtco.know import debts
from virtco.know import host_state
from virtco.know import inflight
from virtco.know import pair_counters
from virtco.model import live
from virtco.model import snapshot
from virtco.model import states
from virtco.scheduling import endings
from virtco.scheduling import policing
from virtco.table import coflow_table

TAIL = 5e-3


class _Flows:
    """The flows of many coflows, one after another.

    A cloud has tens of thousands of them in coflows of a few dozen: what is
    asked of each coflow takes numpy longer to begin than to do.
    """

    def __init__(self, coflows: Sequence[inflight.Tracked],
                 routes: Sequence[inflight.Route]):
        counting = [tracked.counting for tracked in coflows]
        self.sizes_bytes = _joined(one.sizes_bytes for one in counting)
        self._sent_bytes = _joined(one.sent_bytes for one in counting)
        n_flows = [len(one.sizes_bytes) for one in counting]
        self._owner = np.repeat(np.arange(len(coflows)), n_flows)
        pair_of = _joined(route.pair_of for route in routes)
        self.is_crossing = pair_of >= 0
        # Where the pairs of each coflow begin, and of none after.
        self._starts = np.cumsum([0, *(len(route.pairs)
                                       for route in routes)])
        self._place = pair_of.astype(np.int64) + np.repeat(
            self._starts[:-1], n_flows)

    def left_bytes(self) -> np.ndarray:
        left_bytes: np.ndarray = np.maximum(
            0.0, self.sizes_bytes - self._sent_bytes)
        return left_bytes

    def per_coflow(self, values: np.ndarray) -> list[float]:
        """Sums of a value of each flow."""
        sums: list[float] = np.bincount(
            self._owner, values, len(self._starts) - 1).tolist()
        return sums

    def per_pair(self, values: np.ndarray) -> list[np.ndarray]:
        """Sums of a value of each flow, of each coflow's pairs of hosts."""
        sums = self.of_pairs(values)
        return [sums[start:end] for start, end in itertools.pairwise(
            self._starts.tolist())]

    def of_pairs(self, values: np.ndarray) -> np.ndarray:
        """The same, of all coflows' pairs one after another."""
        return np.bincount(self._place[self.is_crossing],
                           values[self.is_crossing], self._starts[-1])


class _Ends:
    """The hosts at one end of many coflows' routes.

    :param side: 0 for those that send, 1 for those that receive.
    """

    def __init__(self, routes: Sequence[inflight.Route], side: int):
        self._hosts = [tuple(sorted({pair[side] for pair in route.pairs}))
                       for route in routes]
        places: list[int] = []
        self._n_places = 0
        for route, hosts in zip(routes, self._hosts):
            place = {host: self._n_places + i for i, host in enumerate(hosts)}
            places += [place[pair[side]] for pair in route.pairs]
            self._n_places += len(hosts)
        self._places = np.array(places, dtype=np.int64)

    def sums(self, pair_bytes: np.ndarray
             ) -> Iterator[tuple[tuple[str, float], ...]]:
        """Of each coflow, bytes per host."""
        sums = iter(np.bincount(self._places, pair_bytes,
                                self._n_places).tolist())
        return (tuple(zip(hosts, sums)) for hosts in self._hosts)


class _Loads:
    """What coflows have to move per host, laid out while none moves."""

    def __init__(self, routes: Sequence[inflight.Route]):
        self._routes = routes
        self._senders = _Ends(routes, 0)
        self._receivers = _Ends(routes, 1)

    def is_of(self, routes: Sequence[inflight.Route]) -> bool:
        return len(routes) == len(self._routes) and all(
            map(operator.is_, routes, self._routes))

    def of(self, coflows: Sequence[inflight.Tracked],
           pair_bytes: np.ndarray) -> Iterator[snapshot.ActiveCoflow]:
        return (snapshot.ActiveCoflow(tracked.coflow_id, out, into, pairs)
                for tracked, out, into, pairs in zip(
                    coflows, self._senders.sums(pair_bytes),
                    self._receivers.sums(pair_bytes),
                    self._per_pair(pair_bytes), strict=True))

    def _per_pair(self, pair_bytes: np.ndarray
                  ) -> Iterator[tuple[tuple[str, str, float], ...]]:
        """Of each coflow, bytes per pair of hosts."""
        sizes = iter(pair_bytes.tolist())
        return (tuple((src, dst, size_bytes) for (src, dst), size_bytes
                      in zip(route.pairs, sizes)) for route in self._routes)


def _tailed(flows: _Flows) -> np.ndarray:
    """Bytes left of each flow. One that is not known to have ended keeps a
    small tail: what is left of it is not known better than that.
    """
    left_bytes: np.ndarray = np.maximum(
        flows.left_bytes(), TAIL * flows.sizes_bytes)
    return left_bytes


def _queued(tracked: inflight.Tracked, route: inflight.Route,
            left_bytes: np.ndarray) -> np.ndarray:
    """What waits at the hosts, per pair, of a coflow of which all was counted.

    Counters see packets that TCP sends twice, so some data may still be on
    its way. It waits where there is a queue. Tails everywhere would hold all
    of the coflow's ports for what is left on one of them.

    :param left_bytes: per pair, with tails: how a host's queue is divided.
    """
    per_host: dict[str, float] = collections.defaultdict(float)
    for (src, _), tail_bytes in zip(route.pairs, left_bytes.tolist()):
        per_host[src] += tail_bytes
    return left_bytes * [
        tracked.backlog_bytes.get(src, 0.0) / per_host[src]
        if per_host[src] > 0 else 0.0 for src, _ in route.pairs]


def _joined(arrays: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *arrays])


class LiveState:
    """All of it, behind one lock that is held for computations only."""

    def __init__(self, half_life_s: float = 5.0,
                 wire_overhead_fraction: float = 0.0,
                 rules: endings.Rules = endings.Rules()):
        self.lock = threading.RLock()
        self.rules = self._class_rules = rules
        self.wire_factor = 1 + wire_overhead_fraction
        self.half_life_s = half_life_s
        self.groups: dict[str, dict[int, inflight.Row]] = {}
        self.coflows: dict[str, inflight.Tracked] = {}
        # Done for good, but not yet so in the database.
        self.ended: dict[str, inflight.Tracked] = {}
        self.hosts: dict[str, host_state.HostState] = {}
        self.debts = debts.Debts()
        self.addresses: dict[str, tuple[str, tuple[str, ...]]] = {}
        # What only changes when a VM comes, goes, moves or gets an address.
        self._routes: dict[tuple[str, bool], inflight.Route] = {}
        self._pairs: dict[str, live.Pairs] = {}
        self._wholes: dict[str, live.Flows] = {}
        self._table: dict[str, coflow_table.TableCoflow] = {}
        self._owners: (
            dict[pair_counters.Key, pair_counters.Owner] | None) = None
        self._counts_pairs = False
        self._loads: _Loads | None = None

    def _forget_routes(self, except_coflows: Set[str]) -> None:
        self._owners = None
        for key in [key for key in self._routes
                    if key[0] not in except_coflows]:
            del self._routes[key]
        for made in (self._pairs, self._wholes, self._table):
            for coflow_id in made.keys() - except_coflows:
                del made[coflow_id]

    def _forget_addresses(self, vms: Collection[str]) -> None:
        """The coflows of these VMs get other entries."""
        self._owners = None
        groups = {group_id for group_id, rows in self.groups.items()
                  if any(row.instance_uuid in vms for row in rows.values())}
        self._table = {coflow_id: made
                       for coflow_id, made in self._table.items()
                       if (tracked := self.coflows.get(coflow_id)) is not None
                       and tracked.group_id not in groups}

    def count_pairs(self, wanted: bool) -> None:
        """Whether coflows have no classes, so that the VM pairs tell."""
        with self.lock:
            self._counts_pairs = wanted
            self.rules = self._class_rules
            if wanted:
                self.rules = dataclasses.replace(self.rules, quiet_s=max(
                    self.rules.quiet_s, pair_counters.QUIET_S))

    def load_groups(self, members: Iterable[models.Member],
                    coflows: Iterable[models.Coflow],
                    only: Set[str] | None = None) -> None:
        """Take over what the database says about the living groups.

        What is already tracked keeps its progress, which is newer here.

        :param only: ids of the groups that were read; None: all of them.
        """
        groups: dict[str, dict[int, inflight.Row]] = {}
        for member in members:
            rows = groups.setdefault(member.group_id, {})
            rows[member.row_index] = inflight.Row(
                member.instance_uuid, member.host,
                member.state == states.MemberState.RUNNING)
        with self.lock:
            read = groups.keys() | self.groups if only is None else only
            moved = {group_id for group_id in read
                     if groups.get(group_id) != self.groups.get(group_id)}
            for group_id in read - groups.keys():
                self.groups.pop(group_id, None)
            self.groups |= groups
            known = self.coflows
            self.coflows = {coflow_id: tracked
                            for coflow_id, tracked in known.items()
                            if tracked.group_id not in read}
            for stored in coflows:
                if stored.id in self.ended:
                    continue
                tracked = known.get(stored.id) or inflight.load(stored)
                tracked.priority_class = stored.priority_class
                tracked.weight = stored.weight
                self.coflows[stored.id] = tracked
            for coflow_id in known.keys() - self.coflows.keys():
                self.debts.end(known[coflow_id].project_id, coflow_id)
            self._forget_routes({
                coflow_id for coflow_id, tracked in self.coflows.items()
                if known.get(coflow_id) is tracked
                and tracked.group_id not in moved})

    def load_hosts(self, hosts: Iterable[models.Host]) -> None:
        with self.lock:
            for stored in hosts:
                state = self.host(stored.host, stored.first_seen)
                state.load(stored)
                self._learn_addresses(stored.host, state.report)

    def host(self, name: str, now_s: float) -> host_state.HostState:
        if name not in self.hosts:
            self.hosts[name] = host_state.HostState(name, now_s,
                                                    self.half_life_s)
        return self.hosts[name]

    def _learn_addresses(self, host: str, report: Mapping[str, Any]) -> None:
        before = {uuid: known for uuid, known in self.addresses.items()
                  if known[0] == host}
        found: dict[str, tuple[str, ...]] = {}
        for port in report.get('ports', ()):
            found[port['vm']] = (found.get(port['vm'], ())
                                 + tuple(port.get('ips', ())))
        after = {uuid: (host, ips) for uuid, ips in found.items()}
        gone = before.keys() - after.keys()
        changed = {uuid for uuid, known in after.items()
                   if self.addresses.get(uuid) != known}
        for uuid in gone:
            del self.addresses[uuid]
        self.addresses |= after
        self._forget_addresses(gone | changed)

    def intake(self, host: str, report: dict[str, Any],
               now_s: float) -> bool:
        """Count a report; True when the schedule should follow at once."""
        with self.lock:
            state = self.host(host, now_s)
            elapsed_s = (now_s - state.last_report
                         if state.last_report is not None
                         and state.counters.epoch == report['epoch'] else 0.0)
            new_ports = state.report.get('ports') != report['ports']
            urgent = (new_ports
                      or state.report.get('link') != report['link'])
            deltas, background_bytes = state.counters.update(report)
            state.report = report
            if elapsed_s > 0:
                state.observe(deltas, elapsed_s, background_bytes, now_s)
            state.last_report = now_s
            if new_ports:
                self._learn_addresses(host, report)
            urgent |= self._take_backlogs(host, report)
            for delta in deltas:
                urgent |= self._credit(host, delta, now_s)
            return self._credit_pairs(state, now_s) or urgent

    def _take_backlogs(self, host: str, report: Mapping[str, Any]) -> bool:
        """True when a coflow may have ended, now that its queue is empty."""
        backlogs = {c['coflow_id']: c.get('backlog_bytes', 0)
                    for c in report['coflows']}
        drained = False
        for coflow_id, tracked in self.coflows.items():
            before = tracked.backlog_bytes.get(host, 0)
            after = tracked.backlog_bytes[host] = backlogs.get(coflow_id, 0)
            drained |= before > 0 == after and self._is_all_sent(tracked)
        return drained

    def _is_all_sent(self, tracked: inflight.Tracked) -> bool:
        return endings.is_all_sent(
            tracked.model.size_bytes, self.cross_remaining(tracked),
            self.rules)

    def _begins_anew(self, tracked: inflight.Tracked, now_s: float) -> bool:
        return tracked.upcoming is not None and endings.begins_anew(
            tracked.model.size_bytes, tracked.upcoming.all_bytes,
            now_s - (tracked.ended_s or 0.0), self.rules)

    def _credit(self, host: str, delta: byte_counters.Delta,
                now_s: float) -> bool:
        """Credit one delta; True when the coflow starts or may have ended."""
        tracked = self.coflows.get(delta.coflow_id)
        if tracked is None:
            return False
        flows = self.route(tracked).flows(host, delta.dst_host)
        new_bytes = delta.wire_bytes / self.wire_factor
        tracked.counting.credit(flows, new_bytes)
        return self._moved(tracked, new_bytes, now_s)

    def _moved(self, tracked: inflight.Tracked, new_bytes: float,
               now_s: float) -> bool:
        """True when the coflow starts, goes on, or may have ended."""
        started = (tracked.moved_s is None
                   or now_s - tracked.moved_s >= self.rules.quiet_s)
        tracked.moved_s = now_s
        tracked.is_dirty = True
        if tracked.upcoming is not None:
            return self._begins_anew(tracked, now_s)
        self.debts.charge(tracked.project_id, policing.Report(
            tracked.coflow_id, tracked.claimed_bytes,
            tracked.progress.all_bytes, new_bytes))
        return started or self._is_all_sent(tracked)

    def _credit_pairs(self, state: host_state.HostState,
                      now_s: float) -> bool:
        """True when a coflow that has no class starts or may have ended."""
        if not self._counts_pairs:
            state.pair_counters = None
            return False
        if state.pair_counters is None:
            state.pair_counters = pair_counters.PairCounters()
        if self._owners is None:
            self._owners = pair_counters.find_owners(
                [(tracked, self.route(tracked))
                 for tracked in self.in_turn()],
                self.groups, self.addresses)
        return any([self._moved(tracked, new_bytes, now_s)
                    for tracked, new_bytes in state.pair_counters.credit(
                        state.report, self._owners, self.wire_factor)])

    def route(self, tracked: inflight.Tracked,
              running: bool = True) -> inflight.Route:
        """:param running: only VMs that run; False also takes planned ones.
        """
        key = (tracked.coflow_id, running)
        if key not in self._routes:
            self._routes[key] = inflight.find_route(
                tracked.model, self.groups.get(tracked.group_id, {}),
                running)
        return self._routes[key]

    def pairs(self, tracked: inflight.Tracked) -> live.Pairs:
        """Hosts between which its flows run; the same object while they do.
        """
        if tracked.coflow_id not in self._pairs:
            self._pairs[tracked.coflow_id] = live.Pairs(
                self.route(tracked).pairs)
        return self._pairs[tracked.coflow_id]

    def whole(self, tracked: inflight.Tracked) -> live.Flows:
        """All bytes between hosts, as at its beginning."""
        if tracked.coflow_id not in self._wholes:
            sums = self.route(tracked).sums(tracked.counting.sizes_bytes)
            self._wholes[tracked.coflow_id] = live.Flows(
                self.pairs(tracked), np.array(list(sums.values())))
        return self._wholes[tracked.coflow_id]

    def cross_remaining(self, tracked: inflight.Tracked) -> float:
        crossing = self.route(tracked).pair_of >= 0
        return float(tracked.progress.remaining_bytes()[crossing].sum())

    def in_turn(self) -> list[inflight.Tracked]:
        """Coflows whose VMs run; those that rest between two iterations last,
        so that a pair of VMs that they share belongs to the others.
        """
        with self.lock:
            return sorted((tracked for tracked in self.coflows.values()
                           if tracked.state != states.CoflowState.PLANNED),
                          key=lambda tracked: tracked.upcoming is not None)

    def advance(self, now_s: float) -> list[inflight.Tracked]:
        """Move coflows along their life; those whose state changed."""
        with self.lock:
            begun = [tracked for tracked in self.coflows.values()
                     if self._begins(tracked, now_s)]
            for tracked in begun:
                tracked.begin(now_s)
                self._owners = None
            sending = [tracked for tracked in self.coflows.values()
                       if tracked.state == states.CoflowState.ACTIVE
                       and self._may_end(tracked)]
            flows = _Flows(sending, [self.route(one) for one in sending])
            done = [
                tracked for tracked, size_bytes, left_bytes in zip(
                    sending, flows.per_coflow(flows.sizes_bytes),
                    flows.per_coflow(np.where(
                        flows.is_crossing, flows.left_bytes(), 0.0)))
                if endings.has_ended(
                    size_bytes, left_bytes, None if tracked.moved_s is None
                    else now_s - tracked.moved_s, self.rules)]
            for tracked in done:
                self.finish(tracked, now_s)
        return begun + done

    def _begins(self, tracked: inflight.Tracked, now_s: float) -> bool:
        if tracked.state == states.CoflowState.PLANNED:
            rows = self.groups.get(tracked.group_id, {})
            return any(row.running for row in rows.values())
        if tracked.upcoming is None:
            return False
        if now_s - (tracked.moved_s or 0.0) >= self.rules.pause_s:
            tracked.rest()
        return self._begins_anew(tracked, now_s)

    def _may_end(self, tracked: inflight.Tracked) -> bool:
        route = self.route(tracked)
        tracked.was_placed |= route.is_complete
        if not tracked.was_placed:
            return False
        if route.local.size:
            tracked.progress.complete(route.local)
        return not any(tracked.backlog_bytes.values())

    def finish(self, tracked: inflight.Tracked, now_s: float, *,
               for_good: bool = False) -> None:
        """:param for_good: also when iterations are still to come."""
        with self.lock:
            if tracked.upcoming is None:
                tracked.end(now_s)
                self.debts.end(tracked.project_id, tracked.coflow_id)
            self._owners = None
            if tracked.has_more and not for_good:
                tracked.rest()
                return
            self.coflows.pop(tracked.coflow_id, None)
            self.ended[tracked.coflow_id] = tracked
            for state in self.hosts.values():
                state.counters.forget(self.coflows)

    def pair_bytes(self, tracked: inflight.Tracked, running: bool
                   ) -> dict[tuple[str, str], float]:
        """Bytes left per (source host, destination host), other hosts only.
        """
        (left,) = self.bytes_left([tracked], running)
        return dict(zip(self.route(tracked, running).pairs, left.tolist(),
                        strict=True))

    def bytes_left(self, coflows: Sequence[inflight.Tracked],
                   running: bool = True) -> list[np.ndarray]:
        """Of each coflow, bytes left per pair of hosts of its route."""
        routes = [self.route(tracked, running) for tracked in coflows]
        flows = _Flows(coflows, routes)
        crossing = flows.per_coflow(np.where(flows.is_crossing,
                                             flows.left_bytes(), 0.0))
        return [
            _queued(tracked, route, left_bytes)
            if endings.is_all_sent(tracked.model.size_bytes,
                                   counted_bytes, self.rules)
            else left_bytes for tracked, route, left_bytes, counted_bytes
            in zip(coflows, routes, flows.per_pair(_tailed(flows)), crossing)]

    def loads(self, except_group: str | None = None
              ) -> tuple[snapshot.ActiveCoflow, ...]:
        """What the coflows of other groups still have to move per host."""
        with self.lock:
            coflows = list(self.coflows.values())
            routes = [self.route(tracked, running=False)
                      for tracked in coflows]
            if self._loads is None or not self._loads.is_of(routes):
                self._loads = _Loads(routes)
            flows = _Flows(coflows, routes)
            loads = self._loads.of(coflows, flows.of_pairs(_tailed(flows)))
            return tuple(
                load for tracked, load in zip(coflows, loads)
                if load.out_bytes and tracked.group_id != except_group)

    def table_coflow(self, tracked: inflight.Tracked
                     ) -> coflow_table.TableCoflow:
        if tracked.coflow_id not in self._table:
            self._table[tracked.coflow_id] = self._find_table(tracked)
        return self._table[tracked.coflow_id]

    def _find_table(self, tracked: inflight.Tracked
                    ) -> coflow_table.TableCoflow:
        rows = self.groups.get(tracked.group_id, {})
        route = self.route(tracked)
        flows = []
        for i in np.flatnonzero(route.pair_of >= 0):
            flow = tracked.model.flows[i]
            src_host, dst_host = route.pairs[route.pair_of[i]]
            src_vm = rows[flow.src].instance_uuid or ''
            dst_vm = rows[flow.dst].instance_uuid or ''
            flows.append(coflow_table.VmFlow(
                src_vm=src_vm, src_host=src_host,
                src_ips=self.addresses.get(src_vm, ('', ()))[1],
                dst_host=dst_host,
                dst_ips=self.addresses.get(dst_vm, ('', ()))[1]))
        return coflow_table.TableCoflow.from_flows(
            tracked.coflow_id, tracked.name, flows, tracked.model.dst_port,
            self.pairs(tracked))
