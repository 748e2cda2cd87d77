# SPDX-License-Identifier: Apache-2.0

"""Answers of libbpf, and counters of several processors."""

import ctypes
import errno
import os
import pathlib

import pytest

from edge_module.classify import bpf_maps
from edge_module.privileged import pinned


def test_an_answer_below_zero_is_an_error():
    assert pinned._checked(0, 'pin it') == 0
    assert pinned._checked(7, 'open it') == 7
    ctypes.set_errno(errno.ENOSPC)
    with pytest.raises(OSError, match='pin it: No space left') as found:
        pinned._checked(-1, 'pin it')
    assert found.value.errno == errno.ENOSPC


def test_processors_count_together():
    values = b''.join(bpf_maps.FLOW.pack(0x70000011, 0, sent_bytes, packets)
                      for sent_bytes, packets in ((100, 1), (0, 0), (250, 3)))
    assert pinned.sums(values) == (0x70000011, 350, 4)


class Library:
    """What libbpf makes is a file; it knows no object that is not pinned."""

    def __init__(self):
        self.made = []

    def bpf_obj_get(self, path):
        if not pathlib.Path(os.fsdecode(path)).exists():
            ctypes.set_errno(errno.ENOENT)
            return -1
        return self._open()

    def bpf_obj_pin(self, _descriptor, path):
        pathlib.Path(os.fsdecode(path)).touch()
        return 0

    def bpf_link_create(self, *_):
        return self._open()

    def bpf_object__load(self, _opened):
        return 0

    def bpf_object__pin(self, _opened, path):
        for name in (*bpf_maps.PROGRAMS, *bpf_maps.MAPS):
            (pathlib.Path(os.fsdecode(path)) / name).touch()
        return 0

    def __getattr__(self, name):
        return lambda *_: 1

    def _open(self):
        self.made.append(os.open(os.devnull, os.O_RDONLY))
        return self.made[-1]


@pytest.fixture
def library(monkeypatch):
    found = Library()
    monkeypatch.setattr(pinned, '_libbpf', lambda: found)
    return found


@pytest.fixture
def tables(library, tmp_path, monkeypatch):
    monkeypatch.setattr(pinned, '_directory', lambda: tmp_path)
    monkeypatch.setattr(pinned, '_version', lambda: 'v')
    found = pinned.Tables()
    found.path.mkdir()
    return found


def names(tables):
    return {path.name for path in tables.path.iterdir()}


def test_what_was_pinned_before_goes(tables):
    (tables.path / 'link-from_vm-7').touch()
    tables.load()
    assert names(tables) == {*bpf_maps.PROGRAMS, *bpf_maps.MAPS}
    assert list(tables.links()) == []
    # It ended while it pinned them.
    (tables.path / 'reached').unlink()
    with pytest.raises(FileNotFoundError):
        list(tables.links())


def test_a_device_has_links_until_it_is_left(tables, library, monkeypatch):
    """Only pins hold them: no descriptor stays open."""
    tables.load()
    before = names(tables)
    tables.attach(7, ['from_vm', 'to_vm'])
    assert names(tables) - before == {'link-from_vm-7', 'link-to_vm-7'}
    assert len(library.made) == 4
    for descriptor in library.made:
        with pytest.raises(OSError, match='Bad file descriptor'):
            os.fstat(descriptor)
    emptied = []
    monkeypatch.setattr(tables, 'replace', lambda name, gone, fresh: (
        emptied.append((name, list(gone), dict(fresh)))))
    tables.detach(7)
    assert names(tables) == before
    assert emptied == [(name, [bpf_maps.IFINDEX.pack(7)], {})
                       for name in (*bpf_maps.BUCKETS, 'devices')]


def test_a_device_that_was_left_by_half_gets_another_cache(tables, library,
                                                           monkeypatch):
    tables.load()
    tables.attach(7, ['from_vm'], 'of_ports')
    before = names(tables)
    assert 'cache-7' in before
    monkeypatch.setattr(library, 'bpf_map_delete_elem', lambda *_: -1,
                        raising=False)
    ctypes.set_errno(errno.ENOMEM)
    with pytest.raises(OSError, match='delete from of_ports'):
        tables.detach(7)
    assert before - names(tables) == {'cache-7', 'link-from_vm-7'}
