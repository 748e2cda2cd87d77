# SPDX-License-Identifier: Apache-2.0

"""Maps, programs and links of ``classify.c``, pinned for a later process.

All is pinned in a directory of a BPF file system, one per network namespace
and version of the program. Packets go on being classified while there is no
process.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import pathlib
import secrets
import shutil
import struct
import time
from typing import Any

from edge_module.classify import bpf_maps

PROGRAM = pathlib.Path(__file__).parents[1] / 'classify' / 'classify.bpf.o'
#: In the BPF file system that systemd mounts.
DIRECTORY = '/sys/fs/bpf/virtco'
_MAGIC = 0xcafe4a11
_LOOPBACK = 1
_ARRAY = 2
_TCX_INGRESS, _TCX_EGRESS = 46, 47
_BATCH = 4096
_LINK_INFO = struct.Struct('=IIIxxxxII')
_NUMBERS: Mapping[str, int] = {
    name: number for number, name in enumerate(bpf_maps.PROGRAMS)}
# A map whose memory is allocated in small pieces may have none for a moment.
_ATTEMPTS, _WAIT_S = 200, 0.005


@functools.cache
def _libbpf() -> ctypes.CDLL:
    library = ctypes.CDLL('libbpf.so.1', use_errno=True)
    library.bpf_object__open_file.restype = ctypes.c_void_p
    library.libbpf_set_print(None)
    return library


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f'{what}: {os.strerror(code)}')
    return result


def _get(descriptor: int, key: bytes, value_bytes: int) -> bytes | None:
    """Read an element of a map; None where there is none."""
    value = ctypes.create_string_buffer(value_bytes)
    if _libbpf().bpf_map_lookup_elem(descriptor, key, value) < 0:
        return None
    return value.raw


def _set(descriptor: int, fresh: Mapping[bytes, bytes], name: str) -> None:
    """Set elements of a map."""
    left = list(fresh.items())
    for _ in range(_ATTEMPTS):
        if not left:
            return
        count = ctypes.c_uint32(len(left))
        result = _libbpf().bpf_map_update_batch(
            descriptor, b''.join(key for key, _ in left),
            b''.join(value for _, value in left), ctypes.byref(count), None)
        if result < 0 and ctypes.get_errno() == errno.E2BIG:
            raise OSError(errno.E2BIG, f'change {name}: it is full')
        if result < 0 and ctypes.get_errno() != errno.ENOMEM:
            break
        left = left[count.value:]
        if left:
            time.sleep(_WAIT_S)
    _checked(result, f'change {name}')


@contextlib.contextmanager
def _loaded() -> Iterator[ctypes.c_void_p]:
    """Load programs and maps, which go unless they are pinned meanwhile."""
    library = _libbpf()
    opened = ctypes.c_void_p(library.bpf_object__open_file(
        os.fsencode(PROGRAM), None))
    if not opened:
        _checked(-1, f'open {PROGRAM.name}')
    try:
        _checked(library.bpf_object__load(opened), 'load the programs')
        yield opened
    finally:
        library.bpf_object__close(opened)


class Tables:
    """Pinned maps, programs and links of this network namespace.

    :ivar path: directory that has them.
    """

    def __init__(self) -> None:
        self._netns = os.stat('/proc/thread-self/ns/net').st_ino
        self._base = pathlib.Path(_directory())
        self.path = self._base / f'{self._netns}-{_version()}'

    # -- pins ----------------------------------------------------------------

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[int]:
        """Open a pinned object by its name.

        :raises FileNotFoundError: when nothing is.
        """
        found = _checked(_libbpf().bpf_obj_get(os.fsencode(
            self.path / name)), f'open {name}')
        try:
            yield found
        finally:
            os.close(found)

    def _pin(self, descriptor: int, name: str) -> None:
        _checked(_libbpf().bpf_obj_pin(descriptor, os.fsencode(
            self.path / name)), f'pin {name}')

    def load(self) -> None:
        """Load the programs with empty maps, attached to nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(mode=0o700, parents=True)
        with _loaded() as found:
            _checked(_libbpf().bpf_object__pin(found, os.fsencode(self.path)),
                     'pin the programs')

    @property
    def is_loaded(self) -> bool:
        """Whether all programs and maps are pinned."""
        return all((self.path / name).exists()
                   for name in (*bpf_maps.PROGRAMS, *bpf_maps.MAPS))

    def remove(self, but_these: bool = False) -> bool:
        """Detach and unpin everything in this namespace.

        :param but_these: only what other versions of the program left.
        """
        found = [path for path in self._base.glob(f'{self._netns}-*')
                 if not (but_these and path == self.path)]
        for path in found:
            shutil.rmtree(path)
        return bool(found)

    def links(self) -> Iterator[tuple[int, int]]:
        """Yield (program, ifindex) of each program that is attached.

        :raises FileNotFoundError: where nothing is pinned.
        """
        if not self.is_loaded:
            raise FileNotFoundError('nothing is pinned')
        for path in self.path.glob('link-*'):
            _, name, ifindex = path.name.split('-')
            if self._is_attached(path.name, int(ifindex)):
                yield _NUMBERS[name], int(ifindex)

    def _is_attached(self, name: str, ifindex: int) -> bool:
        """Return whether a link is still at its device."""
        info = ctypes.create_string_buffer(64)
        length = ctypes.c_uint32(len(info))
        with contextlib.suppress(FileNotFoundError), self._open(name) as link:
            _checked(_libbpf().bpf_obj_get_info_by_fd(
                link, info, ctypes.byref(length)), f'ask for {name}')
            return bool(_LINK_INFO.unpack_from(info)[3] == ifindex)
        return False

    # -- changes -----------------------------------------------------------

    def attach(self, ifindex: int, programs: Iterable[bpf_maps.Program],
               among: str | None = None) -> None:
        """Attach programs to a device.

        :param among: map of caches that gets one for what they learn.
        """
        if among is not None:
            self._add_cache(ifindex, among)
        for program in programs:
            name = f'link-{program}-{ifindex}'
            if self._is_attached(name, ifindex):
                continue
            (self.path / name).unlink(missing_ok=True)
            with self._open(program) as descriptor:
                link = _checked(_libbpf().bpf_link_create(
                    descriptor, ifindex, _TCX_INGRESS
                    if program in bpf_maps.AT_INGRESS else _TCX_EGRESS, None),
                    f'attach {program} to ifindex {ifindex}')
            try:
                self._pin(link, name)
            finally:
                os.close(link)

    def _add_cache(self, ifindex: int, among: str) -> None:
        name = f'cache-{ifindex}'
        if (self.path / name).exists():
            return
        made = _checked(_libbpf().bpf_map_create(
            _ARRAY, b'cache', bpf_maps.IFINDEX.size,
            bpf_maps.BUCKET_BYTES, bpf_maps.BUCKETS[among], None),
            f'create {name}')
        try:
            self.replace(among, (), {
                bpf_maps.IFINDEX.pack(ifindex): bpf_maps.IFINDEX.pack(made)})
            self._pin(made, name)
        finally:
            os.close(made)

    def detach(self, ifindex: int) -> None:
        """Take all programs from a device, with all that they learned."""
        self.unlink(ifindex, bpf_maps.PROGRAMS)
        # First the pin, since a cache that has one is not made again.
        (self.path / f'cache-{ifindex}').unlink(missing_ok=True)
        for name in (*bpf_maps.BUCKETS, 'devices'):
            self.replace(name, [bpf_maps.IFINDEX.pack(ifindex)], {})

    def unlink(self, ifindex: int, programs: Iterable[bpf_maps.Program]
               ) -> None:
        """Take programs from a device."""
        for program in programs:
            (self.path / f'link-{program}-{ifindex}').unlink(missing_ok=True)

    def set_device(self, ifindex: int, fields: Mapping[str, int],
                   is_new: bool = True) -> None:
        """Change fields of a device.

        :param fields: values by name, of :class:`bpf_maps.Device`.
        :param is_new: whether to add it where it is not known.
        """
        key = bpf_maps.IFINDEX.pack(ifindex)
        with self._open('devices') as found:
            known = _get(found, key, bpf_maps.DEVICE_BYTES)
            if known is None and not is_new:
                return
            device = (bpf_maps.Device(seed=secrets.randbits(64))
                      if known is None else bpf_maps.device(known))
            _set(found, {key: device._replace(**fields).pack()}, 'devices')

    def replace(self, name: str, stale: Iterable[bytes],
                fresh: Mapping[bytes, bytes]) -> None:
        """Delete elements of a map, which makes room, and set others, each
        of them whole.
        """
        with self._open(name) as found:
            for key in stale:
                if key not in fresh and (
                        _libbpf().bpf_map_delete_elem(found, key) < 0
                        and ctypes.get_errno() != errno.ENOENT):
                    _checked(-1, f'delete from {name}')
            _set(found, fresh, name)

    # -- readings ----------------------------------------------------------

    def items(self, name: str, key_bytes: int, value_bytes: int
              ) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of each element of a map.

        :raises FileNotFoundError: without this map.
        """
        keys = ctypes.create_string_buffer(key_bytes * _BATCH)
        values = ctypes.create_string_buffer(value_bytes * _BATCH)
        place, count = ctypes.c_uint32(), ctypes.c_uint32()
        start: Any = None
        ended = False
        with self._open(name) as found:
            while not ended:
                count.value = _BATCH
                result = _libbpf().bpf_map_lookup_batch(
                    found, start, ctypes.byref(place), keys, values,
                    ctypes.byref(count), None)
                ended = result < 0 and ctypes.get_errno() == errno.ENOENT
                if not ended:
                    _checked(result, f'read {name}')
                    start = ctypes.byref(place)
                read = keys.raw, values.raw
                for at in range(count.value):
                    yield (read[0][at * key_bytes:(at + 1) * key_bytes],
                           read[1][at * value_bytes:(at + 1) * value_bytes])


@functools.cache
def _version() -> str:
    # A package without the programs still removes those of an earlier one.
    found = PROGRAM.read_bytes() if PROGRAM.exists() else b''
    return hashlib.sha256(found).hexdigest()[:12]


_opened = ''


def _directory() -> str:
    return _opened or DIRECTORY


def open_directory(owner: int) -> None:
    """Make the directory of pins and open it, as a process that has another
    user later may not reach it by its path.

    :param owner: id of that user.
    :raises OSError: when there is no such directory, and none can be made.
    """
    global _opened
    path = pathlib.Path(DIRECTORY)
    path.mkdir(mode=0o700, exist_ok=True)
    # Where anybody may make files there, it could be a link.
    # Under its unit, root may not read it either.
    found = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    opened = f'/proc/self/fd/{found}'
    if os.fstat(found).st_uid != owner:
        os.chown(opened, owner, -1)
    _opened = opened


def missing() -> str | None:
    """Return why this machine cannot classify so; None where it can."""
    try:
        if not PROGRAM.exists():
            return f'{PROGRAM.name} was not compiled'
        directory = pathlib.Path(_directory())
        directory.mkdir(mode=0o700, exist_ok=True)
        found = ctypes.create_string_buffer(256)
        ctypes.CDLL(None).statfs(os.fsencode(directory), found)
        if struct.unpack_from('=Q', found)[0] != _MAGIC:
            return f'{DIRECTORY} is in no BPF file system'
        if not os.access(directory, os.W_OK):
            return f'{DIRECTORY} cannot be written'
        _checked(_libbpf().bpf_prog_query(
            _LOOPBACK, _TCX_INGRESS, 0, None, None,
            ctypes.byref(ctypes.c_uint32())), 'ask for tcx (Linux 6.6)')
        if not Tables().is_loaded:
            with _loaded():  # this kernel has to take them
                pass
    except OSError as error:
        return str(error)
    return None


@functools.cache
def processors() -> int:
    """Return the number of processors that have a value of their own."""
    return int(_libbpf().libbpf_num_possible_cpus())


def sums(values: bytes) -> tuple[int, int, int]:
    """Return class, bytes and packets of a flow of all processors."""
    words = memoryview(values).cast('Q')
    return words[0] & 0xffffffff, sum(words[1::3]), sum(words[2::3])
