# SPDX-License-Identifier: Apache-2.0

"""The cost of wrong, late and missing hints, and the gain of lying.

30 coflows of 1 to 4 senders and as many receivers arrive on ten hosts of
1 Gbit/s, one every two seconds on average. Their sizes are log-normal (median
0.5 GB, sigma 1.5); all of them need six tenths of what the links can carry.
Each coflow is a project of its own, so that none pays for another one.
"""

from collections.abc import Sequence
import itertools

import numpy as np

from virtco.model import coflow as coflow_model
from virtco.state import schedule_input
from virtco_lab.sim import claims
from virtco_lab.sim import controlled
from virtco_lab.sim.figures import samples

N_COFLOWS = 30
GAP_S = 2.0
RATES_BPS = {f'h{i}': 1e9 for i in range(10)}
SPOILS = ('exact', '10 % wrong', '50 % wrong', 'half of the truth',
          'twice the truth', '1 s late', '5 s late', claims.HALF_UNKNOWN,
          claims.UNKNOWN, 'never')
#: Bytes that the liar claims, as a multiple of the truth.
FACTORS = (0.1, 0.3, 0.6, 0.9, 1.0, 1.5, 3.0)
LIARS = 'his CCT', 'mean of the others'
PLAIN = 'plain TCP'
_NOTES = (
    'The controller\'s own code over a fluid, with its default options: hosts '
    'report each second, and rates are in force 0.1 s after they are '
    'computed. Not in the papers.')


#: Coflows by arrival, each with the hosts of its VMs.
Workload = list[tuple[claims.Coflow, tuple[str, ...]]]


def workload(seed: int) -> Workload:
    """Draw coflows between hosts, with arrivals by a Poisson process."""
    rng = np.random.default_rng([seed, 12])
    found = []
    for i, arrival_s in enumerate(np.cumsum(
            rng.exponential(GAP_S, N_COFLOWS)).tolist()):
        n_src, n_dst = rng.integers(1, 5, 2).tolist()
        hosts = rng.choice(len(RATES_BPS), n_src + n_dst, replace=False)
        size_bytes = float(rng.lognormal(np.log(0.5e9), 1.5))
        shares = rng.dirichlet(np.ones(n_src * n_dst))
        pairs = itertools.product(range(n_src), range(n_src, n_src + n_dst))
        found.append((claims.Coflow(coflow_model.Coflow.from_flows(
            f'c{i}', n_src + n_dst, [
                (*pair, float(size)) for pair, size in zip(
                    pairs, size_bytes * shares)]), arrival_s),
            tuple(f'h{host}' for host in hosts)))
    return found


def ccts_s(load: Workload, claimed: Sequence[claims.Claim],
           order: str = 'mrtf') -> list[float]:
    """Simulate the CCT of each coflow under the controller, seconds."""
    return controlled.simulate(
        [claims.sent(one, claim, hosts, one.start_s + (claim.late_s or 0.0))
         for (one, hosts), claim in zip(load, claimed)],
        RATES_BPS, schedule_input.Options(order=order, beta=0.0),
        controlled.AS_INSTALLED)


def _hints_run(setting: str, seed: int) -> samples.Found:
    """Compute mean CCTs when all hints are wrong in the same way."""
    load = workload(seed)
    claimed = claims.of_setting(setting, seed, N_COFLOWS)
    found = {'mean_s': float(np.mean(ccts_s(load, claimed)))}
    if setting == 'exact':
        found[PLAIN] = float(np.mean(ccts_s(
            load, claimed, schedule_input.FAIR)))
    return found


def _hints(found: samples.Samples) -> samples.Shown:
    """Tabulate the settings, and plain TCP as a further one."""
    plain = {'mean_s': found.values['exact'][PLAIN]}
    return samples.compared('bars', 'Mean CCT', 'hints', 'ratio', _HINTS)(
        samples.Samples(found.seeds, {**found.values, PLAIN: plain}))


def _liars_run(setting: str, seed: int) -> samples.Found:
    """Simulate a tenant that lies about a coflow of ordinary size."""
    load = workload(seed)
    sizes = [one.coflow.size_bytes for one, _ in load]
    # The liar's coflow is the sixth largest, with many to overtake.
    liar = sizes.index(sorted(sizes)[-6])
    claimed = [claims.Claim()] * len(sizes)
    claimed[liar] = claims.Claim(float(setting))
    others_s = ccts_s(load, claimed)
    his_s = others_s.pop(liar)
    return dict(zip(LIARS, (his_s, float(np.mean(others_s)))))


# Per seed: seeds differ more than hints do.
_HINTS = {'over exact hints': samples.ratio('mean_s', 'mean_s', 'exact'),
          'over plain TCP': samples.ratio('mean_s', PLAIN, 'exact')}
_LIARS = {label: samples.ratio(label, label, '1') for label in LIARS}

FIGURES = (
    samples.Figure(
        'wrong-hints', 'Mean CCT with wrong hints', SPOILS, _hints_run, _hints,
        (' '.join((__doc__ or '').split('\n\n')[1].split()), _NOTES),
        short=('exact', '50 % wrong')),
    samples.Figure(
        'liars', 'CCT when one tenant lies, over that when he does not',
        tuple(f'{factor:g}' for factor in FACTORS), _liars_run,
        samples.compared('lines', 'What a lie is worth', 'claim / truth',
                         'CCT over the honest one\'s', _LIARS),
        ('The workload of wrong-hints; the liar\'s coflow is the sixth '
         'largest of 30.', _NOTES), short=('0.3', '1')))
