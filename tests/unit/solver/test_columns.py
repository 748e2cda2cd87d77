# SPDX-License-Identifier: Apache-2.0

"""Sets of nodes and the programs that cover a group with them."""

import dataclasses
import functools
import itertools
import random

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests import examples
from tests.unit.solver import problems
from virtco import compiled
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.bounds import lowerbounds
from virtco.solver.bounds import sets_kernel
from virtco.solver.model import instance as instances
from virtco.solver.partition import columns
from virtco.solver.partition import master
from virtco.solver.partition import rounding
from virtco.solver.partition import setpartition

SETTINGS = hypothesis.settings(
    max_examples=examples.count(60), deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck))
plain = functools.cache(compiled.plain)
#: Least time around each node and work; bound, sets and looks per class.
LEAST = [
    (3.0, 796.0),
    (5.0, 996.0),
    (5.0, 596.0),
    (5.0, 596.0)]
TOLD = [
    (2.573158, 0, 5),
    (1.150959, 1, 11),
    (2.888608, 1, 5),
    (1.150959, 2, 21),
    (3.646236, 0, 5),
    (1.150959, 1, 17)]


def build(problem):
    try:
        return instances.build(problem)
    except exception.PlacementInfeasible:
        hypothesis.reject()


def pool_of(inst, code=sets_kernel):
    return columns.Pool(inst, code)


def hose_s(inst):
    return lowerbounds.hose_s_per_byte(inst).ravel()


def unlike(**changes):
    """Hosts of 2, 2, 1 slots, the second slow."""
    fields = {
        'hosts': (cluster.Host('h0', (2.0,), 8.0, 8.0),
                  cluster.Host('h1', (2.0,), 4.0, 2.0),
                  cluster.Host('h2', (1.0,), 8.0, 8.0)),
        'vms': tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(4)),
        'coflows': (coflow.Coflow.from_flows('c', 4, [
            (0, 1, 3.0), (1, 0, 1.0), (1, 2, 5.0), (3, 2, 7.0)]),)}
    return instances.build(snapshot.PlacementProblem(
        **{**fields, **changes}))


def nodes(*members, n=4):
    found = np.zeros(n, dtype=bool)
    found[list(members)] = True
    return found


@SETTINGS
@hypothesis.given(problems.problems(max_vms=5), st.floats(0.01, 30.0),
                  st.integers(0, 10 ** 6), st.integers(1, 12),
                  st.floats(-1.0, 1.0))
def test_pricing_leaves_nothing_behind(problem, t_s, seed, limit, cutoff):
    """One class after another; the answer is the plain kernel's."""
    inst = build(problem)
    rng = random.Random(seed)
    value = np.array([rng.choice((-1, 0, 0.3, 0.5, 1)) * rng.random()
                      for _ in range(inst.n_nodes)])
    placed = np.array([inst.fixed[j] < 0 and rng.random() < 0.1
                       for j in range(inst.n_nodes)])

    def price(code):
        pool = pool_of(inst, code)
        limits = hose_s(inst)[pool.ports] / t_s
        told = []
        for c in range(len(pool.classes)):
            for most in (limit, 500):
                budget = budgets.unlimited()
                upper, found = pool.price(c, limits, value, cutoff, most,
                                          placed, budget)
                told.append((upper, [one.tolist() for one in found],
                             budget.clock.units))
                assert pool._work.arrays['counts'][1] <= most + 1
        return told

    assert price(sets_kernel) == price(plain(sets_kernel.__name__))


@SETTINGS
@hypothesis.given(problems.problems(max_vms=5), st.floats(0.01, 30.0),
                  st.integers(0, 10 ** 6))
def test_a_pricing_cut_short_is_a_bound(problem, t_s, seed):
    inst = build(problem)
    value = np.array([random.Random(seed + j).random()
                      for j in range(inst.n_nodes)])
    nothing = np.zeros(inst.n_nodes, dtype=bool)
    pool = pool_of(inst)
    limits = hose_s(inst)[pool.ports] / t_s
    for c in range(len(pool.classes)):
        full, _found = pool.price(c, limits, value, -1.0, 10 ** 6, nothing,
                                  budgets.unlimited())
        for limit in range(1, 8):
            cut, _found = pool.price(c, limits, value, -1.0, limit, nothing,
                                     budgets.unlimited())
            assert full - 1e-12 <= cut <= value.sum() + 1e-9


@pytest.mark.parametrize('seed', [17, 19, 28, 32])
def test_pricing_knows_each_resource(seed):
    """Of vCPUs there are enough, so memory decides."""
    rng = random.Random(seed)
    memory = [float(rng.randint(1, 4)) for _ in range(6)]
    free = 6.0, float(rng.randint(5, 8))
    inst = unlike(
        hosts=tuple(cluster.Host(f'h{m}', free, 8.0, 8.0) for m in range(12)),
        vms=tuple(cluster.Vm(f'v{j}', (1.0, one))
                  for j, one in enumerate(memory)),
        coflows=(coflow.Coflow.from_flows('c', 6, [
            (0, 1, 1.0), (2, 3, 1.0), (4, 5, 1.0)]),),
        resources=('vcpus', 'memory_mb'))
    value = np.array([rng.random() for _ in memory])
    best = max(sum(value[list(some)]) for n in range(7)
               for some in itertools.combinations(range(6), n)
               if sum(memory[j] for j in some) <= free[1])
    pool = pool_of(inst)
    limits = hose_s(inst)[pool.ports] / 100.0
    for most in (2, 3, 10 ** 6):
        upper, _found = pool.price(0, limits, value, -1.0, most,
                                   np.zeros(6, dtype=bool),
                                   budgets.unlimited())
        assert upper >= best - 1e-9
    assert upper == pytest.approx(best)


def test_classes_are_hosts_alike_of_one_subtree():
    inst = unlike(hosts=tuple(
        cluster.Host(f'h{m}', (2.0,), 8.0, 8.0) for m in range(5)),
        vms=tuple(cluster.Vm(f'v{j}', (1.0,), 'h1' if j == 3 else None)
                  for j in range(4)),
        tree=cluster.Tree((cluster.Subtree('s', 16.0, 1.0),),
                          {'h0': 's', 'h1': 's'}))
    pool = pool_of(inst)
    kinds = pool.classes
    assert sorted(kind.hosts for kind in kinds) == [(0,), (1,), (2, 3, 4)]
    assert [kind.hosts for kind in kinds if kind.is_terminal] == [(1,)]
    terminal = next(kind for kind in kinds if kind.is_terminal)
    assert [1, 6] == pool.ports[kinds.index(terminal)].tolist()
    assert terminal.free == pytest.approx([1.0])
    assert terminal.pinned.tolist() == [False, False, False, True]
    assert terminal.allowed.tolist() == [True, True, True, False]


def test_a_set_joins_the_classes_that_hold_it():
    pool = pool_of(unlike())
    hosts = [kind.hosts for kind in pool.classes]
    roomy = np.zeros((3, 2))

    def where(members, limits):
        before = len(pool.of_class)
        n_new = pool.add(members, limits)
        found = [hosts[c] for c in pool.of_class[before:]]
        assert len(found) == n_new
        return sorted(found)

    assert where(nodes(0, 1, 2), roomy) == []
    assert where(nodes(0, 1), roomy) == [(0,), (1,)]
    assert where(nodes(0, 1), roomy) == []
    assert where(nodes(2), roomy) == [(0,), (1,), (2,)]
    # 0 and 2 send 3 and receive 1 + 5 + 7 bytes.
    tight = roomy.copy()
    tight[hosts.index((0,))] = 1 / 3, 1 / 13
    tight[hosts.index((1,))] = 1 / 2.99, 1 / 13
    assert where(nodes(0, 2), tight) == [(0,)]
    assert where(nodes(0, 2), roomy) == [(1,)]
    shares = pool.shares(tight)
    last = int(np.flatnonzero(pool.of_class == hosts.index((0,)))[-1])
    assert shares[last] == pytest.approx((1.0, 1.0))
    only = np.array([kind == (1,) for kind in hosts])
    assert pool.add(nodes(3), roomy, only) == 1
    assert hosts[pool.of_class[-1]] == (1,)


def test_a_pool_grows():
    n = 7
    inst = unlike(
        hosts=tuple(cluster.Host(f'h{m}', (9.0,), 8.0 + m, 8.0)
                    for m in range(3)),
        vms=tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(n)),
        coflows=(coflow.Coflow.from_flows(
            'c', n, [(j, j + 1, 1.0 + j) for j in range(n - 1)]),))
    pool = pool_of(inst)
    limits = np.zeros((3, 2))
    sets = [np.array([bits >> j & 1 for j in range(n)], dtype=bool)
            for bits in range(1, 100)]
    assert [pool.add(members, limits) for members in sets] == [3] * 99
    assert len(pool.members) == len(pool.of_class) == 297
    for i, members in enumerate(sets):
        for row in range(3 * i, 3 * i + 3):
            assert pool.members[row].tolist() == members.tolist()
        assert sorted(pool.of_class[3 * i:3 * i + 3]) == [0, 1, 2]
    shares = pool.shares(np.ones((3, 2)))
    for i, members in enumerate(sets):
        out = sum(1.0 + j for j in range(n - 1)
                  if members[j] and not members[j + 1])
        into = sum(1.0 + j for j in range(n - 1)
                   if members[j + 1] and not members[j])
        assert shares[3 * i].tolist() == [out, into]


def test_the_sets_of_a_placement():
    inst = unlike()
    pool = pool_of(inst)
    hosts = [kind.hosts for kind in pool.classes]
    pool.add_placement(np.array([0, 0, 1, 2]), np.zeros((3, 2)),
                       budgets.unlimited())
    found = {(hosts[c], tuple(np.flatnonzero(members).tolist()))
             for c, members in zip(pool.of_class, pool.members,
                                   strict=True)}
    assert found == {((0,), (0, 1)), ((1,), (0, 1)), *(
        ((m,), (j,)) for m in range(3) for j in (2, 3))}
    late = pool_of(inst)
    late.add_placement(np.array([0, 0, 1, 2]), np.zeros((3, 2)),
                       budgets.Budget(budgets.Counter(), 0.0))
    assert not len(late.members)


def test_pinned_nodes_count_in_a_sets_bytes():
    inst = unlike(vms=tuple(
        cluster.Vm(f'v{j}', (1.0,), 'h0' if j == 1 else None)
        for j in range(4)))
    pool = pool_of(inst)
    c = [kind.hosts for kind in pool.classes].index((0,))
    pool.add(nodes(2), np.zeros((3, 2)))
    shares = pool.shares(np.ones((3, 2)))
    # With 1 there, 2 does not receive its 5 bytes, but 1 sends and gets.
    assert shares[pool.of_class == c].tolist() == [[1.0, 10.0]]
    assert shares[pool.of_class != c].tolist() == [[0.0, 12.0]] * 2


def least_of(pool):
    """What nodes send and receive at least, per class."""
    rows = {name: pool._work.arrays[name].reshape(len(pool.classes), -1)
            for name in ('least_out', 'least_in')}
    return [{name: row[c] for name, row in rows.items()}
            for c in range(len(pool.classes))]


def test_least_cuts_are_below_any_set_that_fits():
    inst = unlike()
    pool = pool_of(inst)
    for kind, start in zip(pool.classes, least_of(pool), strict=True):
        for node in range(4):
            sets = [members for bits in range(16) if bits >> node & 1
                    for members in [nodes(*(j for j in range(4)
                                            if bits >> j & 1))]
                    if inst.demand[members].sum() <= kind.free[0]]
            for name, way in (('least_out', 0), ('least_in', 1)):
                sent = [(pool._dense if way == 0 else pool._dense.T)[
                    node, ~members].sum() for members in sets]
                # One slot each: the knapsack is exact.
                assert start[name][node] == pytest.approx(min(sent))


def covers(problem, assigns):
    """A master over the sets of placements, at endless limits."""
    pool = pool_of(problem)
    limits = np.zeros((len(pool.classes), 2))
    for assign in assigns:
        pool.add_placement(np.array(assign), limits, budgets.unlimited())
    return master.Master(pool), limits


def test_sets_of_a_placement_cover_all():
    program, limits = covers(unlike(), [(0, 0, 1, 2)])
    cover = program.cover(limits, budgets.unlimited())
    assert cover.uncovered == pytest.approx(0.0, abs=1e-9)
    assign = rounding.dive(
        program, lambda: program.cover(limits, budgets.unlimited()))
    assert (assign >= 0).all() and program.is_done()
    assert program.pool.inst.fits(assign)
    assert rounding.dive(program, lambda: None) is None
    assert not program.is_done()


def test_the_largest_share_and_whole_sets_are_fixed():
    program, limits = covers(unlike(), [(0, 0, 1, 2)])
    cover = program.cover(limits, budgets.unlimited())
    of = [program.pool.members[k].tolist() for k in cover.chosen]

    def fixed(**share):
        program.release()
        shares = [share.get(''.join(str(j) for j in range(4) if row[j]), 0.0)
                  for row in of]
        # Several classes hold the same set: the first one counts.
        first = [s if of.index(row) == k else 0.0
                 for k, (s, row) in enumerate(zip(shares, of, strict=True))]
        rounding.fix_largest(program, dataclasses.replace(
            cover, share=np.array(first)))
        return (program.assign >= 0).tolist()

    assert fixed(**{'01': 0.6, '2': 0.5, '3': 0.4}) == [
        True, True, False, False]
    assert fixed(**{'01': 0.2, '2': 0.5, '3': 0.4}) == [
        False, False, True, False]
    assert fixed(**{'01': rounding.WHOLE, '2': 1.0}) == [
        True, True, True, False]
    assert fixed(**{'01': rounding.WHOLE - 1e-6, '2': 1.0}) == [
        False, False, True, False]


def test_what_is_not_covered_is_counted():
    program, limits = covers(unlike(), [])
    cover = program.cover(limits, budgets.unlimited())
    assert cover.uncovered == pytest.approx(4.0)
    program.pool.add(nodes(0, 1), limits)
    program.pool.add(nodes(2), limits)
    cover = program.cover(limits, budgets.unlimited())
    assert cover.uncovered == pytest.approx(1.0)
    # Node 3 alone misses; all others cost nothing.
    assert cover.value[3] == pytest.approx(1.0)
    assert cover.wanted - cover.price @ program.count == pytest.approx(
        1.0)
    none = budgets.Budget(budgets.Counter(), 0.0)
    assert program.cover(limits, none) is None


def test_a_program_costs_time_for_its_columns_and_steps(monkeypatch):
    """A step takes as long as there are nodes and classes of hosts."""
    program, limits = covers(unlike(), [(0, 0, 1, 2)])
    seen = []

    def linprog(*args, options, **kwargs):
        result = solve(*args, options=options, **kwargs)
        seen.append((options['maxiter'], result.nit))
        return result

    solve = master.scipy.optimize.linprog
    monkeypatch.setattr(master.scipy.optimize, 'linprog', linprog)
    budget = budgets.Budget(budgets.Counter(), 0.004)
    cover = program.cover(limits, budget)
    (most, steps), = seen
    step_units = master.STEP_UNITS * (4 + 3)
    assert most == int(4e6 / step_units) and steps > 0
    assert budget.clock.units == pytest.approx(
        master.LP_UNITS + master.COLUMN_UNITS * len(cover.chosen)
        + step_units * steps)


def test_a_fixed_set_is_out_of_the_way():
    program, limits = covers(unlike(), [(0, 0, 1, 2)])
    hosts = [kind.hosts for kind in program.pool.classes]
    pool = program.pool

    def column(host, *members):
        return next(k for k in range(len(pool.of_class))
                    if hosts[pool.of_class[k]] == (host,)
                    and pool.members[k].tolist() == nodes(*members).tolist())

    program.fix(column(0, 0, 1))
    assert program.assign.tolist() == [0, 0, -1, -1]
    assert program.placed.tolist() == [True, True, False, False]
    assert program.count[hosts.index((0,))] == 0
    assert not program.is_done()
    for k in program._chosen(limits):
        assert hosts[pool.of_class[k]] != (0,)
        assert not pool.members[k, :2].any()
    # Neither again, nor elsewhere, nor another set on the same host.
    for again in (column(0, 0, 1), column(1, 0, 1), column(0, 2)):
        program.fix(again)
        assert program.assign.tolist() == [0, 0, -1, -1]
    program.fix(column(2, 3))
    assert program.assign.tolist() == [0, 0, -1, 2]
    cover = program.cover(limits, budgets.unlimited())
    assert cover.value[[0, 1, 3]].tolist() == [0, 0, 0]
    assert cover.uncovered == pytest.approx(0.0, abs=1e-9)


def test_narrowing_meets_at_the_known_best():
    inst = instances.build(problems.fig_1_problem())
    partition = setpartition.Partition(inst, budgets.unlimited())
    seen = []

    def judge(assign):
        seen.append(7.0 if len(set(assign.tolist())) == 3 else 4.0
                    if assign[0] == assign[1] else 5.0)
        return seen[-1]

    lower_s = partition.narrow(0.0, 7.0, judge)
    assert min(seen) == 4.0
    assert lower_s == pytest.approx(4.0, rel=1e-7) and lower_s <= 4.0
    assert partition.decide(partition.within_s(3.9))[0] is (
        setpartition.Verdict.REFUTED)
    verdict, assign = partition.decide(partition.within_s(4.0))
    assert verdict is setpartition.Verdict.FOUND
    assert assign[0] == assign[1] != assign[2]
    # Without time nothing is said.
    partition.budget = budgets.Budget(budgets.Counter(), 0.0)
    partition.refuting = None
    assert partition.decide(partition.within_s(3.9)) == (
        setpartition.Verdict.UNKNOWN, None)
    assert partition.narrow(2.0, 7.0, judge) == 2.0


@SETTINGS
@hypothesis.given(problems.problems('hose', max_vms=5))
def test_no_set_that_fits_cuts_less_than_its_least(problem):
    inst = build(problem)
    pool = pool_of(inst)
    for kind, start in zip(pool.classes, least_of(pool), strict=True):
        able = np.flatnonzero(kind.allowed)
        for node, bits in itertools.product(able, range(2 ** len(able))):
            members = nodes(*(j for k, j in enumerate(able)
                              if bits >> k & 1), n=inst.n_nodes)
            demand = inst.demand[members].sum(axis=0)
            if members[node] and ((demand <= kind.free)
                                  | (demand <= 0)).all():
                outside = ~(members | kind.pinned)
                for name, dense in (('least_out', pool._dense),
                                    ('least_in', pool._dense.T)):
                    assert start[name][node] <= (
                        dense[node, outside].sum() + 1e-3)


def test_small_nodes_with_heavy_traffic_are_absorbed_first():
    """Of 3 slots beside it, 2.5 go to 9 bytes, the rest to 1.5 of 6."""
    inst = unlike(
        hosts=(cluster.Host('h', (4.0,), 8.0, 8.0),),
        vms=tuple(cluster.Vm(f'v{j}', (need,)) for j, need in enumerate(
            (1.0, 2.0, 2.0, 0.5))),
        coflows=(coflow.Coflow.from_flows('c', 4, [
            (0, 1, 6.0), (0, 2, 7.0), (0, 3, 2.0)]),))
    start, = least_of(pool_of(inst))
    # The last one has 4 bytes per slot, more than 3.5 and 3.
    assert start['least_out'][0] == pytest.approx(4.5)
    assert start['least_in'].tolist() == pytest.approx([0.0] * 4)


def test_looks_at_a_tree_are_the_same_on_any_machine():
    """Bounds and settled nodes are worth what they save: few looks."""
    rng = random.Random(4)
    n = 12
    inst = unlike(
        hosts=tuple(cluster.Host(f'h{m}', (4.0 + m,), 8.0, 8.0 + m)
                    for m in range(3)),
        vms=tuple(cluster.Vm(f'v{j}', (1.0 + j % 2,)) for j in range(n)),
        coflows=(coflow.Coflow.from_flows('c', n, [
            (a, b, float(rng.randint(1, 9))) for a in range(n)
            for b in range(n) if a != b and rng.random() < 0.4]),))
    pool = pool_of(inst)
    value = np.array([0.2 + rng.random() for _ in range(n)])
    told = []
    for c in range(3):
        for limit in (4, 9999):
            upper, found = pool.price(
                c, np.full((3, 2), 0.04), value, 1.0, limit,
                nodes(3, n=n), budgets.unlimited())
            told.append((round(upper, 6), len(found),
                         int(pool._work.arrays['counts'][1])))
    assert told == TOLD


def test_cheapest_sets_take_few_looks():
    work = pool_of(unlike())._work
    told = []
    for node in range(4):
        work.sets.work[0], work.sets.work[1] = 0.0, 1e9
        least_s = sets_kernel.least_around(work.sets, work.classes, node,
                                           1e300, 0.0, 100)
        told.append((round(least_s, 6), work.sets.work[0]))
    assert told == LEAST


def test_sets_are_chosen_up_to_their_limits():
    program, limits = covers(unlike(), [(0, 0, 1, 2)])
    pool = program.pool
    most_bytes = pool.shares(np.ones_like(limits)).max()
    widest = np.flatnonzero(
        pool.shares(np.ones_like(limits)).max(axis=1) == most_bytes)
    for share, is_chosen in ((1 - 1e-6, True), (1.0, True),
                             (1 + 1e-6, False)):
        limits[:] = share / most_bytes
        assert np.isin(widest, program._chosen(limits)).tolist() == [
            is_chosen] * len(widest)
