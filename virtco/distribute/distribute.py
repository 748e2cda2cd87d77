# SPDX-License-Identifier: Apache-2.0

"""The door of the room: the stream server of a process that may lead."""

from collections.abc import Iterable
import logging
import random
import socket
import time
import urllib.parse

import msgspec
from oslo_config import cfg

from virtco import metrics
from virtco.decide import decide as decide_room
from virtco.distribute import certificates
from virtco.distribute import edge_session as session
from virtco.distribute import intake
from virtco.distribute import server
from virtco.distribute import tickets
from virtco.leadership import elector
from virtco.state import state as states
from virtco.wire import messages
from virtco.wire import probe_order
from virtco.wire import reports
from virtco.wire import stream_address

LOG = logging.getLogger(__name__)

#: Names to which rates of a host are kept though no host of that name has
#: reported.
MOST_UNKNOWN = 10


class Distribute:
    """Edge modules are served by the process that leads, and by relays.

    :param listens: whether edge modules and peers may connect to this
        process.
    """

    def __init__(self, conf: cfg.ConfigOpts, state: states.State,
                 decide: decide_room.Decide, leads: elector.Elector,
                 counts: metrics.Metrics, listens: bool):
        self._conf = conf
        self._state = state
        self._decide = decide
        self._leads = leads
        self._epoch: int | None = None
        self._listens = listens
        self._server: server.Server | None = None
        self._asks_for_tickets = asks_for_tickets(conf)
        self._counts = counts
        self._unknown: dict[str, set[str]] = {}
        self._intake = intake.Intake(state.report, state.heard,
                                     counts.intake_failures.inc,
                                     self._is_answering)

    def start(self) -> None:
        """Listen; until :meth:`lead` those who come are told who leads.

        :raises virtco.exception.ConfigInvalid: for files that are no good.
        """
        if self._listens:
            self._server = open_server(self._conf, self._doors(),
                                       self._counts)
        if self._server is not None:
            self._decide.publisher.on_publish.append(self._server.published)
            self._decide.prober.on_ordered.append(
                self._server.trains_ordered)
            self._intake.start()
            self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._intake.stop()

    def lead(self, epoch: int) -> None:
        """Serve from here on."""
        self._epoch = epoch

    def is_alive(self) -> bool:
        return not self._listens or (
            self._server is not None and self._server.is_alive())

    def address(self) -> str:
        """Return ``host:port`` of the stream server; empty when there is none.
        """
        if self._server is None:
            return ''
        host = str(self._conf.distributor.host or self._conf.api.host)
        if host in ('0.0.0.0', '::'):
            host = socket.gethostname()
        return (f'[{host}]' if ':' in host else host) + (
            f':{self._server.port}')

    def ticket_of(self, host: str) -> str | None:
        """Make the ticket of a host; None where tickets are not used."""
        key = self._ticket_key()
        return tickets.of_host(key, host) if key else None

    def servers(self) -> list[stream_address.Server]:
        """List the servers that edge modules try, one after the other: relays
        first, in random order, so that they share the edge modules.
        """
        options = self._conf.distributor
        relays = [stream_address.Server(end.hostname,
                                        end.port or options.port,
                                        options.endpoints_tls)
                  for end in (urllib.parse.urlsplit(f'//{text}')
                              for text in options.endpoints)]
        random.shuffle(relays)
        return relays + self._leader()

    def _leader(self) -> list[stream_address.Server]:
        """Return the server of the process that leads, if it is known.

        One that does not beat may take all the time of whoever tries it.
        """
        options = self._conf.distributor
        is_tls = bool(options.cert_file)
        if self._server is not None and self._leads.epoch is not None:
            host = options.host
            return [stream_address.Server(
                None if host in (None, '0.0.0.0', '::') else host,
                self._server.port, is_tls)]
        seen = self._leads.seen
        if seen is None or not seen.address or not self._leads.may_be_led():
            return []
        at = urllib.parse.urlsplit(f'//{seen.address}')
        return [stream_address.Server(at.hostname, at.port or 0, is_tls)]

    # Answers to edge modules and peers.

    def _doors(self) -> server.Doors:
        """Return the functions by which the server reaches other rooms."""
        return server.Doors(
            epoch=lambda: self._epoch or 0, is_led=self._leads.is_current,
            elsewhere=self._elsewhere, ticket_key=self._ticket_key,
            peer_key=self._key, policy=self._policy,
            n_hosts=lambda: len(self._decide.publisher.generations()),
            said=self._said, heard=self._intake.add_heard,
            spent_s=self._intake.take_spent_s, told=self._told,
            peers=lambda may_lead: self._leads.peers.arrived(
                may_lead, time.monotonic()),
            trains=self._trains,
            is_answering=self._is_answering)

    def _is_answering(self, within_s: float) -> bool:
        return self._decide.loop.is_answering(within_s)

    def _elsewhere(self) -> str | None:
        found = self._leads.elsewhere()
        # All is read before anybody is served.
        return '' if found is None and self._epoch is None else found

    def _key(self) -> str:
        seen = self._leads.seen
        return seen.ticket_key if seen is not None else ''

    def _ticket_key(self) -> str | None:
        return self._key() if self._asks_for_tickets else None

    def _policy(self, host: str, known: int) -> server.Numbered | None:
        """Return a host's policy as a frame; None if it has that already."""
        found = self._decide.publisher.get(host)
        if found is None or found.generation == known:
            return None
        return found.generation, messages.frame(messages.Policy(
            found.generation, found, self._epoch or 0))

    def _said(self, host: str, event: session.Event, _payload: bytes) -> None:
        """Hand an edge module's report or measurement to the intake."""
        match event:
            case session.Report(report=reports.Report() as report):
                self._intake.add_report(host, report, report.epoch)
            case messages.Measured(measurement=measurement):
                self._intake.add_newest(host, self._measured, measurement)

    def _measured(self, measurement: reports.Measurement) -> None:
        if (self._is_taken(measurement.src, measurement.dst)
                and self._decide.prober.done(measurement)):
            self._state.measured(measurement)

    def _is_taken(self, src: str, dst: str) -> bool:
        """Tell whether rates from a host to another one are kept.

        An edge module may name anything as the other end. A host that has not
        reported yet is one of a few names of each edge module.
        """
        if self._state.live.is_known(dst):
            return True
        named = self._unknown.setdefault(src, set())
        if len(named) < MOST_UNKNOWN:
            named.add(dst)
        return dst in named

    def _told(self, name: str, message: messages.PeerSaid) -> None:
        """Pass a peer's message on to the room that it concerns."""
        match message:
            case messages.Here():
                self._leads.peers.said(name, message.has_database,
                                       time.monotonic())
            case messages.Changed():
                self._intake.add(self._state.invalidate, message.groups)
            case messages.Forgiven():
                self._intake.add(self._state.live.forgive, message.project_id)
            case messages.Forgotten():
                self._intake.add(lambda hosts: self._forgotten(name, hosts),
                                 set(message.hosts))
            case messages.Ask():
                self._intake.add(lambda host: self._answer(name, host),
                                 message.host)

    def _forgotten(self, name: str, hosts: set[str]) -> None:
        """Forget hosts as a peer says, but those where VMs of groups are."""
        kept = set(filter(self._state.live.count_members, hosts))
        if kept:
            LOG.warning('Peer %s says that hosts with VMs of groups are '
                        'forgotten: %s.', name, ', '.join(sorted(kept)))
        if hosts - kept:
            self._state.forget_hosts(hosts - kept)

    def _answer(self, name: str, host: str) -> None:
        assert self._server is not None
        self._server.answer(name, messages.Asked(host, msgspec.Raw(
            msgspec.json.encode(self._decide.publisher.get(host)))))

    def _trains(self, hosts: Iterable[str]) -> dict[str, probe_order.Order]:
        prober = self._decide.prober
        return {host: train for host in prober.called() & set(hosts)
                if (train := prober.next_train(host)) is not None}


def asks_for_tickets(conf: cfg.ConfigOpts) -> bool:
    """Tell whether edge modules prove by tickets who they are.

    Certificates do that as well, and without authentication nobody does.
    """
    options = conf.distributor
    return conf.api.auth_strategy != 'noauth' and not (
        options.cert_file and options.client_ca_file)


def open_server(conf: cfg.ConfigOpts, doors: server.Doors,
                counts: metrics.Metrics) -> server.Server | None:
    """Open the stream server; None where its port is taken.

    :raises virtco.exception.ConfigInvalid: for files that are no good.
    """
    tls = certificates.of(conf.distributor, 'server', counts)
    try:
        found = server.Server(conf, doors, counts, tls)
    except OSError as error:
        LOG.error('No edge module can connect, for port %d cannot be '
                  'listened on: %s', conf.distributor.port, error)
        return None
    LOG.info('Edge modules may connect to port %d.', found.port)
    return found
