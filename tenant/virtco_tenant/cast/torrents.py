# SPDX-License-Identifier: Apache-2.0

"""Descriptions of files, as libtorrent makes them."""

from collections.abc import Mapping
import os
import pathlib
import typing
from typing import Any

import libtorrent

from virtco import exception

BLOCK_BYTES = 4 * 1024 * 1024
LEAST_BLOCK_BYTES = 16 * 1024
#: Announcing a block to all neighbours costs about 1 kB, and each hop delays
#: the cast by a few dozen blocks, as neighbours share links. The sum of both
#: costs is least where the square of a block's size is about the file's size
#: times this.
_OVERHEAD_BYTES = 16


def describe(path: pathlib.Path) -> bytes:
    """Return the description of a file or directory: a bencoded torrent.

    :raises virtco.exception.Invalid: when there is nothing to send, or a file
        cannot be read.
    """
    if not path.exists():
        raise exception.Invalid(field='path', value=path,
                                limit='an existing file or directory')
    files = libtorrent.file_storage()
    libtorrent.add_files(files, str(path.resolve()))
    if not files.total_size():
        raise exception.Invalid(field='path', value=path,
                                limit='at least one byte')
    made = libtorrent.create_torrent(
        files, block_bytes(files.total_size()),
        libtorrent.create_torrent.v1_only)
    made.set_priv(True)
    try:
        libtorrent.set_piece_hashes(made, str(path.resolve().parent))
    except RuntimeError as error:
        raise exception.Invalid(
            field='path', value=path,
            limit=f'files that can be read ({error})') from error
    described = typing.cast(dict[bytes, Any], made.generate())
    # The same files have the same description at any time.
    described.pop(b'creation date', None)
    encoded: bytes = libtorrent.bencode(described)
    return encoded


def block_bytes(size_bytes: int) -> int:
    """Return the size of blocks of a file, a power of two.

    It is 16 KiB for files up to 16 MiB, 128 KiB for 1 GiB, 4 MiB at most.
    """
    block = LEAST_BLOCK_BYTES
    while block < BLOCK_BYTES and block ** 2 < _OVERHEAD_BYTES * size_bytes:
        block *= 2
    return block


Stamps = dict[str, tuple[int, int]]


def stamps(path: pathlib.Path) -> Stamps:
    """Return (bytes, modification time in ns) of each file, by path."""
    names = [str(path)] if path.is_file() else [
        os.path.join(directory, name)
        for directory, _, files in os.walk(path, followlinks=True)
        for name in files]
    return {name: stamp for name in names
            if (stamp := _stamp(name)) is not None}


def changed(before: Mapping[str, tuple[int, int]]) -> str | None:
    """Return a file that changed since its stamp; None without one.

    Deleted files are ignored: a process that has one open still reads it.
    """
    return next((name for name, stamp in before.items()
                 if _stamp(name) not in (None, stamp)), None)


def _stamp(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def infos(torrent: bytes) -> list[Any]:
    """Return a description for each of ``peers.LEVELS``.

    They describe the same files and differ in their info hash only.

    :raises virtco.exception.Invalid: for an invalid description.
    """
    try:
        read = typing.cast(dict[bytes, Any], libtorrent.bdecode(torrent))
        return [libtorrent.torrent_info(typing.cast(Any, {
            **read, b'info': {**read[b'info'], b'source': name}}))
            for name in (b'first', b'between', b'within')]
    except (RuntimeError, TypeError, KeyError) as error:
        raise exception.Invalid(
            field='torrent', value=f'{len(torrent)} bytes',
            limit=f'a description of files ({error})') from error
