# SPDX-License-Identifier: Apache-2.0

"""The connection to the controller's distributor.

One thread holds it. Other threads hand it messages to send, and take the
messages that it received.
"""

from collections.abc import Callable
import contextlib
import math
import random
import socket
import threading
import time

from oslo_config import cfg
from oslo_log import log as logging

from edge_module import kept_state as state
from edge_module import outbox
from edge_module import talk
from virtco import exception
from virtco.wire import messages
from virtco.wire import probe_order

LOG = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.2
#: Also the duration from which a connection counts as a success: one whose
#: report is refused succeeds at first, each time.
_LAST_BACKOFF_S = 10.0
#: The last wait of a host of a small cloud: ten times as long as all of its
#: hosts spread their return, so that no more than 200 of them try per second.
_LEAST_LAST_S, _SPREADS = 2.0, 10
#: Number of failures after which the address is looked up again.
_LOOK_AGAIN = 3
#: Intervals of its sign of life for which the controller may be silent.
_SILENT = 2
_EPOCH = 'epoch'


class Epochs:
    """Newest epoch of a leading scheduler that this host heard of.

    Older schedulers are refused. The epoch is kept on disk over restarts.

    :ivar newest: 0 until a scheduler sent its epoch.
    """

    def __init__(self, files: state.StateDir):
        self._files = files
        saved = files.load(_EPOCH)
        self.newest = max(0, saved) if type(saved) is int else 0

    def hear(self, epoch: int) -> None:
        """Check a scheduler's epoch, and remember it if it is newer.

        :raises virtco.exception.PolicyInvalid: for an older epoch.
        """
        if epoch < self.newest:
            raise exception.PolicyInvalid(field='epoch', value=epoch,
                                          limit=f'at least {self.newest}')
        if epoch > self.newest:
            self.newest = epoch
            self._files.save(_EPOCH, epoch)


class Outage:
    """Logs an outage of the controller once, at its start and at its end."""

    def __init__(self) -> None:
        self._began_s: float | None = None

    def begin(self, why: str) -> None:
        """Log the reason, as a warning at the start of the outage only.

        :param why: a sentence.
        """
        level = logging.WARNING if self._began_s is None else logging.DEBUG
        if self._began_s is None:
            self._began_s = time.monotonic()
        LOG.log(level, '%s. The last policy holds.', why.rstrip('.'))

    def end(self) -> None:
        """Log how long the outage lasted, if there was one."""
        if self._began_s is None:
            return
        lasted_s = time.monotonic() - self._began_s
        self._began_s = None
        LOG.info('The controller answers again after %.1f s.', lasted_s)


class Link:
    """Connection to the distributor, with the messages of both directions.

    :param generation: returns that of the present policy, 0 without one.
    :param stop: ends :meth:`run`.
    :param files: files that keep the newest epoch.
    :param offered: called when there is a policy for :meth:`take_policy`.
    :ivar is_up: whether there is a connection.
    :ivar outbox: takes reports and measurements to send.
    :ivar renewed_s: time of the last message of a leading scheduler, by the
        monotonic clock; -inf before the first.
    """

    def __init__(self, conf: cfg.ConfigOpts, generation: Callable[[], int],
                 stop: threading.Event, files: state.StateDir,
                 offered: Callable[[], None]):
        self._conf = conf
        self._epochs = Epochs(files)
        self._offered = offered
        self._generation = generation
        self._stop = stop
        self._changed = threading.Condition()
        self.is_up = False
        self.renewed_s = self._heard_s = -math.inf
        self._alive_s = math.inf
        self._offer: messages.Policy | None = None
        self._train: probe_order.Order | None = None
        self.outbox = outbox.Outbox()
        self._outage = Outage()
        self._addresses: list[talk.Address] = []
        # Host and port of those that failed since a connection held.
        self._failed: set[tuple[str, int]] = set()
        # Host and port of a connection in which nothing was heard any more.
        self._silent: tuple[str, int] | None = None
        self._last_backoff_s = _LAST_BACKOFF_S

    # The thread of the connection.

    def run(self) -> None:
        """Keep a connection, reconnecting until told to stop."""
        rest = talk.EdgeClient(self._conf)
        n_failures = 0
        while not self._stop.is_set():
            address: talk.Address | None = None
            try:
                if not self._addresses:
                    # Servers that failed come last: a server that hangs still
                    # accepts connections.
                    self._addresses = sorted(rest.find(), key=lambda one: (
                        one[:2] in self._failed))
                address = self._addresses[0]
                if address.ticket:
                    self._addresses = []  # the next leader has other ones
                self._failed.discard(address[:2])
                address = address._replace(
                    was_silent=address[:2] == self._silent)
                self._silent = None
                began_s = time.monotonic()
                with contextlib.closing(talk.connect(
                        self._conf, address)) as sock:
                    spread_s = self._converse(sock, address)
                if time.monotonic() - began_s >= _LAST_BACKOFF_S:
                    n_failures = 0
                    self._failed &= {address[:2]}
                else:
                    n_failures += 1
                    spread_s = max(spread_s, self._backoff_s(n_failures))
            except talk.Moved as moved:
                # If that address fails, the leader is looked up again.
                n_failures += 1
                self._addresses = [moved.address]
                spread_s = self._backoff_s(n_failures - 1)
            except (OSError, exception.VirtcoException) as error:
                self._outage.begin('No connection to the distributor: '
                                   f'{exception.reason(error)}.')
                n_failures += 1
                if address is not None:
                    self._failed.add(address[:2])
                # Try the next address; after the last, look them up again.
                self._addresses = (self._addresses[1:] if n_failures
                                   % _LOOK_AGAIN else [])
                spread_s = self._backoff_s(n_failures)
            # Hosts that lost the same controller return spread over time.
            self._stop.wait(random.uniform(0, spread_s))

    def _converse(self, sock: socket.socket, address: talk.Address) -> float:
        """Exchange messages until the connection breaks.

        :returns: seconds over which hosts spread their return.
        :raises OSError: when the distributor does not welcome us.
        """
        ends = talk.Talk(sock)
        welcome = ends.greet(self._conf.edge.host, self._epochs.newest,
                             self._generation(), address)
        self.outbox.restart(welcome)
        self._last_backoff_s = min(_LAST_BACKOFF_S, max(
            _LEAST_LAST_S, _SPREADS * welcome.spread_s))
        self._alive_s = welcome.alive_s
        self._heard(bool(welcome.epoch))
        self._set_up(True)
        self._outage.end()
        LOG.info('Connected to the distributor')
        try:
            while not self._stop.is_set():
                wait_s = self._hopes_s()
                if not ends.has_unsent:
                    wait_s = min(wait_s, self.outbox.pause_s())
                for message in ends.read(self.outbox.wake_end,
                                         max(0.0, wait_s)):
                    self._hear(message)
                if self._hopes_s() <= 0:
                    self._silent = address[:2]
                    raise TimeoutError('the controller is silent')
                if not ends.has_unsent:
                    ends.say(self.outbox.take())
        except (OSError, exception.VirtcoException) as error:
            self._outage.begin(
                f'Lost the distributor: {exception.reason(error)}.')
            if not isinstance(error, ConnectionError):  # silent, or refused
                self._failed.add(address[:2])
                self._addresses = self._addresses[1:]
        finally:
            self._set_up(False)
        return welcome.spread_s

    def _backoff_s(self, n_failures: int) -> float:
        return min(self._last_backoff_s,
                   _FIRST_BACKOFF_S * 2.0 ** min(n_failures, 10))

    def _hopes_s(self) -> float:
        """Return seconds after which a controller that says nothing is given
        up.
        """
        return self._heard_s + _SILENT * self._alive_s - time.monotonic()

    def _heard(self, is_led: bool) -> None:
        self._heard_s = time.monotonic()
        if is_led:
            self.renewed_s = self._heard_s

    def _hear(self, message: messages.Told) -> None:
        """Act on a message of the controller."""
        # A relay sends signs of life also while nobody leads.
        self._heard(not isinstance(message, messages.Alive)
                    or bool(message.epoch))
        match message:
            case messages.Alive(alive_s=alive_s):
                self._alive_s = alive_s
                self.outbox.answer_alive()
            case messages.Resend():
                self.outbox.resend()
            case messages.Refused(why=why):
                raise exception.ControllerUnavailable(
                    url=self._conf.edge.controller_url, why=why)
            case messages.Policy():
                # A policy of an earlier leader is refused.
                self._epochs.hear(message.epoch)
                with self._changed:
                    self._offer = message
                self._offered()
            case messages.Probe(order):
                with self._changed:
                    self._train = order
                    self._changed.notify_all()

    # State that other threads see.

    def _set_up(self, is_up: bool) -> None:
        with self._changed:
            self.is_up = is_up
            if not is_up:
                self._offer = self._train = None

    def take_policy(self) -> messages.Policy | None:
        """Return the newest policy that was not taken yet, else None."""
        with self._changed:
            offer, self._offer = self._offer, None
        return offer

    def wait_train(self, wait_s: float) -> probe_order.Order | None:
        """Wait for the next order to measure; None if none in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._train is not None, wait_s)
            train, self._train = self._train, None
        return train

    def say_taken(self, generation: int, error: str | None = None) -> None:
        """Acknowledge or refuse the policy of a generation.

        :param error: reason for which it is refused; None to acknowledge it.
        """
        self.outbox.put_ack(self._epochs.newest, generation, error)
