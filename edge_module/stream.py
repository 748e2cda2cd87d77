# SPDX-License-Identifier: Apache-2.0

"""The connection to the controller's distributor, and what to do without.

One thread holds the connection; the others hand it what they have to say and
wait for what they are told. Where the controller offers none, or none can be
made, they use its REST API as before.
"""

from collections.abc import Callable
import contextlib
import random
import socket
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from edge_module import client as edge_client
from edge_module import epochs
from edge_module import outage
from edge_module import outbox
from edge_module import talk
from virtco import exception
from virtco.know import reports

LOG = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.5
_LAST_BACKOFF_S = 30.0
#: Times of failure after which the address is asked for again.
_LOOK_AGAIN = 3
_LOOK_S = 60.0
#: Times the heartbeat's interval that the controller may be silent.
_SILENT = 2.5


class Link:
    """
    :param generation: of the policy that is here, 0 without one.
    :param heard: which schedulers were heard of.
    :param stop: ends :meth:`run`.
    :ivar outage: of the controller, whichever way it is asked.
    """

    def __init__(self, conf: cfg.ConfigOpts, generation: Callable[[], int],
                 stop: threading.Event,
                 heard: epochs.Epochs | None = None):
        self._conf = conf
        self._epochs = heard or epochs.Epochs()
        self._generation = generation
        self._stop = stop
        self._changed = threading.Condition()
        # Whether the REST API is used: unless there is a connection, or one
        # may be there in a moment.
        self._polls = not conf.edge.use_stream
        self._is_up = False
        self._heard_s = 0.0
        self._policy: tuple[int, Any] | None = None
        self._train: dict[str, Any] | None = None
        self._outbox = outbox.Outbox()
        self.outage = outage.Outage()
        self._addresses: list[talk.Address] = []

    def client(self) -> 'Client':
        """For one thread."""
        return Client(self, edge_client.EdgeClient(self._conf), self._epochs)

    # The thread of the connection.

    def run(self) -> None:
        """Connect, and again, until told to stop."""
        rest = edge_client.EdgeClient(self._conf)
        n_failures = 0
        while not self._stop.is_set():
            try:
                if not self._addresses:
                    with self.outage.watch():
                        self._addresses = talk.find(self._conf, rest)
                if not self._addresses:
                    self._set_polls(True)
                    self._stop.wait(_LOOK_S * random.uniform(0.5, 1.5))
                    continue
                with contextlib.closing(talk.connect(
                        self._conf, self._addresses[0])) as sock:
                    spread_s = self._converse(sock)
                n_failures = 0
            except (OSError, exception.VirtcoException) as error:
                is_told = n_failures or isinstance(
                    error, exception.ControllerUnavailable)
                LOG.log(logging.DEBUG if is_told else logging.INFO,
                        'No connection to the distributor: %s',
                        exception.reason(error))
                n_failures += 1
                # The next one, and after the last one what is said then.
                self._addresses = (self._addresses[1:] if n_failures
                                   % _LOOK_AGAIN else [])
                self._set_polls(True)
                spread_s = min(_LAST_BACKOFF_S,
                               _FIRST_BACKOFF_S * 2 ** min(n_failures, 10))
            # All that lost the same controller come back one by one.
            self._stop.wait(random.uniform(0, spread_s))

    def _converse(self, sock: socket.socket) -> float:
        """Until the connection breaks; how long to spread the return over.

        :raises OSError: when it never was one.
        """
        ends = talk.Talk(sock, self._conf.edge.http_timeout_s)
        welcome = ends.greet(self._conf.edge.host, self._epochs.newest,
                             self._generation())
        self._outbox.restart(welcome)
        self._heard_s = time.monotonic()
        self._set_up(True)
        LOG.info('Connected to the distributor')
        try:
            while not self._stop.is_set():
                for message in ends.read(self._outbox.wake_end,
                                         self._outbox.pause_s()):
                    self._hear(message)
                if self._is_silent():
                    raise TimeoutError('the controller is silent')
                for frame in self._outbox.take(self._heard_s):
                    sock.sendall(frame)
        except (OSError, exception.VirtcoException) as error:
            self.outage.begin(
                f'Lost the distributor: {exception.reason(error)}.')
        finally:
            self._set_up(False)
        return float(welcome.get('spread_s', 0.0))

    def _is_silent(self) -> bool:
        return (time.monotonic() - self._heard_s
                > _SILENT * self._outbox.heartbeat_s)

    def _hear(self, message: dict[str, Any]) -> None:
        self._heard_s = time.monotonic()
        kind = message['type']
        if kind == 'resend':
            self._outbox.resend()
        elif kind == 'refused':
            raise exception.ControllerUnavailable(
                url=self._conf.edge.controller_url, why=message.get('why'))
        with self._changed:
            if kind == 'policy':
                self._take_policy(message)
            elif kind == 'probe':
                self._train = message.get('train')
            self._changed.notify_all()

    def _take_policy(self, message: dict[str, Any]) -> None:
        """The newest only; one of a scheduler that led before is refused."""
        self._epochs.hear(message.get('epoch', 0))
        self._policy = message['generation'], message['policy']

    # What the other threads see.

    def _set_up(self, is_up: bool) -> None:
        with self._changed:
            self._is_up = is_up
            self._polls = False
            if not is_up:
                self._policy = self._train = None
            self._changed.notify_all()

    def _set_polls(self, polls: bool) -> None:
        with self._changed:
            self._polls = polls
            self._changed.notify_all()

    def is_used(self) -> bool:
        """Whether there is a connection; False: use the REST API.

        Waits while one may come in a moment.

        :raises virtco.exception.ControllerUnavailable: when none came.
        """
        with self._changed:
            if not self._changed.wait_for(
                    lambda: self._is_up or self._polls,
                    self._conf.edge.http_timeout_s):
                raise self._unavailable('there is no connection')
            return self._is_up

    def heard_s(self) -> float | None:
        """When the distributor last said something; None without one."""
        return self._heard_s if self._is_up else None

    def wait_policy(self, have: str | None, wait_s: float
                    ) -> tuple[str, Any] | None:
        """The newest policy; None when it is still the one with this ETag.

        :raises virtco.exception.ControllerUnavailable: when the connection
            breaks meanwhile.
        """
        def is_there() -> bool:
            return not self._is_up or (self._policy is not None and
                                       etag_of(self._policy[0]) != have)

        with self._changed:
            self._changed.wait_for(is_there, wait_s)
            if not self._is_up:
                raise self._unavailable('the connection broke')
            if self._policy is None or etag_of(self._policy[0]) == have:
                return None
            generation, document = self._policy
        return etag_of(generation), document

    def wait_train(self, wait_s: float) -> dict[str, Any] | None:
        """The next packet train to send."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._is_up or self._train is not None, wait_s)
            train, self._train = self._train, None
        return train

    def _unavailable(self, why: str) -> exception.ControllerUnavailable:
        return exception.ControllerUnavailable(
            url=self._conf.edge.controller_url, why=why)

    def say_report(self, report: reports.Report) -> None:
        self._outbox.put_report(report)

    def say_taken(self, generation: int, error: str | None = None) -> None:
        self._outbox.put_ack(self._epochs.newest, generation, error)

    def say_measurement(self, measurement: dict[str, Any]) -> None:
        self._outbox.put_measurement(measurement)


def etag_of(generation: int) -> str:
    return f'"{generation}"'


class Client:
    """What :class:`edge_module.client.EdgeClient` is, by the connection where
    there is one.
    """

    def __init__(self, link: Link, rest: edge_client.EdgeClient,
                 heard: epochs.Epochs):
        self._link = link
        self._rest = rest
        self._epochs = heard

    def get_policy(self, etag: str | None, wait_s: float
                   ) -> tuple[str | None, Any] | None:
        with self._link.outage.watch():
            if self._link.is_used():
                # Waiting costs nothing here, and tells when it was renewed.
                return self._link.wait_policy(etag, wait_s / 2)
            found = self._rest.get_policy(etag, wait_s)
            try:
                if self._rest.epoch is not None:
                    self._epochs.hear(self._rest.epoch)
            except exception.PolicyInvalid as error:
                raise exception.ControllerUnavailable(
                    url=self._rest.url, why=str(error)) from error
            return found

    def epoch(self) -> int:
        """Of the last answer."""
        return self._epochs.newest

    def heard_s(self) -> float:
        """When the controller last said something, after it just answered."""
        heard_s = self._link.heard_s()
        return time.monotonic() if heard_s is None else heard_s

    def policy_taken(self, document: Any, error: str | None = None) -> None:
        """It is applied, or refused for good.

        :param error: why it is refused.
        """
        if isinstance(document, dict):
            self._link.say_taken(int(document.get('generation', 0)), error)

    def put_report(self, report: reports.Report) -> None:
        with self._link.outage.watch():
            if self._link.is_used():
                self._link.say_report(report)
            else:
                self._rest.put_report(report)

    def get_probe(self, wait_s: float) -> dict[str, Any] | None:
        with self._link.outage.watch():
            if self._link.is_used():
                return self._link.wait_train(wait_s)
            return self._rest.get_probe(wait_s)

    def post_measurement(self, measurement: dict[str, Any]) -> None:
        with self._link.outage.watch():
            if self._link.is_used():
                self._link.say_measurement(measurement)
            else:
                self._rest.post_measurement(measurement)
