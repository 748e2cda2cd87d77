# SPDX-License-Identifier: Apache-2.0

"""Launches of mixed flavors by parallel schedulers: is a host over-booked?

A controller process answers eight schedulers of an emulated Nova, whose
numbers come late and whose builds fail. Triggers in the database write each
booking down in the order of the commits::

    python -m benchmarks.booking --database mariadb --launches 2000 --json
"""

import argparse
import functools
import json
import pathlib
import sys
import tempfile

from tests import databases as real_databases
from tests.faults import overbooking

#: Of the VMs that were planned: Placement refused the first host.
REFUSED = 'refused by placement'


def figures(outcome, n_launches):
    """What is judged, as JSON."""
    counts = outcome.counts
    return {
        'launches': n_launches, 'over_booked': len(outcome.overbooked),
        'first_refused': counts[REFUSED], 'planned': counts['planned'],
        'neutral': counts['neutral'], 'no_valid_host': counts[
            'no valid host'], 'unhinted': counts['without a hint'],
        'filled_by_nova': len(outcome.novas), 'wrong': len(outcome.wrong),
        'slowest_s': round(outcome.slowest_s, 3),
        'took_s': round(outcome.took_s, 1)}


def show(outcome, n_launches):
    for name, count in sorted(outcome.counts.items()):
        print(f'{count:7d} {name}')
    for name, value in figures(outcome, n_launches).items():
        print(f'{name:>16} {value}')
    for found in outcome.overbooked[:10]:
        print(f'        {found}')


def share(text, most=1.0):
    value = float(text)
    if not 0.0 <= value <= most:
        raise argparse.ArgumentTypeError(f'expected 0 to {most}, got {text}')
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--database', choices=real_databases.KINDS,
                        default='sqlite')
    parser.add_argument('--launches', type=int, default=2000)
    parser.add_argument('--schedulers', type=int, default=8)
    parser.add_argument('--unhinted', type=share, default=0.0, metavar='SHARE',
                        help='of the launches, those without a hint')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--fullness', default=0.8, metavar='SHARE',
                        type=functools.partial(share, most=1.5),
                        help='of the cloud in use, above 1 more than fits')
    parser.add_argument('--json', action='store_true')
    parsed = parser.parse_args()
    databases = real_databases.Databases()
    with tempfile.TemporaryDirectory() as home:
        try:
            outcome = overbooking.run(
                parsed.database, databases, pathlib.Path(home),
                parsed.launches, parsed.schedulers, parsed.seed,
                unhinted=parsed.unhinted, fullness=parsed.fullness)
        finally:
            databases.stop()
    if parsed.json:
        print(json.dumps(figures(outcome, parsed.launches)))
    else:
        show(outcome, parsed.launches)
    return 1 if outcome.overbooked or outcome.wrong else 0


if __name__ == '__main__':
    sys.exit(main())
