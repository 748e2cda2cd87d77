# SPDX-License-Identifier: Apache-2.0

"""Progress of coflows by the hosts' reports: bytes, and states. Pure."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import functools
import itertools

import numpy as np

from virtco import units
from virtco.model import live
from virtco.profiles import pairs as profile_pairs
from virtco.scheduling import endings
from virtco.state import addresses
from virtco.state import byte_counters
from virtco.state import coflow_ends
from virtco.state import debts
from virtco.state import host_state
from virtco.state import inflight
from virtco.state import living_groups
from virtco.state import pair_counters
from virtco.state import schedule_input
from virtco.state import sending
from virtco.state import summary
from virtco.state import unhinted

#: Findings about impossible reports that are told while the process lives.
MOST_TOLD = 10_000
#: A host that says nothing for so long after a VM left it is dead.
MISSING_S = 30.0
#: Least time between two reports for a rate.
LEAST_S = 1e-3


class Progress:
    """Bytes and life of the coflows, by the hosts' reports.

    :param wire_factor: bytes on the wire per byte of payload.
    :ivar endings: rules by which coflows end now.
    :ivar profiles: bytes that the pairs of VMs sent, by group.
    :ivar measured: coflows whose period changed.
    :ivar findings: findings that no event tells yet, by key.
    """

    def __init__(self, known: living_groups.Groups,
                 hosts: Mapping[str, host_state.HostState],
                 owed: debts.Debts, places: addresses.Addresses,
                 rules: endings.Rules, wire_factor: float):
        self.endings = rules
        self._groups = known
        self._hosts = hosts
        self._debts = owed
        self._addresses = places
        self._rules = rules
        self._wire_factor = wire_factor
        self.profiles: dict[str, profile_pairs.Bytes] = (
            collections.defaultdict(dict))
        self.measured: set[str] = set()
        self._unhinted = unhinted.Unhinted(places)
        self.findings: dict[tuple[str, str], summary.Finding] = {}
        self._told: set[tuple[str, str]] = set()
        # (Coflow, host that a sender left) -> last report before that.
        self._left: dict[tuple[str, str], float] = {}
        # Coflow -> way between two hosts -> bytes not yet in the profiles.
        self._unspread: dict[
            str, dict[tuple[str, str | None], float]] = (
                collections.defaultdict(dict))
        self._counts_pairs = False
        self._owners: (
            dict[pair_counters.Key, pair_counters.Owner] | None) = None
        # VM and address of each pair that has an owner.
        self._owned: Set[tuple[str, str]] = frozenset()

    def count_pairs(self, wanted: bool) -> None:
        """Set whether coflows have no classes, so that VM pairs are counted.
        """
        if wanted == self._counts_pairs:
            return
        self._counts_pairs = wanted
        self.endings = self._rules if not wanted else dataclasses.replace(
            self._rules, tail_s=0.0, quiet_s=max(self._rules.quiet_s,
                                                 pair_counters.QUIET_S))
        for tracked in self._groups.coflows.values():
            tracked.touch()

    def forget_owners(self) -> None:
        """Forget to which coflows the pairs of VMs belong."""
        self._owners = None

    def hinted(self, coflow_ids: Iterable[str]) -> None:
        """Credit new coflows with the bytes that their VMs just sent each
        other.
        """
        for coflow_id in coflow_ids:
            tracked = self._groups.coflows[coflow_id]
            sent = self._unhinted.pop({
                member.instance_uuid or ''
                for member in tracked.members.values()})
            for flow in range(len(tracked.model.matrix) if sent else 0):
                one = sent.get(tracked.vms(flow))
                if one is not None:
                    tracked.counting.credit(np.array([flow]), one.sent_bytes)
                    tracked.credited(one.sent_bytes, one.since_s, one.last_s,
                                     self.endings)

    def take(self, state: host_state.HostState,
             taken: host_state.Taken, now_s: float) -> bool:
        """Credit the host's last report; return whether it is urgent.

        It is urgent when a coflow starts or may have ended.
        """
        strange = self._find_strange(state)
        state.counters.tidy(self.may_return)
        sent: dict[str, dict[str | None, float]] = (
            collections.defaultdict(dict))
        since_s, lasts_s = taken.since_s, max(taken.lasts_s, LEAST_S)
        for coflow_id, dst_host, wire_bytes in taken.deltas:
            if coflow_id not in strange:
                sent[coflow_id][dst_host] = (
                    wire_bytes * units.BITS_PER_BYTE / lasts_s)
        urgent = self._take_backlogs(state, strange, sent)
        for delta in taken.deltas:
            if delta.coflow_id in strange:
                continue
            urgent |= self._credit(state.host, delta, since_s, now_s)
        # A host may report a port of any VM.
        of_vm = self._addresses.of_vm
        rows = [row for row in state.peers.take(state.report)
                if row[0] in of_vm and of_vm[row[0]][0] == state.host]
        self._profile_peers(rows)
        self._unhinted.take(state.host, rows, since_s, now_s)
        return self._credit_pairs(state, since_s, now_s) or urgent

    def _find_strange(self, state: host_state.HostState) -> set[str]:
        """Return the reported coflows none of whose VMs is, will be or was on
        the host; a finding names each.

        Of those that it counted before a takeover, some VM was.
        """
        found = set()
        for counters in state.report.coflows:
            coflow_id = counters.coflow_id
            tracked = self._groups.coflows.get(coflow_id)
            if (tracked is None or state.host in tracked.hosts
                    or coflow_id in state.counters.before):
                continue
            found.add(coflow_id)
            if counters.sent_bytes or counters.backlog_bytes:
                self._tell(
                    tracked, 'report_refused', state.host,
                    f'reports bytes of coflow {coflow_id}, none of whose VMs '
                    'is or was there: refused')
        if found:
            # Counters of this refused report are no base for the next one.
            state.counters.forget(found)
        return found

    def may_return(self, coflow_id: str, host: str) -> bool:
        """Tell whether a class that a host does not report may come back.

        It needs no lock.

        :param host: destination of its child class; empty for its own.
        """
        return coflow_id in self._groups.coflows and (
            not host or host in self._hosts)

    def waiting(self, state: host_state.HostState) -> dict[str, bool]:
        """Return the VMs that a host reports and Nova has not confirmed, and
        whether each is reserved there; see
        :meth:`virtco.state.live_state.LiveState.waiting`.

        The port of a VM that was shelved may outlive it for a moment. So
        where no host is planned, only a port that is new counts.
        """
        found: dict[str, bool] = {}
        for vm in state.vms & self._groups.vms.keys():
            member = self._groups.vms[vm][2]
            reserved = member.host
            if member.running:
                continue
            if reserved == state.host or (
                    reserved is None and vm in state.new_vms):
                found[vm] = reserved == state.host
            elif reserved is not None:
                self._refuse_port(state.host, vm, reserved)
        return found

    def _refuse_port(self, host: str, vm: str, reserved: str) -> None:
        """Add a finding of a port whose VM Nova has elsewhere."""
        tracked = self._groups.coflow_of(vm)
        if tracked is not None:
            self._tell(tracked, 'report_refused', host,
                       f'reports a port of VM {vm}, which is reserved on '
                       f'{reserved}: refused')

    def refuse_addresses(self, state: host_state.HostState,
                         reporters: Callable[[str], Iterable[str]]) -> None:
        """Add findings where a host reports MAC addresses of other hosts' VMs,
        or another one those of its VMs. VMs in two networks may have the same.

        :param reporters: returns the hosts that report a MAC address.
        """
        runs_at = self._addresses.runs_at
        for mac, name in ((mac, name) for mac in state.macs
                          for name in reporters(mac) if name != state.host):
            at = self._hosts[name]
            for home, other in ((at, state), (state, at)):
                vm = home.vm_of.get(mac, '')
                tracked = self._groups.coflow_of(vm)
                if (tracked is not None and vm not in other.vms
                        and home.is_home(mac, runs_at)
                        and not other.is_home(mac, runs_at)):
                    self._tell(tracked, 'report_refused', other.host,
                               f'reports the MAC address {mac} of VM {vm}, '
                               f'which runs on {home.host}: refused')

    def _tell(self, tracked: inflight.Tracked, kind: str, host: str,
              what: str) -> None:
        """Queue a finding about a host for an event, each once."""
        found = summary.Finding.of(tracked, kind, f'{host} {what}',
                                   (host, what))
        if found.key not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(found.key)
            self.findings[found.key] = found

    def senders(self, groups: Set[str] | None
                ) -> dict[str, tuple[inflight.Tracked, Set[str]]]:
        """Return the coflows that send and the hosts of their senders.

        :param groups: ids; None: of all.
        """
        return {coflow_id: (tracked, tracked.route.pairs.sources)
                for coflow_id, tracked in self._groups.coflows.items()
                if tracked.moved_s is not None
                and (groups is None or tracked.group_id in groups)}

    def moved_away(self, before: Mapping[
            str, tuple[inflight.Tracked, Set[str]]]) -> bool:
        """Note the hosts that senders left; return whether there are any.

        :param before: senders that :meth:`senders` returned before.
        """
        left = {(coflow_id, host): self._hosts[host].last_report or 0.0
                for coflow_id, (tracked, hosts) in before.items()
                for host in (hosts & self._hosts.keys()
                             - tracked.route.pairs.sources)}
        self._left |= left
        return bool(left)

    def _find_missing(self, now_s: float) -> None:
        """Tell of hosts that died before they reported all bytes of a VM."""
        for (coflow_id, host), last_s in list(self._left.items()):
            tracked = self._groups.coflows.get(coflow_id)
            state = self._hosts.get(host)
            if (tracked is not None and state is not None
                    and state.last_report == last_s):
                if now_s - last_s < MISSING_S:
                    continue
                self._tell(
                    tracked, 'report_missing', host,
                    f'reported nothing since a VM of coflow {coflow_id} left '
                    'it: bytes that the VM sent in the last '
                    f'{now_s - last_s:.0f} s there are not counted')
            del self._left[coflow_id, host]

    def _take_backlogs(self, state: host_state.HostState, strange: Set[str],
                       sent: Mapping[str, sending.Rates]) -> bool:
        """Take queues and rates; return whether a coflow may have ended by its
        last queue.

        :param sent: rates of coflows.
        """
        host = state.host
        after = {counters.coflow_id: counters
                 for counters in state.report.coflows
                 if counters.backlog_bytes
                 and counters.coflow_id not in strange}
        drained = False
        found = after.keys() | sent.keys()
        for coflow_id in found | state.sending:
            tracked = self._groups.coflows.get(coflow_id)
            if tracked is None:
                continue
            counters = after.get(coflow_id)
            was_queued = tracked.sending.take(host, counters,
                                              sent.get(coflow_id))
            if was_queued and counters is None:
                drained |= tracked.is_all_sent(self.endings)
            if coflow_id not in sent:  # else it is when it is credited
                tracked.touch()
        state.sending = found or byte_counters.NOTHING
        return drained

    def _credit(self, host: str, delta: byte_counters.Delta,
                since_s: float, now_s: float) -> bool:
        """Credit one delta; True when the coflow starts or may have ended."""
        tracked = self._groups.coflows.get(delta.coflow_id)
        if tracked is None:
            return False
        new_bytes = delta.wire_bytes / self._wire_factor
        waiting = self._unspread[tracked.coflow_id]
        way = host, delta.dst_host
        waiting[way] = waiting.get(way, 0.0) + new_bytes
        shares = None
        if tracked.model.is_estimated and len(
                flows := tracked.route.flows(host, delta.dst_host)) > 1:
            shares = pair_counters.shares(
                pair_counters.totals(self._hosts[host].report), tracked,
                flows.tolist(), self._addresses.of_vm)
        tracked.credit(host, delta.dst_host, new_bytes, shares)
        return self._moved(tracked, new_bytes, since_s, now_s)

    def _moved(self, tracked: inflight.Tracked, new_bytes: float,
               since_s: float, now_s: float) -> bool:
        """Note moved bytes; return whether the coflow starts, goes on, or may
        have ended.
        """
        started = (tracked.moved_s is None
                   or now_s - tracked.moved_s >= self.endings.quiet_s)
        tracked.credited(new_bytes, since_s, now_s, self.endings)
        if tracked.measures(new_bytes, (since_s, now_s)):
            self.measured.add(tracked.coflow_id)
        if tracked.upcoming is not None:
            return tracked.begins_anew(now_s, self.endings)
        # All other bytes were claimed.
        if (tracked.progress.excess_bytes
                or self._debts.owed_bytes(tracked.project_id)):
            self._debts.charge(
                tracked.project_id, tracked.claimed_bytes, tracked.progress,
                new_bytes)
        return started or tracked.is_all_sent(self.endings)

    def _credit_pairs(self, state: host_state.HostState,
                      since_s: float, now_s: float) -> bool:
        """Credit bytes of VM pairs; return whether a coflow starts or may have
        ended.
        """
        if not self._counts_pairs:
            state.pair_counters = None
            return False
        state.pair_counters = (state.pair_counters
                               or pair_counters.PairCounters())
        if self._owners is None:
            self._owners = pair_counters.find_owners(self._groups.in_turn(),
                                                     self._addresses.of_vm)
            self._owned = {(vm, dst_ip) for vm, _, dst_ip, _ in self._owners}
        moved = state.pair_counters.credit(
            state.host, state.report, self._owners, self._wire_factor)
        for (tracked, flow), new_bytes in moved:
            self._profile(tracked, [flow], np.ones(1), new_bytes)
        return any([self._moved(tracked, new_bytes, since_s, now_s)
                    for (tracked, _), new_bytes in moved])

    def spread(self, groups: Set[str] | None = None) -> None:
        """Divide the bytes of classes among the pairs, before these change.

        :param groups: ids; None: of all.
        """
        seen = functools.cache(lambda host: pair_counters.totals(
            self._hosts[host].report))
        for coflow_id in list(self._unspread):
            tracked = self._groups.coflows.get(coflow_id)
            if tracked is None:
                del self._unspread[coflow_id]
                continue
            if groups is not None and tracked.group_id not in groups:
                continue
            for (host, dst_host), new_bytes in self._unspread.pop(
                    coflow_id).items():
                flows = tracked.route.flows(host, dst_host).tolist()
                if flows:
                    self._profile(tracked, flows, np.ones(len(flows)) if len(
                        flows) == 1 else pair_counters.shares(
                            seen(host), tracked, flows,
                            self._addresses.of_vm), new_bytes)

    def _profile(self, tracked: inflight.Tracked, flows: Sequence[int],
                 shares: np.ndarray, new_bytes: float) -> None:
        """Add the bytes that these flows of a group sent together."""
        src, dst = tracked.model.matrix.src, tracked.model.matrix.dst

        found: Iterable[tuple[int, float]] = zip(
            flows, (shares * new_bytes).tolist())
        if tracked.group_id not in self.profiles:
            found = itertools.chain(found, (
                (flow, profile_pairs.UNSEEN)
                for flow in tracked.route.local.tolist()))
        profile_pairs.add(self.profiles[tracked.group_id], (
            ((src[flow], dst[flow]), size_bytes)
            for flow, size_bytes in found))

    def _profile_peers(self, sent: Sequence[unhinted.Row]) -> None:
        """Add the bytes that VMs sent in their group outside of its coflows.
        """
        if not sent:
            return
        # Where coflows have no classes, their pairs are counted here, too.
        counted = self._owned if self._counts_pairs else frozenset()
        of_vm, vms = self._addresses.of_vm, self._groups.vms
        rows_at = functools.cache(lambda group_id: {
            ip: row for vm, row in self._groups.rows_of(group_id).items()
            for ip in of_vm.get(vm, ('', ()))[1]})
        for vm, dst_ip, new_bytes in sent:
            if vm in vms and (vm, dst_ip) not in counted:
                group_id, src, _ = vms[vm]
                dst = rows_at(group_id).get(dst_ip, src)
                if dst != src:
                    profile_pairs.add(self.profiles[group_id],
                                      [((src, dst), new_bytes)])

    def bound_computing(self, hosts: schedule_input.Hosts) -> None:
        """Bound the computing of jobs by the time that their iterations leave.
        """
        factor = self._wire_factor
        ports = live.Ports(hosts.names, hosts.egress_bps / factor,
                           hosts.ingress_bps / factor)
        for coflow_id in self.measured & self._groups.coflows.keys():
            tracked = self._groups.coflows[coflow_id]
            if not tracked.whole.pairs.hosts <= hosts.number_of.keys():
                continue  # A host was forgotten.
            did = tracked.overstates
            tracked.most_compute_s = tracked.period.most_compute_s(
                tracked.send_s(ports, hosts.number_of))
            tracked.touch()
            if tracked.overstates and not did:
                finding = summary.overstating(tracked)
                self.findings[finding.key] = finding
        self.measured.clear()

    def advance(self, now_s: float) -> list[summary.Status]:
        """Move coflows along their life; return those whose state changed."""
        self._find_missing(now_s)
        changed = []
        for tracked in [tracked for tracked in self._groups.coflows.values()
                        if tracked.check_s <= now_s]:
            if tracked.begins(now_s, self.endings):
                tracked.begin(now_s)
                self.forget_owners()
                changed.append(summary.Status.of(tracked))
            why = coflow_ends.find_end(
                tracked, now_s, self.endings,
                self._groups.has_sibling(tracked)) or (
                'expired' if tracked.has_expired(now_s) else '')
            if why:
                tracked.why = f'ended: {why}'
                self.finish(tracked, now_s)
                changed.append(summary.Status.of(tracked))
            coflow_ends.rest_until(tracked, now_s, self.endings)
        return changed

    def finish(self, tracked: inflight.Tracked, now_s: float,
               for_good: bool = False) -> None:
        """End the iteration, or the coflow for good."""
        self.spread({tracked.group_id})
        if tracked.upcoming is None:
            tracked.end(now_s)
        self.forget_owners()
        if tracked.has_more and not for_good:
            tracked.rest()
            return
        self._groups.end(tracked)
        for host in tracked.route.pairs.hosts & self._hosts.keys():
            self._hosts[host].counters.forget({tracked.coflow_id})
