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

"""Who measures whom next: rounds of disjoint pairs, one after the other."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import threading
import time
from typing import Any
import uuid

from oslo_config import cfg

from virtco.know import rates
from virtco.measure import rounds

POLL_S = 1.0
RETRY_S = 30.0
STALE_REPORT_S = 30.0


# Address and port of a responder.
Target = tuple[str, int]


@dataclasses.dataclass
class _Train:
    probe_id: str
    pair: tuple[str, str]
    give_up_s: float
    fetched: bool = False


class Prober:
    """Hands out one train per sender, and waits for a round to end before it
    begins the next.

    :param responders: the hosts that can be measured at the moment.
    """

    def __init__(self, conf: cfg.ConfigOpts, rates: rates.Rates,
                 responders: Callable[[float, float, bool],
                                      Mapping[str, Target]],
                 clock: Callable[[], float] = time.time):
        self._conf = conf.probe
        self._rates = rates
        self._responders = responders
        self._clock = clock
        self._changed = threading.Condition()
        self._round: dict[str, _Train] = {}
        self._failed: dict[tuple[str, str], float] = {}
        self._next_look_s = 0.0
        self._closed = False

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next_train(self, host: str, timeout_s: float,
                   is_gone: Callable[[], bool] = lambda: False
                   ) -> dict[str, Any] | None:
        """The train ``host`` should send, None when there is none in time."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._plan_round()
                train = self._round.get(host)
                if train is not None and not train.fetched:
                    target = self._targets(self._clock()).get(train.pair[1])
                    train.fetched = True
                    if target is not None:
                        return self._to_dict(train, target)
                    self._give_up(train)
                left = deadline - time.monotonic()
                if left <= 0 or self._closed or is_gone():
                    return None
                self._changed.wait(min(left, POLL_S))

    def senders(self) -> set[str]:
        """Hosts whose train nobody fetched yet."""
        with self._changed:
            self._plan_round()
            return {host for host, train in self._round.items()
                    if not train.fetched}

    def _targets(self, now_s: float) -> Mapping[str, Target]:
        return self._responders(now_s, STALE_REPORT_S, self._conf.only_idle)

    def done(self, probe_id: str) -> None:
        """A measurement of this train has arrived."""
        with self._changed:
            for host, train in list(self._round.items()):
                if train.probe_id == probe_id:
                    del self._round[host]
                    self._failed.pop(train.pair, None)
            self._plan_round()

    def _give_up(self, train: _Train) -> None:
        self._failed[train.pair] = self._clock()
        self._round.pop(train.pair[0], None)

    def _plan_round(self) -> None:
        """Begin a round if none runs and some pair is due."""
        now_s = self._clock()
        for train in list(self._round.values()):
            if train.give_up_s <= now_s:
                self._give_up(train)
        if self._round or not self._conf.enabled:
            return
        if now_s < self._next_look_s:
            return
        ages = self._rates.age_s(now_s)
        for pair, failed_s in self._failed.items():
            if now_s - failed_s < RETRY_S:
                ages[pair] = 0.0
        pairs = rounds.next_round(
            rounds.disjoint_rounds(sorted(self._targets(now_s))), ages,
            freshness_s=self._conf.freshness_s)
        for src, dst in pairs:
            self._round[src] = _Train(str(uuid.uuid4()), (src, dst),
                                      now_s + self._conf.timeout_s)
        if pairs:
            self._changed.notify_all()
        else:
            self._next_look_s = now_s + self._conf.interval_s

    def _to_dict(self, train: _Train, target: Target) -> dict[str, Any]:
        return {'probe_id': train.probe_id, 'peer': train.pair[1],
                'address': target[0], 'port': target[1],
                'bursts': self._conf.bursts, 'packets': self._conf.packets,
                'packet_bytes': self._conf.packet_bytes}
