# SPDX-License-Identifier: Apache-2.0

"""The few calls of libbpf that a shaper needs, by ctypes.

Debian's iproute2 depends on the library, so that nothing has to be installed.
"""

import ctypes
import os
import struct
from typing import Any

from virtco import exception

_LIBRARY = 'libbpf.so.1'
_EGRESS = 2
_REPLACE = 1
_PROG_INFO = struct.Struct('=48xII Q16s'.replace(' ', ''))
_MAP_INFO = struct.Struct('=4I8x16s')
# One for each program: others may have filters on the device too.
HANDLE, PRIORITY = 0x7674, 0x7674


class _Hook(ctypes.Structure):
    _fields_ = [('size', ctypes.c_size_t), ('ifindex', ctypes.c_int),
                ('point', ctypes.c_int), ('parent', ctypes.c_uint32)]


class _Filter(ctypes.Structure):
    _fields_ = [('size', ctypes.c_size_t), ('prog_fd', ctypes.c_int),
                ('flags', ctypes.c_uint32), ('prog_id', ctypes.c_uint32),
                ('handle', ctypes.c_uint32), ('priority', ctypes.c_uint32)]


class _Run(ctypes.Structure):
    _fields_ = [('size', ctypes.c_size_t), ('data_in', ctypes.c_char_p),
                ('data_out', ctypes.c_void_p),
                ('data_size_in', ctypes.c_uint32),
                ('data_size_out', ctypes.c_uint32),
                ('ctx_in', ctypes.c_char_p), ('ctx_out', ctypes.c_void_p),
                ('ctx_size_in', ctypes.c_uint32),
                ('ctx_size_out', ctypes.c_uint32),
                ('retval', ctypes.c_uint32), ('repeat', ctypes.c_int),
                ('duration', ctypes.c_uint32), ('flags', ctypes.c_uint32),
                ('cpu', ctypes.c_uint32), ('batch_size', ctypes.c_uint32)]


def _library() -> Any:
    """:raises virtco.exception.NotFound: without the library."""
    try:
        library = ctypes.CDLL(_LIBRARY, use_errno=True)
    except OSError as error:
        raise exception.NotFound(what='library', id=_LIBRARY) from error
    library.libbpf_set_print(None)
    library.bpf_object__open_file.restype = ctypes.c_void_p
    library.bpf_object__find_program_by_name.restype = ctypes.c_void_p
    return library


def _check(code: int, what: str, tolerate: tuple[int, ...] = ()) -> int:
    """:raises virtco.exception.KernelRefused: for another error."""
    if code < 0 and -code not in tolerate:
        raise exception.KernelRefused(what=what, count=1,
                                      why=os.strerror(-code))
    return code


class Map:
    """A hash map with keys of 32 bits."""

    def __init__(self, library: Any, fd: int):
        self._library = library
        self.fd = fd
        info = _info(library, fd, 80)
        _, _, _, self.value_bytes, name = _MAP_INFO.unpack_from(info)
        self.name = name.rstrip(b'\0').decode()

    def set(self, key: int, value: bytes) -> None:
        _check(self._library.bpf_map_update_elem(
            self.fd, struct.pack('=I', key), value, ctypes.c_uint64(0)),
            f'set an element of {self.name}')

    def get(self, key: int, copies: int = 1) -> bytes | None:
        """The value, once per processor where the map has one for each."""
        value = ctypes.create_string_buffer(
            copies * (self.value_bytes + -self.value_bytes % 8))
        code = self._library.bpf_map_lookup_elem(
            self.fd, struct.pack('=I', key), value)
        return None if code < 0 else value.raw

    def delete(self, key: int) -> None:
        self._library.bpf_map_delete_elem(self.fd, struct.pack('=I', key))

    def keys(self) -> list[int]:
        found: list[int] = []
        key, following = None, ctypes.create_string_buffer(4)
        while self._library.bpf_map_get_next_key(self.fd, key,
                                                 following) == 0:
            key = following.raw
            found.append(struct.unpack('=I', key)[0])
        return found


def _info(library: Any, fd: int, size: int, start: bytes = b'') -> bytes:
    info = ctypes.create_string_buffer(start, size)
    length = ctypes.c_uint32(size)
    _check(library.bpf_obj_get_info_by_fd(fd, info, ctypes.byref(length)),
           'read about a BPF object')
    return info.raw


class Program:
    """A program with its maps, loaded by us or found at a device."""

    def __init__(self, library: Any, fd: int, maps: dict[str, Map]):
        self._library = library
        self.fd = fd
        self.maps = maps

    @classmethod
    def load(cls, path: str, name: str) -> 'Program':
        """:raises virtco.exception.KernelRefused: by the kernel's verifier,
            or for want of CAP_BPF.
        """
        library = _library()
        opened = library.bpf_object__open_file(path.encode(), None)
        if not opened:
            raise exception.NotFound(what='BPF object', id=path)
        opened = ctypes.c_void_p(opened)
        _check(library.bpf_object__load(opened), f'load {path}')
        fd = library.bpf_program__fd(ctypes.c_void_p(
            library.bpf_object__find_program_by_name(opened, name.encode())))
        return cls(library, fd, _maps_of(library, fd))

    @classmethod
    def attached(cls, ifindex: int) -> 'Program | None':
        """The one that stands at a device's egress."""
        library = _library()
        hook, found = _hook(ifindex), _filter()
        if library.bpf_tc_query(ctypes.byref(hook), ctypes.byref(found)) < 0:
            return None
        fd = library.bpf_prog_get_fd_by_id(found.prog_id)
        _check(fd, 'open a BPF program')
        return cls(library, fd, _maps_of(library, fd))

    def attach(self, ifindex: int) -> None:
        hook, wanted = _hook(ifindex), _filter()
        _check(self._library.bpf_tc_hook_create(ctypes.byref(hook)),
               'create clsact', (17,))
        wanted.prog_fd, wanted.flags = self.fd, _REPLACE
        _check(self._library.bpf_tc_attach(
            ctypes.byref(hook), ctypes.byref(wanted)), 'attach to egress')

    def detach(self, ifindex: int) -> None:
        hook, gone = _hook(ifindex), _filter()
        _check(self._library.bpf_tc_detach(
            ctypes.byref(hook), ctypes.byref(gone)), 'detach from egress',
            (2,))

    def run(self, packet: bytes, context: bytes, repeat: int = 1
            ) -> tuple[int, bytes, int]:
        """What BPF_PROG_TEST_RUN says: result, context, nanoseconds."""
        after = ctypes.create_string_buffer(len(context))
        out = ctypes.create_string_buffer(len(packet) + 256)
        run = _Run(
            ctypes.sizeof(_Run), packet, ctypes.cast(out, ctypes.c_void_p),
            len(packet), len(out), context,
            ctypes.cast(after, ctypes.c_void_p), len(context), len(after),
            0, repeat, 0, 0, 0, 0)
        _check(self._library.bpf_prog_test_run_opts(
            self.fd, ctypes.byref(run)), 'run a BPF program')
        return run.retval, after.raw, run.duration


def _hook(ifindex: int) -> _Hook:
    return _Hook(ctypes.sizeof(_Hook), ifindex, _EGRESS, 0)


def _filter() -> _Filter:
    return _Filter(ctypes.sizeof(_Filter), 0, 0, 0, HANDLE, PRIORITY)


def _maps_of(library: Any, fd: int) -> dict[str, Map]:
    ids = (ctypes.c_uint32 * 16)()
    start = struct.pack('=52xIQ', len(ids), ctypes.addressof(ids))
    _, count, _, _ = _PROG_INFO.unpack_from(_info(library, fd, 256, start))
    maps = [Map(library, _check(library.bpf_map_get_fd_by_id(each),
                                'open a BPF map'))
            for each in ids[:count]]
    return {found.name: found for found in maps}
