# SPDX-License-Identifier: Apache-2.0

"""Shaping by earliest departure times: no lock, for many cores.

A BPF program at the uplink's egress (``edt.c``) gives each packet the time at
which its class lets it go, and fq, one for each of the device's queues,
releases it then. Classes cannot borrow from each other, so a thread of this
module looks every 50 to 100 ms at what each sent, and hands unused rate to
others (``sharing``). The tree stands in the program's map, with all that a
restart wants to find.
"""

from collections.abc import Container
from collections.abc import Iterable
import glob
import logging
import os
import pathlib
import struct
import threading
import time

from edge_module.privileged import protocol
from edge_module.qdisc import htb
from edge_module.qdisc import wire
from edge_module.shaper import base
from edge_module.shaper import bpf
from edge_module.shaper import sharing
from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco import exception
from virtco import units

LOG = logging.getLogger(__name__)

OBJECT = pathlib.Path(__file__).with_name('edt.o')
#: Unused rate is handed on so often.
PACE_S = 0.05
# Less often where it would take more of a processor than a tenth; a look costs
# some 70 microseconds per coflow.
_SLOWEST_S, _IDLE_PER_COST = 0.1, 9
# What a packet may wait: fq forgets nothing, so a rate that changes counts
# only for packets that come after it.
_MOST_WAIT_NS, _LEAST_WAIT_NS = 200_000_000, 5_000_000
_FQ_PACKETS, _FQ_FLOW_PACKETS = 200_000, 20_000
_FQ_PLIMIT, _FQ_FLOW_PLIMIT, _FQ_RATE_ENABLE = 1, 2, 5
_U32 = struct.Struct('=I')
_HEAD = struct.Struct('=QQII')
_SHAPE = struct.Struct('=HBBIIIQQ8x')
_STATE = struct.Struct('=QQ')
_COUNT = struct.Struct('=3Q')
_HAS_LIMIT, _HAS_PACKET = 1, 2


def pack_class(item: model.HtbClass, rate_bps: float) -> bytes:
    """As ``struct class`` of the program.

    :param rate_bps: what it may send now; 0 for an inner class.
    """
    rate = int(units.bps_to_bytes_per_s(rate_bps))
    limit = item.limit_bytes or 0
    flags = (_HAS_LIMIT * (item.limit_bytes is not None)
             | _HAS_PACKET * (item.packet_bytes is not None))
    return _HEAD.pack(rate, _wait_ns(item, rate_bps), item.overhead_bytes,
                      item.frame_min_bytes) + _SHAPE.pack(
        item.parent, item.prio, flags, item.quantum_bytes, limit,
        item.packet_bytes or 0, item.rate_bps, item.ceil_bps)


def _wait_ns(item: model.HtbClass, rate_bps: float) -> int:
    """Length of a class's queue in time at its rate of now."""
    rate = units.bps_to_bytes_per_s(max(rate_bps, model.IDLE_RATE_BPS))
    return min(_MOST_WAIT_NS, max(
        _LEAST_WAIT_NS, int((item.limit_bytes or 0) * 1e9 / rate)))


def read_class(minor: int, value: bytes) -> tuple[model.HtbClass, float]:
    """The reverse of :func:`pack_class`."""
    rate, _, overhead, least = _HEAD.unpack_from(value)
    parent, prio, flags, quantum, limit, packet, rate_bps, ceil_bps = (
        _SHAPE.unpack_from(value, _HEAD.size))
    return model.HtbClass(
        minor, parent, rate_bps, ceil_bps, prio, quantum,
        limit if flags & _HAS_LIMIT else None,
        packet if flags & _HAS_PACKET else None, overhead, least
    ), units.bytes_per_s_to_bps(rate)


def missing() -> str | None:
    """Why it cannot be used here; None when it can."""
    if not OBJECT.exists():
        return ('built without clang, which compiles '
                'edge_module/shaper/edt.c')
    return None


class EdtShaper(base.Shaper):
    """See the module.

    :param pace_s: 0 hands unused rate on when :meth:`pace` is called only.
    """

    name = 'edt'
    #: What it has at the root.
    queues = ('fq', 'mq')

    def __init__(self, kernel: protocol.Kernel, dev: str,
                 pace_s: float = PACE_S):
        super().__init__(kernel, dev)
        self._pace_s = pace_s
        self._lock = threading.RLock()
        self._program: bpf.Program | None = None
        self._tree: model.Tree = {}
        self._rates_bps: dict[int, float] = {}
        self._before: dict[int, wire.ClassStats] = {}
        self._before_s = 0.0
        self._thread: threading.Thread | None = None
        self._copies = processors()

    # -- what stands -------------------------------------------------------

    def _found(self) -> bpf.Program | None:
        """The program at the device, with the tree that it holds."""
        found = bpf.Program.attached(self.ifindex())
        self._program = found
        if found is not None:
            shown = {minor: read_class(minor, value) for minor, value in (
                (minor, found.maps['classes'].get(minor))
                for minor in found.maps['classes'].keys())
                if value is not None}
            self._tree = {minor: item for minor, (item, _) in shown.items()}
            self._rates_bps = {
                minor: rate_bps for minor, (item, rate_bps) in shown.items()
                if item.limit_bytes is not None}
        return found

    def snapshot(self) -> base.Snapshot:
        with self._lock:
            ifindex = self.ifindex()
            root = self._root(ifindex)
            found = self._found()
            ours = root is not None and root.kind in self.queues
            if found is None or not ours:
                foreign = (f'{root.kind} {root.handle >> 16:x}:'
                           if root is not None and root.handle
                           and not ours else None)
                return base.Snapshot(False, foreign, {}, {})
            return base.Snapshot(True, None, dict(self._tree),
                                 self._all_stats())

    def _root(self, ifindex: int) -> wire.Qdisc | None:
        bodies = self.kernel.tc_dump(
            wire.dump_request(wire.RTM_GETQDISC, ifindex))
        return next((wire.read_qdisc(body) for body in bodies
                     if wire.is_root_of(body, ifindex)), None)

    def stats(self) -> dict[int, wire.ClassStats]:
        with self._lock:
            if self._program is None and self._found() is None:
                return {}
            # Who counts is the agent; others only look, by snapshot.
            self._start()
            return self._all_stats()

    def class_stats(self, wanted: Container[int] | None = None
                    ) -> dict[int, wire.ClassStats]:
        return self.stats()

    def _all_stats(self) -> dict[int, wire.ClassStats]:
        with self._lock:
            leaves = {minor: self._leaf_stats(minor)
                      for minor in self._rates_bps}
            found = dict.fromkeys(self._tree, wire.ClassStats())
            for minor, seen in leaves.items():
                while minor in found:
                    found[minor] = _sum(found[minor], seen)
                    minor = self._tree[minor].parent
            return found

    def _leaf_stats(self, minor: int) -> wire.ClassStats:
        assert self._program is not None
        counts = self._program.maps['counts'].get(minor, self._copies)
        state = self._program.maps['states'].get(minor)
        if counts is None or state is None:
            return wire.ClassStats()
        each = list(_COUNT.iter_unpack(counts))
        next_ns, _ = _STATE.unpack_from(state)
        waits_s = max(0, next_ns - time.monotonic_ns()) / 1e9
        return wire.ClassStats(
            sum(item[0] for item in each), sum(item[1] for item in each),
            int(waits_s * units.bps_to_bytes_per_s(self._rates_bps[minor])),
            sum(item[2] for item in each))

    # -- changes -----------------------------------------------------------

    def ensure_root(self) -> None:
        with self._lock:
            ifindex = self.ifindex()
            self._make_queues(ifindex)
            program = bpf.Program.load(str(OBJECT), 'edt')
            program.attach(ifindex)
            self._program, self._tree, self._rates_bps = program, {}, {}

    def _make_queues(self, ifindex: int) -> None:
        queues = len(glob.glob(f'/sys/class/net/{self.dev}/queues/tx-*'))
        what = f'create the qdiscs (fq) of {self.dev}'
        if queues <= 1:
            htb.send(self.kernel, [_fq(
                ifindex, wire.TC_H_ROOT, wire.ROOT_HANDLE)], what)
            return
        htb.send(self.kernel, [_qdisc(
            ifindex, wire.TC_H_ROOT, wire.ROOT_HANDLE, b'mq\0')], what)
        htb.send(self.kernel, [_fq(
            ifindex, wire.ROOT_HANDLE | number + 1, 0)
            for number in range(queues)], what)

    def set_classes(self, classes: Iterable[model.HtbClass],
                    current: model.Tree) -> None:
        with self._lock:
            if self._program is None:
                raise exception.NotFound(what='BPF program of', id=self.dev)
            for item in classes:
                minor = item.minor
                is_new = minor not in self._tree
                self._tree[minor] = item
                if item.limit_bytes is not None:
                    self._rates_bps.setdefault(minor, float(item.rate_bps))
                self._put(minor)
                if is_new and item.limit_bytes is not None:
                    self._program.maps['counts'].set(
                        minor, bytes(_COUNT.size * self._copies))
                    self._program.maps['states'].set(minor, bytes(_STATE.size))
            self.pace(time.monotonic())
        self._start()

    def _put(self, minor: int) -> None:
        assert self._program is not None
        self._program.maps['classes'].set(minor, pack_class(
            self._tree[minor], self._rates_bps.get(minor, 0.0)))

    def delete_classes(self, minors: Iterable[int]) -> None:
        with self._lock:
            for minor in minors:
                self._tree.pop(minor, None)
                self._rates_bps.pop(minor, None)
                self._before.pop(minor, None)
                if self._program is not None:
                    for name in ('classes', 'states', 'counts'):
                        self._program.maps[name].delete(minor)

    def delete_root(self) -> bool:
        with self._lock:
            ifindex = self.ifindex()
            found = bpf.Program.attached(ifindex)
            if found is None:
                return False
            found.detach(ifindex)
            self._program, self._tree, self._rates_bps = None, {}, {}
            self._remove_queues(ifindex)
            return True

    def _remove_queues(self, ifindex: int) -> None:
        root = self._root(ifindex)
        if root is not None and root.kind in self.queues:
            htb.send(self.kernel, [wire.delete_root(ifindex)],
                     f'delete the qdiscs of {self.dev}')

    # -- unused rate -------------------------------------------------------

    def _start(self) -> None:
        if self._pace_s and self._thread is None:
            self._thread = threading.Thread(
                target=self._keep_pace, name='edt', daemon=True)
            self._thread.start()

    def _keep_pace(self) -> None:
        told, cost_s = None, 0.0
        while self._program is not None:
            time.sleep(min(_SLOWEST_S, max(self._pace_s,
                                           _IDLE_PER_COST * cost_s)))
            start_s = time.thread_time()
            try:
                self.pace(time.monotonic())
                told, cost_s = None, time.thread_time() - start_s
            except exception.VirtcoException as error:
                # The audit puts it right.
                if str(error) != told:
                    LOG.error('Unused rate is not handed on: %s', error)
                told = str(error)
        self._thread = None

    def pace(self, now_s: float) -> None:
        """Give each class its rate for the next moment."""
        with self._lock:
            if self._program is None or minors.LINK not in self._tree:
                return
            used = self._used(now_s)
            leaves = [self._tree[minor] for minor in self._rates_bps]
            wanted = sharing.wanted_bps(
                used, self._rates_bps, leaves,
                self._tree[minors.LINK].ceil_bps)
            for minor, rate_bps in sharing.share(self._tree, wanted).items():
                rate_bps = max(rate_bps, model.IDLE_RATE_BPS)
                if abs(rate_bps - self._rates_bps[minor]) > (
                        0.005 * self._rates_bps[minor]):
                    self._rates_bps[minor] = rate_bps
                    self._put(minor)

    def _used(self, now_s: float) -> dict[int, sharing.Use]:
        took_s = max(1e-3, now_s - self._before_s)
        stats = {minor: self._leaf_stats(minor) for minor in self._rates_bps}
        used = {minor: _use(self._tree[minor], self._before.get(
            minor, wire.ClassStats()), seen, took_s, self._rates_bps[minor])
            for minor, seen in stats.items()}
        self._before, self._before_s = stats, now_s
        return used


def _use(item: model.HtbClass, before: wire.ClassStats, now: wire.ClassStats,
         took_s: float, rate_bps: float) -> sharing.Use:
    """What a class used, with what the wire adds to its frames."""
    frames = max(0, now.sent_packets - before.sent_packets)
    on_wire = max(now.sent_bytes - before.sent_bytes
                  + frames * item.overhead_bytes,
                  frames * item.frame_min_bytes)
    # One packet waits behind another also where there is rate enough.
    waits_s = now.backlog_bytes / units.bps_to_bytes_per_s(rate_bps)
    return sharing.Use(
        units.bytes_per_s_to_bps(on_wire / took_s),
        waits_s > _wait_ns(item, rate_bps) / 4e9 or now.drops > before.drops)


def _sum(one: wire.ClassStats, other: wire.ClassStats) -> wire.ClassStats:
    return wire.ClassStats(one.sent_bytes + other.sent_bytes,
                           one.sent_packets + other.sent_packets,
                           one.backlog_bytes + other.backlog_bytes,
                           one.drops + other.drops)


def processors() -> int:
    """Number of values in a map with one for each processor."""
    shown = pathlib.Path('/sys/devices/system/cpu/possible')
    try:
        return int(shown.read_text().strip().split('-')[-1]) + 1
    except (OSError, ValueError):
        return os.cpu_count() or 1


def _qdisc(ifindex: int, parent: int, handle: int, kind: bytes,
           options: bytes = b'') -> wire.Message:
    body = wire.TCMSG.pack(0, ifindex, handle, parent, 0)
    body += wire.attr(wire.KIND, kind)
    if options:
        body += wire.attr(wire.OPTIONS, options)
    return wire.RTM_NEWQDISC, wire.NLM_F_CREATE | wire.NLM_F_REPLACE, body


def _fq(ifindex: int, parent: int, handle: int) -> wire.Message:
    return _qdisc(ifindex, parent, handle, b'fq\0', b''.join(
        wire.attr(kind, _U32.pack(value)) for kind, value in (
            (_FQ_PLIMIT, _FQ_PACKETS), (_FQ_FLOW_PLIMIT, _FQ_FLOW_PACKETS),
            (_FQ_RATE_ENABLE, 0))))
