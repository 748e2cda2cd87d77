# SPDX-License-Identifier: Apache-2.0

"""Interface of sources of VM ports, and their ports with devices."""

import abc
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import time

from oslo_log import log as logging

from edge_module.classify import classified as classify
from edge_module.ports import kinds
from edge_module.ports import port_limits
from edge_module.privileged import devices
from virtco import decoding
from virtco import exception
from virtco.wire import reports

LOG = logging.getLogger(__name__)

_REPORTED: 'decoding.Decoder[reports.Port]' = decoding.Decoder(
    reports.Port, 'port')
# Complaints about ports that are told at once.
_MOST_TOLD = 5

# Seconds between checks of all devices, in case an announcement was missed.
_LOOK_S = 5.0


class PortSource(abc.ABC):
    """Source of VM ports, some of whose devices may not exist (yet)."""

    #: Whether all its ports are known to be a switch's.
    is_switched = False
    #: Why the last :meth:`read` left out some ports; None where it did not.
    complaint: str | None = None

    @abc.abstractmethod
    def read(self) -> tuple[classify.VmPort, ...]:
        """Read the present ports; ``ifindex`` is filled in by the caller.

        :raises virtco.exception.VirtcoException: when the source cannot be
            reached or its content is invalid.
        """

    @abc.abstractmethod
    def token(self) -> object:
        """Return a value that changes when :meth:`read` would differ."""

    def notify(self, callback: Callable[[], None]) -> None:
        """Set a callback for when the token may have changed.

        The token of a source that ignores it is polled twice a second.
        """

    def close(self) -> None:
        """Let go of connections and threads."""


def with_devices(ports: Iterable[classify.VmPort], is_switched: bool = False
                 ) -> tuple[classify.VmPort, ...]:
    """Return the ports with their present ifindex, 0 without a device, and
    with notes and limits that follow from the device.
    """
    links = devices.links()
    found = [(port, links.get(port.dev, devices.Device())) for port in ports]
    try:
        caps = port_limits.read({link.ifindex for _, link in found
                                 if link.ifindex})
    except OSError as error:
        LOG.warning('Limits of ports cannot be read: %s', error)
        caps = {}
    return tuple(dataclasses.replace(
        port, ifindex=link.ifindex, notes=tuple(dict.fromkeys((
            *port.notes, *(
                kinds.of_device(port.dev, link, is_switched)
                if link.ifindex else ())))),
        caps_bps=caps.get(link.ifindex, port_limits.NONE))
        for port, link in found)


def _unfit(ports: Iterable[classify.VmPort]
           ) -> Iterator[tuple[classify.VmPort, str]]:
    """Yield the ports that no report may name, and why: the controller would
    refuse it with all that it says of the host.
    """
    for number, port in enumerate(ports):
        try:
            _REPORTED.convert({'vm': port.vm, 'dev': port.dev,
                               'mac': port.mac, 'ips': port.ips})
        except exception.Invalid as error:
            yield port, f'port {port.dev[:40]!r}: {error}'
        else:
            if number >= reports.MOST_PORTS:
                yield port, f'more than {reports.MOST_PORTS} ports'


class Ports:
    """The ports of a source, with their devices.

    :param changed: called, by any thread, when :meth:`read` may find others.
    :ivar ports: None while the ports are unknown; () when there are none.
    :ivar error: why the source, or a part of it, cannot be read; the ports
        that are right go on being classified.
    """

    def __init__(self, source: PortSource, changed: Callable[[], None]):
        self.source = source
        self.ports: tuple[classify.VmPort, ...] | None = None
        self.error: str | None = None
        self._named: tuple[classify.VmPort, ...] | None = None
        self._token: object = None
        self._look_due_s = 0.0
        source.notify(changed)

    def read(self, look: bool = True) -> None:
        """Read the source if it changed, and look the devices up.

        :param look: look the devices up although the source did not change.
        """
        token = self.source.token()
        if token != self._token or self._named is None or self.error:
            look = True
            try:
                found = self.source.read()
                unfit = dict(_unfit(found))
                self._named = tuple(
                    port for port in found if port not in unfit)
                complaints = dict.fromkeys(filter(None, (
                    self.source.complaint, *unfit.values())))
                error = '; '.join([*complaints][:_MOST_TOLD]) or None
            except exception.VirtcoException as refusal:
                error = str(refusal)
            if error is not None and error != self.error:
                LOG.error('%s', error)
            self.error, self._token = error, token
        if self._named is None or (
                not look and time.monotonic() < self._look_due_s):
            return
        # If that fails, it is tried again soon.
        self._look_due_s = 0.0
        self.ports = with_devices(self._named, self.source.is_switched)
        self._look_due_s = time.monotonic() + _LOOK_S
