# SPDX-License-Identifier: Apache-2.0

"""Which code of a kernel runs."""

import importlib
import importlib.machinery
import pathlib
import shutil
import subprocess
import sys

import pytest

from virtco import compiled

KERNEL = 'virtco.solver.moves.rank_kernel'
RUN = '''
import numpy as np
from virtco.solver.moves import rank_kernel
own_s, port = np.zeros((1, 2)), np.zeros(1, np.int64)
rank_kernel.own_times(
    0, 1, 1, np.array([3.0]), np.zeros((1, 1), np.int64),
    np.ones((1, 1, 1)), np.full((1, 2, 2), -1), np.zeros((1, 2, 2)), own_s,
    port)
print(rank_kernel.__file__.rpartition('.')[2], own_s[0, 1])
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
    assert plain is not loaded and plain.__name__ == name
    assert plain.__file__.endswith('.py')
    assert {one for one in vars(loaded)
            if not one.startswith('_')} <= vars(plain).keys()
    assert importlib.import_module(name) is loaded
    package = sys.modules[name.rpartition('.')[0]]
    assert getattr(package, name.rpartition('.')[2]) is loaded


def test_one_that_was_not_loaded_is_not_there_afterwards(monkeypatch):
    package = importlib.import_module(FIRST.rpartition('.')[0])
    attribute = FIRST.rpartition('.')[2]
    importlib.import_module(FIRST)
    monkeypatch.delitem(sys.modules, FIRST)
    monkeypatch.delattr(package, attribute)
    compiled.plain(FIRST)
    assert FIRST not in sys.modules and not hasattr(package, attribute)


FIRST, SECOND = compiled.KERNELS[:2]


@pytest.fixture
def states(monkeypatch):
    """What is said of each kernel; those that are not named are compiled."""
    found = {}
    monkeypatch.setattr(compiled, 'state',
                        lambda name: found.get(name, 'compiled'))
    compiled.check.cache_clear()
    yield found
    compiled.check.cache_clear()


def test_what_is_not_compiled_is_told_once(states, caplog):
    compiled.check()
    assert caplog.messages == []
    compiled.check.cache_clear()
    states[SECOND] = 'plain'
    compiled.check()
    compiled.check()
    (message,) = caplog.messages
    assert message.endswith(f'not compiled: {SECOND}')
    compiled.check.cache_clear()
    states[FIRST] = 'stale'
    with pytest.raises(ImportError, match=f'present one: {FIRST}; run'):
        compiled.check()


@pytest.mark.parametrize(('state', 'code'), [
    ('compiled', 0), ('plain', 1), ('stale', 1)])
def test_the_list_fails_unless_all_are_compiled(states, capsys, state, code):
    states[SECOND] = state
    assert compiled.main() == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f'{FIRST} compiled', f'{SECOND} {state}']
    assert len(lines) == len(compiled.KERNELS)


@pytest.fixture
def written(monkeypatch, tmp_path):
    """A kernel of which the test writes the source, and what it includes."""
    monkeypatch.setattr(compiled, 'source',
                        lambda name: tmp_path / f'{name}.py')
    for name in compiled.KERNELS:
        (tmp_path / f'{name}.py').write_text('')
    (tmp_path / f'{FIRST}.py').write_text(
        f'from cython.cimports.{SECOND} import x\n')
    return tmp_path


def test_what_a_kernel_is_compiled_from(written):
    third = compiled.KERNELS[2]
    assert compiled.partners(FIRST) == [SECOND]
    assert compiled.together([SECOND]) == {FIRST, SECOND}
    assert compiled.together([third]) == {third}
    before = compiled.digest(FIRST), compiled.digest(SECOND)
    assert compiled.sources(FIRST) == [written / f'{FIRST}.py']
    for name in (FIRST, SECOND):
        (written / f'{name}.pxd').write_text('cdef int x\n')
    assert compiled.sources(FIRST) == [
        written / f'{FIRST}.py', written / f'{SECOND}.pxd',
        written / f'{FIRST}.pxd']
    assert compiled.sources(SECOND) == [written / f'{SECOND}.py',
                                        written / f'{SECOND}.pxd']
    assert compiled.digest(FIRST) != before[0]
    assert compiled.digest(SECOND) != before[1]


def test_a_compiled_kernel_holds_the_digest_of_its_source(written):
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    assert compiled.state(FIRST) == 'plain'
    binary = written / f'{FIRST}{suffix}'
    binary.write_bytes(b'x' + bytes.fromhex(compiled.digest(FIRST)) + b'y')
    assert compiled.state(FIRST) == 'compiled'
    (written / f'{FIRST}.py').write_text('pass\n')
    assert compiled.state(FIRST) == 'stale'


def test_arrays_are_seen_as_buffers():
    import numpy as np
    found = compiled.views(a=np.zeros(2), b=3)
    assert isinstance(found['a'], memoryview) and found['b'] == 3
