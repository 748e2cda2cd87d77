# SPDX-License-Identifier: Apache-2.0

"""Reports to the controller, and the counters of the kernel in them."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import itertools
import pathlib
import threading
import time
from typing import Any
import uuid

from oslo_config import cfg

from edge_module import activity
from edge_module import counters
from edge_module import enforcer as edge_enforcer
from edge_module import heavy_ports
from edge_module import kept_state as state
from edge_module import rdma
from edge_module.qdisc import link_speed
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from virtco import exception
from virtco import units
from virtco.wire import edge_policy
from virtco.wire import reports

#: Looks at the classes take a hundredth of the time.
_REST = 100
#: Reports between two readings of the counters of VM pairs; each reading
#: takes 30 microseconds of processor time per pair.
PAIRS_PERIODS = 5
#: Looks at the classes in an interval, and least seconds from one to the next.
_LOOKS, _LOOK_S = 5, 0.1
#: Unmanaged traffic without a limit, as time of the full link between two
#: looks, from which it calls for a report: an eighth where these are 0.2 s
#: apart.
_FLOOD_S = 0.025
#: Seconds between readings of peers' bytes for profiles, which are hourly.
_PEERS_S = 30.0

_BOOT_ID = pathlib.Path('/proc/sys/kernel/random/boot_id')


def _addresses(destinations: Iterable[tuple[str, str]], most: int
               ) -> tuple[str, ...]:
    """Choose at most ``most`` Ethernet addresses, one port after the other.

    A port that sends to many addresses leaves the other ports their places.

    :param destinations: (device, Ethernet address).
    """
    chosen: dict[str, list[str]] = {}
    for dev, mac in sorted(destinations):
        chosen.setdefault(dev, []).append(mac)
    turns = itertools.zip_longest(*chosen.values())
    found = dict.fromkeys(mac for turn in turns for mac in turn
                          if mac is not None)
    return tuple(sorted(itertools.islice(found, most)))


class Readings:
    """Readings of the kernel's counters, usable from several threads.

    :param interval_s: seconds between reports.
    :param pairs_interval_s: least seconds between readings of the pairs.
    :param rows: result of :meth:`to_rows` before a restart.
    :ivar pairs: counters of VM pairs, as a report has them.
    :ivar peers: counters of unmanaged traffic by destination, likewise.
    :ivar destinations: (device, Ethernet address) of recent unmanaged
        packets.
    """

    def __init__(self, enforcer: edge_enforcer.Enforcer, interval_s: float,
                 pairs_interval_s: float, rows: Iterable[Any]):
        self.enforcer = enforcer
        self.counters = counters.Counters(rows)
        self.pairs: tuple[reports.PairCounter, ...] = ()
        self.peers: tuple[reports.PeerCounter, ...] = ()
        self.destinations: frozenset[tuple[str, str]] = frozenset()
        self.helper_cpu_s = 0.0
        self._wait_s = interval_s / 2
        self._pairs_interval_s = pairs_interval_s
        self._peers_interval_s = max(pairs_interval_s, min(
            _PEERS_S, 6 * pairs_interval_s))
        self._due_s: dict[Callable[..., None], float] = {}
        self._heavy = heavy_ports.HeavyPorts()
        self._activity = activity.Activity[int]()
        # All unmanaged traffic without a limit as one class: limits come with
        # the policy that answers a report, and until then a flood takes the
        # receiver's link from the coflows that arrive there.
        self._floods = activity.Activity[int]()
        self._limits_unmanaged = False
        self._counting = threading.Lock()

    def name(self, policy: edge_policy.EdgePolicy) -> None:
        """Set the coflows and limited hosts of classes from a policy."""
        with self._counting:
            self.counters.name_classes(policy.classes)
            self.counters.name_limits(policy.unmanaged)
            self._limits_unmanaged = policy.unmanaged is not None

    def read(self, now_s: float) -> None:
        """Read the counters.

        Counters of the classification are left out when it is being changed
        for longer than half an interval, so that the report is not late.

        :raises virtco.exception.VirtcoException: when the kernel refuses.
        """
        stats = self.enforcer.stats()
        with self._counting:
            self.counters.add_stats(stats)
            self.counters.add_rdma(*(rdma.read_bytes(
                self.enforcer.uplink.dev, is_sent)
                for is_sent in (True, False)))
        lock = self.enforcer.lock
        if not lock.acquire(timeout=self._wait_s):
            return
        try:
            self.enforcer.observe(stats, now_s)
            # Limits follow the destinations.
            self._take(now_s, self._read_destinations, share=0.03)
            self._take(now_s, self._read_pairs, least_s=self._pairs_interval_s)
            if not self._take(now_s, self._read_peers,
                              least_s=self._peers_interval_s):
                self._take(now_s, self._read_heavy, stats)
        finally:
            lock.release()

    def look(self) -> tuple[bool, float]:
        """Return whether a class of a coflow began or ceased to send, or a
        flood began, and the least seconds until the next look.
        """
        with self._counting:
            coflows = self.counters.coflow_minors
            limits_unmanaged = self._limits_unmanaged
        if not (coflows or limits_unmanaged):
            return False, 0.0
        start_s = time.thread_time()
        try:
            stats = self.enforcer.stats(with_drops=False)
        except (exception.VirtcoException, OSError):
            return False, 0.0  # the next report says so
        of_coflows = {key for key in stats
                      if key >= 0 and key % minors.FURTHER in coflows}
        has_changed = self._activity.has_changed(of_coflows, stats)
        if limits_unmanaged:
            sent_bytes = sum(
                one.sent_bytes for key, one in stats.items()
                if key >= 0 and minors.is_unlimited(key % minors.FURTHER))
            has_changed |= self._floods.has_changed(
                [0], {0: wire.ClassStats(sent_bytes)},
                _FLOOD_S * units.bps_to_bytes_per_s(self.enforcer.link_bps))
        return has_changed, _REST * (time.thread_time() - start_s)

    def forget_told(self) -> None:
        """Let all that has called for a report do so again."""
        self._activity.forget_told()
        self._floods.forget_told()

    def _take(self, now_s: float, reading: Callable[..., None],
              *arguments: object, least_s: float = 0.0, share: float = 0.01
              ) -> bool:
        """Make a reading unless it is too soon; return whether it was made.

        :param least_s: seconds from one to the next at least.
        :param share: part of the time that all of them may take.
        """
        if now_s < self._due_s.get(reading, 0.0):
            return False
        start_s = self._cpu_s()
        reading(*arguments)
        self._due_s[reading] = now_s + max(
            least_s, (self._cpu_s() - start_s) / share)
        return True

    def _cpu_s(self) -> float:
        """Return the processor time of this thread and of the helper, which
        has most of a reading.
        """
        self.helper_cpu_s = self.enforcer.uplink.kernel.cpu_s()
        return time.thread_time() + self.helper_cpu_s

    def _read_destinations(self) -> None:
        self.destinations = self.enforcer.classifier.destinations()

    def _read_pairs(self) -> None:
        counted = self.enforcer.classifier.counted()
        with self._counting:
            self.counters.add_pairs(counted)
            self.pairs = self.counters.pairs()

    def _read_peers(self, some: Collection[int] | None = None) -> None:
        """Read the destinations of some ports, of all where none are given.
        """
        counted = self.enforcer.classifier.peers(some)
        with self._counting:
            self.counters.add_peers(counted, is_part=some is not None)
            self.peers = self.counters.peers()

    def _read_heavy(self, stats: Mapping[int, wire.ClassStats]) -> None:
        """Read the destinations of the ports that send most unmanaged bytes.
        """
        some = self._heavy.find(stats, self.enforcer.classifier.ports(),
                                self.enforcer.link_bps)
        if some:
            self._read_peers(some)

    def counted(self) -> dict[str, Any]:
        """Return the fields of a report that are counters."""
        with self._counting:
            return {
                **self.counters.sums(),
                'coflows': self.counters.coflows(),
                'pairs': self.pairs,
                'peers': self.peers,
                'unmanaged': reports.UnmanagedCounters(
                    _addresses(self.destinations, edge_policy.MAX_MACS),
                    self.counters.limited()),
                'cpu_s': round(time.process_time() + self.helper_cpu_s, 3)}

    def limited_drops(self) -> dict[str, int]:
        """Return :meth:`edge_module.counters.Counters.limited_drops`."""
        with self._counting:
            return self.counters.limited_drops()

    def to_rows(self) -> list[Any]:
        with self._counting:
            return self.counters.to_rows()


class Reporter:
    """Makes a report each interval and hands it over for delivery.

    :param about: returns the fields of a report that are not counters: the
        applied policy and the agent's state.
    :param failed: called with an error of reading the kernel.
    :param deliver: called with each report.
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
        saved = files.load('totals')
        # Counters go on from their saved values, unless the host rebooted.
        if not isinstance(saved, dict) or (
                saved.get('boot_id') != self.boot_id):
            saved = {}
        self.epoch: str = saved.get('epoch') or uuid.uuid4().hex
        self.readings = Readings(
            enforcer, conf.edge.report_interval_s,
            PAIRS_PERIODS * conf.edge.report_interval_s, saved.get('rows', ()))
        self._now = threading.Event()
        self._look_due_s = 0.0

    def wake(self) -> None:
        """Make the next report at once."""
        self._now.set()

    def report(self) -> None:
        """Report until told to stop."""
        while not self._stop.is_set():
            started_s = time.monotonic()
            self._now.clear()
            self.last_report = self.make(started_s)
            self._deliver(self.last_report)
            left_s = (started_s + self.conf.edge.report_interval_s
                      - time.monotonic())
            # wake() ends the second wait, but reports stay 20 ms apart.
            self._stop.wait(min(0.02, max(0.0, left_s)))
            self._wait(started_s + self.conf.edge.report_interval_s)

    def _wait(self, until_s: float) -> None:
        """Wait until a report is due, or wanted, or a look calls for one."""
        look_s = max(_LOOK_S, self.conf.edge.report_interval_s / _LOOKS)
        while (now_s := time.monotonic()) < until_s - (
                rest_s := max(look_s, self._look_due_s - now_s)):
            if self._now.wait(rest_s):
                return
            has_changed, next_s = self.readings.look()
            self._look_due_s = time.monotonic() + next_s
            if has_changed:
                return
        self._now.wait(max(0.0, until_s - now_s))
        self.readings.forget_told()

    def make(self, now_s: float) -> reports.Report:
        """Read the kernel and return a report."""
        try:
            self.readings.read(now_s)
        except (exception.VirtcoException, OSError) as error:
            # The controller is to hear of it, with the counters as they were.
            self._failed(error)
        egress_bps = self.enforcer.link_bps
        # Before the ports, whose notes explain it.
        about = self._about()
        return reports.Report(
            boot_id=self.boot_id, boot_ms=time.clock_gettime_ns(
                time.CLOCK_BOOTTIME) // 1_000_000,
            epoch=self.epoch, link=reports.Link(
                egress_bps, link_speed.ingress_bps(self.conf, egress_bps),
                self.enforcer.uplink.dev,
                tuple(sorted(self.enforcer.host.macs)[:edge_policy.MAX_MACS])),
            ports=tuple(reports.Port(port.vm, port.dev, port.mac, port.ips,
                                     port.notes, *port.caps_bps)
                        for port in self.enforcer.noted_ports()),
            **self.readings.counted(), **about)

    def save(self) -> None:
        self._files.save('totals', {
            'boot_id': self.boot_id, 'epoch': self.epoch,
            'rows': self.readings.to_rows()})
