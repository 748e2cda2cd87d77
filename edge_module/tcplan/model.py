# SPDX-License-Identifier: Apache-2.0

"""The classes of an HTB tree, their parameters, and sums of their rates.

Pure: no I/O, no clock. ``shape`` says what the tree should be, ``steps`` how
the kernel's tree becomes that one without an instant at which a managed flow
is unshaped or the port over-committed, and how leaves that slow down or leave
first send what they have queued.
"""

from collections.abc import Mapping
import dataclasses
import math
import operator
from typing import Annotated
from typing import NamedTuple

import msgspec

from edge_module.tcplan import minors
from virtco import units
from virtco.wire import edge_policy

# Priority of unmanaged VM traffic; coflows and the host come before it.
LOWEST_PRIO = edge_policy.PRIOS - 1
# Guaranteed rate of a class that is not served yet or any more: HTB wants a
# positive rate, a whole number of bytes per second. Bytes sent at this rate
# leave a debt of up to a minute, which stays when the rate rises: HTB keeps
# debts as times.
IDLE_RATE_BPS = units.BITS_PER_BYTE
# Longest GSO super-packet over IPv4; with IPv6 it may have up to 512 KB.
SUPER_PACKET_BYTES = 64 * 1024
WHOLE_BYTES = 1024 * 1024

# Ranges of the fields of the kernel's structures.
Minor = Annotated[int, msgspec.Meta(ge=0, lt=2 ** 16)]
_RateBps = Annotated[int, msgspec.Meta(ge=units.BITS_PER_BYTE, le=10 ** 15)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, lt=2 ** 32)]
_FrameBytes = Annotated[int, msgspec.Meta(ge=0, lt=2 ** 16)]


@dataclasses.dataclass(frozen=True, slots=True)
class HtbClass:
    """Parameters of a class of the tree, with its leaf's queue.

    :ivar parent: minor of the parent, ``minors.ROOT`` for the qdisc itself.
    :ivar rate_bps: guaranteed, a multiple of 8.
    :ivar ceil_bps: limit with what is borrowed, a multiple of 8.
    :ivar limit_bytes: length of the leaf's queue; None for an inner class.
    :ivar packet_bytes: the largest packet that a leaf passes whole; longer
        super-packets are cut into frames. None for an inner class.
    :ivar overhead_bytes: bytes that the wire adds to each frame.
    :ivar frame_min_bytes: size of the shortest frame on the wire.
    :ivar burst_bytes: least size of the class's token bucket; not read back.
    """

    minor: Minor
    parent: Minor
    rate_bps: _RateBps
    ceil_bps: _RateBps
    prio: Annotated[int, msgspec.Meta(ge=0, lt=edge_policy.PRIOS)]
    quantum_bytes: _Bytes
    limit_bytes: _Bytes | None
    packet_bytes: _Bytes | None = None
    overhead_bytes: _FrameBytes = 0
    frame_min_bytes: _FrameBytes = 0
    burst_bytes: _Bytes = dataclasses.field(default=0, compare=False)

    def same_parameters(self, other: 'HtbClass') -> bool:
        """Return whether the class's own parameters, not its leaf's, agree.

        Turns and priority of an inner class are ignored: the kernel does not
        change them.
        """
        return _PARAMETERS(self) == _PARAMETERS(other) and (
            self.limit_bytes is None or _OF_LEAF(self) == _OF_LEAF(other))

    def stands_as(self, have: 'HtbClass') -> bool:
        """Return whether the kernel's class needs no change to be this one."""
        return self is have or self == have or (
            self.same_leaf(have)
            and self.same_parameters(have))

    def same_leaf(self, other: 'HtbClass') -> bool:
        """Return whether queue length and largest whole packet agree."""
        return (self.limit_bytes, self.packet_bytes) == (
            other.limit_bytes, other.packet_bytes)


_PARAMETERS = operator.attrgetter(
    'minor', 'parent', 'rate_bps', 'ceil_bps', 'overhead_bytes',
    'frame_min_bytes')
_OF_LEAF = operator.attrgetter('quantum_bytes', 'prio')
Tree = dict[int, HtbClass]


class Counts(NamedTuple):
    """Counters of a class or an entry since it was made."""

    sent_bytes: int = 0
    sent_packets: int = 0
    drops: int = 0

    def plus(self, other: 'Counts') -> 'Counts':
        """Return the sum of two counters."""
        return Counts(*map(operator.add, self, other))

    def since(self, before: 'Counts') -> 'Counts':
        """Return the difference from an earlier reading."""
        return Counts(*map(operator.sub, self, before))


@dataclasses.dataclass(frozen=True, slots=True)
class TreeSettings:
    """Operator's settings for the rates, queues and turns of the tree.

    A super-packet is charged to its class in one piece, as a time at the
    class's rate, which stays when the rate rises: at 0.2 Mbit/s one
    super-packet holds its class for 2.6 s. Leaves of slow classes therefore
    cut super-packets into frames.

    :ivar leaf_s: length of a leaf's queue, as time at its ceil.
    :ivar floor_bps: least guaranteed rate of a coflow's class; at a lower one
        it would not send again for long.
    :ivar super_packet_s: a leaf cuts super-packets that take longer than this
        at its ceil.
    :ivar owed_s: a leaf also cuts super-packets that take longer than this at
        its guaranteed rate: until then it may borrow, but has no guarantee.
    :ivar link_packet_s: all leaves cut where a super-packet takes longer than
        this at the speed of the link: the host's packets would wait for it.
        0: never for that reason.
    :ivar turn_s: turn of the first coflow of the host's order, as a time
        at the speed of the link.
    :ivar frame_bytes: longest frame of the uplink; None never cuts.
    :ivar overhead_bytes: see :class:`HtbClass`.
    :ivar frame_min_bytes: see :class:`HtbClass`.
    """

    leaf_s: float = 0.025
    min_leaf_bytes: int = 128 * 1024
    max_leaf_bytes: int = 64 * 1024 * 1024
    min_quantum_bytes: int = 64 * 1024
    max_quantum_bytes: int = 1024 * 1024
    turn_s: float = 0.1
    max_turn_bytes: int = 64 * 1024 * 1024
    floor_bps: int = 8000
    super_packet_s: float = 0.1
    owed_s: float = 0.5
    link_packet_s: float = 0.0
    frame_bytes: int | None = None
    overhead_bytes: int = 0
    frame_min_bytes: int = 0

    def on_link(self, link_bps: float) -> 'TreeSettings':
        """Return the settings for a link; on a slow one all leaves cut."""
        takes_s = SUPER_PACKET_BYTES * units.BITS_PER_BYTE / link_bps
        if not 0 < self.link_packet_s < takes_s:
            return self
        return dataclasses.replace(self, super_packet_s=1e-9)

    def htb_class(self, minor: int, parent: int, rate_bps: int, ceil_bps: int,
                  prio: int, quantum_bytes: int,
                  limit_bytes: int | None = None,
                  packet_bytes: int | None = None, burst_bytes: int = 0
                  ) -> HtbClass:
        """Return a class whose frames are as long as on this wire."""
        return HtbClass(
            minor, parent, rate_bps, ceil_bps, prio, quantum_bytes,
            limit_bytes, packet_bytes, self.overhead_bytes,
            self.frame_min_bytes, burst_bytes)

    @property
    def whole_ceil_bps(self) -> int:
        """Least ceil, in bit/s, at which a leaf passes super-packets whole."""
        return math.ceil(SUPER_PACKET_BYTES * units.BITS_PER_BYTE
                         / self.super_packet_s)

    @property
    def whole_rate_bps(self) -> int:
        """Least guaranteed rate, in bit/s, at which a leaf passes
        super-packets whole.
        """
        return math.ceil(SUPER_PACKET_BYTES * units.BITS_PER_BYTE
                         / self.owed_s)


def whole_bps(rate_bps: float) -> int:
    """Round a rate down to whole bytes per second, at least 1 byte/s."""
    return max(IDLE_RATE_BPS, int(rate_bps // units.BITS_PER_BYTE)
               * units.BITS_PER_BYTE)


def leaf_limit_bytes(ceil_bps: float, settings: TreeSettings) -> int:
    """Return the length of a leaf's queue: leaf_s at its ceil, rounded up to
    a power of two.

    The power of two keeps the queue as it is while rates change a little.
    """
    wanted = units.bps_to_bytes_per_s(ceil_bps) * settings.leaf_s
    if wanted <= settings.min_leaf_bytes:
        return settings.min_leaf_bytes
    return min(settings.max_leaf_bytes,
               int(2 ** math.ceil(math.log2(wanted))))


def leaf_packet_bytes(rate_bps: float, ceil_bps: float,
                      settings: TreeSettings) -> int:
    """Return the size of the largest packet that a leaf passes whole."""
    if settings.frame_bytes is None or (
            ceil_bps >= settings.whole_ceil_bps
            and rate_bps >= settings.whole_rate_bps):
        return WHOLE_BYTES
    return settings.frame_bytes


def kept_bps(tree: Mapping[int, HtbClass]) -> int:
    """Return the guaranteed rate of all traffic but the coflows' data."""
    return sum(tree[minor].rate_bps for minor in (
        minors.HOST, minors.UNMANAGED, minors.CONTROL) if minor in tree)


def is_data(minor: int) -> bool:
    """Return whether a class is a coflow's or one of its destinations'."""
    return edge_policy.FIRST_MINOR <= minor <= edge_policy.LAST_MINOR


def children_bps(tree: Mapping[int, HtbClass]) -> dict[int, int]:
    """Return the sum of the children's guaranteed rates, by parent."""
    found: dict[int, int] = {}
    for item in tree.values():
        found[item.parent] = found.get(item.parent, 0) + item.rate_bps
    return found


def guaranteed_bps(tree: Mapping[int, HtbClass]) -> int:
    """Return the sum of the guaranteed rates that compete for the link.

    Each child of the link class counts with the larger of its own rate and
    the sum of its children's: the kernel grants both.
    """
    children = children_bps(tree)
    return sum(max(htb_class.rate_bps, children.get(htb_class.minor, 0))
               for htb_class in tree.values()
               if htb_class.parent == minors.LINK)
