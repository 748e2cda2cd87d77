# SPDX-License-Identifier: Apache-2.0

"""The connection to the controller's distributor.

One thread holds it; the others hand it what they have to say and wait for
what they are told.
"""

from collections.abc import Callable
import contextlib
import math
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
from virtco.wire import reports

LOG = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.2
_LAST_BACKOFF_S = 10.0
#: Times of failure after which the address is asked for again.
_LOOK_AGAIN = 3
#: Times the heartbeat's interval that the controller may be silent.
_SILENT = 2.5


class Link:
    """
    :param generation: of the policy that is here, 0 without one.
    :param heard: which schedulers were heard of.
    :param stop: ends :meth:`run`.
    :ivar is_up: whether there is a connection.
    :ivar heard_s: when the distributor last said something, by the monotonic
        clock; long ago before it ever did.
    """

    def __init__(self, conf: cfg.ConfigOpts, generation: Callable[[], int],
                 stop: threading.Event,
                 heard: epochs.Epochs | None = None):
        self._conf = conf
        self._epochs = heard or epochs.Epochs()
        self._generation = generation
        self._stop = stop
        self._changed = threading.Condition()
        self.is_up = False
        self.heard_s = -math.inf
        self._policy: tuple[int, Any] | None = None
        self._train: dict[str, Any] | None = None
        self._outbox = outbox.Outbox()
        self._outage = outage.Outage()
        self._addresses: list[talk.Address] = []

    # The thread of the connection.

    def run(self) -> None:
        """Connect, and again, until told to stop."""
        rest = edge_client.EdgeClient(self._conf)
        n_failures = 0
        while not self._stop.is_set():
            try:
                if not self._addresses:
                    self._addresses = talk.find(self._conf, rest)
                address = self._addresses[0]
                if address.ticket:
                    self._addresses = []  # it may be good only once
                with contextlib.closing(talk.connect(
                        self._conf, address)) as sock:
                    spread_s = self._converse(sock, address.ticket)
                n_failures = 0
            except (OSError, exception.VirtcoException) as error:
                self._outage.begin('No connection to the distributor: '
                                   f'{exception.reason(error)}.')
                n_failures += 1
                # The next one, and after the last one what is said then.
                self._addresses = (self._addresses[1:] if n_failures
                                   % _LOOK_AGAIN else [])
                spread_s = min(_LAST_BACKOFF_S,
                               _FIRST_BACKOFF_S * 2 ** min(n_failures, 10))
            # All that lost the same controller come back one by one.
            self._stop.wait(random.uniform(0, spread_s))

    def _converse(self, sock: socket.socket, ticket: str = '') -> float:
        """Until the connection breaks; how long to spread the return over.

        :raises OSError: when it never was one.
        """
        ends = talk.Talk(sock, self._conf.edge.http_timeout_s)
        welcome = ends.greet(self._conf.edge.host, self._epochs.newest,
                             self._generation(), ticket)
        self._outbox.restart(welcome)
        self.heard_s = time.monotonic()
        self._set_up(True)
        self._outage.end()
        LOG.info('Connected to the distributor')
        try:
            while not self._stop.is_set():
                for message in ends.read(self._outbox.wake_end,
                                         self._outbox.pause_s()):
                    self._hear(message)
                if self._is_silent():
                    raise TimeoutError('the controller is silent')
                for frame in self._outbox.take(self.heard_s):
                    sock.sendall(frame)
        except (OSError, exception.VirtcoException) as error:
            self._outage.begin(
                f'Lost the distributor: {exception.reason(error)}.')
        finally:
            self._set_up(False)
        return float(welcome.get('spread_s', 0.0))

    def _is_silent(self) -> bool:
        return (time.monotonic() - self.heard_s
                > _SILENT * self._outbox.heartbeat_s)

    def _hear(self, message: dict[str, Any]) -> None:
        self.heard_s = time.monotonic()
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
            self.is_up = is_up
            if not is_up:
                self._policy = self._train = None
            self._changed.notify_all()

    @property
    def epoch(self) -> int:
        """Of the newest scheduler that was heard of."""
        return self._epochs.newest

    def wait_policy(self, have: int | None, wait_s: float
                    ) -> tuple[int, Any] | None:
        """The newest policy and its generation.

        :param have: generation of the one that was taken last.
        :returns: None when there is no other one in time.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._policy is not None
                and self._policy[0] != have, wait_s)
            if self._policy is None or self._policy[0] == have:
                return None
            return self._policy

    def wait_train(self, wait_s: float) -> dict[str, Any] | None:
        """The next packet train to send."""
        with self._changed:
            self._changed.wait_for(lambda: self._train is not None, wait_s)
            train, self._train = self._train, None
        return train

    def say_report(self, report: reports.Report) -> None:
        self._outbox.put_report(report)

    def say_taken(self, generation: int, error: str | None = None) -> None:
        self._outbox.put_ack(self._epochs.newest, generation, error)

    def say_measurement(self, measurement: dict[str, Any]) -> None:
        self._outbox.put_measurement(measurement)
