# SPDX-License-Identifier: Apache-2.0

"""What the enforcer asks of whatever shapes the uplink."""

import abc
from collections.abc import Container
from collections.abc import Iterable
import dataclasses
import fcntl
import socket
import struct

from edge_module.privileged import protocol
from edge_module.qdisc import wire
from edge_module.tcplan import model
from virtco import exception

_SIOCGIFMTU = 0x8921
# Ethernet's and VLANs', with some to spare.
_HEADERS_BYTES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The tree that stands at one moment.

    :ivar present: whether the shaper is in place.
    :ivar foreign: somebody else's qdisc at the root that is in the way, such
        as ``'tbf 8001:'``; None otherwise.
    """

    present: bool
    foreign: str | None
    tree: model.Tree
    stats: dict[int, wire.ClassStats]


class Shaper(abc.ABC):
    """Gives the classes of a tree their rates on one device.

    Methods raise :class:`virtco.exception.NotFound` without the device and
    :class:`virtco.exception.KernelRefused` when the kernel refuses.

    :ivar name: as ``[edge] shaper`` and ``--show`` name it.
    """

    name: str

    def __init__(self, kernel: protocol.Kernel, dev: str):
        self.kernel = kernel
        self.dev = dev

    def ifindex(self) -> int:
        """:raises virtco.exception.NotFound: without the device."""
        try:
            return socket.if_nametoindex(self.dev)
        except OSError as error:
            socket.socket().close()  # without descriptors there is none
            raise exception.NotFound(what='uplink device',
                                     id=self.dev) from error

    def is_among(self, ifindexes: Container[int]) -> bool:
        try:
            return self.ifindex() in ifindexes
        except exception.NotFound:
            return False

    def frame_bytes(self) -> int:
        """The longest frame that the device sends.

        :raises virtco.exception.NotFound: without the device.
        """
        found = frame_bytes(self.dev)
        if found is None:
            raise exception.NotFound(what='uplink device', id=self.dev)
        return found

    @property
    def how(self) -> str:
        """Name for people, with what is particular here."""
        return self.name

    @abc.abstractmethod
    def snapshot(self) -> Snapshot:
        """Read all that stands."""

    @abc.abstractmethod
    def stats(self) -> dict[int, wire.ClassStats]:
        """Counters of the classes; none while the shaper is not there."""

    @abc.abstractmethod
    def class_stats(self, wanted: Container[int] | None = None
                    ) -> dict[int, wire.ClassStats]:
        """As :meth:`stats`, but for what leaves dropped.

        :param wanted: minors that matter; None: all.
        """

    @abc.abstractmethod
    def ensure_root(self) -> None:
        """Put the shaper in place of the device's default qdisc."""

    @abc.abstractmethod
    def set_classes(self, classes: Iterable[model.HtbClass],
                    current: model.Tree) -> None:
        """Create or change classes in place."""

    @abc.abstractmethod
    def delete_classes(self, minors: Iterable[int]) -> None:
        """Delete classes, children first as given; absence is tolerated."""

    @abc.abstractmethod
    def delete_root(self) -> bool:
        """Remove the shaper; False when it was not there."""


def frame_bytes(dev: str) -> int | None:
    """The longest frame that a device sends; None without the device."""
    request = struct.pack('16si12x', dev.encode(), 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFMTU, request)
        except OSError:
            return None
    return int(struct.unpack_from('i', answer, 16)[0]) + _HEADERS_BYTES
