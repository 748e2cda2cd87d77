# SPDX-License-Identifier: Apache-2.0

import collections
import dataclasses
import itertools
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco import exception
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.solver import budget
from virtco.solver import planner
from virtco.solver import together

GB = 1e9
RATE_BPS = 8e9


def hosts(*free, names='abcdefgh'):
    return tuple(cluster.Host(name, (float(slots),), RATE_BPS, RATE_BPS)
                 for name, slots in zip(names, free))


def group(n_vms, flows, on, active=(), allowed=None):
    return snapshot.PlacementProblem(
        on, tuple(cluster.Vm(f'v{i}', (1.0,), allowed=allowed)
                  for i in range(n_vms)),
        (coflow_model.Coflow.from_flows('c', n_vms, flows),),
        active=tuple(active))


def plan(problems, **options):
    return together.plan(problems, clock=budget.Counter(), budget_s=0.1,
                         **options)


def test_one_group_is_planned_as_ever():
    alone = group(3, [(0, 1, GB), (2, 1, 2 * GB)], hosts(1, 1, 2))
    part, = plan([alone])
    assert part.problem is alone
    assert part.plan == planner.plan(alone, clock=budget.Counter(),
                                     budget_s=0.1)


@pytest.mark.parametrize('seed', [0, 4, 8, 10, 13])
def test_one_of_many_groups_is_split_where_it_costs_least(seed):
    """Local search alone does not exchange whole groups."""
    rng = random.Random(seed)
    room = hosts(4, 4, 3, 2, 1, 3)
    sizes = [{pair: rng.choice((1, 2, 5, 9)) for pair in
              itertools.permutations(range(3), 2)} for _ in range(5)]
    parts = plan([group(3, [(*pair, size * GB) for pair, size in of.items()],
                        room) for of in sizes],
                 objective=snapshot.Objective.JOINT)
    assert sum(part.plan.cct_s for part in parts) == pytest.approx(min(
        max(sum(size for pair, size in of.items() if pair[end] == vm)
            for end in (0, 1))
        for of in sizes for vm in range(3)))


def test_groups_share_what_is_there():
    """Either would take the only host that holds a group."""
    room = hosts(2, 1, 1)
    small, large = (group(2, [(0, 1, size)], room) for size in (GB, 5 * GB))
    parts = plan([small, large])
    assert parts[1].plan.hosts == ('a', 'a')
    assert set(parts[0].plan.hosts) == {'b', 'c'}
    assert [part.plan.cct_s for part in parts] == pytest.approx([1.0, 0.0])
    # One after the other, the first takes it and the second pays.
    assert plan([small])[0].plan.hosts == ('a', 'a')


def test_joined_vms_keep_their_pins_and_may_go_where_they_might_alone():
    pinned = cluster.Vm('v0', (1.0,), pinned='c')
    one = dataclasses.replace(
        group(2, [(0, 1, GB)], hosts(2, 2, 2)), vms=(
            pinned, cluster.Vm('v1', (1.0,), allowed=frozenset('cx'))),
        excluded_hosts=frozenset('a'))
    joined = together.join([one, group(1, [], hosts(2, 2))])
    assert joined.vms[0] == pinned
    assert [(vm.name, vm.allowed) for vm in joined.vms[1:]] == [
        ('v1', frozenset('c')), ('v0', frozenset('ab'))]


def test_a_problem_joined_alone_has_a_number_and_no_other_hosts():
    load = snapshot.ActiveCoflow('r', (('a', GB),), (('b', GB),))
    alone = group(2, [(0, 1, GB)], hosts(2, 2), [load])
    assert together.join([alone]) == dataclasses.replace(
        alone, vms=tuple(cluster.Vm(f'v{i}', (1.0,),
                                    allowed=frozenset('ab'))
                         for i in range(2)),
        coflows=(dataclasses.replace(alone.coflows[0], name='0/c'),))


def test_a_host_that_another_group_fills_has_no_room():
    filled, last = [group(1, [], hosts(size), allowed=frozenset('a'))
                    for size in (2, 2)]
    parts = plan([filled, dataclasses.replace(last, vms=(
        cluster.Vm('v0', (0.5,)),))])
    assert [part.problem.hosts[0].free for part in parts] == [(1.5,), (1.0,)]
    parts = plan([filled, filled])
    assert [part.problem.hosts[0].free for part in parts] == [(1.0,)] * 2
    parts = plan([group(2, [], hosts(2)), group(0, [], hosts(2))])
    assert [part.problem.hosts[0].free for part in parts] == [(2.0,), (0.0,)]


def test_figures_count_the_others():
    """Both send from the one host to the other, the smaller one first."""
    room = hosts(2, 2)
    apart = [dataclasses.replace(
        group(2, [(0, 1, size)], room), vms=tuple(
            cluster.Vm(f'v{i}', (1.0,), allowed=frozenset(host))
            for i, host in enumerate('ab'))) for size in (GB, 2 * GB)]
    first, second = plan(apart)
    assert first.plan.coflow_cct_s == pytest.approx((1.0,))
    assert second.plan.coflow_cct_s == pytest.approx((3.0,))
    assert second.plan.cct_s == pytest.approx(2.0)
    assert second.plan.lower_bound_s <= second.plan.cct_s
    assert [host.free for host in second.problem.hosts] == [(1.0,), (1.0,)]
    load, = second.problem.active
    assert load == snapshot.ActiveCoflow(
        '0/c', (('a', GB),), (('b', GB),), (('a', 'b', GB),))


def test_each_keeps_to_its_own_hosts_and_the_least_room():
    one = group(2, [(0, 1, GB)], hosts(2, 2, names='ab'))
    other = group(2, [(0, 1, GB)], hosts(1, 2, names='bc'))
    for part, names in zip(plan([one, other]), ('ab', 'bc')):
        assert set(part.plan.hosts) <= set(names)
        assert {host.name for host in part.problem.hosts} == set(names)
    joint = together.join([one, other])
    assert {host.name: host.free for host in joint.hosts} == {
        'a': (2.0,), 'b': (1.0,), 'c': (2.0,)}


def test_what_runs_is_known_on_the_hosts_of_all():
    def load(host):
        return snapshot.ActiveCoflow('x', ((host, GB),), (),
                                     ((host, 'z', GB),))

    joint = together.join([
        group(1, [], hosts(1, names='a'), [load('a')]),
        group(1, [], hosts(1, names='b'), [load('b')])])
    assert joint.active == (snapshot.ActiveCoflow(
        'x', (('a', GB), ('b', GB)), (), (('a', 'z', GB), ('b', 'z', GB))),)


def test_server_groups_keep_to_their_own():
    apart = snapshot.ServerGroup(snapshot.GroupPolicy.ANTI_AFFINITY, (0, 1))
    together_, spread = [dataclasses.replace(
        group(2, [(0, 1, GB)], hosts(4, 4)), server_groups=groups)
        for groups in ((), (apart,))]
    parts = plan([together_, spread])
    assert len(set(parts[0].plan.hosts)) == 1
    assert set(parts[1].plan.hosts) == {'a', 'b'}


def test_what_does_not_fit_together_is_refused():
    alone = group(2, [(0, 1, GB)], hosts(2, 1))
    assert plan([alone])
    with pytest.raises(exception.PlacementInfeasible):
        plan([alone, alone])


@hypothesis.given(st.data())
def test_no_host_is_over_booked(data):
    free = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    room = hosts(*free)
    problems = []
    for _ in range(data.draw(st.integers(2, 3))):
        n_vms = data.draw(st.integers(1, 3))
        flows = data.draw(st.lists(st.tuples(
            st.integers(0, n_vms - 1), st.integers(0, n_vms - 1),
            st.floats(1.0, GB)), max_size=4))
        problems.append(group(n_vms, flows, room))
    try:
        parts = plan(problems)
    except exception.PlacementInfeasible:
        assert sum(free) < sum(len(p.vms) for p in problems)
        return
    used = collections.Counter(
        host for part in parts for host in part.plan.hosts)
    assert all(used[host.name] <= host.free[0] for host in room)
    for problem, part in zip(problems, parts):
        assert len(part.plan.hosts) == len(problem.vms)
        # A certificate of each group by itself.
        assert part.plan.lower_bound_s <= part.plan.cct_s * (1 + 1e-9)
        assert all(load.coflow_id for load in part.problem.active)


def test_hosts_limit_all_where_they_limit_one():
    room = hosts(2, 2)
    groups = [dataclasses.replace(
        group(2, [(0, 1, GB)], room), hose_limits=limited)
        for limited in (False, True)]
    assert together.join(groups).hose_limits is True
    assert together.join(groups[:1] * 2).hose_limits is False


def test_every_group_keeps_its_own_wishes():
    """Bytes keep each group on one host; the second has to be spread."""
    room = hosts(2, 2, 2, 2)
    tree = cluster.Tree(tuple(
        cluster.Subtree(name, RATE_BPS, RATE_BPS) for name in ('r0', 'r1')),
        {'a': 'r0', 'b': 'r0', 'c': 'r1', 'd': 'r1'})
    groups = [dataclasses.replace(group(2, [(0, 1, GB)], room), tree=tree)
              for _ in range(2)]
    groups[1] = dataclasses.replace(
        groups[1], spread=(snapshot.Spread('rack', (0, 1)),))
    first, second = plan(groups)
    assert len(set(first.plan.hosts)) == 1
    assert {tree.leaf_of[host] for host in second.plan.hosts} == {'r0', 'r1'}
    assert second.problem.spread == groups[1].spread
    joined = together.join(groups)
    assert joined.spread == (snapshot.Spread('rack', (2, 3)),)
    within = (snapshot.Within('rack', (1,)),)
    assert together.join([groups[0], dataclasses.replace(
        groups[1], within=within)]).within == (
            snapshot.Within('rack', (3,)),)


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    sizes=st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6),
                   min_size=1, max_size=3),
    room=st.lists(st.integers(1, 4), min_size=5, max_size=5),
    n_fixed=st.integers(0, 2), seed=st.integers(0, 9))
def test_planning_again_keeps_what_is_fixed_and_saves(
        sizes, room, n_fixed, seed):
    """Each group of four has a host per VM, as far as there is room."""
    free = [host for host, n in zip('abcde', room) for _ in range(n)]
    random.Random(seed).shuffle(free)
    problems, before = [], []
    for its_sizes in sizes:
        placed = [free.pop() for _ in range(4) if free]
        if len(placed) < 4:
            break
        pairs = itertools.combinations(range(4), 2)
        one = group(4, [(*pair, size * GB) for pair, size in zip(
            pairs, its_sizes) if size], hosts(*room))
        problems.append(dataclasses.replace(one, vms=tuple(
            dataclasses.replace(vm, pinned=host) if i < n_fixed else vm
            for i, (vm, host) in enumerate(zip(one.vms, placed)))))
        before.append(tuple(placed))
    hypothesis.assume(problems)
    parts = together.again(problems, before, clock=budget.Counter(),
                           budget_s=0.05)
    if parts is None:
        return
    after = [part.plan.hosts for part in parts]
    assert all(new[:n_fixed] == old[:n_fixed]
               for new, old in zip(after, before))
    used = collections.Counter(itertools.chain.from_iterable(after))
    assert all(used[host] <= n for host, n in zip('abcde', room))
    joined = together.join(problems)
    old_s, new_s = (planner.evaluate(joined, dataclasses.replace(
        parts[0].plan, hosts=tuple(itertools.chain.from_iterable(some))),
        budget.Budget(budget.Counter(), 10)).objective_s
        for some in (before, after))
    assert new_s < old_s


def test_what_saves_nothing_is_not_planned_again():
    room = hosts(2, 2)
    pair = group(2, [(0, 1, GB)], room)
    assert together.again([pair, pair], [('a', 'a'), ('b', 'b')]) is None
    parts = together.again([pair, pair], [('a', 'b'), ('a', 'b')])
    assert [len(set(part.plan.hosts)) for part in parts] == [1, 1]
    assert together.again([pair, pair], [('a', 'b'), ('a', 'b')],
                          is_cancelled=lambda: True) is None
    crowded = group(5, [(0, 1, GB)], room)
    assert together.again([crowded], [('a', 'b', 'a', 'b', 'a')]) is None
