# SPDX-License-Identifier: Apache-2.0

"""How well virtco-cast infers racks from rates (Orchestra §5.3).

    python -m benchmarks.cast_inference [--matrices 50] [--seed 1] [--json]

Rates are drawn: 1 to 6 racks of unequal size, 1.5 to 4 times as fast within a
rack as between racks, sender and receiver factors that differ by a third,
noise, pairs that never met. ``exact`` is the share of matrices of which all
racks are found; ``pairs`` that of the pairs that are rightly in one rack or
not, over all matrices.
"""

import argparse
import json

import numpy as np

from virtco_tenant.cast import clusters

_CASES = ((0.2, 0.2), (0.4, 0.2), (0.4, 0.5), (0.6, 0.2), (0.6, 0.5))


def drawn(rng, noise, missing, racks):
    """Rates in bit/s by pair, and the rack of each member."""
    sizes = rng.integers(3, 11, racks)
    rack = np.repeat(np.arange(racks), sizes)
    step = np.log(rng.uniform(1.5, 4))
    logs = (step * (rack[:, None] == rack)
            + rng.normal(0, 0.3, len(rack))[:, None]
            + rng.normal(0, 0.3, len(rack))
            + rng.normal(0, noise, (len(rack), len(rack))))
    kept = rng.random(logs.shape) >= missing
    names = [f'v{place:02}' for place in rng.permutation(len(rack))]
    return ({(names[src], names[dst]): 1e6 * np.exp(logs[src, dst])
             for src, dst in zip(*np.nonzero(kept)) if src != dst},
            dict(zip(names, rack.tolist())))


def right(known, truth):
    """Shares of pairs that are rightly in one rack or not."""
    names = list(truth)
    return np.mean([
        (known.get(one, 'none') == known.get(other, 'none'))
        == (truth[one] == truth[other])
        for place, one in enumerate(names) for other in names[:place]])


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--matrices', type=int, default=50)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args(argv)
    rng = np.random.default_rng(args.seed)
    found = []
    for noise, missing in _CASES:
        for racks in (1, 2, 3, 6):
            shares = []
            for _ in range(args.matrices):
                rates_bps, truth = drawn(rng, noise, missing, racks)
                shares.append(right(clusters.infer(rates_bps), truth))
            found.append({'noise': noise, 'missing': missing, 'racks': racks,
                          'exact': float(np.mean(np.equal(shares, 1))),
                          'pairs': float(np.mean(shares))})
            if not args.json:
                print(f'noise {noise:.1f}, missing {missing:.0%}, {racks} '
                      f'racks: {found[-1]["exact"]:4.0%} exact, '
                      f'{found[-1]["pairs"]:6.1%} of the pairs', flush=True)
    if args.json:
        print(json.dumps(found))


if __name__ == '__main__':
    main()
