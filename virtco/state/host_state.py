# SPDX-License-Identifier: Apache-2.0

"""State of a hypervisor, by the reports of its edge module. Pure."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import math
from typing import Any
from typing import NamedTuple
from typing import TYPE_CHECKING

import msgspec

from virtco import units
from virtco.state import addresses
from virtco.state import byte_counters
from virtco.state import pair_counters
from virtco.state import unmanaged_bytes
from virtco.state import uplink_rates
from virtco.table import coflow_table
from virtco.wire import edge_policy
from virtco.wire import reports

if TYPE_CHECKING:
    from virtco.db import models

OBSERVED_HALF_LIFE_S = 1.0
#: No report comes later than this after a newer one. A time that is further
#: ahead is a wrong one, and would keep out all that follow.
OVERTAKEN_MS = 3_600_000
#: Reports of a host by which all is decided at once, in the long run and in a
#: row: coflows begin and end there, and it may say whatever it likes.
HURRIES_PER_S, MOST_HURRIES = 2.0, 20
#: Edge modules look at their counters each second by default.
LOOKS_S = 2.0
#: Part of the time since the last report that a host may say to have passed. A
#: shorter one would make it look as if it sent more than it counts.
LEAST_PART = 0.25
_OTHERS = 'background_bps', 'unshaped_bps', 'received_bps'


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """State of a host for display.

    :ivar report: last report.
    :ivar observed_bps: observed rate of each coflow.
    :ivar deltas: bytes of the last report, by coflow and destination.
    """

    host: str
    capacity: uplink_rates.Capacity
    last_report_s: float | None
    report: reports.Report
    background_bps: float
    observed_bps: Mapping[str, float]
    deltas: Sequence[byte_counters.Delta] = ()


class Taken(NamedTuple):
    """Differences between a report and the one before.

    :ivar since_s: time at which the counters of the report before were read;
        now, where they began at 0.
    :ivar lasts_s: time between the two, 0 where they began at 0.
    :ivar new_flood: whether it sends much unmanaged traffic to VMs that it did
        not send to before.
    """

    since_s: float
    lasts_s: float
    new_ports: bool
    new_link: bool
    new_flood: bool
    deltas: list[byte_counters.Delta]


class HostState:
    """Counters, measurements and orders of one host.

    :ivar others: rates of other traffic, named as in :data:`_OTHERS`.
    :ivar vms: VMs with a port in the last report.
    :ivar vm_of: VM of each MAC address of a port.
    :ivar new_vms: VMs without a port in the report before.
    """

    def __init__(self, host: str, first_seen: float, half_life_s: float):
        self.host = host
        self.first_seen = first_seen
        self.last_report: float | None = None
        self.report = reports.NO_REPORT
        self.counters = byte_counters.HostCounters()
        self.pair_counters: pair_counters.PairCounters | None = None
        self.peers = pair_counters.PeerCounters()
        self.background, self.unshaped, self.received = self.others = tuple(
            byte_counters.Average(half_life_s) for _ in _OTHERS)
        self.vms: Set[str] = byte_counters.NOTHING
        self.new_vms: Set[str] = byte_counters.NOTHING
        self.sending: Set[str] = byte_counters.NOTHING
        self.minors = coflow_table.NO_MINORS
        self.observed: dict[str, byte_counters.Average] = {}
        self.deltas: Sequence[byte_counters.Delta] = ()
        self.towards = unmanaged_bytes.Towards()
        self.unmanaged: edge_policy.Unmanaged | None = None
        self.macs = byte_counters.NOTHING
        self.vm_of: Mapping[str, str] = {}
        # Its own time of the last sign of life, where that was a report.
        self._told_ms: int | None = None
        self._hurried_s = -math.inf
        self._loaded: int | None = None

    @property
    def is_stored(self) -> bool:
        """Whether it was read from the database."""
        return self._loaded is not None

    def learn_ports(self) -> None:
        """Take the VMs and MAC addresses of the newest report."""
        self.vms = ({port.vm for port in self.report.ports}
                    or byte_counters.NOTHING)
        self.vm_of = {mac: port.vm for port in self.report.ports
                      if addresses.MAC.fullmatch(mac := port.mac.lower())}
        self.macs = (frozenset(self.report.link.macs).union(self.vm_of)
                     or byte_counters.NOTHING)

    def is_home(self, mac: str, runs_at: Callable[[str], str | None]) -> bool:
        """Tell whether a MAC address is of a VM that runs here.

        :param runs_at: returns the host on which Nova has a VM.
        """
        return mac in self.vm_of and runs_at(self.vm_of[mac]) == self.host

    def has_overtaken(self, report: reports.Report) -> bool:
        """Return whether a later report came before this one, which would look
        like counters that begin at 0.
        """
        at_ms, last_ms = report.boot_ms, self.report.boot_ms
        return (at_ms is not None and last_ms is not None
                and 0 < last_ms - at_ms <= OVERTAKEN_MS
                and report.boot_id == self.report.boot_id)

    def may_hurry(self, now_s: float) -> bool:
        """Tell whether a report may have all decided at once; those beyond
        :data:`HURRIES_PER_S` wait for the next turn.
        """
        latest_s = now_s + MOST_HURRIES / HURRIES_PER_S
        # The clock may have been set back.
        self._hurried_s = min(max(self._hurried_s, now_s), latest_s)
        if self._hurried_s + 1 / HURRIES_PER_S > latest_s:
            return False
        self._hurried_s += 1 / HURRIES_PER_S
        return True

    def take(self, report: reports.Report, now_s: float,
             step: byte_counters.Step | None = None) -> Taken:
        """Take in a report.

        :param step: its differences, where they are known.
        """
        last_s = self.last_report
        since_s = (last_s if last_s is not None
                   and self.counters.epoch == report.epoch else now_s)
        lasts_s = self._lasts_s(report, now_s - since_s)
        new_ports = self.report.ports != report.ports
        new_link = last_s is None or self.report.link != report.link
        step = self.counters.update(report, step)
        vms, self.report, self.last_report = self.vms, report, now_s
        self._told_ms = report.boot_ms
        if new_ports or new_link:
            self.learn_ports()
        self.new_vms = self.vms - vms or byte_counters.NOTHING
        self.deltas = step.deltas
        if lasts_s > 0:
            self.observe(step.deltas, lasts_s, step.others_bytes, now_s)
        new_flood = self.towards.update(report, self.unmanaged, lasts_s,
                                        now_s)
        return Taken(since_s, lasts_s, new_ports, new_link, new_flood,
                     step.deltas)

    def _lasts_s(self, report: reports.Report, elapsed_s: float) -> float:
        """Return the time that a report is about, by the host's own clock if
        it tells that: some reports take longer to come than others, and rates
        that change for this alone make new policies.

        :param elapsed_s: time since the last sign of life.
        """
        if (elapsed_s <= 0 or self._told_ms is None or report.boot_ms is None
                or report.boot_id != self.report.boot_id):
            return elapsed_s
        own_s = units.ms_to_s(report.boot_ms - self._told_ms)
        return max(own_s, LEAST_PART * elapsed_s)

    def observe(self, deltas: Iterable[byte_counters.Delta], elapsed_s: float,
                others_bytes: Sequence[float], now_s: float) -> None:
        """Turn the bytes counted since the last report into rates."""
        for average, new_bytes in zip(self.others, others_bytes):
            average.add(units.bytes_per_s_to_bps(new_bytes / elapsed_s),
                        now_s)
        moved = {counters.coflow_id: 0.0 for counters in self.report.coflows}
        for delta in deltas:
            moved[delta.coflow_id] += delta.wire_bytes
        kept = {}
        for coflow_id, wire_bytes in moved.items():
            average = kept[coflow_id] = (
                self.observed.get(coflow_id)
                or byte_counters.Average(OBSERVED_HALF_LIFE_S))
            average.add(units.bytes_per_s_to_bps(
                wire_bytes / elapsed_s), now_s)
        self.observed = kept

    def heard(self, now_s: float) -> None:
        """Record that the host sent no bytes since its last report, unless
        that is recent: a sign of life is no look at the counters.
        """
        if self.last_report is None:
            return
        elapsed_s = now_s - self.last_report
        if self.deltas and elapsed_s < LOOKS_S:
            return
        # Thousands of idle hosts are heard each second.
        if elapsed_s > 0 and (self.observed or self.background.value
                              or self.unshaped.value or self.received.value):
            self.observe((), elapsed_s, (0.0,) * len(_OTHERS), now_s)
        self.last_report = now_s
        self._told_ms = None

    def view(self, capacity: uplink_rates.Capacity) -> View:
        return View(self.host, capacity, self.last_report, self.report,
                    self.background.value,
                    {coflow_id: average.value for coflow_id, average
                     in self.observed.items()}, self.deltas)

    def columns(self) -> dict[str, Any]:
        """Return the host's row; :func:`encoded` makes texts of its parts."""
        return {
            'host': self.host, 'first_seen': self.first_seen,
            'last_report': self.last_report, 'minors': self.minors,
            'report': _Kept(**msgspec.structs.asdict(self.report) | _UNKEPT | {
                'counters': _Counters(self.counters.epoch,
                                      dict(self.counters.values)),
                **{name: round(average.value) for name, average
                   in zip(_OTHERS, self.others)}})}

    @property
    def known_link(self) -> reports.Link | None:
        """None before the first report."""
        return None if self.last_report is None else self.report.link

    def load(self, stored: 'models.Host') -> bool:
        """Load a stored host; return whether its report changed since the last
        load.
        """
        self.first_seen = stored.first_seen
        self.last_report = stored.last_report
        texts = hash((stored.report, stored.minors))
        if texts == self._loaded:
            return False
        self._loaded = texts
        # A host without a report is known from Nova alone.
        if stored.last_report is not None:
            kept = _KEPT.decode(stored.report)
            self.report = reports.Report(**{
                name: getattr(kept, name) for name in _REPORTED})
            self.counters = byte_counters.HostCounters(
                kept.counters.epoch, kept.counters.values)
            for name, average in zip(_OTHERS, self.others):
                average.restore(getattr(kept, name), stored.last_report)
        self.learn_ports()
        minors = _MINORS.decode(stored.minors)
        if minors.taken:
            self.minors = minors
        return True


class _Counters(msgspec.Struct, frozen=True):
    epoch: str = ''
    values: Mapping[str, float] = {}


class _Kept(reports.Report, frozen=True, kw_only=True):
    """A report as it is stored: without its counters, with their values.

    They change with each report, so they are kept in one place only.

    :ivar background_bps: observed of what belongs to no coflow.
    :ivar unshaped_bps: observed part of it that passes no class.
    :ivar received_bps: observed of RDMA that comes.
    """

    coflows: tuple[reports.CoflowCounters, ...] = ()
    counters: _Counters = _Counters()
    background_bps: float = 0.0
    unshaped_bps: float = 0.0
    received_bps: float = 0.0


_REPORTED = reports.Report.__struct_fields__
_UNKEPT: dict[str, Any] = dict.fromkeys(('coflows', 'pairs', 'peers'), ())
_KEPT = msgspec.json.Decoder(_Kept)
_MINORS = msgspec.json.Decoder(coflow_table.Minors)


def encoded(columns: dict[str, Any],
            may_return: Callable[[str, str], bool] = lambda coflow, host: True
            ) -> dict[str, Any]:
    """Encode a host's columns; it takes long, so hold no lock.

    :param may_return: see :func:`virtco.state.byte_counters.stored`.
    """
    kept: _Kept = columns['report']
    values = byte_counters.stored(kept.counters.values, may_return)
    columns = columns | {'report': msgspec.structs.replace(
        kept, counters=_Counters(kept.counters.epoch, values))}
    return columns | {name: msgspec.json.encode(columns[name]).decode()
                      for name in ('report', 'minors')}
