# SPDX-License-Identifier: Apache-2.0

"""Room that is left for groups to come, worked out by hand."""

import dataclasses
import math

import numpy as np
import pytest

from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.judging import foresight
from virtco.solver.model import instance as instances


def build(frees, flows=((0, 1, 6.0),), rates=(8.0, 8.0), n_vms=2, **changes):
    return instances.build(snapshot.PlacementProblem(**{
        'hosts': tuple(cluster.Host(f'h{m}', (float(free),), *rates)
                       for m, free in enumerate(frees)),
        'vms': tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(n_vms)),
        'coflows': (coflow.Coflow.from_flows('c', n_vms, flows),),
        **changes}))


def copies_s(inst, *assign):
    return foresight.copies_s(inst, np.array(assign))


def test_copies_share_a_host_or_not():
    # Two pieces of room: a copy is cut, and nobody knows which way it sends
    # its 6 bytes: 3 each way, behind the 6 there.
    assert copies_s(build([2, 2]), 0, 1) == pytest.approx(6.0 + 3.0)
    # One piece: nothing is sent, and nothing waits there.
    assert copies_s(build([2, 2]), 0, 0) == 0.0
    # Room for one VM more is room for none of them.
    assert copies_s(build([2, 1]), 0, 1) == 0.0
    assert copies_s(build([3, 2]), 0, 0) == pytest.approx(0.0)


def test_a_group_that_sends_nothing_is_not_copied():
    assert copies_s(build([2, 2], ()), 0, 1) == 0.0
    alone = build([2, 2], n_vms=1, flows=())
    assert copies_s(alone, 0) == 0.0


def test_room_is_counted_in_vms_of_the_mean_size():
    inst = build([5, 9, 3], vms=(
        cluster.Vm('v0', (2.0,)), cluster.Vm('v1', (2.0,))))
    assert foresight._room(inst, np.array([0, 1]), np.array([2.0])
                           ).tolist() == [1, 2, 1]
    # A host without a port has none.
    dead = dataclasses.replace(inst.problem, hosts=(
        *inst.problem.hosts[:2], cluster.Host('h2', (3.0,), 0.0, 8.0)))
    assert foresight._room(instances.build(dead), np.array([0, 1]),
                           np.array([2.0])).tolist() == [1, 2, 0]


def test_shares_of_a_switch_leave_room_for_other_groups():
    """The group's wish allows one VM in each rack, another group more."""
    inst = build([4, 3], tree=cluster.Tree(
        tuple(cluster.Subtree(name, 8.0, 8.0) for name in 'rs'),
        {'h0': 'r', 'h1': 's'}), spread=(snapshot.Spread('rack', (0, 1)),))
    assert len(inst.sharing) == 1
    assert foresight._room(inst, np.array([0, 1]),
                           inst.demand.mean(axis=0)).tolist() == [2, 2]
    # As many at most as the group has.
    inst = build([4, 2])
    assert foresight._room(inst, np.array([0, 1]),
                           inst.demand.mean(axis=0)).tolist() == [2, 1]


def test_copies_go_to_the_idlest_of_equal_room():
    running = (snapshot.ActiveCoflow('r', (('h0', 5.0),), (('h1', 4.0),)),)
    inst = build([2, 1, 1, 1, 1, 1], active=running, vms=(
        cluster.Vm('v0', (1.0,), 'h0'), cluster.Vm('v1', (1.0,), 'h0')))
    assert copies_s(inst, 0, 0) == 0.0
    inst = build([1, 1, 1, 1, 1, 1], active=running)
    # Own bytes pass h4 and h5; the first copy is at h2 and h3 for 3 s, the
    # next one at h1 and h0 behind what runs there.
    assert copies_s(inst, 4, 5) == pytest.approx(3.0 + (5.0 + 3.0))


def test_copies_pass_uplinks():
    tree = cluster.Tree((cluster.Subtree('a', 4.0, 4.0),
                         cluster.Subtree('b', 4.0, 2.0)),
                        {'h0': 'a', 'h1': 'a', 'h2': 'b', 'h3': 'b'})
    inst = build([1, 1, 1, 1], tree=tree)
    # The own two are in a; the copy in b passes no uplink of it.
    assert copies_s(inst, 0, 1) == pytest.approx(3.0)
    # Own bytes into b take 24 s. The copy has one VM in each.
    assert copies_s(inst, 0, 2) == pytest.approx(24.0 + 12.0)


def test_there_are_eight_copies_at_most():
    inst = build([1] * 20)
    assert copies_s(inst, 0, 1) == pytest.approx(8 * 3.0)


def test_settling_leaves_the_large_pieces_of_room():
    inst = build([2, 2, 1, 1])
    start = np.array([0, 1])

    def settled(known_s, seconds=math.inf):
        return sorted(foresight.settle(
            inst, start, known_s,
            budgets.Budget(budgets.Counter(), seconds)).tolist())

    assert copies_s(inst, 0, 1) > copies_s(inst, 2, 3) == 0.0
    assert settled(lambda assign: 6.0) == [2, 3]
    assert settled(lambda assign: 6.0, 0.0) == [0, 1]
    # What the known coflows lose counts more than what copies gain.
    assert settled(lambda assign: 60.0 if 2 in assign else 6.0) != [2, 3]
    assert settled(lambda assign: 6.0 if set(assign) == {0, 1}
                   else math.inf) == [0, 1]
    assert start.tolist() == [0, 1]


@pytest.mark.parametrize('share, moves', [(0.25, True), (0.35, False)])
def test_a_second_of_copies_weighs_three_tenths(share, moves):
    inst, apart = build([2, 2, 1]), np.array([0, 1])
    gain_s = copies_s(inst, 0, 1) - copies_s(inst, 0, 2)
    assert gain_s > 0
    found = foresight.settle(
        inst, apart, lambda trial: share * gain_s
        * (trial != apart).any(), budgets.unlimited())
    assert (found != apart).any() == moves


def counted(inst, start, cost_s):
    """How many placements are judged, and the budget."""
    seen, budget = [], budgets.unlimited()

    def judge(trial):
        seen.append(trial.tolist())
        return cost_s(len(seen))

    foresight.settle(inst, np.array(start), judge, budget)
    return seen, budget.clock.units


def test_settling_ends_after_four_rounds_or_one_in_vain(monkeypatch):
    inst = build([2, 2, 2], rates=(8.0, 8.0))
    seen, units = counted(inst, [0, 0], lambda n: -float(n))
    # What a host holds moves once in each round.
    assert len(seen) == 1 + 4
    trial_units = (foresight.TRIAL_CALLS * budgets.CALL_UNITS
                   + 3 * foresight.TRIAL_CELLS + budgets.ASK_UNITS)
    assert units == 4 * trial_units
    seen, units = counted(build([2, 3, 4]), [0, 0], float)
    assert seen == [[0, 0], [1, 1], [2, 2]] and units == 2 * trial_units
    monkeypatch.setattr(foresight, 'MAX_TRIALS', 1)
    seen, _units = counted(build([2, 3, 4]), [0, 0], float)
    assert len(seen) == 2


def test_nothing_moves_where_nothing_is_saved():
    inst, start = build([2, 2]), np.array([0, 0])
    assert foresight.settle(inst, start, lambda _trial: 0.0,
                            budgets.unlimited()) is start


def exchanged(inst, *assign):
    return [trial.tolist() for trial in foresight._exchanges(
        inst, np.array(assign), 0)]


def test_contents_are_exchanged_with_one_host_of_each_kind():
    """Used hosts are of their own kind, idle ones of their rack's."""
    assert exchanged(build([2] * 4), 0, 1) == [[1, 0], [2, 1]]
    assert exchanged(build([2, 2, 3]), 0, 0) == [[1, 1], [2, 2]]
    tree = cluster.Tree(
        tuple(cluster.Subtree(name, 8.0, 8.0) for name in 'ab'),
        {'h0': 'a', 'h1': 'a', 'h2': 'b', 'h3': 'b'})
    assert exchanged(build([2] * 4, tree=tree), 0, 0) == [[1, 1], [2, 2]]


def test_pinned_nodes_are_not_exchanged():
    inst = build([3, 2, 2], vms=(cluster.Vm('v0', (1.0,), 'h0'),
                                 cluster.Vm('v1', (1.0,))))
    found = foresight._exchanges(inst, np.array([0, 0]), 0)
    assert [trial.tolist() for trial in found] == [[0, 1]]
