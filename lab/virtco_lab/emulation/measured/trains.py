# SPDX-License-Identifier: Apache-2.0

"""Choreo's measurements with real trains and real TCP: Fig. 6, and its 90
pairs in less than three minutes.

Hypervisors of the emulated fabric, whose cables' hidden rates are the truth
that nobody is told. Two kinds of cable: one whose token bucket holds 2 ms of
its rate, and one whose bucket holds 256 KB, like Rackspace's.
"""

from collections.abc import Sequence
import statistics
import time

from virtco import exception
from virtco.measure import calibration
from virtco.measure import rounds
from virtco_lab.emulation import extent
from virtco_lab.emulation.measured import bed as beds
from virtco_lab.sim.figures import outcome

BURST_LENGTHS = (50, 200, 500, 2000)
BURSTS = (5, 10)
N_PATHS = 5
_BULK_S = 4.0
#: Mean error in Choreo's section 4.1, per cent.
_PAPER = {'small bucket': 9.0, 'bucket of 256 KB': 4.0}
_PAPER_PAIRS_S = 180.0


Found = dict[tuple[str, calibration.Setting], calibration.Error]
_ERRORS = ('mean', 'median', 'worst')


def figure6(options: extent.Options) -> outcome.Outcome:
    """Compare trains with TCP by burst length and number of bursts."""
    settings = [calibration.Setting(bursts, packets)
                for bursts in BURSTS for packets in BURST_LENGTHS]
    ours: Found = {}
    theirs: Found = {}
    both = {'ours': ours, 'Choreo\'s formula': theirs}
    for kind, bed in beds.of_buckets(options, 2 * N_PATHS):
        options.say(f'{kind}: TCP on {N_PATHS} paths')
        _try(bed, kind, settings, ours, theirs, options)
    notes = [f'{N_PATHS} paths of {beds.shown_rates(options)} per kind of '
             f'cable; per cent of what TCP got in {_BULK_S:g} s. "Ours" is '
             'the rate after the first quarter of each burst, less the '
             'headers; no train is repeated with longer bursts.']
    for kind in beds.BUCKETS:
        errors = {one: ours[kind, one] for one in settings}
        best = calibration.choose(errors)
        if best is not None:
            notes.append(
                f'{kind}: calibration takes {best.bursts} bursts of '
                f'{best.packets}, mean error {100 * errors[best].mean:.2f} %, '
                f'median {100 * errors[best].median:.2f} %; Choreo\'s mean on '
                f'its like is {_PAPER[kind]:g} %.')
    return outcome.Outcome(
        'emulated-choreo-6', 'Error of packet trains against TCP, per cent '
        '(Choreo Fig. 6)', ('cable', 'K', 'B', *(
            f'{whose}: {what}' for whose in both for what in _ERRORS)),
        tuple((kind, one.bursts, one.packets, *(
            round(100 * getattr(found[kind, one], what), 2)
            for found in both.values() for what in _ERRORS))
            for kind in beds.BUCKETS for one in settings),
        tuple(outcome.Panel(
            'lines', f'{kind}, {whose}', 'packets per burst', 'mean error, %',
            tuple(outcome.Series(f'{bursts} bursts', BURST_LENGTHS, tuple(
                100 * found[kind, calibration.Setting(bursts, packets)].mean
                for packets in BURST_LENGTHS)) for bursts in BURSTS),
            log_y=True) for kind in beds.BUCKETS
            for whose, found in both.items()),
        tuple(notes))


def _try(bed: beds.Bed, kind: str, settings: Sequence[calibration.Setting],
         ours: Found, theirs: Found, options: extent.Options) -> None:
    """Measure the errors of train settings against bulk transfers."""
    paths = [(f'h{2 * n}', f'h{2 * n + 1}') for n in range(N_PATHS)]
    truth_bps = [bed.bulk(*path, _BULK_S).result().rate_bps
                 for path in paths]
    for setting in settings:
        found = [beds.or_none(bed.train(*path, setting)) for path in paths]
        ours[kind, setting] = calibration.error(truth_bps, [
            None if one is None else calibration.tcp_bps(one.rate_bps)
            for one in found])
        theirs[kind, setting] = calibration.error(truth_bps, [
            None if one is None else one.throughput_bps for one in found])
        options.say(f'{kind}: {setting.bursts} bursts of {setting.packets}: '
                    f'{100 * ours[kind, setting].mean:.2f} %')


def pairs90(options: extent.Options) -> outcome.Outcome:
    """Measure all pairs of ten hosts, in rounds of disjoint pairs."""
    rows: list[tuple[outcome.Cell, ...]] = []
    series = []
    for kind, bed in beds.of_buckets(options, 10):
        options.say(f'{kind}: 90 pairs')
        begin_s = time.monotonic()
        errors, n_failed = _all_pairs(bed)
        took_s = time.monotonic() - begin_s
        if not errors:
            raise exception.Invalid(field='trains', value=None,
                                    limit='the rate of at least one pair')
        rows.append((kind, round(took_s, 1), _PAPER_PAIRS_S,
                     round(statistics.mean(errors), 2),
                     round(statistics.median(errors), 2),
                     round(max(errors), 2), n_failed))
        series.append(outcome.Series(kind, tuple(sorted(errors)), tuple(
            (n + 1) / len(errors) for n in range(len(errors)))))
    return outcome.Outcome(
        'emulated-choreo-90', 'All 90 pairs of ten hosts (Choreo section 4.1)',
        ('cable', 'seconds', 'paper: less than', 'mean error %',
         'median error %', 'worst error %', 'failed'), tuple(rows),
        (outcome.Panel('lines', 'Errors of the pairs', 'error, %',
                       'share of the pairs', tuple(series)),),
        ('The trains of the product: 10 bursts of 200 packets, with longer '
         'bursts where those disagree, against the cables\' hidden rates of '
         f'{beds.shown_rates(options)}.',))


def _all_pairs(bed: beds.Bed) -> tuple[list[float], int]:
    """Measure all pairs in rounds: errors in per cent, and failures."""
    setting = calibration.Setting(10, 200)
    errors = []
    n_failed = 0
    for pairs in rounds.disjoint_rounds(list(bed.rates_bps)):
        under_way = {pair: bed.train(*pair, setting, beds.PRODUCT)
                     for pair in pairs}
        for pair, future in under_way.items():
            found = beds.or_none(future)
            if found is None:
                n_failed += 1
            else:
                errors.append(100 * abs(
                    found.rate_bps / bed.path_bps(*pair) - 1))
    return errors, n_failed
