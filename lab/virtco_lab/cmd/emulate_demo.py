# SPDX-License-Identifier: Apache-2.0

"""``virtco-emulate demo``: the main job and its report."""

import argparse
import json
import sys
import typing

import rich.console

from virtco import exception
from virtco import own_policies
from virtco.wire import setting
from virtco_lab.cmd import arguments
from virtco_lab.emulation import bed
from virtco_lab.emulation import capability
from virtco_lab.emulation import demo
from virtco_lab.emulation import namespaces

_MIN_HOSTS = 3  # Fig. 1 spreads three VMs
_MAX_HOSTS = 64
_DEFAULT_SLOW_HOST = 'h1'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``virtco-emulate demo``."""
    parser.add_argument(
        '--hosts', type=arguments.between(_MIN_HOSTS, _MAX_HOSTS), default=6,
        metavar='N',
        help=f'hypervisors, {_MIN_HOSTS} to {_MAX_HOSTS} (default 6)')
    parser.add_argument(
        '--rate', type=arguments.uplink_bps, metavar='RATE',
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
    parser.add_argument('--seed', type=arguments.seed,
                        help='of the mix (default 0)')
    parser.add_argument('--only', choices=demo.ONLY,
                        help='run one of the workloads')
    parser.add_argument(
        '--order', choices=typing.get_args(setting.Order),
        help='in which virtco serves coflows of the mix; own is the policy '
             'that is installed (default mrtf)')
    parser.add_argument(
        '--report-dir', type=arguments.directory, metavar='DIR',
        default='virtco-report',
        help='where report.html, results.json and logs go '
             '(default ./virtco-report)')
    parser.add_argument('--json', action='store_true',
                        help='print the results as JSON instead of a table')
    parser.set_defaults(function=run)


def run(args: argparse.Namespace) -> int:
    """Run the demo; return its exit code.

    :raises virtco.exception.Invalid: for options that exclude each other.
    """
    arguments.only(args, args.only != 'fig1', 'with --only fig1', seed=0,
                   order='mrtf')
    names = bed.host_names(args.hosts)
    if args.slow_host not in (None, *names):
        raise exception.Invalid(
            field='--slow-host', value=args.slow_host,
            limit=f'one of {names[0]} to {names[-1]}')
    options = demo.Options(
        args.hosts, args.rate, args.seed, args.report_dir, args.slow_host,
        args.only, args.ui, args.order)
    own_policies.named(options.order)
    if args.ui and args.simulate:
        raise exception.Invalid(
            field='--ui', value='--simulate',
            limit='a run on the testbed, which has a controller')
    # With --json, progress must not get into the JSON.
    console = rich.console.Console(stderr=args.json)
    if not args.simulate:
        capability.check()
        namespaces.sweep()
    started = demo.Demo(options, console, args.simulate)
    try:
        started.run()
    finally:
        # Shown after a failure, too: the schemes that were finished before.
        results = started.results()
        if results is not None:
            demo.present(results, options, console)
            if args.json:
                json.dump(results.to_dict(), sys.stdout, indent=1)
                print()
    return 0
