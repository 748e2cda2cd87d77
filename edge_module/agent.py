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

import pathlib
import threading
import time
from typing import Any
import uuid

from oslo_config import cfg
from oslo_log import log as logging

from edge_module import build
from edge_module.classify import base as classify
from edge_module import client as edge_client
from edge_module import counters
from edge_module import enforcer as edge_enforcer
from edge_module.ports import base as ports_base
from edge_module.probe import service as probe_service
from edge_module import state
from edge_module import watch
from virtco import exception
from virtco import systemd
from virtco.table import edge_policy

LOG = logging.getLogger(__name__)

_BOOT_ID = pathlib.Path('/proc/sys/kernel/random/boot_id')
_TICK_S = 0.25
_IDLE_S = 1.0
_SAVE_INTERVAL_S = 5.0
_PAIRS_COST = 100
_FIRST_BACKOFF_S = 0.2
_LAST_BACKOFF_S = 10.0
_LAST_RETRY_S = 5.0


class Agent:
    """One hypervisor's agent; :meth:`run` returns after :meth:`stop`."""

    def __init__(self, conf: cfg.ConfigOpts,
                 enforcer: edge_enforcer.Enforcer,
                 port_source: ports_base.PortSource,
                 kernel_watch: watch.KernelWatch | None = None):
        self.conf = conf
        self.enforcer = enforcer
        self.state = state.StateDir(conf.edge.state_dir)
        self.boot_id = _BOOT_ID.read_text().strip()
        saved = self.state.load('counters') or {}
        # Counters go on where they stood, but for those of another boot.
        if saved.get('boot_id') != self.boot_id:
            saved = {}
        self.epoch: str = saved.get('epoch') or uuid.uuid4().hex
        self.counters = counters.Counters(saved.get('rows', ()))
        self.error: str | None = None
        self._told: str | None = None
        self.applied_generation = 0
        self.last_report: dict[str, Any] = {}
        self.controller_up: bool | None = None
        self._pairs: list[dict[str, Any]] = []
        self._helper_cpu_s = 0.0
        self._pairs_due_s = self._save_due_s = self._audit_due_s = 0.0
        self._renewed_s = time.monotonic()
        self._retry = False
        self._retry_after_s = _FIRST_BACKOFF_S
        self._undelivered: str | None = None
        self._saved: tuple[Any, ...] | None = None
        self._is_ending = False
        self._stop = threading.Event()
        self._report_now = threading.Event()
        self.probe: probe_service.ProbeService | None = None
        self._watch = kernel_watch or watch.KernelWatch()
        self._watcher = ports_base.PortWatcher(port_source, self._on_ports)
        self._threads = [
            threading.Thread(target=self._pull, name='policy', daemon=True),
            threading.Thread(target=self._report, name='report',
                             daemon=True)]

    def run(self) -> bool:
        """Enforce until told to stop.

        :returns: False when the privileged helper died: whoever started this
            process should start it again.
        """
        self._load_policy()
        try:
            self._watcher.start()
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
        self._report_now.set()
        self._watch.close()
        self._watcher.stop()
        if self.probe is not None:
            self.probe.stop()
        self._save_counters()
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
                self.conf, edge_client.EdgeClient(self.conf),
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

    # -- policy ------------------------------------------------------------

    def _load_policy(self) -> None:
        """Go on with the last policy until the controller answers."""
        saved = self.state.load('policy')
        if saved is None:
            return
        try:
            policy = edge_policy.EdgePolicy.from_dict(saved['policy'])
            age_s = max(0.0, time.time() - float(saved['renewed_at']))
        except (exception.PolicyInvalid, KeyError, TypeError,
                ValueError) as error:
            LOG.warning('The saved policy is of no use: %s', error)
            return
        self._renewed_s = time.monotonic() - age_s
        self._apply(policy, fair=age_s > policy.ttl_s)

    def _pull(self) -> None:
        client = edge_client.EdgeClient(self.conf)
        etag: str | None = None
        backoff_s = _FIRST_BACKOFF_S
        while not self._stop.is_set():
            try:
                answer = client.get_policy(etag, self._poll_wait_s())
            except exception.ControllerUnavailable as error:
                self._controller_is(False, error)
                self._stop.wait(backoff_s)
                backoff_s = min(_LAST_BACKOFF_S, backoff_s * 2)
                continue
            except exception.NotFound:
                self._stop.wait(_FIRST_BACKOFF_S)  # until the first report
                continue
            self._controller_is(True)
            backoff_s = _FIRST_BACKOFF_S
            self._renewed_s = time.monotonic()
            if answer is not None:
                etag = answer[0]
                self._on_policy(answer[1])
            elif self.enforcer.fair and self.enforcer.policy is not None:
                LOG.info('The controller is back: order and rates again')
                self._apply(self.enforcer.policy)
            self._watch.wake()  # there may be something to collect

    def _poll_wait_s(self) -> float:
        """Short enough to renew a policy in its time to live."""
        policy = self.enforcer.policy
        wait_s: float = self.conf.edge.poll_wait_s
        return wait_s if policy is None else min(wait_s, policy.ttl_s / 3)

    def _controller_is(self, up: bool, why: Exception | None = None) -> None:
        if up != self.controller_up:
            self.controller_up = up
            if up:
                LOG.info('The controller answers')
            else:
                LOG.warning('%s The last policy holds.', why)

    def _on_policy(self, document: Any) -> None:
        try:
            policy = edge_policy.EdgePolicy.from_dict(document)
            if policy.host != self.conf.edge.host:
                raise exception.PolicyInvalid(
                    field='host', value=policy.host,
                    limit=f'this host, {self.conf.edge.host}')
        except exception.PolicyInvalid as error:
            LOG.error('Refused, the old policy stays: %s', error)
            self.error = str(error)
            self._report_now.set()
            return
        self._apply(policy)
        self._save_policy()

    def _apply(self, policy: edge_policy.EdgePolicy, fair: bool = False
               ) -> None:
        self.counters.name_classes(policy.classes)
        try:
            self.enforcer.set_policy(policy, time.monotonic(), fair)
        except exception.VirtcoException as error:
            self._failed(error)
        else:
            self._succeeded()

    def _save_policy(self) -> None:
        policy = self.enforcer.policy
        latest = policy, self._renewed_s, self.enforcer.fair
        if policy is not None and latest != self._saved:
            self._saved = latest
            age_s = time.monotonic() - self._renewed_s
            self.state.save('policy', {'policy': policy.to_dict(),
                                       'renewed_at': time.time() - age_s,
                                       'fair': self.enforcer.fair})

    # -- the kernel --------------------------------------------------------

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
        self._retry_after_s = _FIRST_BACKOFF_S
        self._report_now.set()

    def _failed(self, error: Exception) -> None:
        if str(error) != self.error:
            LOG.error('Not enforced yet: %s', error)
        self.error, self._retry = str(error), True
        self._audit_due_s = min(self._audit_due_s,
                                time.monotonic() + self._retry_after_s)
        self._report_now.set()

    def _tick(self, now_s: float) -> bool:
        """Do what is due; whether something had been lost."""
        policy = self.enforcer.policy
        if (policy is not None and not self.enforcer.fair
                and now_s - self._renewed_s > policy.ttl_s):
            LOG.warning('No controller for %.0f s: coflows share the link '
                        'equally from now on', policy.ttl_s)
            self._apply(policy, fair=True)
        was_lost = self.enforcer.was_lost(self._watch.changes())
        if was_lost or now_s >= self._audit_due_s:
            self._audit(now_s)
        try:
            self.enforcer.collect(now_s)
        except exception.VirtcoException as error:
            self._failed(error)
        if now_s >= self._save_due_s:
            self._save_due_s = now_s + _SAVE_INTERVAL_S
            self._save_counters()
            self._save_policy()
        return was_lost

    def _audit(self, now_s: float) -> None:
        self._audit_due_s = now_s + self.conf.edge.audit_interval_s
        self.enforcer.forget()
        self._make_true()
        if self._retry:
            # A refusal may last: reading everything again has its price.
            self._audit_due_s = now_s + self._retry_after_s
            self._retry_after_s = min(_LAST_RETRY_S, 2 * self._retry_after_s)

    # -- report ------------------------------------------------------------

    def _report(self) -> None:
        client = edge_client.EdgeClient(self.conf)
        while not self._stop.is_set():
            started_s = time.monotonic()
            self._report_now.clear()
            try:
                self.last_report = self.report(started_s)
                client.put_report(self.last_report)
                self._undelivered = None
            except (exception.ControllerUnavailable,
                    exception.NotFound) as error:
                if str(error) != self._undelivered:
                    LOG.warning('Report not delivered: %s', error)
                self._undelivered = str(error)
            except exception.VirtcoException as error:
                self._failed(error)
            left_s = (started_s + self.conf.edge.report_interval_s
                      - time.monotonic())
            # Whatever happens, the controller hears of it at once, but not
            # more often than it can bear.
            self._stop.wait(min(0.02, max(0.0, left_s)))
            self._report_now.wait(max(0.0, left_s))

    def report(self, now_s: float) -> dict[str, Any]:
        """The report as the controller wants it; reads the kernel."""
        try:
            with self.enforcer.lock:
                self.counters.add_stats(self.enforcer.uplink.stats())
                if now_s >= self._pairs_due_s:
                    self._read_pairs(now_s)
        except (exception.VirtcoException, OSError) as error:
            # The controller is to hear of it, with the counters as they were.
            self._failed(error)
        shared = self.counters.shared()
        report = {
            'boot_id': self.boot_id, 'epoch': self.epoch,
            'applied_generation': self.applied_generation,
            'link': self._link(),
            'ports': [{'vm': port.vm, 'dev': port.dev, 'mac': port.mac,
                       'ips': list(port.ips)}
                      for port in self.enforcer.ports or ()],
            'coflows': self.counters.coflows(),
            'pairs': self._pairs,
            'uplink_sent_bytes': self.counters.uplink_bytes(),
            'default_sent_bytes': (
                shared[counters.Part.HOST]['sent_bytes']
                + shared[counters.Part.UNMANAGED]['sent_bytes']),
            'shared': shared,
            'health': self._health(), 'error': self.error,
            'cpu_s': round(time.process_time() + self._helper_cpu_s, 3)}
        if self.probe is not None:
            report['probe'] = {'address': self.probe.address,
                               'port': self.probe.port}
        return report

    def _read_pairs(self, now_s: float) -> None:
        """Many pairs are read less often: a percent of the time at most."""
        start_s = time.thread_time()
        self.counters.add_pairs(self.enforcer.classifier.counted())
        self._pairs = self.counters.pairs()
        self._helper_cpu_s = self.enforcer.uplink.kernel.cpu_s()
        cost_s = time.thread_time() - start_s
        self._pairs_due_s = now_s + max(self.conf.edge.pairs_interval_s,
                                        _PAIRS_COST * cost_s)

    def _link(self) -> dict[str, Any]:
        egress_bps = self.enforcer.link_bps
        return {'dev': self.enforcer.uplink.dev, 'egress_bps': egress_bps,
                'ingress_bps': build.ingress_bps(self.conf, egress_bps)}

    def _health(self) -> str:
        if self._retry:
            return 'error'
        degraded = self.error or self._watcher.error or self.enforcer.fair
        return 'degraded' if degraded else 'ok'

    def _save_counters(self) -> None:
        with self.enforcer.lock:
            rows = self.counters.to_rows()
        self.state.save('counters', {'boot_id': self.boot_id,
                                     'epoch': self.epoch, 'rows': rows})
