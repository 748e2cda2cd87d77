# SPDX-License-Identifier: Apache-2.0

"""Judges mutants of functions in forks of a process that has collected tests.

One run of an area's tests tells which of them execute which function. A fork
gets the mutant's code into the functions that are there and runs those tests,
the fastest first: a tenth of the time of :mod:`tests.mutation.run`, which
imports everything for each mutant. It judges what is left: what a module does
while it is imported, and kernels.
"""

import ast
import builtins
import collections
from collections.abc import Iterable
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
#: File and first line of a function.
Mark = tuple[str, int]
#: Built-in function that marked functions call with their mark.
_NOTE = 'virtco_note_executed'


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


class _Marker(ast.NodeTransformer):
    """Has functions note that they run: no test takes longer for it, while
    one takes many times as long where Python calls a profiler.
    """

    def __init__(self, file: str):
        self._file = file
        self.marks: set[Mark] = set()

    def _note(self, line: int) -> ast.expr:
        mark = self._file, line
        self.marks.add(mark)
        return ast.parse(f'{_NOTE}({mark!r})', mode='eval').body

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        line = min([node.lineno, *(one.lineno
                                   for one in node.decorator_list)])
        has_docstring = ast.get_docstring(node, clean=False) is not None
        node.body.insert(int(has_docstring), ast.Expr(self._note(line)))
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        self.generic_visit(node)
        node.body = ast.BoolOp(
            ast.Or(), [self._note(node.lineno), node.body])
        return node


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
        gc.unfreeze()
        self._by_key: dict[Key, list[types.FunctionType]] = (
            collections.defaultdict(list))
        for one in gc.get_objects():
            if isinstance(one, types.FunctionType):
                self._by_key[_key(one.__code__)].append(one)
        gc.freeze()
        marked, marks = self._mark()
        self._tests, cpu_s = self._observe(marked)
        # Who asks for a budget wants that counted, too.
        self._extra_s = cpu_s
        known = {number: self._code(one)
                 for number, one in enumerate(self._chosen)}
        of_mark = {number: next(
            (key[:2] for key in codes if key[:2] in marks), None)
            for number, (_, codes) in known.items()}
        tasks = []
        for number, (inner, codes) in known.items():
            if of_mark[number] is None or not self._by_key.keys() & codes:
                # Of no function, or of a module that only a test imports.
                self._tell(number, None, 0.0)
            elif of_mark[number] not in self._tests:
                self._tell(number, None if inner in self._early
                           else run.Verdict.SURVIVED, 0.0)
            else:
                tasks.append(number)
        for number, verdict, cpu_s in run.in_forks(
                tasks, lambda number: self._has_failed(
                    of_mark[number], known[number][1]), self._limit_s,
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

    def _mark(self) -> tuple[list[types.CodeType], set[Mark]]:
        """Compile all functions of the mutants' modules so that they note
        when they run.
        """
        codes: list[types.CodeType] = []
        marks: set[Mark] = set()
        for path, text in self._texts.items():
            file = str(areas.ROOT / path)
            marker = _Marker(file)
            tree = ast.fix_missing_locations(marker.visit(ast.parse(text)))
            codes += _functions(compile(tree, file, 'exec'))
            marks |= marker.marks
        return codes, marks

    def _put(self, codes: Iterable[types.CodeType]) -> None:
        """Have the functions that are there run other code."""
        for code in codes:
            for function in self._by_key.get(_key(code), ()):
                function.__code__ = code

    def _observe(self, marked: Sequence[types.CodeType]
                 ) -> tuple[dict[Mark, list[tuple[float, int]]], float]:
        """Run all tests once in a fork; return those of each function.

        They have their CPU seconds, by which they are sorted; those that fail
        are left out.
        """
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            noted: set[Mark] = set()
            setattr(builtins, _NOTE, noted.add)
            self._put(marked)
            tests: dict[Mark, list[tuple[float, int]]] = (
                collections.defaultdict(list))
            for number in range(len(self._items)):
                noted.clear()
                began_s = time.process_time()
                has_failed = self._fails([number])
                took_s = time.process_time() - began_s
                if not has_failed:
                    for mark in noted:
                        tests[mark].append((took_s, number))
            with os.fdopen(writing, 'wb') as out:
                pickle.dump({mark: sorted(some)
                             for mark, some in tests.items()}, out)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, 'rb') as told:
            tests = pickle.load(told)
        _, _, used = os.wait4(pid, 0)
        return tests, used.ru_utime + used.ru_stime

    def _has_failed(self, mark: Mark, codes: dict[Key, types.CodeType]
                    ) -> bool:
        self._put(codes.values())
        times_s, numbers = zip(*self._tests[mark])
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
