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

"""The scheduler loop: live state -> schedule -> one policy per host."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import logging
import math
import threading
import time

import numpy as np
from oslo_config import cfg

from virtco.decide import publisher
from virtco.know import inflight
from virtco.know import live_state
from virtco.know import settings
from virtco.know import uplinks
from virtco import metrics
from virtco.model import live
from virtco import scheduling
from virtco.scheduling import starvation
from virtco.table import coflow_table
from virtco.table import sheet as table_sheet

LOG = logging.getLogger(__name__)

FAIR = 'fair'
#: Of more, all groups are read anew: databases limit the terms of a query.
MOST_GROUPS = 500


class Resolver:
    """Recomputes the policies whenever something they depend on changed.

    :param reload: takes groups over from the database; None: all of them.
    :param on_change: is told the coflows whose state changed.
    """

    def __init__(self, conf: cfg.ConfigOpts, state: live_state.LiveState,
                 publisher: publisher.Publisher,
                 settings: settings.Settings,
                 rates: uplinks.Rates, metrics: metrics.Metrics,
                 reload: Callable[[Set[str] | None], None],
                 on_change: Callable[[list[inflight.Tracked]], None],
                 clock: Callable[[], float] = time.time):
        self._conf = conf.scheduler
        self._rules = uplinks.Rules(
            conf.placement.default_link_bps, conf.probe.tolerance_fraction,
            conf.probe.max_age_s)
        self._state = state
        self._publisher = publisher
        self._settings = settings
        self._rates = rates
        self._metrics = metrics
        self._reload = reload
        self._on_change = on_change
        self._clock = clock
        self._wake = threading.Condition()
        self._urgent = True
        self._reload_all = True
        self._reload_groups: set[str] = set()
        self._stopping = False
        self._check_s = math.inf
        self._thread: threading.Thread | None = None
        self._layouts: dict[str, table_sheet.Layout] = {}
        self.schedule = live.Schedule(0.0, ())

    def notify(self, *, urgent: bool = True, topology: bool = False,
               groups: Iterable[str] = ()) -> None:
        """Something changed.

        :param groups: those that did so in the database.
        :param topology: any groups may have done so.
        """
        with self._wake:
            self._urgent |= urgent
            self._reload_all |= topology
            self._reload_groups.update(groups)
            if self._urgent:
                self._wake.notify_all()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name='resolver',
                                        daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(5)

    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _loop(self) -> None:
        pause_s = self._conf.interval_s
        while True:
            with self._wake:
                if not (self._urgent or self._stopping):
                    # No later than when a coflow has waited for theta.
                    self._wake.wait(max(0.0, min(
                        pause_s, self._check_s - self._clock())))
                if self._stopping:
                    return
            started = time.thread_time()
            try:
                self.run_once()
            except Exception:
                # A loop that died would leave all edges with old policies.
                self._metrics.loop_failures.labels('resolver').inc()
                LOG.exception('Could not compute the policies.')
                time.sleep(self._conf.interval_s)
            # What nothing asks for may take a tenth of the time at most, and
            # what a storm of changes asks for half: the rest is for those
            # who report, ask and are answered.
            took_s = time.thread_time() - started
            pause_s = max(self._conf.interval_s, 9 * took_s)
            time.sleep(took_s)

    def run_once(self) -> None:
        """Recompute and publish, if anything calls for it."""
        with self._wake:
            groups, self._reload_groups = self._reload_groups, set()
            everything = self._reload_all or len(groups) > MOST_GROUPS
            self._reload_all = self._urgent = False
        self._check_s = math.inf
        if everything or groups:
            try:
                self._reload(None if everything else groups)
            except Exception:
                with self._wake:
                    self._reload_all |= everything
                    self._reload_groups |= groups
                raise
        with self._metrics.resolve_seconds.time():
            now_s = self._clock()
            changed = self._state.advance(now_s)
            self._publish(now_s)
        if changed:
            self._on_change(changed)

    def _publish(self, now_s: float) -> None:
        capacities = self.capacities(now_s)
        with self._state.lock:
            links = self._links(capacities)
            is_fair = self._settings['order'] == FAIR
            self._state.debts.tolerance = max(
                self._conf.policing_tolerance, self._beta())
            self._state.count_pairs(is_fair)
            coflows = self._state.in_turn()
            remaining = {} if is_fair else {
                tracked.coflow_id: left for tracked, left in zip(
                    coflows, self._state.bytes_left(coflows))}
            self.schedule = self._schedule(
                [] if is_fair else coflows, remaining, capacities, now_s)
            ranks = {coflow_id: rank for rank, coflow_id in enumerate(
                [c.coflow_id for c in coflows] if is_fair
                else [c.coflow_id for c in self.schedule.coflows])}
            layouts = self._lay_out(links, coflows, ranks, is_fair, now_s)
        if is_fair:
            sheets = table_sheet.count_only(layouts, ranks, links,
                                            self._conf.policy_ttl_s)
        else:
            sheets = table_sheet.fill(
                self.schedule, remaining, layouts, links,
                table_sheet.Options(
                    work_conserving=self._settings['ceil'] == 'link',
                    min_rate_fraction=self._conf.min_rate_fraction,
                    ttl_s=self._conf.policy_ttl_s))
        changed = self._publisher.publish(
            sheets, self._conf.rate_tolerance_fraction)
        self._metrics.policy_changes.inc(len(changed))

    def _lay_out(self, links: Sequence[coflow_table.Link],
                 coflows: Sequence[inflight.Tracked],
                 ranks: Mapping[str, int], is_fair: bool, now_s: float
                 ) -> dict[str, table_sheet.Layout]:
        """Of each host with an uplink, anew where another coflow sends."""
        table = [self._state.table_coflow(tracked) for tracked in coflows]
        senders = coflow_table.by_sender(table)
        receivers = (coflow_table.by_receiver(table)
                     if self._conf.protect_receivers and not is_fair else {})
        layouts = {}
        for link in links:
            host = self._state.hosts[link.host]
            mine = senders.get(link.host, ()), receivers.get(link.host, ())
            layout = self._layouts.get(link.host)
            if is_fair:
                if layout is None or not layout.is_of(*mine):
                    layout = table_sheet.Layout.of(link.host, *mine)
            elif (layout is None or not layout.is_of(*mine, host.minors)
                  or not layout.is_whole):
                # Where minors run out, the first coflows have some.
                host.minors = host.minors.assign(
                    coflow_table.wanted_keys(link.host, sorted(
                        mine[0], key=lambda c: ranks[c.coflow_id])),
                    now_s, self._conf.minor_grace_s)
                layout = table_sheet.Layout.of(link.host, *mine, host.minors)
            layouts[link.host] = layout
        self._layouts = layouts
        return layouts

    def capacities(self, now_s: float) -> dict[str, uplinks.Capacity]:
        measured = self._rates.hosts(now_s)
        with self._state.lock:
            return {name: uplinks.of_host(host.link, measured.get(name),
                                          self._rules)
                    for name, host in self._state.hosts.items()}

    def residuals(self, capacities: Mapping[str, uplinks.Capacity]
                  ) -> dict[str, tuple[float, float]]:
        """Egress and ingress of each host that coflows may use."""
        share = self._conf.default_share
        most = (0.0 if self._settings['order'] == FAIR
                else self._conf.max_background_fraction)
        hosts = self._state.hosts
        found = {}
        for name, full in capacities.items():
            background_bps = (min(hosts[name].background.value,
                                  full.egress_bps * most)
                              if most and name in hosts else 0.0)
            found[name] = (full.egress_bps - max(background_bps,
                                                 share * full.egress_bps),
                           full.ingress_bps * (1 - share))
        return found

    def _links(self, capacities: Mapping[str, uplinks.Capacity]
               ) -> list[coflow_table.Link]:
        """Uplinks of the hosts that report.

        The root of a host's classes stays at the link's speed also where less
        was measured: a wrong measurement must not become true by being
        enforced. The coflows' rates keep to what was measured.
        """
        links = []
        for name, found in sorted(capacities.items()):
            host = self._state.hosts[name]
            if host.last_report is None:
                continue
            egress_bps = host.link.get('egress_bps') or found.egress_bps
            links.append(coflow_table.Link(
                name, egress_bps,
                host.link.get('ingress_bps') or found.ingress_bps,
                egress_bps * self._conf.default_share))
        return links

    def _schedule(self, coflows: Sequence[inflight.Tracked],
                  remaining: Mapping[str, np.ndarray],
                  capacities: Mapping[str, uplinks.Capacity],
                  now_s: float) -> live.Schedule:
        """Busy coflows first; the idle ones get what those leave, and last
        come those that rest between two iterations: their classes are there
        so that the next beginning is counted and served at once.

        Rates are limits (``ceil = rate``), so bandwidth reserved for a coflow
        that does not send yet, or pauses, would be lost. Nothing is known of
        hosts that never reported; a flow of theirs waits and delays no other.
        """
        hosts = frozenset[str]().union(*(
            self._state.pairs(tracked).hosts for tracked in coflows))
        strangers = hosts - capacities.keys()
        ports: Sequence[live.Port] = [
            *(live.Port(name, *rates_bps) for name, rates_bps
              in self.residuals(capacities).items()),
            *(live.Port(name, 0.0, 0.0) for name in sorted(strangers))]
        # Rates are of the wire, matrices of payload.
        factor = self._state.wire_factor * (1 + self._beta())
        quiet_s = self._conf.quiet_s
        tiers: tuple[list[live.LiveCoflow], ...] = ([], [], [])
        for tracked in coflows:
            tier = (2 if tracked.upcoming is not None else
                    0 if tracked.is_busy(now_s, quiet_s) else 1)
            pairs = self._state.pairs(tracked)
            left = remaining[tracked.coflow_id] * factor
            if strangers:
                left *= [strangers.isdisjoint(pair) for pair in pairs]
            tiers[tier].append(_live_coflow(
                tracked, live.Flows(pairs, left),
                None if strangers else self._state.whole(tracked)))
        self._check_s = starvation.next_check_s(
            [*tiers[0], *tiers[1]], now_s, self._conf.theta_s or math.inf)
        found: list[live.CoflowSchedule] = []
        for tier_coflows in filter(None, tiers):
            made = self._order(tier_coflows, ports, now_s)
            ports = made.left
            found += [dataclasses.replace(c, rank=c.rank + len(found))
                      for c in made.coflows] if found else made.coflows
        return live.Schedule(now_s, tuple(found), tuple(ports))

    def _order(self, coflows: list[live.LiveCoflow],
               ports: Sequence[live.Port], now_s: float) -> live.Schedule:
        if not coflows:
            return live.Schedule(now_s, ())
        return scheduling.schedule(
            coflows, ports, policy=self._settings['order'], now_s=now_s,
            theta_s=self._conf.theta_s or math.inf,
            fifo_plus_share=self._conf.fifo_plus_share,
            policing_beta=self._state.debts.tolerance,
            in_debt=self._state.debts.behind(
                {c.coflow_id: c.project_id for c in coflows}))

    def _beta(self) -> float:
        if self._conf.beta >= 0:
            return float(self._conf.beta)
        hosts = self._state.hosts.values()
        total = sum(host.link.get('egress_bps') or 0 for host in hosts)
        low = sum(host.background.value for host in hosts)
        return min(1.0, low / total) if total > 0 else 0.0


def _live_coflow(tracked: inflight.Tracked, flows: live.Flows,
                 whole: live.Flows | None) -> live.LiveCoflow:
    return live.LiveCoflow(
        coflow_id=tracked.coflow_id, flows=flows,
        arrival_s=tracked.arrival_s or 0.0,
        served_s=tracked.moved_s or tracked.arrival_s or 0.0,
        sent_bytes=tracked.counting.all_bytes,
        claimed_bytes=tracked.claimed_bytes,
        project_id=tracked.project_id,
        priority_class=tracked.priority_class, weight=tracked.weight,
        n_flows=len(tracked.model.flows), whole=whole)
