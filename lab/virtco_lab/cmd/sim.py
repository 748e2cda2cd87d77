# SPDX-License-Identifier: Apache-2.0

"""``virtco-sim``: run, reproduce, generate and errata."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import math
import pathlib
import sys
from typing import Any

from rich import console as rich_console
from rich import progress as rich_progress

from virtco import exception
from virtco import units
from virtco_lab.cmd import arguments
from virtco_lab.cmd import tables
from virtco_lab.sim import replay
from virtco_lab.sim import schemes
from virtco_lab.sim import simulation
from virtco_lab.sim import traces
from virtco_lab.sim import workloads

_ERRORS = rich_console.Console(stderr=True)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of ``virtco-sim``."""
    parser = arguments.Parser(
        prog='virtco-sim',
        description='Simulate placement and scheduling of coflows.')
    parser.set_defaults(run=None)
    actions = parser.add_subparsers(metavar='ACTION', required=True)
    _add_run(actions)
    _add_compare(actions)
    _add_generate(actions)
    errata = actions.add_parser(
        'errata', help='what the papers\' print gets wrong, by running each '
        'counterexample')
    errata.add_argument('--json', action='store_true')
    errata.set_defaults(run=_errata)
    actions.add_parser('reproduce', help='a figure or table of the papers',
                       later=_add_reproduce)
    return parser


def _add_reproduce(parser: argparse.ArgumentParser) -> None:
    # The figures bring the controller along.
    from virtco_lab.cmd import reproduce
    reproduce.add_arguments(parser)


def _add_run(actions: Any) -> None:
    run = actions.add_parser(
        'run', help='run a trace, groups from JSON or the Table 2 workload')
    what = run.add_mutually_exclusive_group(required=True)
    what.add_argument('--trace', type=pathlib.Path,
                      help='file in the coflow-benchmark format')
    what.add_argument('--groups', type=pathlib.Path,
                      help='JSON with hosts and groups')
    what.add_argument('--table2', choices=workloads.SHAPES,
                      help='VirtCO\'s six applications on 18 hosts')
    run.add_argument('--policy', choices=simulation.POLICIES,
                     help='of scheduling; default mrtf, or the scheme\'s')
    run.add_argument('--scheme', choices=sorted(schemes.SCHEMES),
                     help='how groups are placed (default virtco)')
    run.add_argument('--rate', type=arguments.rate_bps,
                     help='of each port of a trace (default 1Gbit)')
    run.add_argument('--theta', type=arguments.theta, default=math.inf,
                     metavar='SECONDS', help='longest wait without progress')
    run.add_argument('--bound', action='store_true', help=(
        'also print what the mean CCT is at least under any schedule, at '
        'the placements of this run'))
    run.add_argument('--seed', type=arguments.seed, help=(
        'of the workload, and of schemes that place at random (default 0)'))
    run.add_argument('--json', action='store_true')
    run.set_defaults(run=_run)


def _add_compare(actions: Any) -> None:
    compare = actions.add_parser(
        'compare', help='compare policies of scheduling on a trace')
    compare.add_argument('--trace', type=pathlib.Path, required=True,
                         help='file in the coflow-benchmark format')
    compare.add_argument('--policy', action='append', default=[],
                         metavar='FILE:CLASS', type=arguments.own_policy,
                         help='one of your own, beside all others; repeatable')
    compare.add_argument('--rate', type=arguments.rate_bps, default='1Gbit',
                         help='of each port (default 1Gbit)')
    compare.add_argument('--theta', type=arguments.theta, default=math.inf,
                         metavar='SECONDS',
                         help='longest wait without progress')
    compare.add_argument('--output', type=arguments.directory,
                         default=pathlib.Path(), help='of the plot')
    compare.add_argument('--json', action='store_true')
    compare.set_defaults(run=_compare)


def _add_generate(actions: Any) -> None:
    generate = actions.add_parser(
        'generate', help='write a synthetic workload')
    generate.add_argument('kind', choices=['facebook-like', 'table2'])
    generate.add_argument('output', type=arguments.file)
    generate.add_argument('--seed', type=arguments.seed, default=0)
    generate.add_argument('--ports', type=arguments.count,
                          help='of facebook-like (default 150)')
    generate.add_argument('--coflows', type=arguments.count,
                          help='of facebook-like (default 526)')
    generate.add_argument('--duration', type=arguments.seconds,
                          metavar='SECONDS',
                          help='of facebook-like (default 3600)')
    generate.add_argument('--shape', choices=workloads.SHAPES,
                          help='of the matrices of table2 (default medium)')
    generate.set_defaults(run=_generate)


def _errata(args: argparse.Namespace) -> int:
    """Check the errata; return 1 when an example refutes nothing."""
    from virtco_lab.sim import errata

    found = errata.check()
    if args.json:
        print(json.dumps([one._asdict() for one in found]))
    else:
        tables.print_table('Errata', errata.COLUMNS,
                           (one[:-1] for one in found))
    return 0 if all(one.holds for one in found) else 1


def _run(args: argparse.Namespace) -> int:
    is_trace = args.trace is not None
    arguments.only(args, not is_trace, 'with --trace, whose ports are given',
                   scheme='virtco', seed=0)
    arguments.only(args, is_trace, 'without --trace', rate=1e9)
    if is_trace:
        return _run_trace(args)
    # They load the planner, without which a trace begins sooner.
    from virtco_lab.sim import cloud
    from virtco_lab.sim import groups
    from virtco_lab.sim import optimum

    if args.groups is not None:
        hosts, its_groups = groups.read(args.groups)
    else:
        hosts = groups.equal_hosts(18, 12.0, 1e9)
        its_groups = groups.of_coflows(workloads.table2(seed=args.seed,
                                                     shape=args.table2))
    scheme = schemes.get(args.scheme)
    config = simulation.Config(args.policy or scheme.order,
                               theta_s=args.theta)
    result = cloud.simulate(hosts, its_groups, scheme, seed=args.seed,
                            config=config)
    answer = {
        'mean_cct_s': result.mean_cct_s, 'scheme': scheme.name,
        'coflows': [dataclasses.asdict(row) for row in result.coflows],
        'hosts': result.hosts}
    if args.bound:
        answer['bound'] = _gap(result.mean_cct_s, optimum.least_mean_cct_s(
            hosts, its_groups, result))
    return _show(
        args, answer, f'{scheme.label}: mean CCT {result.mean_cct_s:.4g} s', (
            'group', 'coflow', 'size', 'start s', 'CCT s', 'alone s'),
        [(row.group, row.name, units.format_size(row.size_bytes),
          row.start_s, row.cct_s, row.alone_s) for row in result.coflows],
        'At these placements the')


def _run_trace(args: argparse.Namespace) -> int:
    trace = traces.read(args.trace)
    last_s = max([row.arrival_s for row in trace.coflows], default=0.0)
    with rich_progress.Progress(
            *rich_progress.Progress.get_default_columns(),
            rich_progress.TextColumn('{task.fields[events]} events'),
            console=_ERRORS, transient=True) as bar:
        task = bar.add_task('simulated time', total=last_s, events=0)
        found = replay.replay(
            trace, args.rate, replay.config_of(args.policy or 'mrtf',
                                               args.theta),
            lambda now_s, events: bar.update(
                task, completed=min(now_s, last_s), events=events))
    ours, alone = map(replay.summary, (found.cct_s, found.alone_s))
    answer: dict[str, Any] = {**ours, 'events': found.events, 'alone': alone}
    rows = [('CCT', *ours.values()), ('alone', *alone.values())]
    if args.bound:
        answer['bound'] = _gap(ours['mean_s'], replay.least_mean_cct_s(
            trace, args.rate))
        rows.append(('bound of any schedule', answer['bound']['mean_s'], '',
                     ''))
    if args.json:
        answer['cct_s'] = found.cct_s.tolist()
    return _show(
        args, answer, f'{len(trace.coflows)} coflows, {found.events} events',
        ('', 'mean s', 'median s', 'p95 s'), rows, 'The')


def _compare(args: argparse.Namespace) -> int:
    """Replay a trace under each policy, and draw the CCTs."""
    from virtco_lab.cmd import present
    from virtco_lab.sim import comparison

    trace = traces.read(args.trace)
    found: dict[str, replay.Replay] = {}
    with rich_progress.Progress(console=_ERRORS, transient=True) as bar:
        every = {name: name for name in simulation.POLICIES} | dict(
            args.policy)
        for name, policy in bar.track(every.items(), description='policies'):
            found[name] = replay.replay(trace, args.rate, replay.config_of(
                policy, args.theta))
    present.show(comparison.outcome_of(found, replay.least_mean_cct_s(
        trace, args.rate)), args.output, args.json)
    return 0


def _gap(mean_s: float, bound_s: float) -> dict[str, float]:
    return {'mean_s': bound_s,
            'gap': mean_s / bound_s - 1 if bound_s > 0 else 0.0}


def _show(args: argparse.Namespace, answer: Mapping[str, Any], title: str,
          columns: Sequence[str], rows: Iterable[Sequence[Any]], which: str
          ) -> int:
    """Print an answer as JSON, or a table and how far the bound is below."""
    if args.json:
        print(json.dumps(answer))
        return 0
    tables.print_table(title, columns, rows)
    if bound := answer.get('bound'):
        print(f'{which} best schedule\'s mean CCT is at least '
              f'{bound["mean_s"]:.4g} s; this one is {bound["gap"]:.1%} above '
              'that.')
    return 0


def _generate(args: argparse.Namespace) -> int:
    is_trace = args.kind == 'facebook-like'
    arguments.only(args, is_trace, f'for {args.kind}', ports=150, coflows=526,
                   duration=3600.0)
    arguments.only(args, not is_trace, f'for {args.kind}', shape='medium')
    if is_trace:
        traces.write(args.output, workloads.facebook_like(
            seed=args.seed, n_ports=args.ports, n_coflows=args.coflows,
            duration_s=args.duration))
        return 0
    coflows = workloads.table2(seed=args.seed, shape=args.shape)
    args.output.write_text(json.dumps({
        'hosts': {'count': 18, 'slots': 12, 'rate': '1Gbit'},
        'groups': [{'name': coflow.name, 'tm': {
            'n': coflow.n_vms,
            'flows': [[flow.src, flow.dst, round(flow.size_bytes)]
                      for flow in coflow.flows]}} for coflow in coflows]},
        indent=1) + '\n', encoding='utf-8')
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-sim``; return its exit code."""
    args = make_parser().parse_args(argv)
    try:
        return int(args.run(args))
    except (exception.VirtcoException, OSError) as error:
        print(f'virtco-sim: {error}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == '__main__':
    sys.exit(main())
