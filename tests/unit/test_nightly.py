# SPDX-License-Identifier: Apache-2.0

"""Checks that are run by and by."""

import dataclasses

import docutils.core
import pytest

from tests.gears import nightly

OLD = nightly.Verdict('old', True, '2026-01-02T03:04+00:00', 'abc', 1.0, 'x')
NEW = dataclasses.replace(OLD, name='new', at='2026-02-02T03:04+00:00')


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Three checks: one that is good, one that is bad, one that hangs."""
    monkeypatch.setattr(nightly, 'LOGS', tmp_path)
    monkeypatch.setattr(nightly, 'PAGE', tmp_path / 'nightly.rst')
    monkeypatch.setattr(nightly, 'checked_commit', lambda: 'abc')
    monkeypatch.setattr(nightly, 'checks', lambda: [
        nightly.Check('old', ('echo', '== it works =='), 0),
        nightly.Check('new', ('false',), 0),
        nightly.Check('hangs', ('sleep', '600'), 0)])


@pytest.mark.usefixtures('made')
@pytest.mark.parametrize('known, commit, names', [
    ((), 'abc', ['old', 'new', 'hangs']),
    ((NEW, OLD), 'abd', ['hangs', 'old', 'new']),
    ((NEW,), 'abc', ['old', 'hangs'])])
def test_the_oldest_verdict_is_renewed_first(known, commit, names):
    found = nightly.choose({one.name: one for one in known}, (), commit)
    assert [one.name for one in found] == names


@pytest.mark.usefixtures('made')
def test_the_next_call_goes_on(capsys):
    assert nightly.main(['old']) == 0
    assert 'old … good it works\n' in capsys.readouterr().out
    assert nightly.main(['new']) == 1
    known = nightly.load()
    assert {name: one.is_good for name, one in known.items()} == {
        'old': True, 'new': False}
    assert '**bad**' in nightly.PAGE.read_text()
    commit = known['old'].commit
    assert [one.name for one in nightly.choose(known, (), commit)] == [
        'hangs']


@pytest.mark.usefixtures('made')
def test_a_check_that_hangs_is_ended_and_has_no_verdict(capsys):
    assert nightly.main(['hangs', '--minutes', '0.005']) == 0
    assert 'not ended in time' in capsys.readouterr().out
    assert nightly.load() == {}


def test_a_name_that_is_none_of_them(capsys):
    with pytest.raises(SystemExit):
        nightly.main(['nothing'])
    assert 'nothing: expected a check of --list' in capsys.readouterr().err


def test_the_page_has_a_row_for_each_check():
    names = [one.name for one in nightly.checks()]
    known = {names[0]: dataclasses.replace(OLD, name=names[0]),
             names[1]: dataclasses.replace(OLD, name=names[1],
                                           is_good=False)}
    text = docutils.core.publish_string(
        nightly.page(known), writer='pseudoxml',
        settings_overrides={'halt_level': 2}).decode()
    assert text.count('<row>') == len(names) + 1
    assert text.count('never run') == len(names) - 2
    assert 'bad' in text


def test_no_part_is_longer_than_an_hour():
    assert max(one.expected_min for one in nightly.checks()) <= 60
    assert len({one.name for one in nightly.checks()}) == len(
        nightly.checks())
