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

"""The controller: its parts, its threads and what the API asks of it."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Set
import concurrent.futures
import json
import logging
import threading
import time
from typing import Any
from typing import TYPE_CHECKING

from oslo_config import cfg
import sqlalchemy as sa

from virtco.api import views
from virtco.ask import deadline as deadlines
from virtco.ask import neutral
from virtco.db import groups as db_groups
from virtco.db import migration
from virtco.db import models
from virtco.db import records
from virtco.db import session as db_session
from virtco.decide import loop
from virtco.decide import probes
from virtco.decide import publisher
from virtco import exception
from virtco.follow import auditor
from virtco.follow import notifications
from virtco.follow import transitions
from virtco.know import coflows
from virtco.know import inflight
from virtco.know import keeper
from virtco.know import live_state
from virtco.know import projects
from virtco.know import settings
from virtco.know import uplinks
from virtco import metrics
from virtco.model import states
from virtco.scheduling import endings
from virtco import startup
from virtco.table import edge_policy

if TYPE_CHECKING:
    from virtco.ask import placements

LOG = logging.getLogger(__name__)

FIRST_POLICY_S = 2.0


class Controller:
    def __init__(self, conf: cfg.ConfigOpts,
                 clock: Callable[[], float] = time.time,
                 starting: startup.Startup | None = None):
        self.conf = conf
        self.clock = clock
        self.startup = starting or startup.Startup()
        self.database = db_session.Database.from_conf(conf)
        self.metrics = metrics.Metrics()
        self.settings = settings.Settings(conf, self.database)
        self.state = live_state.LiveState(
            conf.scheduler.background_half_life_s,
            conf.scheduler.wire_overhead_fraction,
            endings.Rules(quiet_s=conf.scheduler.quiet_s,
                          done_fraction=conf.scheduler.done_fraction))
        self.rates = uplinks.Rates()
        self.publisher = publisher.Publisher()
        self.transitions = transitions.Transitions(conf, self.database,
                                                   clock)
        self.resolver = loop.Resolver(
            conf, self.state, self.publisher, self.settings, self.rates,
            self.metrics, self._reload, self._on_change, clock)
        self.coflows = coflows.Coflows(
            conf, self.database, self.state,
            lambda: self.resolver.schedule, clock)
        self.state.debts.most_bytes = conf.scheduler.max_debt_bytes
        self.projects = projects.Projects(self.database, self.debts)
        self.prober = probes.Prober(conf, self.rates, self._probe_targets,
                                    clock)
        self.keeper = keeper.Keeper(self)
        self._auditor: auditor.Auditor | None = None
        self._placer: placements.Placer | None = None
        self._pace = deadlines.Pace()
        self.metrics.placements_under_way.set_function(
            lambda: self._pace.n_under_way)
        self._is_used = False
        self._pool = concurrent.futures.ThreadPoolExecutor(
            conf.placement.workers, thread_name_prefix='placement')

    def start(self) -> None:
        """Bring up the database, the state of before and the threads.

        Reports and policies are served from here on, placements when
        :meth:`load_planner` is through.
        """
        if self.conf.controller.db_auto_sync and self.database.is_sqlite:
            migration.upgrade(self.database)
        self.settings.load()
        with self.database.reader() as session:
            hosts = records.list_hosts(session)
            self.rates.load(records.list_rates(session))
            owing = {project.project_id: project.debt_bytes
                     for project in records.list_projects(session)}
        self.state.debts.load(owing)
        self.state.load_hosts(hosts)
        self.publisher.load_leases(
            {host.host: host.generation_lease for host in hosts})
        self.resolver.run_once()
        self.resolver.start()
        self.keeper.start()
        self._auditor = auditor.start(self.conf, self.database, self._apply,
                                      self.metrics)

    def load_planner(self) -> None:
        """The last step of the start: from here on it is ready.

        A planner that does not work makes placements neutral and the health
        bad, but what runs keeps its policies.
        """
        try:
            from virtco.ask import placements
            from virtco.solver import planner
            if self.state.hosts:
                # It was in use before.
                self._is_used = True
                planner.load_libraries()
        except Exception:
            LOG.exception('The planner does not work.')
            self.startup.failed('the planner does not work')
            return
        self._placer = placements.Placer(
            self.conf, self.database, self.settings, self.metrics,
            self.state.loads, self._capacities, self._remaining, self._pace,
            self.clock)
        self.startup.ready()

    def _use(self) -> None:
        """At the first sign of use, load what a large group will need: no
        launch should wait for it, and an idle controller has no need of it.
        """
        if not self._is_used and self._placer is not None:
            self._is_used = True
            from virtco.solver import planner
            threading.Thread(target=planner.load_libraries,
                             name='libraries', daemon=True).start()

    def wake_waiting(self) -> None:
        """Answer all who wait for a policy or a probe, and let none wait."""
        self.publisher.close()
        self.prober.close()

    def stop(self) -> None:
        self.resolver.stop()
        if self._auditor is not None:
            self._auditor.stop()
        self.keeper.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.database.dispose()

    def _reload(self, only: Set[str] | None) -> None:
        with self.database.reader() as session:
            self.state.load_groups(db_groups.living_members(session, only),
                                   db_groups.living_coflows(session, only),
                                   only)

    def _on_change(self, changed: list[inflight.Tracked]) -> None:
        for tracked in changed:
            LOG.info('Coflow %s (%s) is %s, iteration %d.',
                     tracked.coflow_id, tracked.name, tracked.state,
                     tracked.iteration)
            if tracked.state == states.CoflowState.DONE:
                self.metrics.coflow_ends.inc()

    # What placements need to know.

    def _capacities(self, hosts: list[str]
                    ) -> dict[str, uplinks.Capacity]:
        """Uplinks as payload sees them; new hosts are met here."""
        now_s = self.clock()
        with self.state.lock:
            for host in hosts:
                self.state.host(host, now_s)
        found = self.resolver.capacities(now_s)
        return self._residuals({host: found[host] for host in hosts})

    def _residuals(self, capacities: Mapping[str, uplinks.Capacity]
                   ) -> dict[str, uplinks.Capacity]:
        """Payload rates for coflows: the link without background traffic and
        headers.
        """
        factor = self.state.wire_factor
        return {host: uplinks.Capacity(egress_bps / factor,
                                       ingress_bps / factor)
                for host, (egress_bps, ingress_bps)
                in self.resolver.residuals(capacities).items()}

    def _remaining(self, coflow_id: str) -> float:
        with self.state.lock:
            tracked = self.state.coflows.get(coflow_id)
            if tracked is None or tracked.model.size_bytes <= 0:
                return 1.0
            left = float(tracked.counting.remaining_bytes().sum())
            return max(live_state.TAIL, left / tracked.model.size_bytes)

    def place(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer within ``[placement] deadline_s``, whatever happens."""
        with self.metrics.placement_seconds.time():
            answer = self._place(request)
        self._use()
        self.metrics.placements.labels(answer['status']).inc()
        return answer

    def _place(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._placer is None:
            return self._no_opinion(request, 'starting',
                                    self.startup.why() or 'no planner')
        try:
            answer = self._in_time(self._placer, request)
        except exception.TooLate as error:
            self.metrics.late_placements.labels(error.kwargs['phase']).inc()
            return self._no_opinion(request, 'deadline', str(error))
        except exception.DatabaseUnavailable as error:
            return self._no_opinion(request, 'database', str(error))
        except exception.Conflict as error:
            return self._no_opinion(request, 'conflict', str(error))
        except Exception as error:
            LOG.exception('No placement for %s.', request['instance_uuid'])
            return self._no_opinion(request, 'error', repr(error))
        if answer['status'] == 'planned':
            self.resolver.notify(groups=[answer['group']])
        return answer

    def _in_time(self, placer: 'placements.Placer',
                 request: Mapping[str, Any]) -> dict[str, Any]:
        """:raises virtco.exception.TooLate: with nothing committed."""
        deadline = deadlines.Deadline(self.conf.placement.deadline_s)
        self._pace.admit(deadline)
        future = self._pool.submit(self._work, placer, request, deadline)
        future.add_done_callback(lambda _: self._pace.leave())
        try:
            return future.result(deadline.left_s())
        except concurrent.futures.TimeoutError:
            if deadline.give_up():
                future.cancel()
                raise deadline.too_late() from None
        return future.result(db_session.PATIENCE_S)

    def _work(self, placer: 'placements.Placer', request: Mapping[str, Any],
              deadline: deadlines.Deadline) -> dict[str, Any]:
        started_s = time.thread_time()
        try:
            return placer.place(request, deadline)
        finally:
            self._pace.learn(deadline, time.thread_time() - started_s)
            for phase, spent_s in deadline.spent_s().items():
                self.metrics.phase_seconds.labels(phase).observe(spent_s)

    def _no_opinion(self, request: Mapping[str, Any], reason: str,
                    why: str) -> dict[str, Any]:
        self.metrics.placement_failures.labels(reason).inc()
        LOG.warning('No opinion on instance %s: %s',
                    request['instance_uuid'], why)
        return neutral.answer(request, why)

    def placement(self, instance_uuid: str) -> dict[str, Any]:
        with self.database.reader() as session:
            found = records.placement(session, instance_uuid)
            if found is None:
                raise exception.NotFound(what='Placement', id=instance_uuid)
            answer: dict[str, Any] = json.loads(found.answer)
            member = db_groups.member_of(session, instance_uuid)
            return answer | {
                'project_id': found.project_id, 'at': found.updated_at,
                'state': member.state if member is not None else None,
                'host_now': member.host if member is not None else None}

    def release(self, instance_uuid: str) -> None:
        group_id = self.transitions.gone(instance_uuid)
        if group_id is None:
            raise exception.NotFound(what='Placement', id=instance_uuid)
        self.resolver.notify(groups=[group_id])

    def what_if(self, request: Mapping[str, Any]) -> dict[str, Any]:
        hosts = [entry['host'] for entry in request['hosts']]
        if self._placer is None:
            raise exception.Starting(why=self.startup.why())
        from virtco.ask import whatif
        known = self.resolver.capacities(self.clock())
        unknown = uplinks.Capacity(self.conf.placement.default_link_bps,
                                   self.conf.placement.default_link_bps)
        return whatif.answer(
            self.conf, request, self.settings.get(),
            dict.fromkeys(hosts, unknown) | self._residuals(
                {host: known[host] for host in hosts if host in known}),
            self.state.loads(None))

    # Hosts.

    def report(self, host: str, report: dict[str, Any]) -> None:
        self._use()
        urgent = self.state.intake(host, report, self.clock())
        self.publisher.overtake(host, report['applied_generation'])
        self.keeper.touch_host(host)
        if self._missed(host, report):
            urgent = True
        self.resolver.notify(urgent=urgent)

    def _missed(self, host: str, report: Mapping[str, Any]) -> bool:
        """Repair what notifications missed: a port shows where its VM is.

        Only a VM that no host was known to run: during a migration two hosts
        have its ports, and Nova's notification decides.
        """
        with self.state.lock:
            waiting = {row.instance_uuid
                       for rows in self.state.groups.values()
                       for row in rows.values()
                       if row.instance_uuid and not row.running}
        found = {port['vm'] for port in report['ports']} & waiting
        changed: set[str] = set()
        for uuid in found:
            try:
                group_id = self.transitions.built(str(uuid), host)
                changed |= {group_id} if group_id is not None else set()
            except exception.VirtcoException as error:
                LOG.warning('Cannot note that %s runs on %s: %s', uuid, host,
                            error)
        if changed:
            self.resolver.notify(groups=changed)
        return bool(changed)

    def hosts(self) -> list[dict[str, Any]]:
        found = self.resolver.capacities(self.clock())
        with self.state.lock:
            return [views.host(self.state.hosts[name], found[name],
                               self.publisher.get(name))
                    for name in sorted(self.state.hosts) if name in found]

    def host(self, name: str) -> dict[str, Any]:
        found = self.resolver.capacities(self.clock())
        if name not in found:
            raise exception.NotFound(what='Host', id=name)
        policy = self.publisher.get(name)
        with self.state.lock:
            host = self.state.hosts[name]
            return (views.host(host, found[name], policy)
                    | {'classes': views.classes(host, policy)})

    def policy(self, host: str, generation: int | None, wait_s: float,
               is_gone: Callable[[], bool]) -> edge_policy.EdgePolicy | None:
        """See :meth:`virtco.decide.publisher.Publisher.wait`."""
        if generation is not None:
            self.publisher.overtake(host, generation)
        if self.publisher.get(host) is None and host in self.state.hosts:
            # Its first report came in just now.
            wait_s = max(wait_s, FIRST_POLICY_S)
        return self.publisher.wait(host, generation, wait_s, is_gone)

    def _probe_targets(self, now_s: float) -> dict[str, probes.Target]:
        with self.state.lock:
            busy = set()
            if self.conf.probe.only_idle:
                busy = {host for tracked in self.state.coflows.values()
                        if tracked.is_busy(now_s,
                                           self.conf.scheduler.quiet_s)
                        for pair in self.state.route(tracked).pairs
                        for host in pair}
            return {name: probes.Target(probe['address'], probe['port'])
                    for name, host in self.state.hosts.items()
                    if name not in busy and host.last_report is not None
                    and now_s - host.last_report < probes.STALE_REPORT_S
                    for probe in [host.report.get('probe')] if probe}

    def measured(self, measurement: Mapping[str, Any]) -> None:
        now_s = self.clock()
        self.rates.add(measurement, now_s)
        self.prober.done(measurement['probe_id'])
        self.database.retried(lambda session: records.save_rate(
            session, src=measurement['src'], dst=measurement['dst'],
            rate_bps=measurement['rate_bps'],
            lower_bound=measurement.get('lower_bound', False),
            loss=measurement.get('loss', 0.0),
            rtt_s=measurement.get('rtt_s'),
            method=measurement.get('method', ''), measured_at=now_s))
        self.resolver.notify(urgent=False)

    # Nova's notifications.

    def notified(self, event_type: str, payload: Mapping[str, Any]) -> bool:
        """Apply a versioned notification; whether it changed anything."""
        change = notifications.change_of(event_type, payload)
        if change is None:
            return False
        self.metrics.notifications.labels(event_type).inc()
        return self._apply(change)

    def _apply(self, change: notifications.Change) -> bool:
        if isinstance(change, notifications.Built):
            changed = self.transitions.built(
                change.instance_uuid, change.host, dict(change.flavor))
        elif isinstance(change, notifications.Gone):
            changed = self.transitions.gone(change.instance_uuid, change.why)
        else:
            changed = self.transitions.off_host(change.instance_uuid)
        if changed is not None:
            self.resolver.notify(groups=[changed])
        return changed is not None

    def change_settings(self, values: Mapping[str, str]) -> dict[str, str]:
        changed = self.settings.change(values)
        self.resolver.notify()
        return changed

    def change_project(self, project_id: str,
                       values: Mapping[str, Any]) -> dict[str, Any]:
        if 'debt_bytes' in values:
            with self.state.lock:
                self.state.debts.forgive(project_id)
        changed = self.projects.change(project_id, values)
        self.resolver.notify(topology=True)
        return changed

    def debts(self) -> dict[str, float]:
        """Bytes that projects owe."""
        with self.state.lock:
            return self.state.debts.all()

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether it serves, and how its parts are."""
        if self.startup.what is not None:
            return False, self.startup.document()
        parts = {'planner': self._placer is not None,
                 'scheduler': self.resolver.is_alive(),
                 'keeper': self.keeper.is_alive()}
        try:
            with self.database.reader() as session:
                session.execute(sa.select(models.Cluster.id))
            parts['database'] = True
        except exception.VirtcoException:
            parts['database'] = False
        return all(parts.values()), {
            'status': 'ok' if all(parts.values()) else 'failing',
            'parts': parts, 'hosts': len(self.publisher.hosts())}

    def render_metrics(self) -> bytes:
        self.keeper.gauge()
        return self.metrics.render()
