# SPDX-License-Identifier: Apache-2.0

"""``virtco-sim reproduce``: the evaluation, recorded and checked."""

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import json
import os
import pathlib
import sys
from typing import Any

from rich import console as rich_console
from rich import progress as rich_progress

from virtco import exception
from virtco_lab.cmd import arguments
from virtco_lab.cmd import present
from virtco_lab.sim import training_files
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import plots
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples

_ERRORS = rich_console.Console(stderr=True)
_SEEDS = tuple(range(8))
#: A copy of the published Facebook trace, also for the tests.
TRACE_VARIABLE = 'VIRTCO_TEST_TRACE'


def add_arguments(reproduce: argparse.ArgumentParser) -> None:
    """Add the arguments of ``virtco-sim reproduce``."""
    reproduce.add_argument('figure', choices=[*index.FIGURES, 'all'])
    reproduce.add_argument('--only', type=arguments.names, metavar='FIGURE,…',
                           help='of all')
    reproduce.add_argument(
        '--seeds', type=arguments.seeds, metavar='N|FIRST-LAST', help=(
            'the first N seeds (default 8), or these; with --check those '
            'recorded, with --short the first'))
    reproduce.add_argument('--shape', choices=workloads.SHAPES, help=(
        'of the matrices of test cases 1, 4 and 5 (default medium)'))
    reproduce.add_argument('--short', action='store_true', default=None,
                           help='a few cells of each figure')
    what = reproduce.add_mutually_exclusive_group()
    what.add_argument('--check', action='store_true', help=(
        'compare with what is recorded; ends with 1 where it differs'))
    what.add_argument('--write', action='store_true', help=(
        'record the figures and write the tables of the documentation'))
    what.add_argument('--render', action='store_true', help=(
        'only write the tables of what is recorded; nothing is run'))
    reproduce.add_argument(
        '--record', type=pathlib.Path, default=record.DIRECTORY,
        metavar='DIR', help='where figures are recorded (default '
        '%(default)s)')
    reproduce.add_argument(
        '--tolerance', type=arguments.positive, help=(
            'what the mean of a cell may be off by with --check (default '
            f'{record.TOLERANCE})'))
    reproduce.add_argument(
        '--trace', type=pathlib.Path, help=(
            'the published trace FB2010-1Hr-150-0.txt (default '
            f'${TRACE_VARIABLE})'))
    reproduce.add_argument(
        '--topology', type=pathlib.Path, metavar='FILE', help=(
            'of the cluster of training-cluster and training-mixed, in any '
            'format of "virtco topology import"'))
    reproduce.add_argument(
        '--workload', action='append', metavar='FILE[@TIME]',
        help='jobs of training-cluster and training-mixed: a file or '
        'directory of AICB\'s workloads, with what an iteration computes for '
        'where the file does not tell it; may be given again')
    reproduce.add_argument('--processes', type=arguments.count, help=(
        'to run side by side; the numbers stay (default 1)'))
    reproduce.add_argument('--output', type=arguments.directory, help=(
        'directory for the plots and tables (default virtco-sim-output; '
        'with --check none)'))
    reproduce.add_argument('--json', action='store_true', default=None)
    reproduce.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run figures; write them, compare them with the records, or show them.

    :returns: exit code.
    :raises virtco.exception.Invalid: for options that exclude each other.
    """
    _settle(args)
    if args.render:
        document.write(args.record, _names(args))
        return 0
    common = samples.Context(
        (), args.shape, args.short, args.trace, args.topology,
        training_files.load(args.workload, _say), args.processes)
    runs = [_run_of(args, figure, common) for figure in _chosen(args)]
    _say_how_long(runs)
    if args.output is None and not args.check:
        args.output = arguments.directory('virtco-sim-output')
    shown = [_present(args, one) for one in runs]
    names = [one.figure.name for one in runs]
    failures = []
    if args.check:
        failures = [difference for entry in shown
                    for difference in entry['differences']]
        failures += [f'{path}: not the table of its record; --write makes it'
                     for path in document.outdated(args.record, names)]
    if args.write:
        document.write(args.record, names)
    if args.json:
        print(json.dumps({'figures': shown, 'failures': failures}
                         if args.check else
                         shown if len(shown) > 1 else shown[0]))
    for failure in failures:
        print(f'virtco-sim: {failure}', file=sys.stderr)
    return 1 if failures else 0


def _settle(args: argparse.Namespace) -> None:
    """Refuse options that are not used, and set those not given.

    :raises virtco.exception.Invalid: for these, and for files that are none.
    """
    arguments.only(args, args.figure == 'all', 'without the figure "all"',
                   only=())
    figures = [index.FIGURES[name] for name in _names(args)]
    inputs = {name for figure in figures for name in figure.inputs}
    is_kept = args.write or args.check
    by_these = f'for {args.figure}'
    for is_used, where, options in (
            (not args.render, 'with --render', (
                'seeds', 'shape', 'short', 'trace', 'topology', 'workload',
                'processes', 'output', 'json')),
            (not is_kept, 'with --write or --check', ('topology',
                                                      'workload')),
            (not args.write, 'with --write', ('short',)),
            (any(figure.seeded for figure in figures), by_these, ('seeds',)),
            ('shape' in inputs, by_these, ('shape',)),
            ('trace' in inputs, by_these, ('trace',)),
            ('topology' in inputs, by_these, ('topology',)),
            ('kinds' in inputs, by_these, ('workload',))):
        arguments.only(args, is_used, where, **dict.fromkeys(options))
    arguments.only(args, args.check, 'without --check',
                   tolerance=record.TOLERANCE)
    arguments.only(args, True, '', shape='medium', short=False, workload=(),
                   processes=1, json=False)
    if is_kept and args.shape != 'medium':
        raise exception.Invalid(field='--shape', value=args.shape,
                                limit='medium, the shape of the records')
    if args.trace is None and (path := os.environ.get(TRACE_VARIABLE)):
        args.trace = pathlib.Path(path)
    for option in 'trace', 'topology':
        path = getattr(args, option)
        if path is not None and not path.is_file():
            raise exception.Invalid(field=f'--{option}', value=path,
                                    limit='an existing file')


def _names(args: argparse.Namespace) -> tuple[str, ...]:
    """Name the figures that the arguments choose."""
    for name in args.only:
        if name not in index.FIGURES:
            raise exception.Invalid(
                field='--only', value=name,
                limit='one of ' + ', '.join(index.FIGURES))
    if args.figure != 'all':
        return (args.figure,)
    return args.only or tuple(index.FIGURES)


def _chosen(args: argparse.Namespace) -> Iterator[samples.Figure]:
    """Yield the figures to run; report those without their trace."""
    for figure in map(index.FIGURES.__getitem__, _names(args)):
        if args.trace is not None or not figure.needs_trace:
            yield figure
        elif args.figure == 'all' and not args.only:
            _say(f'{figure.name}: left out, it needs --trace')
        else:
            raise exception.Invalid(field='--trace', value=None,
                                    limit=f'the trace of {figure.name}')


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """A figure with its inputs, and its record where there is one."""

    figure: samples.Figure
    context: samples.Context
    known: record.Record | None


def _run_of(args: argparse.Namespace, figure: samples.Figure,
            common: samples.Context) -> _Run:
    """Choose the seeds of a figure, which must be recorded to be compared."""
    known = None
    try:
        known = record.read(args.record, figure.name)
    except exception.Invalid:
        if args.check:
            raise
    seeds = args.seeds
    if seeds is None:
        seeds = known.found.seeds if args.check and known else _SEEDS
        seeds = seeds[:1] if args.short else seeds
    return _Run(figure, dataclasses.replace(common, seeds=seeds), known)


def _say_how_long(runs: Sequence[_Run]) -> None:
    """Print the recorded time of each figure."""
    total_s = 0.0
    for one in runs:
        settings = one.figure.chosen(one.context)
        seeds = one.figure.seeds(one.context)
        what = f'{one.figure.name}: {len(settings)} settings'
        if one.figure.seeded:
            what += f', seeds {record.shown_seeds(seeds)}'
        if one.known is None:
            _say(f'{what}, not recorded how long')
            continue
        its_s = record.seconds(one.known, settings, len(seeds))
        total_s += its_s
        _say(f'{what}, about {its_s:.3g} s')
    _say(f'in all about {total_s:.3g} s of CPU time, as recorded')


def _present(args: argparse.Namespace, one: _Run) -> dict[str, Any]:
    """Run a figure; print, plot and record it, or compare it."""
    others = record.Others()
    found = one.figure.sample(one.context, _track)
    result = one.figure.show(found, one.context)
    made = record.made_on(sum(found.cpu_s.values()), others)
    entry = record.Record(one.figure.name, one.context.shape, made, found
                          ).to_dict(result)
    if args.write:
        args.record.mkdir(parents=True, exist_ok=True)
        record.write(args.record, entry)
    if args.output is not None:
        record.write(args.output, entry)
        entry['plot'] = str(plots.draw(result, args.output))
    if args.check and one.known is not None:
        count, entry['differences'] = record.compare(
            one.figure, found, one.known, args.tolerance)
        entry['compared'] = count
        if not args.json:
            print(f'{one.figure.name}: {count} cells compared, '
                  f'{len(entry["differences"])} off by more than '
                  f'{args.tolerance:.2%}; recorded at commit '
                  f'{one.known.made.get("commit")}')
    elif not args.json:
        present.print_outcome(result)
        if 'plot' in entry:
            print(f'plot: {entry["plot"]}\n')
    return entry


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _track(items: Sequence[Any], description: str) -> Iterator[Any]:
    return iter(rich_progress.track(items, description, console=_ERRORS,
                                    transient=True,
                                    disable=not _ERRORS.is_terminal))
