# SPDX-License-Identifier: Apache-2.0

"""Counts and tells the controller, at once and once in an interval."""

from collections.abc import Callable
import pathlib
import threading
import time
from typing import Any
import uuid

from oslo_config import cfg

from edge_module import enforcer as edge_enforcer
from edge_module import readings
from edge_module import state
from edge_module.qdisc import link_speed
from virtco import exception
from virtco.wire import reports

_BOOT_ID = pathlib.Path('/proc/sys/kernel/random/boot_id')


class Reporter:
    """Makes reports.

    :param about: the other fields of a report: what is applied, and how it
        is.
    :param failed: takes an error of reading the kernel.
    :param deliver: takes a report to the controller.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 enforcer: edge_enforcer.Enforcer, files: state.StateDir,
                 stop: threading.Event,
                 about: Callable[[], dict[str, Any]],
                 failed: Callable[[Exception], None],
                 deliver: Callable[[reports.Report], None]):
        self.conf = conf
        self.enforcer = enforcer
        self.last_report: reports.Report | None = None
        self.boot_id = _BOOT_ID.read_text().strip()
        self._files = files
        self._stop = stop
        self._about = about
        self._failed = failed
        self._deliver = deliver
        saved = files.load('counters') or {}
        # Counters go on where they stood, but for those of another boot.
        if saved.get('boot_id') != self.boot_id:
            saved = {}
        self.epoch: str = saved.get('epoch') or uuid.uuid4().hex
        self.readings = readings.Readings(
            enforcer, conf.edge.report_interval_s,
            conf.edge.pairs_interval_s, saved.get('rows', ()))
        self._now = threading.Event()

    def wake(self) -> None:
        """Whatever happens, the controller is to hear of it at once."""
        self._now.set()

    def report(self) -> None:
        """Report until told to stop."""
        while not self._stop.is_set():
            started_s = time.monotonic()
            self._now.clear()
            try:
                self.last_report = self.make(started_s)
                self._deliver(self.last_report)
            except exception.VirtcoException as error:
                self._failed(error)
            left_s = (started_s + self.conf.edge.report_interval_s
                      - time.monotonic())
            # Whatever happens, the controller hears of it at once, but not
            # more often than it can bear.
            self._stop.wait(min(0.02, max(0.0, left_s)))
            self._now.wait(max(0.0, left_s))

    def make(self, now_s: float) -> reports.Report:
        """The report as the controller wants it; reads the kernel."""
        try:
            self.readings.read(now_s)
        except (exception.VirtcoException, OSError) as error:
            # The controller is to hear of it, with the counters as they were.
            self._failed(error)
        return reports.Report(
            boot_id=self.boot_id, epoch=self.epoch, link=self._link(),
            ports=tuple(reports.Port(
                vm=port.vm, dev=port.dev, mac=port.mac, ips=tuple(port.ips),
                notes=tuple(port.notes))
                for port in self.enforcer.ports or ()),
            **self.readings.counted(), **self._about())

    def _link(self) -> reports.Link:
        egress_bps = self.enforcer.link_bps
        return reports.Link(egress_bps,
                            link_speed.ingress_bps(self.conf, egress_bps),
                            self.enforcer.uplink.dev)

    def save(self) -> None:
        self._files.save('counters', {
            'boot_id': self.boot_id, 'epoch': self.epoch,
            'rows': self.readings.to_rows()})
