# SPDX-License-Identifier: Apache-2.0

"""``virtco-report``: the evaluation as one document."""

import argparse
import json
import pathlib
import sys
import tempfile

from virtco import exception
from virtco_lab import printed
from virtco_lab.cmd import arguments
from virtco_lab.cmd import tables
from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import record


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of ``virtco-report``."""
    parser = argparse.ArgumentParser(
        prog='virtco-report', description='Compare the evaluation\'s tables '
        'with what is recorded, run the errata\'s counterexamples, and print '
        'all of it.')
    parser.add_argument('--write', action='store_true', default=None, help=(
        'write the tables anew instead of comparing them'))
    parser.add_argument('--verdicts', action='store_true', help=(
        'only judge the papers\' statements by the records: met, missed or '
        'not shown'))
    parser.add_argument('--json', action='store_true', default=None,
                        help='print verdicts as JSON')
    parser.add_argument('--pdf', type=arguments.file, metavar='FILE',
                        help='also write the page as a PDF')
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-report``; return its exit code."""
    options = make_parser().parse_args(argv)
    failures = []
    try:
        arguments.only(options, not options.verdicts, 'with --verdicts',
                       write=False, pdf=None)
        arguments.only(options, options.verdicts, 'without --verdicts',
                       json=False)
        if options.verdicts:
            return _show_verdicts(options.json)
        if options.write:
            document.write(record.DIRECTORY, index.FIGURES)
        failures += [f'{path}: not the table of its record; --write makes it'
                     for path in document.outdated(record.DIRECTORY,
                                                   index.FIGURES)]
        if options.pdf is not None:
            with tempfile.TemporaryDirectory() as scratch:
                n_pages = printed.write(options.pdf, record.DIRECTORY,
                                        pathlib.Path(scratch))
            print(f'{options.pdf}: {n_pages} pages')
    except exception.VirtcoException as error:
        failures.append(str(error))
    for failure in failures:
        print(f'virtco-report: {failure}', file=sys.stderr)
    return 1 if failures else 0


def _show_verdicts(as_json: bool) -> int:
    found = document.verdicts(record.DIRECTORY)
    if as_json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    columns = 'verdict', 'statement', 'paper', 'here', 'spread'
    tables.print_table('Statements of the papers', columns, (
        [one[column] for column in columns] for one in found))
    return 0


if __name__ == '__main__':
    sys.exit(main())
