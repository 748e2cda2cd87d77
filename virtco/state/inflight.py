# SPDX-License-Identifier: Apache-2.0

"""A coflow in flight: its members, its progress and its path. Pure."""

from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import functools
import math

import numpy as np

from virtco.model import coflow as coflow_model
from virtco.model import live
from virtco.model import snapshot
from virtco.model import states
from virtco.scheduling import endings
from virtco.scheduling.periodic import measured
from virtco.state import byte_counters
from virtco.state import route as routes
from virtco.state import schedule_input as snapshots
from virtco.state import sending as sent
from virtco.table import coflow_table

#: Ratio of claimed to possible computing above which a claim is told.
OVERSTATED = 1.25
#: A job stays one, however little it computes.
LEAST_COMPUTE_S = 1e-6
#: Routes that are remembered for bytes that are reported late.
MOST_FORMER = 16
# VM -> its host, its IP addresses, the most that it sends and receives, and
# its Ethernet addresses.
Addresses = Mapping[str, tuple[
    str, tuple[str, ...], tuple[float, float], tuple[str, ...]]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Flows of a coflow by the addresses and caps of its VMs.

    :ivar capped: parts by caps; None where no VM has one.
    :ivar least_s: least time by the caps of VMs that also send or receive
        inside a host.
    """

    table: coflow_table.TableCoflow
    capped: routes.CappedFlows | None
    least_s: float


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
    :ivar got_on_s: time at which they had last moved by more than keep-alives
        move them; None = never.
    :ivar sending: queues and rates at its hosts by their last reports.
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
    :ivar all_counted_s: time since which all bytes of its last iteration are
        counted.
    :ivar drawn: its flows by the addresses and caps of its VMs; None after a
        change.
    :ivar shown: the coflow as the scheduler last saw it, and whether its
        project owed then; None after a change.
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
    got_on_s: float | None = None
    deadline_s: float = math.inf
    is_promised: bool = False
    sending: sent.Sending = dataclasses.field(default_factory=sent.Sending)
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
    all_counted_s: float | None = None
    members: Mapping[int, routes.Member] = dataclasses.field(
        default_factory=dict)
    drawn: Drawn | None = None
    shown: tuple[snapshots.Coflow, bool] | None = None
    # Bytes that are left between hosts at least.
    _least_bytes: float = 0.0
    # Bytes since it got on.
    _idle_bytes: float = 0.0

    def place(self, members: Mapping[int, routes.Member]) -> None:
        """Set the VMs and their hosts."""
        if members != self.members:
            if self.route.pairs:
                self.former = [self.route, *self.former[:MOST_FORMER - 1]]
            self.members = members
            now = {member.host for member in members.values()
                   if member.host is not None}
            self.hosts |= now
            self.sending.keep(now)
            for name in ('route', 'planned_route', 'awaited_hosts', 'whole',
                         '_ends'):
                self.__dict__.pop(name, None)
            self.drawn = None
            self.touch()

    def forget(self, hosts: Set[str]) -> None:
        """Refuse further bytes of these hosts, unless VMs are there: nobody
        knows which of them were counted before.
        """
        self.hosts -= hosts - {member.host for member
                               in self.members.values()}

    def touch(self) -> None:
        """Forget the derived values, since bytes, a queue or a state changed.
        """
        self.__dict__.pop('load', None)
        self.__dict__.pop('crossing_bytes', None)
        self.__dict__.pop('crossed_bytes', None)
        self.shown = None
        self._least_bytes = 0.0
        self.check_s = -math.inf

    def readdress(self) -> None:
        """Forget entries made of the addresses and caps that its VMs had."""
        self.drawn = self.shown = None

    @functools.cached_property
    def route(self) -> routes.Route:
        """Route of the flows between running VMs."""
        return routes.Route(self.model.matrix, self.members, True)

    @functools.cached_property
    def planned_route(self) -> routes.Route:
        """Route of the flows between running or planned VMs."""
        return routes.Route(self.model.matrix, self.members, False)

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
        return route.per_pair(self.counting.left_bytes())

    @property
    def reserved(self) -> live.Flows | None:
        """Remaining flows that a promised deadline holds, planned VMs
        included; None without a promise.
        """
        if not self.is_promised:
            return None
        route = self.planned_route
        return live.Flows(route.pairs, self.left_bytes(route))

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

        :param shares: shares of the flows of the present route.
        """
        flows = self.route.flows(host, dst_host)
        former = [some for route in self.former
                  if len(some := route.flows(host, dst_host))]
        if not self.model.is_estimated:
            if not (former or len(flows)):
                former = [self._flows_before_takeover(host, dst_host)]
            for some in (flows, *former):
                new_bytes -= self.counting.fill(some, new_bytes)
        elif former and not len(flows):
            flows = former[0]
        if new_bytes > 0:
            self.counting.credit(flows, new_bytes, shares)

    def _flows_before_takeover(self, host: str, dst_host: str | None
                               ) -> np.ndarray:
        """Return the flows that may have gone this way before another process
        led: former routes are in its memory alone, but a host without VMs is
        heard only if it had some then.
        """
        if host not in self.hosts:
            found = [self.route.flows(*pair) for pair in self.route.pairs
                     if pair[1] == dst_host]
            return np.concatenate(found) if found else self.route.crossing
        if dst_host is None or dst_host in self.hosts:
            return routes.NO_FLOWS
        return next((some for route in (self.route, *self.former) if len(
            some := route.flows(host, None))), routes.NO_FLOWS)

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
        self._idle_bytes += new_bytes
        if (endings.gets_on(self.model.size_bytes, self._idle_bytes, rules)
                and endings.gets_on(counting.all_bytes, self._idle_bytes,
                                    rules)):
            self.got_on_s, self._idle_bytes = now_s, 0.0
        self.is_dirty = True
        least_bytes = self._least_bytes - new_bytes
        self.touch()
        self._least_bytes = least_bytes

    # Computing per iteration.

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

    def send_s(self, ports: live.Ports, index: Mapping[str, int]) -> float:
        """Return the sending time of an iteration alone, on its slowest link
        with a known rate.

        :param ports: rates of the hosts, in payload.
        :param index: number of each host among the ports.
        """
        busy_s = ports.busy_s(self.whole, index)
        return float(busy_s[np.isfinite(busy_s)].max(initial=0.0))

    def remaining_fraction(self) -> float:
        """Return the share of this iteration's bytes that is left."""
        if self.model.size_bytes <= 0:
            return 1.0
        left = float(self.counting.remaining_bytes().sum())
        return max(byte_counters.TAIL, left / self.model.size_bytes)

    @functools.cached_property
    def crossing_bytes(self) -> float:
        """Bytes left between hosts of the iteration that is counted."""
        return float(self.counting.remaining_bytes()[
            self.route.crossing].sum())

    @functools.cached_property
    def crossed_bytes(self) -> tuple[float, float]:
        """Bytes between hosts of that iteration: hinted, and sent."""
        counting, local = self.counting, self.route.local
        if not local.size:
            return float(counting.sizes_bytes.sum()), counting.all_bytes
        return (float(counting.sizes_bytes.sum()
                      - counting.sizes_bytes[local].sum()),
                counting.all_bytes - float(counting.sent_bytes[local].sum()))

    # Its life.

    def begin(self, now_s: float) -> None:
        """Begin the first or the next iteration."""
        self.progress, self.upcoming = self.counting, None
        self.state = states.CoflowState.ACTIVE
        self.iteration += 1
        self.arrival_s = now_s
        self.ended_s = self.all_counted_s = None
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

    def rest(self, stored: Sequence[float] = ()) -> None:
        """Wait for the next iteration.

        :param stored: bytes of it that were seen so far.
        """
        self.upcoming = self.progress.next(stored)
        self.touch()

    def begins(self, now_s: float, rules: endings.Rules) -> bool:
        """Tell whether the coflow, or its next iteration, begins now."""
        if self.state == states.CoflowState.PLANNED:
            return any(member.running for member in self.members.values())
        if self.upcoming is None:
            return False
        if self.moved_s is None and self.watched_since_s is None:
            self.watched_since_s = now_s
        if (self.upcoming.all_bytes
                and now_s - self.idle_since_s >= rules.pause_s):
            # An iteration may have begun, and paused, before any look.
            if self.begins_anew(self.idle_since_s, rules):
                return True
            self.rest()
            self.is_dirty = True
        return self.begins_anew(now_s, rules)

    def begins_anew(self, now_s: float, rules: endings.Rules) -> bool:
        """Tell whether the counted bytes are those of a new iteration."""
        return self.upcoming is not None and endings.begins_anew(
            self.model.size_bytes, self.upcoming.all_bytes,
            now_s - (self.ended_s or 0.0), rules)

    def is_all_sent(self, rules: endings.Rules) -> bool:
        """Tell whether the bytes left between hosts are negligible.

        False where the sizes are estimated. They are summed up only when
        enough bytes were counted since the last time.
        """
        size_bytes = self.model.size_bytes
        if self.model.is_estimated or not endings.is_all_sent(
                size_bytes, self._least_bytes, rules):
            return False
        self._least_bytes = self.crossing_bytes
        return endings.is_all_sent(size_bytes, self._least_bytes, rules)

    def is_busy(self, now_s: float, quiet_s: float) -> bool:
        """Tell whether bytes wait at a host or moved within ``quiet_s``."""
        return self.sending.is_queued or (self.moved_s is not None
                                          and now_s - self.moved_s < quiet_s)

    def has_expired(self, now_s: float) -> bool:
        """Tell whether the time has come at which the coflow is given up."""
        return self.expires_s is not None and now_s >= self.expires_s

    @property
    def idle_since_s(self) -> float:
        """Time from which silence counts: that of the last byte, if any.

        Without a byte it is the arrival, or the start of this process, since
        the machine's clock may have been set in between.
        """
        return max(self.moved_s or 0.0, self._watched_since_s)

    @property
    def stalled_since_s(self) -> float:
        """Time from which it did not get on; see :attr:`idle_since_s`."""
        return max(self.got_on_s or 0.0, self._watched_since_s)

    @property
    def _watched_since_s(self) -> float:
        return max(self.arrival_s or 0.0, self.watched_since_s or 0.0)
