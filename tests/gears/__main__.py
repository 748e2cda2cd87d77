# SPDX-License-Identifier: Apache-2.0

"""``tools/run_tests``: run the tests' tiers, count their CPU seconds."""

import argparse
import dataclasses
import os
import subprocess
import sys
import time

from tests.gears import changes
from tests.gears import tiers


@dataclasses.dataclass
class Result:
    """How a tier ended."""

    tier: str
    failed: list[str]
    wall_s: float
    cpu_s: float
    budget_cpu_s: float | None

    @property
    def is_over_budget(self) -> bool:
        return (self.budget_cpu_s is not None
                and self.cpu_s > self.budget_cpu_s)


def _cpu_s() -> float:
    """CPU seconds of all processes that ended so far."""
    used = os.times()
    return used.children_user + used.children_system


def _run_one_by_one(commands, variables) -> list[str]:
    failed = []
    for command in commands:
        print('===', *command, flush=True)
        if subprocess.run(command, cwd=changes.ROOT,
                          env=variables).returncode:
            failed.append(' '.join(command))
    return failed


def _run_together(commands, variables) -> list[str]:
    print('===', ' & '.join(' '.join(one) for one in commands), flush=True)
    started = [(one, subprocess.Popen(one, cwd=changes.ROOT, env=variables))
               for one in commands]
    return [' '.join(one) for one, process in started if process.wait()]


def environment(is_full: bool) -> dict[str, str]:
    """Make the variables by which tests know their gear."""
    found = dict(os.environ, OS_NOVA_DISABLE_EVENTLET_PATCHING='1',
                 PYTHONUNBUFFERED='1')
    if is_full:
        return found | {'VIRTCO_TEST_GEAR': 'full'}
    return found | {'VIRTCO_TEST_CHANGED': os.pathsep.join(
        changes.files(changes.base()))}


def run(name: str, is_full: bool, variables: dict[str, str]) -> Result:
    """Run one tier.

    :param is_full: whether what the default gear leaves out runs, too.
    :param variables: the environment.
    """
    tier = tiers.TIERS[name]
    variables = variables | (dict(tier.environment) if is_full else {})
    begin_s, begin_cpu_s = time.monotonic(), _cpu_s()
    execute = _run_together if tier.is_together else _run_one_by_one
    failed = execute(tier.commands, variables)
    return Result(name, failed, time.monotonic() - begin_s,
                  _cpu_s() - begin_cpu_s,
                  None if is_full else tier.budget_cpu_s)


def _tell(results: list[Result]) -> None:
    print('=== CPU seconds by tier')
    for one in results:
        budget = ('' if one.budget_cpu_s is None
                  else f' of {one.budget_cpu_s:.0f}')
        print(f'{one.tier:<12}{one.cpu_s:6.0f}{budget:<8} CPU s'
              f'{one.wall_s:7.0f} s of wall time')
    print(f'{"all":<12}{sum(one.cpu_s for one in results):6.0f}{"":<8} CPU s'
          f'{sum(one.wall_s for one in results):7.0f} s of wall time')


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
    results = [run(name, is_full, variables) for name in names]
    _tell(results)
    for one in results:
        for command in one.failed:
            print(f'FAILED: {command}', file=sys.stderr)
        if one.is_over_budget:
            print(f'FAILED: {one.tier} took {one.cpu_s:.0f} CPU seconds, its '
                  f'budget is {one.budget_cpu_s:.0f}', file=sys.stderr)
    return int(any(one.failed or one.is_over_budget for one in results))


if __name__ == '__main__':
    sys.exit(main())
