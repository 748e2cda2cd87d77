# SPDX-License-Identifier: Apache-2.0

"""Repeats the whole evaluation, step by step, on any machine.

The simulator is deterministic: its numbers must be the recorded ones, to as
many digits as libraries agree on. Measured ones may move as far as they vary
between the seeds.
"""

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import record

#: Seconds of the short forms and of steps that are no recorded figures, on two
#: idle cores.
_SHORT_S, _ERRATA_S, _REPORT_S, _PDF_S = 60.0, 2.0, 3.0, 20.0
#: Seconds of the emulated figures, by the beginnings of their names: (short
#: form, recorded form for each seed).
_EMULATED_S = {'virtco-case': (60.0, 300.0), 'orchestra': (120.0, 600.0),
               '': (100.0, 120.0)}
#: Relative tolerance of the simulator's numbers: libraries round differently.
_TOLERANCE = '1e-6'


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A command of the evaluation.

    :ivar argv: program and arguments.
    :ivar expected_s: on two idle cores of the machine of the records.
    """

    name: str
    argv: tuple[str, ...]
    expected_s: float
    needs_root: bool = False


def steps(output: pathlib.Path, short: bool) -> Iterator[Step]:
    """Yield all steps in order; the short form compares a part."""
    yield Step('errata', ('virtco-sim', 'errata'), _ERRATA_S)
    yield Step('tables', ('virtco-report',), _REPORT_S)
    if short:
        yield Step('simulated', ('virtco-sim', 'reproduce', 'all', '--check',
                                 '--short'), _SHORT_S)
    else:
        yield from _simulated(output)
    yield from _emulated(output, short)
    yield Step('pdf', ('virtco-report', '--pdf',
                       str(output / 'evaluation.pdf')), _PDF_S)


def _emulated(output: pathlib.Path, short: bool) -> Iterator[Step]:
    """Yield every recorded figure on packets, by the command that made it."""
    for path in sorted(record.DIRECTORY.glob(f'{record.EMULATED}*.json')):
        name = path.stem.removeprefix(record.EMULATED)
        argv = tuple(json.loads(path.read_text(encoding='utf-8'))[
            'command'].split())
        argv = ((*argv[:3], '--check') if short
                else (*argv, '--compare'))
        check_s, seed_s = next(
            both for begin, both in _EMULATED_S.items()
            if name.startswith(begin))
        seeds = int(argv[argv.index('--seeds') + 1]) if not short else 1
        yield Step(path.stem, (
            *argv, '--output', str(output / 'emulated')),
            check_s if short else seeds * seed_s, needs_root=True)


def _simulated(output: pathlib.Path) -> Iterator[Step]:
    """Yield every figure that is recorded and needs no file from elsewhere."""
    for name, figure in index.FIGURES.items():
        path = record.DIRECTORY / f'{name}.json'
        if figure.needs_trace or not path.exists():
            continue
        made = json.loads(path.read_text(encoding='utf-8'))['made']
        yield Step(name, (
            'virtco-sim', 'reproduce', name, '--check', '--tolerance',
            _TOLERANCE, '--output', str(output)), max(1.0, made['cpu_s']))


def run(wanted: Sequence[Step], output: pathlib.Path) -> list[str]:
    """Run steps one after another; return the failures."""
    output.mkdir(parents=True, exist_ok=True)
    failures = []
    for step in wanted:
        if step.needs_root and os.geteuid() != 0:
            print(f'{step.name}: left out, it needs root')
            continue
        print(f'{step.name}: {" ".join(step.argv)} (about '
              f'{step.expected_s:.0f} s)', flush=True)
        began_s = time.monotonic()
        failure = _fails(step, output)
        if failure:
            failures.append(failure)
        print(f'{step.name}: {failure or "passed"}, '
              f'{time.monotonic() - began_s:.0f} s', flush=True)
    return failures


def _fails(step: Step, output: pathlib.Path) -> str:
    """Run it; return its failures, none when all went well."""
    # The program of this installation, whatever the path finds.
    program = pathlib.Path(sys.executable).with_name(step.argv[0])
    log = output / f'{step.name}.log'
    try:
        with log.open('w') as sink:
            code = subprocess.run((program, *step.argv[1:]), stdout=sink,
                                  stderr=sink).returncode
    except OSError as error:
        return f'{step.name}: {program}: {error.strerror}'
    return f'{step.name}: status {code}, see {log}' if code else ''


def main(argv: list[str] | None = None) -> int:
    """Run ``tools/artifact``; return its exit code."""
    parser = argparse.ArgumentParser(
        prog='tools/artifact', description='Run the evaluation again and '
        'compare it with what is recorded.')
    parser.add_argument('--list', action='store_true',
                        help='show steps, seconds and commands; run nothing')
    parser.add_argument('--check', action='store_true',
                        help='the short form of each step')
    parser.add_argument('--only', metavar='STEP,…', default='',
                        help='these steps')
    parser.add_argument('--output', type=pathlib.Path, metavar='DIR',
                        default=pathlib.Path('virtco-artifact'),
                        help='for numbers, plots, logs and the PDF '
                        '(default ./virtco-artifact)')
    args = parser.parse_args(argv)
    wanted = list(steps(args.output, args.check))
    only = [name for name in args.only.split(',') if name]
    unknown = set(only) - {step.name for step in wanted}
    if unknown:
        parser.exit(2, f'tools/artifact: --only: {", ".join(sorted(unknown))}'
                    ' is no step; --list shows them\n')
    wanted = [step for step in wanted if not only or step.name in only]
    if args.list:
        for step in wanted:
            print(f'{step.name:24}{step.expected_s:7.0f} s  '
                  f'{" ".join(step.argv)}')
        return 0
    failures = run(wanted, args.output)
    for failure in failures:
        print(f'tools/artifact: {failure}', file=sys.stderr)
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
