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
"""The calls that need CAP_BPF, by libbpf and without a compiler.

A leaf as ``kernel`` is. One table at a time: a map and its program, pinned in
a directory of a BPF file system, by which a later process finds both again.
"""

from collections.abc import Iterator
import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import pathlib
import struct

_HASH, _SCHED_CLS, _NO_PREALLOC = 1, 3, 1
_MAP = 'classes'
_NAME = b'virtco'
# The program calls none of the kernel's GPL-only functions.
_LICENCE = b'Apache-2.0'
_LOAD_MAP = 0x18
_INSTRUCTION = struct.Struct('=BBhi')
_MAP_OPTIONS = struct.Struct('=QIIIIII')
_INFO = struct.Struct('=II')
_BATCH = 4096
_STAYS = (errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY)  # the last: a mount


@functools.cache
def _libbpf() -> ctypes.CDLL:
    return ctypes.CDLL('libbpf.so.1', use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f'{what}: {os.strerror(code)}')
    return result


class _Fds:
    """Descriptors of one call, closed with it."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def __enter__(self) -> '_Fds':
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open:
            os.close(descriptor)

    def keep(self, descriptor: int) -> int:
        self._open.append(descriptor)
        return descriptor

    def pinned(self, directory: str, name: str) -> int | None:
        """What is pinned under a name; None for nothing."""
        path = os.path.join(directory, name)
        found = _libbpf().bpf_obj_get(path.encode())
        if found < 0 and ctypes.get_errno() == errno.ENOENT:
            return None
        return self.keep(_checked(found, f'open {path}'))

    def the_map(self, directory: str) -> int:
        """:raises OSError: when there is none."""
        found = self.pinned(directory, _MAP)
        if found is None:
            raise OSError(errno.ENOENT, f'no map in {directory}')
        return found


def bpf_open(directory: str, program: bytes, key_bytes: int,
             value_bytes: int, most_entries: int) -> int:
    """Find the pinned table, or make it.

    A program other than the pinned one replaces it, with a map of its own.

    :returns: the program's id.
    :raises OSError: from the kernel; the reason is in the text.
    """
    pins = pathlib.Path(directory)
    with _Fds() as fds:
        program_fd = fds.pinned(directory, _pin_of(program))
        if program_fd is not None and fds.pinned(directory, _MAP) is not None:
            return _id_of(program_fd)
        pins.mkdir(mode=0o700, parents=True, exist_ok=True)
        _unpin(directory)
        options = _MAP_OPTIONS.pack(_MAP_OPTIONS.size, 0, 0, 0, 0, 0,
                                    _NO_PREALLOC)
        map_fd = fds.keep(_checked(_libbpf().bpf_map_create(
            _HASH, _NAME, key_bytes, value_bytes, most_entries, options),
            'create a BPF map'))
        program_fd = fds.keep(_checked(_libbpf().bpf_prog_load(
            _SCHED_CLS, _NAME, _LICENCE, _with_map(program, map_fd),
            ctypes.c_size_t(len(program) // _INSTRUCTION.size), None),
            'load the BPF program'))
        # The program last: without it the next start makes both anew.
        for descriptor, name in ((map_fd, _MAP),
                                 (program_fd, _pin_of(program))):
            _checked(_libbpf().bpf_obj_pin(
                descriptor, os.fsencode(pins / name)), f'pin {pins / name}')
        return _id_of(program_fd)


def _pin_of(program: bytes) -> str:
    return f'program-{hashlib.sha256(program).hexdigest()[:12]}'


def _with_map(program: bytes, map_fd: int) -> bytes:
    """The program, with the map in every place that waits for it."""
    packed = bytearray(program)
    for at in range(0, len(packed), _INSTRUCTION.size):
        opcode, registers, offset, _ = _INSTRUCTION.unpack_from(packed, at)
        if opcode == _LOAD_MAP:
            _INSTRUCTION.pack_into(packed, at, opcode, registers, offset,
                                   map_fd)
    return bytes(packed)


def _id_of(program_fd: int) -> int:
    info = ctypes.create_string_buffer(_INFO.size)
    length = ctypes.c_uint32(_INFO.size)
    _checked(_libbpf().bpf_obj_get_info_by_fd(
        program_fd, info, ctypes.byref(length)), 'ask for the BPF program')
    _, found = _INFO.unpack(info.raw)
    return int(found)


def bpf_update(directory: str, keys: bytes, values: bytes, count: int
               ) -> None:
    """Set entries; each is replaced whole, and the others are not touched.

    :raises OSError: when the kernel refuses one; those before it are set.
    """
    left = ctypes.c_uint32(count)
    with _Fds() as fds:
        _checked(_libbpf().bpf_map_update_batch(
            fds.the_map(directory), keys, values, ctypes.byref(left), None),
            'change BPF map entries')


def bpf_delete(directory: str, keys: list[bytes]) -> None:
    """Delete entries; absence is tolerated."""
    with _Fds() as fds:
        map_fd = fds.the_map(directory)
        for key in keys:
            if (_libbpf().bpf_map_delete_elem(map_fd, key) < 0
                    and ctypes.get_errno() != errno.ENOENT):
                _checked(-1, 'delete a BPF map entry')


def bpf_read(directory: str, key_bytes: int, value_bytes: int
             ) -> tuple[bytes, bytes] | None:
    """All keys and all values, in the same order; None without a map."""
    keys, values = bytearray(), bytearray()
    some_keys = ctypes.create_string_buffer(key_bytes * _BATCH)
    some_values = ctypes.create_string_buffer(value_bytes * _BATCH)
    place = ctypes.c_uint32()
    with _Fds() as fds:
        map_fd = fds.pinned(directory, _MAP)
        if map_fd is None:
            return None
        ended = False
        while not ended:
            count = ctypes.c_uint32(_BATCH)
            result = _libbpf().bpf_map_lookup_batch(
                map_fd, ctypes.byref(place) if keys else None,
                ctypes.byref(place), some_keys, some_values,
                ctypes.byref(count), None)
            ended = result < 0 and ctypes.get_errno() == errno.ENOENT
            if not ended:
                _checked(result, 'read a BPF map')
            keys += some_keys.raw[:count.value * key_bytes]
            values += some_values.raw[:count.value * value_bytes]
    return bytes(keys), bytes(values)


@contextlib.contextmanager
def pinned_program(directory: str, program: bytes) -> Iterator[int]:
    """Descriptor of the pinned program.

    :raises OSError: when this program is not pinned there.
    """
    with _Fds() as fds:
        program_fd = fds.pinned(directory, _pin_of(program))
        if program_fd is None:
            raise OSError(errno.ENOENT, f'no program in {directory}')
        yield program_fd


def bpf_find(directory: str, program: bytes) -> int:
    """Id of the pinned program; 0 when this one is not pinned there."""
    with _Fds() as fds:
        program_fd = fds.pinned(directory, _pin_of(program))
        return 0 if program_fd is None else _id_of(program_fd)


def _unpin(directory: str) -> bool:
    """Unpin everything; the kernel frees what no port uses any more."""
    pins = pathlib.Path(directory)
    try:
        found = [path for path in pins.iterdir()
                 if path.name == _MAP or path.name.startswith('program-')]
    except FileNotFoundError:
        return False
    for path in found:
        path.unlink()
    return bool(found)


def bpf_remove(directory: str) -> bool:
    """Unpin everything and remove what is empty then; False without any."""
    found = _unpin(directory)
    for path in (directory, os.path.dirname(directory)):
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in _STAYS:
                raise
    return found
