# SPDX-License-Identifier: Apache-2.0

"""Discovery of a network's tree from measured rates of pairs of hosts.

First come *mixed rounds*: all hosts send at the same time, each to another
one, and :mod:`virtco.measure.racks` clusters the hosts. Then come *loads*:
the hosts of one cluster send out of it, or receive, all at the same time. The
sum of their rates is the rate of the cluster's uplink, unless the hosts' own
links or the uplinks below are the limit.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import random
import statistics

import numpy as np
from numpy import typing as npt

from virtco.measure import rounds
from virtco.topology import tree

#: Fewer have no racks to speak of; more take too many rounds.
LEAST_HOSTS = 4
MOST_HOSTS = 256
#: Readings of every pair in each direction, at least …
LEAST_REPEATS = 3
#: … and mixed rounds, at least: few hosts are read more often.
LEAST_ROUNDS = 60
#: Loads of each uplink by the same kind of peers; their median counts.
TURNS = 3
#: Share of the rates below an uplink from which on it limits nothing that can
#: be seen.
UNLIMITED = 0.9
#: Quantile of a host's readings that is taken for the rate of its link.
_LINK_QUANTILE = 0.95

Pair = rounds.Pair
Matrix = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    """A cluster of hosts.

    :ivar level: 0 for the lowest.
    :ivar parent: name of the cluster that it is part of; None at the top.
    """

    name: str
    level: int
    hosts: tuple[str, ...]
    parent: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Pairs that load one uplink at the same time.

    :ivar is_up: out of the branch; else into it.
    :ivar peers: kind of the other end: ``near`` are the neighbouring clusters,
        ``any`` are all others.
    """

    branch: str
    is_up: bool
    peers: str
    pairs: tuple[Pair, ...]


def mixed_rounds(hosts: Sequence[str]
                 ) -> tuple[tuple[tuple[Pair, ...], ...], ...]:
    """Build rounds of disjoint pairs of all hosts, for each repetition, paired
    by chance.

    :param hosts: LEAST_HOSTS to MOST_HOSTS, all different.
    """
    source = random.Random(0)
    per_repeat = 2 * (len(hosts) - 1)
    return tuple(
        rounds.disjoint_rounds(source.sample(hosts, len(hosts)))
        for _ in range(max(LEAST_REPEATS,
                           math.ceil(LEAST_ROUNDS / per_repeat))))


def matrices(hosts: Sequence[str], repeats: Iterable[Mapping[Pair, float]]
             ) -> Matrix:
    """Stack the readings in bit/s, shape (n_repeats, n, n)."""
    number = {host: i for i, host in enumerate(hosts)}
    found = []
    for rates_bps in repeats:
        one = np.full((len(hosts), len(hosts)), np.nan)
        for (src, dst), rate_bps in rates_bps.items():
            one[number[src], number[dst]] = rate_bps
        found.append(one)
    return np.array(found)


def branches(hosts: Sequence[str], readings_bps: Matrix
             ) -> tuple[Branch, ...]:
    """Cluster the hosts, the highest level first; () if nothing limits.

    :param readings_bps: readings of the mixed rounds, see :func:`matrices`.
    """
    # Imported late: only a discovery needs the parts of scipy that it loads.
    from virtco.measure import racks
    levels = racks.infer(readings_bps)
    members = [_members(hosts, labels) for labels in levels]
    names = [{group[0]: f'{tree.default_level_name(level)}{i + 1}'
              for i, group in enumerate(groups)}
             for level, groups in enumerate(members)]
    above: list[dict[str, str]] = [
        {host: names[level][group[0]] for group in groups for host in group}
        for level, groups in enumerate(members)] + [{}]
    return tuple(Branch(names[level][group[0]], level, group,
                        above[level + 1].get(group[0]))
                 for level in reversed(range(len(members)))
                 for group in members[level])


def _members(hosts: Sequence[str], labels: npt.NDArray[np.int64]
             ) -> list[tuple[str, ...]]:
    """Sort hosts into clusters, both in the order of names."""
    found: dict[int, list[str]] = {}
    for host, label in sorted(zip(hosts, labels.tolist())):
        found.setdefault(label, []).append(host)
    return [tuple(group) for group in found.values()]


def loads(found: Sequence[Branch]) -> tuple[Load, ...]:
    """Build the loads of every uplink below which enough hosts are.

    Near peers pass no other uplink on the way up; where they are few, theirs
    may limit, and any peers are the better ones. So both are tried.
    """
    leaf_of = {host: branch.name for branch in found if branch.level == 0
               for host in branch.hosts}
    loading = []
    for branch in found:
        inside = set(branch.hosts)
        near = {host for other in found if other.parent == branch.parent
                for host in other.hosts} - inside
        everybody = leaf_of.keys() - inside
        if len(inside) < 2 or len(everybody) < 2:
            continue
        seen = set()
        for peers, chosen in (('near', near), ('any', everybody)):
            order = _spread(chosen, leaf_of) + _spread(everybody - chosen,
                                                       leaf_of)
            for turn in range(TURNS):
                pairs = rounds.paired(_spread(inside, leaf_of), order, turn,
                                      len(chosen))
                if pairs in seen:
                    continue
                seen.add(pairs)
                loading.append(Load(branch.name, True, peers, pairs))
                loading.append(Load(branch.name, False, peers, tuple(
                    (dst, src) for src, dst in pairs)))
    return tuple(loading)


def _spread(hosts: Iterable[str], leaf_of: Mapping[str, str]) -> list[str]:
    """Order hosts: the first of each leaf, the second of each, …"""
    by_leaf = rounds.by_leaf(sorted(hosts), leaf_of)
    return rounds.interleaved(by_leaf[leaf] for leaf in sorted(by_leaf))


def plane(found: Sequence[Branch], hosts: Sequence[str],
          readings_bps: Matrix,
          loaded: Iterable[tuple[Load, Mapping[Pair, float]]]) -> tree.Plane:
    """Build the tree with the rates of its uplinks.

    :param readings_bps: readings of the mixed rounds, see :func:`matrices`.
    :param loaded: each load and what its pairs got. A load of which a pair is
        missing does not count.
    """
    rates = _uplinks(found, _links(hosts, readings_bps), loaded)
    found = _limiting(found, rates)

    def node(branch: Branch) -> tree.Node:
        below = tuple(node(one) for one in found
                      if one.parent == branch.name)
        return tree.Node(branch.name, () if below else branch.hosts, below,
                         rates[branch.name])

    return tree.Plane(
        levels=tuple(tree.Level(tree.default_level_name(level))
                     for level in sorted({one.level for one in found})),
        roots=tuple(node(one) for one in found if one.parent is None))


def _limiting(found: Sequence[Branch], rates: Mapping[str, tree.Uplink]
              ) -> tuple[Branch, ...]:
    """Drop levels above the lowest whose uplinks limit nothing."""
    kept = {0} | {one.level for one in found if rates[one.name].is_given()}
    gone = {one.name: one.parent for one in found if one.level not in kept}

    def above(parent: str | None) -> str | None:
        while parent is not None and parent in gone:
            parent = gone[parent]
        return parent

    return tuple(dataclasses.replace(one, parent=above(one.parent))
                 for one in found if one.level in kept)


def _links(hosts: Sequence[str], readings_bps: Matrix
           ) -> dict[str, tuple[float, float]]:
    """Estimate each host's link rate out and in, bit/s."""

    def best(values: Matrix) -> float:
        known = values[np.isfinite(values)]
        return (float(np.quantile(known, _LINK_QUANTILE)) if known.size
                else math.nan)
    return {host: (best(readings_bps[:, i, :]), best(readings_bps[:, :, i]))
            for i, host in enumerate(hosts)}


def _uplinks(found: Sequence[Branch],
             links_bps: Mapping[str, tuple[float, float]],
             loaded: Iterable[tuple[Load, Mapping[Pair, float]]]
             ) -> dict[str, tree.Uplink]:
    """Compute each branch's uplink from the loads measured on it."""
    by_way: dict[tuple[str, bool], dict[str, list[tuple[float, float]]]] = {}
    for load, rates_bps in loaded:
        if all(pair in rates_bps for pair in load.pairs):
            by_way.setdefault((load.branch, load.is_up), {}).setdefault(
                load.peers, []).append((
                    sum(rates_bps[pair] for pair in load.pairs),
                    sum(min(links_bps[src][0], links_bps[dst][1])
                        for src, dst in load.pairs)))
    ways: dict[str, list[float | None]] = {one.name: [] for one in found}
    for is_up in (True, False):
        carried_bps: dict[str, float] = {}
        for branch in sorted(found, key=lambda one: one.level):
            below_bps = sum([carried_bps[one.name] for one in found
                             if one.parent == branch.name]
                            or [links_bps[host][not is_up]
                                for host in branch.hosts])
            rate_bps = _rate(by_way.get((branch.name, is_up), {}).values(),
                             below_bps)
            ways[branch.name].append(rate_bps)
            carried_bps[branch.name] = (
                below_bps if rate_bps is None else rate_bps)
    return {name: tree.Uplink(*rates) for name, rates in ways.items()}


def _rate(by_peers: Iterable[Sequence[tuple[float, float]]],
          below_bps: float) -> float | None:
    """Estimate the uplink's rate; None if something else limits.

    :param by_peers: sum of the rates of each load and the rate that the links
        of its hosts carry, by kind of peers.
    """
    medians = [[statistics.median(column) for column in zip(*rows)]
               for rows in by_peers]
    if not medians:
        return None
    rate_bps, links_bps = max(medians)
    return (rate_bps if rate_bps < UNLIMITED * min(below_bps, links_bps)
            else None)
