# SPDX-License-Identifier: Apache-2.0

"""How often a preflight check finds a slow host and a slow leaf uplink.

``python -m benchmarks.preflight [--hosts N] [--leaf N] [--trials N] [--json]``

Simulated trials: one host, or the uplink of one leaf, at half of its speed;
leaves of 16 hosts with uplinks 2:1 and 4:1 oversubscribed or not at all. A
reading is off by an error drawn from the quantiles that ``--namespaces``
measured; one in fifty is cut to 20 to 90 % by other traffic. ``found``: the
right one, in the right direction; ``wrong``: anything else was named;
``clean``: a healthy network in which nothing is named. Then rounds and bytes
per host, and the share of a 1 Gbit/s link that they are in a minute. Asked: 64
hosts within 60 s and 1 %, found in at least 99 % of 1,000 trials.

``--namespaces`` needs root: sixteen hosts of 40 Mbit/s below four leaves of
2:1, the real controller and edge modules; twenty times a host and a leaf's
uplink at half of their speed, within fifteen minutes.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import json

import numpy as np
from numpy import typing as npt

from virtco.measure import preflight
from virtco.measure import rounds

Floats = npt.NDArray[np.float64]

LINK_BPS = 1e9
#: Relative errors of trains that had the link alone, as quantiles 0 … 1.
#: As ``--namespaces`` printed them: of a train of a lone pair from the slower
#: link; of the sum of a loaded round from the uplink; and of one connection of
#: it from the round's mean.
NOISE = (-0.0005, -0.0002, -0.0001, -0.0001, 0.0, 0.0, 0.0, 0.0001, 0.0001,
         0.0002, 0.0006)
TOTAL_NOISE = (-0.0122, -0.0063, -0.0046, -0.0028, -0.0011, -0.0001, 0.0008,
               0.0027, 0.0055, 0.0103, 0.0577)
PART_NOISE = (-0.6505, -0.3157, -0.1582, -0.0873, -0.0327, 0.0077, 0.0465,
              0.1093, 0.1587, 0.2756, 0.7287)
DISTURBED = 0.02
#: Bytes of a train, of a loaded round likewise.
TRAIN_BYTES = 10 * 200 * 1472
TRANSFER_BYTES = rounds.CHECK.size_bytes(LINK_BPS)
ROUND_S = 1.0


def readings(planned: Iterable[preflight.Round], hosts: list[str],
             leaf_of: dict[str, str], speed: dict[str, float],
             uplink_bps: dict[str, float], rng: np.random.Generator
             ) -> list[preflight.Rates]:
    found = []

    def drawn(quantiles: Sequence[float], n: int = 1) -> Floats:
        return 1 + np.interp(rng.random(n), np.linspace(
            0, 1, len(quantiles)), quantiles)

    for one in planned:
        rates: dict[tuple[str, str], float] = {}
        up: dict[str, int] = {}
        down: dict[str, int] = {}
        for src, dst in one.pairs:
            if leaf_of[src] != leaf_of[dst]:
                up[leaf_of[src]] = up.get(leaf_of[src], 0) + 1
                down[leaf_of[dst]] = down.get(leaf_of[dst], 0) + 1
        # TCP shares unevenly, but what is shared is all given out.
        parts = drawn(PART_NOISE, len(one.pairs))
        parts *= drawn(TOTAL_NOISE)[0] / parts.mean()
        for (src, dst), part in zip(one.pairs, parts):
            rate = link_bps = min(speed[src], speed[dst])
            if leaf_of[src] != leaf_of[dst]:
                rate = min(rate, uplink_bps[leaf_of[src]]
                           / up[leaf_of[src]] ** one.loaded,
                           uplink_bps[leaf_of[dst]]
                           / down[leaf_of[dst]] ** one.loaded)
            if rate < link_bps:
                rate = min(link_bps, rate * part)
            rate *= drawn(NOISE)[0]
            if rng.random() < DISTURBED:
                rate *= rng.uniform(0.2, 0.9)
            rates[src, dst] = rate
        found.append(rates)
    return found


def trial(n_hosts: int, per_leaf: int, oversubscription: float, fault: str,
          rng: np.random.Generator) -> tuple[bool, bool]:
    """Whether the fault was found, and whether anything else was named."""
    hosts = [f'h{i}' for i in range(n_hosts)]
    leaf_of = {host: f'leaf{i // per_leaf}' for i, host in enumerate(hosts)}
    leaves = sorted(set(leaf_of.values()))
    speed = dict.fromkeys(hosts, LINK_BPS)
    uplinks = dict.fromkeys(leaves, per_leaf * LINK_BPS / oversubscription)
    nominal = dict(uplinks)
    subject, kinds = '', set()
    if fault == 'host':
        subject = str(rng.choice(hosts))
        speed[subject] /= 2
        kinds = {preflight.Kind.EGRESS, preflight.Kind.INGRESS}
    elif fault == 'uplink':
        subject = str(rng.choice(leaves))
        uplinks[subject] /= 2
        kinds = {preflight.Kind.UPLINK, preflight.Kind.DOWNLINK}
    planned = preflight.plan(hosts, leaf_of)
    found = preflight.judge(
        planned, readings(planned, hosts, leaf_of, speed, uplinks, rng),
        {host: (LINK_BPS, LINK_BPS) for host in hosts}, leaf_of,
        {leaf: (rate, rate) for leaf, rate in nominal.items()})
    named = {(one.subject, one.kind) for one in found}
    right = {(subject, kind) for kind in kinds}
    return named >= right if right else not named, bool(named - right)


def cost(n_hosts: int, per_leaf: int) -> dict[str, float]:
    hosts = [f'h{i}' for i in range(n_hosts)]
    planned = preflight.plan(hosts, {
        host: f'leaf{i // per_leaf}' for i, host in enumerate(hosts)})
    sent = dict.fromkeys(hosts, 0)
    for one in planned:
        for pair in one.pairs:
            for host in pair:
                sent[host] += TRANSFER_BYTES if one.loaded else TRAIN_BYTES
    most_bytes = max(sent.values())
    return {'rounds': len(planned), 'megabytes_per_host': most_bytes / 1e6,
            'share_of_1_gbit': most_bytes * 8 / (60 * 1e9),
            'seconds': len(planned) * ROUND_S}


def rows(n_hosts: int, per_leaf: int, trials: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for over in (1.0, 2.0, 4.0):
        for fault in ('none', 'host', 'uplink'):
            rng = np.random.default_rng([int(over), len(fault)])
            both = np.array([trial(n_hosts, per_leaf, over, fault, rng)
                             for _ in range(trials)])
            found.append({'oversubscription': over, 'fault': fault,
                          'found': float(both[:, 0].mean()),
                          'wrong': float(both[:, 1].mean())})
    return found


def in_namespaces(n_trials: int, n_healthy: int) -> None:
    """Print each trial as it ends."""
    from benchmarks import preflight_namespaces
    n_found = n_done = 0
    for one in preflight_namespaces.run(n_trials, n_healthy):
        if isinstance(one, preflight_namespaces.Noise):
            for name, quantiles in dataclasses.asdict(one).items():
                print(f'noise, {name}: ' + ', '.join(
                    f'{value:.4f}' for value in quantiles))
            continue
        n_done += bool(one.host)
        n_found += bool(one.host) and not one.missed
        print(f'{one.host or "no fault":8} {one.leaf:6} '
              f'{"missed " + ", ".join(one.missed) if one.missed else "ok"}'
              f'{"; wrong " + ", ".join(one.wrong) if one.wrong else ""} '
              f'({one.seconds:.0f} s, {one.sent_bytes / 1e6:.0f} MB)',
              flush=True)
    print(f'{n_found} of {n_done} found')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=64)
    parser.add_argument('--leaf', type=int, default=16)
    parser.add_argument('--trials', type=int,
                        help='1,000 simulated or 20 real ones by default')
    parser.add_argument('--namespaces', action='store_true',
                        help='real packets instead of simulated trials')
    parser.add_argument('--healthy', type=int, default=4,
                        help='checks without a fault, for the noise')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    if options.namespaces:
        in_namespaces(options.trials or 20, options.healthy)
        return
    options.trials = options.trials or 1000
    found = rows(options.hosts, options.leaf, options.trials)
    costs = cost(options.hosts, options.leaf)
    if options.json:
        print(json.dumps({'trials': found, 'cost': costs}, indent=1))
        return
    print(f'{"uplinks":>8}  {"at half speed":14}{"found":>8}{"wrong":>8}')
    for row in found:
        print(f'{row["oversubscription"]:6g}:1  {row["fault"]:14}'
              f'{row["found"]:8.1%}{row["wrong"]:8.1%}')
    print(', '.join(f'{name} {value:.4g}' for name, value in costs.items()))


if __name__ == '__main__':
    main()
