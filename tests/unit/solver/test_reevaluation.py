# SPDX-License-Identifier: Apache-2.0

"""Which moves pay."""

import dataclasses
import itertools
import math

import hypothesis
from hypothesis import strategies as st
import pytest

from tests import examples
from tests.unit.solver import problems
from tests.unit.solver import test_switches
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import reevaluation


def problem(size_bytes=1e9, room=(1, 2, 1)):
    """Two VMs that run and may move; the first sends to the second."""
    return snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{i}', (float(free),), 8e9, 8e9)
              for i, free in enumerate(room)),
        tuple(cluster.Vm(f'v{i}', (1.0,)) for i in range(2)),
        (coflow.Coflow.from_flows('c', 2, [(0, 1, size_bytes)]),))


def best(cost_s=0.5, hosts=('h0', 'h1'), **kwargs):
    asked = kwargs.pop('problem', problem())
    return reevaluation.best_move(
        asked, hosts, lambda vm, source, target: cost_s,
        budgets.unlimited(), **kwargs)


def test_what_saves_more_than_it_costs():
    move = best()
    assert (move.vm_index, move.source, move.target) == (0, 'h0', 'h1')
    assert (move.saved_s, move.cost_s) == (pytest.approx(1), 0.5)
    assert move.cct_s == (pytest.approx(1), 0)


def test_what_costs_more_than_it_saves():
    assert best(cost_s=1.5) is None
    # A coflow that comes again saves each time.
    assert best(cost_s=1.5, n_times=2).saved_s == pytest.approx(2)
    assert best(cost_s=math.inf, n_times=1000) is None
    # What it saves is not more than that.
    assert best(cost_s=best().saved_s) is None


def test_of_moves_that_save_as_much_the_first_vm_moves():
    move = best(problem=problem(room=(2, 2, 1)))
    assert (move.vm_index, move.target) == (0, 'h1')


@pytest.mark.parametrize('policy, members, taken, moves', [
    ('affinity', (0,), frozenset(), True),
    ('affinity', (0,), frozenset({'h0'}), False),
    ('affinity', (0, 2), frozenset(), False),
    ('soft-affinity', (0, 2), frozenset(), True),
    ('anti-affinity', (0, 2), frozenset(), True)])
def test_a_vm_that_shares_its_host_by_affinity_stays(policy, members, taken,
                                                     moves):
    """v1 is pinned, so v0 alone may join it; v2 is beside v0."""
    asked = problem(room=(2, 2, 1))
    asked = dataclasses.replace(
        asked, vms=(asked.vms[0], dataclasses.replace(
            asked.vms[1], pinned='h1'), cluster.Vm('v2', (1.0,))),
        coflows=(coflow.Coflow.from_flows('c', 3, [(0, 1, 1e9)]),),
        server_groups=(snapshot.ServerGroup(
            snapshot.GroupPolicy(policy), members, taken),))
    on = ('h0', 'h1', 'h2' if policy == 'anti-affinity' else 'h0')
    move = best(problem=asked, hosts=on)
    assert (move is not None and (move.vm_index, move.target) == (0, 'h1')
            ) == moves


def test_no_room_no_move():
    assert best(problem=problem(room=(1, 1, 1)), n_times=100) is None


def test_a_host_is_left_at_any_cost():
    together = ('h1', 'h1')
    assert best(hosts=together) is None
    move = best(cost_s=100, hosts=together, leaving={'h1'})
    assert move.source == 'h1' and move.target != 'h1'
    assert best(cost_s=math.inf, hosts=together, leaving={'h1'}) is None
    # And no VM goes there.
    assert best(leaving={'h1'}).target != 'h1'


@pytest.mark.parametrize('order', list(itertools.permutations(range(3))))
def test_a_host_is_left_before_anything_else_is_gained(order):
    """One VM on h2 gains nothing; v0 would gain most beside v1."""
    flows = [(order.index(0), order.index(1), 9e9)]
    hosts = tuple(f'h{vm}' for vm in order)
    asked = snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{i}', (float(free),), 8e9, 8e9)
              for i, free in enumerate((1, 2, 1, 1))),
        tuple(cluster.Vm(f'v{vm}', (1.0,)) for vm in order),
        (coflow.Coflow.from_flows('c', 3, flows),))
    assert best(hosts=hosts, problem=asked).source == 'h0'
    move = best(hosts=hosts, problem=asked, leaving={'h2'})
    assert (move.source, move.saved_s) == ('h2', pytest.approx(0))
    assert move.vm_index == order.index(2)


def test_the_time_of_a_migration():
    assert reevaluation.migration_s(1e9, 9e8, 1e8) == pytest.approx(10)
    assert reevaluation.migration_s(1e9, 1e8, 1e8) == math.inf


def test_no_time():
    assert reevaluation.best_move(
        problem(), ('h0', 'h1'), lambda *_: 0.0,
        budgets.Budget(budgets.Counter(), 0.0)) is None


@pytest.mark.parametrize('costs, target', [
    ({'h1': 9.0}, None), ({'h1': 9.0, 'h2': 9.0}, 'h3'),
    ({'h2': 2.0, 'h3': 2.0}, 'h1')])
def test_a_target_that_saves_less_may_be_nearer(costs, target):
    """Two VMs that send to one: each host is the better the faster it is."""
    rates = {'h0': 1e9, 'h1': 8e9, 'h2': 6e9, 'h3': 4e9}
    asked = snapshot.PlacementProblem(
        tuple(cluster.Host(name, (1.0,), rate, 8e9)
              for name, rate in rates.items()) + (
                  cluster.Host('h4', (1.0,), 8e9, 8e9),),
        tuple(cluster.Vm(f'v{i}', (1.0,)) for i in range(2)),
        (coflow.Coflow.from_flows('c', 2, [(0, 1, 1e9)]),))
    move = reevaluation.best_move(
        asked, ('h0', 'h4'),
        lambda vm, source, to: 99.0 if vm else costs.get(to, 1.0),
        budgets.unlimited())
    assert move.target == (target or 'h2') and move.vm_index == 0


@hypothesis.settings(max_examples=examples.count(200), deadline=None,
                     suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(test_switches.wished(), st.data())
def test_no_move_breaks_a_constraint(asked, data):
    asked = dataclasses.replace(asked, vms=tuple(
        dataclasses.replace(vm, pinned=None) for vm in asked.vms))
    names = [host.name for host in asked.hosts]
    valid = [hosts for hosts in itertools.product(
        names, repeat=len(asked.vms)) if problems.is_valid(asked, hosts)]
    hypothesis.assume(valid)
    hosts = data.draw(st.sampled_from(valid))
    leaving = data.draw(st.sampled_from([(), hosts[:1], names[:1]]))
    move = reevaluation.best_move(
        asked, hosts, lambda *_: 0.001, budgets.unlimited(),
        leaving=leaving)
    if move is not None:
        then = list(hosts)
        then[move.vm_index] = move.target
        assert problems.is_valid(asked, then)
        assert move.source == hosts[move.vm_index] != move.target
