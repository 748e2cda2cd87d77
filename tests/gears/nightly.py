# SPDX-License-Identifier: Apache-2.0

"""``tools/nightly``: run long checks one by one, as many as time allows.

The newest verdict of each check is kept in nightly.json beside the page of the
documentation that shows it. Commit both: whoever calls next goes on with the
check whose verdict is oldest. A check that a call could not end has none.
"""

import argparse
from collections.abc import Sequence
import dataclasses
import datetime
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

from tests.gears import changes

#: Logs of the checks, and the mutants that were judged.
LOGS = changes.ROOT / '.cache' / 'nightly'
PAGE = changes.ROOT / 'doc' / 'source' / 'contributor' / 'nightly.rst'
#: Last lines of a check's output that its verdict keeps, and their length.
_MOST_WORDS = 160


@dataclasses.dataclass(frozen=True)
class Check:
    """One long check.

    :ivar expected_min: minutes on two idle cores.
    """

    name: str
    argv: tuple[str, ...]
    expected_min: float
    environment: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How a check ended the last time.

    :ivar at: UTC, ISO 8601.
    :ivar commit: the commit that was checked.
    :ivar words: the last line that the check printed.
    """

    name: str
    is_good: bool
    at: str
    commit: str
    took_min: float
    words: str


_FULL = (('VIRTCO_FAULTS', 'full'), ('VIRTCO_TEST_GEAR', 'full'))
#: 100,000 requests in parts, each with requests of its own.
_FUZZ_PARTS, _FUZZ_REQUESTS = 5, 20_000
_NOVAS = (31, 32, 33, 34)
_SIMULATED = ('virtco-sim', 'reproduce', 'all', '--check')


def _pytest(*args: str) -> tuple[str, ...]:
    return ('python', '-m', 'pytest', '-q', *args)


def checks() -> list[Check]:
    """List all checks."""
    return [
        Check('tests in full, part 1', ('tools/run_tests', 'full', '1'), 45),
        Check('tests in full, part 2', ('tools/run_tests', 'full', '2'), 50),
        *(Check(f'Python 3.11, Nova {nova}', ('tox', '-q', '-e',
                                              f'nova{nova}'), 8)
          for nova in _NOVAS),
        Check('Python 3.13, unit tests', (
            'tools/debian13', *_pytest('tests/unit')), 25),
        *(Check(f'Python 3.13, Nova {nova}',
                ('tools/debian13', 'tox', '-q', '-e', f'nova{nova}'), 15)
          for nova in _NOVAS),
        Check('Python 3.13, wheels', (
            'tools/debian13', *_pytest('tests/wheels')), 20),
        # Its OVN shapes by other means than that of Debian 12, and its
        # nftables lists a table otherwise.
        Check('Debian 13, edge module', (
            'tools/debian13', 'env', 'VIRTCO_TEST_GEAR=full', *_pytest(
                *(f'tests/netns/edge/test_{name}.py'
                  for name in ('agent', 'counting', 'ovn', 'ovs')))), 10),
        *(Check(f'fuzzed requests, part {part} of {_FUZZ_PARTS}',
                _pytest('-s', 'tests/faults/test_fuzzing.py'), 20,
                (*_FULL, ('VIRTCO_FUZZ_REQUESTS', str(_FUZZ_REQUESTS))))
          for part in range(1, _FUZZ_PARTS + 1)),
        *(Check(f'faults in full, {name}', _pytest(
            '-s', f'tests/faults/test_{name}.py'), minutes, _FULL)
          for name, minutes in (
            ('elections', 10), ('cuts', 40), ('histories', 20), ('kills', 10),
            ('overbooking', 15), ('late_commits', 5), ('brokers', 5),
            ('disk', 3), ('clock', 3), ('upgrade', 3), ('relays', 15),
            ('hung_database', 3))),
        Check('500 mutants', (
            'tools/mutate', '--sample', '500', '--least', '95',
            '--limit-s', '100', '--record',
            str(LOGS / 'mutants.jsonl')), 55),
        Check('figures of the simulator', _SIMULATED, 55),
        Check('evaluation in short form', ('tools/artifact', '--check'), 40),
    ]


def load() -> dict[str, Verdict]:
    """Read the last verdict of each check by name."""
    path = PAGE.with_suffix('.json')
    rows = json.loads(path.read_text(encoding='utf-8')) if (
        path.exists()) else []
    return {row['name']: Verdict(**row) for row in rows}


def save(verdict: Verdict) -> None:
    """Write a verdict, and the page with all of them."""
    known = load() | {verdict.name: verdict}
    PAGE.with_suffix('.json').write_text(json.dumps(
        [dataclasses.asdict(known[name]) for name in sorted(known)],
        indent=1) + '\n', encoding='utf-8')
    PAGE.write_text(page(known), encoding='utf-8')


def checked_commit() -> str:
    """Name the last commit that changed more than verdicts."""
    rest = ('--', '.', f':!{PAGE.with_suffix("").relative_to(changes.ROOT)}.*')
    commit, edits = (subprocess.run(
        ['git', *command, *rest], cwd=changes.ROOT, capture_output=True,
        text=True).stdout.strip() for command in (
            ('log', '-1', '--format=%h'), ('status', '--porcelain')))
    return commit + '-dirty' * bool(edits)


def choose(known: dict[str, Verdict], wanted: Sequence[str], commit: str
           ) -> list[Check]:
    """List the checks to run: the named ones, else those without a verdict
    on this commit, the oldest verdict first.
    """
    if wanted:
        return [one for one in checks() if one.name in wanted]
    return sorted((one for one in checks() if one.name not in known
                   or known[one.name].commit != commit),
                  key=lambda one: (known[one.name].at if one.name in known
                                   else ''))


def run(check: Check, commit: str, limit_s: float) -> Verdict | None:
    """Run a check; None where it did not end within the limit."""
    log = LOGS / (''.join(c if c.isalnum() else '-' for c in check.name)
                  + '.log')
    log.parent.mkdir(parents=True, exist_ok=True)
    begin_s = time.monotonic()
    with log.open('w', encoding='utf-8') as out:
        process = subprocess.Popen(
            check.argv, cwd=changes.ROOT, stdout=out, stderr=out,
            start_new_session=True, env=os.environ | dict(check.environment))
        try:
            code = process.wait(limit_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            if isinstance(error, KeyboardInterrupt):
                raise
            return None
    lines = log.read_text(encoding='utf-8', errors='replace').split('\n')
    words = [line.strip() for line in lines if line.strip()] or ['']
    return Verdict(
        check.name, code == 0, datetime.datetime.now(
            datetime.UTC).isoformat(timespec='minutes'), commit,
        round((time.monotonic() - begin_s) / 60, 1),
        words[-1].strip('= ')[:_MOST_WORDS])


def page(known: dict[str, Verdict]) -> str:
    """Write the page of the last verdicts as reStructuredText."""
    lines = ['======================', 'Verdicts of the nights',
             '======================', '',
             '``tools/nightly`` runs these checks one by one for as long as '
             'it is told,', 'goes on where it stopped, and writes this page.',
             '',
             '.. list-table::', '   :header-rows: 1', '   :widths: 25 8 15 8 '
             '8 36', '', '   * - Check', '     - Verdict', '     - When (UTC)',
             '     - Commit', '     - Minutes', '     - Last line']
    for check in checks():
        one = known.get(check.name)
        if one is None:
            cells = [check.name, 'never run', '', '', '', '']
        else:
            cells = [check.name, 'good' if one.is_good else '**bad**',
                     one.at.removesuffix('+00:00'), one.commit,
                     f'{one.took_min:g}', f'``{one.words}``'
                     if one.words else '']
        lines += [textwrap.fill(
            f'   {"*" if not number else " "} - {cell}', 79,
            subsequent_indent=7 * ' ', break_long_words=False,
            break_on_hyphens=False) for number, cell in enumerate(cells)]
    return '\n'.join(lines) + '\n'


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='tools/nightly', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('check', nargs='*', help=(
        'names of checks, see --list; default: those that have no verdict '
        'on this commit'))
    parser.add_argument('--minutes', type=float, default=60, help=(
        'begin no check that would not end within this time, and stop the '
        'one that does not (default 60)'))
    parser.add_argument('--list', action='store_true', help=(
        'print checks and their last verdicts'))
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    known = load()
    if unknown := set(args.check) - {one.name for one in checks()}:
        parser.error(f'{sorted(unknown)[0]}: expected a check of --list')
    if args.list:
        for check in checks():
            one = known.get(check.name)
            print(f'{check.name:<36}', 'never run' if one is None else
                  f'{"good" if one.is_good else "BAD ":<5}{one.at}  '
                  f'{one.commit}  {one.words}')
        return 0
    commit = checked_commit()
    end_s = time.monotonic() + 60 * args.minutes
    are_good = True
    for check in choose(known, args.check, commit):
        left_s = end_s - time.monotonic()
        if left_s < 60 * check.expected_min and not args.check:
            continue
        print(f'{check.name} …', end=' ', flush=True)
        verdict = run(check, commit, left_s)
        if verdict is None:
            print('not ended in time', flush=True)
            continue
        save(verdict)
        are_good &= verdict.is_good
        print('good' if verdict.is_good else 'BAD', verdict.words,
              flush=True)
    return 0 if are_good else 1


if __name__ == '__main__':
    sys.exit(main())
