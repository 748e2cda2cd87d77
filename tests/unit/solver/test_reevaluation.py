# SPDX-License-Identifier: Apache-2.0

"""Which moves pay."""

import math

import pytest

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


def test_the_time_of_a_migration():
    assert reevaluation.migration_s(1e9, 9e8, 1e8) == pytest.approx(10)
    assert reevaluation.migration_s(1e9, 1e8, 1e8) == math.inf


def test_no_time():
    assert reevaluation.best_move(
        problem(), ('h0', 'h1'), lambda *_: 0.0,
        budgets.Budget(budgets.Counter(), 0.0)) is None
