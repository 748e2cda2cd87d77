# SPDX-License-Identifier: Apache-2.0

"""``tools/run_tests``: run the tests' tiers, count their CPU seconds."""

import argparse
from concurrent import futures
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from xml.etree import ElementTree

from tests.gears import changes
from tests.gears import tiers
from tests.gears import yardstick

_PRINTING = threading.Lock()
_N_SLOWEST = 10


@dataclasses.dataclass
class Result:
    """How a tier ended.

    :ivar tests: seconds and names of those that took longest.
    """

    tier: str
    budget_cpu_s: float | None
    failed: list[str] = dataclasses.field(default_factory=list)
    cpu_s: float = 0.0
    tests: list[tuple[float, str]] = dataclasses.field(default_factory=list)

    @property
    def is_over_budget(self) -> bool:
        return (self.budget_cpu_s is not None
                and self.cpu_s > self.budget_cpu_s)


def environment(is_full: bool) -> dict[str, str]:
    """Make the variables by which tests know their gear."""
    found = dict(os.environ, OS_NOVA_DISABLE_EVENTLET_PATCHING='1',
                 # Commands beside each other need no threads of their own.
                 OPENBLAS_NUM_THREADS='1', PYTHONUNBUFFERED='1')
    # Dozens of processes would compile the same modules.
    found.pop('PYTHONDONTWRITEBYTECODE', None)
    if is_full:
        return found | {'VIRTCO_TEST_GEAR': 'full'}
    return found | {'VIRTCO_TEST_CHANGED': os.pathsep.join(
        changes.files(changes.base()))}


def _run(result: Result, command: tuple[str, ...],
         variables: dict[str, str]) -> None:
    """Run a command, print its output in one piece, count it in its tier.

    Where it fails, the files of the tests that failed stay, with the logs of
    their processes.
    """
    with _PRINTING:
        print('...', *command, flush=True)
    directory = tempfile.mkdtemp(prefix='tests-')
    report = pathlib.Path(directory) / 'tests.xml'
    options = ((f'--junitxml={report}',) if 'pytest' in command else ())
    if command[:len(tiers.PYTEST)] == tiers.PYTEST:
        # Other sessions of pytest remove those that are not named.
        options += (f'--basetemp={directory}/files',)
    begin_s = time.monotonic()
    with open(f'{directory}/output', 'w+', encoding='utf-8',
              errors='replace') as output:
        process = subprocess.Popen(
            (*command, *options), cwd=changes.ROOT, env=variables,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    wall_s = time.monotonic() - begin_s
    cpu_s = used.ru_utime + used.ru_stime
    with _PRINTING:
        print('===', *command, f'({cpu_s:.0f} CPU s, {wall_s:.0f} s)')
        print(text, end='', flush=True)
        if process.returncode:
            result.failed.append(' '.join(command))
            print(f'=== its files stay in {directory}')
        result.cpu_s += cpu_s
        if report.exists():
            result.tests += _slowest(report)
    if not process.returncode:
        shutil.rmtree(directory, ignore_errors=True)


def _slowest(report: pathlib.Path) -> list[tuple[float, str]]:
    """List the slowest tests of a report in JUnit's XML, slowest first."""
    found = [(float(case.get('time', 0)),
              f'{case.get("classname")}::{case.get("name")}')
             for case in ElementTree.parse(report).iter('testcase')]
    return sorted(found, reverse=True)[:_N_SLOWEST]


def run(names: list[str], is_full: bool,
        variables: dict[str, str]) -> list[Result]:
    """Run tiers beside each other, then what has to be alone.

    :param is_full: whether what the default gear leaves out runs, too.
    :param variables: the environment.
    """
    results, waiting, alone = [], [], []
    with futures.ThreadPoolExecutor(tiers.BESIDE) as pool:
        for name in names:
            tier = tiers.TIERS[name]
            own = variables | (dict(tier.environment) if is_full else {})
            result = Result(name, None if is_full else tier.budget_cpu_s)
            results.append(result)
            waiting += [pool.submit(_run, result, command, own)
                        for command in tier.commands]
            alone += [(result, command, own) for command in tier.alone]
        try:
            for one in waiting:
                one.result()
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    for arguments in alone:
        _run(*arguments)
    return results


def _tell(results: list[Result], wall_s: float, slowness: float) -> None:
    for one in results:
        if one.tests:
            print(f'=== slowest of {one.tier}: seconds and test')
        for took_s, test in sorted(one.tests, reverse=True)[:_N_SLOWEST]:
            print(f'{took_s:8.2f}  {test}')
    print('=== CPU seconds by tier')
    for one in results:
        budget = ('' if one.budget_cpu_s is None
                  else f' of {one.budget_cpu_s:.0f}')
        print(f'{one.tier:<12}{one.cpu_s:6.0f}{budget:<8} CPU s')
    print(f'{"all":<12}{sum(one.cpu_s for one in results):6.0f}{"":<8} CPU s'
          f'{wall_s:7.0f} s of wall time, {slowness:.2f} x as slow as the '
          'reference')


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='tools/run_tests', description=(
            'Sets up and runs the tests. Without arguments: the default gear, '
            'for each change.'),
        epilog='Tiers: ' + ' '.join(tiers.TIERS) + '. The default gear runs '
        + ' '.join(tiers.default()) + '.')
    parser.add_argument('what', nargs='*', metavar='TIER', help=(
        'tiers to run in the default gear; "full" runs the full gear, '
        '"full N" its part N'))
    return parser


def _chosen(words: list[str]) -> tuple[list[str], bool]:
    """Tiers to run, and whether in full.

    :raises ValueError: a word that names nothing.
    """
    if words[:1] != ['full']:
        if unknown := set(words) - set(tiers.TIERS):
            raise ValueError(f'unknown tier {sorted(unknown)[0]}, known are '
                             + ' '.join(tiers.TIERS))
        return words or tiers.default(), False
    found: list[str] = []
    for word in words[1:] or map(str, range(1, tiers.N_PARTS + 1)):
        if word in tiers.TIERS:
            found.append(word)
        elif word.isdecimal() and 1 <= int(word) <= tiers.N_PARTS:
            found += tiers.of_part(int(word))
        else:
            raise ValueError(f'full {word}: expected a tier or a part from 1 '
                             f'to {tiers.N_PARTS}')
    return found, True


def main(argv: list[str] | None = None) -> int:
    parser = make_parser()
    try:
        names, is_full = _chosen(parser.parse_args(argv).what)
    except ValueError as error:
        parser.error(str(error))
    variables = environment(is_full)
    slowness = yardstick.slowness()
    begin_s = time.monotonic()
    results = run(names, is_full, variables)
    wall_s = time.monotonic() - begin_s
    # A virtual machine may have become slower meanwhile.
    slowness = max(slowness, yardstick.slowness())
    for one in results:
        if one.budget_cpu_s is not None:
            one.budget_cpu_s *= slowness
    _tell(results, wall_s, slowness)
    for one in results:
        for command in one.failed:
            print(f'FAILED: {command}', file=sys.stderr)
        if one.is_over_budget:
            print(f'FAILED: {one.tier} took {one.cpu_s:.0f} CPU seconds, its '
                  f'budget is {one.budget_cpu_s:.0f}', file=sys.stderr)
    return int(any(one.failed or one.is_over_budget for one in results))


if __name__ == '__main__':
    sys.exit(main())
