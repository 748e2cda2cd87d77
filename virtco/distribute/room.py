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

"""The door of the room: whether edge modules may connect, and to what."""

from collections.abc import Iterable
import logging
from typing import Any

from oslo_config import cfg

from virtco.decide import room as decide_room
from virtco.distribute import frames
from virtco.distribute import server
from virtco import exception
from virtco.know import room as know_room
from virtco import metrics

LOG = logging.getLogger(__name__)


class Distribute:
    def __init__(self, conf: cfg.ConfigOpts, know: know_room.Know,
                 decide: decide_room.Decide, counts: metrics.Metrics):
        self._conf = conf
        self._know = know
        self._decide = decide
        self._counts = counts
        self._server: server.Distributor | None = None

    def start(self) -> None:
        """Without it edge modules poll, so a port that is taken is no end.

        :raises virtco.exception.ConfigInvalid: for files that are no good.
        """
        options = self._conf.distributor
        if not options.enabled:
            return
        if (self._conf.api.auth_strategy != 'noauth'
                and not (options.cert_file and options.client_ca_file)):
            LOG.warning('Edge modules poll: without [distributor] cert_file '
                        'and client_ca_file nobody could tell them apart.')
            return
        try:
            tls = server.tls_context(options)
        except OSError as error:
            raise exception.ConfigInvalid(
                why='[distributor] cert_file, key_file or client_ca_file: '
                f'{error}') from error
        try:
            self._server = server.Distributor(
                self._conf, self._doors(), self._counts, tls)
        except OSError as error:
            LOG.error('Edge modules poll, for the distributor cannot listen '
                      'on port %d: %s', options.port, error)
            return
        self._server.start()
        self._decide.on_publish.append(self._server.published)
        LOG.info('Edge modules may connect to port %d.', self._server.port)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def is_alive(self) -> bool:
        return self._server is None or self._server.is_alive()

    def document(self) -> dict[str, Any] | None:
        """Where edge modules connect to; None when they do not.

        ``host`` is null for the one under which they know this API.
        """
        if self._server is None:
            return None
        host = self._conf.distributor.host
        return {'host': None if host in (None, '0.0.0.0', '::') else host,
                'port': self._server.port, 'tls': self._server.is_tls,
                'versions': [frames.OLDEST, frames.NEWEST]}

    def _doors(self) -> server.Doors:
        decide = self._decide
        return server.Doors(
            policy=decide.policy_of, overtake=decide.overtake,
            n_hosts=lambda: len(decide.generations()),
            report=self._know.report, heard=self._know.heard,
            measured=self._measured, trains=self._trains)

    def _measured(self, measurement: dict[str, Any]) -> None:
        self._decide.prober.done(measurement['probe_id'])
        self._know.measured(measurement)

    def _trains(self, hosts: Iterable[str]) -> dict[str, dict[str, Any]]:
        prober = self._decide.prober
        return {host: train for host in prober.senders() & set(hosts)
                if (train := prober.next_train(host, 0.0)) is not None}
