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

"""Checks of hosts before they are used: who runs, and what came of it.

Discoveries of the topology take turns with them: both need the network for
themselves, and rounds whose readings nobody else sees.
"""

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import enum
import logging
import threading
import time
from typing import Any
import uuid

from oslo_config import cfg

from virtco.decide import probes
from virtco import exception
from virtco.know import live_state
from virtco.know import reports
from virtco.measure import discovery
from virtco.measure import preflight
from virtco.measure import rounds
from virtco import metrics
from virtco.topology.formats import plain

LOG = logging.getLogger(__name__)

MOST_HOSTS = 1024
MOST_WAITING = 16
MOST_KEPT = 50
POLL_S = 0.02
#: The model knows the hosts of a group so long after its plan.
SETTLE_S = 1.0


class Purpose(enum.StrEnum):
    CHECK = 'check'
    DISCOVER = 'discover'


@dataclasses.dataclass
class Check:
    """:ivar state: waiting, running, done or failed.
    :ivar trigger: command or launch.
    :ivar n_failed: trains that brought no rate.
    :ivar planes: what a discovery found, as in ``PUT /v1/topology``; empty
        where no uplink limits anything.
    """

    check_id: str
    hosts: tuple[str, ...]
    trigger: str
    asked_s: float
    purpose: Purpose = Purpose.CHECK
    state: str = 'waiting'
    seconds: float | None = None
    n_rounds: int = 0
    n_rounds_done: int = 0
    n_failed: int = 0
    sent_bytes: float = 0.0
    findings: tuple[preflight.Finding, ...] = ()
    planes: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        found = {field.name: getattr(self, field.name)
                 for field in dataclasses.fields(self)
                 if field.name not in ('findings', 'asked_s')}
        return found | {'hosts': list(self.hosts), 'asked': self.asked_s,
                        'purpose': str(self.purpose),
                        'planes': list(self.planes),
                        'findings': [_to_dict(one) for one in self.findings]}


def _to_dict(found: preflight.Finding) -> dict[str, Any]:
    return {'kind': str(found.kind), 'subject': found.subject,
            'rate_bps': found.rate_bps, 'expected_bps': found.expected_bps,
            'evidence': [{'src': one.pair[0], 'dst': one.pair[1],
                          'rate_bps': one.rate_bps}
                         for one in found.evidence]}


class Checks:
    """Runs one check after another, on a thread that lives as long as there
    are some.

    Readings of lone pairs are measurements like any other. Those of loaded
    rounds say nothing of hosts, so nobody else sees them; a poor leaf uplink
    is told to the model, until a later check finds it well.
    """

    def __init__(self, conf: cfg.ConfigOpts, prober: probes.Prober,
                 live: live_state.LiveState, counts: metrics.Metrics,
                 changed: Callable[[], None], clock: Callable[[], float]):
        self._conf = conf.probe
        self._prober = prober
        self._live = live
        self._counts = counts
        self._changed = changed
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: collections.deque[Check] = collections.deque()
        self._known: collections.OrderedDict[str, Check] = (
            collections.OrderedDict())
        self._thread: threading.Thread | None = None
        self._stopped = False
        # Of the round under way: train -> pair, and what came of it.
        self._ordered: dict[str, tuple[str, str]] = {}
        self._loaded = False
        self._came: dict[tuple[str, str], reports.Measurement] = {}
        self._poor: dict[tuple[str, str], preflight.Finding] = {}
        # Groups that were planned, and when their hosts are known.
        self._new: dict[str, float] = {}
        self._checked_s: dict[str, float] = {}
        prober.on_measured.append(self._measured)

    def ask(self, hosts: Iterable[str], trigger: str = 'command',
            purpose: Purpose = Purpose.CHECK) -> Check:
        """Check these hosts as soon as no other check runs.

        :raises virtco.exception.Invalid: for fewer than two hosts, too many,
            one that is not known, or when too many checks wait.
        """
        names = tuple(dict.fromkeys(hosts))
        least, most = ((2, MOST_HOSTS) if purpose is Purpose.CHECK else (
            discovery.LEAST_HOSTS, discovery.MOST_HOSTS))
        if not least <= len(names) <= most:
            raise exception.Invalid(
                field='hosts', value=len(names),
                limit=f'{least} to {most} different ones')
        for name in names:
            if not self._live.is_known(name):
                raise exception.Invalid(field='hosts', value=name,
                                        limit='hosts that report')
        check = Check(str(uuid.uuid4()), names, trigger, self._clock(),
                      purpose)
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                raise exception.Invalid(
                    field='check', value=f'{MOST_WAITING} waiting',
                    limit=f'fewer than {MOST_WAITING} that wait')
            self._waiting.append(check)
            self._known[check.check_id] = check
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
            self._start()
        return check

    def _start(self) -> None:
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._work, name='check',
                                            daemon=True)
            self._thread.start()

    def planned(self, groups: Iterable[str]) -> None:
        """Check the hosts of new groups, once the model knows them."""
        with self._lock:
            self._new |= dict.fromkeys(groups, self._clock() + SETTLE_S)
            self._start()

    def launched(self, hosts: Collection[str]) -> Check | None:
        """A group is planned on these: check those that were not lately."""
        now_s = self._clock()
        with self._lock:
            old = [host for host in hosts if now_s - self._checked_s.get(
                host, -1e18) > self._conf.freshness_s]
        if not old or len(hosts) < 2:
            return None
        try:
            return self.ask(hosts, 'launch')
        except exception.Invalid as error:
            LOG.warning('No check at launch: %s', error)
            return None

    def get(self, check_id: str) -> Check:
        """:raises virtco.exception.NotFound:"""
        with self._lock:
            found = self._known.get(check_id)
        if found is None:
            raise exception.NotFound(what='Check', id=check_id)
        return found

    def all(self) -> list[Check]:
        """The newest last."""
        with self._lock:
            return list(self._known.values())

    def stop(self) -> None:
        self._stopped = True

    def takes(self, measurement: reports.Measurement) -> bool:
        """Whether a measurement is of a loaded round, and of no other use."""
        with self._lock:
            return self._loaded and measurement.probe_id in self._ordered

    def _measured(self, measurement: reports.Measurement) -> None:
        with self._lock:
            pair = self._ordered.get(measurement.probe_id)
            if pair is not None:
                self._came[pair] = measurement

    def _work(self) -> None:
        while True:
            self._look_at_new()
            with self._lock:
                if self._stopped or not (self._waiting or self._new):
                    self._thread = None
                    return
                check = self._waiting.popleft() if self._waiting else None
            if check is None:
                time.sleep(POLL_S)
                continue
            began_s = time.monotonic()
            check.state = 'running'
            try:
                self._prober.hold(True)
                if check.purpose is Purpose.CHECK:
                    self._run(check)
                else:
                    self._discover(check)
                check.state = 'done'
            except Exception:
                LOG.exception('Could not check %s.', ', '.join(check.hosts))
                check.state = 'failed'
            finally:
                self._prober.hold(False)
                check.seconds = time.monotonic() - began_s

    def _look_at_new(self) -> None:
        now_s = self._clock()
        with self._lock:
            due = [group for group, at_s in self._new.items()
                   if at_s <= now_s]
            for group in due:
                del self._new[group]
        for group in due:
            self.launched(self._live.hosts_of_group(group))

    def _run(self, check: Check) -> None:
        now_s = self._clock()
        tree = self._live.wire_tree(now_s)
        leaf_of = {host: tree.leaf_of[host] for host in check.hosts
                   if host in tree.leaf_of}
        uplinks = {one.name: (one.uplink_out_bps, one.uplink_in_bps)
                   for one in self._live.wire_tree(now_s, nominal=True)
                   .subtrees}
        planned = preflight.plan(check.hosts, leaf_of)
        check.n_rounds = len(planned)
        self._wait(self._prober.is_idle)
        readings: list[preflight.Reading] = []
        for number, one in enumerate(planned):
            if self._stopped:
                return
            readings += self._round(check, number, one)
            check.n_rounds_done = number + 1
        check.findings = preflight.judge(
            planned, readings, self._live.nominal_links_bps(check.hosts),
            leaf_of, uplinks)
        self._conclude(check, set(leaf_of.values()))

    def _discover(self, check: Check) -> None:
        self._wait(self._prober.is_idle)
        mixed = discovery.mixed_rounds(check.hosts)
        check.n_rounds = sum(map(len, mixed))
        readings = discovery.matrices(check.hosts, [
            {pair: rate_bps for pairs in repeat
             for pair, rate_bps in self._loaded_round(check, pairs).items()}
            for repeat in mixed])
        found = discovery.branches(check.hosts, readings)
        loads = discovery.loads(found)
        check.n_rounds += len(loads)
        plane = discovery.plane(found, check.hosts, readings, [
            (load, self._loaded_round(check, load.pairs)) for load in loads])
        if plane.roots:
            check.planes = (plain.dump_plane(plane),)

    def _loaded_round(self, check: Check, pairs: tuple[rounds.Pair, ...]
                      ) -> dict[rounds.Pair, float]:
        """Rates that say something of uplinks only."""
        if self._stopped:
            raise exception.Starting(why='the controller stops')
        found = self._round(check, check.n_rounds_done,
                            preflight.Round(pairs, loaded=True))
        check.n_rounds_done += 1
        return {one.pair: one.rate_bps for one in found}

    def _round(self, check: Check, number: int, planned: preflight.Round
               ) -> list[preflight.Reading]:
        with self._lock:
            self._came, self._loaded = {}, planned.loaded
            # Under the lock, as an answer may be faster than this thread.
            begun = self._prober.order(planned.pairs,
                                       repeats=not planned.loaded)
            self._ordered = {probe: pair for pair, probe in begun.items()}
        self._wait(lambda: len(self._came) == len(begun)
                   or self._prober.is_idle())
        with self._lock:
            came, self._ordered, self._loaded = dict(self._came), {}, False
        check.n_failed += len(planned.pairs) - len(came)
        check.sent_bytes += sum(one.sent_bytes or 0 for one in came.values())
        return [preflight.Reading(pair, number, one.rate_bps)
                for pair, one in came.items()]

    def _wait(self, is_over: Callable[[], bool]) -> None:
        until_s = time.monotonic() + float(self._conf.timeout_s) + 1
        while not (is_over() or self._stopped
                   or time.monotonic() > until_s):
            time.sleep(POLL_S)

    def _conclude(self, check: Check, leaves: Collection[str]) -> None:
        now_s = self._clock()
        subjects = {*check.hosts, *leaves}
        found = {(one.subject, str(one.kind)): one for one in check.findings}
        with self._lock:
            self._checked_s |= dict.fromkeys(check.hosts, now_s)
            for key in [key for key in self._poor if key[0] in subjects]:
                if key not in found:
                    LOG.info('Check: %s of %s is well again.', key[1], key[0])
                    self._poor.pop(key)
            self._poor |= found
            poor = dict(self._poor)
        for one in check.findings:
            LOG.warning('Check: %s', one)
        self._counts.poor.clear()
        for (subject, kind), one in poor.items():
            self._counts.poor.labels(kind, subject).set(
                one.rate_bps / one.expected_bps)
        self._live.set_poor_uplinks({
            subject: (_rate(poor, subject, preflight.Kind.UPLINK),
                      _rate(poor, subject, preflight.Kind.DOWNLINK))
            for subject, kind in poor
            if kind in (preflight.Kind.UPLINK, preflight.Kind.DOWNLINK)})
        self._changed()


def _rate(poor: dict[tuple[str, str], preflight.Finding], subject: str,
          kind: preflight.Kind) -> float:
    found = poor.get((subject, str(kind)))
    return found.rate_bps if found is not None else float('inf')
