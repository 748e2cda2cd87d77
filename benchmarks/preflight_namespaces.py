# SPDX-License-Identifier: Apache-2.0

"""Checks with real packets in network namespaces, for benchmarks.preflight."""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import json
import re
import statistics
import time

import numpy as np

from virtco.measure import preflight
from virtco.topology import tree
from virtco.topology.formats import plain
from virtco.wire import check as wire
from virtco.wire import topology as topology_wire
from virtco_lab.emulation import hosts_only

LINK_BPS = 40e6
N_LEAVES, PER_LEAF = 4, 4
#: 2:1.
UPLINK_BPS = PER_LEAF * LINK_BPS / 2
QUANTILES = 11
_READINGS = re.compile(r'Readings of check (\S+): (\[.*\])')

HEALTHY = tree.Uplink(UPLINK_BPS, UPLINK_BPS)
HALF = tree.Uplink(UPLINK_BPS / 2, UPLINK_BPS / 2)


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """:ivar missed: of the host's and the uplink's two directions.
    :ivar wrong: what was named besides.
    """

    host: str
    leaf: str
    missed: tuple[str, ...]
    wrong: tuple[str, ...]
    seconds: float
    sent_bytes: float


@dataclasses.dataclass(frozen=True, slots=True)
class Noise:
    """Quantiles of what healthy readings are off by, as shares.

    :ivar lone: a train of a lone pair, from the slower link.
    :ivar total: the sum of a loaded round, from the uplink.
    :ivar part: one connection of it, from the round's mean.
    """

    lone: tuple[float, ...]
    total: tuple[float, ...]
    part: tuple[float, ...]


def plane() -> tree.Plane:
    return tree.Plane(levels=(tree.Level('leaf'),), roots=tuple(
        tree.Node(f'leaf{i}', tuple(f'h{i * PER_LEAF + j}'
                                    for j in range(PER_LEAF)),
                  uplink=HEALTHY) for i in range(N_LEAVES)))


def run(n_trials: int, n_healthy: int, seed: int = 0
        ) -> Iterator[Trial | Noise]:
    """Yield each trial, then the noise of the healthy checks."""
    rng = np.random.default_rng(seed)
    truth = plane()
    hosts = sorted(truth.hosts())
    with hosts_only.cloud(truth, LINK_BPS, debug=True) as cloud:
        cloud.ask(topology_wire.IMPORT,
                  plain.dump(tree.Topology((truth,))))
        time.sleep(2.0)  # until the controller's tree is the new one
        healthy = []
        for _ in range(n_healthy):
            found = cloud.check(hosts)
            healthy.append(found.check_id)
            yield _trial(found, '', '')
        for _ in range(n_trials):
            host = str(rng.choice(hosts))
            leaf = f'leaf{rng.integers(N_LEAVES)}'
            cloud.fabric.set_uplink_rate(host, LINK_BPS / 2)
            cloud.fabric.set_switch_uplink(leaf, HALF)
            found = cloud.check(hosts)
            cloud.fabric.set_uplink_rate(host, LINK_BPS)
            cloud.fabric.set_switch_uplink(leaf, HEALTHY)
            yield _trial(found, host, leaf)
        logged = dict(_READINGS.findall((
            cloud.bed.logs / 'controller.log').read_text()))
        if healthy:
            yield _noise([json.loads(logged[one]) for one in healthy])


def _trial(found: wire.Check, host: str, leaf: str) -> Trial:
    named = {f'{one.kind} {one.subject}'
             for one in found.findings}
    right = {f'{kind} {host if kind.startswith("host") else leaf}'
             for kind in preflight.Kind} if host else set()
    return Trial(host, leaf, tuple(sorted(right - named)),
                 tuple(sorted(named - right)),
                 found.seconds or 0.0,
                 found.sent_bytes)


def _noise(checks: Sequence[list[tuple[int, bool, str, str, float]]]
           ) -> Noise:
    lone: list[float] = []
    total: list[float] = []
    part: list[float] = []
    for readings in checks:
        rounds: dict[int, list[float]] = {}
        for number, loaded, _src, _dst, rate_bps in readings:
            if loaded:
                rounds.setdefault(number, []).append(rate_bps)
            else:
                lone.append(rate_bps / LINK_BPS - 1)
        for rates in rounds.values():
            if len(rates) == PER_LEAF:
                total.append(sum(rates) / UPLINK_BPS - 1)
                part += [rate / statistics.fmean(rates) - 1 for rate in rates]
    grid = np.linspace(0, 1, QUANTILES)
    return Noise(*(tuple(float(x) for x in np.quantile(values, grid))
                   for values in (lone, total, part)))
