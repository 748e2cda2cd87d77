# SPDX-License-Identifier: Apache-2.0

"""Transfer of files by libtorrent, set up as Cornet (Orchestra §5.2).

Blocks are large, uploads have no cap, and there is no tit-for-tat: every
neighbour that needs blocks is served, and each member goes on serving until
all are done. Only the neighbours that the tracker names may connect.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import pathlib
import threading
import time
from typing import Any

import libtorrent

from virtco_tenant.cast import blocks
from virtco_tenant.cast import peers
from virtco_tenant.cast import torrents

#: Most blocks that are read at the same time, to copy to another swarm.
_MAX_READS = 8

_SETTINGS: dict[str, Any] = {
    'enable_dht': False, 'enable_lsd': False, 'enable_upnp': False,
    'enable_natpmp': False, 'enable_outgoing_utp': False,
    'enable_incoming_utp': False,
    # Alerts tell the blocks that one swarm received, to copy to the others.
    'alert_mask': int(
        libtorrent.alert.category_t.piece_progress_notification
        | libtorrent.alert.category_t.storage_notification),
    'alert_queue_size': 100_000,
    # A member that needs nothing more of a swarm still sends.
    'close_redundant_connections': False,
    # Peers may share an address; the tracker decides which may connect.
    'allow_multiple_connections_per_ip': True, 'allow_idna': False,
    # Everybody is unchoked: no tit-for-tat.
    'choking_algorithm': 0, 'unchoke_slots_limit': -1,
    'peer_turnover': 0, 'peer_connect_timeout': 3, 'connection_speed': 100,
    'min_reconnect_time': 1, 'max_failcount': 100, 'peer_timeout': 30,
    'request_timeout': 20, 'piece_timeout': 20,
    # Blocks are announced as soon as they are there.
    'suggest_mode': 0, 'send_buffer_watermark': 4 * 1024 * 1024,
    'rate_limit_ip_overhead': False,
    # Requests that wait long at one neighbour cannot go to another.
    'request_queue_time': 1, 'send_redundant_have': False,
}


@dataclasses.dataclass(frozen=True)
class Peer:
    """A neighbour.

    :ivar calls: whether this member opens the connection, not the neighbour.
    """

    name: str
    host: str
    port: int
    calls: bool


class Transfer:
    """Sends and receives the files of a cast at one member.

    The same blocks are in a swarm for each of ``peers.LEVELS``; all write to
    the same files.

    :param torrent: description of the files, as ``describe`` made it.
    :param directory: directory of the files.
    :param rate_bps: cap on the member's upload; 0 is none.
    :param others: settings of libtorrent in place of Cornet's.
    :raises virtco.exception.Invalid: for an invalid description.
    """

    def __init__(self, torrent: bytes, directory: pathlib.Path, *,
                 is_source: bool, address: str = '0.0.0.0',
                 rate_bps: float = 0, others: Mapping[str, Any] | None = None):
        self._infos = torrents.infos(torrent)
        files = self._infos[peers.WITHIN].files()
        self.size_bytes: int = files.total_size()
        self.names = sorted({pathlib.PurePath(files.file_path(place)).parts[0]
                             for place in range(files.num_files())})
        self._n_blocks: int = files.num_pieces()
        settings: Any = {
            **_SETTINGS, 'listen_interfaces': f'{address}:0',
            'upload_rate_limit': math.ceil(rate_bps / 8), **(others or {})}
        self._session = libtorrent.session(settings)
        # Caps hold for private addresses, too, which libtorrent leaves out.
        capped = libtorrent.ip_filter()
        capped.add_rule('0.0.0.0', '255.255.255.255',
                        1 << libtorrent.session.global_peer_class_id)
        self._session.set_peer_class_filter(capped)
        self._directory = directory
        #: Error of the operating system when files could not be written or
        #: read, such as a full disk; None without one.
        self.error: str | None = None
        self._links: Sequence[Sequence[Peer]] | None = None
        self._blocks = blocks.Blocks(self._n_blocks, time.monotonic)
        self._lock = threading.Lock()
        self._swarms: list[Any] = []
        self._ends = threading.Event()
        # Blocks that a killed receiver left are checked and kept.
        self._all = self._add(peers.WITHIN, is_source)
        if is_source:
            self._swarms = [self._add(peers.FIRST, True),
                            self._add(peers.BETWEEN, True), self._all]
        self.follow([()] * len(peers.LEVELS), None)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _add(self, level: int, is_source: bool,
             have: list[bool] | None = None) -> Any:
        parameters = libtorrent.add_torrent_params()
        parameters.ti = self._infos[level]
        parameters.save_path = str(self._directory)
        flags = libtorrent.torrent_flags
        parameters.flags &= ~(flags.auto_managed | flags.paused)
        if is_source:
            parameters.flags |= flags.seed_mode
        if have is not None:
            parameters.have_pieces = have
            parameters.piece_priorities = [0] * self._n_blocks
            parameters.flags |= flags.sequential_download
        return self._session.add_torrent(parameters)

    @property
    def port(self) -> int:
        """TCP port at which this member listens for its neighbours."""
        listening: int = self._session.listen_port()
        return listening

    @property
    def ready(self) -> bool:
        """Whether the blocks that were here before have been checked."""
        return bool(self._swarms)

    @property
    def share(self) -> float:
        """Part of the bytes that are here and checked, 0 to 1."""
        status = self._all.status()
        if status.is_seeding:
            return 1.0
        return min(float(status.progress), 0.999999)

    @property
    def receive_bps(self) -> float:
        """Rate of received payload in bit/s, summed over the swarms."""
        return 8 * sum(float(one.status().download_payload_rate)
                       for one in self._swarms)

    @property
    def send_bps(self) -> float:
        """Rate of sent payload in bit/s, summed over the swarms."""
        return 8 * sum(float(one.status().upload_payload_rate)
                       for one in self._swarms)

    def follow(self, links: Sequence[Sequence[Peer]],
               share: peers.Share | None) -> None:
        """Connect to these neighbours only, and fetch this share.

        :param links: neighbours for each of ``peers.LEVELS``.
        :param share: None for no gate.
        """
        if links != self._links:
            self._links = links
            block = libtorrent.ip_filter()
            block.add_rule('0.0.0.0', '255.255.255.255', 1)
            for host in {one.host for level in links for one in level}:
                block.add_rule(host, host, 0)
            self._session.set_ip_filter(block)
        for swarm, level in zip(self._swarms, links):
            connected = {peer.ip for peer in swarm.get_peer_info()}
            for one in level:
                if one.calls and (one.host, one.port) not in connected:
                    swarm.connect_peer((one.host, one.port))
        if self._swarms:
            self._take(share)

    def _take(self, share: peers.Share | None) -> None:
        with self._lock:
            if self._blocks.take(share, self._available):
                for level in (peers.FIRST, peers.BETWEEN):
                    self._swarms[level].prioritize_pieces(
                        self._blocks.priorities(level))

    def _available(self, level: int) -> list[int]:
        found: list[int] = self._swarms[level].piece_availability()
        return found or [0] * self._n_blocks

    def rates_bps(self) -> dict[str, float]:
        """Return the present receive rate by name of neighbour, in bit/s."""
        rates_bps: dict[str, float] = {}
        for swarm, level in zip(self._swarms, self._links or ()):
            names = {(one.host, one.port): one.name for one in level}
            # A peer that opened the connection shows another port.
            hosts = {one.host: one.name for one in level}
            if len(hosts) < len(level):
                hosts = {}
            for peer in swarm.get_peer_info():
                name = names.get(tuple(peer.ip), hosts.get(peer.ip[0]))
                if name is not None and peer.payload_down_speed:
                    rates_bps[name] = (rates_bps.get(name, 0.0)
                                       + 8 * float(peer.payload_down_speed))
        return rates_bps

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        self._session.pause()
        del self._session

    def _run(self) -> None:
        """Copy the blocks that one swarm received to the others."""
        reads = 0
        while not self._ends.is_set():
            if not self._swarms:
                self._start_others()
            self._session.wait_for_alert(100)
            for alert in self._session.pop_alerts():
                if isinstance(alert, libtorrent.piece_finished_alert):
                    self._finished(alert)
                elif isinstance(alert, libtorrent.read_piece_alert):
                    reads -= 1
                    self._pass_on(alert)
                elif isinstance(alert, libtorrent.file_error_alert):
                    self.error = (f'{alert.filename()}: '
                                  f'{alert.error.message()}')
            while self._blocks.to_pass and reads < _MAX_READS:
                reads += self._read(self._blocks.to_pass.popleft())

    def _start_others(self) -> None:
        status = self._all.status(
            libtorrent.status_flags_t.query_pieces)
        states = libtorrent.torrent_status.states
        if status.state in (states.downloading, states.finished,
                            states.seeding):
            with self._lock:
                have = list(status.pieces) or [False] * self._n_blocks
                self._blocks.found([block for block in range(self._n_blocks)
                                    if have[block]])
                self._swarms = [self._add(peers.FIRST, False, have),
                                self._add(peers.BETWEEN, False, have),
                                self._all]

    def _finished(self, alert: Any) -> None:
        with self._lock:
            for level, swarm in enumerate(self._swarms):
                if alert.handle == swarm:
                    for other in self._blocks.finished(
                            level, alert.piece_index):
                        # Priority 0: the block is here already, so no other
                        # swarm needs to fetch it.
                        self._swarms[other].piece_priority(
                            alert.piece_index, 0)

    def _read(self, block: int) -> bool:
        with self._lock:
            level = self._blocks.source(block)
        if level is None:
            return False
        self._swarms[level].read_piece(block)
        return True

    def _pass_on(self, alert: Any) -> None:
        if alert.buffer:
            with self._lock:
                lacking = self._blocks.lacking(alert.piece)
            for level in lacking:
                self._swarms[level].add_piece(alert.piece, alert.buffer, 0)
