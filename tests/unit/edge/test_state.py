# SPDX-License-Identifier: Apache-2.0

"""What outlives a restart, and which scheduler is listened to."""

import json
import os
import stat
import time

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module import epochs
from edge_module import state
from tests.unit.edge import test_enforcer
from virtco import exception


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
    assert order == [6, 'replace']


@pytest.mark.parametrize('age_s', [0.0, 75.0])
def test_a_policy_keeps_its_age(files, age_s):
    files.save_policy(test_enforcer.ONE, True, age_s)
    policy, found_s = files.load_policy()
    assert policy == test_enforcer.ONE
    assert age_s <= found_s < age_s + 60
    saved = files.load('policy')
    assert saved['fair'] is True
    # A clock that was set back makes no policy younger than new.
    saved['renewed_at'] = time.time() + 1000
    files.save('policy', saved)
    assert files.load_policy() == (test_enforcer.ONE, 0.0)


@pytest.mark.parametrize('saved', [
    {}, [], {'policy': {}, 'renewed_at': 1.0},
    {'policy': test_enforcer.ONE.to_dict(), 'renewed_at': 'x'}])
def test_a_policy_that_is_none_is_not_taken(files, saved, caplog):
    assert files.load_policy() is None and not caplog.records
    files.save('policy', saved)
    assert files.load_policy() is None
    assert 'of no use' in caplog.text


@given(st.lists(st.integers(0, 9), max_size=8))
def test_the_newest_scheduler_is_listened_to(heard):
    found, newest = epochs.Epochs(), 0
    for epoch in heard:
        if epoch < newest:
            with pytest.raises(exception.PolicyInvalid) as caught:
                found.hear(epoch)
            assert caught.value.kwargs == {
                'field': 'epoch', 'value': epoch,
                'limit': f'at least {newest}'}
        else:
            found.hear(epoch)
        newest = max(newest, epoch)
        assert found.newest == newest


def test_the_newest_scheduler_is_known_after_a_start(files):
    epochs.Epochs(files).hear(0)
    assert files.load('epoch') is None
    epochs.Epochs(files).hear(3)
    written = os.stat(files.path / 'epoch.json').st_ino
    again = epochs.Epochs(files)
    assert again.newest == 3
    again.hear(3)
    assert os.stat(files.path / 'epoch.json').st_ino == written
    with pytest.raises(exception.PolicyInvalid):
        again.hear(2)


@pytest.mark.parametrize('saved, newest', [
    (1, 1), (0, 0), (-2, 0), (True, 0), ('3', 0), (None, 0)])
def test_a_saved_epoch_that_is_none_is_not_taken(files, saved, newest):
    (files.path / 'epoch.json').write_text(json.dumps(saved))
    assert epochs.Epochs(files).newest == newest
