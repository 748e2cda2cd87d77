# SPDX-License-Identifier: Apache-2.0

"""Whom a placement delays, against sums by hand."""

import pytest

from tests.unit.solver import test_counterfactuals as problems
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import delays
from virtco.solver import planner


def test_who_comes_later_by_how_much():
    # Own times at 8 Gbit/s: the newcomer 1 s, a 2 s, b 0.5 s, c 3 s.
    asked = problems.problem(rooms=(0, 1, 0), active=tuple(
        snapshot.ActiveCoflow(name, ((src, size),), ((dst, size),))
        for name, src, dst, size in (
            ('c', 'h9', 'h2', 3e9), ('a', 'h0', 'h9', 2e9),
            ('b', 'h0', 'h2', 0.5e9))))
    found = delays.delays(asked, planner.plan(asked))
    assert [one.coflow_id for one in found] == ['a']
    assert found[0].before_s == pytest.approx(2.5)
    assert found[0].after_s == pytest.approx(3.5)


def test_nobody_is_delayed_within_a_host():
    asked = problems.problem(rooms=(1, 0, 0), active=(
        snapshot.ActiveCoflow('a', (('h0', 2e9),), (('h9', 2e9),)),))
    assert delays.delays(asked, planner.plan(asked)) == ()


def test_the_longest_delay_comes_first():
    names = [f'h{n}' for n in range(4)]
    asked = snapshot.PlacementProblem(
        tuple(cluster.Host(name, (1.0,), 8e9, 8e9) for name in names),
        tuple(cluster.Vm(f'v{n}', (1.0,), name)
              for n, name in enumerate(names)),
        (coflow.Coflow.from_flows('c', 4, [(0, 1, 1e9), (2, 3, 0.5e9)]),),
        active=tuple(snapshot.ActiveCoflow(name, ((src, size),), ())
                     for name, src, size in (
                         ('short', 'h2', 2e9), ('long', 'h0', 5e9))))
    found = delays.delays(asked, planner.plan(asked))
    assert [(one.coflow_id, one.before_s, one.after_s) for one in found] == [
        ('long', pytest.approx(5.0), pytest.approx(6.0)),
        ('short', pytest.approx(2.0), pytest.approx(2.5))]
