# SPDX-License-Identifier: Apache-2.0

"""What a source of ports offers, and the thread that follows it."""

import abc
from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import os
import select
import socket
import threading
import time

from oslo_log import log as logging

from edge_module.classify import base as classify
from edge_module.ports import kinds
from virtco import exception

LOG = logging.getLogger(__name__)

_RTMGRP_LINK = 1
# Devices are announced; this is for what nobody has thought of.
_LOOK_S = 5.0


class PortSource(abc.ABC):
    """A source of ports; devices may be named that are not here (yet).

    :cvar poll_s: how often the token is looked at.
    """

    poll_s = 0.5
    #: Whether all its ports are known to be a switch's.
    is_switched = False

    @abc.abstractmethod
    def read(self) -> tuple[classify.VmPort, ...]:
        """The ports as they stand; ``ifindex`` is filled in by the caller.

        :raises virtco.exception.VirtcoException: when there is no sense in
            what is there, or no way to it.
        """

    @abc.abstractmethod
    def token(self) -> object:
        """Something that changes when :meth:`read` would say otherwise."""

    def notify(self, callback: Callable[[], None]) -> None:
        """Have the callback called when the token may have changed."""

    def close(self) -> None:
        """Let go of connections and threads."""


def _ifindex(dev: str) -> int:
    try:
        return socket.if_nametoindex(dev)
    except OSError:
        return 0


def with_devices(ports: Iterable[classify.VmPort], is_switched: bool = False
                 ) -> tuple[classify.VmPort, ...]:
    """Fill in which devices are here, and what they tell."""
    return tuple(dataclasses.replace(
        port, ifindex=_ifindex(port.dev), notes=tuple(dict.fromkeys((
            *port.notes, *kinds.of_device(port.dev, is_switched)))))
        for port in ports)


class PortWatcher:
    """Tells a callback whenever ports or their devices come and go.

    The kernel announces devices, so that a tap is classified as soon as it
    exists; a source that cannot tell is looked at twice a second.
    """

    def __init__(self, source: PortSource,
                 callback: Callable[[tuple[classify.VmPort, ...]], None]):
        self.source = source
        self.callback = callback
        self.error: str | None = None
        self._told: tuple[classify.VmPort, ...] | None = None
        self._ports: tuple[classify.VmPort, ...] | None = None
        self._token: object = None
        self._look_due_s = 0.0
        self._stop = threading.Event()
        self._links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self._links.bind((0, _RTMGRP_LINK))
        self._links.setblocking(False)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        source.notify(lambda: os.eventfd_write(self._wake, 1))
        self._following = threading.Lock()

    def stop(self) -> None:
        self._stop.set()
        os.eventfd_write(self._wake, 1)
        with self._following:  # it has ended
            self.source.close()
        self._links.close()

    def check(self, look: bool = True) -> None:
        """Read the source if it changed, look the devices up, tell.

        :param look: also look whether devices have come or gone.
        """
        token = self.source.token()
        if token != self._token or self._told is None or self.error:
            self._token, look = token, True
            try:
                self._ports = self.source.read()
                self.error = None
            except exception.VirtcoException as error:
                # The ports that were right go on being classified.
                if str(error) != self.error:
                    LOG.error('%s', error)
                self.error = str(error)
                self._token = None
        if self._ports is None:  # not known yet, which is not "none"
            return
        if not look and time.monotonic() < self._look_due_s:
            return
        self._look_due_s = time.monotonic() + _LOOK_S
        ports = with_devices(self._ports, self.source.is_switched)
        if ports != self._told:
            self._told = ports
            self.callback(ports)

    def follow(self) -> None:
        """Check whenever something is announced, until told to stop."""
        with self._following:
            self._follow()

    def _follow(self) -> None:
        links = self._links.fileno()
        while not self._stop.is_set():
            wait_s = PortSource.poll_s if self.error else self.source.poll_s
            ready = select.select([links, self._wake], [], [], wait_s)[0]
            if links in ready:
                self._drain()
            if self._wake in ready:
                os.eventfd_read(self._wake)
            if self._stop.is_set():
                return
            try:
                self.check(look=links in ready)
            except Exception:
                self._told = None
                raise

    def _drain(self) -> None:
        try:
            while self._links.recv(1 << 16):
                pass
        except OSError:  # empty, or announcements were lost: look anyway
            return
