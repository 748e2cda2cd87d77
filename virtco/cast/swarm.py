# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""libtorrent, set up as Cornet (Orchestra §5.2).

Large blocks, no cap on uploads, no tit-for-tat: whoever needs blocks is
served, and each member goes on serving until all are done. Only the neighbours
that the tracker names may connect.
"""

from collections.abc import Collection
import ipaddress
import pathlib
import typing
from typing import Any

import libtorrent

from virtco import exception

BLOCK_BYTES = 4 * 1024 * 1024
#: Small files take smaller blocks, so that receivers have something to give.
LEAST_BLOCKS = 64
LEAST_BLOCK_BYTES = 64 * 1024

_SETTINGS: dict[str, Any] = {
    'enable_dht': False, 'enable_lsd': False, 'enable_upnp': False,
    'enable_natpmp': False, 'enable_outgoing_utp': False,
    'enable_incoming_utp': False, 'alert_mask': 0,
    # Peers may share an address; who may connect is up to the tracker.
    'allow_multiple_connections_per_ip': True, 'allow_idna': False,
    # Everybody is unchoked: no tit-for-tat.
    'choking_algorithm': 0, 'unchoke_slots_limit': -1,
    'peer_turnover': 0, 'peer_connect_timeout': 3, 'connection_speed': 100,
    'min_reconnect_time': 1, 'max_failcount': 100, 'peer_timeout': 30,
    'request_timeout': 20, 'piece_timeout': 20,
    # Blocks are announced as soon as they are there.
    'suggest_mode': 0, 'send_buffer_watermark': 4 * 1024 * 1024,
    'max_out_request_queue': 1000, 'rate_limit_ip_overhead': False,
}


def describe(path: pathlib.Path) -> bytes:
    """What receivers need to know of a file or directory.

    :raises virtco.exception.Invalid: when there is nothing to send.
    """
    if not path.exists():
        raise exception.Invalid(field='path', value=path,
                                limit='a file or directory that exists')
    files = libtorrent.file_storage()
    libtorrent.add_files(files, str(path.resolve()))
    if not files.total_size():
        raise exception.Invalid(field='path', value=path,
                                limit='at least one byte')
    made = libtorrent.create_torrent(
        files, block_bytes(files.total_size()),
        libtorrent.create_torrent.v1_only)
    made.set_priv(True)
    libtorrent.set_piece_hashes(made, str(path.resolve().parent))
    encoded: bytes = libtorrent.bencode(made.generate())
    return encoded


def block_bytes(size_bytes: int) -> int:
    """A power of two, 4 MiB for all that is large enough for 64 blocks."""
    block = BLOCK_BYTES
    while block > LEAST_BLOCK_BYTES and size_bytes < LEAST_BLOCKS * block:
        block //= 2
    return block


class Transfer:
    """One member's part of a cast.

    :param torrent: as ``describe`` made it.
    :param directory: where the files are or will be.
    :param rate_bps: cap of what this member sends; 0 is none.
    :raises virtco.exception.Invalid: a description that is none.
    """

    def __init__(self, torrent: bytes, directory: pathlib.Path, *,
                 is_source: bool, address: str = '0.0.0.0',  # noqa: S104
                 rate_bps: float = 0):
        try:
            info = libtorrent.torrent_info(
                typing.cast(bytes, libtorrent.bdecode(torrent)))
        except RuntimeError as error:
            raise exception.Invalid(
                field='torrent', value=f'{len(torrent)} bytes',
                limit=f'a description of files ({error})') from error
        self.size_bytes: int = info.total_size()
        self.names = sorted({pathlib.PurePath(
            info.files().file_path(place)).parts[0]
            for place in range(info.files().num_files())})
        settings: Any = {
            **_SETTINGS, 'listen_interfaces': f'{address}:0',
            'upload_rate_limit': int(rate_bps / 8)}
        self._session = libtorrent.session(settings)
        # What a killed receiver left is checked and kept.
        parameters = libtorrent.add_torrent_params()
        parameters.ti = info
        parameters.save_path = str(directory)
        flags = libtorrent.torrent_flags
        parameters.flags &= ~(flags.auto_managed | flags.paused)
        if is_source:
            parameters.flags |= flags.seed_mode
        self._torrent = self._session.add_torrent(parameters)
        self._allowed: frozenset[tuple[str, int]] | None = None
        self.allow(())

    @property
    def port(self) -> int:
        listening: int = self._session.listen_port()
        return listening

    @property
    def share(self) -> float:
        """Of the bytes that are here and checked."""
        status = self._torrent.status()
        if status.is_seeding:
            return 1.0
        return min(float(status.progress), 0.999999)

    @property
    def receive_bps(self) -> float:
        return float(self._torrent.status().download_payload_rate) * 8

    @property
    def send_bps(self) -> float:
        return float(self._torrent.status().upload_payload_rate) * 8

    def allow(self, addresses: Collection[tuple[str, int]]) -> None:
        """Talk to these and nobody else."""
        wanted = frozenset(addresses)
        if wanted != self._allowed:
            self._allowed = wanted
            block = libtorrent.ip_filter()
            block.add_rule('0.0.0.0', '255.255.255.255', 1)  # noqa: S104
            for host in {host for host, _port in wanted}:
                ipaddress.ip_address(host)
                block.add_rule(host, host, 0)
            self._session.set_ip_filter(block)
        connected = {peer.ip for peer in self._torrent.get_peer_info()}
        for one in wanted - connected:
            self._torrent.connect_peer(one)

    def rates_bps(self) -> dict[tuple[str, int], float]:
        """At which bytes come from each address now."""
        return {(peer.ip[0], peer.ip[1]): float(peer.payload_down_speed) * 8
                for peer in self._torrent.get_peer_info()
                if peer.payload_down_speed}

    def end(self) -> None:
        self._session.pause()
        del self._session
