# SPDX-License-Identifier: Apache-2.0

"""What outlives a restart."""

import os
import stat

import pytest

from edge_module import kept_state as state


@pytest.fixture
def files(tmp_path):
    return state.StateDir(str(tmp_path / 'a' / 'b'))


def test_what_is_saved_is_there_again(files):
    assert stat.S_IMODE(os.stat(files.path).st_mode) == 0o750
    files.save('x', {'a': [1]})
    assert state.StateDir(str(files.path)).load('x') == {'a': [1]}
    files.save('x', 2)
    assert files.load('x') == 2
    assert os.listdir(files.path) == ['x.json']


def test_what_was_never_saved_is_no_warning(files, caplog):
    assert files.load('x') is None
    assert not caplog.records
    (files.path / 'x.json').write_text('{')
    assert files.load('x') is None
    assert 'starting without' in caplog.text


def test_a_disk_that_cannot_be_written_costs_a_warning(files, caplog):
    files.save('x', 1)
    (files.path / 'y.json').mkdir()
    files.save('y', 2)
    assert 'Cannot save y' in caplog.text
    assert sorted(os.listdir(files.path)) == ['x.json', 'y.json']


def test_what_is_saved_is_on_the_disk_before_its_name(files, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(state.os, 'fsync', lambda number: (
        order.append(os.fstat(number).st_size), fsync(number)))
    monkeypatch.setattr(state.os, 'replace', lambda *names: (
        order.append('replace'), replace(*names)))
    files.save('x', [1, 2])
    assert order == [5, 'replace']
