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
"""The edge agent: pulls the policy, keeps the kernel true, reports.

Level-triggered: whatever was missed, the next poll, audit or start makes
right. A stop leaves the kernel's state in place.
"""

import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from edge_module.classify import base as classify
from edge_module import enforcer as edge_enforcer
from edge_module import kernel_events
from edge_module.ports import base as ports_base
from edge_module.probe import service as probe_service
from edge_module import pull
from edge_module import report
from edge_module import state
from edge_module import stream
from edge_module import supervise
from virtco import exception
from virtco import systemd
from virtco.table import edge_policy

LOG = logging.getLogger(__name__)

_TICK_S = 0.25
_IDLE_S = 1.0
_SAVE_INTERVAL_S = 5.0
_FIRST_RETRY_S = 0.2
_LAST_RETRY_S = 5.0


class Agent:
    """One hypervisor's agent; :meth:`run` returns after :meth:`stop`."""

    def __init__(self, conf: cfg.ConfigOpts,
                 enforcer: edge_enforcer.Enforcer,
                 port_source: ports_base.PortSource,
                 kernel_watch: kernel_events.KernelWatch | None = None):
        self.conf = conf
        self.enforcer = enforcer
        self.error: str | None = None
        self.applied_generation = 0
        self.probe: probe_service.ProbeService | None = None
        self._save_due_s = self._audit_due_s = 0.0
        self._retry = False
        self._told: str | None = None
        self._retry_after_s = _FIRST_RETRY_S
        self._is_ending = False
        self._stop = threading.Event()
        self._watch = kernel_watch or kernel_events.KernelWatch()
        files = state.StateDir(conf.edge.state_dir)
        self._link = stream.Link(conf, lambda: self.applied_generation,
                                 self._stop)
        self.policies = pull.PolicySource(conf, enforcer, files, self._stop,
                                          self._apply, self._refuse,
                                          self._link.client)
        self.reporter = report.Reporter(conf, enforcer, files, self._stop,
                                        self._about, self._failed,
                                        self._link.client)
        self._watcher = ports_base.PortWatcher(port_source, self._on_ports)
        self._threads = [
            supervise.Supervised(name, work, self._stop, self.reporter.wake)
            for name, work in (('policy', self.policies.pull),
                               ('report', self.reporter.report),
                               ('ports', self._watcher.follow),
                               ('stream', self._link.run))
            if name != 'stream' or conf.edge.use_stream]

    def run(self) -> bool:
        """Enforce until told to stop.

        :returns: False when the privileged helper died: whoever started this
            process should start it again.
        """
        self.policies.load()
        try:
            self._watcher.check()
        except exception.VirtcoException as error:
            self._failed(error)
        self._make_true()
        self._start_probe()
        self._serve_metrics()
        for thread in self._threads:
            thread.start()
        LOG.info('Enforcing on %s of %s with %s for %s',
                 self.enforcer.uplink.dev, self.conf.edge.host,
                 self.enforcer.classifier.name,
                 self.conf.edge.controller_url)
        kernel = self.enforcer.uplink.kernel
        while kernel.alive() and not self._is_ending:
            self._tell_systemd()
            # What was lost is put right at once; what goes on being lost,
            # such as port after port by Open vSwitch's restart, in turns.
            if not self._tick(time.monotonic()):
                self._watch.wait(_TICK_S if self.enforcer.is_waiting
                                 or self._retry else _IDLE_S)
            else:
                self._watch.pause(_TICK_S)
        systemd.notify(STOPPING=1)
        self._stop.set()
        self.reporter.wake()
        self._watch.close()
        self._watcher.stop()
        if self.probe is not None:
            self.probe.stop()
        self.reporter.save()
        LOG.info('Stopped; the kernel goes on with what it has')
        return kernel.alive()

    def _tell_systemd(self) -> None:
        """Say how it is; it is ready as soon as it enforces."""
        status = self.error or f'Enforcing on {self.enforcer.uplink.dev}'
        if status != self._told:
            self._told = status
            ready = {'READY': 1} if self.error is None else {}
            systemd.notify(STATUS=status, **ready)

    def _start_probe(self) -> None:
        if not self.conf.probe.enabled:
            return
        try:
            self.probe = probe_service.ProbeService(
                self.conf, self._link.client(),
                self.conf.edge.host)
            self.probe.start()
        except OSError as error:
            # Enforcement does not depend on it.
            self.probe = None
            LOG.error('No packet trains, plans use the link speed: %s',
                      error)

    def _serve_metrics(self) -> None:
        if not self.conf.edge.metrics_port:
            return
        from edge_module import metrics  # only where somebody looks
        try:
            metrics.serve(self, self.conf.edge.metrics_address,
                          self.conf.edge.metrics_port)
        except OSError as error:
            LOG.error('No metrics on port %d: %s',
                      self.conf.edge.metrics_port, error)

    def stop(self) -> None:
        """End :meth:`run`; a signal's handler may call it.

        It takes no lock, for the thread that it interrupts may hold any.
        """
        self._is_ending = True
        self._watch.wake()

    # -- the kernel --------------------------------------------------------

    def _apply(self, policy: edge_policy.EdgePolicy, fair: bool) -> None:
        self.reporter.name(policy)
        try:
            self.enforcer.set_policy(policy, time.monotonic(), fair)
        except exception.VirtcoException as error:
            self._failed(error)
        else:
            self._succeeded()
        self._watch.wake()  # there may be something to collect

    def _refuse(self, why: str) -> None:
        if why != self.error:
            LOG.error('Refused, the old policy stays: %s', why)
        self.error = why
        self.reporter.wake()

    def _on_ports(self, ports: tuple[classify.VmPort, ...]) -> None:
        try:
            self.enforcer.set_ports(ports, time.monotonic())
        except exception.VirtcoException as error:
            self._failed(error)
        else:
            self._succeeded()
        self._watch.wake()

    def _make_true(self) -> None:
        try:
            self.enforcer.reconcile(time.monotonic())
        except exception.VirtcoException as error:
            self._failed(error)
        else:
            self._succeeded()

    def _succeeded(self) -> None:
        policy = self.enforcer.policy
        self.applied_generation = (policy.generation if policy is not None
                                   else 0)
        self.error, self._retry = None, False
        self._retry_after_s = _FIRST_RETRY_S
        self.reporter.wake()

    def _failed(self, error: Exception) -> None:
        if str(error) != self.error:
            LOG.error('Not enforced yet: %s', error)
        self.error, self._retry = str(error), True
        self._audit_due_s = min(self._audit_due_s,
                                time.monotonic() + self._retry_after_s)
        self.reporter.wake()

    def _tick(self, now_s: float) -> bool:
        """Do what is due; whether something had been lost."""
        self.policies.decay(now_s)
        was_lost = self.enforcer.was_lost(self._watch.changes())
        if was_lost or now_s >= self._audit_due_s:
            self._audit(now_s)
        try:
            self.enforcer.collect(now_s)
        except exception.VirtcoException as error:
            self._failed(error)
        if now_s >= self._save_due_s:
            self._save_due_s = now_s + _SAVE_INTERVAL_S
            self.reporter.save()
            self.policies.save()
        return was_lost

    def _audit(self, now_s: float) -> None:
        self._audit_due_s = now_s + self.conf.edge.audit_interval_s
        self.enforcer.forget()
        self._make_true()
        if self._retry:
            # A refusal may last: reading everything again has its price.
            self._audit_due_s = now_s + self._retry_after_s
            self._retry_after_s = min(_LAST_RETRY_S, 2 * self._retry_after_s)

    # -- how it is ---------------------------------------------------------

    @property
    def controller_up(self) -> bool | None:
        return self.policies.controller_up

    @property
    def last_report(self) -> dict[str, Any]:
        return self.reporter.last_report

    def _about(self) -> dict[str, Any]:
        """What only the agent can say in a report."""
        problem = next((thread.problem for thread in self._threads
                        if thread.problem is not None), None)
        error = self.error or problem
        found: dict[str, Any] = {
            'applied_generation': self.applied_generation,
            'health': self._health(error, problem), 'error': error}
        if self.probe is not None:
            found['probe'] = {'address': self.probe.address,
                              'port': self.probe.port}
        return found

    def _health(self, error: str | None, problem: str | None) -> str:
        if self._retry or problem is not None:
            return 'error'
        degraded = error or self._watcher.error or self.enforcer.fair
        return 'degraded' if degraded else 'ok'
