# SPDX-License-Identifier: Apache-2.0

"""Judges mutants of functions in forks of a process that has collected tests.

One run of an area's tests tells which of them execute which function. A fork
gets the mutant's code into the functions that are there and runs those tests,
the fastest first: a tenth of the time of :mod:`tests.mutation.run`, which
imports everything for each mutant. It judges what is left: what a module does
while it is imported, and kernels.
"""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import gc
import math
import os
import pickle
import resource
import sys
import tempfile
import threading
import time
import types

import pytest

from tests.mutation import areas
from tests.mutation import mutants
from tests.mutation import run

#: A mutant's tests may take so many times the CPU seconds that they take
#: without it, and so many more.
SLOWER, LEAST_S = 4.0, 2.0
#: Seconds that the few tests of a mutant may sleep in all.
MOST_IDLE_S = 10.0
#: File, first line and qualified name of a function.
Key = tuple[str, int, str]


def judge(chosen: Sequence[mutants.Mutant], limit_s: float, budget_s: float,
          n_jobs: int) -> Iterator[tuple[mutants.Mutant, run.Verdict | None,
                                         float]]:
    """Judge mutants of one area; yield each with CPU seconds.

    The verdict is None where the tests do not tell: something may happen
    while the module is imported.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        code = 1
        try:
            with os.fdopen(writing, 'wb') as out:
                _serve(chosen, limit_s, budget_s, n_jobs, out)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, 'rb') as told:
        with contextlib.suppress(EOFError):
            while True:
                number, verdict, cpu_s = pickle.load(told)
                yield chosen[number], verdict, cpu_s
    os.waitpid(pid, 0)


def _serve(chosen: Sequence[mutants.Mutant], limit_s: float, budget_s: float,
           n_jobs: int, out) -> None:
    run.quieten()
    os.chdir(areas.ROOT)
    files = list(dict.fromkeys(
        file for path in dict.fromkeys(one.path for one in chosen)
        for file in areas.tests(path)))
    loop = _Loop(chosen, limit_s, budget_s, n_jobs, out)
    with (tempfile.TemporaryDirectory(prefix='virtco-mutant-') as home,
          _executed() as early):
        loop.early = early
        pytest.main([
            '-q', '--no-header', '-p', 'no:cacheprovider',
            '-p', 'no:rerunfailures', '-o', 'addopts=',
            f'--basetemp={home}/t', *files],
            plugins=[loop, run.Watch(float('inf'))])


@contextlib.contextmanager
def _executed() -> Iterator[dict[int, types.CodeType]]:
    """Note the code objects that Python executes, in all threads."""
    found: dict[int, types.CodeType] = {}

    def note(frame, event, _value):
        if event == 'call':
            found[id(frame.f_code)] = frame.f_code
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _key(code: types.CodeType) -> Key:
    return code.co_filename, code.co_firstlineno, code.co_qualname


def _functions(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield all code objects within one, inner ones first."""
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _functions(one)
            yield one


class _Loop:
    """pytest plug-in: runs the tests over each mutant instead of once."""

    def __init__(self, chosen: Sequence[mutants.Mutant], limit_s: float,
                 budget_s: float, n_jobs: int, out):
        self._chosen = chosen
        self._limit_s, self._budget_s = limit_s, budget_s
        self._n_jobs = n_jobs
        self._out = out
        self._extra_s = 0.0
        self.early: dict[int, types.CodeType] = {}
        self._texts = {path: (areas.ROOT / path).read_text()
                       for path in {one.path for one in chosen}}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.setprofile(None)
        threading.setprofile(None)
        if session.testsfailed:
            for number in range(len(self._chosen)):
                self._tell(number, run.Verdict.BROKEN, 0.0)
            return True
        self._items = session.items
        self._early = {_key(code) for code in self.early.values()}
        self._tests, cpu_s = self._observe()
        # Who asks for a budget wants that counted, too.
        self._extra_s = cpu_s
        gc.unfreeze()
        self._by_key: dict[Key, list[types.FunctionType]] = (
            collections.defaultdict(list))
        for one in gc.get_objects():
            if isinstance(one, types.FunctionType):
                self._by_key[_key(one.__code__)].append(one)
        gc.freeze()
        known = {number: self._code(one)
                 for number, one in enumerate(self._chosen)}
        tasks = []
        for number, (inner, codes) in known.items():
            tests = self._tests.get(inner, []) if inner else []
            if inner is None or not tests:
                self._tell(number, None if inner is None or inner
                           in self._early else run.Verdict.SURVIVED, 0.0)
            elif not self._by_key.keys() & codes:
                # Of a module that only a test imports.
                self._tell(number, None, 0.0)
            else:
                tasks.append(number)
        for number, verdict, cpu_s in run.in_forks(
                tasks, lambda number: self._has_failed(
                    number, *known[number]), self._limit_s,
                self._budget_s - cpu_s, self._n_jobs, MOST_IDLE_S):
            if verdict is run.Verdict.SURVIVED and (
                    known[number][0] in self._early):
                verdict = None
            self._tell(number, verdict, cpu_s)
        return True

    def _tell(self, number: int, verdict: run.Verdict | None,
              cpu_s: float) -> None:
        pickle.dump((number, verdict, cpu_s + self._extra_s), self._out)
        self._out.flush()
        self._extra_s = 0.0

    def _code(self, one: mutants.Mutant
              ) -> tuple[Key | None, dict[Key, types.CodeType]]:
        """Find the innermost function that a mutant changes, and all codes.

        :returns: None for what is executed while the module is imported.
        """
        text, path = self._texts[one.path], str(areas.ROOT / one.path)
        codes = list(_functions(compile(text, path, 'exec')))
        changed = list(_functions(compile(
            mutants.build(text, one.number), path, 'exec')))
        before = collections.defaultdict(list)
        for old in codes:
            before[_key(old)].append(old)
        differ = {_key(new): new for new in changed
                  if new not in before[_key(new)]}
        found = next(iter(differ), None)
        return found, differ

    def _observe(self) -> tuple[dict[Key, list[tuple[float, int]]], float]:
        """Run all tests once in a fork; return those of each function.

        They have their CPU seconds, by which they are sorted; those that fail
        are left out.
        """
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            tests: dict[Key, list[tuple[float, int]]] = (
                collections.defaultdict(list))
            for number in range(len(self._items)):
                began_s = time.process_time()
                with _executed() as codes:
                    has_failed = self._fails([number])
                took_s = time.process_time() - began_s
                if has_failed:
                    continue
                for key in {_key(code) for code in codes.values()}:
                    if key[0].startswith(str(areas.ROOT)):
                        tests[key].append((took_s, number))
            with os.fdopen(writing, 'wb') as out:
                pickle.dump({key: sorted(some)
                             for key, some in tests.items()}, out)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, 'rb') as told:
            tests = pickle.load(told)
        _, _, used = os.wait4(pid, 0)
        return tests, used.ru_utime + used.ru_stime

    def _has_failed(self, number: int, inner: Key,
                    codes: dict[Key, types.CodeType]) -> bool:
        for key, code in codes.items():
            for function in self._by_key.get(key, ()):
                function.__code__ = code
        times_s, numbers = zip(*self._tests[inner])
        # A loop that does not end need not last as long as any test may.
        end_s = time.process_time() + LEAST_S + SLOWER * sum(times_s)
        _, hard_s = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (
            min(math.ceil(end_s), hard_s), hard_s))
        return self._fails(numbers)

    def _fails(self, numbers: Sequence[int]) -> bool:
        watch = run.Watch(self._limit_s)
        session = self._items[0].session
        manager = session.config.pluginmanager
        manager.register(watch)
        session.shouldstop = False
        try:
            for place, number in enumerate(numbers):
                following = (self._items[numbers[place + 1]]
                             if place + 1 < len(numbers) else None)
                item = self._items[number]
                item.config.hook.pytest_runtest_protocol(
                    item=item, nextitem=following)
                if watch.has_failed or watch.is_late:
                    break
        finally:
            manager.unregister(watch)
        return watch.has_failed
