# SPDX-License-Identifier: Apache-2.0

"""``virtco-emulate reproduce virtco-case…``: VirtCO's test cases."""

import argparse
import sys
import time

import rich.console

from virtco import exception
from virtco import units
from virtco_lab.cmd import arguments
from virtco_lab.cmd import present
from virtco_lab.emulation import cases
from virtco_lab.emulation import display
from virtco_lab.emulation import hinted
from virtco_lab.emulation import reproduce
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import plots
from virtco_lab.sim.figures import record

ALL = 'all'
RATE_BPS = 20e6
N_HOSTS = 8
FIGURES: dict[str, reproduce.Figure] = {
    **reproduce.FIGURES, **hinted.FIGURES}
_DEFAULTS = {'hosts': N_HOSTS, 'first_seed': 0, 'shape': 'medium'}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the test cases."""
    parser.add_argument(
        '--shape', choices=[*workloads.SHAPES, ALL], help=(
            'of a test case: the matrices of cases 1 to 3 (default '
            f'{_DEFAULTS["shape"]})'))
    parser.add_argument(
        '--hosts', type=arguments.between(4, 64), metavar='N',
        help=f'of a test case: hypervisors, 4 to 64 (default {N_HOSTS}); '
        'from 18 on the paper\'s widths')
    parser.add_argument(
        '--first-seed', type=arguments.between(0, 99_999), metavar='N',
        help='of a test case: its first seed (default 0)')


def refuse(args: argparse.Namespace) -> None:
    """Check that no option of the test cases is given.

    :raises virtco.exception.Invalid: when one is given.
    """
    for name in _DEFAULTS:
        if (value := getattr(args, name)) is not None:
            raise exception.Invalid(
                field=f'--{name.replace("_", "-")}', value=value,
                limit=f'nothing for {args.figure}, which has no test cases')


def run(args: argparse.Namespace) -> int:
    """Run a test case; what is in the output's runs.jsonl is not run again."""
    for name, default in _DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, default)
    scale = cases.Scale(args.hosts, args.rate or RATE_BPS)
    shapes = workloads.SHAPES if args.shape == ALL else (args.shape,)
    seeds = tuple(range(args.first_seed, args.first_seed + args.seeds))
    found = FIGURES[args.figure](
        reproduce.Options(scale, seeds, shapes, args.output, args.check),
        display.Display(rich.console.Console(stderr=True)))
    present.show([found.result], args.output, args.json)
    if args.write:
        document.write_measured(
            record.DIRECTORY, found.result,
            record.made_on(time.process_time()), _command(args, scale),
            found.rows())
        plots.draw(found.result, record.DIRECTORY)
    for claim in found.result.unmet:
        print(f'virtco-emulate: {claim}', file=sys.stderr)
    return 1 if args.check and found.result.unmet else 0


def _command(args: argparse.Namespace, scale: cases.Scale) -> str:
    rate = units.format_rate(scale.rate_bps).replace(' ', '')
    first = f' --first-seed {args.first_seed}' if args.first_seed else ''
    return (f'virtco-emulate reproduce {args.figure} --hosts {args.hosts} '
            f'--rate {rate} --seeds {args.seeds}{first} --shape {args.shape}')
