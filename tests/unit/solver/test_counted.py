# SPDX-License-Identifier: Apache-2.0

"""One snapshot, seed and counted second give one plan on any machine.

Documented figures are counted: they hold as long as work costs what it did
when they were taken. Whoever changes what a step does or charges changes
them, and takes them anew; then the numbers below change, too.
"""

import itertools

import pytest

from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import counterfactuals
from virtco.solver import planner
from virtco.solver import together
from virtco.solver.stages import proofs

Objective = snapshot.Objective


@pytest.fixture(autouse=True)
def without_linear_programs(monkeypatch):
    """Leave out those, whose steps are their library's."""
    monkeypatch.setattr(proofs, 'narrow', lambda *_args: None)


def problem(model, n_hosts=7, n_vms=9):
    """Unlike hosts, VMs, coflows and running coflows."""
    names = [f'h{m}' for m in range(n_hosts)]
    sizes = [(7 * k) % 11 + 1 for k in range(3 * n_vms)]
    flows = [(j, (3 * j + 2) % n_vms, 1e7 * sizes[j])
             for j in range(n_vms)]
    more = [(j, (j + 4) % n_vms, 1e7 * sizes[n_vms + j])
            for j in range(0, n_vms, 2)]
    subtrees = (cluster.Subtree('top', 9e8, 7e8),
                *(cluster.Subtree(f's{n}', 8e8 - 1e8 * n, 6e8 + 1e8 * n,
                                  'top', '2') for n in range(2)))
    pairs = {(a, b): 1e8 * (1 + (3 * i) % 8) for i, (a, b) in enumerate(
        itertools.permutations(names, 2))}
    return snapshot.PlacementProblem(
        tuple(cluster.Host(name, (2.0 + m % 3, 5.0 - m % 2),
                           1e9 - 5e7 * m, 6e8 + 4e7 * m)
              for m, name in enumerate(names)),
        tuple(cluster.Vm(
            f'v{j}', (1.0, 1.0 + j % 2), 'h1' if j == 5 else None,
            allowed=frozenset(names[1:]) if j == 2 else None)
            for j in range(n_vms)),
        (coflow.Coflow.from_flows('a', n_vms, flows),
         coflow.Coflow.from_flows('b', n_vms, more)),
        cluster.Tree(subtrees, {
            name: f's{m % 2}' for m, name in enumerate(names) if m != 4})
        if model == 'tree' else cluster.Tree(),
        tuple(snapshot.ActiveCoflow(
            f'r{n}', ((names[n], 3e7 * (n + 1)),),
            ((names[n + 2], 2e7 * (n + 1)), (names[n + 1], 1e7)))
            for n in range(3)),
        pair_rate_bps=pairs if model in ('pipe', 'both') else None,
        hose_limits=model == 'both', resources=('vcpus', 'ram'))


def told(plan, clock):
    return (''.join(name[1:] for name in plan.hosts),
            f'{plan.objective_s:.6g}', f'{plan.lower_bound_s:.6g}',
            plan.iterations, round(clock.units))


def counted(model, rule, seconds, objective=Objective.ONLINE):
    """What a plan is, and what it took."""
    clock = budgets.Counter()
    return told(planner.plan(problem(model), objective=objective, planner=rule,
                             seed=5, budget_s=seconds, clock=clock), clock)


PLANS = {
    ('hose', 'virtco', 0.01, Objective.ONLINE): (
        '355631516', '6.28407', '1.75', 5137, 6787589),
    ('tree', 'virtco', 0.01, Objective.ONLINE): (
        '135511345', '5.96935', '1.75', 4616, 6850984),
    ('pipe', 'virtco', 0.01, Objective.ONLINE): (
        '244221412', '1.6', '0.386207', 5673, 10061457),
    ('both', 'virtco', 0.01, Objective.ONLINE): (
        '142211252', '6.94146', '1.75', 5162, 10061290),
    ('pipe', 'virtco', 0.06, Objective.ONLINE): (
        '244221412', '1.6', '0.386207', 114492, 59700206),
    ('both', 'virtco', 0.01, Objective.JOINT): (
        '455641516', '4.14526', '1.75', 5498, 10019459),
    ('pipe', 'virtco', 0.006, Objective.ISOLATED): (
        '564451324', '1', '1', 11501, 4043898),
    ('tree', 'virtco', 0.003, Objective.ISOLATED): (
        '162211235', '1.75', '1.75', 240, 1060849),
    ('tree', 'virtco-printed', 0.01, Objective.ONLINE): (
        '134411455', '8.3024', '1.75', 510, 1702070),
    ('tree', 'spread', 0.01, Objective.ONLINE): (
        '046251360', '14.7513', '1.75', 0, 822579),
    ('tree', 'min-cut', 0.01, Objective.ONLINE): (
        '012201232', '8.7029', '1.75', 0, 1519373),
}
RANKED = ('2306451',
          ['8.09633',
           '11.3053',
           '11.3393',
           '11.905',
           '12.0285',
           '23.0789',
           'inf'],
          450840)
EXPLAINED = ([('rate', 'h1 ingress', '1.6'), ('room', 'h1', '1.8')], 17251088)
TOGETHER = [('2323', '0', '0', 5904, 10932202),
            ('15511', '1.6', '0', 5904, 10932202)]


@pytest.mark.parametrize('model, rule, seconds, objective', PLANS)
def test_a_plan_is_the_same_on_any_machine(model, rule, seconds, objective):
    assert counted(model, rule, seconds, objective) == PLANS[
        model, rule, seconds, objective]


def rank(model='both'):
    asked = problem(model)
    plan = planner.plan(asked, planner='min-cut', clock=budgets.Counter())
    clock = budgets.Counter()
    ranked = planner.rank_hosts(asked, plan, 3, budget_s=1.0, clock=clock)
    return (''.join(one.host[1:] for one in ranked),
            [f'{one.objective_s:.6g}' for one in ranked],
            round(clock.units))


def test_a_ranking_is_the_same_on_any_machine():
    assert rank() == RANKED


def explain():
    asked = problem('tree')
    plan = planner.plan(asked, planner='min-cut', clock=budgets.Counter())
    budget = budgets.Budget(budgets.Counter(), 0.05)
    found = counterfactuals.explain(asked, plan, 3, budget)
    return ([(one.kind, one.subject, f'{one.cct_s:.6g}')
             for one in found.reasons], round(budget.clock.units))


def test_what_decided_is_the_same_on_any_machine():
    assert explain() == EXPLAINED


def share():
    clock = budgets.Counter()
    first = problem('pipe', n_vms=4)
    parts = together.plan([first, problem('pipe', n_vms=5)], clock=clock,
                          budget_s=0.01)
    return [told(part.plan, clock) for part in parts]


def test_groups_together_are_the_same_on_any_machine():
    assert share() == TOGETHER
