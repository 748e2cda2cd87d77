# SPDX-License-Identifier: Apache-2.0

"""Remaining bytes of coflows, from cumulative counters. Pure."""

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
from typing import NamedTuple

import numpy as np

from virtco.scheduling import pilots
from virtco.wire import reports


class Span(NamedTuple):
    """From the first byte to the last one, as exactly as reports tell.

    A byte moved after the last report of its host that does not count it.

    :ivar first_s: the first byte moved between these two times.
    :ivar last_s: likewise the last one.
    """

    first_s: tuple[float, float]
    last_s: tuple[float, float]

    @classmethod
    def load(cls, first_byte_s: float, last_byte_s: float,
             cct_error_s: float) -> 'Span':
        """Load a span of its stored properties; both errors become equal."""
        error_s = (cct_error_s if first_byte_s == last_byte_s
                   else cct_error_s / 2)
        return cls((first_byte_s - error_s, first_byte_s + error_s),
                   (last_byte_s - error_s, last_byte_s + error_s))

    @property
    def first_byte_s(self) -> float:
        """Estimated time of the first byte: the middle of ``first_s``."""
        return sum(self.first_s) / 2

    @property
    def last_byte_s(self) -> float:
        """Estimated time of the last byte: the middle of ``last_s``."""
        return sum(self.last_s) / 2

    @property
    def cct_s(self) -> float:
        """Middle of the possible coflow completion times, in seconds."""
        return sum(self._bounds_s) / 2

    @property
    def cct_error_s(self) -> float:
        """The true CCT is at most so far from ``cct_s``."""
        least_s, most_s = self._bounds_s
        return (most_s - least_s) / 2

    @property
    def _bounds_s(self) -> tuple[float, float]:
        return (max(0.0, self.last_s[0] - self.first_s[1]),
                self.last_s[1] - self.first_s[0])


#: Longer than TCP's silences and the interval of reports.
FLOW_RESTS_S = 2.0
#: Share of its size that a flow has left until its end is known: the rest is
#: not known more exactly.
TAIL = 5e-3


class CoflowProgress:
    """Payload bytes sent per flow of one coflow.

    Counters are per host or per pair of hosts, sizes per pair of VMs: what
    was counted is spread over the flows it can belong to, by what they have
    left (that is how MADD serves them).

    :param stored: values that :meth:`to_stored` returned, perhaps without its
        end.
    :ivar sizes_bytes: hinted bytes of each flow, shape (n_flows,).
    :ivar sent_bytes: counted bytes of each flow within its hint, shape
        (n_flows,).
    :ivar excess_bytes: bytes sent beyond the hint.
    :ivar charged_bytes: bytes in all up to which debts were charged, among
        them all that were stored.
    :ivar span: times of the first and the last byte; None before the first
        byte.
    """

    def __init__(self, sizes_bytes: Sequence[float] | np.ndarray,
                 stored: Sequence[float] = ()):
        n_flows = len(sizes_bytes)
        self.sizes_bytes = np.array(sizes_bytes, np.float64)
        self.sent_bytes = np.zeros(n_flows)
        self.sent_bytes[:len(stored)] = stored[:n_flows]
        self.excess_bytes = float(sum(stored[n_flows:]))
        self.charged_bytes = self.all_bytes
        self.span: Span | None = None
        self._moved_s = np.full(len(sizes_bytes), -np.inf)
        self._credited: list[np.ndarray] = []

    def to_stored(self) -> list[float]:
        """Return bytes of each flow and then those beyond the hint."""
        return [*self.sent_bytes.round().tolist(),
                float(round(self.excess_bytes))]

    def next(self, stored: Sequence[float] = ()) -> 'CoflowProgress':
        """Return the progress of the next iteration.

        :param stored: stored progress of the next iteration, as for this one.
        """
        return CoflowProgress(self.sizes_bytes, stored)

    @property
    def all_bytes(self) -> float:
        """Bytes counted in all, those beyond the hint included."""
        return float(self.sent_bytes.sum()) + self.excess_bytes

    def remaining_bytes(self) -> np.ndarray:
        """Return the bytes that each flow has left, shape (n_flows,)."""
        return np.maximum(0.0, self.sizes_bytes - self.sent_bytes)

    def left_bytes(self) -> np.ndarray:
        """Return the bytes that each flow may have left, shape (n_flows,).

        Counters do not tell the last ones from none.
        """
        found: np.ndarray = np.maximum(self.sizes_bytes - self.sent_bytes,
                                       TAIL * self.sizes_bytes)
        return found

    def fill(self, flows: np.ndarray, payload_bytes: float) -> float:
        """Count bytes for the flows with these indices, as far as they have
        some left; the bytes that they took.
        """
        sent_bytes = self.sent_bytes[flows]
        left = np.maximum(0.0, self.sizes_bytes[flows] - sent_bytes)
        total_bytes = float(np.add.reduce(left))
        if not total_bytes or not payload_bytes:
            return 0.0
        used_bytes = min(payload_bytes, total_bytes)
        self.sent_bytes[flows] = sent_bytes + left * (
            used_bytes / total_bytes)
        self._credited.append(flows)
        return used_bytes

    def credit(self, flows: np.ndarray, payload_bytes: float,
               shares: np.ndarray | None = None) -> None:
        """Count ``payload_bytes`` for the flows with these indices; more than
        they have left is excess.

        :param shares: share of each of them, by the pairs' counters; the bytes
            that the flows have left are the better guide where their sizes are
            known.
        """
        used_bytes = self.fill(flows, payload_bytes)
        self.excess_bytes += payload_bytes - used_bytes
        if not used_bytes:
            self._credited.append(flows)

    def moved(self, between_s: tuple[float, float], is_first: bool) -> None:
        """Record that the credited bytes moved between these two times.

        :param is_first: whether the bytes before them were noise.
        """
        for flows in self._credited:
            self._moved_s[flows] = between_s[1]
        self._credited = []
        if is_first or self.span is None:
            self.span = Span(between_s, between_s)
            return
        # Hosts report by turns: of one that is late, the bytes may be older.
        (since_s, now_s), first_s, last_s = (
            between_s, self.span.first_s, self.span.last_s)
        self.span = Span((min(first_s[0], since_s), first_s[1]),
                         (max(last_s[0], since_s), max(last_s[1], now_s)))

    def resumed(self, now_s: float) -> None:
        """Restart the silence of each flow after a pause of all flows."""
        self._moved_s[self._moved_s > -np.inf] = now_s

    def rested_s(self, until_s: float | np.ndarray) -> np.ndarray:
        """Return the seconds since each flow's last bytes, shape (n_flows,); 0
        for a flow without bytes.
        """
        found = np.zeros(len(self._moved_s))
        np.subtract(until_s, self._moved_s, out=found,
                    where=self._moved_s > -np.inf)
        return found

    def complete(self, flows: np.ndarray) -> None:
        """Take flows that no uplink sees (same host) as sent."""
        self.sent_bytes[flows] = np.maximum(self.sent_bytes[flows],
                                            self.sizes_bytes[flows])


class Estimated(CoflowProgress):
    """Progress of a coflow whose sizes nobody said.

    Sizes follow what is counted: a flow that rests for :data:`FLOW_RESTS_S`
    while others send has ended, and those that ended tell how large a flow is
    (:func:`virtco.scheduling.pilots.remaining_bytes`, as in the simulator). A
    flow that does not begin with the others is taken for none until it sends.

    :param receivers: array of shape (n_flows,), a number for each receiver.
    """

    def __init__(self, receivers: np.ndarray,
                 stored: Sequence[float] = ()):
        super().__init__(np.zeros(len(receivers)), stored)
        self._receivers = receivers
        self._is_pilot = pilots.choose(len(receivers))
        self._is_local = np.zeros(len(receivers), bool)
        self._estimate(None)

    def _estimate(self, now_s: float | None) -> None:
        """Estimate the sizes by the sent bytes.

        :param now_s: time of the last byte; None before the first.
        """
        has_sent = self.sent_bytes > 0
        is_young = now_s is None or self.span is None or (
            now_s - self.span.first_s[0] < FLOW_RESTS_S)
        sends = (has_sent | is_young) & ~self._is_local
        has_ended = np.zeros(len(has_sent), bool)
        if now_s is not None:
            has_ended = has_sent & (now_s - self._moved_s >= FLOW_RESTS_S)
        self.sizes_bytes = self.sent_bytes.copy()
        if sends.any():
            self.sizes_bytes[sends] += pilots.remaining_bytes(
                self._receivers[sends], self.sent_bytes[sends],
                has_ended[sends], self._is_pilot[sends])

    def next(self, stored: Sequence[float] = ()) -> 'Estimated':
        return Estimated(self._receivers, stored)

    def credit(self, flows: np.ndarray, payload_bytes: float,
               shares: np.ndarray | None = None) -> None:
        if not len(flows):
            self.excess_bytes += payload_bytes
            return
        if shares is None:
            left = self.remaining_bytes()[flows]
            total = left.sum()
            shares = left / total if total > 0 else np.full(
                len(flows), 1 / len(flows))
        self.sent_bytes[flows] += shares * payload_bytes
        self._credited.append(np.asarray(flows)[shares > 0])

    def moved(self, between_s: tuple[float, float], is_first: bool) -> None:
        super().moved(between_s, is_first)
        self._estimate(between_s[1])

    def complete(self, flows: np.ndarray) -> None:
        """Leave flows inside of a host out; no uplink counts them."""
        if not self._is_local[flows].all():
            self._is_local[flows] = True
            self._estimate(None)


#: Counters of a host up to which none is looked at to be dropped.
MANY_COUNTERS = 1000
#: Epochs of a host whose last counters are kept besides those of the newest.
EARLIER_EPOCHS = 2
#: Thousands of idle hosts share it: an empty set of its own takes 216 bytes.
NOTHING: frozenset[str] = frozenset()


class Delta(NamedTuple):
    """Wire bytes of a coflow since the last report, to one host or to any."""

    coflow_id: str
    dst_host: str | None
    wire_bytes: float


class Step(NamedTuple):
    """Differences between a report and the counters before it.

    :ivar basis: number of changes of the counters before; see
        :attr:`HostCounters.n_changes`.
    :ivar before: names of the counters before.
    :ivar values: counters of the report, by name.
    :ivar deltas: new bytes of coflows.
    :ivar others_bytes: new bytes of other traffic: the uplink's, those that
        pass no class, and those of RDMA that came.
    """

    basis: int
    before: Set[str]
    values: Mapping[str, float]
    deltas: list[Delta]
    others_bytes: tuple[float, float, float]


class HostCounters:
    """The last counters of one edge module.

    A counter that went back without a new epoch (its class was made anew)
    starts from 0, too: bytes are then counted late rather than twice. An epoch
    that comes back goes on: two hosts may have one name.

    :ivar before: names of the counters before the last report.
    :ivar n_changes: how often counters were set or dropped.
    """

    def __init__(self, epoch: str = '',
                 values: Mapping[str, float] | None = None):
        self.epoch = epoch
        self.values: dict[str, float] = dict(values or {})
        self.before: Set[str] = NOTHING
        self.n_changes = 0
        self._earlier: dict[str, dict[str, float]] = {}
        self._most = MANY_COUNTERS
        # Names of the last report's counters, until they are tidied.
        self._reported: Set[str] = NOTHING

    def read(self, report: reports.Report,
             known: Container[str] | None = None) -> Step:
        """Compare a report with the counters, which stay as they are.

        :param known: coflows that there are; None: all that are reported. Of
            any other nothing but its bytes in all is of use.
        """
        basis, before = self.n_changes, self.values
        names = frozenset(before) or NOTHING
        if report.epoch != self.epoch:
            before = self._earlier.get(report.epoch, {})
        values: dict[str, float] = {}

        def step(key: str, value: float) -> float:
            last = values.get(key)  # a report may name a class twice
            if last is None:
                last = before.get(key, 0.0)
            values[key] = value
            return value - last if value >= last else value

        deltas: list[Delta] = []
        managed = 0.0
        for counter in report.coflows:
            if known is None or counter.coflow_id in known:
                deltas += _coflow_deltas(counter, step)
            else:
                managed += step(counter.coflow_id, counter.sent_bytes)
        uplink = step('/uplink', report.uplink_sent_bytes)
        managed += sum([delta.wire_bytes for delta in deltas])
        # Hosts that never sent such bytes have no counter of them.
        return Step(basis, names, values, deltas, (
            max(0.0, uplink - managed),
            report.unshaped_sent_bytes and step(
                '/unshaped', report.unshaped_sent_bytes),
            report.rdma_received_bytes and step(
                '/received', report.rdma_received_bytes)))

    def update(self, report: reports.Report, step: Step | None = None
               ) -> Step:
        """Take the counters of a report; return its differences.

        :param step: result of :meth:`read` a moment ago; it counts unless
            the counters have changed since.
        """
        if step is None or step.basis != self.n_changes:
            step = self.read(report)
        if report.epoch != self.epoch:
            self._earlier[self.epoch] = self.values
            self.epoch = report.epoch
            self.values = self._earlier.pop(report.epoch, {})
            while len(self._earlier) > EARLIER_EPOCHS:
                del self._earlier[next(iter(self._earlier))]
        self.values.update(step.values)
        self.before, self._reported = step.before, step.values.keys()
        self.n_changes += 1
        return step

    def forget(self, coflow_ids: Set[str]) -> None:
        """Drop the counters of coflows that are over."""
        for values in (self.values, *self._earlier.values()):
            for key in [key for key in values
                        if key.partition('/')[0] in coflow_ids]:
                del values[key]
        self.n_changes += 1

    def tidy(self, may_return: Callable[[str, str], bool]) -> None:
        """Drop counters that the last report does not have, once there are
        twice as many as the last time.

        :param may_return: see :func:`stored`.
        """
        reported, self._reported = self._reported, NOTHING
        if len(self.values) <= self._most:
            return
        for key in self.values.keys() - reported:
            coflow_id, _, host = key.partition('/')
            if coflow_id and not may_return(coflow_id, host):
                del self.values[key]
        self._most = max(MANY_COUNTERS, 2 * len(self.values))
        self.n_changes += 1


def stored(values: Mapping[str, float],
           may_return: Callable[[str, str], bool]) -> Mapping[str, float]:
    """Return the counters to be stored: of very many those alone that count
    for a coflow.

    :param may_return: whether the class of a coflow, or its child for a host,
        may come back without a new beginning.
    """
    if len(values) <= MANY_COUNTERS:
        return values
    found = {}
    for key, value in values.items():
        coflow_id, _, host = key.partition('/')
        if not coflow_id or may_return(coflow_id, host):
            found[key] = value
    return found


def _coflow_deltas(counter: reports.CoflowCounters,
                   step: Callable[[str, float], float]) -> Iterator[Delta]:
    """Yield the new bytes of a coflow per destination, then the rest.

    :param step: returns the new bytes of a counter.
    """
    coflow_id = counter.coflow_id
    rest_bytes = step(coflow_id, counter.sent_bytes)
    for one in counter.destinations:
        new_bytes = step(f'{coflow_id}/{one.host}', one.sent_bytes)
        rest_bytes -= new_bytes
        if new_bytes > 0:
            yield Delta(coflow_id, one.host, new_bytes)
    if rest_bytes > 0:
        yield Delta(coflow_id, None, rest_bytes)


class Average:
    """Exponentially weighted rate in bits per second."""

    def __init__(self, half_life_s: float, value: float = 0.0):
        self.half_life_s = half_life_s
        self.value = value
        self._at_s: float | None = None

    def restore(self, value: float, at_s: float) -> None:
        """Set the stored value and its time."""
        self.value, self._at_s = value, at_s

    def add(self, rate: float, now_s: float) -> float:
        if self._at_s is None:
            self.value = rate
        else:
            keep = 0.5 ** (max(0.0, now_s - self._at_s) / self.half_life_s)
            self.value = keep * self.value + (1 - keep) * rate
        self._at_s = now_s
        return self.value
