# SPDX-License-Identifier: Apache-2.0

"""Mean CCT with hints of every quality, over that without hints.

``python -m benchmarks.hints --short`` runs the controller's own code over a
fluid in four minutes. *None* is plain TCP at the same hosts. Each row is of
one quality, load of the busiest link and number of hosts; each ratio is of
the mean CCTs of one seed, and the columns are over the seeds. The liar's own
coflow and those beside it have rows of their own, and so have the coflows of
which nobody ever tells and those with exact hints beside them. *Ideal* is what
the order alone may gain, with everything known at once; *bound* is below the
mean CCT of any schedule.

``--packets`` runs them with real TCP on 20 Mbit/s or ``--rate`` (root; 30 to
60 s each; a machine that does nothing else). ``--part 2/3 --resume FILE`` runs
each third seed from the second on and keeps the runs in FILE, where a later
call finds them. ``--json`` writes the rows.
"""

import argparse
import bisect
import collections
from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
import dataclasses
import itertools
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile

import numpy as np
from oslo_config import cfg
from rich import console
from rich import table

from benchmarks import hint_cases
from benchmarks import hint_packets
from virtco import units
from virtco.conf import scheduler_options as scheduler
from virtco_lab.emulation import display
from virtco_lab.sim.figures import outcome

LOADS, USUAL_LOAD = (0.5, 0.7, 0.9), 0.7
#: Qualities at every load and size; the others at 6 hosts and USUAL_LOAD.
EVERYWHERE = (hint_cases.NONE, hint_cases.IDEAL, hint_cases.BOUND, 'exact',
              'unknown', 'half')
#: Number of hosts -> seeds.
SEEDS, SHORT_SEEDS = {6: 10, 18: 3}, {6: 5, 18: 2}
#: Between short, medium and long coflows.
BOUNDS_S = (1.0, 3.0)
_LENGTHS = dict(enumerate(('below 1 s', '1 to 3 s', 'above 3 s')))
_FEW = 6
_WIDTH = 120


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Ratios of mean CCTs, over the seeds.

    :ivar options: of ``[scheduler]``, name=value, by commas.
    :ivar ci95: half of the mean's 95 % interval (Student); NaN of one seed.
    """

    quality: str
    load: float
    hosts: int
    rate_bps: float
    on_packets: bool
    ceil: str
    receiver: str
    options: str
    mean_over_none: float
    ci95: float
    worst_over_none: float
    p95_over_none: float
    mean_over_exact: float
    seeds: int


Cell = hint_cases.Cell
Runs = dict[Cell, list[float]]


def cells(args: argparse.Namespace) -> list[Cell]:
    """All runs of the table, those of a seed together."""
    part, n_parts = args.part
    found = [
        Cell(quality, load, n_hosts, seed, args.ceil,
             'product' if args.packets else args.receiver, args.packets,
             args.options, args.rate, args.report_s,
             args.look_s)
        for n_hosts in args.hosts for seed in args.seeds or range(
            (SHORT_SEEDS if args.short else SEEDS)[n_hosts])
        if seed % n_parts == part - 1
        for load in args.loads
        for quality in args.qualities or (
            hint_cases.QUALITIES if (n_hosts, load) == (_FEW, USUAL_LOAD)
            else EVERYWHERE)]
    missing = ((hint_cases.IDEAL, hint_cases.BOUND) if args.packets
               else hint_cases.ON_PACKETS_ONLY)
    found = [cell for cell in found if cell.quality not in missing]
    # Every row needs these two.
    needed = [dataclasses.replace(cell, quality=quality) for cell in found
              for quality in (_plain(cell.quality), 'exact')]
    return list(dict.fromkeys(
        found if not args.qualities else [*needed, *found]))


def run_all(todo: Sequence[Cell], processes: int
            ) -> Iterator[tuple[Cell, list[float], float]]:
    """CCTs of cells in the fluid, as they end; nothing waits in there."""
    # A process plans a case once for all of a batch; the longest come first.
    def case(cell: Cell) -> tuple[int, int, float]:
        return -cell.hosts, cell.seed, cell.load

    batches = [list(some) for _, some in itertools.groupby(
        sorted(todo, key=case), case)]
    with concurrent.futures.ProcessPoolExecutor(
            processes, multiprocessing.get_context('fork')) as pool:
        for future in concurrent.futures.as_completed(
                [pool.submit(_run_batch, batch) for batch in batches]):
            yield from future.result()


def _run_batch(some: Sequence[Cell]
               ) -> list[tuple[Cell, list[float], float]]:
    return [(cell, hint_cases.fluid_s(cell), 0.0) for cell in some]


def read(path: pathlib.Path) -> Runs:
    """Runs of a file of JSON lines; none where it is not there."""
    found: Runs = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        raw = json.loads(line)
        options = tuple(map(tuple, raw['cell'].pop('options', ())))
        found[Cell(**raw['cell'], options=options)] = raw['ccts_s']
    return found


def rows(runs: Runs) -> list[Row]:
    """The table of all runs that have plain TCP beside them."""
    ratios: dict[tuple[Cell, str], list[tuple[float, float]]] = {}
    for cell, ccts_s in runs.items():
        none_s, exact_s = (
            runs.get(dataclasses.replace(cell, quality=quality))
            for quality in (_plain(cell.quality), 'exact'))
        if none_s is None or exact_s is None:
            continue
        for label, some in cell.case().parts(cell.quality,
                                             cell.seed).items():
            mean_s, over_none_s, over_exact_s = (
                statistics.fmean(values[i] for i in some)
                for values in (ccts_s, none_s, exact_s))
            ratios.setdefault(
                (dataclasses.replace(cell, seed=0), label), []).append(
                    (mean_s / over_none_s, mean_s / over_exact_s))
    return [_row(cell, label, found)
            for (cell, label), found in ratios.items()]


def _plain(quality: str) -> str:
    """Return the quality whose CCTs it is compared with."""
    return (hint_cases.NONE_UDP if quality in hint_cases.WITH_UDP
            else hint_cases.NONE)


def _row(cell: Cell, label: str, ratios: Sequence[tuple[float, float]]
         ) -> Row:
    over_none, over_exact = (list(some) for some in zip(*ratios))
    n_seeds = len(ratios)
    ci95 = (outcome.half_interval(over_none) if n_seeds > 1
            else float('nan'))
    return Row(label, cell.load, cell.hosts, cell.rate_bps, cell.on_packets,
               cell.ceil,
               cell.receiver, ','.join(map('='.join, cell.options)),
               statistics.fmean(over_none), ci95, max(over_none),
               float(np.quantile(over_none, 0.95)),
               statistics.fmean(over_exact), n_seeds)


def show(found: Sequence[Row]) -> table.Table:
    made = table.Table(
        'quality', 'load', 'hosts', 'rate', 'packets', 'ceil', 'receiver',
        'mean', '± 95 %', 'worst', 'p95', 'over exact', 'seeds', box=None,
        title='Mean CCT over that of plain TCP at the same hosts')
    order = list(hint_cases.QUALITIES)
    for row in sorted(found, key=lambda row: (
            row.on_packets, row.hosts, row.ceil, row.receiver, row.load,
            order.index(row.quality.split(':')[0]), row.quality)):
        made.add_row(
            row.quality, f'{row.load:g}', str(row.hosts),
            units.format_rate(row.rate_bps),
            'yes' if row.on_packets else '', row.ceil, row.receiver,
            *(f'{ratio:.3f}' for ratio in (
                row.mean_over_none, row.ci95, row.worst_over_none,
                row.p95_over_none, row.mean_over_exact)), str(row.seeds))
    return made


def by_length(runs: Runs) -> table.Table:
    """What coflows of a length add to the mean CCT of plain TCP, in per cent.

    A coflow's length is its CCT under plain TCP.
    """
    added_s: dict[Cell, dict[int, float]] = {}
    plain_s: dict[Cell, float] = collections.defaultdict(float)
    numbers: dict[Cell, dict[int, int]] = {}
    for cell, ccts_s in runs.items():
        none_s = runs.get(dataclasses.replace(
            cell, quality=_plain(cell.quality)))
        if none_s is None:
            continue
        row = dataclasses.replace(cell, seed=0)
        added = added_s.setdefault(row, dict.fromkeys(_LENGTHS, 0.0))
        number = numbers.setdefault(row, dict.fromkeys(_LENGTHS, 0))
        plain_s[row] += sum(none_s)
        for cct_s, plain in zip(ccts_s, none_s):
            length = bisect.bisect_right(BOUNDS_S, plain)
            added[length] += cct_s - plain
            number[length] += 1
    made = table.Table(
        'quality', 'load', 'hosts', 'packets', *_LENGTHS.values(), box=None,
        title="Per cent of plain TCP's mean CCT, by CCT under plain TCP "
              '(number of coflows)')
    for row in sorted(added_s, key=lambda row: (
            row.on_packets, row.hosts, row.load,
            list(hint_cases.QUALITIES).index(row.quality))):
        made.add_row(row.quality, f'{row.load:g}', str(row.hosts),
                     'yes' if row.on_packets else '', *(
                         f'{100 * added_s[row][length] / plain_s[row]:+.1f} '
                         f'({numbers[row][length]})' for length in _LENGTHS))
    return made


def _part(text: str) -> tuple[int, int]:
    part, n_parts = map(int, text.split('/'))
    if not 1 <= part <= n_parts:
        raise ValueError
    return part, n_parts


def _seeds(text: str) -> range:
    """Parse ``N``, the first N, or ``FIRST-LAST``."""
    first, dash, last = text.rpartition('-')
    found = range(int(first), int(last) + 1) if dash else range(int(last))
    if not found:
        raise ValueError
    return found


def _option(text: str) -> tuple[str, str]:
    name, value = text.split('=')
    try:
        hint_cases.options(Cell('exact', 0.0, 0, 0, 'rate',
                                options=((name, value),)))
    except (cfg.Error, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name, value


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or '').split('\n')[0])
    parser.add_argument('--loads', default=LOADS, metavar='0.5,0.7,0.9',
                        type=lambda text: tuple(map(float, text.split(','))))
    parser.add_argument('--qualities', metavar=','.join(hint_cases.QUALITIES),
                        type=lambda text: tuple(text.split(',')))
    parser.add_argument('--hosts', default=tuple(hint_cases.SHAPES),
                        metavar='6,18',
                        type=lambda text: tuple(map(int, text.split(','))))
    parser.add_argument('--rate', type=units.parse_rate_bps, metavar='RATE',
                        default=hint_cases.RATE_BPS, help='of the links')
    parser.add_argument('--report-s', type=float, metavar='SECONDS',
                        default=Cell('', 0.0, 0, 0, '').report_s, help=(
                            'between reports of a host, in the fluid'))
    parser.add_argument('--look-s', type=float, metavar='SECONDS',
                        default=Cell('', 0.0, 0, 0, '').look_s, help=(
                            'between looks at its classes (default: none)'))
    parser.add_argument('--seeds', type=_seeds, metavar='N or FIRST-LAST')
    parser.add_argument('--part', type=_part, default=(1, 1), metavar='K/N')
    parser.add_argument('--ceil', choices=[
        name for name, _ in scheduler.CEILS], help='default: the product\'s')
    parser.add_argument('--receiver', choices=('tcp', 'order'),
                        default='tcp')
    parser.add_argument('--option', action='append', default=[],
                        dest='options', metavar='NAME=VALUE', type=_option,
                        help='of the product\'s [scheduler]; may be repeated')
    parser.add_argument('--short', action='store_true')
    parser.add_argument('--packets', action='store_true')
    parser.add_argument('--logs', type=pathlib.Path, metavar='DIRECTORY',
                        default=pathlib.Path(tempfile.gettempdir())
                        / 'virtco-hints')
    parser.add_argument('--json', metavar='FILE', nargs='?', const='-',
                        help='default: standard output')
    parser.add_argument('--by-length', action='store_true', help='also show '
                        'what short, medium and long coflows gain or lose')
    parser.add_argument('--resume', type=pathlib.Path, metavar='FILE')
    parser.add_argument('--processes', type=int, default=os.cpu_count())
    args = parser.parse_args()
    args.options = tuple(args.options)
    if args.ceil is None:
        conf = cfg.ConfigOpts()
        conf.register_opts(scheduler.OPTS, scheduler.GROUP)
        args.ceil = conf.scheduler.ceil
    for name in args.qualities or ():
        if name not in hint_cases.QUALITIES:
            parser.error(f'--qualities: {name!r} is none of '
                         + ', '.join(hint_cases.QUALITIES))
    for n_hosts in args.hosts:
        if n_hosts not in hint_cases.SHAPES:
            parser.error(f'--hosts: {n_hosts} is none of '
                         + ', '.join(map(str, hint_cases.SHAPES)))
    return args


def main() -> None:
    args = _parse()
    out = console.Console(file=sys.stderr if args.json == '-' else None,
                          width=_WIDTH)
    runs = read(args.resume) if args.resume else {}
    todo = [cell for cell in cells(args) if cell not in runs]
    shown = display.Display(console.Console(stderr=True))
    made = (hint_packets.run(todo, args.logs, shown) if args.packets
            else run_all(todo, args.processes))
    for number, (cell, ccts_s, waited) in enumerate(made):
        runs[cell] = ccts_s
        if args.resume:
            with args.resume.open('a') as file:
                file.write(json.dumps({
                    'cell': dataclasses.asdict(cell), 'ccts_s': ccts_s,
                    'waited': waited}) + '\n')
        shown.say(f'{number + 1} of {len(todo)}: {cell.quality}, load '
                  f'{cell.load:g}, {cell.hosts} hosts, seed {cell.seed}: '
                  f'{statistics.fmean(ccts_s):.2f} s')
    found = rows(runs)
    out.print(show(found))
    if args.by_length:
        out.print(by_length(runs))
    if args.json:
        text = json.dumps([dataclasses.asdict(row) for row in found], indent=1)
        if args.json == '-':
            print(text)
        else:
            pathlib.Path(args.json).write_text(text + '\n')


if __name__ == '__main__':
    main()
