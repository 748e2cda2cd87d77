# SPDX-License-Identifier: Apache-2.0

"""Where the distributors are, and messages over a socket to one."""

from collections.abc import Iterable
import contextlib
import select
import socket
import ssl
import time
from typing import NamedTuple
import urllib.parse

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exception
from keystoneauth1 import loading as ks_loading
from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
from oslo_config import cfg

from edge_module import dial
from edge_module import edge_options as edge_conf
from virtco import decoding
from virtco import exception
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import stream_address

#: Timeout of a connection to the controller, and of its answer.
TIMEOUT_S = 5.0
#: The same for a server that was silent just now: it may be off, and another
#: one leads.
AGAIN_S = 1.0
#: Errors of a socket that would have to wait.
_NOT_YET = BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError
#: Bytes that a socket is given at a time.
_AT_ONCE = 1 << 16
# A million flows take less than 200 bytes each.
_MOST_BYTES = 256 * 1024 * 1024
_ANSWER: 'decoding.Decoder[stream_address.Distributor]' = decoding.Decoder(
    stream_address.Distributor, 'answer')


class Moved(OSError):
    """Another process leads.

    :ivar address: address of the server.
    """

    def __init__(self, address: 'Address'):
        super().__init__(f'{address.host}, port {address.port}, leads')
        self.address = address


class Address(NamedTuple):
    """Address of a stream server.

    :ivar ticket: to be shown there; empty where none is asked for.
    :ivar was_silent: whether it said nothing more just now.
    """

    host: str
    port: int
    is_tls: bool
    ticket: str = ''
    was_silent: bool = False

    @property
    def timeout_s(self) -> float:
        """Timeout of a connection, and of its welcome."""
        return AGAIN_S if self.was_silent else TIMEOUT_S


class EdgeClient:
    """Asks the controller's REST API where its distributors are."""

    def __init__(self, conf: cfg.ConfigOpts):
        self._host = conf.edge.host
        self.url = conf.edge.controller_url.rstrip('/')
        options = conf[edge_conf.AUTH]
        session: ks_session.Session = (
            ks_loading.session.Session().load_from_options(
                auth=ks_loading.load_auth_from_conf_options(
                    conf, edge_conf.AUTH)
                or noauth.NoAuth(endpoint=self.url),
                timeout=TIMEOUT_S, insecure=options.insecure,
                cacert=options.cafile, cert=options.certfile,
                key=options.keyfile))
        for scheme in list(session.session.adapters):
            session.session.mount(scheme, dial.Adapter())
        self._adapter = adapter.Adapter(
            session, endpoint_override=self.url, connect_retries=0)

    def find(self) -> list[Address]:
        """Ask for the distributor's addresses, the first to try first.

        :raises virtco.exception.ControllerUnavailable: when there is no
            answer in time, an invalid one, or no distributor that speaks this
            version of the protocol.
        """
        try:
            found = _ANSWER.decode(self._adapter.get(
                '/v1/distributor', params={'host': self._host}).content)
            if found.version != frames.VERSION:
                raise exception.ControllerUnavailable(
                    url=self.url, why='its distributor speaks version '
                    f'{found.version} of the protocol, and not '
                    f'{frames.VERSION}')
        except ks_exception.NotFound as error:
            raise exception.ControllerUnavailable(
                url=self.url, why='it has no distributor') from error
        except (ks_exception.ClientException, exception.Invalid,
                ValueError) as error:
            raise exception.ControllerUnavailable(
                url=self.url, why=exception.reason(error)) from error
        here = str(urllib.parse.urlsplit(self.url).hostname)
        return [Address(one.host or here, one.port, one.tls,
                        found.ticket or '') for one in found.servers]


def connect(conf: cfg.ConfigOpts, address: Address) -> socket.socket:
    """Connect to a distributor, with TLS if its address asks for it.

    :raises OSError: when nobody answers, or TLS does not trust the peer.
    """
    sock = dial.dial(address.host, address.port, address.timeout_s)
    try:
        return (_tls(conf).wrap_socket(sock, server_hostname=address.host)
                if address.is_tls else sock)
    except BaseException:
        sock.close()
        raise


def _tls(conf: cfg.ConfigOpts) -> ssl.SSLContext:
    """Make a context of the files as they are, which are the REST API's."""
    options = conf[edge_conf.AUTH]
    context = ssl.create_default_context(cafile=options.cafile)
    context.hostname_checks_common_name = False
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.certfile:
        context.load_cert_chain(options.certfile, options.keyfile)
    return context


def _moved(leader: str, address: Address) -> Address:
    """Return the address with host and port of the leader.

    :param leader: ``host:port``.
    :raises OSError: for an invalid address.
    """
    found = urllib.parse.urlsplit(f'//{leader}')
    try:
        return address._replace(host=str(found.hostname),
                                port=int(found.port or 0))
    except ValueError as error:
        raise ConnectionRefusedError(f'{leader!r} leads') from error


class Talk:
    """Messages over one socket. Nothing waits for one who does not read, or
    for the rest of a TLS record.
    """

    def __init__(self, sock: socket.socket):
        sock.setblocking(False)
        self._sock = sock
        self._reader = frames.Reader(_MOST_BYTES)
        self._early: list[messages.Told] = []
        self._unsent = bytearray()

    @property
    def has_unsent(self) -> bool:
        """Whether frames wait until the other end reads."""
        return bool(self._unsent)

    def say(self, found: Iterable[bytes]) -> None:
        """Send frames, and in :meth:`read` the rest of those that are long.
        """
        self._unsent += b''.join(found)
        with contextlib.suppress(*_NOT_YET):
            while self._unsent:
                del self._unsent[:self._sock.send(self._unsent[:_AT_ONCE])]

    def greet(self, host: str, epoch: int, generation: int,
              address: Address) -> messages.Welcome:
        """Send a hello and return the distributor's welcome.

        :raises Moved: when another address leads.
        :raises OSError: when it does not welcome us.
        """
        self.say([messages.frame(messages.Hello(
            frames.VERSION, host, epoch, generation, address.ticket))])
        deadline_s = time.monotonic() + address.timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                heard = self.read(None, left_s)
            except ConnectionResetError as error:
                # Such as for a certificate that has expired.
                raise ConnectionResetError(
                    'it refused the connection, its log tells why') from error
            if heard:
                message, *self._early = heard
                match message:
                    case messages.Welcome():
                        return message
                    case messages.Refused(why, leader):
                        if leader:
                            raise Moved(_moved(leader, address))
                        raise ConnectionRefusedError(why)
                raise ConnectionRefusedError('it does not welcome us')
        raise TimeoutError('it does not answer')

    def read(self, wake: socket.socket | None, wait_s: float
             ) -> list[messages.Told]:
        """Wait for messages and return them.

        :param wake: socket that ends the wait when it is readable.
        :returns: messages; empty after the wait.
        :raises OSError: when the other end is gone.
        """
        if self._early:
            early, self._early = self._early, []
            return early
        ends = [self._sock] + ([wake] if wake is not None else [])
        pending = isinstance(self._sock, ssl.SSLSocket) and (
            self._sock.pending())
        ready = ([self._sock] if pending else select.select(
            ends, [self._sock] if self._unsent else [], [], wait_s)[0])
        self.say([])
        if wake in ready:
            assert wake is not None
            wake.recv(4096)
        if self._sock not in ready:
            return []
        try:
            data = self._sock.recv(1 << 16)
        except _NOT_YET:
            return []
        if not data:
            raise ConnectionResetError('it was closed')
        return [messages.decode_told(payload) for payload in
                self._reader.feed(data)]
