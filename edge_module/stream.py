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

"""The connection to the controller's distributor, and what to do without.

One thread holds the connection; the others hand it what they have to say and
wait for what they are told. Where the controller offers none, or none can be
made, they use its REST API as before.
"""

from collections.abc import Callable
import contextlib
import random
import select
import socket
import ssl
import threading
import time
from typing import Any
import urllib.parse

import msgspec
from oslo_config import cfg
from oslo_log import log as logging

from edge_module import client as edge_client
from edge_module import conf as edge_conf
from edge_module import epochs
from virtco.distribute import deltas
from virtco.distribute import frames
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
_MOST_MEASUREMENTS = 64


#: Host, port and whether by TLS.
Address = tuple[str, int, bool]


class Link:
    """
    :param generation: of the policy that is here, 0 without one.
    :param heard: which schedulers were heard of.
    :param stop: ends :meth:`run`.
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
        self._outbox = _Outbox()
        self._addresses: list[Address] = []

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
                self._addresses = self._addresses or self._find(rest)
                if not self._addresses:
                    self._set_polls(True)
                    self._stop.wait(_LOOK_S * random.uniform(0.5, 1.5))
                    continue
                with contextlib.closing(self._connect(
                        self._addresses[0])) as sock:
                    spread_s = self._converse(sock)
                n_failures = 0
            except (OSError, exception.VirtcoException) as error:
                LOG.log(logging.DEBUG if n_failures else logging.INFO,
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

    def _find(self, rest: edge_client.EdgeClient) -> list[Address]:
        """As the controller says, in any order; it may say none."""
        try:
            found = rest.get_distributor()
            oldest, newest = found['versions']
            if oldest > frames.NEWEST or newest < frames.OLDEST:
                return []
            host = found['host'] or urllib.parse.urlsplit(
                self._conf.edge.controller_url).hostname
            is_tls = bool(found['tls'])
            ends = [urllib.parse.urlsplit(f'//{text}')
                    for text in found.get('endpoints', ())]
            random.shuffle(ends)
            return ([(str(end.hostname), int(end.port or found['port']),
                      is_tls) for end in ends]
                    or [(str(host), int(found['port']), is_tls)])
        except exception.NotFound:
            return []
        except (KeyError, TypeError, ValueError) as error:
            raise exception.ControllerUnavailable(
                url=self._conf.edge.controller_url,
                why=f'no address of its distributor: {error!r}') from error

    def _connect(self, address: Address) -> socket.socket:
        host, port, is_tls = address
        sock = socket.create_connection(
            (host, port), timeout=self._conf.edge.http_timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not is_tls:
            return sock
        try:
            return _tls(self._conf).wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise

    def _converse(self, sock: socket.socket) -> float:
        """Until the connection breaks; how long to spread the return over.

        :raises OSError: when it never was one.
        """
        talk = _Talk(sock, self._conf.edge.http_timeout_s)
        welcome = talk.greet(self._conf.edge.host, self._epochs.newest,
                             self._generation())
        self._outbox.restart(welcome)
        self._heard_s = time.monotonic()
        self._set_up(True)
        LOG.info('Connected to the distributor')
        try:
            while not self._stop.is_set():
                for message in talk.read(self._outbox.wake_end,
                                         self._outbox.pause_s()):
                    self._hear(message)
                if self._is_silent():
                    raise TimeoutError('the controller is silent')
                for frame in self._outbox.take(self._heard_s):
                    sock.sendall(frame)
        except (OSError, exception.VirtcoException) as error:
            LOG.warning('Lost the distributor: %s', exception.reason(error))
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

    def say_taken(self, generation: int) -> None:
        self._outbox.put_ack(self._epochs.newest, generation)

    def say_measurement(self, measurement: dict[str, Any]) -> None:
        self._outbox.put_measurement(measurement)


def etag_of(generation: int) -> str:
    return f'"{generation}"'


class _Talk:
    """Messages over one socket."""

    def __init__(self, sock: socket.socket, timeout_s: float):
        self._sock = sock
        self._timeout_s = timeout_s
        self._reader = frames.Reader(edge_client.MOST_BYTES)
        self._early: list[dict[str, Any]] = []

    def greet(self, host: str, epoch: int, generation: int
              ) -> dict[str, Any]:
        """What the distributor says to a hello.

        :raises OSError: when it does not welcome us.
        """
        self._sock.sendall(frames.pack(
            'hello', versions=[frames.OLDEST, frames.NEWEST], host=host,
            epoch=epoch, generation=generation))
        deadline_s = time.monotonic() + self._timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            messages = self.read(None, left_s)
            if messages:
                message, *self._early = messages
                if message['type'] != 'welcome':
                    raise ConnectionRefusedError(str(message.get('why')))
                return message
        raise TimeoutError('it does not answer')

    def read(self, wake: socket.socket | None, wait_s: float
             ) -> list[dict[str, Any]]:
        """What arrives, once something has; nothing when it is time to go on.

        :raises OSError: when the other end is gone.
        """
        if self._early:
            early, self._early = self._early, []
            return early
        ends = [self._sock] + ([wake] if wake is not None else [])
        pending = isinstance(self._sock, ssl.SSLSocket) and (
            self._sock.pending())
        ready = ([self._sock] if pending
                 else select.select(ends, [], [], wait_s)[0])
        if wake in ready:
            assert wake is not None
            wake.recv(4096)
        if self._sock not in ready:
            return []
        data = self._sock.recv(1 << 16)
        if not data:
            raise ConnectionResetError('it was closed')
        return [frames.unpack(payload) for payload in
                self._reader.feed(data)]


class _Outbox:
    """The newest of what is to be said; nothing queues up behind it."""

    def __init__(self) -> None:
        self.heartbeat_s = 1.0
        self.wake_end, self._wake = socket.socketpair()
        self.wake_end.setblocking(False)
        self._wake.setblocking(False)
        self._lock = threading.Lock()
        self._report: reports.Report | None = None
        self._told: reports.Report | None = None
        self._told_s = 0.0
        self._seen: reports.Report | None = None
        self._was_moving = False
        self._beat_s = 0.0
        self._ack: tuple[int, int] | None = None
        self._measurements: list[dict[str, Any]] = []
        self._most_bytes = frames.MOST_BYTES

    def restart(self, welcome: dict[str, Any]) -> None:
        with self._lock:
            self.heartbeat_s = max(0.1, float(welcome['heartbeat_s']))
            self._most_bytes = int(welcome['most_bytes'])
            self._told = None
            self._ack = None
            self._beat_s = time.monotonic()

    def resend(self) -> None:
        """The next report is to be whole."""
        with self._lock:
            self._told = None

    def put_report(self, report: reports.Report) -> None:
        with self._lock:
            self._report = report
        self._rouse()

    def put_ack(self, epoch: int, generation: int) -> None:
        with self._lock:
            self._ack = epoch, generation
        self._rouse()

    def put_measurement(self, measurement: dict[str, Any]) -> None:
        with self._lock:
            self._measurements = [*self._measurements[1 - _MOST_MEASUREMENTS:],
                                  measurement]
        self._rouse()

    def _rouse(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.send(b'.')

    def pause_s(self) -> float:
        """Until there is something to say in any case."""
        due_s = self._beat_s + self.heartbeat_s - time.monotonic()
        return max(0.0, min(1.0, due_s))

    def take(self, heard_s: float) -> list[bytes]:
        """The frames to send now."""
        now_s = time.monotonic()
        found = []
        with self._lock:
            if self._ack is not None:
                epoch, generation = self._ack
                found.append(frames.pack('ack', epoch=epoch,
                                         generation=generation))
                self._ack = None
            found += [frames.pack('measurement', measurement=one)
                      for one in self._measurements]
            self._measurements = []
            is_due = now_s >= self._beat_s + self.heartbeat_s
            report = self._news(is_due, now_s)
            if report is not None:
                found.append(report)
            if is_due:
                # An answer to it renews the policy.
                found.append(frames.pack('heartbeat'))
                self._beat_s = now_s
        for frame in found:
            if len(frame) > self._most_bytes + frames.HEADER_BYTES:
                raise exception.Invalid(
                    field='report', value=f'{len(frame)} bytes',
                    limit=f'at most {self._most_bytes} bytes')
        return found

    def _news(self, is_due: bool, now_s: float) -> bytes | None:
        """What the controller does not know of the report."""
        report, told = self._report, self._told
        if report is None:
            return None
        if told is None:
            self._told = self._seen = report
            self._told_s, self._was_moving = now_s, False
            return frames.pack('report', report=report)
        delta = deltas.diff(told, report)
        is_moving = bool(delta) and deltas.is_urgent(
            told, delta, now_s - self._told_s)
        # That it moves no more is told at once as well.
        if report is self._seen or not (
                is_due or is_moving or self._was_moving):
            return None
        self._seen, self._was_moving = report, is_moving
        self._told, self._told_s = report, now_s
        if delta:
            return frames.frame(msgspec.json.encode(delta))
        return None if is_due else frames.pack('heartbeat')


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

    def policy_taken(self, document: Any) -> None:
        """It is applied, or refused for good."""
        if isinstance(document, dict):
            self._link.say_taken(int(document.get('generation', 0)))

    def put_report(self, report: reports.Report) -> None:
        if self._link.is_used():
            self._link.say_report(report)
        else:
            self._rest.put_report(report)

    def get_probe(self, wait_s: float) -> dict[str, Any] | None:
        if self._link.is_used():
            return self._link.wait_train(wait_s)
        return self._rest.get_probe(wait_s)

    def post_measurement(self, measurement: dict[str, Any]) -> None:
        if self._link.is_used():
            self._link.say_measurement(measurement)
        else:
            self._rest.post_measurement(measurement)


def _tls(conf: cfg.ConfigOpts) -> ssl.SSLContext:
    """By the same files as the REST API's."""
    options = conf[edge_conf.AUTH]
    context = ssl.create_default_context(cafile=options.cafile)
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.certfile:
        context.load_cert_chain(options.certfile, options.keyfile)
    return context
