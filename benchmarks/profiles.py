# SPDX-License-Identifier: Apache-2.0

"""How well the last hour and the time of day tell the next hour's bytes.

Choreo section 2.1 claims for a cloud's traffic that "data from the previous
hour and the time-of-day are good predictors of the number of bytes transferred
in the next hour". Its traces are not public. So hours of VM pairs are made by
four rules, from a daily rhythm to hours without any; each hour is predicted
from those before it alone.

Example: ``python -m benchmarks.profiles --pairs 200 --days 21``
"""

import argparse
import statistics
import time

import numpy as np

from virtco.profiles import pairs
from virtco.profiles import prediction

HOURS = prediction.HOURS_PER_DAY
#: Hours of which no prediction is judged: there is no earlier day.
WARM_UP = 2 * HOURS


def daily(rng: np.random.Generator, n_hours: int) -> np.ndarray:
    """A day's rhythm, three times as much at its peak, and noise of 20 %."""
    hours = np.arange(n_hours)
    phase = rng.uniform(0, HOURS)
    rhythm = 1 + 0.5 * np.cos(2 * np.pi * (hours - phase) / HOURS)
    return rhythm * rng.lognormal(0.0, 0.2, n_hours)


def drifting(rng: np.random.Generator, n_hours: int) -> np.ndarray:
    """A load that wanders by 15 % per hour, with no hour of its own."""
    return np.exp(np.cumsum(rng.normal(0.0, 0.15, n_hours)))


def batch(rng: np.random.Generator, n_hours: int) -> np.ndarray:
    """A job at a fixed hour of the day, silence else."""
    found = np.zeros(n_hours)
    at = int(rng.integers(HOURS))
    found[at::HOURS] = rng.lognormal(0.0, 0.2, len(found[at::HOURS]))
    return found


def arbitrary(rng: np.random.Generator, n_hours: int) -> np.ndarray:
    """Each hour for itself, over two orders of magnitude."""
    return rng.lognormal(0.0, 1.2, n_hours)


RULES = {'daily rhythm': daily, 'drift': drifting, 'nightly batch': batch,
         'no rule': arbitrary}


def errors(history: np.ndarray) -> dict[str, float]:
    """Of each predictor, one hour ahead: absolute errors over bytes."""
    last = prediction.last_hour(history)[:-1]
    daily = prediction.time_of_day(history)[:-1]
    chosen = np.array([prediction.predict(history[:hour]).size_bytes
                       for hour in range(WARM_UP, len(history))])
    mean = np.array([history[:hour].mean()
                     for hour in range(WARM_UP, len(history))])
    actual = history[WARM_UP:]
    return {name: float(np.abs(found - actual).sum() / actual.sum())
            for name, found in (
                ('last hour', last[WARM_UP:]),
                ('time of day', daily[WARM_UP:]),
                ('chosen', chosen), ('mean of all', mean))}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--pairs', type=int, default=50)
    parser.add_argument('--days', type=int, default=14)
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args(argv)
    rng = np.random.default_rng(args.seed)
    n_hours = args.days * HOURS
    print(f'{args.pairs} pairs, {args.days} days, seed {args.seed}; median '
          'over the pairs of absolute errors / bytes, one hour ahead')
    names = ('last hour', 'time of day', 'chosen', 'mean of all')
    print(f'{"":16}' + ''.join(f'{name:>13}' for name in names))
    for title, rule in RULES.items():
        found = [errors(1e9 * rule(rng, n_hours)) for _ in range(args.pairs)]
        print(f'{title:16}' + ''.join(
            f'{statistics.median(one[name] for one in found):13.1%}'
            for name in names))
    began_s = time.process_time()
    history = 1e9 * daily(rng, 28 * HOURS)
    for _ in range(100):
        prediction.predict(history)
    print(f'a prediction from 28 days: '
          f'{(time.process_time() - began_s) * 10:.2f} ms of CPU')
    size = {(src, dst): float(rng.integers(10 ** 11, 10 ** 12))
            for src in range(100) for dst in range(100) if src != dst}
    print(f'a pair and day in the database: '
          f'{HOURS * len(pairs.encode(size)) / len(size):.0f} bytes')


if __name__ == '__main__':
    main()
