# SPDX-License-Identifier: Apache-2.0

"""Live state in memory: groups, coflows in flight and hosts.

The database holds the same facts for a restart; the scheduler loop reads only
this state, so that it goes on when the database fails. Nothing here reads a
clock: callers pass the time. The lock is private: callers get immutable
values.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import contextlib
import math
import threading
from typing import Any
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from virtco.measure import round_schedule
from virtco.model import cluster
from virtco.model import live
from virtco.model import snapshot as model
from virtco.profiles import pairs as profile_pairs
from virtco.scheduling import deadlines
from virtco.state import addresses
from virtco.state import capped_flows
from virtco.state import debts
from virtco.state import holders
from virtco.state import host_state
from virtco.state import host_uplinks
from virtco.state import inflight
from virtco.state import living_groups
from virtco.state import measured_rates
from virtco.state import progress
from virtco.state import remaining_flows
from virtco.state import route as routes
from virtco.state import schedule_input as snapshots
from virtco.state import summary
from virtco.state import tree_uplinks
from virtco.table import coflow_table
from virtco.topology import tree
from virtco.wire import edge_policy
from virtco.wire import reports

if TYPE_CHECKING:
    from virtco.db import models


class LiveState:
    """All live state, behind one lock that is held for computations only.

    :param given: rules given by the operator.
    :param rates: rates measured between the hosts.
    :param plane: tells which switches are above the hosts.
    """

    def __init__(self, given: snapshots.Rules = snapshots.Rules(),
                 rates: measured_rates.Rates | None = None,
                 plane: Callable[[], tree.Plane | None] = lambda: None):
        #: Hosts that take no new group.
        self.drained: frozenset[str] = frozenset()
        #: Called when counters were taken, or missed, that no report repeats:
        #: those of a host's last epoch, or of a host that senders left.
        self.on_last_counts: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._rules = given
        self._groups = living_groups.Groups()
        self._hosts: dict[str, host_state.HostState] = {}
        # Hosts by the MAC addresses that they report.
        self._reporters = holders.Holders()
        self._unsaved_hosts: set[str] = set()
        # Hosts that send bytes of no coflow.
        self._sending: set[str] = set()
        self._debts = debts.Debts(most_bytes=given.max_debt_bytes)
        self._addresses = addresses.Addresses()
        self._progress = progress.Progress(
            self._groups, self._hosts, self._debts, self._addresses,
            given.ending, given.wire_factor)
        self._minors: Mapping[str, coflow_table.Minors] = {}
        self._uplinks = host_uplinks.HostUplinks(
            given.uplink, given.share, rates or measured_rates.Rates(),
            self._hosts)
        self._above = tree_uplinks.Above(plane, given.share.default_share,
                                         given.uplink.default_bps)

    def held(self) -> contextlib.AbstractContextManager[Any]:
        """Return the lock, for several questions with one wait for it."""
        return self._lock

    # Groups and their members.

    def load_groups(self, members: 'Iterable[models.Member]',
                    coflows: 'Iterable[models.Coflow]',
                    only: Set[str] | None = None,
                    anew: bool = False,
                    ended: Set[str] = frozenset()) -> None:
        """Load the living groups from the database.

        What is already tracked keeps its progress, which is newer here.

        :param only: ids of the groups that were read; None: all of them.
        :param anew: somebody else counts, so the database is newer.
        :param ended: coflows that had ended before the groups were read.
        """
        with self._lock:
            self._progress.spread(only)
            before = self._groups.coflows.keys()
            senders = self._progress.senders(only)
            vms = self._groups.vms_of(only)
            self._groups.load(members, coflows, only, anew, ended)
            self._progress.hinted(self._groups.coflows.keys() - before)
            if self._progress.moved_away(senders):
                self.on_last_counts()
            vms |= self._groups.vms_of(only)
            members_of = {vm: self._groups.vms[vm][2] for vm in vms
                          if vm in self._groups.vms}
            self._groups.readdress(self._addresses.tell(
                {vm: member.ips for vm, member in members_of.items()},
                {vm: member.host for vm, member in members_of.items()
                 if member.running and member.host is not None}, vms))
            self._progress.forget_owners()
            self._note_strangers(self._groups.hosts(running=True)
                                 - self._hosts.keys())

    def ended(self) -> Set[str]:
        """Return the ids of coflows whose end the database may lack."""
        with self._lock:
            return frozenset(self._groups.ended)

    def count_members(self, host: str) -> int:
        """Count the VMs of groups that are or will be on the host."""
        with self._lock:
            return self._groups.count_members(host)

    def _note_strangers(self, hosts: Set[str]) -> None:
        if self._uplinks.set_strangers(hosts):
            for tracked in self._groups.coflows.values():
                tracked.touch()

    def waiting(self, host: str) -> Mapping[str, bool]:
        """Return the VMs that the host reports and Nova has not confirmed
        anywhere, and whether each is reserved there; a VM that is reserved
        elsewhere is left out.
        """
        with self._lock:
            state = self._hosts.get(host)
            # Another thread may have forgotten the host.
            return {} if state is None else self._progress.waiting(state)

    # Hosts.

    def load_hosts(self, hosts: 'Iterable[models.Host]') -> set[str]:
        """Load the hosts from the database.

        :returns: hosts that were forgotten, since the database had them the
            last time and has not now.
        """
        hosts = list(hosts)
        with self._lock:
            gone = {name for name, state in self._hosts.items()
                    if state.is_stored} - {stored.host for stored in hosts}
            self.forget_hosts(gone)
            minors = dict(self._minors)
            for stored in hosts:
                state = self._host(stored.host, stored.first_seen)
                link, macs = state.known_link, state.macs
                if state.load(stored):
                    self._learn_addresses(stored.host, state.report.ports)
                    self._reporters.update(stored.host, macs, state.macs)
                    self._uplinks.observed(stored.host)
                if state.known_link != link:
                    self._uplinks.changed(stored.host)
                minors[stored.host] = state.minors
            self._minors = minors
        return gone

    def forget_hosts(self, hosts: Set[str]) -> None:
        with self._lock:
            if hosts:
                # Bytes of classes are divided by their host's last report.
                self._progress.spread()
            for name in hosts & self._hosts.keys():
                self._learn_addresses(name, ())
                self._reporters.update(name, self._hosts[name].macs, ())
                del self._hosts[name]
                self._uplinks.rehost(name)
            for tracked in self._groups.coflows.values():
                tracked.forget(hosts)
            self._unsaved_hosts -= hosts
            self._sending -= hosts
            self._minors = {name: minors for name, minors
                            in self._minors.items() if name not in hosts}

    def quiet_hosts(self, before_s: float) -> set[str]:
        """Return the hosts that did not report since ``before_s``.

        Hosts of members stay, and those that an operator drained.
        """
        with self._lock:
            quiet = {name for name, state in self._hosts.items()
                     if max(state.first_seen, state.last_report or 0.0)
                     < before_s}
            return quiet - self._groups.hosts() - self.drained

    def meet(self, hosts: Collection[str], now_s: float) -> None:
        """Add hosts that Nova has."""
        with self._lock:
            for host in hosts - self._hosts.keys():
                self._host(host, now_s)

    def _host(self, name: str, now_s: float) -> host_state.HostState:
        """Return a host's state, made when the host is first named."""
        if name not in self._hosts:
            self._hosts[name] = host_state.HostState(
                name, now_s, self._rules.half_life_s)
            self._uplinks.rehost()
            self._note_strangers(self._uplinks.strangers - {name})
        return self._hosts[name]

    def _learn_addresses(self, host: str, ports: Iterable[reports.Port]
                         ) -> None:
        self._progress.forget_owners()
        self._groups.readdress(self._addresses.learn(host, ports))

    def views(self, now_s: float) -> list[host_state.View]:
        """Return the state of all hosts by name."""
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
        """Return whether there are hosts."""
        return bool(self._hosts)

    def is_known(self, host: str) -> bool:
        return host in self._hosts

    def measurable(self, now_s: float, stale_s: float, only_idle: bool
                   ) -> round_schedule.Measurable:
        """Return the hosts that can be measured now, with their links.

        :param stale_s: its last report is no older.
        :param only_idle: no coflow sends from there or to there.
        """
        with self._lock:
            busy = set().union(*(
                tracked.route.pairs.hosts
                for tracked in self._groups.coflows.values()
                if only_idle and tracked.is_busy(
                    now_s, self._rules.ending.quiet_s)))
            targets = {name: (probe.address, probe.port)
                       for name, host in self._hosts.items()
                       if name not in busy and host.last_report is not None
                       and now_s - host.last_report < stale_s
                       and (probe := host.report.probe) is not None}
            return round_schedule.Measurable(
                targets, self.links_bps(targets, now_s),
                self._groups.awaited_hosts(), self.payload_tree(now_s))

    # Their uplinks.

    def payload_rates(self, hosts: Iterable[str], now_s: float, is_fair: bool
                      ) -> dict[str, tuple[float, float]]:
        """Return egress and ingress of each known host that coflows may use,
        in bits of payload per second.
        """
        with self._lock:
            ports = self._payload_ports(now_s, is_fair)
            number_of = self._uplinks.known.number_of
        rates_bps = list(zip(ports.egress_bps.tolist(),
                             ports.ingress_bps.tolist()))
        return {host: rates_bps[number_of[host]] for host in hosts
                if host in number_of}

    def _payload_ports(self, now_s: float, is_fair: bool) -> live.Ports:
        """Return the ports for coflows, in bits of payload per second."""
        self._uplinks.refresh(now_s)
        known, factor = self._uplinks.known, self._rules.wire_factor
        egress_bps, ingress_bps = self._uplinks.residual(is_fair)
        above = self._above.uplinks(known)
        return live.Ports(
            known.names, egress_bps / factor, ingress_bps / factor,
            above._replace(cap_bps=above.cap_bps / factor))

    def links_bps(self, hosts: Iterable[str], now_s: float
                  ) -> dict[str, float]:
        """Return the slower direction of each known host's link, busy or not.
        """
        with self._lock:
            self._uplinks.refresh(now_s)
            return {host: min(found.egress_bps, found.ingress_bps)
                    for host in hosts
                    if (found := self._uplinks.capacities.get(host))}

    def payload_tree(self, now_s: float) -> cluster.Tree:
        """Return the tree above the hosts, in bits of payload per second."""
        return tree_uplinks.scaled(self.wire_tree(now_s),
                                   self._rules.payload_fraction)

    def wire_tree(self, now_s: float, nominal: bool = False) -> cluster.Tree:
        """Return the tree above the hosts, in bits on the wire per second.

        :param nominal: whether the topology's rates are wanted, without
            findings.
        """
        with self._lock:
            self._uplinks.refresh(now_s)
            return (self._above.nominal if nominal else self._above.tree)(
                self._uplinks.known)

    def set_poor_uplinks(self, rates_bps: Mapping[str, tuple[float, float]]
                         ) -> None:
        """Set the rates of uplinks that are measured to be poor.

        See :meth:`virtco.state.tree_uplinks.Above.set_poor`.
        """
        with self._lock:
            self._above.set_poor(rates_bps)

    def nominal_links_bps(self, hosts: Iterable[str]
                          ) -> dict[str, tuple[float, float]]:
        """Return egress and ingress of the hosts whose link tells its speed.
        """
        with self._lock:
            links = {host: self._hosts[host].report.link for host in hosts
                     if host in self._hosts}
        return {host: (link.egress_bps, link.ingress_bps or link.egress_bps)
                for host, link in links.items() if link.egress_bps}

    def hosts_of_group(self, group_id: str) -> list[str]:
        """Return the hosts on which a group's VMs are or will be."""
        with self._lock:
            return self._groups.hosts_of(group_id)

    def addresses_of(self, vms: Iterable[str]) -> list[tuple[str, ...]]:
        """Return the IP addresses of each VM that a host reported."""
        with self._lock:
            known = self._addresses.of_vm
            return [known[vm][1] if vm in known else () for vm in vms]

    def payload_caps(self, members: Iterable[routes.Member]
                     ) -> list[tuple[float, float]]:
        """Return the most that each VM sends and receives, in bits of payload
        per second.
        """
        factor = self._rules.wire_factor
        with self._lock:
            known = self._addresses.of_vm
            return [(egress_bps / factor, ingress_bps / factor)
                    for egress_bps, ingress_bps in (
                        capped_flows.caps_bps(member, known)
                        for member in members)]

    def payload_pairs(self, rates_bps: Mapping[tuple[str, str], float]
                      ) -> dict[tuple[str, str], float]:
        """Convert rates between hosts to the payload rates of coflows."""
        return {pair: rate_bps * self._rules.payload_fraction
                for pair, rate_bps in rates_bps.items()}

    # Reports.

    def count_pairs(self, wanted: bool) -> None:
        """Count coflows by pairs of VMs, as they have no classes."""
        with self._lock:
            self._progress.count_pairs(wanted)

    def intake(self, host: str, report: reports.Report,
               now_s: float) -> bool:
        """Count a report; True when the schedule should follow at once."""
        with self._lock:
            seen = state = self._host(host, now_s)
            counters, ports = state.counters, state.report.ports
            if state.has_overtaken(report):
                return False
        if report.ports != ports:
            self._learn_in_parts(host, report.ports)
        # Launches wait for the lock, and there may be thousands of counters.
        # Coflows that end meanwhile are still of use to both of these.
        known = self._groups.coflows
        of_use = tuple([one for one in report.coflows
                        if one.coflow_id in known])
        step = counters.read(report, {one.coflow_id for one in of_use})
        if len(of_use) < len(report.coflows):
            report = msgspec.structs.replace(report, coflows=of_use)
        with self._lock:
            state = self._host(host, now_s)
            if state is not seen:  # The host was forgotten meanwhile.
                self._learn_addresses(host, report.ports)
            self._unsaved_hosts.add(host)
            if state.counters.epoch not in ('', report.epoch):
                self.on_last_counts()
            macs = state.macs
            taken = state.take(
                report, now_s, step if state.counters is counters else None)
            if taken.new_link:
                self._uplinks.changed(host)
            self._uplinks.observed(host)
            (self._sending.add if state.towards.is_sending
             else self._sending.discard)(host)
            if taken.new_ports or taken.new_link:
                self._reporters.update(host, macs, state.macs)
                self._progress.refuse_addresses(state, self._reporters.of)
            is_urgent = self._progress.take(state, taken, now_s)
            return (is_urgent or taken.new_ports or taken.new_link
                    or taken.new_flood) and state.may_hurry(now_s)

    def _learn_in_parts(self, host: str, ports: Iterable[reports.Port]
                        ) -> None:
        """Learn the ports of a host; others have the lock in between."""
        parts = self._addresses.parts(host, addresses.of_ports(host, ports))
        while True:
            with self._lock:
                changed = next(parts, None)
                if changed is None:
                    return
                self._progress.forget_owners()
                self._groups.readdress(changed)

    def may_return(self, coflow_id: str, host: str) -> bool:
        """Tell whether counters of a coflow's class are of use."""
        return self._progress.may_return(coflow_id, host)

    def heard(self, hosts: Collection[str], now_s: float) -> None:
        """Record that the last reports of these hosts still hold."""
        with self._lock:
            for name in hosts & self._hosts.keys():
                self._hosts[name].heard(now_s)

    # Coflows.

    def take_profiles(self) -> dict[str, profile_pairs.Bytes]:
        """Return the bytes per pair of each group since the last call."""
        with self._lock:
            self._progress.spread()
            found = dict(self._progress.profiles)
            self._progress.profiles.clear()
            return found

    def give_back_profiles(self, found: Mapping[str, profile_pairs.Bytes]
                           ) -> None:
        """Take back bytes of profiles that could not be stored."""
        with self._lock:
            for group_id, of_group in found.items():
                profile_pairs.add(self._progress.profiles[group_id],
                                  of_group.items())

    def advance(self, now_s: float) -> list[summary.Status]:
        """Move coflows along their life; return those whose state changed."""
        with self._lock:
            if self._progress.measured:
                self._uplinks.refresh(now_s)
                self._progress.bound_computing(self._uplinks.known)
            return self._progress.advance(now_s)

    def count_overstating(self) -> int:
        """Count the jobs that claim to compute more than they can."""
        with self._lock:
            return sum(tracked.overstates
                       for tracked in self._groups.coflows.values())

    def finish(self, coflow_id: str, now_s: float) -> None:
        """End a coflow for good, even if iterations are still to come."""
        with self._lock:
            tracked = self._groups.coflows.get(coflow_id)
            if tracked is not None:
                self._progress.finish(tracked, now_s, for_good=True)

    def drop(self, coflow_id: str) -> None:
        """Forget a coflow that was deleted."""
        with self._lock:
            self._groups.coflows.pop(coflow_id, None)

    def status(self, coflow_id: str) -> summary.Status | None:
        """Return the progress of a coflow in flight; None for any other."""
        with self._lock:
            tracked = self._groups.find(coflow_id)
            return summary.Status.of(tracked) if tracked is not None else None

    def statuses(self) -> dict[str, summary.Status]:
        """Return the progress of all coflows in flight and of those just
        ended.
        """
        with self._lock:
            return {coflow_id: summary.Status.of(tracked)
                    for coflow_id, tracked in (
                        self._groups.ended | self._groups.coflows).items()}

    def remaining_fraction(self, coflow_id: str) -> float:
        """Return the share of a coflow's size that is left; 1 if it is
        unknown.
        """
        with self._lock:
            tracked = self._groups.coflows.get(coflow_id)
            return tracked.remaining_fraction() if tracked else 1.0

    def loads(self, except_group: str | None = None
              ) -> tuple[model.ActiveCoflow, ...]:
        """Return the remaining bytes per host of other groups' coflows."""
        with self._lock:
            return self._groups.loads(except_group)

    def promised(self, now_s: float, is_fair: bool
                 ) -> tuple[live.Ports, deadlines.Claims]:
        """Return the ports for coflows, in bits of payload per second, and the
        claims of promised deadlines on them.
        """
        with self._lock:
            ports = self._payload_ports(now_s, is_fair)
            number_of = self._uplinks.known.number_of
            # A coflow waits for hosts of which nothing is known.
            rows = [(tracked.coflow_id, ports.busy_s(held, number_of)
                     if held.pairs.hosts <= number_of.keys()
                     else np.zeros_like(ports.cap_bps),
                     tracked.deadline_s - now_s,
                     self._rules.wire_factor * capped_flows.busy_s(
                         tracked, self._addresses.of_vm))
                    for tracked in self._groups.coflows.values()
                    if (held := tracked.reserved) is not None
                    and tracked.deadline_s > now_s]
            return ports, deadlines.claims_of(len(ports.cap_bps), rows)

    # Input of decisions.

    def snapshot(self, options: snapshots.Options,
                 now_s: float) -> snapshots.Snapshot:
        with self._lock:
            self._uplinks.refresh(now_s)
            beta = (options.beta if options.beta >= 0
                    else self._uplinks.background_share())
            self._debts.tolerance = max(debts.TOLERANCE, beta)
            egress_bps, ingress_bps = self._uplinks.residual(options.is_fair)
            return snapshots.Snapshot(
                now_s, options, self._uplinks.known, egress_bps, ingress_bps,
                tuple(map(self._shown, self._groups.in_turn())), self._minors,
                self._rules.wire_factor * (1 + beta),
                host_uplinks.senders(
                    self._hosts, self._sending, self._uplinks.known.links,
                    self._reporters.of, self._addresses.runs_at)
                if options.limits_senders else {},
                self._above.uplinks(self._uplinks.known))

    def _shown(self, tracked: inflight.Tracked) -> snapshots.Coflow:
        return remaining_flows.shown(
            tracked, self._uplinks.strangers, self._progress.endings,
            self._addresses.of_vm, self._heard_s,
            self._debts.owed_bytes(tracked.project_id) > 0)

    def _heard_s(self, host: str) -> float:
        """Return the time of the host's last report; -inf = never."""
        state = self._hosts.get(host)
        return (-math.inf if state is None or state.last_report is None
                else state.last_report)

    def keep_minors(self, minors: Mapping[str, coflow_table.Minors]) -> None:
        """Store the class numbers of these hosts."""
        if not minors:
            return
        with self._lock:
            # Hosts may have been forgotten meanwhile.
            known = {name: some for name, some in minors.items()
                     if name in self._hosts}
            for name, some in known.items():
                self._hosts[name].minors = some
            self._minors = {**self._minors, **known}
            self._unsaved_hosts |= known.keys()

    def keep_limits(self, told: Mapping[str, edge_policy.Unmanaged]) -> None:
        """Store the limits of unmanaged traffic by which reports are read."""
        with self._lock:
            for name in told.keys() & self._hosts.keys():
                self._hosts[name].unmanaged = told[name]

    # Debts.

    def load_debts(self, owing: Mapping[str, float]) -> None:
        """Take over the debts of the database, in bytes by project."""
        with self._lock:
            self._debts.load(owing)

    def debts(self) -> dict[str, float]:
        """Return the bytes that projects owe."""
        with self._lock:
            return self._debts.all()

    def forgive(self, project_id: str) -> None:
        """Set the debt of a project to 0, to be saved with other changes."""
        with self._lock:
            self._debts.forgive(project_id)

    # Changes for the database.

    def take_unsaved(self) -> summary.Unsaved:
        """Return the changes since the last call; see :meth:`saved`."""
        with self._lock:
            hosts, self._unsaved_hosts = self._unsaved_hosts, set()
            dirty = self._groups.take_dirty()
            return summary.Unsaved(
                [summary.columns(tracked) for tracked in dirty],
                [self._hosts[name].columns() for name in sorted(hosts)],
                self._debts.take_unsaved(), tuple(self._groups.ended),
                tuple(self._progress.findings.values()),
                {tracked.coflow_id: tracked.project_id for tracked in dirty})

    def saved(self, unsaved: summary.Unsaved) -> None:
        """Drop ends and findings that the database has now."""
        with self._lock:
            for coflow_id in unsaved.ended:
                self._groups.ended.pop(coflow_id, None)
            for one in unsaved.findings:
                self._progress.findings.pop(one.key, None)

    def not_saved(self, unsaved: summary.Unsaved) -> None:
        """Put changes back that the database did not take."""
        with self._lock:
            self._unsaved_hosts |= {row['host'] for row in unsaved.hosts}
            for row in unsaved.coflows:
                if row['id'] in self._groups.coflows:
                    self._groups.coflows[row['id']].is_dirty = True
            self._debts.not_saved(unsaved.debts)
