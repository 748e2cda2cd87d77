# SPDX-License-Identifier: Apache-2.0

"""Who measures whom next: rounds of disjoint pairs, one after the other."""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import functools
import secrets
import threading
import time
import uuid

import msgspec
from oslo_config import cfg

from virtco import exception
from virtco import metrics
from virtco.decide import asked
from virtco.measure import probe_budget as budget
from virtco.measure import round_schedule as schedule
from virtco.measure import rounds
from virtco.state import measured_rates
from virtco.wire import fields
from virtco.wire import probe as wire
from virtco.wire import probe_order
from virtco.wire import reports

RETRY_S = 30.0
STALE_REPORT_S = 30.0
#: Hosts that are about to be used are measured again so much earlier.
_AWAITED = 0.25
#: Time after which an unanswered train is given up, as at both of its ends.
TIMEOUT_S = 5.0
#: Time in which an operator's order reaches the edge modules.
_FETCHED_S = 3.0
#: Time of such an order beside TIMEOUT_S, at most.
ASKED_S = _FETCHED_S + probe_order.MOST_BULK_S
#: First letters of the ids of trains that operators asked for.
_ASKED = 'asked-'
#: Time for all orders of a round to arrive, and for its hosts to connect.
START_S = 0.5

@dataclasses.dataclass(frozen=True, slots=True)
class _Train:
    """A train under way.

    :ivar orders: orders of its hosts that did not fetch theirs yet.
    :ivar results: results of the order that the train belongs to; its own is
        added.
    :ivar start_s: time at which all connections of a round start; None without
        a round.
    :ivar is_asked: whether an operator asked for it: its result is not kept.
    """

    pair: asked.Pair
    probe_id: str
    give_up_s: float
    orders: dict[str, probe_order.Order] = dataclasses.field(repr=False)
    results: asked.Results
    start_s: float | None
    is_asked: bool


class Prober:
    """Hands out trains to their senders, and announces them to the receivers.

    :param measurable: the hosts that can be measured at a time; its second
        argument is the age from which on a report is too old, the third
        whether hosts with busy coflows are left out.
    """

    def __init__(self, conf: cfg.ConfigOpts, rates: measured_rates.Rates,
                 measurable: Callable[[float, float, bool],
                                      schedule.Measurable],
                 counts: metrics.Metrics | None = None,
                 clock: Callable[[], float] = time.time):
        self._conf = conf.probe
        self._rates = rates
        self._measurable = measurable
        self._counts = counts or metrics.Metrics()
        self._clock = clock
        self._lock = threading.RLock()
        #: Trains by sender, and by receiver.
        self._trains: dict[str, _Train] = {}
        self._expected: dict[str, _Train] = {}
        self._asked: list[asked.Asked] = []
        self._next_look_s = 0.0
        #: A check has the network for itself: nothing is begun meanwhile.
        self._held = False
        #: Functions called when trains were ordered out of turn.
        self.on_ordered: list[Callable[[], None]] = []

    def next_train(self, host: str) -> probe_order.Order | None:
        """Return the host's next order: send a train, or expect one."""
        with self._lock:
            self._look()
            for train in (self._trains.get(host), self._expected.get(host)):
                if train is not None and host in train.orders:
                    order = train.orders.pop(host)
                    if train.start_s is None:
                        return order
                    # From the order's arrival, as hosts' clocks differ.
                    return msgspec.structs.replace(order, start_in_s=max(
                        0.0, train.start_s - self._clock()))
            return None

    def hold(self, held: bool) -> None:
        """Begin no trains of the schedule, or go on with them."""
        with self._lock:
            self._held = held

    def look(self) -> None:
        """Give up trains that no host answers, and begin those that wait."""
        with self._lock:
            self._look()

    def is_idle(self) -> bool:
        """Return whether no train is under way."""
        with self._lock:
            self._look()
            return not self._trains

    def order(self, pairs: Iterable[asked.Pair],
              transfer: rounds.Transfer | None = None) -> asked.Results:
        """Begin these trains now.

        :param transfer: instead of a train a TCP connection that sends this
            much, all of them beginning at the same time. They count in the
            budget but are not held back by it, as trains are here.
        :returns: results, which are None until they come.

        Pairs that cannot be measured now are left out: a host is away, or has
        a coflow that should not be disturbed.
        """
        results: asked.Results = {}
        with self._lock:
            now_s = self._clock()
            found = self._measurable(now_s, STALE_REPORT_S, True)
            start_s = None if transfer is None else now_s + START_S
            for src, dst in pairs:
                if (src in self._trains or dst in self._expected
                        or not {src, dst} <= found.targets.keys()):
                    continue
                traffic = self._train() if transfer is None else (
                    probe_order.Bulk(transfer.most_s, transfer.size_bytes(min(
                        found.links_bps[src], found.links_bps[dst])),
                        rounds.WINDOW_S))
                self._plan.begin((src, dst), traffic.size_bytes, now_s)
                results[src, dst] = None
                self._begin((src, dst), found, start_s or now_s, traffic,
                            results, start_s)
        for tell in self.on_ordered:
            tell()
        return results

    def afford(self, hosts: Iterable[str], transfer: rounds.Transfer,
               n_rounds: int) -> None:
        """Check that the budget allows rounds in which each host sends and
        receives ``n_rounds`` times.

        :raises virtco.exception.Invalid: naming the limit that does not.
        """
        with self._lock:
            now_s = self._clock()
            budget = self._plan.budget
            links_bps = self._measurable(now_s, STALE_REPORT_S,
                                         False).links_bps
            needs_bytes = {host: n_rounds * transfer.size_bytes(
                links_bps[host]) for host in hosts if host in links_bps}
            if budget.is_spent(sum(needs_bytes.values()), now_s):
                raise exception.Invalid(
                    field='[probe] max_bytes_per_hour',
                    value=self._conf.max_bytes_per_hour,
                    limit=f'{sum(needs_bytes.values()) / 1e9:.3g} GB more '
                    'than was sent in the last hour')
            for host, size_bytes in needs_bytes.items():
                if not budget.allows(host, host, size_bytes, links_bps[host],
                                     now_s):
                    raise exception.Invalid(
                        field='[probe] max_link_share',
                        value=self._conf.max_link_share,
                        limit=f'enough for {host} to send '
                        f'{size_bytes / 1e9:.3g} GB within this hour, and to '
                        'receive as much')

    def called(self) -> set[str]:
        """Return the hosts that have an order which they do not know."""
        with self._lock:
            self._look()
            return {host for train in self._trains.values()
                    for host in train.orders}

    def done(self, measurement: reports.Measurement) -> bool:
        """Take a measurement, perhaps of a train of this process.

        :returns: whether it is one to be kept. What was asked for is not:
            it may be what TCP gets, or a train that is too short.
        """
        pair = measurement.src, measurement.dst
        with self._lock:
            now_s = self._clock()
            train = self._trains.get(pair[0])
            # Also of a train that was given up, or of another leader.
            is_asked = (measurement.method == 'bulk'
                        or measurement.probe_id.startswith(_ASKED))
            if train is not None and (train.pair, train.probe_id) == (
                    pair, measurement.probe_id):
                self._drop(train)
                sent_bytes = measurement.sent_bytes
                self._plan.ended(
                    pair, now_s,
                    None if sent_bytes is None else int(sent_bytes))
                self._counts.probes.labels('measured').inc()
                train.results[pair] = measurement
            if not is_asked:
                self._plan.measured(pair, now_s)
            self._count(now_s)
            is_over = not self._trains
        if is_over:
            # The next round need not wait until somebody looks.
            for order in self.on_ordered:
                order()
        return not is_asked

    def ask(self, request: wire.ProbeRequest) -> asked.Asked:
        """Measure these pairs soon."""
        one = asked.Asked(request, self._clock())
        with self._lock:
            self._asked.append(one)
        return one

    def _train(self) -> probe_order.Train:
        """Return a train of the schedule."""
        return probe_order.Train(self._conf.bursts, self._conf.packets,
                                 wire.PACKET_BYTES)

    def _begin(self, pair: asked.Pair, found: schedule.Measurable,
               begin_s: float, traffic: probe_order.Traffic,
               results: asked.Results, start_s: float | None = None,
               is_asked: bool = False) -> None:
        """Begin a train.

        :param begin_s: time at which it begins unless it is late.
        """
        src, dst = pair
        address, port = found.targets[dst]
        probe_id = _ASKED * is_asked + str(uuid.uuid4())
        # Known to these two hosts only, for this train only.
        key = secrets.token_hex(probe_order.KEY_BYTES)
        lasts_s = (traffic.lasts_s if isinstance(traffic, probe_order.Bulk)
                   else 0.0)
        self._trains[src] = self._expected[dst] = _Train(
            pair, probe_id, begin_s + lasts_s + TIMEOUT_S, {
                src: probe_order.Send(
                    probe_id=probe_id, key=key, peer=dst, address=address,
                    port=port, traffic=traffic, repeats=not is_asked),
                dst: probe_order.Receive(probe_id=probe_id, key=key,
                                         peer=src)},
            results, start_s, is_asked)

    def _drop(self, train: _Train) -> None:
        src, dst = train.pair
        del self._trains[src], self._expected[dst]

    @functools.cached_property
    def _plan(self) -> schedule.Schedule:
        """The schedule, with the ages of the readings when it is first used.
        """
        conf, now_s = self._conf, self._clock()
        plan = schedule.Schedule(schedule.Rules(
            conf.freshness_s, conf.freshness_s * _AWAITED, RETRY_S,
            self._train().size_bytes),
            budget.Budget(conf.max_link_share, conf.max_bytes_per_hour))
        ages = self._rates.age_s(now_s)
        for pair in sorted(ages, key=lambda pair: -ages[pair]):
            plan.measured(pair, now_s - ages[pair])
        return plan

    def _look(self) -> None:
        """Begin trains between hosts that are free and due."""
        now_s = self._clock()
        for train in list(self._trains.values()):
            if train.give_up_s <= now_s:
                self._drop(train)
                train.results[train.pair] = None
                if train.is_asked:
                    self._plan.ended(train.pair, now_s, None)
                else:
                    self._plan.failed(train.pair, now_s)
                self._counts.probes.labels('failed').inc()
        if (now_s < self._next_look_s or not self._conf.enabled
                or self._held):
            return
        self._next_look_s = now_s + self._conf.interval_s
        # Idle pairs only: a train would disturb a busy coflow, and measure the
        # rest that the coflow leaves.
        found = self._measurable(now_s, STALE_REPORT_S, True)
        self._begin_asked(found, now_s)
        for pair in self._plan.next(found.links_bps, now_s,
                                    awaited=found.awaited, tree=found.tree):
            self._begin(pair, found, now_s, self._train(), {})
        self._count(now_s)

    def _begin_asked(self, found: schedule.Measurable, now_s: float) -> None:
        """Begin trains that operators asked for, on hosts that are free."""
        free = found.targets.keys() - self._trains.keys() - (
            self._expected.keys())
        self._asked = [one for one in self._asked if not one.is_done()]
        for one in self._asked:
            traffic = asked.traffic(one.request)
            for pair in one.begin(free, now_s):
                self._plan.begin(
                    pair, 0 if isinstance(traffic, probe_order.Bulk)
                    else traffic.size_bytes, now_s)
                self._begin(pair, found, now_s + _FETCHED_S, traffic,
                            one.results, is_asked=True)

    def _count(self, now_s: float) -> None:
        """Set the metrics of the schedule's state."""
        self._counts.probe_bytes.set(self._plan.budget.spent_bytes(now_s))
        self._counts.probe_hosts.labels('fresh').set(self._plan.n_fresh)
        self._counts.probe_hosts.labels('held').set(self._plan.n_held)
        self._counts.probe_hosts.labels('due').set(
            self._plan.n_hosts - self._plan.n_fresh)

    def state(self) -> wire.Schedule:
        """Return the state and the cost of probing, ``GET /v1/probes``."""
        with self._lock:
            now_s = self._clock()
            conf, plan = self._conf, self._plan
            return wire.Schedule(
                enabled=conf.enabled, n_hosts=plan.n_hosts,
                n_fresh=plan.n_fresh, n_held=plan.n_held,
                all_pairs=plan.all_pairs, freshness_s=conf.freshness_s,
                under_way=[fields.Pair(*pair) for pair in plan.under_way],
                max_link_share=conf.max_link_share,
                max_bytes_per_hour=conf.max_bytes_per_hour,
                last_hour_bytes=plan.budget.spent_bytes(now_s))
