# SPDX-License-Identifier: Apache-2.0

"""Small placement problems, and their costs worked out the slow way."""

import dataclasses
import itertools
import math

from hypothesis import strategies as st

from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver.model import loads
from virtco.solver.model import uplink_arrays as uplinks

BITS = 8


def fig_1_problem(**changes):
    """VirtCO Fig. 1: three VMs, two coflows, hosts of 2 slots and 1 unit."""
    fields = {
        'hosts': tuple(cluster.Host(f'h{m}', (2.0,), 8.0, 8.0)
                       for m in range(3)),
        'vms': tuple(cluster.Vm(f'vm{j}', (1.0,)) for j in range(3)),
        'coflows': (
            coflow.Coflow.from_flows('C1', 3, [(0, 1, 5), (1, 2, 1),
                                               (2, 0, 2)]),
            coflow.Coflow.from_flows('C2', 3, [(1, 2, 1), (2, 1, 2)]))}
    return snapshot.PlacementProblem(**{**fields, **changes})


def times_s(problem, placement, flows):
    """Time per port of flows (src VM, dst VM, bytes), a plain reading."""
    hosts = {host.name: host for host in problem.hosts}
    pairs = problem.pair_rate_bps
    hose = pairs is None or problem.hose_limits
    load, rate = {}, {}
    for src, dst, size in flows:
        a, b = placement[src], placement[dst]
        if a == b or size <= 0:
            continue
        ports = []
        if hose:
            ports += [((a, 'out'), hosts[a].egress_bps),
                      ((b, 'in'), hosts[b].ingress_bps)]
            ports += [((one, way), _rates(problem)[one, way])
                      for one, way in _uplinks(problem.tree, a, b)]
        if pairs is not None:
            ports.append(((a, b), pairs[a, b]))
        for port, bps in ports:
            load[port] = load.get(port, 0.0) + size
            rate[port] = bps
    return load, rate


def _above(tree, host):
    """Names of all subtrees that a host is in."""
    parents = {one.name: one.parent for one in tree.subtrees}
    found, name = set(), tree.leaf_of.get(host)
    while name is not None:
        found.add(name)
        name = parents[name]
    return found


def _uplinks(tree, a, b):
    above_a, above_b = _above(tree, a), _above(tree, b)
    return [*((one, 'up') for one in above_a - above_b),
            *((one, 'down') for one in above_b - above_a)]


def slowest_s(load, rate):
    return max((math.inf if rate[port] == 0 else BITS * size / rate[port]
                for port, size in load.items() if size > 0), default=0.0)


def isolated_s(problem, placement):
    flows = [(f.src, f.dst, f.size_bytes)
             for c in problem.coflows for f in c.flows]
    return slowest_s(*times_s(problem, placement, flows))


def online_s(problem, placement):
    """Sum of prefix CCTs, and what coflows to come will wait."""
    running = [_running_load(problem, active) for active in problem.active]
    running = [load for load in running if load]
    rates = _rates(problem)
    alone = dataclasses.replace(problem, coflows=(), active=tuple(
        active for active in problem.active
        if _running_load(problem, active)))
    mean_s = joint_s(alone, ()) / len(running) if running else 0.0
    if not 0 < mean_s < math.inf:
        return joint_s(problem, placement)
    own, rate = times_s(problem, placement, [
        (f.src, f.dst, f.size_bytes)
        for c in problem.coflows for f in c.flows])
    ahead_s = 0.0
    hosts = {host.name for host in problem.hosts}
    counted = {one.name for one in uplinks.of(problem).subtrees}
    for port, size in own.items():
        if not size or port[1] in hosts or (
                port[1] in ('up', 'down') and port[0] not in counted):
            continue
        own_s = slowest_s({port: size}, rate)
        backlog_s = sum(slowest_s({port: load[port]}, rates)
                        for load in running if port in load)
        ahead_s += own_s * (2 * backlog_s + own_s)
    return joint_s(problem, placement) + (
        len(running) / mean_s / (4 * (len(hosts) + len(counted))) * ahead_s)


def _rates(problem):
    rates = {(host.name, way): rate for host in problem.hosts for way, rate
             in (('out', host.egress_bps), ('in', host.ingress_bps))}
    for one in problem.tree.subtrees:
        rates[one.name, 'up'] = one.uplink_out_bps
        rates[one.name, 'down'] = one.uplink_in_bps
    return rates


def _running_load(problem, active):
    load = {}
    names = {host.name for host in problem.hosts}
    pipes_only = problem.pair_rate_bps is not None and not problem.hose_limits
    if not pipes_only:
        for src, dst, size in loads.pairs_of(active):
            for port in _uplinks(problem.tree, src, dst):
                if size > 0:
                    load[port] = load.get(port, 0.0) + size
    for way, entries in (('out', active.out_bytes), ('in', active.in_bytes)):
        for name, size in entries:
            if size > 0 and name in names:
                load[name, way] = load.get((name, way), 0.0) + size
    return load


def joint_s(problem, placement):
    """Sum of prefix CCTs in MRTF order, active coflows first on a tie."""
    all_loads = []
    rates = _rates(problem)
    for active in problem.active:
        all_loads.append(_running_load(problem, active))
    for own in problem.coflows:
        load, rate = times_s(problem, placement, [
            (f.src, f.dst, f.size_bytes) for f in own.flows])
        rates.update(rate)
        all_loads.append(load)
    order = sorted(range(len(all_loads)),
                   key=lambda i: (slowest_s(all_loads[i], rates), i))
    total, result = {}, 0.0
    for i in order:
        for port, size in all_loads[i].items():
            total[port] = total.get(port, 0.0) + size
        result += slowest_s(total, rates)
    return result


def is_valid(problem, placement):
    """Every hard constraint, worked out from the problem alone."""
    used = {host.name: [0.0] * len(problem.resources)
            for host in problem.hosts}
    for vm, name in zip(problem.vms, placement, strict=True):
        if vm.pinned is not None:
            if name != vm.pinned:
                return False
        elif name in problem.excluded_hosts or (
                vm.allowed is not None and name not in vm.allowed):
            return False
        if not (vm.pinned is not None and vm.counted):
            used[name] = [a + b for a, b in zip(used[name], vm.demand,
                                                strict=True)]
    for host in problem.hosts:
        if any(u > f + 1e-9 and u > 0 for u, f in zip(
                used[host.name], host.free, strict=True)):
            return False
    return (all(_keeps(problem, group, placement)
                for group in problem.server_groups)
            and all(_shares(problem, wish, placement)
                    for wish in problem.within)
            and all(_spreads(problem, wish, placement)
                    for wish in problem.spread))


def _switch(problem, level, host):
    """Name of the switch of a level above a host, None for none."""
    levels = {one.name: one.level for one in problem.tree.subtrees}
    return next((name for name in sorted(_above(problem.tree, host))
                 if levels[name] == level), None)


def _shares(problem, wish, placement):
    """The new ones are below the switch of most that run, or any one."""
    def switch(host):
        return _switch(problem, wish.level, host)

    vms = [problem.vms[vm] for vm in wish.members]
    new = [switch(placement[vm]) for vm in wish.members
           if problem.vms[vm].pinned is None]
    run = [switch(vm.pinned) for vm in vms if vm.pinned is not None]
    run = [name for name in run if name is not None]
    if run:
        order = [one.name for one in problem.tree.subtrees]
        home = max(order, key=lambda name: (run.count(name),
                                            order.index(name)))
        return all(name == home for name in new)
    return not new or (new[0] is not None and len(set(new)) == 1)


def _spreads(problem, wish, placement):
    def switch(host):
        return _switch(problem, wish.level, host)

    usable = set()
    for vm in (problem.vms[vm] for vm in wish.members):
        if vm.pinned is not None:
            usable.add(switch(vm.pinned))
            continue
        usable |= {switch(host.name) for host in problem.hosts
                   if host.name not in problem.excluded_hosts
                   and (vm.allowed is None or host.name in vm.allowed)}
    usable -= {None}
    share = wish.skew + -(-len(wish.members) // max(1, len(usable)))
    found = [switch(placement[vm]) for vm in wish.members]
    return all(found[i] is not None and found.count(found[i]) <= share
               for i, vm in enumerate(wish.members)
               if problem.vms[vm].pinned is None)


def _keeps(problem, group, placement):
    names = [placement[vm] for vm in group.members]
    new = [vm for vm in group.members if problem.vms[vm].pinned is None]
    if group.policy == snapshot.GroupPolicy.AFFINITY:
        if len(set(names)) > 1:
            return False
        return not group.taken_hosts or all(
            placement[vm] in group.taken_hosts for vm in new)
    if group.policy == snapshot.GroupPolicy.ANTI_AFFINITY:
        return all(
            names.count(placement[vm])
            + (placement[vm] in group.taken_hosts) <= group.max_per_host
            for vm in new)
    return True


def optimum(problem, cost):
    """Least cost over all valid placements; None when there is none."""
    names = [host.name for host in problem.hosts]
    return min((cost(problem, placement) for placement in
                itertools.product(names, repeat=len(problem.vms))
                if is_valid(problem, placement)), default=None)


RATES = st.sampled_from((8e8, 4e8, 1e9, 2e8))
ANY_RATES = st.sampled_from((8e8, 4e8, 1e9, 2e8, 0.0))
SIZES = st.integers(0, 30).map(lambda x: x * 1e7)


@st.composite
def trees(draw, names, rates=RATES):
    """Up to three levels over hosts of these names, leaves at any depth."""
    subtrees = []
    for i in range(draw(st.integers(1, 5))):
        parent = draw(st.sampled_from([None, *(
            one for one in subtrees if one.level != '3')]))
        subtrees.append(cluster.Subtree(
            f's{i}', draw(rates), draw(rates), parent and parent.name,
            str(1 + int(parent.level)) if parent else '1'))
    leaves = st.sampled_from([None, *(one.name for one in subtrees)])
    found = {name: draw(leaves) for name in names}
    return cluster.Tree(tuple(draw(st.permutations(subtrees))), {
        name: leaf for name, leaf in found.items() if leaf is not None})


@st.composite
def problems(draw, model='any', max_vms=5, extras=True):
    """2-4 hosts, 1-5 VMs, one or two resources, anything else at times."""
    n_hosts = draw(st.integers(2, 4 if max_vms < 6 else 3))
    n_vms = draw(st.integers(1, max_vms))
    resources = ('vcpus', 'ram')[:draw(st.integers(1, 2))]
    model = draw(st.sampled_from(('hose', 'tree', 'pipe', 'both'))
                 if model == 'any' else st.just(model))
    rates = RATES
    hosts = tuple(cluster.Host(
        f'h{m}', tuple(float(draw(st.integers(0, 5))) for _ in resources),
        draw(rates), draw(st.sampled_from((8e8, 4e8, 1e9, 0.0))))
        for m in range(n_hosts))
    names = [host.name for host in hosts]
    vms = []
    for j in range(n_vms):
        pinned = draw(st.sampled_from((None,) * 5 + tuple(names))
                      if extras else st.none())
        allowed = draw(st.sampled_from(
            (None, None, None, frozenset(names[1:]))) if extras
            else st.none())
        vms.append(cluster.Vm(
            f'v{j}', tuple(float(draw(st.sampled_from((1, 1, 2, 0))))
                           for _ in resources),
            pinned, pinned is not None and draw(st.booleans()), allowed))
    index = st.integers(0, n_vms - 1)
    size = st.integers(0, 30).map(lambda x: x * 1e7)
    coflows = tuple(coflow.Coflow.from_flows(f'c{i}', n_vms, draw(
        st.lists(st.tuples(index, index, size), max_size=8)))
        for i in range(draw(st.integers(1, 2))))
    groups = ()
    if extras and n_vms > 1 and draw(st.integers(0, 2)) == 0:
        groups = (snapshot.ServerGroup(
            draw(st.sampled_from(snapshot.GroupPolicy)),
            tuple(range(draw(st.integers(2, n_vms)))),
            frozenset(names[:draw(st.integers(0, 1))]),
            draw(st.integers(1, 2))),)
    active = tuple(snapshot.ActiveCoflow(
        f'a{i}', ((draw(st.sampled_from(names)), draw(size)),),
        ((draw(st.sampled_from(names)), draw(size)),))
        for i in range(draw(st.integers(0, 2)) if extras else 0))
    pairs = {(a, b): draw(rates) for a in names for b in names if a != b}
    tree = draw(trees(names)) if model == 'tree' else cluster.Tree()
    return snapshot.PlacementProblem(
        hosts, tuple(vms), coflows, tree, active, groups,
        pairs if model in ('pipe', 'both') else None,
        model == 'both', resources,
        frozenset(names[-1:]) if extras and draw(st.integers(0, 4)) == 0
        else frozenset())


@st.composite
def busy_problems(draw):
    """Several own and running coflows over hosts, racks and pairs."""
    model = draw(st.sampled_from(('hose', 'tree', 'pipe', 'both')))
    n_hosts, n_vms = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    hosts = tuple(cluster.Host(
        f'h{m}', (float(draw(st.integers(2, 9))),), draw(ANY_RATES),
        draw(ANY_RATES)) for m in range(n_hosts))
    names = st.sampled_from([host.name for host in hosts])
    beyond = st.sampled_from([*(host.name for host in hosts), 'x0', 'x1'])
    vms = tuple(cluster.Vm(f'v{j}', (1.0,), draw(
        st.one_of(st.none(), st.none(), st.none(), names)))
        for j in range(n_vms))
    index = st.integers(0, n_vms - 1)
    coflows = tuple(coflow.Coflow.from_flows(f'c{i}', n_vms, draw(
        st.lists(st.tuples(index, index, SIZES), max_size=8)))
        for i in range(draw(st.integers(1, 4))))
    entries = st.lists(st.tuples(beyond, SIZES), max_size=4).map(tuple)
    active = tuple(
        snapshot.ActiveCoflow(f'a{i}', draw(entries), draw(entries))
        for i in range(draw(st.integers(0, 6))))
    groups = ()
    if n_vms > 1 and draw(st.booleans()):
        policy = draw(st.sampled_from(snapshot.GroupPolicy))
        groups = (snapshot.ServerGroup(policy, tuple(range(
            draw(st.integers(2, n_vms)))), max_per_host=2),)
    pairs = {pair: draw(ANY_RATES) for pair in itertools.permutations(
        [host.name for host in hosts], 2)}
    return snapshot.PlacementProblem(
        hosts, vms, coflows, draw(trees(
            [*(host.name for host in hosts), 'x0', 'x1'], ANY_RATES))
        if model == 'tree' else cluster.Tree(), active, groups,
        pairs if model in ('pipe', 'both') else None,
        model == 'both')


def close(a, b):
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b))
