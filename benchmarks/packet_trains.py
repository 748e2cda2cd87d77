# SPDX-License-Identifier: Apache-2.0

"""How well packet trains find the rate of a shaped link, and what they cost.

As root: ``python -m benchmarks.packet_trains [--trains N]``. Two network
namespaces, the shaper between them; each row sends N trains.
"""

import argparse
import statistics
import time

from edge_module.probe import train_protocol as protocol
from tests.netns.probe import harness

CASES: tuple[tuple[str, str | None, float | None, str, int], ...] = (
    ('HTB 20M, burst 1600 B', 'htb', 20, '1600', 200),
    ('HTB 50M, burst 1600 B', 'htb', 50, '1600', 200),
    ('HTB 100M, burst 1600 B', 'htb', 100, '1600', 200),
    ('TBF 100M, 32 KB', 'tbf', 100, '32kb', 200),
    ('HTB 100M, 256 KB', 'htb', 100, '256k', 200),
    ('HTB 100M, 1 MB', 'htb', 100, '1m', 200),
    ('HTB 500M, burst 1600 B', 'htb', 500, '1600', 200),
    ('HTB 1G, burst 64 KB', 'htb', 1000, '64k', 200),
    ('HTB 1G, burst 64 KB', 'htb', 1000, '64k', 2000),
    ('not shaped', None, None, '', 200),
)
ROW = '{:<24} {:>6} {:>10} {:>8} {:>8} {:>7} {:>8} {:>8}'


def measure(net: harness.Net, port: int, packets: int,
            n_trains: int) -> tuple[list[float], list[float], int, int]:
    """Rates in Mbit/s, seconds per train, lower bounds, failures."""
    rates, seconds = [], []
    bounds = failures = 0
    for _ in range(n_trains):
        begin_s = time.monotonic()
        try:
            found = net.measure('a', 'b', port, packets=packets)
        except protocol.ProbeError:
            failures += 1
            continue
        seconds.append(time.monotonic() - begin_s)
        rates.append(found.rate_bps / 1e6)
        bounds += found.lower_bound
    return rates, seconds, bounds, failures


def run_case(name: str, kind: str | None, mbit: float | None, burst: str,
             packets: int, n_trains: int) -> None:
    net = harness.Net()
    try:
        net.build()
        if kind == 'htb':
            net.shape_htb('core', 'to-b', f'{mbit}mbit', burst=burst,
                          queue_bytes=8 * 2 ** 20)
        elif kind == 'tbf':
            net.shape_tbf('core', 'to-b', f'{mbit}mbit', burst=burst)
        with net.answering('b') as port:
            rates, seconds, bounds, failures = measure(net, port, packets,
                                                       n_trains)
    finally:
        net.close()
    if not rates:
        print(ROW.format(name, packets, '-', '-', '-', bounds, failures, '-'))
        return
    median = statistics.median(rates)
    errors = [abs(rate / mbit - 1) * 100 for rate in rates] if mbit else []
    print(ROW.format(
        name, packets, f'{median:.1f}',
        f'{abs(median / mbit - 1) * 100:.1f} %' if mbit else '-',
        f'{max(errors):.1f} %' if errors else '-', bounds, failures,
        f'{statistics.median(seconds):.2f}'))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--trains', type=int, default=10)
    n_trains = parser.parse_args().trains
    print(ROW.format('link', 'B', 'Mbit/s', 'median', 'worst', 'bounds',
                     'failed', 's/train'))
    for case in CASES:
        run_case(*case, n_trains)


if __name__ == '__main__':
    main()
