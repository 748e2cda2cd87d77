# SPDX-License-Identifier: Apache-2.0

"""Where RPCA is ahead of simpler estimates, and where it is not.

The RPCA paper compares itself with the mean of each pair's readings
(section V-A) on traces that nobody has. Here every estimate sees the same
snapshots of clouds with several dynamics, and is compared with the constant
that the cloud was made with: by its error, and by the time of a broadcast
along the tree that it leads to, on the constant rates.

In a matrix whose rows are equal, |N_E|_1 is least at the median of each
column, and |N_E|_0 at the value that most of its readings are near. So RPCA
knows more of a pair than these do only where all pairs of a snapshot are slow
together: there it learns the snapshot's factor from the others.
"""

import dataclasses
import functools

import numpy as np

from virtco.advise import trees
from virtco_lab.sim import clouds
from virtco_lab.sim.figures import rpca
from virtco_lab.sim.figures import samples

Matrix = clouds.Matrix

N_HOSTS = 32
ROOTS = 8
#: Errors are cut off at this, so that no single pair dominates a mean.
MOST_ERROR = 5.0


@dataclasses.dataclass(frozen=True)
class Setting(clouds.Dynamics):
    """Dynamics of a cloud, and disturbances of the readings.

    :ivar unseen: share of the readings that are missing.
    :ivar slow_hosts: share of the hosts that are slow in a snapshot, with
        all of their pairs.
    """

    disturbed: float = 0.0
    snapshots: int = rpca.SNAPSHOTS
    unseen: float = 0.0
    slow_hosts: float = 0.0


SETTINGS = {
    'calm': Setting(),
    '10 % cut': Setting(disturbed=0.1),
    '20 % cut': Setting(disturbed=0.2),
    '30 % cut': Setting(disturbed=0.3),
    '40 % cut': Setting(disturbed=0.4),
    '50 % cut': Setting(disturbed=0.5),
    '20 % cut to 2-30 %': Setting(disturbed=0.2, cut=(0.02, 0.3)),
    '40 % cut to 2-30 %': Setting(disturbed=0.4, cut=(0.02, 0.3)),
    '10 % of the hosts slow': Setting(slow_hosts=0.1),
    '25 % of the hosts slow': Setting(slow_hosts=0.25),
    'band of 10 %': Setting(jitter=0.1),
    'band of 20 %': Setting(jitter=0.2),
    'band of 10 %, 20 % cut': Setting(disturbed=0.2, jitter=0.1),
    '3 snapshots, 20 % cut': Setting(disturbed=0.2, snapshots=3),
    '5 snapshots, 20 % cut': Setting(disturbed=0.2, snapshots=5),
    '20 snapshots, 40 % cut': Setting(disturbed=0.4, snapshots=20),
    'half unseen, 20 % cut': Setting(disturbed=0.2, unseen=0.5),
    '30 % of the snapshots slow': Setting(disturbed=0.1, slow=0.3),
    '50 % of the snapshots slow': Setting(disturbed=0.1, slow=0.5),
    '50 % slow, half unseen': Setting(disturbed=0.1, slow=0.5, unseen=0.5),
}


def readings_of(setting: Setting, cloud: clouds.Cloud,
                rng: np.random.Generator) -> Matrix:
    """Draw readings, shape (n_snapshots, n_pairs), NaN where nothing was seen.
    """
    n_hosts = len(cloud.rates_bps)
    found = cloud.snapshots(setting.snapshots)
    if setting.slow_hosts:
        shape = found.shape[:2]
        factor = np.where(rng.random(shape) < setting.slow_hosts,
                          rng.uniform(0.1, 0.7, shape), 1.0)
        found *= np.minimum(factor[:, :, None], factor[:, None, :])
    flat = found[:, ~np.eye(n_hosts, dtype=bool)]
    unseen = rng.random(flat.shape) < setting.unseen
    unseen[0, unseen.all(axis=0)] = False
    flat[unseen] = np.nan
    return flat


def estimates_of(flat: Matrix) -> dict[str, Matrix]:
    """Estimate the rates of the pairs in each way."""
    return {name: way(flat) for name, way in clouds.ESTIMATES.items()}


def error(rates: Matrix, truth: Matrix) -> float:
    """Compute the pairs' mean error, in percent, but for a common factor.

    No tree or mapping changes with such a factor.
    """
    ratio = rates / truth
    off = np.abs(ratio / np.median(ratio) - 1)
    return 100 * float(np.minimum(off, MOST_ERROR).mean())


def _sample(setting: str, seed: int
            ) -> tuple[dict[str, Matrix], clouds.Cloud, np.random.Generator]:
    rng = np.random.default_rng([seed, 50, 14])
    how = SETTINGS[setting]
    cloud = clouds.Cloud(N_HOSTS, how, rng)
    return estimates_of(readings_of(how, cloud, rng)), cloud, rng


def _errors(setting: str, seed: int) -> samples.Found:
    found, cloud, _rng = _sample(setting, seed)
    truth = cloud.rates_bps[~np.eye(N_HOSTS, dtype=bool)]
    return {name: error(rates, truth) for name, rates in found.items()}


def _broadcasts(setting: str, seed: int) -> samples.Found:
    """Return the broadcast time of each estimate's trees.

    It is relative to the trees of the constant itself, mean of ROOTS roots.
    """
    found, cloud, rng = _sample(setting, seed)
    cost_s = rpca.message_s(cloud.rates_bps, cloud.latency_s)
    roots = rng.integers(N_HOSTS, size=ROOTS).tolist()

    def mean_s(rates_bps: Matrix) -> float:
        costs = rpca.message_s(rates_bps, cloud.latency_s)
        return float(np.mean([trees.broadcast_s(trees.earliest_first(
            costs, root), cost_s) for root in roots]))

    best_s = mean_s(cloud.rates_bps)
    return {name: mean_s(clouds.whole(rates, N_HOSTS)) / best_s
            for name, rates in found.items()}


def _table(title: str, y_label: str) -> samples.Table:
    return samples.by_setting('dynamics', (
        *((name, samples.shown(name)) for name in clouds.ESTIMATES),
        *((heading, functools.partial(_saved, other)) for heading, other in (
            ('rpca saves of mean time', 'mean time'),
            ('of median', 'median')))), samples.bars(
                title, 'dynamics', y_label,
                {name: name for name in clouds.ESTIMATES}))


def _saved(other: str, found: samples.Samples, setting: str) -> str:
    return str(found.saving(setting, other, 'rpca'))


_CLOUDS = (
    '32 hosts, 10 snapshots, a band of 3 % where nothing else is said; cut '
    'to 10 to 70 %, slow snapshots to half, slow hosts to 10 to 70 %. '
    'Consensus: the mean of the readings within 10 % of the value that most '
    'are near.')
_SAVES = ('The last columns: percent that rpca takes off, with the 95 % '
          'interval over the seeds.')

FIGURES = (
    samples.Figure(
        'rpca-dynamics', 'Error of each estimate', tuple(SETTINGS), _errors,
        _table('Error of each estimate', 'mean error, %'),
        (f'{_CLOUDS} Errors in percent of the constant, mean of the pairs, a '
         f'factor that all pairs have in common left out. {_SAVES}',),
        short=('20 % cut',)),
    samples.Figure(
        'rpca-dynamics-tree', 'Broadcast along each estimate\'s tree',
        tuple(SETTINGS), _broadcasts,
        _table('Broadcast along each estimate\'s tree',
               'time over that of the constant\'s tree'),
        (f'{_CLOUDS} Trees by the message that ends first, from eight random '
         'roots, timed on the constant rates, over the time of the tree that '
         f'knows them. {_SAVES}',), short=('20 % cut',)))
