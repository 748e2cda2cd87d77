# SPDX-License-Identifier: Apache-2.0

"""The Cloud Monitoring Framework's Fig. 1: two ways to measure 20 links.

The paper compares Pathload with iperf on five instances and finds Pathload
unusable at 1 Gbit/s. Here the packet trains of the product stand beside TCP,
round by round; a good estimate is near TCP's and the same in each round.
"""

import statistics

from virtco.measure import calibration
from virtco.measure import rounds
from virtco_lab.emulation import bed as bed_module
from virtco_lab.emulation import extent
from virtco_lab.emulation.measured import bed as beds
from virtco_lab.sim.figures import outcome

N_HOSTS = 5
ROUNDS = 3
MOST_MEAN, MOST_MEDIAN = 4.0, 2.0
_BULK_S = 1.0
# Nothing is lost then, and no second is spent on waiting for a timer.
_WINDOW_BYTES = 64 * 1024
_TRAIN = calibration.Setting(10, 200)

Pair = tuple[str, str]


def figure1(options: extent.Options) -> outcome.Outcome:
    """Measure both matrices and compare them."""
    bed = beds.Bed(bed_module.Bed(beds.rates_bps(options, N_HOSTS)),
                   _WINDOW_BYTES)
    n_rounds = 1 if options.short else ROUNDS
    trains: dict[Pair, list[float]] = {}
    tcp: dict[Pair, list[float]] = {}
    with bed.built():
        for turn in range(n_rounds):
            options.say(f'round {turn + 1} of {n_rounds}')
            for pairs in rounds.disjoint_rounds(list(bed.rates_bps)):
                flows = bed.bulks(pairs, _BULK_S)
                found = [bed.train(*pair, _TRAIN) for pair in pairs]
                for pair, flow, train in zip(pairs, flows, found):
                    tcp.setdefault(pair, []).append(flow.rate_bps)
                    trains.setdefault(pair, []).append(
                        calibration.tcp_bps(train.result().rate_bps))
    errors = [100 * abs(one / other - 1) for pair in tcp
              for one, other in zip(trains[pair], tcp[pair])]
    mean, median = statistics.mean(errors), statistics.median(errors)
    unmet = [f'trains are {value:.1f} % off TCP ({what}), more than {most:g}'
             for what, value, most in (('mean', mean, MOST_MEAN),
                                       ('median', median, MOST_MEDIAN))
             if value > most]
    return outcome.Outcome(
        'emulated-monitoring-1', 'Packet trains and TCP on 20 links, Mbit/s '
        '(Cloud Monitoring Framework Fig. 1)',
        ('from', *(f'to {host}' for host in bed.rates_bps)),
        tuple((src, *(_cell(trains, tcp, (src, dst))
                      for dst in bed.rates_bps)) for src in bed.rates_bps),
        (outcome.Panel('points', 'A link in a round', 'TCP, Mbit/s',
                       'trains, Mbit/s', (outcome.Series(
                           'readings', tuple(rate / 1e6 for pair in tcp
                                             for rate in tcp[pair]),
                           tuple(rate / 1e6 for pair in tcp
                                 for rate in trains[pair])),)),),
        (f'Each cell: trains (TCP) in the last of {n_rounds} round(s). Over '
         f'all rounds trains are {mean:.2f} % off TCP on average, '
         f'{median:.2f} % at the median; the same link differs from round '
         f'to round by {_apart(trains):.2f} % by trains and '
         f'{_apart(tcp):.2f} % by TCP. Cables of '
         f'{beds.shown_rates(options)}.',), tuple(unmet))


def _cell(trains: dict[Pair, list[float]], tcp: dict[Pair, list[float]],
          pair: Pair) -> outcome.Cell:
    if pair not in tcp:
        return None
    return f'{trains[pair][-1] / 1e6:.1f} ({tcp[pair][-1] / 1e6:.1f})'


def _apart(found: dict[Pair, list[float]]) -> float:
    """Return the mean range of a link's rounds, in % of its largest rate."""
    return 100 * statistics.mean(
        (max(rates) - min(rates)) / max(rates) for rates in found.values())
