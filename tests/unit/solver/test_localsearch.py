# SPDX-License-Identifier: Apache-2.0

"""The driver of the local search, by small groups."""

import itertools
import math
import random
import types

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit.solver import problems
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco.solver.moves import localsearch

Objective = snapshot.Objective
APART = np.array([0, 1, 2])


def searcher(objective=Objective.ISOLATED, seed=1, **changes):
    return localsearch.Searcher(instances.build(
        problems.fig_1_problem(**changes)), objective, seed)


def hosts(*rates_bps, slots=2.0):
    return tuple(cluster.Host(f'h{m}', (slots,), *rates)
                 for m, rates in enumerate(rates_bps))


def running(*sizes):
    return tuple(snapshot.ActiveCoflow(f'r{n}', (('h0', size),),
                                       (('h1', size),))
                 for n, size in enumerate(sizes))


def test_annealing_finds_the_best_far_below_a_second():
    fast = hosts(*[(8e3, 8e3)] * 3)
    search = searcher(hosts=fast)
    found, value = search.anneal(APART, 400)
    assert value.cct_s == pytest.approx(4e-3)
    assert found[0] == found[1] != found[2]
    assert value == search.evaluate(found)
    assert search.moves_done == 400


def test_annealing_ends_at_its_floor():
    search = searcher()
    budget = budgets.unlimited()
    found, value = search.anneal(APART, 400, floor_s=7.0, budget=budget)
    assert found.tolist() == APART.tolist() and not search.moves_done
    assert budget.clock.units == budgets.ASK_UNITS
    search.anneal(APART, 400, floor_s=4.0)
    assert 0 < search.moves_done < 400


def test_coflows_before_the_own_ones_count_for_the_floor():
    """The kernel's levels begin at the first own coflow."""
    for objective, active, before_s in (
            (Objective.ISOLATED, running(1.0), 0.0),
            (Objective.JOINT, running(3.0), 0.0),
            (Objective.JOINT, running(3.0, 9.0, 1.0), 1.0),
            (Objective.JOINT, running(1.5, 1.0), 1.0 + 2.5)):
        search = searcher(objective, active=active)
        assert search._before_s(search.levels(APART)) == before_s
    search = searcher(Objective.JOINT, active=running(1.5, 1.0))
    _found, value = search.anneal(APART, 400)
    _found, again = search.anneal(APART, 400, floor_s=value.objective_s)
    assert again.objective_s == value.objective_s


def test_there_is_nothing_to_move():
    pinned = tuple(cluster.Vm(f'vm{j}', (1.0,), f'h{j}') for j in range(3))
    one_host = hosts((8.0, 8.0), slots=3.0)
    for search, start in ((searcher(vms=pinned), APART),
                          (searcher(hosts=one_host), np.zeros(3, np.int64))):
        budget = budgets.unlimited()
        found, value = search.anneal(start, 400, budget=budget)
        assert found.tolist() == start.tolist()
        assert value == search.evaluate(start)
        assert budget.clock.units == 0
        for found in (search.least_cut(start, 50, budget),
                      search.polish(start, 50, budget)):
            assert found.tolist() == start.tolist() and found is not start
        assert not search.moves_done
    idle = searcher(coflows=())
    assert idle.polish(APART, 50, budgets.unlimited()).tolist() == [0, 1, 2]
    assert not idle.moves_done


def test_two_hosts_are_enough_to_move():
    search = searcher(hosts=hosts((8.0, 8.0), (8.0, 8.0), slots=2.0))
    start, budget = np.array([0, 1, 0]), budgets.unlimited()
    _found, value = search.anneal(start, 400)
    assert value.objective_s < search.evaluate(start).objective_s
    done = search.moves_done
    for run in (search.least_cut, search.polish):
        run(start, 50, budget)
        assert search.moves_done > done
        done = search.moves_done


def test_moves_are_as_many_as_time_allows():
    search = searcher()
    budget = budgets.Budget(budgets.Counter(), 0.001)
    search.anneal(APART, 10 ** 6, budget=budget)
    first = search.moves_done
    assert 0 < first < 10 ** 5
    assert search.s_per_move == pytest.approx(budget.spent_s() / first)
    once, alone = searcher(), budgets.unlimited()
    once.anneal(APART, 1, budget=alone)
    assert once.moves_done == 1 and once.s_per_move == alone.spent_s() > 0
    # The next run is planned by what a move took, and cools down in time.
    later = budgets.Budget(budgets.Counter(), 0.001)
    search.anneal(APART, 10 ** 6, budget=later)
    assert search.moves_done - first == pytest.approx(first, rel=0.2)
    assert search.s_per_move == pytest.approx(
        later.spent_s() / (search.moves_done - first))


def test_dead_ports_are_slow_instead():
    search = searcher(hosts=hosts((8.0, 0.0), (4.0, 8.0), (0.0, 16.0)))
    assert search.s_per_byte.tolist() == [1, 2, 2e6, 2e6, 1, 0.5]
    search = searcher(hosts=hosts(*[(0.0, 0.0)] * 3))
    assert search.s_per_byte.tolist() == [1e6] * 6


def test_one_coflow_alone_is_single():
    one = {'coflows': problems.fig_1_problem().coflows[:1]}
    assert searcher().is_single()
    assert not searcher(Objective.ONLINE).is_single()
    assert searcher(Objective.ONLINE, **one).is_single()
    assert not searcher(Objective.ONLINE, active=running(1.0),
                        **one).is_single()
    assert searcher(active=running(1.0)).is_single()


def test_levels_are_the_prefixes_from_the_first_own_coflow_on():
    # Own: C1 takes 5 s apart, C2 2 s; running: 1, 3 and 9 s.
    search = searcher(Objective.ONLINE, active=running(3.0, 9.0, 1.0))
    level, base, floor, weight = search.levels(APART)
    assert level.tolist() == [2, 0]
    assert weight.tolist() == [1.0] * 4 and floor.tolist() == [0.0] * 4
    assert base[:, 0].tolist() == [1.0, 4.0, 4.0, 13.0]
    level, base, floor, weight = searcher(
        active=running(3.0)).levels(APART)
    assert level.tolist() == [0, 0] and weight.tolist() == [1.0]
    assert not base.any() and not floor.any()


def test_noise_orders_anew_and_repeatably():
    def orders(seed):
        search = searcher(Objective.ONLINE, seed, active=running(3.0))
        return [tuple(search.levels(APART, 1.0)[0]) for _ in range(20)]

    assert orders(1) == orders(1) != orders(2)
    assert len(set(orders(1))) > 1


@pytest.mark.parametrize('seed', range(8))
def test_noise_scales_the_times_of_own_coflows(seed):
    """C1 takes 5 s apart, C2 2 s, what runs 3 s; its own order is fixed."""
    search = searcher(Objective.ONLINE, seed, active=running(3.0))
    # A look without noise changes no later order.
    assert search.levels(APART)[0].tolist() == [2, 0]
    draw = random.Random(seed)
    for _ in range(6):
        times_s = [time_s * math.exp(draw.gauss(0.0, 0.8))
                   for time_s in (5.0, 2.0)]
        order = sorted([*times_s, 3.0])
        first = order.index(min(times_s))
        assert search.levels(APART, 0.8)[0].tolist() == [
            order.index(time_s) - first for time_s in times_s]


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.integers(1, 120), st.data())
def test_merged_levels_stand_for_all(n_levels, data):
    level = np.array(data.draw(st.lists(
        st.integers(0, n_levels - 1), max_size=5)), dtype=np.int64)
    which, ends, weight = localsearch._merge_levels(level, n_levels)
    assert weight.sum() == n_levels and (weight >= 1).all()
    assert ends[-1] == n_levels - 1
    assert ends[which].tolist() == level.tolist()
    for own in level:
        # Bytes enter where they do, not before.
        assert own == 0 or own - 1 in ends
    if n_levels <= localsearch.MAX_LEVELS:
        assert ends.tolist() == list(range(n_levels))
    else:
        assert len(ends) <= localsearch.MAX_LEVELS + 2 * len(level)
        assert ends[0] == 0


def test_neighbours_with_their_bytes_per_coflow():
    search = searcher()
    start, node, which, out, into = search.adjacency
    assert start.tolist() == [0, 2, 5, 8]
    rows = list(zip(node.tolist(), which.tolist(), out.tolist(),
                    into.tolist(), strict=True))
    assert rows[:2] == [(1, 0, 5.0, 0.0), (2, 0, 0.0, 2.0)]
    assert rows[2:5] == [(0, 0, 0.0, 5.0), (2, 0, 1.0, 0.0),
                         (2, 1, 1.0, 2.0)]


def test_the_least_cut_looks_at_bytes_alone():
    slow = hosts((8.0, 1.0), (1.0, 8.0), (8.0, 8.0))
    search = searcher(hosts=slow)
    found = search.least_cut(APART, 300, budgets.unlimited())
    # Between 0 and 1 5 bytes, 1 and 2 4, 2 and 0 2.
    assert found[0] == found[1] != found[2]
    assert search.moves_done == 300


def test_polish_spares_ports_below_the_slowest():
    vms = tuple(cluster.Vm(f'v{j}', (1.0,), pin) for j, pin in enumerate(
        ('h0', 'h1', None, None)))
    search = searcher(
        hosts=hosts(*[(8.0, 8.0)] * 4), vms=vms,
        coflows=(coflow.Coflow.from_flows('c', 4, [
            (0, 1, 9.0), (2, 3, 4.0), (3, 0, 2.0)]),))
    before = search.evaluate(np.array([0, 1, 2, 3]))
    found = search.polish(np.array([0, 1, 2, 3]), 300, budgets.unlimited())
    assert found[2] == found[3]
    assert search.evaluate(found).objective_s == before.objective_s == 9.0


def test_a_byte_is_priced_by_what_waits():
    """Ports with a backlog are dearer, dead ones no dearer than finite."""
    search = searcher(Objective.ONLINE, active=running(6.0))
    price_s = search._price_s(APART)
    inst, ahead = search.inst, search.ahead
    own_s = np.array([5 + 0.0, 1 + 1, 2 + 2, 2, 5 + 2, 1 + 1])
    usual_s = (own_s ** 2).sum() / own_s.sum()
    backlog_s = np.array([6.0, 0, 0, 0, 6.0, 0])
    assert ahead.rate == pytest.approx(1 / 6 / (4 * 3))
    assert price_s == pytest.approx(ahead.rate * (2 * backlog_s + usual_s))
    assert inst.n_fabric == 6
    assert not searcher(active=running(6.0))._price_s(APART).any()


def test_fast_ports_are_cheap():
    """A thousand times the rates of hosts divide all times by as many."""
    hosts_of = [hosts(*[(8.0 * scale, 4.0 * scale)] * 3)
                for scale in (1.0, 1000.0)]
    slow, fast = (searcher(Objective.ONLINE, active=running(6.0), hosts=some)
                  for some in hosts_of)
    assert fast._price_s(APART) * 1000 == pytest.approx(slow._price_s(APART))
    own_s = np.array([5.0, 2, 4, 4, 14, 4])
    backlog_s = np.array([6.0, 0, 0, 0, 12.0, 0])
    assert slow._price_s(APART) == pytest.approx(
        slow.ahead.rate * np.repeat([1.0, 2.0], 3) * (
            2 * backlog_s + (own_s ** 2).sum() / own_s.sum()))


def test_what_no_move_changes_is_fixed():
    search = searcher(Objective.ONLINE, active=running(3.0, 9.0))
    level, base, floor, weight = search.levels(APART)
    price_s = np.arange(6.0)
    graph, _state = search._prepare(
        APART, search.s_per_byte, (level, base, floor + 4.0, weight),
        price_s=price_s)
    tops_s = np.maximum((base * search.s_per_byte).max(axis=1), 4.0)
    assert graph.fixed_s == pytest.approx(
        (tops_s * weight).sum() + base[-1] @ price_s)


def test_the_kernel_knows_which_resources_hosts_share():
    """Behind the hosts' own slots comes each rack's share of the VMs."""
    search = searcher(
        tree=cluster.Tree((cluster.Subtree('r', math.inf, math.inf),),
                          {f'h{m}': 'r' for m in range(3)}),
        spread=(snapshot.Spread('rack', (0, 1, 2)),))
    start = np.array([0, 0, 1])
    graph, _state = search._prepare(start, search.s_per_byte,
                                    search.levels(start))
    assert (graph.n_own, graph.n_resources) == (1, 2)


def test_neighbours_of_nodes_without_coflows_are_none():
    start, *rows = searcher(coflows=()).adjacency
    assert start.tolist() == [0] * 4
    assert [len(row) for row in rows] == [0] * 4


def test_a_seed_means_the_same_in_every_version():
    """The generator never begins with 0, at which it would stay."""
    assert [localsearch._mix(seed) for seed in (0, 1, 2, -1)] == [
        0x9E3779B9, 0x3C6EF36B, 0xDAA66D1C, 0x08]
    assert localsearch._mix(3645073776) == 1


def test_seeds_start_unlike_generators():
    found = [localsearch._mix(seed) for seed in range(200)]
    assert len(set(found)) == 200 and all(0 < x < 2 ** 32 for x in found)
    starts = {tuple(searcher(seed=seed).anneal(APART, 3)[0])
              for seed in range(12)}
    assert len(starts) > 1
    assert all(len(set(one)) > 1 for one in itertools.islice(starts, 9))


def runs_of(search, monkeypatch):
    """What is asked of the kernel: its graph, norm, moves and heats."""
    asked = []

    def run(graph, _state, power, moves, hot, cold, _budget, enough_s=0.0):
        asked.append((graph, power, moves, hot, cold, enough_s))

    monkeypatch.setattr(search, '_run', run)
    return asked


def test_a_run_cools_down_from_chunk_to_chunk(monkeypatch):
    search = searcher()
    asked = runs_of(search, monkeypatch)
    search.anneal(APART, 100_000, floor_s=1.0)
    assert [one[1:3] for one in asked] == [(5, 20_000)] * 5
    heats = [0.1 * 0.03 ** (n / 5) for n in range(6)]
    assert [one[3] for one in asked] == pytest.approx(heats[:-1])
    assert [one[4] for one in asked] == pytest.approx(heats[1:])
    assert {one[5] for one in asked} == {1.0}
    asked.clear()
    search.anneal(APART, 19_999, power=6)
    assert [one[1:3] for one in asked] == [(6, 19_999)]
    # Several coflows freeze later, and their order is taken anew.
    search = searcher(Objective.ONLINE)
    asked = runs_of(search, monkeypatch)
    orders = []
    levels = search.levels

    def noted(assign, noise):
        orders.append(noise)
        return levels(assign, noise)

    search.levels = noted
    search.anneal(APART, 1200, hot=0.3)
    assert [one[2] for one in asked] == [100] * 12
    assert asked[-1][4] == pytest.approx(0.001)
    assert orders == pytest.approx(
        [1 - n / 6 for n in range(6)] + [0.0] * 6)
    orders.clear()
    search.anneal(APART, 5, hot=0.29)
    assert orders == [0.0] * 12
    assert [one[2] for one in asked[12:]] == [1] * 12


def test_what_a_cut_and_a_polish_ask_for(monkeypatch):
    search = searcher(hosts=hosts((8.0, 4.0), (8.0, 8.0), (2.0, 8.0)))
    asked = runs_of(search, monkeypatch)
    search.least_cut(APART, 50, budgets.unlimited())
    search.polish(APART, 60, budgets.unlimited())
    (cut, *cut_run), (polish, *polish_run) = asked
    assert cut_run == [0, 50, 0.3, 0.001, 0.0]
    assert polish_run == [0, 60, 0.02, 0.001, 0.0]
    assert list(cut.s_per_byte) == [1, 1, 1, 0, 0, 0]
    # h2 sends 4 bytes at a quarter of a byte per second.
    assert list(polish.ceiling_s) == [16.0 * (1 + 1e-12)]
    several = searcher(Objective.ONLINE, active=running(3.0))
    asked = runs_of(several, monkeypatch)
    several.polish(APART, 60, budgets.unlimited())
    # C2 takes 2 s, what runs ends after 3, C1 into h1 after 5 + 2 + 3.
    assert list(asked[0][0].ceiling_s) == pytest.approx([2.0, 3 + 2, 10.0])


def test_the_kernel_is_asked_again_for_what_is_left():
    def asked(bests, enough_s=0.0, spent=10.0):
        search, seen, left = searcher(), [], iter(bests)
        state = types.SimpleNamespace(counts=[0, 0, 4, spent], random=[77])
        budget = budgets.Budget(budgets.Counter(), 1.0)

        def anneal(_graph, _state, power, moves, hot, cold, best_s, enough_s,
                   most):
            seen.append((power, moves, hot, cold, best_s, enough_s, most))
            return next(left)

        search.kernel = types.SimpleNamespace(anneal=anneal)
        search._run(None, state, 5, 10, 0.4, 0.1, budget, enough_s)
        assert search.random[0] == 77
        assert search.moves_done == 4 * len(seen)
        assert budget.clock.units == spent * len(seen)
        return seen

    rest = (0.1, math.inf, 0.0, budgets.CHUNK_UNITS)
    first, second, third = asked([9.0, 8.0, 7.0])
    assert first == (5, 10, 0.4, *rest)
    assert second == (5, 6, pytest.approx(0.4 * 0.25 ** 0.4), 0.1, 9.0,
                      *rest[2:])
    assert third[1:3] == (2, pytest.approx(0.4 * 0.25 ** 0.8))
    assert len(asked([9.0, 3.0], enough_s=3.0)) == 2
    # A second is spent at once.
    assert len(asked([9.0], spent=1e9)) == 1


def test_an_equal_placement_is_no_better():
    search = searcher()
    value = search.evaluate(APART)
    assert not value.key < value.key
    assert search.evaluate(np.array([0, 0, 1])).key < value.key


def test_a_cut_begins_with_clusters_and_moves_each_node(monkeypatch):
    inst = instances.build(problems.fig_1_problem())
    asked = []

    def cut(self, start, moves, _budget):
        asked.append((self.objective, start.tolist(), moves))
        return start

    monkeypatch.setattr(localsearch.Searcher, 'least_cut', cut)
    found = localsearch.min_cut(inst, 1, budgets.unlimited())
    assert asked == [(Objective.ISOLATED, found.tolist(),
                      3 * localsearch.CUT_MOVES)]
    assert found[0] == found[1] != found[2]
    inst = instances.build(problems.fig_1_problem(coflows=(
        coflow.Coflow.from_flows('c', 3, [(0, 2, 5.0), (0, 1, 1.0)]),)))
    found = localsearch.min_cut(inst, 1, budgets.unlimited())
    assert found[0] == found[2] != found[1]
