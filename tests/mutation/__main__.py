# SPDX-License-Identifier: Apache-2.0

"""``tools/mutate``: do the unit tests of an area notice a changed operator?

Mutates lines that changed since a commit, or a random sample of the product,
and prints those mutants that no unit test of their area notices. A mutant
that no test can notice, since it changes no behaviour, stands with its reason
in the file of its area below equivalent/, sorted, one to a line:
module | function | before → after | reason
"""

import argparse
import collections
from collections.abc import Iterator
import json
import pathlib
import random
import sys

from tests.gears import changes
from tests.mutation import areas
from tests.mutation import collected
from tests.mutation import kernels
from tests.mutation import mutants
from tests.mutation import run

#: So many survivors may always be chance.
FEW = 3
#: So many mutants of an area are worth one run of all its tests.
MANY = 10
EQUIVALENT = pathlib.Path(__file__).with_name('equivalent')


def equivalents() -> set[str]:
    """Read the keys of the mutants that change no behaviour."""
    return {line.rpartition(' | ')[0]
            for path in EQUIVALENT.glob('*.txt')
            for line in path.read_text(encoding='utf-8').splitlines()}


def choose(args: argparse.Namespace) -> list[mutants.Mutant]:
    """Draw the mutants to judge."""
    lines: dict[str, set[int]] | None = None
    modules = areas.modules()
    if args.sample is None and not args.module and not args.area:
        lines = changes.lines(changes.diff(args.base or changes.base(),
                                           *areas.PRODUCT))
        modules = [path for path in modules if path in lines]
    if args.module:
        modules = [path for path in modules
                   if any(path.startswith(name) for name in args.module)]
    if args.area:
        modules = [path for path in modules if areas.area(path) in args.area]
    known = equivalents()
    rng = random.Random(args.seed)
    by_line: dict[tuple[str, int], list[mutants.Mutant]] = (
        collections.defaultdict(list))
    for path in modules:
        for one in mutants.find(path, (areas.ROOT / path).read_text(),
                                lines and lines[path]):
            if one.key not in known:
                by_line[path, one.line].append(one)
    chosen = sorted(by_line)
    if not args.all:
        # Many mutants of one line tell little more than one.
        rng.shuffle(chosen)
        return [rng.choice(by_line[key])
                for key in chosen[:args.sample or args.lines]]
    return [one for key in chosen for one in by_line[key]]


def _judge(left: list[mutants.Mutant], args: argparse.Namespace,
           broken: set[str]
           ) -> Iterator[tuple[mutants.Mutant, run.Verdict | None, float]]:
    """Judge mutants; yield verdicts, if there is one, and CPU seconds.

    :param broken: areas whose tests fail without a mutant are added.
    """
    budget_s = args.budget_s
    of_area = collections.defaultdict(list)
    slow = []
    for one in left:
        if kernels.is_kernel(one.path):
            slow.append(one)
        else:
            of_area[areas.area(one.path)].append(one)
    for some in of_area.values():
        if len(some) < MANY:
            slow += some
            continue
        for one, verdict, took_s in collected.judge(
                some, args.limit_s, budget_s, args.jobs):
            budget_s -= took_s
            if verdict is None:
                slow.append(one)
            elif verdict is run.Verdict.BROKEN:
                broken.add(areas.area(one.path))
            yield one, verdict, took_s
    of_area.clear()
    for one in slow:
        of_area[areas.area(one.path)].append(one)
    # The run without a mutant is worth most where many follow it.
    for some in sorted(of_area.values(), key=len, reverse=True):
        for one, verdict, took_s in _judge_area(some, args, budget_s, broken):
            budget_s -= took_s
            yield one, verdict, took_s


def _judge_area(some: list[mutants.Mutant], args: argparse.Namespace,
                budget_s: float, broken: set[str]
                ) -> Iterator[tuple[mutants.Mutant, run.Verdict | None,
                                    float]]:
    """Judge mutants of an area, each in a process of its own.

    The tests run once without a mutant before: where they fail every mutant
    would count as noticed.
    """
    name, took_s = areas.area(some[0].path), 0.0
    if name in broken:
        return
    for first in run.judge([run.Task(some[0].path, None)], args.limit_s,
                           budget_s, args.jobs):
        took_s = first.cpu_s
        if first.verdict is run.Verdict.BROKEN:
            broken.add(name)
            break
        for outcome in run.judge((run.Task(one.path, one) for one in some),
                                 args.limit_s, budget_s - took_s, args.jobs):
            assert outcome.task.mutant is not None
            yield outcome.task.mutant, outcome.verdict, outcome.cpu_s + took_s
            took_s = 0.0
    yield some[0], None, took_s


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='tools/mutate', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--base', help=(
        'commit since which lines changed (default: the newest that the '
        'upstream branch has, or the last but one)'))
    parser.add_argument('--lines', type=int, default=40, help=(
        'changed lines to mutate, drawn from all (default 40)'))
    parser.add_argument('--sample', type=int, metavar='N', help=(
        'mutate N random lines of the product instead of changed ones'))
    parser.add_argument('--area', action='append', metavar='NAME', help=(
        'a package, such as virtco/state or edge_module; may be repeated'))
    parser.add_argument('--module', action='append', metavar='PATH', help=(
        'a module or the beginning of its path; may be repeated'))
    parser.add_argument('--all', action='store_true', help=(
        'every mutant of the chosen lines instead of a random one of each'))
    parser.add_argument('--seed', default='0', help='of the random choice')
    parser.add_argument('--limit-s', type=float, default=20, help=(
        'CPU seconds for one mutant (default 20)'))
    parser.add_argument('--budget-s', type=float, default=float('inf'), help=(
        'CPU seconds for all (default: no limit)'))
    parser.add_argument('--least', type=float, default=0, help=(
        'fail where less than this percentage is noticed (default 0)'))
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--record', type=pathlib.Path, metavar='FILE', help=(
        'append verdicts as JSON lines; a mutant that stands there already '
        'is not judged again'))
    return parser


def main(argv: list[str] | None = None) -> int:
    args = make_parser().parse_args(argv)
    chosen = choose(args)
    told: dict[tuple[str, int], str] = {}
    if args.record and args.record.exists():
        for line in args.record.read_text(encoding='utf-8').splitlines():
            one = json.loads(line)
            told[one['key'], one['line']] = one['verdict']
    run.load_libraries()
    left = [one for one in chosen if (one.key, one.line) not in told]
    cpu_s = 0.0
    broken: set[str] = set()
    for one, verdict, took_s in _judge(left, args, broken):
        cpu_s += took_s
        if verdict is None:
            continue
        told[one.key, one.line] = verdict.value
        if args.record:
            with args.record.open('a', encoding='utf-8') as out:
                out.write(json.dumps({
                    'key': one.key, 'line': one.line,
                    'area': areas.area(one.path), 'verdict': verdict.value,
                    'cpu_s': round(took_s, 2)}) + '\n')
        if not verdict.is_dead:
            print(f'{one.path}:{one.line}: survived in {one.where}: '
                  f'{one.before} → {one.after}', flush=True)
    judged = [one for one in chosen if (one.key, one.line) in told]
    dead = {value.value for value in run.Verdict if value.is_dead}
    totals: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for one in judged:
        totals[areas.area(one.path)][0] += told[one.key, one.line] in dead
        totals[areas.area(one.path)][1] += 1
    for name, (n_dead, n) in sorted(totals.items()):
        print(f'{name}: {n_dead} of {n} noticed')
    n_dead = sum(told[one.key, one.line] in dead for one in judged)
    percent = 100 * n_dead / len(judged) if judged else 100.0
    for name in sorted(broken):
        print(f'{name}: not judged, its tests fail without a mutant')
    print(f'{n_dead} of {len(judged)} mutants noticed ({percent:.0f} %), '
          f'{len(chosen) - len(judged)} not tried, {cpu_s:.0f} CPU seconds')
    # Of few mutants a share says little.
    return int(percent < args.least and len(judged) - n_dead > FEW
               or bool(broken))


if __name__ == '__main__':
    sys.exit(main())
