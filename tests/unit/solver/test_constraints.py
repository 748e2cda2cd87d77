# SPDX-License-Identifier: Apache-2.0

"""Capacities, pins and groups as arrays, by small clouds."""

import dataclasses

import numpy as np
import pytest

from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver.model import constraints
from virtco.solver.model import instance as instances

AFFINITY = snapshot.GroupPolicy.AFFINITY
ANTI = snapshot.GroupPolicy.ANTI_AFFINITY


def problem(vms, frees=((4.0,), (3.0,), (2.0,)), **changes):
    fields = {
        'hosts': tuple(cluster.Host(f'h{m}', free, 8e9, 8e9)
                       for m, free in enumerate(frees)),
        'vms': tuple(cluster.Vm(f'v{j}', *vm) for j, vm in enumerate(vms)),
        'coflows': ()}
    return snapshot.PlacementProblem(**{**fields, **changes})


def build(*args, **kwargs):
    return instances.build(problem(*args, **kwargs))


def group(policy, *members, taken=(), most=1):
    return snapshot.ServerGroup(policy, members, frozenset(taken), most)


ONE = ((1.0,),)


def test_affinity_makes_one_node_of_what_is_tied():
    inst = build([((1.0,),), ((2.0,),), ((4.0,),), ((0.5,),), ((8.0,),)],
                 frees=((9.0,),) * 2, server_groups=(
                     group(AFFINITY, 3, 1), group(AFFINITY, 0, 3),
                     group(ANTI, 2, 4)))
    assert inst.node_vms == ((0, 1, 3), (2,), (4,))
    assert inst.node_of_vm.tolist() == [0, 0, 1, 0, 2]
    assert inst.demand.tolist() == [[3.5, 0], [4, 1], [8, 1]]
    assert inst.free.tolist() == [[9, 1], [9, 1]]


def test_a_pin_takes_its_room_unless_it_was_counted():
    vms = [((1.0,), 'h0'), ((2.0,), 'h0', True), ((1.5,), 'h1'), ONE[0]]
    inst = build(vms[:3] + [ONE])
    assert inst.fixed.tolist() == [0, 0, 1, -1]
    assert inst.free.ravel().tolist() == [3.0, 1.5, 2.0]
    assert inst.demand.ravel().tolist() == [0, 0, 0, 1]
    assert inst.allowed.tolist() == [
        [True, False, False], [True, False, False], [False, True, False],
        [True, True, True]]
    assert inst.movable.tolist() == [3]


def test_one_pinned_vm_pins_its_affinity_group():
    tied = (group(AFFINITY, 0, 1),)
    inst = build([((1.0,), 'h1', True), ((2.0,),)], server_groups=tied)
    assert inst.fixed.tolist() == [1]
    # What was counted is not taken again, the other VM is.
    assert inst.free.ravel().tolist() == [4.0, 1.0, 2.0]
    with pytest.raises(exception.PlacementInfeasible,
                       match='for v0: .*several hosts'):
        build([((1.0,), 'h1'), ((1.0,), 'h0')], server_groups=tied)
    with pytest.raises(exception.PlacementInfeasible, match='h2.*exceed'):
        build([((1.0,), 'h2'), ((1.5,),)], server_groups=tied)
    # Exactly full is not too full.
    assert build([((1.0,), 'h2'), ((1.0,),)],
                 server_groups=tied).free[2, 0] == 0


def test_a_full_host_may_hold_what_takes_nothing():
    inst = build([((0.0,), 'h0'), ((0.0,),), ONE],
                 frees=((-1.0,), (1.0,)))
    assert inst.allowed.tolist() == [
        [True, False], [True, True], [False, True]]
    assert inst.room.ravel() == pytest.approx([1e-9, 1 + 1e-9])
    assert inst.fits(np.array([0, 0, 1]))
    assert not inst.fits(np.array([0, 0, 0]))
    assert not inst.fits(np.array([0, 0, -1]))


def test_who_may_go_where():
    inst = build(
        [((1.0,), None, False, frozenset({'h0', 'h1'})),
         ((2.5,),), ((1.0,),), ((1.0,), 'h2')],
        excluded_hosts=frozenset({'h1'}), server_groups=(
            group(AFFINITY, 2, taken=('h2', 'h1')),))
    assert inst.allowed.tolist() == [
        [True, False, False], [True, False, False],
        [False, False, True], [False, False, True]]


def test_two_affinity_groups_leave_a_vm_the_hosts_of_both():
    inst = build([ONE, ONE, ONE], server_groups=(
        group(AFFINITY, 0, taken=('h0', 'h1')),
        group(AFFINITY, 0, 1, taken=('h1', 'h2'))))
    assert inst.allowed.tolist() == [[False, True, False], [True] * 3]
    with pytest.raises(exception.PlacementInfeasible, match='v0'):
        build([ONE, ONE], server_groups=(
            group(AFFINITY, 0, 1, taken=('h0',)),
            group(AFFINITY, 0, 1, taken=('h1',))))


def test_a_vm_without_a_host_is_named():
    with pytest.raises(exception.PlacementInfeasible,
                       match='VM v1.*no host'):
        build([ONE, ((5.0,),)])
    with pytest.raises(exception.PlacementInfeasible,
                       match='there are no hosts'):
        instances.build(problem([ONE], frees=()))


def test_anti_affinity_is_a_resource():
    groups = (group(ANTI, 0, 1, 2, taken=('h0', 'gone'), most=2),)
    inst = build([((1.0,), 'h1'), ONE, ONE, ONE], server_groups=groups)
    assert inst.free[:, 1].tolist() == [1, 1, 2]
    assert inst.demand[:, 1].tolist() == [0, 1, 1, 0]
    assert inst.fits(np.array([1, 0, 2, 2]))
    assert not inst.fits(np.array([1, 0, 0, 2]))
    assert inst.fits(np.array([1, 2, 2, 0]))
    assert not inst.fits(np.array([1, 1, 1, 0]))


def test_room_is_compared_with_a_little_slack():
    demand = np.array([[1.0 + 5e-10], [1.0 + 2e-9], [0.0]])
    free = np.array([[1.0], [-1.0]])
    assert constraints.fits_alone(demand, free).tolist() == [
        [True, False], [False, False], [True, True]]
    # Relative to what is large, absolute below 1.
    assert constraints.fits_alone(
        np.array([[1e6 + 5e-4], [1e6 + 5e-3]]),
        np.array([[1e6]])).tolist() == [[True], [False]]


def test_alike_hosts_are_of_one_subtree_and_without_pins():
    vms = [ONE, ((1.0,), 'h3'), ((1.0,), None, False,
                                 frozenset(f'h{m}' for m in range(6)))]
    inst = build(vms, frees=((2.0,),) * 3 + ((3.0,),) + ((2.0,),) * 3,
                 tree=cluster.Tree((cluster.Subtree('s', 8e9, 8e9),),
                                   {'h0': 's', 'h2': 's'}))
    hose = np.ones((2, 7))
    hose[1, 5] = 2.0
    # h5 is slower, h6 is not open to all, h3 has a pinned VM.
    assert sorted(inst.alike(hose)) == [
        [0, 2], [1, 4], [3], [5], [6]]


@pytest.mark.parametrize('pinned', range(3))
def test_a_host_with_a_pinned_vm_is_alone(pinned):
    """Even where the pin takes no room."""
    inst = build([ONE, ((1.0,), f'h{pinned}', True)], frees=((2.0,),) * 3)
    assert sorted(inst.alike(np.ones((2, 3))), key=len) == [
        [pinned], [m for m in range(3) if m != pinned]]


def test_bytes_between_nodes_are_those_of_all_coflows():
    inst = build([ONE, ONE, ONE], coflows=tuple(
        coflow.Coflow.from_flows(name, 3, flows) for name, flows in (
            ('a', [(0, 1, 5.0), (1, 0, 2.0), (0, 1, 1.0)]),
            ('b', [(0, 1, 4.0), (2, 1, 3.0)]))))
    assert inst.sent.tolist() == [
        [0, 10, 0], [2, 0, 0], [0, 3, 0]]
    assert inst.exchanged.tolist() == [
        [0, 12, 0], [12, 0, 3], [0, 3, 0]]


def test_ports_by_name():
    names = ('h0', 'h1', 'h2')
    tree = cluster.Tree(
        (cluster.Subtree('s', 1e9, 2e9), cluster.Subtree('t', 1e9, 1e9)),
        {'h0': 's', 'h1': 't', 'h2': 't'})
    inst = build([ONE], tree=tree)
    assert [inst.port_name(port) for port in range(10)] == [
        'h0 egress', 'h1 egress', 'h2 egress', 'h0 ingress', 'h1 ingress',
        'h2 ingress', *(f'{one.level} {one.name} {way}' for way in (
            'up', 'down') for one in inst.uplinks.subtrees)]
    pairs = {(a, b): 1e9 for a in names for b in names if a != b}
    inst = build([ONE], pair_rate_bps=pairs)
    assert inst.port_name(6 + 5) == 'h1->h2'
    assert inst.n_fabric == 6
    # Pairs alone limit, unless the hosts do, too.
    assert inst.s_per_byte[:6].tolist() == [0.0] * 6
    assert inst.s_per_byte[7] == 8e-9
    both = instances.build(dataclasses.replace(
        problem([ONE]), pair_rate_bps={('h0', 'h1'): 1e9},
        hose_limits=True))
    assert both.s_per_byte[:6].tolist() == [1e-9] * 6
    # A pair that is not told has the hosts' rates.
    assert both.s_per_byte[6:].reshape(3, 3)[0].tolist() == [
        1e-9, 8e-9, 1e-9]


def test_no_bytes_take_no_time_on_a_dead_port():
    found = instances.times_s(np.array([0.0, 2.0, 2.0]),
                              np.array([np.inf, 0.5, np.inf]))
    assert found.tolist() == [0.0, 1.0, np.inf]


def test_a_vm_tied_to_one_that_runs_is_new_to_its_anti_affinity_group():
    """VMs that run may break a group; one that follows them may not."""
    runs = [((1.0,), 'h0'), ((1.0,), 'h0'), ONE]
    inst = build(runs, server_groups=(group(ANTI, 0, 1),))
    assert inst.free[0, 1] == -1
    for most in (1, 2):
        with pytest.raises(exception.PlacementInfeasible,
                           match='v2.*full where its affinity group runs'):
            build(runs, server_groups=(group(AFFINITY, 0, 2),
                                       group(ANTI, 0, 1, 2, most=most)))
    build(runs, server_groups=(group(AFFINITY, 0, 2),
                               group(ANTI, 0, 1, 2, most=3)))
