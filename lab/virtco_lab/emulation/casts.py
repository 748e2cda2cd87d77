# SPDX-License-Identifier: Apache-2.0

"""A cast in one process: each member's libtorrent in its own namespace."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import pathlib
import random
import statistics
import tempfile
import time
from typing import Any

from virtco import exception
from virtco_lab.emulation import fabric
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import process
from virtco_tenant.cast import peers
from virtco_tenant.cast import swarm
from virtco_tenant.cast import torrents
from virtco_tenant.cast import tracker

Plan = Callable[[str, Sequence[peers.Member], int], dict[str, peers.Part]]
_WATCH_S = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Scheme:
    """How blocks are handed on.

    :ivar knows_racks: whether members are told apart by their racks.
    :ivar others: settings of libtorrent in place of Cornet's.
    """

    plan: Plan
    knows_racks: bool = False
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)


#: libtorrent as it comes, which is made for the Internet: tit-for-tat among a
#: few who are changed now and then.
_INTERNET = {'unchoke_slots_limit': 4, 'num_optimistic_unchoke_slots': 1,
             'peer_turnover': 4, 'request_queue_time': 3,
             'send_redundant_have': True, 'close_redundant_connections': True}
SCHEMES = {
    'star': Scheme(peers.plan_star), 'chain': Scheme(peers.plan_chain),
    'tree': Scheme(peers.plan_tree),
    'BitTorrent': Scheme(peers.plan_plain, others=_INTERNET),
    'Cornet': Scheme(peers.plan_plain), 'virtco': Scheme(peers.plan),
    'virtco, topology': Scheme(peers.plan, knows_racks=True)}


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """Result of a broadcast to all receivers.

    :ivar ends_s: end of each receiver, from the time when all were ready.
    :ivar uplink_copies: copies that crossed uplinks of racks, both ways.
    :ivar rates_bps: observed rates by (sender, receiver), in the median.
    """

    ends_s: Mapping[str, float]
    uplink_copies: float
    rates_bps: Mapping[tuple[str, str], float]

    @property
    def taken_s(self) -> float:
        return max(self.ends_s.values())


def run(racks: fabric.Fabric, size_bytes: int, scheme: Scheme,
        seed: int, *, receivers: int | None = None,
        clusters: Mapping[str, str] | None = None, limit_s: float = 300.0
        ) -> Found:
    """Hand a file from the first VM to the others.

    :param receivers: only so many of them, drawn by ``seed``.
    :param clusters: known racks in place of the true ones.
    :raises virtco.exception.VirtcoException: not all have it by then.
    """
    source, *others = racks.bed.hosts
    drawn = random.Random(seed)
    names = [source, *drawn.sample(others, receivers or len(others))]
    known = clusters if clusters is not None else racks.bed.racks
    members = [peers.Member(name, known.get(name) if scheme.knows_racks
                            or clusters is not None else None)
               for name in names]
    parts = scheme.plan(source, members, seed)
    with tempfile.TemporaryDirectory() as directory:
        with contextlib.ExitStack() as stack:
            path = pathlib.Path(directory) / source / 'file'
            path.parent.mkdir()
            path.write_bytes(drawn.randbytes(size_bytes))
            transfers = _start(racks, names, path, scheme, stack)
            before = racks.switches_bytes()
            ends_s, rates_bps = _watch(racks, names, parts, transfers,
                                       limit_s)
            copies = (racks.switches_bytes() - before) / size_bytes / 2
        for name in names[1:]:
            got = pathlib.Path(directory) / name / 'file'
            if got.read_bytes() != path.read_bytes():
                raise exception.VirtcoException(f'{name} has other bytes')
    return Found(ends_s, copies, rates_bps)


def _start(racks: fabric.Fabric, names: Sequence[str],
           path: pathlib.Path, scheme: Scheme, stack: contextlib.ExitStack
           ) -> dict[str, swarm.Transfer]:
    torrent = torrents.describe(path)
    transfers = {}
    for name in names:
        directory = path.parent.parent / name
        directory.mkdir(exist_ok=True)
        # Threads that libtorrent starts stay in the namespace.
        made = namespaces.call(
            racks.hypervisors[name].namespace, lambda: swarm.Transfer(
                torrent, directory,
                is_source=name == names[0],
                address=racks.hypervisors[name].address,
                others=scheme.others))
        stack.callback(made.end)
        transfers[name] = made
    process.wait_until(
        lambda: all(one.ready for one in transfers.values()),
        'the start of every transfer', interval_s=_WATCH_S)
    return transfers


def _watch(racks: fabric.Fabric, names: Sequence[str],
           parts: Mapping[str, peers.Part],
           transfers: Mapping[str, swarm.Transfer], limit_s: float
           ) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    order = {name: place for place, name in enumerate(names)}
    links = {name: [[swarm.Peer(other, racks.hypervisors[other].address,
                                transfers[other].port,
                                order[name] > order[other])
                     for other in sorted(level)]
                    for level in parts[name].links] for name in names}
    began_s = asked_s = time.monotonic()
    ends_s: dict[str, float] = {}
    told: dict[tuple[str, str], list[float]] = {}
    while len(ends_s) < len(names) - 1:
        now_s = time.monotonic()
        if now_s > began_s + limit_s:
            raise exception.VirtcoException(
                f'{len(ends_s)} of {len(names) - 1} have it after '
                f'{limit_s:g} s')
        if now_s >= asked_s:
            asked_s = now_s + tracker.POLL_S / 2
            for name, transfer in transfers.items():
                transfer.follow(links[name], parts[name].share)
                for other, rate_bps in transfer.rates_bps().items():
                    told.setdefault((other, name), []).append(rate_bps)
        for name in names[1:]:
            if name not in ends_s and transfers[name].share >= 1:
                ends_s[name] = time.monotonic() - began_s
        time.sleep(_WATCH_S)
    return ends_s, {pair: statistics.median(rates)
                    for pair, rates in told.items()}
