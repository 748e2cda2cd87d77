# SPDX-License-Identifier: Apache-2.0

"""Orchestra's broadcasts: Fig. 9, 11 and 16, larger than an emulation."""

import math

import numpy as np

from virtco import units
from virtco_lab.sim import broadcasts
from virtco_lab.sim.figures import orchestra
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

BLOCK_BYTES = 4e6
#: The paper's 15.4 s for 1 GB and 100 receivers are within 33 % of its bound.
PORT_BPS = 8e9 / (15.4 / 1.33)
BLOCK_S = BLOCK_BYTES * units.BITS_PER_BYTE / PORT_BPS
SIZES = {'100 MB': 100e6, '1 GB': 1e9}
RECEIVERS = ('5', '10', '25', '50', '100')
KINDS = ('star', 'HDFS', 'chain', 'tree', 'cornet')
#: Racks and receivers in each.
RACKS = {'2 × 10': (2, 10), '3 × 10': (3, 10), '2 × 25': (2, 25),
         '4 × 25': (4, 25)}
RACKED_BYTES = 200e6
OVERSUBSCRIPTION = 4.0
#: Fig. 16: a broadcast of 300 MB, then 190 MB for each of 30 reducers.
NODES = 30
BROADCAST_BYTES = 300e6
SHUFFLE_BYTES = 190e6
#: Communication's part of an iteration before, that the paper measured.
COMMUNICATION = 0.42
#: Communication's part in percent, by the paper.
FIGURE16 = {'before': 100 * COMMUNICATION, 'after': 28.0}
PARTS = ('broadcast', 'shuffle', 'compute')


def _blocks(size_bytes: float) -> int:
    return math.ceil(size_bytes / BLOCK_BYTES)


def bound_s(size_bytes: float) -> float:
    """Bound the time from below: each block leaves the source once."""
    return _blocks(size_bytes) * BLOCK_S


def _figure9_run(setting: str, seed: int) -> samples.Found:
    n = int(setting)
    found: dict[str, float] = {}
    for name, size_bytes in SIZES.items():
        blocks, rng = _blocks(size_bytes), np.random.default_rng(seed)
        cornet = broadcasts.Cornet(np.zeros(n + 1, int), blocks, rng)
        for kind, taken in zip(KINDS, (
                broadcasts.star(n, blocks), broadcasts.hdfs(n, blocks, rng),
                broadcasts.chain(n, blocks), broadcasts.tree(n, blocks),
                cornet.run()), strict=True):
            found[f'{name}, {kind}'] = taken * BLOCK_S
    return found


def _figure9(found: samples.Samples) -> samples.Shown:
    receivers = tuple(map(int, found.settings))
    rows = []
    panels = []
    for name, size_bytes in SIZES.items():
        times_s = {kind: tuple(found.mean(setting, f'{name}, {kind}')
                               for setting in found.settings)
                   for kind in KINDS}
        least_s = bound_s(size_bytes)
        rows += [(name, setting, *row, least_s, 100 * (row[-1] / least_s - 1),
                  15.4 if (name, setting) == ('1 GB', '100') else None)
                 for setting, *row in zip(found.settings, *times_s.values())]
        panels.append(outcome.Panel(
            'lines', f'{name} to all', 'receivers', 's', tuple(
                outcome.Series(kind, receivers, times_s[kind])
                for kind in KINDS[2:])))
    return (('size', 'receivers', *(f'{kind} s' for kind in KINDS), 'bound s',
             'cornet above it %', 'paper, cornet s'), rows, panels)


def _figure11_run(setting: str, seed: int) -> samples.Found:
    n_racks, per_rack = RACKS[setting]
    rack = np.append(0, np.repeat(np.arange(n_racks), per_rack))
    blocks = _blocks(RACKED_BYTES)
    return {name: BLOCK_S * broadcasts.Cornet(
        rack, blocks, np.random.default_rng(seed),
        per_rack / OVERSUBSCRIPTION, name == 'aware').run()
        for name in ('unaware', 'aware')}


def _racks_bound_s(found: samples.Samples, setting: str) -> float:
    return bound_s(RACKED_BYTES) * max(1.0, OVERSUBSCRIPTION
                                       / RACKS[setting][1])


def _figure16_run(setting: str, seed: int) -> samples.Found:
    rng = np.random.default_rng(seed)
    blocks = _blocks(BROADCAST_BYTES)
    share = SHUFFLE_BYTES / orchestra.GB * orchestra.LINK_BPS / PORT_BPS
    if setting == 'before':
        taken, connections = broadcasts.hdfs(NODES, blocks, rng), 5
    else:
        taken = broadcasts.Cornet(np.zeros(NODES + 1, int), blocks, rng).run()
        connections = NODES
    return {'broadcast': taken * BLOCK_S,
            'shuffle': share * orchestra.fetched_s(NODES, connections, rng)}


def _parts_s(found: samples.Samples, setting: str) -> tuple[float, ...]:
    """Return the seconds of broadcast, shuffle and computing."""
    before_s = (found.mean('before', part) for part in PARTS[:2])
    return (*(found.mean(setting, part) for part in PARTS[:2]),
            sum(before_s) * (1 / COMMUNICATION - 1))


def _share(found: samples.Samples, setting: str) -> float:
    """Return communication's part of an iteration, in percent."""
    *sent_s, compute_s = _parts_s(found, setting)
    return 100 * sum(sent_s) / (sum(sent_s) + compute_s)


def _figure16_note(found: samples.Samples) -> str:
    before_s, after_s = (_parts_s(found, setting)
                         for setting in ('before', 'after'))
    return (f'Iterations end {100 * (1 - sum(after_s) / sum(before_s)):.0f} % '
            'sooner (paper 22 %): the broadcast '
            f'{before_s[0] / after_s[0]:.1f} times faster (2.3), '
            f'the shuffle {before_s[1] / after_s[1]:.2f} times (1.23).')


FIGURES = (
    samples.Figure(
        'orchestra-fig9', 'Broadcasts to many receivers (Orchestra Fig. 9)',
        RECEIVERS, _figure9_run, _figure9,
        ('Blocks of 4 MB over ports of 691 Mbit/s, the rate of the paper\'s '
         'bound. The bound: each block leaves the source once. HDFS has 3 '
         'replicas, the tree degree 2. Nothing is lost to handshakes or to '
         'slow nodes, which cost trees and chains most.',),
        short=('5', '10')),
    samples.Figure(
        'orchestra-fig11', 'Cornet that knows its racks (Orchestra Fig. 11)',
        tuple(RACKS), _figure11_run, samples.by_setting('racks', (
            ('unaware s', 'unaware'), ('aware s', 'aware'),
            ('unaware / aware', samples.shown(
                samples.ratio('unaware', 'aware'))),
            ('bound s', _racks_bound_s),
            ('aware above it %', lambda found, setting: 100 * (
                found.mean(setting, 'aware') / _racks_bound_s(found, setting)
                - 1))), samples.bars('200 MB to all', 'racks', 's', {
                    'unaware': 'unaware', 'aware': 'aware'})),
        ('200 MB; uplinks of the racks at 4:1. The paper has three racks of '
         'ten in a row, and half the time. The bound: each block leaves the '
         'source once, and enters each rack once.',), short=('2 × 10',)),
    samples.Figure(
        'orchestra-fig16', 'An iteration of logistic regression '
        '(Orchestra Fig. 16)', ('before', 'after'), _figure16_run,
        samples.by_setting('', (
            ('broadcast s', 'broadcast'), ('shuffle s', 'shuffle'),
            ('compute s', lambda *at: _parts_s(*at)[-1]),
            ('iteration s', lambda *at: sum(_parts_s(*at))),
            ('communication %', _share), ('paper %', FIGURE16)),
            lambda found: outcome.Panel(
                'bars', 'Parts of an iteration', 'part', 's', tuple(
                    outcome.Series(setting, PARTS, _parts_s(found, setting))
                    for setting in found.settings))),
        (_figure16_note,
         '30 nodes; before: HDFS with 3 replicas and shuffles over 5 '
         'connections; after: Cornet and 30 connections. Computing takes what '
         'makes communication 42 % before, as the paper measured. HDFS here '
         'is limited by nothing but ports.')))
