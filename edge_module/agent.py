# SPDX-License-Identifier: Apache-2.0

"""The edge agent: connect, then sync whenever something happens.

:meth:`Agent.sync` makes the kernel what the policy and the ports of now ask
for. Events only wake it: a policy of the stream, ports that come and go, what
others change in the kernel, the time of an audit, the end of the policy's time
to live. Whatever was missed or refused, the next sync makes right.
"""

from collections.abc import Iterator
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from edge_module import enforcer as edge_enforcer
from edge_module import kept_state as state
from edge_module import kernel_events
from edge_module import policy_ttl
from edge_module import reporting as report
from edge_module import stream
from edge_module import supervise
from edge_module.ports import port_source as ports_base
from edge_module.probe import probing as probe_service
from virtco import exception
from virtco import systemd
from virtco.wire import messages
from virtco.wire import reports

LOG = logging.getLogger(__name__)

TICK_S, _IDLE_S = 0.25, 0.5
_FIRST_RETRY_S, _LAST_RETRY_S = 0.2, 5.0
# Time without an announcement heard, for each second that one took.
_REST = 20
# Seconds between checks whether another program still shapes the uplink.
_CONFLICT_S = 1.0
_SAVE_INTERVAL_S = 5.0


class Agent:
    """The edge agent of one hypervisor: its threads, and their main loop.

    :meth:`run` is the loop, and returns after :meth:`stop`.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 enforcer: edge_enforcer.Enforcer,
                 port_source: ports_base.PortSource,
                 kernel_watch: kernel_events.KernelWatch | None = None):
        self.conf = conf
        self.enforcer = enforcer
        self.applied_generation = 0
        self.probe: probe_service.ProbeService | None = None
        self._failure: str | None = None
        self._refused: str | None = None
        self._told: str | None = ''
        self._audit_due_s = self._save_due_s = 0.0
        self._retry_after_s = _FIRST_RETRY_S
        self._is_ending = False
        self._stop = threading.Event()
        self._watch = kernel_watch or kernel_events.KernelWatch()
        files = state.StateDir(conf.edge.state_dir)
        self.policy = policy_ttl.HeldPolicy(conf.edge.host, files)
        self.ports = ports_base.Ports(port_source, self._watch.wake)
        self.link = stream.Link(conf, lambda: self.applied_generation,
                                self._stop, files, self._watch.wake)
        self.reporter = report.Reporter(conf, enforcer, files, self._stop,
                                        self._about, self.failed,
                                        self.link.outbox.put_report)
        self._threads = [
            supervise.Supervised(name, work, self._stop, self.reporter.wake)
            for name, work in (('stream', self.link.run),
                               ('report', self.reporter.report))]

    def run(self) -> bool:
        """Enforce until told to stop; the kernel's state stays in place.

        :returns: False when the privileged helper died: whoever started this
            process should start it again.
        """
        kernel = self.enforcer.uplink.kernel
        # Go on with the last policy until the controller answers.
        saved = self.policy.load()
        if saved is not None:
            self.reporter.readings.name(saved)
        self.sync()
        self.connect()
        while kernel.alive() and not self._is_ending:
            start_s = time.thread_time()
            was_lost = self.sync()
            self._tell()
            self._save()
            # Lost state is restored at once; repeated losses, such as port
            # after port during a restart of Open vSwitch, once per tick. A
            # tenant's device may announce changes at any rate.
            is_short = (was_lost or self.enforcer.is_waiting
                        or self.is_failing)
            self._watch.wait(
                TICK_S if is_short else _IDLE_S, TICK_S if was_lost else min(
                    TICK_S, _REST * (time.thread_time() - start_s)))
        self.disconnect()
        return kernel.alive()

    def stop(self) -> None:
        """End :meth:`run`; a signal's handler may call it: without locks."""
        self._is_ending = True
        self._watch.wake()

    def connect(self) -> None:
        """Begin to hear of policies, to report, and to measure."""
        if self.conf.probe.enabled:
            try:
                self.probe = probe_service.ProbeService(self.conf, self.link)
                self.probe.start()
            except OSError as error:
                LOG.error('No packet trains, plans use the link speed: %s',
                          error)
        if self.conf.edge.metrics_port:
            from edge_module import edge_metrics as metrics
            metrics.serve(self.conf, self.reporter, self.link)
        for thread in self._threads:
            thread.start()
        classifier = self.enforcer.classifier
        LOG.info('Enforcing on %s of %s with %s for %s',
                 self.enforcer.uplink.dev, self.conf.edge.host,
                 classifier.name, self.conf.edge.controller_url)
        if classifier.reason is not None:
            LOG.info('%s classifies, as BPF cannot: %s', classifier.name,
                     classifier.reason)

    def disconnect(self) -> None:
        """Stop all threads and store the report; the kernel keeps classes."""
        systemd.notify(STOPPING=1)
        self._stop.set()
        self.reporter.wake()
        self._watch.close()
        self.ports.source.close()
        if self.probe is not None:
            self.probe.stop()
        self.reporter.save()
        LOG.info('Stopped; the kernel goes on with what it has')

    def sync(self) -> bool:
        """Bring the kernel to the state of the policy and the ports.

        :returns: whether others had taken away something.
        """
        offer = self.link.take_policy()
        if offer is not None:
            self._consider(offer)
        now_s = time.monotonic()
        was_lost = False
        try:
            changes = self._watch.changes()
            self.ports.read(look=changes.links)
            was_lost = self.enforcer.was_lost(changes)
            if was_lost or now_s >= self._audit_due_s:
                self._audit_due_s = now_s + self.conf.edge.audit_interval_s
                self.enforcer.forget()
            if self.enforcer.sync(
                    self.policy.policy, self.policy.count_past(
                        now_s, self.link.renewed_s), self.ports.ports, now_s):
                self._succeeded()
        except Exception as error:
            if not isinstance(error, (exception.VirtcoException, OSError)):
                LOG.exception('A sync broke off')
            self.failed(error)
            # A refusal may last: reading everything again has its price.
            self._retry_after_s = min(_LAST_RETRY_S, 2 * self._retry_after_s)
        if offer is not None:
            self.link.say_taken(offer.generation, self._refused)
        return was_lost

    def _consider(self, offer: messages.Policy) -> None:
        """Take a policy; a malformed one is refused whole."""
        why: str | None = None
        try:
            self.reporter.readings.name(self.policy.take(offer.policy))
        except exception.PolicyInvalid as error:
            why = str(error)
            if why != self._refused:
                LOG.error('Refused, the old policy stays: %s', why)
            self.reporter.wake()
        self._refused = why

    def _succeeded(self) -> None:
        policy = self.enforcer.policy
        if self.enforcer.conflict is None:
            self.applied_generation = policy.generation if policy else 0
        else:
            # The end of the conflict may be announced before it can be read.
            self._audit_due_s = min(self._audit_due_s,
                                    time.monotonic() + _CONFLICT_S)
        self._failure = None
        self._retry_after_s = _FIRST_RETRY_S
        self.reporter.wake()

    def failed(self, error: Exception) -> None:
        """Note that the kernel could not be read or changed: audit soon."""
        why = supervise.describe(error)
        is_new, self._failure = why != self._failure, why
        self._audit_due_s = min(self._audit_due_s,
                                time.monotonic() + self._retry_after_s)
        # A report that fails itself would call for the next one at once.
        if is_new:
            LOG.error('Not enforced yet: %s', why)
            self.reporter.wake()

    @property
    def is_failing(self) -> bool:
        """Whether the kernel differs from the policy because the last sync
        failed.
        """
        return self._failure is not None

    @property
    def error(self) -> str | None:
        """Why something is not enforced, or was refused."""
        return self._failure or self._refused or next(filter(None, (
            one.conflict for one in self.enforcer.uplinks)), None)

    def _tell(self) -> None:
        """Tell systemd; the agent is ready as soon as it enforces.

        Where somebody else shapes the uplink, this is what is left to it.
        """
        if self.error != self._told:
            self._told = self.error
            ready = {} if self._failure or self._refused else {'READY': 1}
            systemd.notify(STATUS=self.error or 'Enforcing on '
                           + self.enforcer.uplink.dev, **ready)

    def _save(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._save_due_s:
            self._save_due_s = now_s + _SAVE_INTERVAL_S
            self.reporter.save()
        self.policy.save()

    def _degrading(self) -> Iterator[str]:
        """Yield why the policy holds in part only, though nothing failed."""
        if self.enforcer.n_past:
            yield 'the controller is away for longer than its policy holds'
        if self.ports.error:
            yield self.ports.error
        noted = [port for port in self.enforcer.noted_ports() if port.notes]
        if noted:
            yield (f'{len(noted)} port(s) with traffic that is not managed, '
                   f'such as {noted[0].dev}: {", ".join(noted[0].notes)}')

    def _about(self) -> dict[str, Any]:
        """Return the fields of a report that only the agent knows."""
        problem = next((thread.problem for thread in self._threads
                        if thread.problem is not None), None)
        error, degrading = self.error or problem, [*self._degrading()]
        found: dict[str, Any] = {
            'applied_generation': self.applied_generation,
            'error': error or '; '.join(filter(None, (*degrading, *(
                one.note for one in self.enforcer.uplinks)))) or None,
            'health': ('error' if self.is_failing or problem is not None
                       else 'degraded' if error or degrading else 'ok')}
        if self.probe is not None:
            found['probe'] = reports.Responder(self.probe.address,
                                               self.probe.port)
        return found
