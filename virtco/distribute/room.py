# SPDX-License-Identifier: Apache-2.0

"""The door of the room: whether edge modules may connect, and to what."""

from collections.abc import Iterable
import logging
from typing import Any

from oslo_config import cfg

from virtco import exception
from virtco import metrics
from virtco.decide import room as decide_room
from virtco.distribute import codec
from virtco.distribute import feed as feeds
from virtco.distribute import frames
from virtco.distribute import peers
from virtco.distribute import server
from virtco.distribute import source
from virtco.distribute import tickets
from virtco.know import room as know_room
from virtco.wire import reports

LOG = logging.getLogger(__name__)


class Distribute:
    """Edge modules are served by this process's own scheduler while it leads,
    and else by what the one that leads says.

    :param feed: from the leader.
    """

    def __init__(self, conf: cfg.ConfigOpts, know: know_room.Know,
                 decide: decide_room.Decide, feed: feeds.Feed,
                 counts: metrics.Metrics):
        self._conf = conf
        self._know = know
        self._decide = decide
        self._feed = feed
        self._counts = counts
        self._tickets = tickets.Tickets()
        self._epoch: int | None = None
        self._server: server.Distributor | None = None

    def start(self) -> None:
        self._server = open_server(self._conf, self._doors(), self._counts,
                                   self._tickets)
        if self._server is not None:
            self._server.start()
            self._decide.on_publish.append(self._server.published)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def lead(self, epoch: int) -> None:
        """This process's own policies hold from here on."""
        self._epoch = epoch
        if self._server is not None:
            self._decide.prober.on_ordered.append(
                self._server.trains_ordered)
            # What they told the one before may be lost.
            for host, report in self._server.last_reports().items():
                self._know.report(host, report)
            self._server.published_all()

    def is_alive(self) -> bool:
        return self._server is None or self._server.is_alive()

    def ticket_of(self, host: str) -> str | None:
        """By which it may connect; None where none is asked for."""
        if self._server is None or self._server.tickets is None:
            return None
        return self._server.tickets.of(host)

    def document(self) -> dict[str, Any] | None:
        """Where edge modules connect to; None when they do not.

        ``host`` is null for the one under which they know this API.
        """
        options = self._conf.distributor
        found = {'version': frames.VERSION}
        if options.endpoints:
            return found | {'endpoints': options.endpoints, 'host': None,
                            'port': options.port,
                            'tls': options.endpoints_tls}
        if self._server is None:
            return None
        host = options.host
        return found | {'host': None if host in (None, '0.0.0.0', '::')
                        else host,
                        'port': self._server.port, 'tls': self._server.is_tls}

    # What the feed asks and tells.

    def policies_came(self, hosts: list[str]) -> None:
        if self._server is not None:
            self._server.published(hosts)

    def train_came(self, host: str, train: dict[str, Any]) -> None:
        if self._server is not None:
            self._server.hand_out(host, train)

    def last_reports(self) -> dict[str, reports.Report]:
        return self._server.last_reports() if self._server is not None else {}

    # What edge modules ask and tell.

    def _doors(self) -> server.Doors:
        return server.Doors(
            epoch=lambda: (self._feed.epoch if self._epoch is None
                           else self._epoch),
            policy=self._policy, came=self._came, left=self._left,
            n_hosts=self._n_hosts, report=self._know.report,
            heard=self._know.heard, measured=self.measured,
            trains=self.trains)

    def _policy(self, host: str) -> server.Policy | None:
        if self._epoch is None:
            return self._feed.policy(host)
        found = self._decide.policy_of(host)
        return codec.Numbered(self._epoch, found) if found else None

    def _came(self, host: str, generation: int) -> None:
        if self._epoch is None:
            self._feed.follow(host, generation)
        else:
            self._decide.overtake(host, generation)

    def _left(self, host: str) -> None:
        if self._epoch is None:
            self._feed.leave(host)

    def _n_hosts(self) -> int:
        return (self._feed.n_hosts if self._epoch is None
                else len(self._decide.generations()))

    def measured(self, measurement: reports.Measurement) -> None:
        keep = True
        if self._epoch is not None:
            loaded = self._decide.checks.takes(measurement)
            keep = self._decide.prober.done(measurement) and not loaded
        if keep:
            self._know.measured(measurement)

    def trains(self, hosts: Iterable[str]) -> dict[str, dict[str, Any]]:
        if self._epoch is None:
            return {}
        prober = self._decide.prober
        return {host: train for host in prober.called() & set(hosts)
                if (train := prober.next_train(host)) is not None}


def open_server(conf: cfg.ConfigOpts, doors: server.Doors,
                counts: metrics.Metrics,
                own_tickets: tickets.Tickets | None = None
                ) -> server.Distributor | None:
    """Nova is answered also where a port is taken.

    :param own_tickets: those that the REST API of this process hands out.
    :raises virtco.exception.ConfigInvalid: for files that are no good.
    """
    options = conf.distributor
    if not options.enabled:
        return None
    if (conf.api.auth_strategy == 'noauth'
            or options.cert_file and options.client_ca_file):
        own_tickets = None
    elif own_tickets is None:
        LOG.warning('Without [distributor] cert_file and client_ca_file '
                    'nobody could tell connections apart.')
        return None
    try:
        tls = server.tls_context(options)
    except OSError as error:
        raise exception.ConfigInvalid(
            why='[distributor] cert_file, key_file or client_ca_file: '
            f'{error}') from error
    try:
        found = server.Distributor(conf, doors, counts, tls, own_tickets)
    except OSError as error:
        LOG.error('No edge module can connect, for the distributor cannot '
                  'listen on port %d: %s', options.port, error)
        return None
    LOG.info('Edge modules may connect to port %d.', found.port)
    return found


def open_source(conf: cfg.ConfigOpts, doors: source.Doors,
                counts: metrics.Metrics) -> source.Source:
    """:raises virtco.exception.ConfigInvalid: for an address or files that
        are no good.
    """
    options = conf.leadership
    try:
        tls = peers.server_tls(conf)
    except OSError as error:
        raise exception.ConfigInvalid(
            why='[leadership] cert_file, key_file or ca_file: '
            f'{error}') from error
    host = options.host or conf.api.host
    try:
        return source.Source(host, options.port, doors, counts, tls)
    except OSError as error:
        raise exception.ConfigInvalid(
            why=f'[leadership] host {host}, port {options.port}: '
            f'{error}') from error
