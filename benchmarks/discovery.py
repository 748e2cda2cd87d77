# SPDX-License-Identifier: Apache-2.0

"""Whether a hidden tree of switches is found by real packets.

``python -m benchmarks.discovery [--tree PODSxRACKSxHOSTS] [--link-mbit N]
[--json]``

Builds hypervisors below racks below pods in network namespaces, starts the
controller and an edge module on each, and gives the order of ``virtco topology
import --measure``. Nobody tells the controller the tree, and the hosts' names
do not tell their racks. Racks carry a third, pods half of what comes from
below (``--rack-over``, ``--pod-over``). Printed are the adjusted Rand index
and the errors of the uplinks' rates per level. Asked: at least 0.95, and 10 %.
Needs root. Twelve hosts take three to four minutes.
"""

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import random

import numpy as np
from numpy import typing as npt

from virtco.topology import tree
from virtco.topology.formats import plain
from virtco_lab.emulation import hosts_only


def agreement(one: Sequence[int], other: Sequence[int]) -> float:
    """Compute the adjusted Rand index: 1 the same, 0 by chance."""
    names, a = np.unique(np.asarray(one), return_inverse=True)
    others, b = np.unique(np.asarray(other), return_inverse=True)
    table = np.zeros((len(names), len(others)))
    np.add.at(table, (a, b), 1)

    def pairs(counts: npt.NDArray[np.float64]) -> float:
        # Ordered ones, which is the same: only ratios count.
        return float((counts * (counts - 1)).sum())

    both, rows, columns = (pairs(table), pairs(table.sum(axis=1)),
                           pairs(table.sum(axis=0)))
    total = pairs(table.sum(keepdims=True))
    by_chance = rows * columns / total if total else 0.0
    most = (rows + columns) / 2
    return 1.0 if most == by_chance else (both - by_chance) / (most
                                                               - by_chance)


def hidden(shape: tuple[int, int, int], link_bps: float, rack_over: float,
           pod_over: float, seed: int = 0) -> tree.Plane:
    """Pods of racks of hosts."""
    n_pods, n_racks, n_hosts = shape
    names = [f'h{i}' for i in range(n_pods * n_racks * n_hosts)]
    random.Random(seed).shuffle(names)
    rack_bps = n_hosts * link_bps / rack_over
    pod_bps = n_racks * rack_bps / pod_over
    leaves = [tree.Node(f's{i}', tuple(names[i * n_hosts:][:n_hosts]),
                        uplink=tree.Uplink(rack_bps, rack_bps))
              for i in range(n_pods * n_racks)]
    return tree.Plane(roots=tuple(
        tree.Node(f'p{i}', (), tuple(leaves[i * n_racks:][:n_racks]),
                  tree.Uplink(pod_bps, pod_bps)) for i in range(n_pods)))


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """:ivar agreement: adjusted Rand index.
    :ivar errors: of the rates of the switches whose hosts were found exactly,
        both directions; 1 for a rate that is missing.
    """

    level: str
    agreement: float
    n_switches: int
    n_found: int
    errors: tuple[float, ...]


def compare(truth: tree.Plane, found: tree.Plane | None) -> list[Level]:
    levels = []
    for height in range(truth.depth()):
        true = _at(truth, height)
        seen = _at(found, height) if found is not None else {}
        hosts = sorted(truth.hosts())
        both = true.keys() & seen.keys()
        levels.append(Level(
            tree.default_level_name(height), agreement(
                _labels(hosts, true), _labels(hosts, seen)),
            len(true), len(both), tuple(
                abs(rate_bps / true_bps - 1) if rate_bps is not None else 1.0
                for members in sorted(both, key=sorted)
                for rate_bps, true_bps in (
                    (seen[members].up_bps, true[members].up_bps),
                    (seen[members].down_bps, true[members].down_bps))
                if true_bps is not None)))
    return levels


def _at(plane: tree.Plane, height: int
        ) -> dict[frozenset[str], tree.Uplink]:
    return {frozenset(node.all_hosts()): node.uplink for node in plane.walk()
            if node.height() == height}


def _labels(hosts: list[str], switches: Mapping[frozenset[str], object]
            ) -> list[int]:
    label = {host: i for i, members in enumerate(switches)
             for host in members}
    return [label.get(host, -1) for host in hosts]


def run(truth: tree.Plane, link_bps: float
        ) -> tuple[dict[str, object], list[Level]]:
    """What a discovery cost, and how near it came."""
    with hosts_only.cloud(truth, link_bps) as cloud:
        result = cloud.check(purpose='discover')
    planes = plain.load(result.planes).planes
    cost = {name: getattr(result, name) for name in (
        'state', 'seconds', 'n_rounds_done', 'n_failed', 'sent_bytes')}
    return cost, compare(truth, planes[0] if planes else None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tree', default='2x2x3', metavar='PxRxH')
    parser.add_argument('--link-mbit', type=float, default=20.0)
    parser.add_argument('--rack-over', type=float, default=3.0)
    parser.add_argument('--pod-over', type=float, default=2.0)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    n_pods, n_racks, n_hosts = map(int, options.tree.split('x'))
    link_bps = options.link_mbit * 1e6
    cost, levels = run(hidden((n_pods, n_racks, n_hosts), link_bps,
                              options.rack_over, options.pod_over,
                              options.seed), link_bps)
    if options.json:
        print(json.dumps({'cost': cost, 'levels': [
            dataclasses.asdict(one) for one in levels]}, indent=1))
        return
    print(', '.join(f'{name} {value}' for name, value in cost.items()))
    for one in levels:
        print(f'{one.level:6} adjusted Rand index {one.agreement:.3f}, '
              f'{one.n_found} of {one.n_switches} exact, rates off by at '
              f'most {max(one.errors, default=1.0):.1%}')


if __name__ == '__main__':
    main()
