# SPDX-License-Identifier: Apache-2.0

"""``virtco-sim reproduce``: the evaluation, recorded and checked."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
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
from virtco_lab.sim import figures
from virtco_lab.sim import training_files
from virtco_lab.sim import workloads
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import plots
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples

_ERRORS = rich_console.Console(stderr=True)
_SEEDS = tuple(range(8))
#: A copy of the published Facebook trace, also for the tests.
TRACE_VARIABLE = 'VIRTCO_TEST_TRACE'


def add(actions: Any) -> None:
    """Add the action ``reproduce`` of ``virtco-sim``."""
    reproduce = actions.add_parser(
        'reproduce', help='a figure or table of the papers')
    reproduce.add_argument('figure', choices=[*figures.FIGURES, 'all'])
    reproduce.add_argument('--only', type=arguments.names, default=(),
                           metavar='FIGURE,…', help='of all')
    reproduce.add_argument(
        '--seeds', type=arguments.seeds, metavar='N|FIRST-LAST', help=(
            'the first N seeds (default 8), or these; with --check those '
            'recorded, with --short the first'))
    reproduce.add_argument('--shape', choices=workloads.SHAPES,
                           default='medium',
                           help='of the matrices of test cases 1, 4 and 5')
    reproduce.add_argument('--short', action='store_true',
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
        '--tolerance', type=arguments.positive, default=record.TOLERANCE,
        help='what the mean of a cell may be off by (default %(default)s)')
    reproduce.add_argument(
        '--trace', type=pathlib.Path, help=(
            'the published trace FB2010-1Hr-150-0.txt (default '
            f'${TRACE_VARIABLE})'))
    reproduce.add_argument(
        '--topology', type=pathlib.Path, metavar='FILE', help=(
            'of the cluster of training-cluster and training-mixed, in any '
            'format of "virtco topology import"'))
    reproduce.add_argument(
        '--workload', action='append', default=[], metavar='FILE[@TIME]',
        help='jobs of training-cluster and training-mixed: a file or '
        'directory of AICB\'s workloads, with what an iteration computes for '
        'where the file does not tell it; may be given again')
    reproduce.add_argument('--processes', type=arguments.count, default=1,
                           help='to run side by side; the numbers stay')
    reproduce.add_argument('--output', type=arguments.directory, help=(
        'directory for the plots and tables (default virtco-sim-output; '
        'with --check none)'))
    reproduce.add_argument('--json', action='store_true')
    reproduce.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run figures; write them, compare them with the records, or show them.

    :returns: exit code.
    :raises virtco.exception.Invalid: for options that exclude each other.
    """
    if args.write and args.short:
        raise exception.Invalid(field='options', value='both',
                                limit='--write or --short')
    if args.shape != 'medium' and (args.write or args.check):
        raise exception.Invalid(field='--shape', value=args.shape,
                                limit='medium, the shape of the records')
    for field, value in (('--topology', args.topology),
                         ('--workload', args.workload)):
        if value and (args.write or args.check):
            raise exception.Invalid(field=field, value=value,
                                    limit='nothing with --write or --check')
    path = args.trace or os.environ.get(TRACE_VARIABLE)
    trace = pathlib.Path(path) if path else None
    if trace is not None and not trace.is_file():
        raise exception.Invalid(field='--trace', value=str(trace),
                                limit='an existing file')
    if args.topology is not None and not args.topology.is_file():
        raise exception.Invalid(field='--topology', value=str(args.topology),
                                limit='an existing file')
    if args.render:
        document.write(args.record, figures.FIGURES, _names(args))
        return 0
    chosen = _chosen(args, trace)
    kinds = training_files.load(args.workload, _say)
    records = _records(args, chosen)
    contexts = {figure.name: samples.Context(
        _seeds(args, records.get(figure.name)), args.shape, args.short,
        trace, args.topology, kinds, args.processes)
        for figure in chosen}
    _say_how_long(chosen, contexts, records)
    if args.output is None and not args.check:
        args.output = arguments.directory('virtco-sim-output')
    shown, failures = [], []
    for figure in chosen:
        found = figure.sample(contexts[figure.name], _track)
        entry = _present(args, figure, found, contexts[figure.name])
        if args.check:
            failures += _check(args, figure, found, entry,
                               records[figure.name])
        shown.append(entry)
    if args.check:
        stale = document.outdated(args.record, figures.FIGURES, [
            figure.name for figure in chosen])
        failures += [f'{path}: not the table of its record; --write makes it'
                     for path in stale]
    if args.write:
        document.write(args.record, figures.FIGURES,
                       [figure.name for figure in chosen])
    if args.json:
        print(json.dumps({'figures': shown, 'failures': failures}
                         if args.check else
                         shown if len(shown) > 1 else shown[0]))
    for failure in failures:
        print(f'virtco-sim: {failure}', file=sys.stderr)
    return 1 if failures else 0


def _chosen(args: argparse.Namespace, trace: pathlib.Path | None
            ) -> list[samples.Figure]:
    """List the figures to run; report those without their trace."""
    chosen = []
    for figure in map(figures.FIGURES.__getitem__, _names(args)):
        if trace is not None or not figure.needs_trace:
            chosen.append(figure)
        elif args.figure == 'all' and not args.only:
            _say(f'{figure.name}: left out, it needs --trace')
        else:
            raise exception.Invalid(field='--trace', value=None,
                                    limit=f'the trace of {figure.name}')
    return chosen


def _names(args: argparse.Namespace) -> tuple[str, ...]:
    """Name the figures that the arguments choose."""
    if args.only and args.figure != 'all':
        raise exception.Invalid(field='--only', value=','.join(args.only),
                                limit='nothing without the figure "all"')
    for name in args.only:
        if name not in figures.FIGURES:
            raise exception.Invalid(
                field='--only', value=name,
                limit='one of ' + ', '.join(figures.FIGURES))
    if args.figure != 'all':
        return (args.figure,)
    return args.only or tuple(figures.FIGURES)


def _records(args: argparse.Namespace, chosen: Iterable[samples.Figure]
             ) -> dict[str, record.Record]:
    """Read the records of the figures; each must exist to be compared."""
    found = {}
    for figure in chosen:
        try:
            found[figure.name] = record.read(args.record, figure.name)
        except exception.Invalid:
            if args.check:
                raise
    return found


def _seeds(args: argparse.Namespace, recorded: record.Record | None
           ) -> tuple[int, ...]:
    if args.seeds is not None:
        return tuple(args.seeds)
    known = recorded.found.seeds if args.check and recorded else _SEEDS
    return known[:1] if args.short else known


def _say_how_long(chosen: Sequence[samples.Figure],
                  contexts: dict[str, samples.Context],
                  records: dict[str, record.Record]) -> None:
    """Print the recorded time of each figure."""
    total_s = 0.0
    for figure in chosen:
        context = contexts[figure.name]
        settings, seeds = figure.chosen(context), figure.seeds(context)
        what = f'{figure.name}: {len(settings)} settings'
        if figure.seeded:
            what += f', seeds {record.shown_seeds(seeds)}'
        known = records.get(figure.name)
        if known is None:
            _say(f'{what}, not recorded how long')
            continue
        its_s = record.seconds(known, settings, len(seeds))
        total_s += its_s
        _say(f'{what}, about {its_s:.3g} s')
    _say(f'in all about {total_s:.3g} s of CPU time, as recorded')


def _present(args: argparse.Namespace, figure: samples.Figure,
             found: samples.Samples, context: samples.Context
             ) -> dict[str, Any]:
    """Print, plot and record a figure."""
    result = figure.show(found, context)
    made = record.made_on(sum(found.cpu_s.values()))
    entry = record.Record(figure.name, context.shape, made, found).to_dict(
        result)
    if args.output is not None:
        record.write(args.output, entry)
        entry['plot'] = str(plots.draw(result, args.output))
    if args.write:
        args.record.mkdir(parents=True, exist_ok=True)
        record.write(args.record, {key: value for key, value in entry.items()
                                   if key != 'plot'})
    if not args.json and not args.check:
        present.print_outcome(result)
        if 'plot' in entry:
            print(f'plot: {entry["plot"]}\n')
    return entry


def _check(args: argparse.Namespace, figure: samples.Figure,
           found: samples.Samples, entry: dict[str, Any],
           known: record.Record) -> list[str]:
    count, differences = record.compare(figure, found, known, args.tolerance)
    entry['compared'] = count
    entry['differences'] = differences
    if not args.json:
        print(f'{figure.name}: {count} cells compared, {len(differences)} '
              f'off by more than {args.tolerance:.2%}; recorded at commit '
              f'{known.made.get("commit")}')
    return differences


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _track(items: Sequence[Any], description: str) -> Iterator[Any]:
    return iter(rich_progress.track(items, description, console=_ERRORS,
                                    transient=True,
                                    disable=not _ERRORS.is_terminal))
