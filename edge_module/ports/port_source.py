# SPDX-License-Identifier: Apache-2.0

"""What a source of ports offers, and its ports with their devices."""

import abc
from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import socket
import time

from oslo_log import log as logging

from edge_module.classify import classified as classify
from edge_module.ports import kinds
from virtco import exception

LOG = logging.getLogger(__name__)

# Devices are announced; this is for what nobody has thought of.
_LOOK_S = 5.0


class PortSource(abc.ABC):
    """A source of ports; devices may be named that are not here (yet)."""

    #: Whether all its ports are known to be a switch's.
    is_switched = False
    #: Why the last :meth:`read` left out some ports; None where it did not.
    complaint: str | None = None

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
        """Have the callback called when the token may have changed.

        A source that cannot tell is looked at twice a second.
        """

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


class Ports:
    """The ports of a source, with their devices.

    :param changed: called, by any thread, when :meth:`read` may find others.
    :ivar ports: None while they are not known, which is not "none".
    :ivar error: why the source, or a part of it, cannot be read; the ports
        that are right go on being classified.
    """

    def __init__(self, source: PortSource,
                 changed: Callable[[], None] = lambda: None):
        self.source = source
        self.ports: tuple[classify.VmPort, ...] | None = None
        self.error: str | None = None
        self._named: tuple[classify.VmPort, ...] | None = None
        self._token: object = None
        self._look_due_s = 0.0
        source.notify(changed)

    def close(self) -> None:
        self.source.close()

    def read(self, look: bool = True) -> None:
        """Read the source if it changed, and look the devices up.

        :param look: also look whether devices have come or gone.
        """
        token = self.source.token()
        if token != self._token or self._named is None or self.error:
            self._token, look = token, True
            try:
                self._named = self.source.read()
                error = self.source.complaint
            except exception.VirtcoException as refusal:
                error = str(refusal)
            if error is not None and error != self.error:
                LOG.error('%s', error)
            self.error = error
        if self._named is None or (
                not look and time.monotonic() < self._look_due_s):
            return
        self._look_due_s = time.monotonic() + _LOOK_S
        self.ports = with_devices(self._named, self.source.is_switched)
