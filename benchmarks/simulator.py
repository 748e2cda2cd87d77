# SPDX-License-Identifier: Apache-2.0

"""How long the simulator takes for a trace, and what it finds.

``python -m benchmarks.simulator --trace FILE --policy P --json`` prints the
mean, median and 95th percentile of the CCT, the time for reading and running
the trace on one core, and the peak of memory.
"""

import argparse
import json
import pathlib
import resource
import sys
import time

from virtco import exception
from virtco import units
from virtco_lab.sim import replay
from virtco_lab.sim import simulation
from virtco_lab.sim import traces


def measure(path: pathlib.Path, policy: str, rate_bps: float
            ) -> dict[str, float]:
    start_s = time.perf_counter()
    trace = traces.read(path)
    found = replay.replay(trace, rate_bps, replay.config_of(policy))
    wall_s = time.perf_counter() - start_s
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**replay.summary(found.cct_s), 'wall_s': wall_s,
            'peak_rss_bytes': peak_kib * 1024}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.simulator',
        description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--trace', type=pathlib.Path, required=True,
                        help='file in the coflow-benchmark format')
    parser.add_argument('--policy', default='mrtf',
                        choices=simulation.POLICIES)
    parser.add_argument('--rate', type=units.parse_rate_bps, default='1Gbit',
                        help='of each port both ways (default 1Gbit)')
    parser.add_argument('--json', action='store_true',
                        help='one JSON object instead of lines')
    args = parser.parse_args(argv)
    try:
        answer = measure(args.trace, args.policy, args.rate)
    except exception.Invalid as error:
        print(f'benchmarks.simulator: {error}', file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(answer))
    else:
        for key, value in answer.items():
            print(f'{key:16} {value:,.3f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
