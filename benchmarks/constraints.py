# SPDX-License-Identifier: Apache-2.0

"""Plans and bounds under all constraints, against every placement there is.

``python -m benchmarks.constraints [--problems N] [--seed S] [--budget S]
[--json]``

A random problem has a tree of racks and pods, up to three resources, and
some of: VMs within or spread over switches, server groups of every policy,
availability zones, pinned VMs, drained hosts, pairs with rates of their own,
running coflows. All placements are listed and judged by code of its own;
the planner has ``--budget`` seconds of work, so that a run is the same on
every machine.

``unsound`` counts problems of which a bound is above the optimum, a
placement breaks a constraint, a time is misstated, or a placement is missed
or invented; ``worst_ratio`` is the largest objective by the optimum, and
``above_1_percent`` how many are more than 1.01. A ``kind`` names what a
problem has of wishes and groups. ``certified`` counts plans whose bound
meets them, ``certified_percent`` is the share whose bound is within 1 %, where
the racks' and pods' links are the only ones shared (*trees*) and where pairs
of hosts have rates (*pipes*).
"""

import argparse
import collections
import dataclasses
import itertools
import json
import math
import random
import statistics
import sys
from typing import Any

import numpy as np

from virtco import exception
from virtco import units
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner

#: What two times may differ by and be the same.
CLOSE = 1e-6
MOST_PLACEMENTS = 5000
RATES_BPS = (2e8, 4e8, 8e8, 1e9)
Objective = snapshot.Objective
Policy = snapshot.GroupPolicy
Problem = snapshot.PlacementProblem


def draw(seed: int) -> Problem:
    """A small problem with some of all constraints."""
    rng = random.Random(seed)
    n_vms = rng.randint(2, 6)
    n_hosts = rng.choice([m for m in range(2, 7)
                          if m ** n_vms <= MOST_PLACEMENTS])
    names = [f'h{m}' for m in range(n_hosts)]
    tree = _tree(rng, names)
    levels = sorted({one.level for one in tree.subtrees})
    resources = ('vcpus', 'memory_mb', 'disk_gb')[:rng.randint(1, 3)]
    vms = tuple(_vm(rng, f'v{j}', names, len(resources))
                for j in range(n_vms))
    has_pairs = rng.random() < 0.25
    hose = has_pairs and rng.random() < 0.5
    return Problem(
        hosts=tuple(cluster.Host(
            name, tuple(float(rng.randint(1, 6)) for _ in resources),
            rng.choice(RATES_BPS), rng.choice(RATES_BPS)) for name in names),
        vms=vms, tree=tree, resources=resources,
        coflows=tuple(_coflow(rng, f'c{i}', n_vms)
                      for i in range(rng.randint(1, 2))),
        active=tuple(_running(rng, f'a{i}', names)
                     for i in range(rng.choice((0, 0, 1, 2)))
                     # Pairs alone say nothing of what runs.
                     if hose or not has_pairs),
        server_groups=tuple(_group(rng, n_vms, names)
                            for _ in range(rng.choice((0, 0, 1, 2)))),
        pair_rate_bps={pair: rng.choice(RATES_BPS) for pair in
                       itertools.permutations(names, 2)}
        if has_pairs else None,
        hose_limits=hose,
        excluded_hosts=frozenset(rng.sample(names, 1)
                                 if rng.random() < 0.2 else ()),
        within=tuple(snapshot.Within(rng.choice(levels),
                                     _members(rng, n_vms))
                     for _ in range(rng.choice((0, 0, 1, 1, 2)))),
        spread=tuple(snapshot.Spread(
            rng.choice(levels), _members(rng, n_vms), rng.choice((0, 0, 1)))
            for _ in range(rng.choice((0, 0, 1, 1, 2)))))


def _members(rng: random.Random, n_vms: int) -> tuple[int, ...]:
    if rng.random() < 0.6:
        return tuple(range(n_vms))
    return tuple(sorted(rng.sample(range(n_vms), rng.randint(1, n_vms))))


def _tree(rng: random.Random, names: list[str]) -> cluster.Tree:
    def rate_bps() -> float:
        return rng.choice((*RATES_BPS, math.inf))

    pods = [cluster.Subtree(f'p{i}', rate_bps(), rate_bps(), level='pod')
            for i in range(rng.randint(1, 2))]
    racks = [cluster.Subtree(f'r{i}', rate_bps(), rate_bps(),
                             rng.choice(pods).name)
             for i in range(rng.randint(2, 3))]
    leaves = [*(one.name for one in racks)] * 3 + [pods[0].name, None]
    leaf_of = {name: rng.choice(leaves) for name in names}
    return cluster.Tree((*pods, *racks), {
        name: leaf for name, leaf in leaf_of.items() if leaf is not None})


def _vm(rng: random.Random, name: str, names: list[str], n_resources: int
        ) -> cluster.Vm:
    pinned = rng.choice(names) if rng.random() < 0.12 else None
    zone = (frozenset(rng.sample(names, rng.randint(1, len(names))))
            if rng.random() < 0.2 else None)
    return cluster.Vm(
        name, tuple(float(rng.choice((0, 1, 1, 2)))
                    for _ in range(n_resources)),
        pinned, pinned is not None and rng.random() < 0.7, zone)


def _coflow(rng: random.Random, name: str, n_vms: int) -> coflow.Coflow:
    pairs = list(itertools.permutations(range(n_vms), 2))
    return coflow.Coflow.from_flows(name, n_vms, [
        (*pair, 1e7 * rng.lognormvariate(0, 1))
        for pair in rng.sample(pairs, rng.randint(1, min(9, len(pairs))))])


def _running(rng: random.Random, name: str, names: list[str]
             ) -> snapshot.ActiveCoflow:
    return snapshot.ActiveCoflow.of(name, [
        (*pair, 1e7 * rng.lognormvariate(0, 1)) for pair in rng.sample(
            list(itertools.permutations(names, 2)), rng.randint(1, 2))])


def _group(rng: random.Random, n_vms: int, names: list[str]
           ) -> snapshot.ServerGroup:
    return snapshot.ServerGroup(
        rng.choice(tuple(Policy)),
        tuple(sorted(rng.sample(range(n_vms), rng.randint(2, n_vms)))),
        frozenset(rng.sample(names, 1) if rng.random() < 0.2 else ()),
        rng.randint(1, 2))


@dataclasses.dataclass(frozen=True)
class Placements:
    """Every valid placement of a problem; N of them.

    :ivar hosts: host per VM, shape (N, n).
    :ivar cct_s: of the own coflows together, shape (N,).
    :ivar joint_s: sum of all prefix CCTs, shape (N,).
    """

    hosts: np.ndarray
    cct_s: np.ndarray
    joint_s: np.ndarray


def enumerate_all(problem: Problem) -> Placements:
    """List and judge all valid placements of a problem."""
    index = {host.name: m for m, host in enumerate(problem.hosts)}
    hosts = np.array(list(itertools.product(
        range(len(index)), repeat=len(problem.vms))))
    valid = np.ones(len(hosts), dtype=bool)
    for j, vm in enumerate(problem.vms):
        if vm.pinned is not None:
            valid &= hosts[:, j] == index[vm.pinned]
            continue
        valid &= np.isin(hosts[:, j], [
            m for name, m in index.items() if name not in
            problem.excluded_hosts and (vm.allowed is None
                                        or name in vm.allowed)])
    hosts = hosts[valid]
    valid = _rooms(problem, hosts)
    for group in problem.server_groups:
        valid &= _keeps_group(problem, group, hosts, index)
    for within in problem.within:
        valid &= _keeps_within(problem, within, hosts)
    for spread in problem.spread:
        valid &= _keeps_spread(problem, spread, hosts)
    hosts = hosts[valid]
    return Placements(hosts, *_judge(problem, hosts))


def _rooms(problem: Problem, hosts: np.ndarray) -> np.ndarray:
    valid = np.ones(len(hosts), dtype=bool)
    for r in range(len(problem.resources)):
        for m, host in enumerate(problem.hosts):
            used = np.zeros(len(hosts))
            for j, vm in enumerate(problem.vms):
                if not (vm.pinned is not None and vm.counted):
                    used += vm.demand[r] * (hosts[:, j] == m)
            valid &= (used <= host.free[r] + 1e-9) | (used == 0)
    return valid


def _keeps_group(problem: Problem, group: snapshot.ServerGroup,
                 hosts: np.ndarray, index: dict[str, int]) -> np.ndarray:
    """Soft policies are Nova's own to weigh."""
    valid = np.ones(len(hosts), dtype=bool)
    taken = [index[name] for name in group.taken_hosts]
    mine = hosts[:, group.members]
    new = [j for j in group.members if problem.vms[j].pinned is None]
    if group.policy == Policy.AFFINITY:
        valid &= (mine == mine[:, :1]).all(axis=1)
        for j in new if taken else ():
            valid &= np.isin(hosts[:, j], taken)
    elif group.policy == Policy.ANTI_AFFINITY:
        for j in new:
            beside = (mine == hosts[:, [j]]).sum(axis=1)
            beside += np.isin(hosts[:, j], taken)
            valid &= beside <= group.max_per_host
    return valid


def _switches(problem: Problem, level: str) -> np.ndarray:
    """Place in the tree of the switch of a level above a host, or -1."""
    places = {one.name: q for q, one in enumerate(problem.tree.subtrees)}
    found = []
    for host in problem.hosts:
        name = problem.tree.leaf_of.get(host.name)
        while name is not None and problem.tree.subtrees[
                places[name]].level != level:
            name = problem.tree.subtrees[places[name]].parent
        found.append(-1 if name is None else places[name])
    return np.array(found)


def _keeps_within(problem: Problem, wish: snapshot.Within,
                  hosts: np.ndarray) -> np.ndarray:
    switch = _switches(problem, wish.level)
    names = [host.name for host in problem.hosts]
    run = [int(switch[names.index(str(problem.vms[j].pinned))])
           for j in wish.members if problem.vms[j].pinned is not None]
    run = [place for place in run if place >= 0]
    new = [j for j in wish.members if problem.vms[j].pinned is None]
    below = switch[hosts[:, new]]
    if not new:
        return np.ones(len(hosts), dtype=bool)
    if run:
        home = max(run, key=lambda place: (run.count(place), place))
        return (below == home).all(axis=1)
    return (below[:, 0] >= 0) & (below == below[:, :1]).all(axis=1)


def _keeps_spread(problem: Problem, wish: snapshot.Spread,
                  hosts: np.ndarray) -> np.ndarray:
    switch = _switches(problem, wish.level)
    usable = set()
    for m, host in enumerate(problem.hosts):
        for vm in (problem.vms[j] for j in wish.members):
            may_go = vm.pinned is None and (
                host.name not in problem.excluded_hosts
                and (vm.allowed is None or host.name in vm.allowed))
            if switch[m] >= 0 and (may_go or vm.pinned == host.name):
                usable.add(int(switch[m]))
    share = math.ceil(len(wish.members) / max(1, len(usable))) + wish.skew
    below = switch[hosts[:, wish.members]]
    valid = np.ones(len(hosts), dtype=bool)
    for j in wish.members:
        if problem.vms[j].pinned is None:
            mine = switch[hosts[:, j]]
            valid &= (mine >= 0) & (
                (below == mine[:, None]).sum(axis=1) <= share)
    return valid


def _judge(problem: Problem, hosts: np.ndarray
           ) -> tuple[np.ndarray, np.ndarray]:
    """Time of the own coflows together, and the sum of all prefix CCTs."""
    ports, s_per_byte = _ports(problem)
    n_own, n_running = len(problem.coflows), len(problem.active)
    loads = np.zeros((len(hosts), n_running + n_own, len(s_per_byte)))
    index = {host.name: m for m, host in enumerate(problem.hosts)}
    n_fabric = len(s_per_byte) - len(index) ** 2
    for i, running in enumerate(problem.active):
        for src, dst, size_bytes in running.pairs:
            passed = ports[index[src]][index[dst]]
            passed = passed[passed < n_fabric]  # no load of pairs is known
            loads[:, i, passed] += size_bytes
    for i, own in enumerate(problem.coflows):
        for flow in own.flows:
            for a, b in itertools.permutations(range(len(index)), 2):
                at = (hosts[:, flow.src] == a) & (hosts[:, flow.dst] == b)
                if at.any():
                    rows = np.ix_(at, np.array([n_running + i]), ports[a][b])
                    loads[rows] += flow.size_bytes
    cct_s = (loads[:, n_running:].sum(axis=1) * s_per_byte).max(axis=1)
    order = np.argsort((loads * s_per_byte).max(axis=2), axis=1,
                       kind='stable')
    prefixes = np.take_along_axis(loads, order[:, :, None], axis=1).cumsum(
        axis=1)
    return cct_s, (prefixes * s_per_byte).max(axis=2).sum(axis=1)


def _ports(problem: Problem) -> tuple[list[list[np.ndarray]], np.ndarray]:
    """Ports between two hosts, and every port's seconds per byte."""
    hosts, tree = problem.hosts, problem.tree
    m, q = len(hosts), len(tree.subtrees)
    parents = {one.name: one.parent for one in tree.subtrees}
    place = {one.name: i for i, one in enumerate(tree.subtrees)}
    above = []
    for host in hosts:
        chain: set[int] = set()
        leaf = tree.leaf_of.get(host.name)
        while leaf is not None:
            chain.add(place[leaf])
            leaf = parents[leaf]
        above.append(chain)
    pairs = problem.pair_rate_bps
    rates = [host.egress_bps for host in hosts]
    rates += [host.ingress_bps for host in hosts]
    rates += [one.uplink_out_bps for one in tree.subtrees]
    rates += [one.uplink_in_bps for one in tree.subtrees]
    if pairs is not None and not problem.hose_limits:
        rates = [math.inf] * len(rates)
    rates += [math.inf if pairs is None or src is dst else
              pairs[src.name, dst.name] for src in hosts for dst in hosts]
    ports = [[np.array([
        a, m + b, *(2 * m + one for one in above[a] - above[b]),
        *(2 * m + q + one for one in above[b] - above[a]),
        2 * (m + q) + a * m + b]) for b in range(m)] for a in range(m)]
    return ports, units.BITS_PER_BYTE / np.array(rates)


def check(problem: Problem, objective: Objective, budget_s: float
          ) -> dict[str, Any]:
    """Plan a problem, and hold the plan against all placements."""
    known = enumerate_all(problem)
    times_s = known.cct_s if objective == Objective.ISOLATED else (
        known.joint_s)
    row: dict[str, Any] = {
        'kind': kind_of(problem), 'ratio': None, 'faults': [],
        'certified': False, 'within_1_percent': False,
        'links': 'trees' if problem.pair_rate_bps is None else 'pipes'}
    try:
        plan = planner.plan(problem, objective=objective, budget_s=budget_s,
                            clock=budgets.Counter())
    except exception.PlacementInfeasible as error:
        if len(times_s):
            row['faults'].append(f'missed: {error}')
        return row
    names = [host.name for host in problem.hosts]
    found = np.array([names.index(host) for host in plan.hosts])
    place = np.flatnonzero((known.hosts == found).all(axis=1))
    if not len(place):
        row['faults'].append('it breaks a constraint')
        return row
    if not math.isclose(plan.objective_s, times_s[place[0]],
                        rel_tol=CLOSE) or not math.isclose(
                            plan.cct_s, known.cct_s[place[0]],
                            rel_tol=CLOSE):
        row['faults'].append('a time is misstated')
    least_s = float(times_s.min())
    if plan.lower_bound_s > known.cct_s.min() * (1 + CLOSE):
        row['faults'].append('the bound of t is above the optimum')
    if plan.objective_bound_s > least_s * (1 + CLOSE):
        row['faults'].append('the bound of the objective is above it')
    row['ratio'] = (1.0 if plan.objective_s <= least_s * (1 + CLOSE) else
                    plan.objective_s / least_s if least_s else math.inf)
    row['certified'] = plan.objective_bound_s >= plan.objective_s * (
        1 - CLOSE)
    row['within_1_percent'] = (plan.objective_bound_s
                               >= plan.objective_s / 1.01)
    return row


def kind_of(problem: Problem) -> str:
    """What a problem has of wishes and groups."""
    policies = {group.policy.value for group in problem.server_groups}
    return '+'.join([*('within' for _ in problem.within[:1]),
                     *('spread' for _ in problem.spread[:1]),
                     *sorted(policies)]) or 'none'


def run(n_problems: int, seed: int, budget_s: float) -> dict[str, Any]:
    """Check problems, every second one for the sum of prefix CCTs."""
    rows, faults = [], []
    for number in range(seed, seed + n_problems):
        row = check(draw(number), (Objective.ISOLATED, Objective.JOINT)[
            number % 2], budget_s)
        rows.append(row)
        faults += [{'problem': number, 'fault': text}
                   for text in row['faults'][:1]]
    ratios = [row['ratio'] for row in rows if row['ratio'] is not None]
    kinds = collections.Counter(row['kind'] for row in rows)
    return {
        'problems': n_problems, 'feasible': len(ratios),
        'unsound': len(faults), 'worst_ratio': max(ratios, default=None),
        'above_1_percent': sum(ratio > 1.01 for ratio in ratios),
        'certified': sum(row['certified'] for row in rows),
        'certified_percent': {links: 100 * statistics.fmean(
            row['within_1_percent'] for row in rows
            if row['links'] == links and row['ratio'] is not None)
            for links in sorted({row['links'] for row in rows
                                 if row['ratio'] is not None})},
        'kinds': len(kinds), 'faults': faults}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--problems', type=int, default=1000)
    parser.add_argument('--seed', type=int, default=0, help='of the first')
    parser.add_argument('--budget', type=float, default=0.05,
                        help='seconds of work for a plan (default 0.05)')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    planner.load_libraries()
    result = run(options.problems, options.seed, options.budget)
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        for name, value in result.items():
            print(f'{name:18}{value}')
    return 1 if result['unsound'] else 0


if __name__ == '__main__':
    sys.exit(main())
