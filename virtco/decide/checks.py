# SPDX-License-Identifier: Apache-2.0

"""Checks of hosts before use: the queue of checks, and their results.

Discoveries of the topology take turns with checks: both need the network for
themselves, and rounds of measurements whose readings are theirs alone.
"""

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
import json
import logging
import threading
import time
from typing import Any

import msgspec
from oslo_config import cfg

from virtco import exception
from virtco.decide import probes
from virtco.measure import discovery
from virtco.measure import preflight
from virtco.measure import rounds
from virtco.state import live_state
from virtco.topology.formats import plain
from virtco.wire import check as wire
from virtco.wire import reports

LOG = logging.getLogger(__name__)

MOST_HOSTS = 1024
MOST_WAITING = 16
POLL_S = 0.02
#: Attempts at a round whose connections did not all send together.
TRIES = 2


class Check:
    """A check or discovery that makes progress.

    :param asked: check that has not begun, or begins again.
    :ivar now: result so far.
    """

    def __init__(self, asked: wire.Check):
        self.now = wire.Check(
            check_id=asked.check_id, hosts=asked.hosts, trigger=asked.trigger,
            asked=asked.asked, purpose=asked.purpose)

    def note(self, **values: Any) -> None:
        self.now = msgspec.structs.replace(self.now, **values)

    def count(self, **more: float) -> None:
        self.note(**{name: getattr(self.now, name) + value
                     for name, value in more.items()})


class Checks:
    """Runs one check after another, on a thread that lives as long as there
    are some.

    Readings of lone pairs are measurements like any other. Those of loaded
    rounds say nothing of hosts, so nobody else sees them.

    :param conclude: is called with hosts and leaves, and all that was found
        of them.
    """

    def __init__(self, conf: cfg.ConfigOpts, prober: probes.Prober,
                 live: live_state.LiveState,
                 conclude: Callable[[Collection[str], Iterable[
                     wire.Finding]], None],
                 clock: Callable[[], float] = time.time):
        self._conf = conf.probe
        self._prober = prober
        self._live = live
        self._conclude = conclude
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: collections.deque[Check] = collections.deque()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def checked(self, hosts: Iterable[str], purpose: wire.Purpose
                ) -> list[str]:
        """Return the hosts, each once.

        :raises virtco.exception.Invalid: for too few or too many, or one
            that is not known.
        """
        names = list(dict.fromkeys(hosts))
        least, most = ((2, MOST_HOSTS) if purpose == 'check' else (
            discovery.LEAST_HOSTS, discovery.MOST_HOSTS))
        if not least <= len(names) <= most:
            raise exception.Invalid(
                field='hosts', value=len(names),
                limit=f'{least} to {most} different hosts')
        for name in names:
            if not self._live.is_known(name):
                raise exception.Invalid(field='hosts', value=name,
                                        limit='a host that reports')
        if purpose == 'discover':
            # Half of them send in a round; the uplinks take about as many.
            self._prober.afford(names, rounds.DISCOVER, sum(
                map(len, discovery.mixed_rounds(names))))
        return names

    def take(self, check: Check) -> None:
        """Run it as soon as no other one runs.

        :raises virtco.exception.Invalid: as :meth:`checked`.
        """
        self.checked(check.now.hosts, check.now.purpose)
        with self._lock:
            self._waiting.append(check)
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(
                    target=self._work, name='check', daemon=True)
                self._thread.start()

    def stop(self) -> None:
        self._stopped = True

    def _work(self) -> None:
        """Carry out the waiting checks, one after another, then end."""
        while True:
            with self._lock:
                if self._stopped or not self._waiting:
                    self._thread = None
                    return
                check = self._waiting.popleft()
            began_s = time.monotonic()
            check.note(state='running')
            hosts = ', '.join(check.now.hosts)
            state, why = 'failed', None
            try:
                self._prober.hold(True)
                self._wait(self._prober.is_idle, probes.ASKED_S)
                if check.now.purpose == 'check':
                    self._run(check)
                else:
                    self._discover(check)
                state = 'done'
            except exception.VirtcoException as error:
                # As of hosts that nobody could measure.
                why = str(error)
                LOG.warning('Could not check %s: %s', hosts, error)
            except Exception as error:
                why = str(error)
                LOG.exception('Could not check %s.', hosts)
            finally:
                self._prober.hold(False)
                # A stopped check is left to the next leader.
                if not self._stopped:
                    check.note(state=state, why=why,
                               seconds=time.monotonic() - began_s)

    def _run(self, check: Check) -> None:
        """Measure the rounds of a check, and judge hosts and uplinks."""
        hosts, now_s = check.now.hosts, self._clock()
        tree = self._live.wire_tree(now_s)
        leaf_of = {host: tree.leaf_of[host] for host in hosts
                   if host in tree.leaf_of}
        uplinks = {one.name: (one.uplink_out_bps, one.uplink_in_bps)
                   for one in self._live.wire_tree(now_s, nominal=True)
                   .subtrees}
        planned = preflight.plan(hosts, leaf_of)
        check.note(n_rounds=len(planned))
        measured = []
        for one in planned:
            if self._stopped:
                return
            measured.append(self._round(check, one))
            check.count(n_rounds_done=1)
        if self._stopped:
            return  # The last round was left before its end.
        LOG.debug('Readings of check %s: %s', check.now.check_id, json.dumps(
            [(number, planned[number].loaded, *pair, rate_bps)
             for number, rates_bps in enumerate(measured)
             for pair, rate_bps in rates_bps.items()]))
        check.note(findings=list(preflight.judge(
            planned, measured, self._live.nominal_links_bps(hosts), leaf_of,
            uplinks)))
        # Findings about hosts and uplinks without a reading are kept.
        came = list(zip(planned, measured))
        self._conclude({
            *(host for one, rates_bps in came if not one.loaded
              for pair in rates_bps for host in pair),
            *preflight.loaded_leaves((
                one for one, rates_bps in came
                if len(rates_bps) == len(one.pairs)), leaf_of)},
            check.now.findings)

    def _discover(self, check: Check) -> None:
        """Measure mixed rounds, and infer the network's tree from them."""
        hosts = check.now.hosts
        mixed = discovery.mixed_rounds(hosts)
        check.note(n_rounds=sum(map(len, mixed)))
        readings = discovery.matrices(hosts, [
            {pair: rate_bps for pairs in repeat
             for pair, rate_bps in self._loaded_round(check, pairs).items()}
            for repeat in mixed])
        found = discovery.branches(hosts, readings)
        loads = discovery.loads(found)
        check.count(n_rounds=len(loads))
        plane = discovery.plane(found, hosts, readings, [
            (load, self._loaded_round(check, load.pairs)) for load in loads])
        if plane.roots:
            check.note(planes=[plain.dump_plane(plane)])

    def _loaded_round(self, check: Check, pairs: tuple[rounds.Pair, ...]
                      ) -> dict[rounds.Pair, float]:
        """Measure the pairs of a round that loads uplinks."""
        if self._stopped:
            raise exception.Starting(why='the controller stops')
        found = self._together(check, pairs, rounds.DISCOVER)
        check.count(n_rounds_done=1)
        return found

    def _round(self, check: Check, planned: preflight.Round
               ) -> dict[rounds.Pair, float]:
        """Measure a planned round; return the rates that came."""
        if planned.loaded:
            return self._together(check, planned.pairs, rounds.CHECK)
        came = self._measure(check, planned.pairs)
        check.count(n_failed=len(planned.pairs) - len(came))
        return {pair: one.rate_bps for pair, one in came.items()}

    def _together(self, check: Check, pairs: Sequence[rounds.Pair],
                  transfer: rounds.Transfer) -> dict[rounds.Pair, float]:
        """Measure the pairs while all of them send; once more where they did
        not.
        """
        found: dict[rounds.Pair, float] = {}
        for _ in range(TRIES):
            came = self._measure(check, pairs, transfer)
            found = rounds.rates_bps({pair: one.windows_bytes or ()
                                        for pair, one in came.items()})
            if len(found) == len(pairs) or self._stopped:
                break
        check.count(n_failed=len(pairs) - len(found))
        return found

    def _measure(self, check: Check, pairs: Sequence[rounds.Pair],
                 transfer: rounds.Transfer | None = None
                 ) -> dict[rounds.Pair, reports.Measurement]:
        """Order the pairs' trains or transfers, and wait for the results."""
        ordered = self._prober.order(pairs, transfer)
        self._wait(self._prober.is_idle, 0.0 if transfer is None
                   else probes.START_S + transfer.most_s)
        came = {pair: one for pair, one in ordered.items() if one is not None}
        check.count(sent_bytes=sum(one.sent_bytes or 0
                                   for one in came.values()))
        return came

    def _wait(self, is_over: Callable[[], bool], more_s: float = 0.0) -> None:
        """Wait until a condition holds, the checks stop or it takes too long.
        """
        until_s = time.monotonic() + probes.TIMEOUT_S + 1 + more_s
        while not (is_over() or self._stopped
                   or time.monotonic() > until_s):
            time.sleep(POLL_S)
