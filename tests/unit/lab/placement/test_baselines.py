# SPDX-License-Identifier: Apache-2.0

"""Planners to compare with, by small clouds."""


import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests import examples
from tests.unit.solver import problems
from tests.unit.solver.test_starts import build
from tests.unit.solver.test_starts import places
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.starts import candidates
from virtco_lab.placement import baselines
from virtco_lab.placement import choreo

SETTINGS = hypothesis.settings(
    max_examples=examples.count(40), deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck))


@SETTINGS
@hypothesis.given(problems.problems(),
                  st.sampled_from(['virtco', *baselines.RULES]))
def test_every_planner_answers_validly(problem, name):
    try:
        plan = baselines.plan(problem, planner=name, seed=3,
                              clock=budgets.Counter())
    except exception.PlacementInfeasible:
        assert problems.optimum(problem, problems.isolated_s) is None
        return
    assert problems.is_valid(problem, plan.hosts)
    assert plan.cct_s == pytest.approx(
        problems.isolated_s(problem, plan.hosts), rel=1e-9)
    again = baselines.plan(problem, planner=name, seed=3,
                           clock=budgets.Counter())
    assert again == plan


def test_an_unknown_planner_is_refused():
    with pytest.raises(exception.Invalid):
        baselines.plan(problems.fig_1_problem(), planner='best')


def test_a_rule_says_that_it_got_stuck():
    """One slot is left on each host for the last VM, which needs two."""
    hosts = tuple(cluster.Host(f'h{m}', (slots,), 8.0, 8.0)
                  for m, slots in enumerate((4.0, 2.0)))
    for needs, notes in (
            ((1.0, 1.0, 2.0, 2.0), (
                'round-robin got stuck; any valid placement instead',)),
            ((2.0, 2.0, 1.0, 1.0), ())):
        problem = snapshot.PlacementProblem(hosts, tuple(
            cluster.Vm(f'v{j}', (need,)) for j, need in enumerate(needs)), (
            coflow.Coflow.from_flows('c', 4, [(0, 2, 1.0)]),))
        plan = baselines.plan(problem, planner='round-robin',
                              clock=budgets.Counter())
        assert plan.notes == notes
        assert problems.is_valid(problem, plan.hosts)


@pytest.mark.parametrize('name', sorted(baselines.RULES))
def test_a_rule_ends_where_there_is_no_room(name):
    roomy = build([4, 4], [2, 1, 1])
    assert roomy.fits(baselines.RULES[name](roomy, 1, budgets.unlimited()))
    # All fit by sum, and each alone.
    full = build([3, 3], [2, 2, 2], [(0, 1, 1.0), (1, 2, 1.0)])
    assert baselines.RULES[name](full, 1, budgets.unlimited()) is None


def test_as_few_machines_as_possible():
    inst = build([3, 5, 4], [2, 2, 2, 1])
    assert places(baselines.min_machines(inst)) == [1, 1, 2, 1]
    assert places(candidates.best_fit(inst)) == [0, 2, 2, 0]
    # The first host is in use like any other.
    assert places(baselines.min_machines(build(
        [5, 4, 4], [2, 2, 1]))) == [0, 0, 0]


def test_round_robin_goes_on_behind_the_last():
    assert places(baselines.round_robin(build(
        [2, 1, 2], [1, 1, 1, 1, 1]))) == [0, 1, 2, 0, 2]
    assert places(baselines.round_robin(build(
        [1, 3, 1], [2, 1, 1, 1]))) == [1, 2, 0, 1]


def test_choreo_takes_the_fastest_path_of_the_largest_transfer():
    place = choreo.place
    rates = [(8.0, 1.0), (4.0, 8.0), (1.0, 6.0)]
    inst = build([1, 1, 1], [1, 1], [(0, 1, 5.0)], rates)
    assert places(place(inst, budgets.unlimited())) == [0, 1]
    # Together where there is room for both: nothing is faster.
    inst = build([1, 1, 2], [1, 1], [(0, 1, 5.0)], rates)
    assert places(place(inst, budgets.unlimited())) == [2, 2]
    # The second transfer shares h0's egress: 4 of it is less than h1's 5.
    inst = build([2, 1, 1, 1], [1, 1, 2, 1][:2] + [1, 1],
                 [(0, 1, 9.0), (2, 3, 5.0)],
                 [(8.0, 1.0), (5.0, 8.0), (1.0, 8.0), (1.0, 6.0)],
                 vms=tuple(cluster.Vm(f'v{j}', (1.0,), allowed=allowed)
                           for j, allowed in enumerate((
                               frozenset({'h0'}), frozenset({'h2'}),
                               frozenset({'h0', 'h1'}),
                               frozenset({'h3'})))))
    assert places(place(inst, budgets.unlimited())) == [0, 2, 1, 3]
    late = budgets.Budget(budgets.Counter(), 0.0)
    assert place(inst, late) is None


def test_choreo_places_who_transfers_nothing_where_there_is_room():
    """The largest first."""
    assert places(choreo.place(build([1, 4], [1, 1, 2]), budgets.unlimited())
                  ) == [0, 1, 1]


def test_each_transfer_of_choreo_looks_at_every_pair_of_hosts():
    budget = budgets.unlimited()
    choreo.place(build([1, 1, 1], [1, 1, 1], [(0, 1, 5.0), (1, 2, 4.0)]),
                 budget)
    assert budget.clock.units == 2 * (
        choreo.PAIR_CALLS * budgets.CALL_UNITS + 9 * budgets.CELL_UNITS
        + budgets.ASK_UNITS)


def test_choreo_knows_pipes():
    rates = {(a, b): 1.0 for a in ('h0', 'h1', 'h2')
             for b in ('h0', 'h1', 'h2') if a != b}
    inst = build([1, 1, 1], [1, 1], [(0, 1, 5.0)],
                 pair_rate_bps={**rates, ('h2', 'h1'): 3.0})
    assert places(choreo.place(inst, budgets.unlimited())) == [2, 1]
    paths = choreo._Paths(inst)
    paths.use(2, 1)
    paths.use(0, 0)
    every = np.arange(3)
    found = paths.rates(every, every)
    assert found[2, 1] * 8 == pytest.approx(1.5)
    assert found[0, 1] * 8 == pytest.approx(1.0)
    assert (np.diag(found) == np.inf).all()


def test_connections_share_the_ports_of_choreo():
    inst = build([1, 1, 1], [1, 1], [(0, 1, 5.0)],
                 [(8.0, 1.0), (4.0, 8.0), (1.0, 6.0)])
    paths = choreo._Paths(inst)
    paths.use(0, 1)
    paths.use(0, 2)
    every = np.arange(3)
    assert paths.rates(every, every) * 8 == pytest.approx(np.array([
        [np.inf, 8 / 3, 8 / 3], [1.0, np.inf, 3.0], [1.0, 1.0, np.inf]]))


@pytest.mark.parametrize('is_back', [False, True])
def test_choreo_goes_on_from_where_a_vm_is(is_back):
    """On the first host; elsewhere would be a faster path."""
    rates = [(8.0, 1.0), (4.0, 8.0), (1.0, 3.0), (6.0, 5.0)]
    flows = [(0, 1, 9.0), (0, 2, 5.0)]
    if is_back:
        rates = [(into, out) for out, into in rates]
        flows = [(dst, src, size) for src, dst, size in flows]
    inst = build([1, 1, 1, 1], [1, 1, 1], flows, rates)
    assert places(choreo.place(inst, budgets.unlimited())) == [0, 1, 3]


@pytest.mark.parametrize('flows', [
    [(0, 1, 9.0), (0, 2, 5.0), (0, 3, 4.0)],
    [(1, 0, 9.0), (2, 0, 5.0), (3, 0, 4.0)]])
def test_choreo_fills_a_host_that_has_just_room(flows):
    inst = build([4, 1, 1], [1] * 4, flows, [(8.0, 8.0)] * 3)
    assert places(choreo.place(inst, budgets.unlimited())) == [0] * 4
