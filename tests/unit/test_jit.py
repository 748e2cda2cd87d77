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

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from virtco import jit

CALLEE = '''
from virtco import jit


@jit.compiled
def answer(x):
    return x + {addend}
'''
CALLER = '''
from virtco import jit
from virtco.scheduling import callee


@jit.compiled
def twice(x):
    return 2 * callee.answer(x)


print(twice(1), twice.stats.cache_hits.total())
'''


@pytest.fixture
def tree(tmp_path):
    """A package whose kernels call each other across files."""
    root = tmp_path / 'install' / 'virtco'
    for package in ('scheduling', 'sim'):
        (root / package).mkdir(parents=True)
        (root / package / '__init__.py').touch()
    (root / '__init__.py').touch()
    shutil.copy(jit.__file__, root)
    (root / 'scheduling' / 'callee.py').write_text(CALLEE.format(addend=1))
    (root / 'sim' / 'caller.py').write_text(CALLER)
    return root


def start(tree, **env):
    return subprocess.Popen(
        [sys.executable, '-c', 'import virtco.sim.caller'], cwd=tree.parent,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={'PATH': os.environ['PATH'], 'HOME': '/nonexistent/home', **env})


def outcome(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return tuple(map(int, out.split()))


def run(tree, **env):
    return outcome(start(tree, **env))


def test_a_changed_callee_compiles_its_callers_again(tree, tmp_path):
    env = {'NUMBA_CACHE_DIR': str(tmp_path / 'cache')}
    assert run(tree, **env) == (4, 0)
    assert run(tree, **env) == (4, 1)
    (tree / 'scheduling' / 'callee.py').write_text(CALLEE.format(addend=5))
    assert run(tree, **env) == (12, 0)
    assert not list(tree.rglob('*.nbi'))


def test_kernels_lie_beside_their_sources(tree):
    assert run(tree) == (4, 0)
    assert run(tree) == (4, 1)
    assert list((tree / 'sim' / '__pycache__').rglob('*.nbi'))


def test_several_processes_share_an_empty_cache(tree):
    at_once = [start(tree) for _ in range(3)]
    assert [outcome(process)[0] for process in at_once] == [4, 4, 4]
    assert run(tree) == (4, 1)


def test_nowhere_to_write(tree, tmp_path):
    """A file where the directory would be stops root, too."""
    for package in ('scheduling', 'sim'):
        (tree / package / '__pycache__').touch()
    home = tmp_path / 'home'
    home.touch()
    assert run(tree, HOME=str(home)) == (4, 0)
    assert run(tree, HOME=str(home), NUMBA_CACHE_DIR=str(home)) == (4, 0)


def test_home_when_the_sources_cannot_be_written(tree, tmp_path):
    for package in ('scheduling', 'sim'):
        (tree / package / '__pycache__').touch()
    home = tmp_path / 'home'
    home.mkdir()
    assert run(tree, HOME=str(home)) == (4, 0)
    assert run(tree, HOME=str(home)) == (4, 1)
    assert list((home / '.cache' / 'virtco').rglob('*.nbi'))


def test_former_states_do_not_pile_up(tree, monkeypatch):
    monkeypatch.setattr(jit, '_ROOT', tree)
    monkeypatch.setattr(jit._CONFIG, 'CACHE_DIR', '')
    used = []
    for addend in range(9):
        (tree / 'scheduling' / 'callee.py').write_text(
            CALLEE.format(addend=addend))
        used.append(jit._cache_directory.__wrapped__('sim'))
        os.utime(used[-1], (addend, addend))
    assert len(set(used)) == 9
    other = jit._cache_directory.__wrapped__('scheduling')
    kernels = pathlib.Path(used[-1]).parent
    assert sorted(map(str, kernels.iterdir())) == sorted(used[-4:])
    assert pathlib.Path(other).is_dir()
