# SPDX-License-Identifier: Apache-2.0

"""VMs below one switch and spread over switches, against brute force."""

import dataclasses
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests import examples
from tests.unit.solver import problems
from tests.unit.solver import test_moves
from virtco import exception
from virtco.compiled import plain
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver.model import instance as instances
from virtco.solver.model import switches
from virtco.solver.moves import kernel
from virtco.solver.partition import setpartition

Objective = snapshot.Objective
FEW = hypothesis.settings(
    max_examples=examples.count(60), deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck))


@st.composite
def wished(draw, model='any'):
    """A random problem below a tree, with one or two wishes."""
    problem = draw(problems.problems(model))
    if not problem.tree.subtrees:
        problem = dataclasses.replace(problem, tree=draw(problems.trees(
            [host.name for host in problem.hosts])))
    n_vms = len(problem.vms)
    members = st.sets(st.integers(0, n_vms - 1), min_size=1).map(
        lambda found: tuple(sorted(found)))
    level = st.sampled_from(('1', '1', '2'))
    kind = draw(st.sampled_from(('within', 'spread', 'both')))
    return dataclasses.replace(
        problem,
        within=tuple(snapshot.Within(draw(level), draw(members)) for _ in
                     range(0 if kind == 'spread' else draw(
                         st.integers(1, 2)))),
        spread=tuple(snapshot.Spread(draw(level), draw(members), draw(
            st.integers(0, 1))) for _ in range(
                0 if kind == 'within' else draw(st.integers(1, 2)))))


@FEW
@hypothesis.given(wished())
def test_the_optimum_is_found_and_no_bound_is_above_it(problem):
    best = problems.optimum(problem, problems.isolated_s)
    if best is None:
        with pytest.raises(exception.PlacementInfeasible):
            planner.plan(problem, objective=snapshot.Objective.ISOLATED)
        return
    plan = planner.plan(problem, objective=snapshot.Objective.ISOLATED,
                        budget_s=2)
    assert problems.is_valid(problem, plan.hosts)
    assert problems.close(plan.cct_s, problems.isolated_s(
        problem, plan.hosts))
    assert plan.cct_s <= best * (1 + 1e-6)
    assert plan.lower_bound_s <= best * (1 + 1e-6)


@FEW
@hypothesis.given(wished('hose'))
def test_online_bounds_hold_under_wishes(problem):
    best = problems.optimum(problem, problems.online_s)
    hypothesis.assume(best is not None)
    with mock.patch.object(planner, 'is_judged', return_value=False):
        plan = planner.plan(problem, budget_s=2)
    assert problems.is_valid(problem, plan.hosts)
    assert plan.objective_s <= best * (1 + 1e-6) + 1e-12
    assert plan.objective_bound_s <= best * (1 + 1e-5) + 1e-12
    assert plan.lower_bound_s <= problems.optimum(
        problem, problems.isolated_s) * (1 + 1e-6)


def test_bytes_to_a_dead_port_elsewhere_leave_room_below_a_switch():
    """No placement ends before a coflow that never does."""
    hosts = [cluster.Host(f'h{i}', (2.0,), 1e9, 1e9 if i != 2 else 0.0)
             for i in range(3)]
    problem = snapshot.PlacementProblem(
        tuple(hosts), (cluster.Vm('v0', (1.0,)), cluster.Vm('v1', (1.0,))),
        (coflow.Coflow.from_flows('c', 2, [(0, 1, 1e6)]),),
        tree=cluster.Tree((cluster.Subtree('s0', 1e9, 1e9, level='1'),),
                          {'h0': 's0', 'h1': 's0'}),
        active=(snapshot.ActiveCoflow('a', (('h0', 1e7),), (('h2', 1e7),)),),
        resources=('vcpus',), within=(snapshot.Within('1', (0, 1)),))
    assert set(planner.plan(problem, budget_s=0.1).hosts) <= {'h0', 'h1'}


@FEW
@hypothesis.given(wished(), st.sampled_from(planner.PLANNERS))
def test_every_planner_keeps_wishes(problem, name):
    try:
        plan = planner.plan(problem, planner=name, budget_s=1, seed=3)
    except exception.PlacementInfeasible:
        assert problems.optimum(problem, problems.isolated_s) is None
        return
    assert problems.is_valid(problem, plan.hosts)


@FEW
@hypothesis.given(wished(), st.integers(0, 4))
def test_a_ranking_keeps_wishes(problem, vm_index):
    hypothesis.assume(vm_index < len(problem.vms) and not any(
        group.policy == 'affinity' for group in problem.server_groups))
    try:
        plan = planner.plan(problem, budget_s=1)
    except exception.PlacementInfeasible:
        return
    for row in planner.rank_hosts(problem, plan, vm_index):
        trial = list(plan.hosts)
        trial[vm_index] = row.host
        assert row.feasible == problems.is_valid(problem, trial), row
        assert row.why


SPREADS = wished('hose').map(lambda problem: dataclasses.replace(
    problem, within=(), spread=problem.spread or (snapshot.Spread(
        '1', tuple(range(len(problem.vms)))),)))


@FEW
@hypothesis.given(SPREADS, st.sampled_from((0, 3)), st.integers(0, 99))
def test_moves_keep_shares_and_their_books(problem, power, seed):
    search, start = test_moves.begin(problem, Objective.ISOLATED, seed)
    run = test_moves.Run(search, start, power, 60)
    inst = run.inst
    assert inst.fits(run.assign) and inst.fits(run.best)
    left = inst.left(inst.room, run.assign, inst.demand)
    # What is shared is kept once, where the first host that shares it is.
    assert np.array(run.state.free)[inst.slot] == pytest.approx(left)


@FEW
@hypothesis.given(SPREADS, st.integers(0, 10 ** 9))
def test_moves_of_shares_are_the_same_uncompiled(problem, seed):
    def run(code):
        search, start = test_moves.begin(problem, Objective.ISOLATED, seed,
                                         code)
        found, value = search.anneal(start, 60, power=3, hot=0.3)
        return found.tolist(), value, search.random.tolist()

    assert run(kernel) == run(plain(kernel.__name__))


def shared(n_vms, share, **changes):
    """An instance of two racks of two hosts, and what its VMs may share."""
    tree = cluster.Tree((cluster.Subtree('r0', 1e9, 1e9),
                         cluster.Subtree('r1', 1e9, 1e9)),
                        {f'h{m}': f'r{m // 2}' for m in range(4)})
    even = -(-n_vms // 2)
    return instances.build(snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (9.0,), 1e9, 1e9) for m in range(4)),
        tuple(cluster.Vm(f'v{j}', (1.0,), **changes.get(f'v{j}', {}))
              for j in range(n_vms)), (), tree,
        spread=(snapshot.Spread('rack', tuple(range(n_vms)),
                                share - even),)))


def test_a_share_is_one_resource_of_all_hosts_below_a_switch():
    inst = shared(5, 3, v4={'pinned': 'h1'})
    assert inst.sharing.tolist() == [[0, 0, 1, 1]]
    assert inst.demand.tolist() == [[1.0, 1.0]] * 4 + [[0.0, 0.0]]
    assert inst.free[:, 1].tolist() == [2.0, 2.0, 3.0, 3.0]
    slots = inst.slot
    assert slots[0, 1] == slots[1, 1] != slots[2, 1] == slots[3, 1]
    assert len(set(slots[:, 0].tolist()) | set(slots[:, 1].tolist())) == 6
    assert inst.fits(np.array([0, 1, 2, 3, 1]))
    assert not inst.fits(np.array([0, 1, 0, 3, 1]))
    assert inst.left(inst.free, np.array([0, 2]), inst.demand[:2])[
        :, 1].tolist() == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize('skew, t_s, verdict', [
    (0, 7.9, 'REFUTED'), (1, 0.1, 'FOUND')])
def test_set_partition_knows_shares(skew, t_s, verdict):
    """Three in each rack part a pair, of 8 s at least; four and two do not."""
    problem = dataclasses.replace(
        ring(spread=(snapshot.Spread('rack', tuple(range(6)), skew),)),
        vms=tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(6)),
        hosts=tuple(cluster.Host(f'h{m}', (6.0,), 1e9, 1e9)
                    for m in range(3)),
        coflows=(coflow.Coflow.from_flows('c', 6, [
            (0, 1, 4e9), (2, 3, 2e9), (4, 5, 1e9)]),))
    inst = instances.build(problem)
    partition = setpartition.Partition(inst, budgets.unlimited())
    found, assign = partition.decide(partition.within_s(t_s))
    assert found.name == verdict
    assert (assign is None) == (verdict == 'REFUTED')
    if assign is not None:
        assert inst.fits(assign)
        racks = [TREE.leaf_of[name] for name in inst.to_hosts(assign)]
        assert sorted(partition.master.shares) == pytest.approx(sorted(
            3 + skew - racks.count(rack) for rack in ('r0', 'r1')), abs=1e-6)
    # Shares that were used in a dive are there again.
    partition.master.release()
    assert partition.master.shares == pytest.approx(3 + skew)


TREE = cluster.Tree((
    cluster.Subtree('r0', 1e9, 1e9), cluster.Subtree('r1', 1e9, 1e9)),
    {'h0': 'r0', 'h1': 'r0', 'h2': 'r1'})


def ring(**wishes):
    return snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (3.0,), 1e9, 1e9) for m in range(4)),
        tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(3)),
        (coflow.Coflow.from_flows('c', 3, [
            (j, (j + 1) % 3, 1e9) for j in range(3)]),), TREE, **wishes)


@pytest.mark.parametrize('wishes, placed, why', [
    ({'spread': (snapshot.Spread('rack', (0, 1, 2)),)}, ('h0', 'h2', 'h2'),
     dict.fromkeys(('h2', 'h3'),
                   'no share of its group is left below that switch')),
    ({'within': (snapshot.Within('rack', (0, 1)),)}, ('h0', 'h1', 'h3'),
     dict.fromkeys(('h2', 'h3'), 'it has to share a switch with its group')),
    ({'within': (snapshot.Within('rack', (0,)),)}, ('h0', 'h1', 'h3'),
     {'h3': 'not below a switch that its wishes allow'}),
    ({'server_groups': (snapshot.ServerGroup(
        snapshot.GroupPolicy.ANTI_AFFINITY, (0, 1)),)}, ('h0', 'h1', 'h2'),
     {'h1': 'its anti-affinity group already has VMs there'})])
def test_a_ranking_says_which_wish_forbids_a_host(wishes, placed, why):
    problem = ring(**wishes)
    plan = dataclasses.replace(planner.plan(problem), hosts=placed)
    assert {row.host: row.why for row in planner.rank_hosts(
        problem, plan, 0) if not row.feasible} == why


def test_an_overbooked_host_lacks_nothing_that_the_vm_does_not_need():
    problem = ring(within=(snapshot.Within('rack', (0, 1)),))
    problem = dataclasses.replace(
        problem, resources=('slots', 'gpus'),
        hosts=tuple(dataclasses.replace(host, free=(1.0, 1.0))
                    for host in problem.hosts),
        vms=tuple(dataclasses.replace(vm, demand=demand)
                  for vm, demand in zip(problem.vms, (
                      (1.0, 0.0), (0.0, 1.0), (0.0, 1.0)))))
    plan = snapshot.Plan(
        ('h0', 'h1', 'h1'), 0.0, (), Objective.ISOLATED, 0.0, 0.0, 0.0,
        snapshot.Method.OTHER)
    assert {row.host: row.why for row in planner.rank_hosts(
        problem, plan, 0) if not row.feasible} == dict.fromkeys(
            ('h2', 'h3'), 'it has to share a switch with its group')


#: Racks r0, r1 and r2 of two hosts each below the zones z0 and z1; h6 is
#: below no switch.
ZONES = cluster.Tree(tuple(
    cluster.Subtree(name, 1e9, 1e9, level=level, parent=parent)
    for name, level, parent in (
        ('z0', 'zone', None), ('z1', 'zone', None), ('r0', 'rack', 'z1'),
        ('r1', 'rack', 'z0'), ('r2', 'rack', 'z1'))),
    {f'h{m}': f'r{m // 2}' for m in range(6)})


def zoned(pins, **wishes):
    """A problem of VMs of which some are pinned, below two zones."""
    return snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (9.0,), 1e9, 1e9) for m in range(7)),
        tuple(cluster.Vm(f'v{j}', (1.0,), pinned)
              for j, pinned in enumerate(pins)), (), ZONES, **wishes)


@pytest.mark.parametrize('level, expected', [
    ('zone', [1, 1, 0, 0, 1, 1, -1]), ('rack', [2, 2, 3, 3, 4, 4, -1]),
    ('row', [-1] * 7)])
def test_the_switch_of_a_level_above_each_host(level, expected):
    assert switches.above(zoned([]), level).tolist() == expected


@pytest.mark.parametrize('pins, tied, hosts', [
    # Where most are, and of as many the last in the tree.
    (['h0', 'h2', 'h3'], None, {2, 3}), (['h0', 'h2'], None, {2, 3}),
    (['h4', 'h5', 'h2', 'h6'], None, {4, 5}),
    # Pinned members count before VMs that are tied to others.
    (['h2'], 0, {2, 3}), ([], 0, {0, 1}), (['h6'], 1, {0, 1}),
    # Any switch where nobody is below one.
    ([], None, {0, 1, 2, 3, 4, 5}), (['h6'], None, {0, 1, 2, 3, 4, 5}),
    ([], 6, {0, 1, 2, 3, 4, 5})])
def test_new_members_join_those_that_are_below_a_switch(pins, tied, hosts):
    """Two new ones, of which the first may be tied to a pinned VM."""
    n = len(pins) + 2
    problem = zoned([*pins, None, None], within=(
        snapshot.Within('rack', tuple(range(n))),))
    node_of_vm = np.arange(n)[::-1].copy()
    fixed = np.full(n, -1)
    for vm, name in enumerate(pins):
        fixed[node_of_vm[vm]] = int(name[1:])
    if tied is not None:
        fixed[node_of_vm[len(pins)]] = tied
    allowed = np.ones((n, 7), dtype=bool)
    left = switches.together(problem, node_of_vm, fixed, allowed)
    for vm in range(n):
        assert set(np.flatnonzero(allowed[node_of_vm[vm]])) == (
            hosts if vm >= len(pins) else set(range(7)))
    if len(hosts) == 6:
        (wish,) = left
        assert wish.nodes.tolist() == [True, True] + [False] * len(pins)
        assert wish.switch.tolist() == [2, 2, 3, 3, 4, 4, -1]
        apart = np.full(n, 6)
        for found, holds in (((0, 1), True), ((0, 2), False),
                             ((6, 6), False), ((6, 1), False)):
            apart[:2] = found
            assert wish.holds(apart[None]).tolist() == [holds]
    else:
        assert left == ()


def test_shares_count_members_pinned_below_a_switch():
    """Five members for two zones: three each, less what is pinned there."""
    problem = zoned(['h0', 'h1', 'h6', None, None], spread=(
        snapshot.Spread('zone', (0, 1, 2, 3, 4)),
        snapshot.Spread('rack', (0, 3), 2)))
    # The last two VMs are one node, and VM 0 shares its node with nobody.
    node_of_vm, fixed = np.array([2, 1, 3, 0, 0]), np.array([-1, 1, 0, 6])
    allowed = np.ones((4, 7), dtype=bool)
    found = switches.shares(problem, node_of_vm, fixed, allowed)
    assert allowed.all()
    assert found.demand.tolist() == [[2, 1], [0, 0], [0, 0], [0, 0]]
    assert found.free[:, 0].tolist() == [1, 1, 3, 3, 1, 1, 0]
    assert found.free[:, 1].tolist() == [2, 2, 3, 3, 3, 3, 0]
    assert found.switch.tolist() == [[1, 1, 0, 0, 1, 1, -1],
                                     [2, 2, 3, 3, 4, 4, -1]]


@pytest.mark.parametrize('tied, skew, hosts', [
    (1, 1, range(7)), (1, 0, ()), (6, 1, ()), (2, 0, range(7))])
@pytest.mark.parametrize('level', ['rack', 'zone'])
def test_a_tied_member_beyond_the_share_has_no_host(tied, skew, hosts, level):
    """One each; v0 is pinned in r0, v1 is tied to a pinned VM."""
    problem = zoned(['h0', None], spread=(
        snapshot.Spread(level, (0, 1), skew),))
    allowed = np.ones((2, 7), dtype=bool)
    switches.shares(problem, np.array([0, 1]), np.array([0, tied]), allowed)
    assert np.flatnonzero(allowed[1]).tolist() == list(hosts)
    assert allowed[0].all()


@pytest.mark.parametrize('allowed, excluded, share', [
    (None, (), 2), (('h0', 'h2', 'h4'), (), 2), (('h0', 'h2'), (), 2),
    (('h0', 'h1', 'h2'), ('h2',), 4), (None, ('h4', 'h5'), 2),
    (('h6',), (), 4)])
def test_a_share_is_of_the_switches_that_members_may_use(
        allowed, excluded, share):
    """Four members: of three racks two each, of one rack all."""
    problem = zoned([None] * 4, spread=(
        snapshot.Spread('rack', (0, 1, 2, 3)),),
        excluded_hosts=frozenset(excluded))
    problem = dataclasses.replace(problem, vms=tuple(
        dataclasses.replace(vm, allowed=allowed and frozenset(allowed))
        for vm in problem.vms))
    found = switches.shares(problem, np.arange(4), np.full(4, -1),
                            np.ones((4, 7), dtype=bool))
    assert found.free[:, 0].tolist() == [share] * 6 + [0]


@pytest.mark.parametrize('skew, most', [(0, 2), (1, 3)])
def test_a_skew_is_what_a_switch_may_have_beyond_its_share(skew, most):
    plan = planner.plan(ring(spread=(
        snapshot.Spread('rack', (0, 1, 2), skew),)))
    assert max(map([TREE.leaf_of[host] for host in plan.hosts].count,
                   ('r0', 'r1'))) == most


@pytest.mark.parametrize('hosts, fits', [
    ((0, 1, 2), True), ((0, 2, 1), False), ((0, 0, 1), False)])
def test_an_assignment_keeps_room_and_wishes(hosts, fits):
    """The third has the VMs of the wish together, but no room."""
    problem = ring(within=(snapshot.Within('rack', (0, 1)),))
    inst = instances.build(dataclasses.replace(problem, hosts=tuple(
        dataclasses.replace(host, free=(1.0,)) for host in problem.hosts)))
    assert inst.fits(np.array(hosts)) is fits
