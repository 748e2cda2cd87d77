# SPDX-License-Identifier: Apache-2.0

"""What one placement costs, worked out by hand."""

import math

import numpy as np
import pytest

from tests.unit.solver import problems
from virtco.model import cluster
from virtco.model import snapshot
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives

Objective = snapshot.Objective
#: VirtCO Fig. 1: C1 takes 5 s and C2 2 s, both together 7 s into VM 1's host.
APART = np.array([0, 1, 2])


def build(**changes):
    return instances.build(problems.fig_1_problem(**changes))


def running(*sizes):
    return tuple(snapshot.ActiveCoflow(f'r{n}', (('h0', size),),
                                       (('h1', size),))
                 for n, size in enumerate(sizes))


def test_each_objective_is_its_sum():
    inst = build(active=running(6.0))
    isolated = objectives.evaluate(inst, APART, Objective.ISOLATED)
    assert isolated.objective_s == isolated.cct_s == 7.0
    assert isolated.ahead_s == 0.0
    # C2 ends after 2 s, C1 behind it, then what runs: 5 + 6 s from h0 to h1.
    joint = objectives.evaluate(inst, APART, Objective.JOINT)
    assert joint.coflow_cct_s == (7.0, 2.0)
    assert joint.objective_s == 2.0 + 7.0 + 13.0 and joint.ahead_s == 0.0
    online = objectives.evaluate(inst, APART, Objective.ONLINE)
    own_s, backlog_s = np.array([5, 2, 4, 2, 7, 2]), [6, 0, 0, 0, 6, 0]
    assert online.ahead_s == pytest.approx((own_s * (
        2 * np.array(backlog_s) + own_s)).sum() / 6 / (4 * 3))
    assert online.objective_s == joint.objective_s + online.ahead_s


@pytest.mark.parametrize('objective', Objective)
def test_many_placements_cost_what_each_costs_beside_others(objective):
    inst = build(active=running(6.0, 0.5))
    assigns = np.array([APART, [0, 0, 1], [2, 1, 0], [1, 1, 1]])
    keys = objectives.keys_of_many(inst, assigns, objective)
    assert keys == pytest.approx(np.array([
        objectives.evaluate(inst, assign, objective).key
        for assign in assigns]))


def test_the_slowest_port_is_named_where_there_is_one():
    assert objectives.evaluate(
        build(), APART, Objective.ISOLATED).port == 3 + 1
    idle = objectives.evaluate(build(coflows=()), APART, Objective.ONLINE)
    assert (idle.port, idle.cct_s, idle.objective_s) == (-1, 0.0, 0.0)


@pytest.mark.parametrize('sizes, rate', [
    ((), 0.0), ((4.0,), 1 / 4 / 12), ((4.0, 2.0), 2 / 4 / 12),
    ((4.0, 0.0), 1 / 4 / 12), ((0.5,), 2 / 12)])
def test_coflows_come_as_often_as_they_end(sizes, rate):
    """Those that have nothing left are none; 2 and 4 s end at 2 and 6."""
    inst = build(active=running(*sizes))
    ahead = objectives.Ahead.of(inst, Objective.ONLINE)
    assert ahead.rate == pytest.approx(rate)
    assert ahead.backlog_s.tolist() == [
        sum(sizes), 0, 0, 0, sum(sizes), 0]
    assert objectives.Ahead.of(inst, Objective.JOINT).rate == 0.0
    assert objectives.Ahead.of(inst, Objective.ISOLATED).rate == 0.0


def test_what_runs_for_ever_says_nothing_of_those_to_come():
    dead = build(active=running(1.0), hosts=tuple(
        cluster.Host(f'h{m}', (2.0,), 0.0, 8.0) for m in range(3)))
    assert objectives.Ahead.of(dead, Objective.ONLINE).rate == 0.0


def test_a_wait_is_that_of_the_named_ports():
    ahead = objectives.Ahead(0.5, np.array([3.0, math.inf, 1.0]))
    assert ahead.per_port_s(np.array([2.0, 0.0, 0.25])).tolist() == [
        0.5 * 2 * (6 + 2), 0.0, 0.5 * 0.25 * 2.25]
    assert ahead.per_port_s(np.array([2.0]), np.array([2])).tolist() == [
        0.5 * 2 * (2 + 2)]


def test_running_coflows_go_first_on_a_tie():
    inst = build(active=running(5.0, 2.0))
    assert inst.active_cct_s.tolist() == [2.0, 5.0]
    assert objectives.mrtf_order(inst, np.array([5.0, 2.0])).tolist() == [
        0, 3, 1, 2]


def test_the_time_of_coflows_alone():
    inst = build()
    assert objectives.own_cct_s(
        inst, objectives.own_loads(inst, APART)).tolist() == [5.0, 2.0]
    assert objectives.own_cct_s(inst, np.zeros((2, 6))).tolist() == [0, 0]
    # A problem may have neither hosts nor VMs.
    nothing = instances.build(snapshot.PlacementProblem((), (), ()))
    for n_coflows in (0, 2):
        assert objectives.own_cct_s(nothing, np.zeros(
            (n_coflows, 0))).tolist() == [0] * n_coflows


def test_bytes_go_over_ports_uplinks_and_pairs():
    tree = cluster.Tree((cluster.Subtree('a', 1.0, 1.0),
                         cluster.Subtree('b', 1.0, 1.0)),
                        {'h0': 'a', 'h1': 'b', 'h2': 'b'})
    inst = build(tree=tree)
    # C1: 0 to 1 5, 1 to 2 1, 2 to 0 2; C2: 1 to 2 1, 2 to 1 2.
    assert objectives.own_loads(inst, APART).tolist() == [
        [5, 1, 2, 2, 5, 1, 5, 2, 2, 5], [0, 1, 2, 0, 2, 1, 0, 0, 0, 0]]
    pairs = {(f'h{a}', f'h{b}'): 8.0 for a in range(3) for b in range(3)
             if a != b}
    inst = build(pair_rate_bps=pairs)
    assert objectives.own_loads(inst, APART)[0, 6:].tolist() == [
        0, 5, 0, 0, 0, 1, 2, 0, 0]
