# SPDX-License-Identifier: Apache-2.0

"""Groups that share hosts only."""

from tests.unit.solver.test_starts import build
from virtco.model import coflow
from virtco.solver import independent_groups as groups


def test_groups_talk_among_themselves():
    inst = build([9, 9], [1] * 6, coflows=tuple(
        coflow.Coflow.from_flows(name, 6, flows) for name, flows in (
            ('a', [(0, 1, 1.0)]), ('b', [(3, 4, 2.0)]), ('none', []),
            ('c', [(1, 2, 9.0)]))))
    found = groups.split(inst)
    assert [(one.nodes.tolist(), one.coflows) for one in found] == [
        ([0, 1, 2], (0, 3)), ([3, 4], (1,))]
    # In the order of their first nodes.
    crossed = build([9, 9], [1] * 4, coflows=tuple(
        coflow.Coflow.from_flows(name, 4, flows) for name, flows in (
            ('a', [(1, 2, 1.0)]), ('b', [(0, 3, 1.0)]))))
    assert [one.coflows for one in groups.split(crossed)] == [(1,), (0,)]
    part = groups.restrict(inst, found[1], inst.free, [])
    assert [(src.tolist(), dst.tolist(), size.tolist())
            for src, dst, size in part.arcs] == [([0], [1], [2.0])]
