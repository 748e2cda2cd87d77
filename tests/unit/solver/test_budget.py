# SPDX-License-Identifier: Apache-2.0

"""Budgets, and clocks that only work moves on."""

import random
import subprocess
import sys

import pytest

from benchmarks import instances as generator
from benchmarks import reference
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner

#: Makes a plan with kernels that are not compiled, and prints it.
PLAIN = '''
import importlib.util, sys
from virtco import compiled

class Sources:
    def find_spec(self, name, path=None, target=None):
        if name in compiled.KERNELS:
            return importlib.util.spec_from_file_location(
                name, compiled.source(name))

sys.meta_path.insert(0, Sources())
from tests.unit.solver import test_budget
from virtco.solver.moves import kernel
assert kernel.__file__.endswith('.py')
print(repr(test_budget.counted(sys.argv[1], float(sys.argv[2]))))
'''


def counted(kind, seconds):
    """A plan by counter, and what it took."""
    rng = random.Random(3)
    if kind == 'joint':
        item = generator.mixed(rng, 'stages', 'plain')
    else:
        item = generator.hard(kind, 1)[0]
    problem = reference.to_problem(item)
    clock = budgets.Counter()
    objective = (snapshot.Objective.JOINT if kind == 'joint'
                 else snapshot.Objective.ISOLATED)
    plan = planner.plan(problem, objective=objective, seed=5,
                        budget_s=seconds, clock=clock)
    return plan, clock.units


@pytest.mark.parametrize('kind', ['rack18x40', 'joint'])
def test_a_counter_gives_one_plan_compiled_or_not(kind):
    expected = repr(counted(kind, 0.03))
    plain = subprocess.run([sys.executable, '-c', PLAIN, kind, '0.03'],
                           capture_output=True, text=True, check=True)
    assert plain.stdout.strip() == expected


def test_a_plan_that_nobody_wants_ends():
    """The search asks often enough, and answers with what it has."""
    item = generator.hard('hose1000x200', 72)[1]

    def took_s(until_s):
        clock = budgets.Counter()
        planner.plan(
            reference.to_problem(item), seed=5, budget_s=0.3, clock=clock,
            objective=snapshot.Objective.ISOLATED,
            is_cancelled=lambda: clock() >= until_s)
        return clock()

    assert took_s(9.0) > 0.29
    assert took_s(0.0) < 0.02
    assert 0.06 <= took_s(0.06) < 0.08


def test_a_cancelled_budget_is_over_with_its_slices():
    wanted = [True]
    budget = budgets.Budget(budgets.Counter(), 1.0,
                            is_cancelled=lambda: not wanted)
    part = budget.slice(0.5)
    assert part.in_time() and budget.in_time()
    wanted.clear()
    assert not part.in_time() and budget.left_s() == part.units() == 0
    wanted.append(True)
    assert not budget.in_time()


def test_a_counter_moves_on_by_work_alone():
    clock = budgets.Counter()
    budget = budgets.Budget(clock, 1.0)
    part = budget.slice(0.25)
    assert part.left_s() == 0.25
    part.spend(0.2 * budgets.UNITS_PER_S)
    assert part.in_time() and part.holds(4e7) and not part.holds(6e7)
    part.spend_numpy(10, 0.05 * budgets.UNITS_PER_S / budgets.CELL_UNITS)
    assert not part.in_time()
    assert budget.in_time() and 0.7 < budget.left_s() < 0.75
    assert budget.slice(1.0, most_s=0.1).left_s() == pytest.approx(0.1)


def test_what_is_left_is_told_in_every_measure():
    budget = budgets.Budget(budgets.Counter(), 0.001)
    assert budget.units() == 1e6
    assert budget.holds(1e6) and not budget.holds(1e6 + 1)
    assert budget.steps(10.0) == 10 ** 5
    assert budget.steps(1e-9) == budgets.MOST_STEPS
    assert budget.chunk() == 1e6
    assert budgets.unlimited().chunk() == budgets.CHUNK_UNITS
    budget.spend(1e6 + 1)
    assert (budget.left_s(), budget.units(), budget.steps(1.0)) == (0, 0, 0)
    assert budget.holds(0) and not budget.holds(1)
    assert budget.spent_s() == pytest.approx(0.001, rel=1e-4)
    assert not budgets.Budget(budgets.Timer(lambda: 3.0), 0.0).in_time()


def test_a_stopped_budget_ends_its_slices_and_not_its_whole():
    whole = budgets.unlimited()
    part = whole.slice(0.5)
    inner = part.slice(0.5)
    part.stop()
    assert inner.is_stopped() and not inner.in_time()
    assert not whole.is_stopped() and whole.in_time()


def test_a_machines_clock_goes_by_itself():
    now_s = [5.0]
    clock = budgets.clock_of(lambda: now_s[0])
    budget = budgets.Budget(clock, 2.0)
    budget.spend(1e12)
    assert clock.units == 1e12 and budget.left_s() == 2.0
    now_s[0] = 6.5
    assert (budget.spent_s(), budget.left_s()) == (1.5, 0.5)
    assert budget.machine_s() == 0.5
    now_s[0] = 7.0
    assert not budget.in_time()
    assert budgets.clock_of(clock) is clock


def test_a_loop_that_only_asks_comes_to_an_end():
    budget = budgets.Budget(budgets.Counter(), 1e-3)
    asked = 0
    while budget.in_time():
        asked += 1
    assert asked < 1e-3 * budgets.UNITS_PER_S


def test_a_library_has_no_time_limit_by_a_counter():
    assert budgets.Budget(budgets.Counter(), 1.0).machine_s() == float('inf')
    timer = budgets.Timer(lambda: 3.0)
    assert budgets.Budget(timer, 1.0).machine_s() == 1.0


@pytest.mark.parametrize('family', ['hose18x40', 'hose1000x200'])
def test_a_budget_of_a_counter_is_kept(family):
    clock = budgets.Counter()
    problem = reference.to_problem(generator.hard(family, 2)[1])
    planner.plan(problem, budget_s=0.2, clock=clock)
    assert clock() <= 0.25
