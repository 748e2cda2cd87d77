# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``virtco-emulate reproduce virtco-case…``: VirtCO's test cases."""

import argparse
import sys
import time

import rich.console

from virtco.cmd import present
from virtco.lab.emulation import cases
from virtco.lab.emulation import display
from virtco.lab.emulation import hinted
from virtco.lab.emulation import reproduce
from virtco.lab.sim.figures import document
from virtco.lab.sim.figures import plots
from virtco.lab.sim.figures import record
from virtco.lab.sim import workloads
from virtco import units

ALL = 'all'
RATE_BPS = 20e6
N_HOSTS = 8
FIGURES: dict[str, reproduce.Figure] = {
    **reproduce.FIGURES, **hinted.FIGURES}


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the test cases alone."""
    parser.add_argument(
        '--hosts', type=int, default=N_HOSTS, choices=range(4, 65),
        metavar='N', help='of a test case: hypervisors, 4 to 64 (default '
        f'{N_HOSTS}); from 18 on the paper\'s widths')
    parser.add_argument(
        '--first-seed', type=int, default=0, choices=range(100_000),
        metavar='N', help='of a test case: its first seed (default 0)')


def run(args: argparse.Namespace) -> int:
    """Run a test case; what is in the output's runs.jsonl is not run again."""
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
