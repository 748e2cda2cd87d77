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
"""Counts and tells the controller, at once and once in an interval."""

from collections.abc import Callable
import pathlib
import threading
import time
from typing import Any
import uuid

from oslo_config import cfg
from oslo_log import log as logging

from edge_module import counters
from edge_module import enforcer as edge_enforcer
from edge_module.qdisc import link_speed
from edge_module import state
from edge_module import stream
from virtco import exception
from virtco.table import edge_policy

LOG = logging.getLogger(__name__)

_BOOT_ID = pathlib.Path('/proc/sys/kernel/random/boot_id')
_PAIRS_COST = 100


class Reporter:
    """Makes and delivers reports.

    :param about: the rest of a report: what is applied, and how it is.
    :param failed: takes an error of reading the kernel.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 enforcer: edge_enforcer.Enforcer, files: state.StateDir,
                 stop: threading.Event,
                 about: Callable[[], dict[str, Any]],
                 failed: Callable[[Exception], None],
                 connect: Callable[[], stream.Client]):
        self.conf = conf
        self.enforcer = enforcer
        self.last_report: dict[str, Any] = {}
        self.boot_id = _BOOT_ID.read_text().strip()
        self._files = files
        self._stop = stop
        self._about = about
        self._failed = failed
        self._connect = connect
        saved = files.load('counters') or {}
        # Counters go on where they stood, but for those of another boot.
        if saved.get('boot_id') != self.boot_id:
            saved = {}
        self.epoch: str = saved.get('epoch') or uuid.uuid4().hex
        self.counters = counters.Counters(saved.get('rows', ()))
        self._counting = threading.Lock()
        self._pairs: list[dict[str, Any]] = []
        self._pairs_due_s = 0.0
        self._destinations: frozenset[str] = frozenset()
        self._helper_cpu_s = 0.0
        self._undelivered: str | None = None
        self._now = threading.Event()

    def wake(self) -> None:
        """Whatever happens, the controller is to hear of it at once."""
        self._now.set()

    def report(self) -> None:
        """Report until told to stop."""
        client = self._connect()
        while not self._stop.is_set():
            started_s = time.monotonic()
            self._now.clear()
            try:
                self.last_report = self.make(started_s)
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
            self._now.wait(max(0.0, left_s))

    def make(self, now_s: float) -> dict[str, Any]:
        """The report as the controller wants it; reads the kernel."""
        try:
            self._read(now_s)
        except (exception.VirtcoException, OSError) as error:
            # The controller is to hear of it, with the counters as they were.
            self._failed(error)
        with self._counting:
            return self._made() | self._about()

    def _made(self) -> dict[str, Any]:
        shared = self.counters.shared()
        return {
            'boot_id': self.boot_id, 'epoch': self.epoch,
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
            'unmanaged': {
                'macs': sorted(self._destinations)[:edge_policy.MAX_MACS],
                'limited': self.counters.limited()},
            'cpu_s': round(time.process_time() + self._helper_cpu_s, 3)}

    def name(self, policy: edge_policy.EdgePolicy) -> None:
        """Learn whose the classes of a policy are."""
        with self._counting:
            self.counters.name_classes(policy.classes)
            self.counters.name_limits(policy.unmanaged)

    def _read(self, now_s: float) -> None:
        """Read the counters; those of the classification not while it is
        changed for so long that the report would be late.
        """
        stats = self.enforcer.uplink.stats()
        with self._counting:
            self.counters.add_stats(stats)
        lock = self.enforcer.lock
        if not lock.acquire(timeout=self.conf.edge.report_interval_s / 2):
            return
        try:
            self.enforcer.observe(stats, now_s)
            self._destinations = self.enforcer.classifier.destinations()
            if now_s >= self._pairs_due_s:
                self._read_pairs(now_s)
        finally:
            lock.release()

    def _read_pairs(self, now_s: float) -> None:
        """Many pairs are read less often: a percent of the time at most."""
        start_s = time.thread_time()
        counted = self.enforcer.classifier.counted()
        with self._counting:
            self.counters.add_pairs(counted)
            self._pairs = self.counters.pairs()
        self._helper_cpu_s = self.enforcer.uplink.kernel.cpu_s()
        cost_s = time.thread_time() - start_s
        self._pairs_due_s = now_s + max(self.conf.edge.pairs_interval_s,
                                        _PAIRS_COST * cost_s)

    def _link(self) -> dict[str, Any]:
        egress_bps = self.enforcer.link_bps
        return {'dev': self.enforcer.uplink.dev, 'egress_bps': egress_bps,
                'ingress_bps': link_speed.ingress_bps(self.conf, egress_bps)}

    def save(self) -> None:
        with self._counting:
            rows = self.counters.to_rows()
        self._files.save('counters', {
            'boot_id': self.boot_id, 'epoch': self.epoch, 'rows': rows})
