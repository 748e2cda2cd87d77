# SPDX-License-Identifier: Apache-2.0

"""Runs unit tests over mutants, each in a fork of a process that has loaded
the libraries but nothing of the product. No file is changed.
"""

import ast
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import enum
import functools
import importlib.abc
import importlib.util
import os
import pathlib
import resource
import signal
import sys
import tempfile
import time
import types
from typing import Any
from typing import NoReturn
from typing import TypeVar

import hypothesis
import pytest

from tests.mutation import areas
from tests.mutation import kernels
from tests.mutation import mutants

#: Loaded once: what the tests' imports spend their time with.
_LIBRARIES = ('numpy', 'scipy.optimize', 'scipy.sparse', 'hypothesis',
              'hypothesis.extra.numpy', 'hypothesis.stateful', 'msgspec',
              'sqlalchemy.orm', 'alembic', 'falcon.testing', 'oslo_config.cfg',
              'oslo_log.log', 'requests', 'pytest',
              'pytest_timeout', 'yaml', '_hypothesis_pytestplugin', 'pulp',
              'cliff.command', 'rich.console', 'tenacity')

#: Files of tests that run before all others are collected: mostly one of
#: them fails, and a collection imports half of the product.
NEAREST = 3

#: CPU seconds of a single test beyond the limit until it is said to hang.
HANG_S = 30

#: Seconds that tests may sleep in all. Those in which they wait for a
#: processor do not count, or on a busy machine any mutant would seem to hang.
IDLE_S = 60

T = TypeVar('T')
#: No task is left.
_NONE: Any = object()


class Verdict(enum.Enum):
    """How the tests judged a mutant."""

    KILLED = 'killed'
    TIMED_OUT = 'timed out'
    SURVIVED = 'survived'
    BROKEN = 'tests fail without a mutant'

    @property
    def is_dead(self) -> bool:
        return self in (Verdict.KILLED, Verdict.TIMED_OUT)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a syntax tree."""

    def __init__(self, path: str, tree: ast.Module):
        self._path = areas.ROOT / path
        self._name = areas.module_name(path)
        self._tree = tree

    def forget(self) -> None:
        """Forget the module if this process has imported it itself."""
        if sys.modules.pop(self._name, None) is not None:
            parent, _, stem = self._name.rpartition('.')
            delattr(sys.modules[parent], stem)

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(
            name, self._path, loader=self, submodule_search_locations=(
                [str(self._path.parent)] if self._path.stem == '__init__'
                else None))

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self._tree, str(self._path), 'exec'), module.__dict__)


class _Kernel(importlib.abc.MetaPathFinder):
    """Imports one kernel from another file."""

    def __init__(self, name: str, file: pathlib.Path):
        self._name, self._file = name, file

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._file)


def load_libraries() -> None:
    os.environ.update(CI='true', OPENBLAS_NUM_THREADS='1',
                      OMP_NUM_THREADS='1',
                      OS_NOVA_DISABLE_EVENTLET_PATCHING='1')
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue


class Watch:
    """pytest plug-in: notes a failure, ends a run that has used its time."""

    def __init__(self, limit_s: float):
        self.has_failed = False
        self.is_late = False
        self._limit_s = limit_s
        self._session = None

    def pytest_configure(self):
        # The first example that fails says enough; none is made smaller.
        hypothesis.settings.register_profile(
            'mutants', hypothesis.settings.get_profile('virtco'),
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate))
        hypothesis.settings.load_profile('mutants')

    def pytest_sessionstart(self, session):
        self._session = session

    def pytest_collectreport(self, report):
        self.has_failed |= report.failed

    def pytest_runtest_logreport(self, report):
        self.has_failed |= report.failed
        self.is_late = time.process_time() > self._limit_s
        if self.is_late and self._session is not None:
            self._session.shouldstop = 'out of time'


@dataclasses.dataclass(frozen=True)
class Task:
    """Tests to run over one module.

    :ivar mutant: the change; None: the module as it is.
    """

    path: str
    mutant: mutants.Mutant | None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the tests said of a task, and the CPU seconds that took."""

    task: Task
    verdict: Verdict
    cpu_s: float


def judge(tasks: Iterable[Task], limit_s: float, budget_s: float,
          n_jobs: int) -> Iterator[Outcome]:
    """Run tasks until they end or the budget is used.

    :param limit_s: CPU seconds of one task, after which no further test
        begins; a single test may take HANG_S more.
    :param budget_s: CPU seconds of all, after which no task begins.
    """
    for task, verdict, cpu_s in in_forks(
            tasks, lambda task: _has_failed(task, limit_s), limit_s, budget_s,
            n_jobs):
        if task.mutant is None:
            verdict = (Verdict.SURVIVED if verdict is Verdict.SURVIVED
                       else Verdict.BROKEN)
        yield Outcome(task, verdict, cpu_s)


def in_forks(tasks: Iterable[T], has_failed: Callable[[T], bool],
             limit_s: float, budget_s: float, n_jobs: int,
             idle_s: float | None = None
             ) -> Iterator[tuple[T, Verdict, float]]:
    """Run each task in a fork of this process; yield verdict and CPU seconds.

    :param has_failed: whether a test fails; called in the fork.
    :param idle_s: seconds that tests may sleep in all, default IDLE_S.
    """
    idle_s = IDLE_S if idle_s is None else idle_s
    waiting = iter(tasks)
    running: dict[int, tuple[T, float]] = {}
    spent_s = 0.0
    while True:
        while len(running) < n_jobs and spent_s < budget_s:
            task = next(waiting, _NONE)
            if task is _NONE:
                break
            pid = os.fork()
            if pid == 0:
                _child(functools.partial(has_failed, task), limit_s)
            running[pid] = task, time.monotonic()
        if not running:
            return
        ended = []
        for pid, (task, began_s) in running.items():
            done, status, used = os.wait4(pid, os.WNOHANG)
            if done:
                ended.append(pid)
                cpu_s = used.ru_utime + used.ru_stime
                spent_s += cpu_s
                yield task, _verdict(status), cpu_s
            elif time.monotonic() - began_s - _busy_s(pid) > idle_s:
                os.killpg(pid, signal.SIGKILL)
        for pid in ended:
            del running[pid]
        time.sleep(0.002)


def _busy_s(pid: int) -> float:
    """Read the seconds in which a process ran or waited for a processor."""
    times = pathlib.Path(f'/proc/{pid}/schedstat').read_text().split()
    return (int(times[0]) + int(times[1])) / 1e9


def _verdict(status: int) -> Verdict:
    if os.WIFSIGNALED(status):
        return Verdict.TIMED_OUT
    return Verdict.KILLED if status else Verdict.SURVIVED


def _child(has_failed: Callable[[], bool], limit_s: float) -> NoReturn:
    """Run the tests in this process and end it: 1 where one failed."""
    os.setpgid(0, 0)
    hard_s = int(limit_s + HANG_S) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (hard_s, hard_s + 1))
    quieten()
    code = 1
    try:
        code = int(has_failed())
    finally:
        os._exit(code)


def quieten() -> None:
    """Send what this process prints to VIRTCO_MUTATE_LOG, or nowhere."""
    log = os.open(os.environ.get('VIRTCO_MUTATE_LOG', os.devnull),
                  os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _has_failed(task: Task, limit_s: float) -> bool:
    watch = Watch(limit_s)
    # Its own directory of temporary files, which ends with it.
    with tempfile.TemporaryDirectory(prefix='virtco-mutant-') as home:
        if task.mutant is not None:
            _install(task.mutant, pathlib.Path(home, 'kernel'))
        os.chdir(areas.ROOT)
        files = areas.tests(task.path)
        return any(_fails(some, home, watch) for some in (
            files[:NEAREST], files[NEAREST:]) if some)


def _install(one: mutants.Mutant, folder: pathlib.Path) -> None:
    """Have this process import a mutant in place of its module."""
    name = areas.module_name(one.path)
    tree = mutants.build((areas.ROOT / one.path).read_text(), one.number)
    if kernels.is_kernel(one.path):
        sys.meta_path.insert(0, _Kernel(
            name, kernels.install(name, tree, folder)))
    else:
        finder = _Finder(one.path, tree)
        sys.meta_path.insert(0, finder)
        finder.forget()


def _fails(files: list[str], home: str, watch: Watch) -> bool:
    code = pytest.main([
        '-x', '-q', '--no-header', '-p', 'no:cacheprovider',
        '-p', 'no:rerunfailures', '-o', 'addopts=',
        f'--basetemp={home}/t', *files], plugins=[watch])
    # A conftest that does not load is an error of usage.
    return watch.has_failed or code in (
        pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR)
