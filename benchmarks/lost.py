# SPDX-License-Identifier: Apache-2.0

"""How long enforcement is missing after somebody took something away.

``python -m benchmarks.lost [--times 50]`` (root) takes each of these away from
a running edge module so often, while a coflow sends: tables, classes, qdiscs,
devices, names, MTU and speed. The module's own comparisons are switched off.
It prints the median, the 49th of 50 and the longest time until classes and
classification fit the devices again, in milliseconds; a tenth of a second, and
what the command itself takes of that, is in each.
"""

import argparse
import json
import pathlib
import tempfile

from tests.netns.edge import bed as beds
from tests.netns.edge import datagrams
from tests.netns.edge import losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--times', type=int, default=50)
    parser.add_argument('--how', choices=losses.LOSSES, default='bpf')
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        site = losses.Site(pathlib.Path(directory), arguments.how)
        try:
            beds.wait_for(site.is_enforced, 60, 'the begin')
            for name in losses.LOSSES[arguments.how]:
                with datagrams.Stream(site.src, site.dst, 2e6):
                    taken = sorted(site.lose(name)
                                   for _ in range(arguments.times))
                rows.append({
                    'lost': name.replace('_', ' '),
                    'median_ms': round(taken[len(taken) // 2] * 1e3),
                    'p98_ms': round(taken[(len(taken) * 98 - 1) // 100] * 1e3),
                    'longest_ms': round(taken[-1] * 1e3)})
        finally:
            site.close()
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f'{"":24} {"median":>8} {"49 of 50":>9} {"longest":>8}')
    for row in rows:
        print(f'{row["lost"]:24} {row["median_ms"]:>8} {row["p98_ms"]:>9} '
              f'{row["longest_ms"]:>8}')


if __name__ == '__main__':
    main()
