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

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import json
import math
import threading
from typing import Any

import numpy as np

from virtco.controller import progress
from virtco.db import models
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.table import coflow_table
from virtco import units

LIVE_STATES = (models.CoflowState.PLANNED, models.CoflowState.ACTIVE)
NEGLIGIBLE = 1e-3
TAIL = 5e-3
OBSERVED_HALF_LIFE_S = 1.0


@dataclasses.dataclass
class Row:
    """A row of a group: who fills it, where."""

    instance_uuid: str | None
    host: str | None
    running: bool


@dataclasses.dataclass
class Tracked:
    """A coflow in flight.

    :ivar moved_s: when its counters last moved, None = never.
    :ivar backlog_bytes: waiting at each host's class, as last reported.
    :ivar was_placed: all its VMs ran at some time; what is missing since
        then was deleted, and its flows with it.
    :ivar is_dirty: the database does not know the newest yet.
    """

    coflow_id: str
    group_id: str
    project_id: str
    name: str
    state: str
    model: coflow_model.Coflow
    progress: progress.CoflowProgress
    priority_class: int = 0
    weight: float = 1.0
    arrival_s: float | None = None
    ended_s: float | None = None
    moved_s: float | None = None
    backlog_bytes: dict[str, float] = dataclasses.field(default_factory=dict)
    was_placed: bool = False
    is_dirty: bool = False

    def is_busy(self, now_s: float, quiet_s: float) -> bool:
        if any(self.backlog_bytes.values()):
            return True
        return self.moved_s is not None and now_s - self.moved_s < quiet_s


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """Where the flows of a coflow run, while nothing moves.

    :ivar pairs: (source host, destination host) of flows between hosts.
    :ivar pair_of: index into ``pairs`` per flow, -1 for flows that stay in a
        host or whose VMs are not placed.
    :ivar local: indices of the flows that stay in a host.
    :ivar is_complete: the VMs of all flows are placed.
    """

    pairs: tuple[tuple[str, str], ...]
    pair_of: np.ndarray
    local: np.ndarray
    is_complete: bool

    def sums(self, flow_bytes: np.ndarray) -> dict[tuple[str, str], float]:
        """Per pair of hosts, of values per flow."""
        crossing = self.pair_of >= 0
        sums = np.bincount(self.pair_of[crossing], flow_bytes[crossing],
                           len(self.pairs))
        return dict(zip(self.pairs, sums.tolist(), strict=True))

    def flows(self, src: str, dst: str | None) -> np.ndarray:
        """Indices of the flows from a host, to one other or to any."""
        wanted = [i for i, pair in enumerate(self.pairs)
                  if pair[0] == src and dst in (None, pair[1])]
        return np.flatnonzero(np.isin(self.pair_of, wanted))


class HostState:
    """One hypervisor as its edge module reports it."""

    def __init__(self, host: str, first_seen: float, half_life_s: float):
        self.host = host
        self.first_seen = first_seen
        self.last_report: float | None = None
        self.report: dict[str, Any] = {}
        self.counters = progress.HostCounters()
        self.background = progress.Average(half_life_s)
        self.minors = coflow_table.Minors()
        self.observed: dict[str, progress.Average] = {}

    def observe(self, deltas: Iterable[progress.Delta], elapsed_s: float,
                background_bytes: float, now_s: float) -> None:
        """Turn what was counted since the last report into rates."""
        self.background.add(units.bytes_per_s_to_bps(
            background_bytes / elapsed_s), now_s)
        moved = {c['coflow_id']: 0.0 for c in self.report['coflows']}
        for delta in deltas:
            moved[delta.coflow_id] += delta.wire_bytes
        kept = {coflow_id: self.observed.get(coflow_id)
                or progress.Average(OBSERVED_HALF_LIFE_S)
                for coflow_id in moved}
        for coflow_id, wire_bytes in moved.items():
            kept[coflow_id].add(units.bytes_per_s_to_bps(
                wire_bytes / elapsed_s), now_s)
        self.observed = kept

    @property
    def link(self) -> dict[str, Any]:
        return self.report.get('link') or {}

    def to_stored(self) -> tuple[str, str]:
        """Report and minors as they are kept in the database."""
        kept = dict(self.report, coflows=[], pairs=[],
                    counters=self.counters.to_dict())
        return json.dumps(kept), json.dumps(dataclasses.asdict(self.minors))

    def load(self, stored: models.Host) -> None:
        self.first_seen = stored.first_seen
        self.last_report = stored.last_report
        self.report = json.loads(stored.report)
        self.counters = progress.HostCounters(
            self.report.pop('counters', None))
        minors = json.loads(stored.minors)
        self.minors = coflow_table.Minors(minors.get('taken', {}),
                                          minors.get('needed_s', {}))


class LiveState:
    """All of it, behind one lock that is held for computations only."""

    def __init__(self, half_life_s: float = 5.0,
                 wire_overhead_fraction: float = 0.0):
        self.lock = threading.RLock()
        self.wire_factor = 1 + wire_overhead_fraction
        self.half_life_s = half_life_s
        self.groups: dict[str, dict[int, Row]] = {}
        self.coflows: dict[str, Tracked] = {}
        # Done, but not yet so in the database.
        self.ended: dict[str, Tracked] = {}
        self.hosts: dict[str, HostState] = {}
        self.addresses: dict[str, tuple[str, tuple[str, ...]]] = {}
        # What only changes when a VM comes, goes, moves or gets an address.
        self._routes: dict[tuple[str, bool], Route] = {}
        self._table: dict[str, coflow_table.TableCoflow] = {}

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._table.clear()

    def load_groups(self, members: Iterable[models.Member],
                    coflows: Iterable[models.Coflow]) -> None:
        """Take over what the database says about the living groups.

        What is already tracked keeps its progress, which is newer here.
        """
        groups: dict[str, dict[int, Row]] = {}
        for member in members:
            groups.setdefault(member.group_id, {})[member.row_index] = Row(
                member.instance_uuid, member.host,
                member.state == models.MemberState.RUNNING)
        with self.lock:
            self.groups = groups
            self._forget_routes()
            known = self.coflows
            self.coflows = {}
            for stored in coflows:
                if stored.id in self.ended:
                    continue
                tracked = known.get(stored.id) or _tracked(stored)
                tracked.priority_class = stored.priority_class
                tracked.weight = stored.weight
                if tracked.state in LIVE_STATES:
                    self.coflows[stored.id] = tracked

    def load_hosts(self, hosts: Iterable[models.Host]) -> None:
        with self.lock:
            for stored in hosts:
                state = self.host(stored.host, stored.first_seen)
                state.load(stored)
                self._learn_addresses(stored.host, state.report)

    def host(self, name: str, now_s: float) -> HostState:
        if name not in self.hosts:
            self.hosts[name] = HostState(name, now_s, self.half_life_s)
        return self.hosts[name]

    def _learn_addresses(self, host: str, report: Mapping[str, Any]) -> None:
        for uuid in [uuid for uuid, (at, _) in self.addresses.items()
                     if at == host]:
            del self.addresses[uuid]
        found: dict[str, tuple[str, ...]] = {}
        for port in report.get('ports', ()):
            found[port['vm']] = (found.get(port['vm'], ())
                                 + tuple(port.get('ips', ())))
        for uuid, ips in found.items():
            self.addresses[uuid] = (host, ips)
        self._forget_routes()

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
            return urgent

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

    def _is_all_sent(self, tracked: Tracked) -> bool:
        return (self.cross_remaining(tracked)
                <= NEGLIGIBLE * tracked.model.size_bytes)

    def _credit(self, host: str, delta: progress.Delta,
                now_s: float) -> bool:
        """Credit one delta; True when the coflow starts or may have ended."""
        tracked = self.coflows.get(delta.coflow_id)
        if tracked is None:
            return False
        flows = self.route(tracked).flows(host, delta.dst_host)
        tracked.progress.credit(flows, delta.wire_bytes / self.wire_factor)
        started = tracked.moved_s is None
        tracked.moved_s = now_s
        tracked.is_dirty = True
        return started or self._is_all_sent(tracked)

    def route(self, tracked: Tracked, running: bool = True) -> Route:
        """:param running: only VMs that run; False also takes planned ones.
        """
        key = (tracked.coflow_id, running)
        if key not in self._routes:
            self._routes[key] = self._find_route(tracked, running)
        return self._routes[key]

    def _find_route(self, tracked: Tracked, running: bool) -> Route:
        rows = self.groups.get(tracked.group_id, {})
        hosts = {index: row.host for index, row in rows.items()
                 if row.host is not None and (row.running or not running)}
        pairs: dict[tuple[str, str], int] = {}
        pair_of = np.full(len(tracked.model.flows), -1)
        local = []
        n_placed = 0
        for i, flow in enumerate(tracked.model.flows):
            if flow.src not in hosts or flow.dst not in hosts:
                continue
            n_placed += 1
            pair = (hosts[flow.src], hosts[flow.dst])
            if pair[0] == pair[1]:
                local.append(i)
            else:
                pair_of[i] = pairs.setdefault(pair, len(pairs))
        return Route(tuple(pairs), pair_of, np.array(local, np.int64),
                     n_placed == len(tracked.model.flows))

    def cross_remaining(self, tracked: Tracked) -> float:
        crossing = self.route(tracked).pair_of >= 0
        return float(tracked.progress.remaining_bytes()[crossing].sum())

    def advance(self, now_s: float, *, quiet_s: float,
                done_fraction: float) -> list[Tracked]:
        """Move coflows along their life; those whose state changed."""
        changed = []
        with self.lock:
            for tracked in list(self.coflows.values()):
                rows = self.groups.get(tracked.group_id, {})
                if (tracked.state == models.CoflowState.PLANNED
                        and any(row.running for row in rows.values())):
                    tracked.state = models.CoflowState.ACTIVE
                    tracked.arrival_s = now_s
                    tracked.is_dirty = True
                    changed.append(tracked)
                if (tracked.state == models.CoflowState.ACTIVE
                        and self._is_done(tracked, now_s, quiet_s,
                                          done_fraction)):
                    self.finish(tracked, now_s)
                    changed.append(tracked)
        return changed

    def _is_done(self, tracked: Tracked, now_s: float, quiet_s: float,
                 done_fraction: float) -> bool:
        route = self.route(tracked)
        tracked.was_placed |= route.is_complete
        if not tracked.was_placed:
            return False
        tracked.progress.complete(route.local)
        if any(tracked.backlog_bytes.values()):
            return False
        if self._is_all_sent(tracked):
            return True
        return (tracked.moved_s is not None
                and now_s - tracked.moved_s >= quiet_s
                and self.cross_remaining(tracked) <= (
                    (1 - done_fraction) * tracked.model.size_bytes))

    def finish(self, tracked: Tracked, now_s: float) -> None:
        with self.lock:
            tracked.state = models.CoflowState.DONE
            tracked.ended_s = now_s
            tracked.is_dirty = True
            self.coflows.pop(tracked.coflow_id, None)
            self.ended[tracked.coflow_id] = tracked
            for state in self.hosts.values():
                state.counters.forget(self.coflows)

    def pair_bytes(self, tracked: Tracked, running: bool
                   ) -> dict[tuple[str, str], float]:
        """Bytes left per (source host, destination host), other hosts only.

        While a flow is not known to have ended it keeps a small tail: what is
        left of it is not known better than that.
        """
        left = np.maximum(tracked.progress.remaining_bytes(),
                          TAIL * tracked.progress.sizes_bytes)
        return self.route(tracked, running).sums(left)

    def loads(self, except_group: str | None = None
              ) -> tuple[snapshot.ActiveCoflow, ...]:
        """What the coflows of other groups still have to move per host."""
        found = []
        with self.lock:
            for tracked in self.coflows.values():
                if tracked.group_id == except_group:
                    continue
                out: dict[str, float] = {}
                into: dict[str, float] = {}
                pairs = self.pair_bytes(tracked, running=False)
                for (src, dst), size_bytes in pairs.items():
                    out[src] = out.get(src, 0.0) + size_bytes
                    into[dst] = into.get(dst, 0.0) + size_bytes
                if out:
                    found.append(snapshot.ActiveCoflow(
                        tracked.coflow_id, tuple(sorted(out.items())),
                        tuple(sorted(into.items()))))
        return tuple(found)

    def table_coflow(self, tracked: Tracked) -> coflow_table.TableCoflow:
        if tracked.coflow_id not in self._table:
            self._table[tracked.coflow_id] = self._find_table(tracked)
        return self._table[tracked.coflow_id]

    def _find_table(self, tracked: Tracked) -> coflow_table.TableCoflow:
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
            tracked.coflow_id, tracked.name, flows, tracked.model.dst_port)


def _tracked(stored: models.Coflow) -> Tracked:
    model = decode_coflow(stored)
    return Tracked(
        coflow_id=stored.id, group_id=stored.group_id or '',
        project_id=stored.project_id, name=stored.name, state=stored.state,
        model=model,
        progress=progress.CoflowProgress(
            [flow.size_bytes for flow in model.flows],
            json.loads(stored.progress)),
        priority_class=stored.priority_class, weight=stored.weight,
        arrival_s=stored.arrival, ended_s=stored.ended_at)


def decode_coflow(stored: models.Coflow) -> coflow_model.Coflow:
    """The matrix of a stored coflow."""
    return coflow_model.Coflow(
        stored.name, stored.n_vms,
        tuple(coflow_model.Flow(src, dst, size_bytes)
              for src, dst, size_bytes in json.loads(stored.tm)),
        stored.dst_port)


def finite(value: float | None) -> float | None:
    """Databases and JSON know no infinity; null stands for it."""
    return value if value is not None and math.isfinite(value) else None


def encode_flows(coflow: coflow_model.Coflow) -> str:
    return json.dumps([[flow.src, flow.dst, flow.size_bytes]
                       for flow in coflow.flows], separators=(',', ':'))
