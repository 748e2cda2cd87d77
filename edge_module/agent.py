# SPDX-License-Identifier: Apache-2.0

"""The edge agent: pulls the policy, keeps the kernel true, reports.

A stop leaves the kernel's state in place.
"""

import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from edge_module import enforcer as edge_enforcer
from edge_module import epochs
from edge_module import keeper as edge_keeper
from edge_module import kernel_events
from edge_module import pull
from edge_module import report
from edge_module import services
from edge_module import state
from edge_module import stream
from edge_module import supervise
from edge_module.ports import base as ports_base
from edge_module.probe import service as probe_service
from virtco import exception
from virtco.wire import edge_policy
from virtco.wire import reports

LOG = logging.getLogger(__name__)

_SAVE_INTERVAL_S = 5.0


class Agent:
    """One hypervisor's agent; :meth:`run` returns after :meth:`stop`."""

    def __init__(self, conf: cfg.ConfigOpts,
                 enforcer: edge_enforcer.Enforcer,
                 port_source: ports_base.PortSource,
                 kernel_watch: kernel_events.KernelWatch | None = None):
        self.conf = conf
        self.enforcer = enforcer
        self.probe: probe_service.ProbeService | None = None
        self._save_due_s = 0.0
        self._is_ending = False
        self._stop = threading.Event()
        self._watch = kernel_watch or kernel_events.KernelWatch()
        self.keeper = edge_keeper.Keeper(
            enforcer, self._watch, conf.edge.audit_interval_s,
            lambda: self.reporter.wake())
        files = state.StateDir(conf.edge.state_dir)
        self._link = stream.Link(
            conf, lambda: self.keeper.applied_generation, self._stop,
            epochs.Epochs(files))
        self.policies = pull.PolicySource(conf, enforcer, files, self._stop,
                                          self._apply, self.keeper.refuse,
                                          self._link)
        self.reporter = report.Reporter(conf, enforcer, files, self._stop,
                                        self._about, self.keeper.failed,
                                        self._link.say_report)
        self._watcher = ports_base.PortWatcher(port_source,
                                               self.keeper.set_ports)
        self._crew = supervise.Crew(
            supervise.Supervised(name, work, self._stop, self.reporter.wake)
            for name, work in (('policy', self.policies.pull),
                               ('report', self.reporter.report),
                               ('ports', self._watcher.follow),
                               ('stream', self._link.run)))

    def run(self) -> bool:
        """Enforce until told to stop.

        :returns: False when the privileged helper died: whoever started this
            process should start it again.
        """
        self.policies.load()
        try:
            self._watcher.check()
        except exception.VirtcoException as error:
            self.keeper.failed(error)
        self.keeper.make_true()
        self.probe = services.start_probe(self.conf, self._link)
        services.serve_metrics(self.conf, self.reporter, self.policies)
        self._crew.start()
        LOG.info('Enforcing on %s of %s with %s for %s',
                 self.enforcer.uplink.dev, self.conf.edge.host,
                 self.enforcer.classifier.name,
                 self.conf.edge.controller_url)
        kernel = self.enforcer.uplink.kernel
        status = services.Status(self.enforcer.uplink.dev)
        while kernel.alive() and not self._is_ending:
            status.tell(self.keeper.error)
            self.policies.decay(time.monotonic())
            self._save()
            self.keeper.turn()
        status.end()
        self._stop.set()
        self.reporter.wake()
        self._watch.close()
        self._watcher.stop()
        if self.probe is not None:
            self.probe.stop()
        self.reporter.save()
        LOG.info('Stopped; the kernel goes on with what it has')
        return kernel.alive()

    def stop(self) -> None:
        """End :meth:`run`; a signal's handler may call it: without locks."""
        self._is_ending = True
        self._watch.wake()

    def _apply(self, policy: edge_policy.EdgePolicy, fair: bool) -> None:
        self.reporter.readings.name(policy)
        self.keeper.apply(policy, fair)

    def _save(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._save_due_s:
            self._save_due_s = now_s + _SAVE_INTERVAL_S
            self.reporter.save()
            self.policies.save()

    def _about(self) -> dict[str, Any]:
        """The fields of a report that only the agent knows."""
        problem = self._crew.problem
        error = self.keeper.error or problem
        found: dict[str, Any] = {
            'applied_generation': self.keeper.applied_generation,
            'health': self._health(error, problem), 'error': error}
        if self.probe is not None:
            found['probe'] = reports.Responder(self.probe.address,
                                               self.probe.port)
        return found

    def _health(self, error: str | None, problem: str | None) -> str:
        if self.keeper.is_failing or problem is not None:
            return 'error'
        degraded = error or self._watcher.error or self.enforcer.fair
        return 'degraded' if degraded else 'ok'
