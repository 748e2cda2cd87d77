# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""How often a preflight check finds a slow host and a slow leaf uplink.

``python -m benchmarks.preflight [--hosts N] [--leaf N] [--trials N] [--json]``

Simulated trials: one host, or the uplink of one leaf, at half of its speed;
leaves of 16 hosts with uplinks 2:1 and 4:1 oversubscribed or not at all. A
reading is off by an error drawn from assumed quantiles (``NOISE``, for loaded
rounds ``LOADED_NOISE``), which are wider than packet trains had in network
namespaces (:mod:`benchmarks.packet_trains`); one in
fifty is cut to 20 to 90 % by other traffic. ``found``: the right one, in the
right direction; ``wrong``: anything else was named; ``clean``: a healthy
network in which nothing is named. Then rounds, trains and bytes per host, and
the share of a 1 Gbit/s link that they are in a minute. Asked: 64 hosts within
60 s and 1 %, found in at least 99 % of 1,000 trials.
"""

import argparse
from collections.abc import Iterable
import json

import numpy as np

from virtco.measure import preflight

LINK_BPS = 1e9
#: Relative errors of trains that had the link alone, as quantiles 0 … 1.
NOISE = (-0.012, -0.004, -0.002, -0.001, 0.0, 0.0, 0.0, 0.001, 0.002, 0.005,
         0.03)
#: Loaded rounds: trains do not overlap all of the time.
LOADED_NOISE = (-0.15, -0.08, -0.05, -0.02, 0.0, 0.02, 0.04, 0.07, 0.11,
                0.18, 0.35)
DISTURBED = 0.02
#: Bytes of a train, of a loaded round likewise.
TRAIN_BYTES = 10 * 200 * 1472
LONE_S = 1.0


def readings(planned: Iterable[preflight.Round], hosts: list[str],
             leaf_of: dict[str, str], speed: dict[str, float],
             uplink_bps: dict[str, float], rng: np.random.Generator
             ) -> list[preflight.Reading]:
    found = []
    grid = np.linspace(0, 1, len(NOISE))
    for number, one in enumerate(planned):
        up: dict[str, int] = {}
        down: dict[str, int] = {}
        for src, dst in one.pairs:
            if leaf_of[src] != leaf_of[dst]:
                up[leaf_of[src]] = up.get(leaf_of[src], 0) + 1
                down[leaf_of[dst]] = down.get(leaf_of[dst], 0) + 1
        for src, dst in one.pairs:
            rate = min(speed[src], speed[dst])
            if leaf_of[src] != leaf_of[dst] and one.loaded:
                rate = min(rate, uplink_bps[leaf_of[src]]
                           / up[leaf_of[src]],
                           uplink_bps[leaf_of[dst]] / down[leaf_of[dst]])
            elif leaf_of[src] != leaf_of[dst]:
                rate = min(rate, uplink_bps[leaf_of[src]],
                           uplink_bps[leaf_of[dst]])
            rate *= 1 + float(np.interp(
                rng.random(), grid, LOADED_NOISE if one.loaded else NOISE))
            if rng.random() < DISTURBED:
                rate *= rng.uniform(0.2, 0.9)
            found.append(preflight.Reading((src, dst), number, rate))
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
    trains = dict.fromkeys(hosts, 0)
    for one in planned:
        for pair in one.pairs:
            for host in pair:
                trains[host] += 1
    most = max(trains.values())
    return {'rounds': len(planned), 'trains_per_host': most,
            'megabytes_per_host': most * TRAIN_BYTES / 1e6,
            'share_of_1_gbit': most * TRAIN_BYTES * 8 / (60 * 1e9),
            'seconds': len(planned) * LONE_S}


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=64)
    parser.add_argument('--leaf', type=int, default=16)
    parser.add_argument('--trials', type=int, default=1000)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
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
