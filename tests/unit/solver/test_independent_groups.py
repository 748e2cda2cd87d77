# SPDX-License-Identifier: Apache-2.0

"""Groups that share hosts only, placed one after another."""

import math

import numpy as np

from tests.unit.solver.test_starts import build
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import independent_groups as groups
from virtco.solver.stages import annealing
from virtco.solver.stages import search_state as states


def test_groups_talk_among_themselves():
    inst = build([9, 9], [1] * 6, coflows=tuple(
        coflow.Coflow.from_flows(name, 6, flows) for name, flows in (
            ('a', [(0, 1, 1.0)]), ('b', [(3, 4, 2.0)]), ('none', []),
            ('c', [(1, 2, 9.0)]))))
    found = groups.split(inst)
    assert [(one.nodes.tolist(), one.coflows) for one in found] == [
        ([0, 1, 2], (0, 3)), ([3, 4], (1,))]
    part = groups.restrict(inst, found[1], inst.free, [])
    assert [(src.tolist(), dst.tolist(), size.tolist())
            for src, dst, size in part.arcs] == [([0], [1], [2.0])]


def test_groups_in_order_of_their_bounds():
    inst = build([1] * 4, [1] * 4, coflows=tuple(
        coflow.Coflow.from_flows(name, 4, flows) for name, flows in (
            ('slow', [(0, 1, 7.0)]), ('fast', [(2, 3, 3.0)]))))
    seen = []

    def solve(part, within):
        seen.append((part.free[:, 0].tolist(), len(part.running),
                     part.active_cct_s.tolist()))
        assign = np.flatnonzero(part.free[:, 0] > 0)[:2]
        return states.Outcome(assign, state.evaluate(first),
                              snapshot.Method.LOCAL_SEARCH, moves=5)

    first = np.array([0, 1, 2, 3])
    state = states.State(inst, snapshot.Objective.JOINT, 1, budgets.Budget(
        budgets.Counter(), math.inf), solve=solve)
    annealing.one_after_another(state, state.budget)
    assert state.answer.assign.tolist() == [2, 3, 0, 1]
    assert state.answer.method == snapshot.Method.ONE_AFTER_ANOTHER
    assert state.local.moves_done == 10
    assert seen == [([1, 1, 1, 1], 0, []), ([0, 0, 1, 1], 1, [3.0])]
