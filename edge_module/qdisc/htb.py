# SPDX-License-Identifier: Apache-2.0

"""The HTB of one uplink: its state in the kernel, and changes to it."""

from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import dataclasses
import errno
import fcntl
import os
import socket
import struct

from edge_module.privileged import helper_protocol as protocol
from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import operations
from edge_module.qdisc import shared_root
from edge_module.qdisc import wire
from edge_module.tcplan import model
from virtco import exception

_SIOCGIFMTU = 0x8921
# Ethernet's and VLANs', with some to spare.
_HEADERS_BYTES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The tree that stands at one moment.

    :ivar present: whether our qdisc is in place.
    :ivar foreign: somebody else's qdisc at the root that is in the way, such
        as ``'tbf 8001:'``; None otherwise.
    :ivar is_inside: whether our qdisc is inside another program's HTB, or can
        be.
    :ivar others: classes of that HTB but ours, by minor.
    """

    present: bool
    foreign: str | None
    tree: model.Tree
    stats: dict[int, wire.ClassStats]
    is_inside: bool = False
    others: model.Tree = dataclasses.field(default_factory=dict)


class Uplink:
    """Reads and changes our HTB on one device.

    Methods raise :class:`virtco.exception.NotFound` without the device and
    :class:`virtco.exception.KernelRefused` when the kernel refuses.
    """

    def __init__(self, kernel: protocol.Kernel, dev: str):
        self.kernel = kernel
        self.dev = dev
        #: Whether another program may put classes at the root at any time.
        self.is_shared = False
        #: Whether the HTB around ours was made here, and the other program
        #: was not told yet.
        self.is_around_new = False
        #: Whether ours was inside another program's when it was read last.
        self.is_inside = False
        #: Classes around ours at that time, by minor.
        self.others: model.Tree = {}

    @property
    def queues_bps(self) -> int:
        """Rate that the queues around our tree are guaranteed, bit/s."""
        return sum(queue.rate_bps for minor, queue in self.others.items()
                   if minor < shared_root.NO_QUEUE)

    def ifindex(self) -> int:
        """Index of the device in the kernel.

        :raises virtco.exception.NotFound:
        """
        try:
            return socket.if_nametoindex(self.dev)
        except OSError as error:
            socket.socket().close()  # raises if there are no descriptors left
            raise exception.NotFound(what='uplink device',
                                     id=self.dev) from error

    def frame_bytes(self, *ports: str) -> int:
        """Return the longest frame that the uplink or a VM's port may send.

        When MTUs grow, a VM's port may change before the uplink does; a leaf
        drops frames that it cannot cut.
        """
        found: list[int] = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for dev in (self.dev, *ports):
                with contextlib.suppress(OSError):
                    found.append(struct.unpack_from('i', fcntl.ioctl(
                        probe, _SIOCGIFMTU, struct.pack(
                            '16s16x', dev.encode())), 16)[0] + _HEADERS_BYTES)
        if not found:
            raise exception.NotFound(what='uplink device', id=self.dev)
        return max(found)

    def _dump_qdiscs(self) -> list[bytes]:
        """Dump the qdiscs; the kernel adds those of other devices."""
        ifindex = self.ifindex()
        return [body for body in self.kernel.tc_dump(
            wire.dump_request(wire.RTM_GETQDISC, ifindex))
            if wire.is_of(body, ifindex)]

    def snapshot(self) -> Snapshot:
        """Dump qdiscs and classes."""
        bodies = self._dump_qdiscs()
        qdiscs = list(map(wire.read_qdisc, bodies))
        ours = _ours(qdiscs)
        if ours is None or (
                ours.parent == wire.INSIDE and not self._has_sieve()):
            root = next((qdisc for qdisc in qdiscs if qdisc.handle
                         and qdisc.parent == wire.TC_H_ROOT), None)
            if root is None or (
                    root.kind == 'htb' and root.handle == shared_root.HANDLE
                    and any(wire.handle_of(body) == shared_root.LINK
                            for body in self._dump_others())):
                return Snapshot(False, None, {}, {}, root is not None)
            return Snapshot(False, f'{root.kind} {root.handle >> 16:x}:',
                            {}, {})
        leaves = {qdisc.handle: qdisc for qdisc in qdiscs
                  if qdisc.kind == 'tbf'}
        tree: model.Tree = {}
        stats: dict[int, wire.ClassStats] = {}
        for body in self.kernel.tc_dump(wire.dump_request(
                wire.RTM_GETTCLASS, self.ifindex(), wire.ROOT_HANDLE)):
            shown = wire.read_class(body)
            if shown is None:
                continue
            found, leaf_handle, seen = shown
            stats[found.minor] = seen
            leaf = leaves.get(leaf_handle)
            tree[found.minor] = found if leaf is None else (
                dataclasses.replace(found, limit_bytes=leaf.limit_bytes,
                                    packet_bytes=leaf.packet_bytes))
        is_inside = ours.parent == wire.INSIDE
        return Snapshot(True, None, tree, _with_drops(stats, bodies),
                        is_inside, self._read_others() if is_inside else {})

    def _read_others(self) -> model.Tree:
        """Read the classes of the HTB around ours."""
        shown = (wire.read_class(body, shared_root.HANDLE >> 16)
                 for body in self._dump_others())
        return {found.minor: found for found, *_ in filter(
            None, shown) if found.minor != wire.INSIDE & 0xffff}

    def _dump_others(self) -> list[bytes]:
        return self.kernel.tc_dump(wire.dump_request(
            wire.RTM_GETTCLASS, self.ifindex(), shared_root.HANDLE))

    def _has_sieve(self) -> bool:
        """Return whether packets that are in no queue come to our tree."""
        return any(map(shared_root.is_sieve, self.kernel.tc_dump(
            wire.dump_request(wire.RTM_GETTFILTER, self.ifindex(),
                              shared_root.HANDLE))))

    def stats(self, with_drops: bool = True) -> dict[int, wire.ClassStats]:
        """Read the counters of the classes; empty while our qdisc is absent.

        :param with_drops: whether to count drops of the leaves, too.
        """
        if not with_drops:
            return self.class_stats()
        bodies = self._dump_qdiscs()
        if _ours(map(wire.read_qdisc, bodies)) is None:
            return {}
        return _with_drops(self.class_stats(), bodies)

    def class_stats(self) -> dict[int, wire.ClassStats]:
        """Read the counters of all classes, without drops of their leaves.

        All classes are dumped: the kernel cannot list a selection, and it
        sends the answer about a single class to all listeners to changes.
        Queues beside our tree have their minors below zero.
        """
        found = self._read(wire.ROOT_HANDLE)
        if self.is_inside:
            found.update((-minor, seen) for minor, seen in self._read(
                shared_root.HANDLE).items() if minor < shared_root.NO_QUEUE)
        return found

    def _read(self, root: int) -> dict[int, wire.ClassStats]:
        # Asked below this root only: else each leaf's own class comes as well.
        return dict(filter(None, (
            wire.read_stats(body, root >> 16) for body in self.kernel.tc_dump(
                wire.dump_request(wire.RTM_GETTCLASS, self.ifindex(),
                                  root)))))

    def ensure_root(self, seen: Snapshot | None = None) -> None:
        """Put our qdisc in place of the device's default one, or inside that
        of others.

        :param seen: qdisc that stands, None where nobody else's can be.
        """
        ifindex = self.ifindex()
        if not self.is_shared and (seen is None or not seen.is_inside):
            change(self.kernel, [operations.AddRoot(ifindex)],
                   f'create the qdisc of {self.dev}')
            return
        assert seen is not None
        self.is_around_new |= not seen.is_inside
        steps: list[list[operations.Part]] = [
            ['instead' if seen.present else 'root'], ['link']]
        for parts in ([] if seen.is_inside else steps) + [
                ['container', 'sieve', 'tree']]:
            # Separate calls: the helper looks at the present qdiscs before
            # each.
            change(self.kernel, [operations.Share(ifindex, part)
                                 for part in parts],
                   f'share the qdisc of {self.dev}', (errno.EEXIST,))

    def set_classes(self, classes: Iterable[model.HtbClass],
                    current: model.Tree) -> None:
        """Create or change classes in place, sending only differences."""
        ifindex = self.ifindex()
        changes: list[operations.TcOperation] = []
        leaves: list[operations.TcOperation] = []
        for wanted in classes:
            have = current.get(wanted.minor)
            if have is None or not wanted.same_parameters(have):
                changes.append(operations.SetClass(ifindex, wanted))
            if wanted.limit_bytes is not None and (
                    have is None or not wanted.same_leaf(have)):
                leaves.append(operations.SetLeaf(ifindex, wanted))
        # The kernel walks over all classes for each new one: a tenth faster
        # where no queues lie between them in memory.
        change(self.kernel, changes + leaves, f'set classes of {self.dev}')

    def delete_classes(self, minors: Iterable[int]) -> None:
        """Delete classes, children first as given; absence is tolerated."""
        ifindex = self.ifindex()
        change(self.kernel, [operations.DeleteClass(ifindex, minor)
                             for minor in minors],
               f'delete classes of {self.dev}', (errno.ENOENT,))

    def delete_root(self) -> bool:
        """Remove our qdisc and its filter; return False if there is neither.

        It needs root: the privileged helper cannot delete the root qdisc.
        """
        ifindex = self.ifindex()
        ours = _ours(map(wire.read_qdisc, self._dump_qdiscs()))
        if ours is None and not self._has_sieve():
            return False
        messages = [wire.delete_root(ifindex)]
        if ours is None or ours.parent == wire.INSIDE:
            # Empty, the HTB around is one that only we need.
            others = [body for body in self._dump_others()
                      if wire.handle_of(body) not in (shared_root.LINK,
                                                      wire.INSIDE)]
            messages = shared_root.removal(ifindex, with_root=not others)
        check(kernel.tc_send(messages), f'delete the qdisc of {self.dev}',
              (errno.ENOENT,))
        return True


def _ours(qdiscs: Iterable[wire.Qdisc]) -> wire.Qdisc | None:
    return next((qdisc for qdisc in qdiscs if qdisc.is_ours), None)


def _with_drops(stats: dict[int, wire.ClassStats], qdiscs: Iterable[bytes]
                ) -> dict[int, wire.ClassStats]:
    """Fill in the drops of the leaves."""
    for minor, drops in filter(None, map(wire.read_leaf_drops, qdiscs)):
        if drops and minor in stats:
            stats[minor] = stats[minor]._replace(drops=drops)
    return stats


def change(calls: protocol.Kernel,
           changes: Sequence[operations.TcOperation], what: str,
           tolerate: Container[int] = ()) -> None:
    """Make changes; an errno among ``tolerate`` is no failure.

    :raises virtco.exception.KernelRefused: for any other.
    """
    check(calls.tc_change(changes), what, tolerate)


def check(refused: Iterable[int], what: str, tolerate: Container[int] = ()
          ) -> None:
    """Raise for an errno that is not among ``tolerate``.

    :raises virtco.exception.KernelRefused: with the first such errno.
    """
    failed = [code for code in refused if code not in tolerate]
    if failed:
        raise exception.KernelRefused(what=what, count=len(failed),
                                      why=os.strerror(failed[0]))
