# SPDX-License-Identifier: Apache-2.0

"""Lower bounds of small groups, worked out by hand."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from benchmarks import instances as generator
from benchmarks import reference
from tests.unit.solver import problems
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import enumeration_kernel
from virtco.solver import smallgroup
from virtco.solver.bounds import lowerbounds
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives


def build(**changes):
    return instances.build(problems.fig_1_problem(**changes))


def hosts(*rates_bps, slots=2.0):
    each = slots if isinstance(slots, tuple) else (slots,) * len(rates_bps)
    return tuple(cluster.Host(f'h{m}', (each[m],), *rates)
                 for m, rates in enumerate(rates_bps))


def bound(inst, upper_s=math.inf):
    return lowerbounds.anchored_sets(
        inst, upper_s, budgets.unlimited()).lower_s


def test_the_cheapest_set_around_each():
    found = lowerbounds.anchored_sets(build(), math.inf, budgets.unlimited())
    lower_s, sets = found.lower_s, found.sets
    # VMs 0 and 1 together take 4 s, and so does VM 2 on its own.
    assert lower_s == pytest.approx(4.0, rel=1e-8)
    assert lower_s < 4.0
    assert [True, True, False] in [one.tolist() for one in sets]


def test_a_bound_meets_what_is_known():
    assert bound(build(), 4.0) == 4.0
    assert bound(build(), 3.0) == 3.0
    assert bound(build(), 4.5) == pytest.approx(4.0)
    assert bound(build(), 0.0) == 0.0
    assert bound(build(coflows=())) == 0.0
    dead = build(hosts=hosts(*[(8.0, 0.0)] * 3))
    assert bound(dead, 5.0) == 5.0


def test_the_busiest_node_is_looked_at_first():
    one_slot = build(hosts=hosts(*[(8.0, 8.0)] * 3, slots=1.0))
    # VM 1 receives 7 bytes, VM 0 sends 5, VM 2 4.
    assert bound(one_slot) == pytest.approx(7.0)
    assert lowerbounds.by_traffic(one_slot).tolist() == [1, 0, 2]


def test_a_bound_without_time_says_nothing():
    inst = build()
    most = lowerbounds.COMPARE_CELLS * 9
    for units, said in ((most - 1, False), (most + 1e6, True)):
        budget = budgets.Budget(budgets.Counter(),
                                units / budgets.UNITS_PER_S)
        found = lowerbounds.anchored_sets(inst, math.inf, budget)
        assert (found.lower_s > 0) is bool(found.sets) is said


def test_trees_that_are_too_small_grow(monkeypatch):
    monkeypatch.setattr(lowerbounds, 'TREE_LIMIT', 1)
    for growths, said in ((0, False), (1, True)):
        found = lowerbounds.anchored_sets(
            build(), math.inf, budgets.unlimited(), growths)
        assert (found.lower_s > 3.9) is said


def test_a_tree_too_large_is_no_bound():
    inst = build()
    work = lowerbounds.prepare(inst, [0], budgets.unlimited())

    def least(limit, cutoff_s=1e300, enough_s=0.0, seconds=math.inf):
        return lowerbounds.least_around(
            work, 1, cutoff_s, enough_s, limit,
            budgets.Budget(budgets.Counter(), seconds))

    assert least(1) == -1.0
    assert least(100) == pytest.approx(4.0)
    assert least(100, seconds=1e-9) == -1.0
    # Found before, or not better than what is known.
    assert least(100, enough_s=7.0) == pytest.approx(7.0)
    assert least(100, cutoff_s=3.5) == 3.5


def test_dead_and_paired_ports():
    hose = lowerbounds.hose_s_per_byte
    assert hose(build(hosts=hosts((8.0, 4.0), (0.0, 8.0), (2.0, 0.0)))
                ).tolist() == [[1, 4e6, 4], [2, 1, 4e6]]
    assert hose(build(hosts=hosts(*[(0.0, 0.0)] * 3))).tolist() == [
        [1e6] * 3] * 2
    pairs = {(f'h{a}', f'h{b}'): 8.0 * (1 + a + 2 * b)
             for a in range(3) for b in range(3) if a != b}
    inst = build(pair_rate_bps=pairs)
    # Out of h0: 3 + 5 bytes per second, into it 2 + 3.
    assert hose(inst)[:, 0] == pytest.approx([1 / 8, 1 / 5])
    both = build(pair_rate_bps=pairs, hose_limits=True)
    assert hose(both).tolist() == [[1] * 3] * 2


def test_dominated_hosts_are_left_out_pinned_ones_never():
    inst = build(hosts=hosts((8.0, 8.0), (4.0, 8.0), (8.0, 4.0), (8.0, 8.0))
                 + (cluster.Host('h4', (3.0,), 1.0, 1.0),))
    hose = lowerbounds.hose_s_per_byte(inst)
    assert lowerbounds.undominated(inst, hose) in ([4, 0], [0, 4])
    pinned = build(vms=tuple(cluster.Vm(f'vm{j}', (1.0,), pin)
                             for j, pin in enumerate(('h1', None, None))),
                   hosts=hosts((8.0, 8.0), (4.0, 4.0), (4.0, 8.0)))
    assert sorted(lowerbounds.undominated(
        pinned, lowerbounds.hose_s_per_byte(pinned))) == [0, 1]
    full = build(vms=tuple(cluster.Vm(f'vm{j}', (1.0,), f'h{j}')
                           for j in range(3)))
    assert lowerbounds.undominated(
        full, lowerbounds.hose_s_per_byte(full)) == [0, 1, 2]


def test_the_sum_of_prefixes_is_bounded_coflow_by_coflow():
    inst = build(active=(
        snapshot.ActiveCoflow('a', (('h0', 1.5),), (('h1', 1.5),)),
        snapshot.ActiveCoflow('b', (('h0', 9.0),), (('h2', 9.0),)),
        snapshot.ActiveCoflow('c', (('h0', 1.5),), (('h2', 1.5),))))
    found = lowerbounds.objective(inst, budgets.unlimited())
    # Running: 1.5, 3 and 12 s. C1 takes 2 s with 0 and 1 together, behind
    # the first two; C2 nothing with 1 and 2 together.
    assert found == pytest.approx(1.5 + 3 + 12 + 3 + 0, rel=1e-6)


@pytest.mark.parametrize('changes, tried', [
    ({}, True), ({'MAX_NODES': 2}, False), ({'MAX_NODES': 3}, True),
    ({'MAX_PORTS': 5}, False), ({'MAX_PORTS': 6}, True)])
def test_what_is_enumerated(monkeypatch, changes, tried):
    for name, value in changes.items():
        monkeypatch.setattr(smallgroup, name, value)
    assert smallgroup.enumerable(build()) is tried
    pinned = tuple(cluster.Vm(f'vm{j}', (1.0,), f'h{j}') for j in range(3))
    assert not smallgroup.enumerable(build(vms=pinned))


def test_an_enumeration_ends_with_its_time():
    inst = build()
    found_s, assign = smallgroup.enumerate_all(inst, math.inf,
                                               budgets.unlimited())
    assert found_s == 4.0 and assign[0] == assign[1] != assign[2]
    assert smallgroup.enumerate_all(inst, 4.0, budgets.unlimited()) == (
        4.0, None)
    dead = build(hosts=hosts(*[(0.0, 0.0)] * 3, slots=1.0))
    assert smallgroup.enumerate_all(dead, math.inf, budgets.unlimited()) == (
        math.inf, None)
    late = budgets.Budget(budgets.Counter(), 1e-4)
    assert smallgroup.enumerate_all(inst, math.inf, late) == (0.0, None)
    fast = build(hosts=hosts(*[(80.0, 80.0)] * 3))
    for upper_s in (math.inf, 0.5):
        found_s, assign = smallgroup.enumerate_all(fast, upper_s,
                                                   budgets.unlimited())
        assert found_s == pytest.approx(0.4) and assign is not None


def test_group_sizes_of_one():
    inst = build(vms=(cluster.Vm('v', (1.0,)),), coflows=(
        coflow.Coflow.from_flows('c', 1, []),))
    assert bound(inst) == 0.0
    assert smallgroup.enumerate_all(inst, math.inf, budgets.unlimited())[
        0] == 0.0


@pytest.mark.parametrize('n, tried, piped', [
    (16, True, True), (17, False, True), (40, False, True),
    (41, False, False)])
def test_small_groups_are_solved_whole(n, tried, piped):
    inst = build(
        hosts=hosts((8.0, 8.0), (8.0, 4.0), slots=50.0),
        vms=tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(n)),
        coflows=(coflow.Coflow.from_flows('c', n, [(0, n - 1, 1.0)]),))
    assert smallgroup.enumerable(inst) is tried
    assert smallgroup.enumerable(
        dataclasses.replace(inst, pipe=True)) is piped


def test_what_is_enumerated_in_part_bounds_nothing():
    inst = build(hosts=hosts((8.0, 8.0), (4.0, 4.0), (2.0, 2.0), slots=1.0))
    begun = smallgroup.BEGIN_CALLS * budgets.CALL_UNITS
    found = [smallgroup.enumerate_all(inst, math.inf, budgets.Budget(
        budgets.Counter(), (begun + units) / budgets.UNITS_PER_S))
        for units in range(0, 6000, 100)]
    best_s = found[-1][0]
    assert {lower_s for lower_s, _assign in found} == {0.0, best_s}
    assert {(lower_s > 0, assign is not None)
            for lower_s, assign in found} == {
        (False, False), (False, True), (True, True)}


def test_hosts_that_are_alike_and_empty_are_tried_once():
    def looks(*rates):
        inst = build(hosts=hosts(*rates, slots=1.0))
        state = smallgroup._begin(inst, math.inf)
        assert enumeration_kernel.search(state, math.inf, math.inf)
        return state.counts[3]

    assert looks(*[(8.0, 8.0)] * 3) == 1
    assert looks((8.0, 8.0), (8.0, 8.0), (4.0, 8.0)) == 3
    assert looks((8.0, 8.0), (2.0, 8.0), (4.0, 8.0)) == 6


@pytest.mark.parametrize('slots, rate, is_open', [
    # v0 draws v1, both send v2 6 bytes a second.
    (2.0, 5.0, False), (2.0, 6.0, True), (3.0, 5.0, True)])
def test_a_host_holds_all_that_a_node_draws(slots, rate, is_open):
    names = ('h0', 'h1', 'h2')
    inst = build(
        hosts=hosts(*[(8.0, 8.0)] * 3, slots=slots), coflows=(
            coflow.Coflow.from_flows('c', 3, [
                (0, 1, 9.0), (0, 2, 3.0), (1, 2, 3.0)]),),
        pair_rate_bps={pair: 8 * rate for pair in
                       itertools.permutations(names, 2)})
    state = smallgroup._begin(inst, 1.0 + 1e-9)
    assert enumeration_kernel.search(state, 1.0, math.inf)
    assert (state.counts[3] > 0) is is_open
    # Otherwise no node has to be placed to see it.
    assert (state.node_at[0] >= 0) is is_open
    # v0 weighs more for that.
    assert list(state.weight) == [12.0 if is_open else 24.0, 12.0, 6.0]


@pytest.mark.parametrize('has_pairs', [True, False])
def test_with_pairs_only_nodes_that_exchange_bytes_are_checked(has_pairs):
    names = ('h0', 'h1', 'h2')
    inst = build(
        coflows=(coflow.Coflow.from_flows('c', 3, [(0, 1, 9.0)]),),
        pair_rate_bps={pair: 8.0 for pair in itertools.permutations(
            names, 2)} if has_pairs else None)
    state = smallgroup._begin(inst, math.inf)
    assert enumeration_kernel.search(state, 1.0, math.inf)
    # v2 exchanges none.
    assert state.near[2] == (not has_pairs)


def test_nodes_without_a_host_come_first_at_later_targets():
    item = generator.hard('pipe18x40', 31)[2]
    inst = instances.build(reference.to_problem(item))
    budget = budgets.Budget(budgets.Counter(), 0.7)
    lower_s, assign = smallgroup.enumerate_all(inst, 10.0, budget)
    # By bytes alone it takes more than a second of work.
    assert budget.in_time()
    assert lower_s == pytest.approx(objectives.evaluate(
        inst, assign, snapshot.Objective.ISOLATED).cct_s)


def test_targets_far_from_the_best_are_decided_first():
    item = generator.hard('pipe18x40', 0)[3]
    inst = instances.build(reference.to_problem(item))
    budget = budgets.Budget(budgets.Counter(), 0.5)
    lower_s, assign = smallgroup.enumerate_all(inst, 1e4, budget)
    assert budget.in_time() and inst.fits(assign)
    assert lower_s == pytest.approx(objectives.evaluate(
        inst, assign, snapshot.Objective.ISOLATED).cct_s)
    # What one refutation proved is kept where the time ends.
    assert any(0 < smallgroup.enumerate_all(inst, 1e4, budgets.Budget(
        budgets.Counter(), seconds))[0] < lower_s
        for seconds in (0.005, 0.01, 0.02))
    assert smallgroup.enumerate_all(
        inst, lower_s, budgets.unlimited(), lower_s) == (lower_s, None)


def test_pinned_nodes_may_take_too_long_already():
    inst = build(vms=tuple(cluster.Vm(f'vm{j}', (1.0,), pin) for j, pin in
                           enumerate(('h0', 'h1', None))))
    assert smallgroup.enumerate_all(inst, 4.0, budgets.unlimited()) == (
        4.0, None)
    found_s, assign = smallgroup.enumerate_all(inst, 100.0,
                                               budgets.unlimited())
    assert assign.tolist()[:2] == [0, 1]
    assert found_s == min(
        float(instances.times_s(objectives.own_loads(
            inst, np.array([0, 1, host])).sum(axis=0),
            inst.s_per_byte).max()) for host in range(3))


@pytest.mark.parametrize('changes, upper_s, seconds', [
    ({}, 0.0, math.inf), ({'coflows': ()}, math.inf, math.inf),
    ({}, math.inf, 1e-9)])
def test_what_cannot_be_bounded_costs_nothing(changes, upper_s, seconds):
    budget = budgets.Budget(budgets.Counter(), seconds)
    assert lowerbounds.anchored_sets(
        build(**changes), upper_s, budget) == lowerbounds.Bound(0.0)
    assert budget.clock.units == 0


def test_what_the_kernel_starts_from():
    inst = build(vms=tuple(cluster.Vm(f'vm{j}', (1.0,), pin) for j, pin in
                           enumerate(('h1', None, None))))
    work = lowerbounds.prepare(inst, [1, 0], budgets.unlimited())
    total = sum(float(size.sum()) for _src, _dst, size in inst.arcs)
    assert work.sets.rounding == pytest.approx(
        lowerbounds.SUM_ROUNDING * total)
    sent, rows = inst.sent, {
        name: work.arrays[name].reshape(2, -1).tolist() for name in (
            'status', 'cut', 'demand', 'from_set', 'to_set', 'from_outside',
            'to_outside', 'unit')}
    assert rows['status'] == [[1, 0, 0], [2, 0, 0]]
    assert rows['from_set'] == [sent[0].tolist(), [0, 0, 0]]
    assert rows['to_set'] == [sent[:, 0].tolist(), [0, 0, 0]]
    assert rows['from_outside'] == rows['from_set'][::-1]
    assert rows['to_outside'] == rows['to_set'][::-1]
    assert rows['cut'] == [[sent[0].sum(), sent[:, 0].sum()], [0, 0]]
    # One slot of two is left on h1.
    assert rows['demand'] == [pytest.approx([0, 1, 1]),
                              pytest.approx([0, 0.5, 0.5])]
    assert rows['unit'] == [[1, 1], [1, 1]]


def test_demand_is_a_share_of_rooms_however_small():
    inst = build(hosts=hosts(*[(8.0, 8.0)] * 3, slots=0.5), vms=tuple(
        cluster.Vm(f'vm{j}', (0.25,)) for j in range(3)))
    work = lowerbounds.prepare(inst, [0], budgets.unlimited())
    assert work.arrays['demand'].tolist() == pytest.approx([0.5] * 3)


def test_few_placements_are_all_judged(monkeypatch):
    """Also where blocks hold none that fits, or but one placement."""
    inst = build(hosts=hosts(*[(8.0, 8.0)] * 3, slots=(1.0, 2.0, 2.0)))
    budget = budgets.unlimited()
    for objective in snapshot.Objective:
        valid = [assign for assign in map(np.array, itertools.product(
            range(3), repeat=3)) if inst.fits(assign)]
        least = min(objectives.evaluate(inst, assign, objective).key
                    for assign in valid)
        for block in (1, 4, 27, 1000):
            monkeypatch.setattr(smallgroup, 'BLOCK', block)
            found = smallgroup.try_all(inst, objective, budget)
            assert objectives.evaluate(inst, found, objective).key == least
    sizes = []
    keys_of_many = objectives.keys_of_many
    monkeypatch.setattr(objectives, 'keys_of_many', lambda inst, assigns, by: (
        sizes.append(len(assigns)), keys_of_many(inst, assigns, by))[1])
    # Six ports, two coflows: the memory of two placements.
    monkeypatch.setattr(smallgroup, 'BLOCK_LOADS', 24)
    found = smallgroup.try_all(inst, objective, budget)
    assert objectives.evaluate(inst, found, objective).key == least
    assert max(sizes) <= 2 and len(sizes) == 14
    monkeypatch.setattr(smallgroup, 'MAX_JUDGED', 26)
    assert smallgroup.try_all(inst, snapshot.Objective.JOINT, budget) is None
    monkeypatch.setattr(smallgroup, 'MAX_JUDGED', 27)
    assert smallgroup.try_all(inst, snapshot.Objective.JOINT,
                              budget) is not None
    late = budgets.Budget(budgets.Counter(), 1e-6)
    assert smallgroup.try_all(inst, snapshot.Objective.JOINT, late) is None
    assert not late.spent_s()


def test_whether_all_placements_are_tried_depends_on_what_they_cost():
    """Flows and ports of each of them."""
    inst, asked = build(), []

    class Poor:
        def holds(self, cells):
            asked.append(cells)

    assert smallgroup.try_all(inst, snapshot.Objective.JOINT, Poor()) is None
    n_loads = len(inst.s_per_byte) * (len(inst.running) + len(inst.arcs))
    n_flows = sum(len(src) for src, _, _ in inst.arcs)
    assert asked == [len(inst.allowed[0]) ** len(inst.movable) * (
        smallgroup.JUDGE_CELLS * n_loads
        + smallgroup.PATH_CELLS * len(inst.port_out) * n_flows)]


def test_where_nothing_is_to_be_placed_or_fits_there_is_no_choice():
    pinned = tuple(cluster.Vm(f'vm{j}', (1.0,), f'h{j}') for j in range(3))
    found = smallgroup.try_all(build(vms=pinned), snapshot.Objective.JOINT,
                               budgets.unlimited())
    assert found.tolist() == [0, 1, 2]
    full = build(hosts=hosts(*[(8.0, 8.0)] * 2, slots=1.0))
    assert smallgroup.try_all(full, snapshot.Objective.JOINT,
                              budgets.unlimited()) is None
