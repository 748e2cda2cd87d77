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

"""Housekeeping: writes counters down, expires, purges, fills gauges."""

import json
import logging
import threading
from typing import Any
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import orm

from virtco.db import models
from virtco.db import records
from virtco import exception
from virtco.follow import transitions
from virtco.know import inflight
from virtco.model import states

if TYPE_CHECKING:
    from virtco import app

LOG = logging.getLogger(__name__)

PURGE_EVERY = 100


class Keeper:
    def __init__(self, controller: 'app.Controller'):
        self._controller = controller
        self._conf = controller.conf.controller
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._hosts: set[str] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name='keeper',
                                        daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)
        self._attempt('flush', self.flush)

    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def touch_host(self, host: str) -> None:
        with self._lock:
            self._hosts.add(host)

    def _loop(self) -> None:
        clock = self._controller.clock
        next_reap_s = clock()
        reaps = 0
        while not self._stop.wait(self._conf.flush_interval_s):
            self._attempt('flush', self.flush)
            if clock() >= next_reap_s:
                next_reap_s = clock() + self._conf.reap_interval_s
                self._attempt('reap', self.reap)
                if reaps % PURGE_EVERY == 0:
                    self._attempt('purge', self.purge)
                reaps += 1

    def _attempt(self, name: str, work: Any) -> None:
        try:
            work()
        except exception.VirtcoException as error:
            self._controller.metrics.flush_failures.inc()
            LOG.warning('Could not %s: %s', name, error)
        except Exception:
            self._controller.metrics.loop_failures.labels(name).inc()
            LOG.exception('Could not %s.', name)

    def flush(self) -> None:
        """Write what the counters say, and renew the generation leases."""
        state = self._controller.state
        with self._lock:
            hosts, self._hosts = self._hosts, set()
        leases = self._controller.publisher.leases_to_renew()
        with state.lock:
            ended = dict(state.ended)
            coflows = [_coflow_values(tracked) for tracked in
                       (*state.coflows.values(), *ended.values())
                       if tracked.is_dirty]
            for tracked in state.coflows.values():
                tracked.is_dirty = False
            stored = [state.hosts[name].to_stored()
                      for name in hosts | leases.keys()
                      if name in state.hosts]
            debts = state.debts.take_unsaved()
        if not (coflows or stored or debts):
            return
        for values in stored:
            values |= {'report': json.dumps(values['report']),
                       'minors': json.dumps(values['minors']),
                       'generation_lease': leases.get(values['host'], 0)}
        try:
            # In one go: the counters, and what is counted by them.
            def save(session: orm.Session) -> None:
                records.save_progress(session, coflows, stored)
                records.save_debts(session, debts)

            self._controller.database.retried(save)
        except Exception:
            with self._lock:
                self._hosts |= hosts
            with state.lock:
                for tracked in state.coflows.values():
                    tracked.is_dirty = True
                state.debts.not_saved(debts)
            raise
        with state.lock:
            for coflow_id in ended:
                state.ended.pop(coflow_id, None)
        self._controller.publisher.renewed(leases)

    def reap(self) -> None:
        expired = self._controller.transitions.expire()
        if expired:
            LOG.info('%d reservations expired.', len(expired))
            self._controller.metrics.expired.inc(len(expired))
            self._controller.resolver.notify(groups=expired)

    def purge(self) -> None:
        transitions.purge(
            self._controller.database,
            self._controller.clock() - self._conf.keep_retired_s)

    def gauge(self) -> None:
        """Fill the gauges that are looked up rather than counted."""
        controller = self._controller
        now_s = controller.clock()
        for host in controller.hosts():
            if host['last_report'] is None:
                continue
            name = host['host']
            controller.metrics.report_age.labels(name).set(
                now_s - host['last_report'])
            controller.metrics.generation_lag.labels(name).set(
                (host['generation'] or 0)
                - (host['applied_generation'] or 0))
        controller.metrics.debts.clear()
        for project_id, debt_bytes in controller.debts().items():
            controller.metrics.debts.labels(project_id).set(debt_bytes)
        counts = dict.fromkeys(states.CoflowState, 0)
        try:
            with controller.database.reader() as session:
                for state, count in session.execute(
                        sa.select(models.Coflow.state, sa.func.count())
                        .group_by(models.Coflow.state)):
                    counts[states.CoflowState(state)] = count
        except exception.DatabaseUnavailable:
            return
        for state, count in counts.items():
            controller.metrics.coflows.labels(state).set(count)


def _coflow_values(tracked: inflight.Tracked) -> dict[str, Any]:
    sent_bytes = tracked.progress.sent_bytes
    return {'id': tracked.coflow_id, 'state': tracked.state,
            'iteration': tracked.iteration,
            'progress': json.dumps(sent_bytes.round().tolist()),
            'sent_bytes': float(sent_bytes.sum()),
            'arrival': tracked.arrival_s, 'ended_at': tracked.ended_s}
