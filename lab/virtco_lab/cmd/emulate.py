# SPDX-License-Identifier: Apache-2.0

"""``virtco-emulate``: the emulated datacentre and the demo on it."""

import argparse
import collections
from collections.abc import Mapping
import json
import re
import signal
import sys
import time
import typing

import rich.console

from virtco import exception
from virtco import own_policies
from virtco import units
from virtco.wire import setting
from virtco_lab.cmd import arguments as types
from virtco_lab.cmd import present
from virtco_lab.emulation import bed
from virtco_lab.emulation import broadcast
from virtco_lab.emulation import capability
from virtco_lab.emulation import demo
from virtco_lab.emulation import display
from virtco_lab.emulation import extent
from virtco_lab.emulation import gap
from virtco_lab.emulation import hinted
from virtco_lab.emulation import measured
from virtco_lab.emulation import mpi
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import orchestra
from virtco_lab.emulation import reproduce
from virtco_lab.emulation import training
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import plots
from virtco_lab.sim.figures import record

_MIN_HOSTS = 3  # Fig. 1 spreads three VMs
_MAX_HOSTS = 64
_MIN_RATE_BPS = 5e6
_MAX_RATE_BPS = 1e9
_RATE_BPS = 50e6
_DEFAULT_SLOW_HOST = 'h1'
_TEST_CASES: Mapping[str, extent.Figure] = collections.ChainMap(
    hinted.FIGURES, reproduce.FIGURES, gap.FIGURES)
#: Options that only test cases have, and their values by default.
_OF_TEST_CASES = {'hosts': 8, 'first_seed': 0, 'shape': 'medium'}
_ALL = 'all'
_FIGURES: Mapping[str, extent.Figure] = collections.ChainMap(
    measured.FIGURES, broadcast.FIGURES, mpi.FIGURES, training.FIGURES,
    orchestra.FIGURES)
#: Where it is not _RATE_BPS: 20 receivers of a cast fit on two processors.
_RATES_BPS = {**dict.fromkeys(_TEST_CASES, 20e6),
              **dict.fromkeys(orchestra.FIGURES, 10e6),
              **dict.fromkeys(training.FIGURES, training.RATE_BPS)}


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-emulate``; return its exit code."""
    options = _parser().parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        return typing.cast(int, options.function(options))
    except capability.CannotEmulate as error:
        print(f'{error}\nWithout it, tools/demo --simulate runs the same '
              f'workload through the simulator.', file=sys.stderr)
        return 2
    except exception.VirtcoException as error:
        print(f'virtco-emulate: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('Interrupted; everything was removed.', file=sys.stderr)
        return 130


def _leave(number: int, _frame: object) -> None:
    """End as on Ctrl-C: through every ``finally``."""
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = types.Parser(
        prog='virtco-emulate', description=__doc__.partition(': ')[2])
    commands = parser.add_subparsers(required=True, metavar='COMMAND')
    _add_demo(commands.add_parser(
        'demo', help='run the main job and write a report'))
    _add_reproduce(commands.add_parser(
        'reproduce', help='a test case or a figure with real packets'))
    clean = commands.add_parser(
        'clean', help='remove what runs that were killed left behind')
    clean.set_defaults(function=_clean)
    return parser


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--hosts', type=types.between(_MIN_HOSTS, _MAX_HOSTS), default=6,
        metavar='N',
        help=f'hypervisors, {_MIN_HOSTS} to {_MAX_HOSTS} (default 6)')
    parser.add_argument(
        '--rate', type=_rate, metavar='RATE',
        help='of each uplink, both ways, such as 100Mbit (default: what the '
             'processors carry, 50Mbit at most)')
    parser.add_argument(
        '--slow-host', nargs='?', const=_DEFAULT_SLOW_HOST, metavar='NAME',
        help='halve the uplink of one hypervisor behind the controller\'s '
             f'back (default {_DEFAULT_SLOW_HOST})')
    parser.add_argument(
        '--simulate', action='store_true',
        help='no root, no traffic: planner, scheduler and simulator')
    parser.add_argument(
        '--ui', action='store_true',
        help="serve the controller's live page on a port of loopback, and "
             'open it where the desktop has a browser')
    parser.add_argument('--seed', type=types.seed, default=0,
                        help='of the generated workload (default 0)')
    parser.add_argument('--only', choices=demo.ONLY,
                        help='run one of the workloads')
    parser.add_argument(
        '--order', choices=typing.get_args(setting.Order), default='mrtf',
        help='in which virtco serves coflows of the mix; own is the policy '
             'that is installed (default mrtf)')
    parser.add_argument(
        '--report-dir', type=types.directory, metavar='DIR',
        default='virtco-report',
        help='where report.html, results.json and logs go '
             '(default ./virtco-report)')
    parser.add_argument('--json', action='store_true',
                        help='print the results as JSON instead of a table')
    parser.set_defaults(function=_demo)


def _add_reproduce(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        'figure', choices=[*_TEST_CASES, *_FIGURES])
    parser.add_argument(
        '--rate', type=_rate, metavar='RATE', help=(
            'of each uplink, both ways (default 50Mbit, of a test case and of '
            'training jobs 20Mbit, of a cast 10Mbit)'))
    parser.add_argument('--seeds', type=types.between(1, 100), default=1,
                        metavar='N', help='how many, 1 to 100 (default 1)')
    parser.add_argument(
        '--shape', choices=[*workloads.SHAPES, _ALL], help=(
            'of a test case: the matrices of cases 1 to 3 (default medium)'))
    parser.add_argument(
        '--hosts', type=types.between(4, 64), metavar='N',
        help='of a test case: hypervisors, 4 to 64 (default 8); from 18 on '
        'the paper\'s widths')
    parser.add_argument(
        '--first-seed', type=types.between(0, 99_999), metavar='N',
        help='of a test case: its first seed (default 0)')
    parser.add_argument('--output', type=types.directory,
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
    parser.set_defaults(function=_reproduce)


def _reproduce(arguments: argparse.Namespace) -> int:
    """Measure a figure; runs in a test case's directory are kept."""
    name, is_case = arguments.figure, arguments.figure in _TEST_CASES
    for option, default in _OF_TEST_CASES.items():
        value = getattr(arguments, option)
        if value is None:
            setattr(arguments, option, default)
        elif not is_case:
            raise exception.Invalid(
                field=f'--{option.replace("_", "-")}', value=value,
                limit=f'nothing for {name}, which has no test cases')
    capability.check()
    namespaces.sweep()
    options = extent.Options(
        arguments.rate or _RATES_BPS.get(name, _RATE_BPS), tuple(range(
            arguments.first_seed, arguments.first_seed + arguments.seeds)),
        arguments.check, arguments.hosts, workloads.SHAPES
        if arguments.shape == _ALL else (arguments.shape,), arguments.output)
    found = (_TEST_CASES if is_case else _FIGURES)[name](
        options, display.Display(rich.console.Console(stderr=True)))
    present.show(found, arguments.output, arguments.json)
    if arguments.write:
        document.write_measured(
            record.DIRECTORY, found, record.made_on(time.process_time()),
            _command(arguments, options.rate_bps, is_case))
        if is_case:
            plots.draw(found, record.DIRECTORY)
    for claim in found.unmet:
        print(f'virtco-emulate: {claim}', file=sys.stderr)
    return 1 if arguments.check and found.unmet else 0


def _command(arguments: argparse.Namespace, rate_bps: float, is_case: bool
             ) -> str:
    """Return the command that makes the figure again."""
    words = ['virtco-emulate reproduce', arguments.figure, '--rate',
             units.format_rate(rate_bps).replace(' ', ''), '--seeds',
             str(arguments.seeds)]
    if is_case:
        words[2:2] = ['--hosts', str(arguments.hosts)]
        if arguments.first_seed:
            words += ['--first-seed', str(arguments.first_seed)]
        words += ['--shape', arguments.shape]
    return ' '.join(words)


def _demo(arguments: argparse.Namespace) -> int:
    names = bed.host_names(arguments.hosts)
    if arguments.slow_host not in (None, *names):
        raise exception.Invalid(
            field='--slow-host', value=arguments.slow_host,
            limit=f'one of {names[0]} to {names[-1]}')
    options = demo.Options(
        arguments.hosts, arguments.rate, arguments.seed,
        arguments.report_dir, arguments.slow_host, arguments.only,
        arguments.ui, arguments.order)
    own_policies.named(options.order)
    if arguments.ui and arguments.simulate:
        raise exception.Invalid(
            field='--ui', value='--simulate',
            limit='a run on the testbed, which has a controller')
    # With --json, progress must not get into the JSON.
    console = rich.console.Console(stderr=arguments.json)
    if not arguments.simulate:
        capability.check()
        namespaces.sweep()
    run = demo.Demo(options, console, arguments.simulate)
    try:
        run.run()
    finally:
        # Shown after a failure, too: the schemes that were finished before.
        results = run.results()
        if results is not None:
            demo.present(results, options, console)
            if arguments.json:
                json.dump(results.to_dict(), sys.stdout, indent=1)
                print()
    return 0


def _clean(_arguments: argparse.Namespace) -> int:
    for run in namespaces.sweep():
        print(f'removed run {run}')
    return 0


def _rate(text: str) -> float:
    """Parse a rate with a unit, within the limits of the testbed."""
    if re.fullmatch(r'\s*[0-9]+\s*', text):
        raise argparse.ArgumentTypeError(exception.expected(
            f'a rate with a unit, such as {text.strip()}Mbit', repr(text)))
    rate_bps = types.rate_bps(text)
    if not _MIN_RATE_BPS <= rate_bps <= _MAX_RATE_BPS:
        raise argparse.ArgumentTypeError(exception.expected(
            f'a rate between {units.format_rate(_MIN_RATE_BPS)} and '
            f'{units.format_rate(_MAX_RATE_BPS)}', repr(text)))
    return rate_bps


if __name__ == '__main__':
    sys.exit(main())
