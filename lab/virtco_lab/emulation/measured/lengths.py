# SPDX-License-Identifier: Apache-2.0

"""Choreo's Fig. 8: rate of a path against its length.

Two VMs per host, two hosts per rack, two racks per pod, two pods. With
*hoses*, as on EC2, each host's own limit is the narrowest link of every path;
in the *oversubscribed* tree racks and pods have less than their hosts.
"""

import itertools
import statistics

import numpy as np
import scipy.stats

from virtco.measure import calibration
from virtco.topology import tree
from virtco_lab.emulation import bed as bed_module
from virtco_lab.emulation import extent
from virtco_lab.emulation.measured import bed as beds
from virtco_lab.sim.figures import outcome

N_HOSTS = 8
#: Rate of a rack's and of a pod's link, relative to the fastest host's.
UPLINKS = {'hoses': (4.0, 4.0), 'oversubscribed': (0.3, 0.15)}
#: Largest relative difference of TCP's rate from that of the path's hosts at
#: which the hosts explain it.
NEAR = 0.04
_SENDING_S = 0.6


def figure8(options: extent.Options) -> outcome.Outcome:
    """Measure TCP's rate on paths of one, two, four and six links."""
    rows: list[tuple[outcome.Cell, ...]] = []
    panels, unmet = [], []
    for kind, shares in UPLINKS.items():
        options.say(f'{kind}: paths of {N_HOSTS} hosts')
        found = _measure(shares, options)
        for length in sorted({length for length, _, _ in found}):
            rates = [rate for at, rate, _ in found if at == length]
            explained = statistics.mean(
                abs(rate / host - 1) <= NEAR
                for at, rate, host in found if at == length)
            rows.append((kind, length, len(rates), *(
                round(value / 1e6, 2) for value in (
                    min(rates), statistics.median(rates), max(rates))),
                round(100 * explained, 1) if length > 1 else None))
        longer = np.array([row for row in found if row[0] > 1])
        along, by_hosts = (float(scipy.stats.spearmanr(
            longer[:, column], longer[:, 1]).statistic) for column in (0, 2))
        rows.append((f'{kind}: rank correlation', None, len(longer), None,
                     round(along, 2), None, round(by_hosts, 2)))
        if kind == 'hoses' and by_hosts < 0.9:
            unmet.append(f'{kind}: the hosts\' rates do not explain the '
                         f'paths\' (rank correlation {by_hosts:.2f})')
        if kind != 'hoses' and along > -0.8:
            unmet.append(f'{kind}: longer paths are not slower '
                         f'(rank correlation {along:.2f})')
        panels.append(outcome.Panel(
            'points', kind, 'length of the path', 'Mbit/s', (
                outcome.Series('a path', tuple(at for at, _, _ in found),
                               tuple(rate / 1e6 for _, rate, _ in found)),),
            log_y=True))
    return outcome.Outcome(
        'emulated-choreo-8', 'TCP\'s rate by length of the path (Choreo '
        'Fig. 8)', ('cloud', 'links', 'paths', 'least Mbit/s', 'median',
                    'most', 'as the hosts\' rates say, %'), tuple(rows),
        tuple(panels),
        (f'Hosts of {beds.shown_rates(options)} each way; one TCP '
         f'connection of {_SENDING_S:g} s at a time. Lengths are those of '
         'the tree as it was built: between bridges no hop counts for '
         'traceroute. The rows of rank correlations (Spearman, two links '
         'and more) have that with the length under "median", that with '
         'the slower host\'s rate in the last column.',), tuple(unmet))


def length(one: int, other: int) -> int:
    """Count the links between two hosts, by their numbers; 1 inside of a host.
    """
    if one == other:
        return 1
    if one // 2 == other // 2:
        return 2
    return 4 if one // 4 == other // 4 else 6


def _measure(shares: tuple[float, float], options: extent.Options
             ) -> list[tuple[int, float, float]]:
    """Measure each path: (length, TCP's rate, rate of the slower host)."""
    bed = beds.Bed(bed_module.Bed(beds.rates_bps(options, N_HOSTS), _plane(*(
        share * options.rate_bps for share in shares))))
    with bed.built():
        inside = [] if options.short else list(range(N_HOSTS))
        for n in inside:
            bed.add_vm(f'a{n}', f'h{n}')
            bed.add_vm(f'b{n}', f'h{n}')
        found = []
        for one, other in _pairs(options):
            src, dst = f'h{one}', f'h{other}'
            flow, = bed.bulks([(src, dst)], _SENDING_S)
            found.append((length(one, other), flow.rate_bps,
                          calibration.tcp_bps(bed.path_bps(src, dst))))
        for n in inside:
            flow, = bed.bulks([(f'a{n}', f'b{n}')], _SENDING_S / 3)
            found.append((1, flow.rate_bps, np.inf))
    return found


def _plane(rack_bps: float, pod_bps: float) -> tree.Plane:
    racks = [tree.Node(f'rack{n}', (f'h{2 * n}', f'h{2 * n + 1}'),
                       uplink=tree.Uplink(rack_bps, rack_bps))
             for n in range(N_HOSTS // 2)]
    return tree.Plane(roots=tuple(
        tree.Node(f'pod{n}', (), (racks[2 * n], racks[2 * n + 1]),
                  tree.Uplink(pod_bps, pod_bps))
        for n in range(N_HOSTS // 4)))


def _pairs(options: extent.Options) -> list[tuple[int, int]]:
    pairs = list(itertools.permutations(range(N_HOSTS), 2))
    return pairs[::4] if options.short else pairs
