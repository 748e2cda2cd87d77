# SPDX-License-Identifier: Apache-2.0

"""``virtco-emulate``: the emulated datacentre and the demo on it."""

import argparse
import signal
import sys
import typing

from virtco import exception
from virtco_lab.cmd import arguments
from virtco_lab.emulation import capability
from virtco_lab.emulation import namespaces


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-emulate``; return its exit code."""
    options = _parser().parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # End as on Ctrl-C: through every ``finally``.
        signal.signal(number, lambda number, _: sys.exit(128 + number))
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


def _parser() -> argparse.ArgumentParser:
    parser = arguments.Parser(
        prog='virtco-emulate', description=__doc__.partition(': ')[2])
    commands = parser.add_subparsers(required=True, metavar='COMMAND')
    commands.add_parser(
        'demo', help='run the main job and write a report', later=_add_demo)
    commands.add_parser(
        'reproduce', help='a test case or a figure with real packets',
        later=_add_reproduce)
    clean = commands.add_parser(
        'clean', help='remove what runs that were killed left behind')
    clean.set_defaults(function=_clean)
    return parser


def _add_demo(parser: argparse.ArgumentParser) -> None:
    # Imports of a second, and so below.
    from virtco_lab.cmd import emulate_demo
    emulate_demo.add_arguments(parser)


def _add_reproduce(parser: argparse.ArgumentParser) -> None:
    from virtco_lab.cmd import emulate_reproduce
    emulate_reproduce.add_arguments(parser)


def _clean(_arguments: argparse.Namespace) -> int:
    for run in namespaces.sweep():
        print(f'removed run {run}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
