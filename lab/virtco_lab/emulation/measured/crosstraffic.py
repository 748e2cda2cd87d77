# SPDX-License-Identifier: Apache-2.0

"""Choreo's Fig. 4: the number of other connections, from one's own rate.

A connection of ten seconds passes a link that others share, each of which
sends for five seconds and pauses for five on average. (a): the link is the
only narrow one. (b): each host has a tenth of the racks' link, so that fewer
than ten connections are not noticed.
"""

from collections.abc import Sequence
import dataclasses
import time

import numpy as np

from virtco import units
from virtco.measure import calibration
from virtco.measure import crosstraffic
from virtco.topology import tree
from virtco.wire import reports
from virtco_lab.emulation import bed as bed_module
from virtco_lab.emulation import extent
from virtco_lab.emulation.measured import background
from virtco_lab.emulation.measured import bed as beds
from virtco_lab.sim.figures import outcome

#: Numbers of windows of 10 ms that are merged into one.
TOGETHER = (1, 10, 100)
_SHOWN = 10
_MEAN_S = 5.0
_LASTS_S = 10.0
_RUNS = 3
_TRAIN = calibration.Setting(10, 200)
# As in homogeneous VMs, all connections have the same window; it keeps the
# others' queue short.
_WINDOW_BYTES = 32 * 1024
# Super-packets of 64 KB would be windows of 10 ms and more.
_SEGMENTS = 2


#: Time in s, real number and estimate of each merged window, by the number of
#: windows that are merged.
Run = dict[int, list[tuple[float, int, float]]]


@dataclasses.dataclass(frozen=True, slots=True)
class Topology:
    """A topology of Fig. 3, with its other connections.

    :ivar host_share: ratio of the rate of a host's link to the shared one's.
    :ivar n_others: number of connections other than the measuring one.
    :ivar sending: part of the time in which each of them sends.
    :ivar least: least number of others that can be noticed.
    :ivar most_off: largest accepted median error of estimates over a second,
        in connections.
    """

    name: str
    host_share: float
    n_others: int
    sending: float
    least: int
    most_off: float


TOPOLOGIES = (Topology('(a) one link', 20.0, 9, 0.5, 0, 1.0),
              Topology('(b) racks', 0.1, 20, 0.8, 10, 2.5))


def figure4(options: extent.Options) -> outcome.Outcome:
    """Compare real and estimated numbers of connections."""
    rows: list[tuple[outcome.Cell, ...]] = []
    panels, unmet = [], []
    for topology in TOPOLOGIES:
        runs = _measure(topology, options)
        for together in TOGETHER:
            errors = np.array([found - real for run in runs
                               for _, real, found in run[together]
                               if real >= topology.least])
            sizes = np.abs(errors)
            median = float(np.median(sizes))
            rows.append((topology.name, 10 * together, len(errors), *(
                round(float(value), 2) for value in (
                    errors.mean(), sizes.mean(), median)),
                round(100 * float((sizes <= 1).mean()), 1)))
        if median > topology.most_off:
            unmet.append(f'{topology.name}: the estimate of a second is '
                         f'{median:.1f} off at the median, more than '
                         f'{topology.most_off:g}')
        times, real, found = zip(*runs[0][_SHOWN])
        panels.append(outcome.Panel(
            'lines', topology.name, 'time, s', 'other connections', (
                outcome.Series('real', times, real, marks=False),
                outcome.Series(f'estimated, {10 * _SHOWN} ms', times, found,
                               marks=False))))
    return outcome.Outcome(
        'emulated-choreo-4', 'Cross traffic: estimated and real number of '
        'connections (Choreo Fig. 4)',
        ('topology', 'window, ms', 'windows', 'mean error',
         'mean, unsigned', 'median, unsigned', 'within one, %'), tuple(rows),
        tuple(panels),
        (f'The shared link has {units.format_rate(options.rate_bps)}; '
         f'{len(runs)} connection(s) of {_lasts_s(options):g} s per topology '
         f'beside {" and ".join(str(one.n_others) for one in TOPOLOGIES)} '
         'that come and go (exponential, 5 s of sending). c1 is what a '
         'packet train found before, c2 what arrived in each window. In (b) '
         'only windows with ten others or more count: with fewer, the '
         'host\'s own link is the limit, and the estimate is ten.',),
        tuple(unmet))


def _lasts_s(options: extent.Options) -> float:
    return 4.0 if options.short else _LASTS_S


def _measure(topology: Topology, options: extent.Options) -> list[Run]:
    numbers = range(topology.n_others + 1)
    bed = beds.Bed(bed_module.Bed(
        {f'{end}{n}': topology.host_share * options.rate_bps
         for end in 'sr' for n in numbers}, tree.Plane(roots=(tree.Node(
             'left', tuple(f's{n}' for n in numbers), uplink=tree.Uplink(
                 options.rate_bps, options.rate_bps)),)),
        segments=_SEGMENTS), _WINDOW_BYTES)
    rng = np.random.default_rng([options.seeds[0], 4])
    with bed.built():
        path_bps = calibration.tcp_bps(_path_bps(topology, bed))
        options.say(f'{topology.name}: the path has '
                    f'{units.format_rate(path_bps)}')
        return [_run(topology, bed, path_bps, _lasts_s(options), rng)
                for _ in range(1 if options.short else _RUNS)]


def _path_bps(topology: Topology, bed: beds.Bed) -> float:
    """Measure the shared link by trains of hosts that fill it together."""
    together = max(1, round(1 / topology.host_share))
    return sum(future.result().rate_bps for future in [
        bed.train(f's{n}', f'r{n}', _TRAIN) for n in range(together)])


def _run(topology: Topology, bed: beds.Bed, path_bps: float, lasts_s: float,
         rng: np.random.Generator) -> Run:
    hypervisors = bed.fabric.hypervisors
    others = [background.Connection(
        hypervisors[f's{n}'].namespace, hypervisors[f'r{n}'].namespace,
        hypervisors[f'r{n}'].address,
        background.on_off(rng, lasts_s, _MEAN_S, topology.sending))
        for n in range(1, topology.n_others + 1)]
    with background.running(others) as begin_s:
        time.sleep(max(0.0, begin_s - time.monotonic()))
        flow = bed.bulk('s0', 'r0', lasts_s).result()
        # The answer comes with the last byte.
        first_s = (time.monotonic() - begin_s
                   - len(flow.windows_bytes) * reports.WINDOW_S)
    return {together: _rows(flow.windows_bytes, together, first_s, path_bps,
                            others) for together in TOGETHER}


def _rows(windows_bytes: Sequence[int], together: int, first_s: float,
          path_bps: float, others: Sequence[background.Connection]
          ) -> list[tuple[float, int, float]]:
    """Return the rows of merged windows, except those without any bytes."""
    width_s = together * reports.WINDOW_S
    rows = []
    for index in range(0, len(windows_bytes) - together, together):
        size_bytes = sum(windows_bytes[index:index + together])
        at_s = first_s + index * reports.WINDOW_S + width_s / 2
        if size_bytes:
            rows.append((at_s, sum(one.sends_at(at_s) for one in others),
                         crosstraffic.cross_traffic(
                             path_bps, units.bytes_per_s_to_bps(
                                 size_bytes / width_s))))
    return rows
