# SPDX-License-Identifier: Apache-2.0

"""The areas of commits, and the check of their subjects."""

import pathlib
import re
import runpy
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
AREAS = [line.split() for line in
         (ROOT / 'tools/areas').read_text().splitlines()
         if line and not line.startswith('#')]


@pytest.fixture
def check(monkeypatch, capsys):
    """Return a function that returns the lines which the check prints."""
    def lines(root, *arguments):
        monkeypatch.setattr('sys.argv', ['check', *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(root / 'tools/check_commits'))
        printed = capsys.readouterr().out.splitlines()
        assert end.value.code == bool(printed)
        return printed
    return lines


@pytest.mark.parametrize('subject', [
    'edge: keep debts of changing classes short',
    'lab/emulation: name the room that groups want',
    'all: name the licence in one SPDX line',
    'nova_filters: say why a call failed',
    'doc: say where "docs: x" is refused',
    'Merge branch notes',
    'Revert "edge: keep debts short"',
    'fixup! edge: keep debts short',
])
def test_a_subject_with_an_area_is_taken(check, tmp_path, subject):
    message = tmp_path / 'message'
    message.write_text(f'{subject}\n\nWhy.\n')
    assert check(ROOT, message) == []


@pytest.mark.parametrize('subject', [
    'docs: name an area twice',
    'emulation: leave out the room above',
    'place, state: name two areas',
    'keep debts short',
    'edge:keep debts short',
    'edge: Keep debts short',
    'edge: keep debts short.',
    '#: keep debts short',
    'Reverts edge: keep debts short',
])
def test_another_subject_is_refused(check, tmp_path, subject):
    message = tmp_path / 'message'
    message.write_text(f'{subject}\n\nedge: this is no subject\n')
    [line] = check(ROOT, message)
    assert line.startswith(repr(subject))


def test_commits_are_checked_since_the_areas_changed(check, tmp_path):
    def commit(subject):
        subprocess.run(
            ['git', '-c', 'user.name=x', '-c', 'user.email=x@example.org',
             'commit', '-q', '--allow-empty', '-m', subject], cwd=tmp_path,
            check=True)

    (tmp_path / 'tools').mkdir()
    for name in ('areas', 'check_commits'):
        shutil.copy(ROOT / 'tools' / name, tmp_path / 'tools')
    subprocess.run(['git', 'init', '-q', '-b', 'main'], cwd=tmp_path,
                   check=True)
    commit('Not checked: older than the areas')
    subprocess.run(['git', 'add', '.'], cwd=tmp_path, check=True)
    commit('Not checked: the change of the areas')
    assert check(tmp_path) == []
    commit('edge: keep debts short')
    assert check(tmp_path) == []
    commit('docs: say so')
    commit('doc: say so')
    [line] = check(tmp_path)
    assert line.startswith("'docs: say so'")


def test_each_file_has_one_area():
    try:
        files = subprocess.run(
            ['git', 'ls-files', '-z'], cwd=ROOT, check=True, text=True,
            capture_output=True).stdout.split('\0')[:-1]
    except (OSError, subprocess.CalledProcessError):
        pytest.skip('a tree without history')
    paths = [path for _, *paths in AREAS for path in paths if path != '-']
    assert len(set(paths)) == len(paths)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    below = tuple(f'{path}/' for path in paths)
    assert [name for name in files
            if name not in paths and not name.startswith(below)] == []
    rooms = {name.rpartition('/')[0] for name in files if re.fullmatch(
        r'virtco/(lab/)?[a-z]+/__init__\.py', name)}
    assert rooms - {'lab/virtco_lab'} <= set(paths)
