# SPDX-License-Identifier: Apache-2.0

"""Which code of a kernel runs."""

import importlib
import pathlib
import shutil
import subprocess
import sys

import pytest

from virtco import compiled

KERNEL = 'virtco.solver.exact.subsets'
RUN = '''
from array import array
from virtco.solver.exact import subsets
print(subsets.__file__.rpartition('.')[2],
      subsets.solve(1, 1, array('d', [0, 3]), array('d', [0, 0]),
                    array('q', [0, 0]), array('d', [0, 0])))
'''


@pytest.fixture
def tree(tmp_path):
    """A copy of the package to change."""
    package = pathlib.Path(compiled.__file__).parent
    shutil.copytree(package, tmp_path / 'virtco',
                    ignore=shutil.ignore_patterns('__pycache__'))
    return tmp_path


def run(tree, statements=RUN):
    return subprocess.run([sys.executable, '-c', statements], cwd=tree,
                          capture_output=True, text=True, check=False)


def in_tree(tree, name=KERNEL):
    return tree / compiled.source(name).relative_to(
        pathlib.Path(compiled.__file__).parent.parent)


@pytest.mark.skipif(not shutil.which('gcc'), reason='no compiler')
def test_all_kernels_are_compiled_from_their_sources():
    states = {name: compiled.state(name) for name in compiled.KERNELS}
    assert set(states.values()) == {'compiled'}, states


def test_the_compiled_one_runs(tree):
    if compiled.state(KERNEL) == 'plain':
        pytest.skip('not compiled')
    done = run(tree)
    assert (done.stdout, done.stderr) == ('so 3.0\n', '')


def test_without_a_compiled_one_the_source_runs_and_says_so(tree):
    for binary in tree.rglob('*.so'):
        binary.unlink()
    done = run(tree)
    assert done.stdout == 'py 3.0\n'
    assert 'not compiled: ' in done.stderr
    assert KERNEL in done.stderr
    assert done.stderr.count('\n') == 1


def test_one_of_another_source_is_refused(tree):
    if compiled.state(KERNEL) == 'plain':
        pytest.skip('not compiled')
    with in_tree(tree).open('a') as source:
        source.write('# An edit.\n')
    done = run(tree)
    assert done.returncode != 0
    assert done.stderr.endswith(
        'ImportError: compiled from another source than the present one: '
        f'{KERNEL}; run tools/setup\n')
    assert run(tree, 'import runpy; runpy.run_module("virtco.compiled", '
               'run_name="__main__")').returncode == 1


def test_an_edit_elsewhere_changes_nothing(tree):
    before = run(tree)
    with (tree / 'virtco' / 'solver' / 'planner.py').open('a') as source:
        source.write('# An edit.\n')
    done = run(tree)
    assert (done.stdout, done.stderr) == (before.stdout, before.stderr)


@pytest.mark.parametrize('name', compiled.KERNELS)
def test_plain_leaves_the_loaded_modules_alone(name):
    loaded = importlib.import_module(name)
    plain = compiled.plain(name)
    assert plain is not loaded
    assert plain.__file__.endswith('.py')
    assert importlib.import_module(name) is loaded
    package = sys.modules[name.rpartition('.')[0]]
    assert getattr(package, name.rpartition('.')[2]) is loaded
