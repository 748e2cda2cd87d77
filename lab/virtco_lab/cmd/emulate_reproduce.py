# SPDX-License-Identifier: Apache-2.0

"""``virtco-emulate reproduce``: figures with real packets."""

import argparse
import collections
from collections.abc import Mapping
import sys
import time

from virtco import exception
from virtco import units
from virtco_lab.cmd import arguments
from virtco_lab.cmd import present
from virtco_lab.emulation import broadcast
from virtco_lab.emulation import capability
from virtco_lab.emulation import extent
from virtco_lab.emulation import gap
from virtco_lab.emulation import hinted
from virtco_lab.emulation import measured
from virtco_lab.emulation import mpi
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import orchestra
from virtco_lab.emulation import reproduce
from virtco_lab.emulation import rerun
from virtco_lab.emulation import training
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import plots
from virtco_lab.sim.figures import record

_RATE_BPS = 50e6
_TEST_CASES: Mapping[str, extent.Figure] = collections.ChainMap(
    hinted.FIGURES, reproduce.FIGURES, gap.FIGURES)
#: Test cases whose matrices have a shape, and that of the others.
_SHAPED, _SHAPE = ('virtco-case1', 'virtco-case2', 'virtco-case3'), 'medium'
_ALL = 'all'
_FIGURES: Mapping[str, extent.Figure] = collections.ChainMap(
    measured.FIGURES, broadcast.FIGURES, mpi.FIGURES, training.FIGURES,
    orchestra.FIGURES)
#: Figures without repetitions.
_ONCE = collections.ChainMap(measured.FIGURES, training.FIGURES)
#: Where it is not _RATE_BPS: 20 receivers of a cast fit on two processors.
_RATES_BPS = {**dict.fromkeys(_TEST_CASES, 20e6),
              **dict.fromkeys(orchestra.FIGURES, 10e6),
              **dict.fromkeys(training.FIGURES, training.RATE_BPS)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``virtco-emulate reproduce``."""
    parser.add_argument(
        'figure', choices=[*_TEST_CASES, *_FIGURES])
    parser.add_argument(
        '--rate', type=arguments.uplink_bps, metavar='RATE', help=(
            'of each uplink, both ways (default 50Mbit, of a test case and of '
            'training jobs 20Mbit, of a cast 10Mbit)'))
    parser.add_argument('--seeds', type=arguments.between(1, 100), default=1,
                        metavar='N', help='how many, 1 to 100 (default 1)')
    parser.add_argument(
        '--first-seed', type=arguments.between(0, 99_999), default=0,
        metavar='N', help='the first of them (default 0)')
    parser.add_argument(
        '--shape', choices=[*workloads.SHAPES, _ALL], help=(
            'of a test case: the matrices of cases 1 to 3 (default medium)'))
    parser.add_argument(
        '--hosts', type=arguments.between(4, 64), metavar='N',
        help='of a test case: hypervisors, 4 to 64 (default 8); from 18 on '
        'the paper\'s widths')
    parser.add_argument('--output', type=arguments.directory,
                        default='virtco-emulate-output',
                        help='directory for plot, table and logs')
    parser.add_argument('--json', action='store_true',
                        help='print JSON instead of a table')
    what = parser.add_mutually_exclusive_group()
    what.add_argument('--check', action='store_true', help=(
        'a short form; ends with 1 where it does not bear out what the '
        'figure claims'))
    what.add_argument('--write', action='store_true', help=(
        'record the figure and write its table of the documentation'))
    what.add_argument('--compare', action='store_true', help=(
        'with the record, seed by seed; ends with 1 where a number moved '
        'further than they vary, or the figure does not bear out its claims'))
    parser.set_defaults(function=run)


def run(args: argparse.Namespace) -> int:
    """Measure a figure; runs in a test case's directory are kept.

    :returns: exit code.
    :raises virtco.exception.Invalid: for options that the figure has not.
    """
    name, is_case = args.figure, args.figure in _TEST_CASES
    arguments.only(args, is_case, f'for {name}, which has no test cases',
                   hosts=8, shape=_SHAPE)
    if args.shape != _SHAPE and name not in _SHAPED:
        raise exception.Invalid(field='--shape', value=args.shape,
                                limit=f'{_SHAPE} for {name}')
    if args.seeds > 1 and name in _ONCE:
        raise exception.Invalid(field='--seeds', value=args.seeds,
                                limit=f'1 for {name}, which is measured once')
    capability.check()
    namespaces.sweep()
    others = record.Others()
    options = extent.Options(
        args.rate or _RATES_BPS.get(name, _RATE_BPS), tuple(range(
            args.first_seed, args.first_seed + args.seeds)),
        args.check, args.hosts, workloads.SHAPES
        if args.shape == _ALL else (args.shape,), args.output)
    found = (_TEST_CASES if is_case else _FIGURES)[name](options)
    present.show(found, args.output, args.json)
    if args.write:
        document.write_measured(
            record.DIRECTORY, found,
            record.made_on(time.process_time(), others),
            _command(args, options.rate_bps, is_case))
        if is_case:
            plots.draw(found, record.DIRECTORY)
    failures = [*found.unmet]
    if args.compare:
        count, differences = rerun.compare(
            record.document(record.DIRECTORY, found.name), found)
        failures += differences
        if not args.json:
            print(f'{found.name}: {count} numbers compared with the record, '
                  f'{len(differences)} off')
    for failure in failures:
        print(f'virtco-emulate: {failure}', file=sys.stderr)
    return 1 if failures and (args.check or args.compare) else 0


def _command(args: argparse.Namespace, rate_bps: float, is_case: bool) -> str:
    """Return the command that makes the figure again."""
    words = ['virtco-emulate reproduce', args.figure, *(
        ['--hosts', str(args.hosts)] if is_case else ()), '--rate',
        units.format_rate(rate_bps).replace(' ', ''), '--seeds',
        str(args.seeds)]
    if args.first_seed:
        words += ['--first-seed', str(args.first_seed)]
    return ' '.join(words + (['--shape', args.shape] if is_case else []))
