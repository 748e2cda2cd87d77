# SPDX-License-Identifier: Apache-2.0

"""The linear relaxation and its rounding, by small groups worked out."""

import math

import numpy as np
import pytest

from tests.unit.solver import problems
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances
from virtco_lab.placement import relaxation


def build(flows, rooms=((1.0, 8.0, 8.0),) * 2, demands=None, allowed=()):
    """:param rooms: slots, egress and ingress in bits per second."""
    n = 1 + max(max(src, dst) for src, dst, _size in flows)
    demands = demands or (1.0,) * n
    return instances.build(snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (slots,), out, into)
              for m, (slots, out, into) in enumerate(rooms)),
        tuple(cluster.Vm(f'v{j}', (need,), allowed=dict(allowed).get(j))
              for j, need in enumerate(demands)),
        (coflow.Coflow.from_flows('c', n, flows),)))


def solve(inst, budget=None):
    return relaxation.solve(inst, budget or budgets.unlimited())


@pytest.mark.parametrize('flows, rooms, lower_s', [
    # One slot each: all is sent, at egress or at ingress the slower, by one
    # class of two hosts.
    ([(0, 1, 6.0)], ((1, 8, 8),) * 2, 3.0),
    ([(0, 1, 6.0)], ((1, 16, 8),) * 2, 3.0),
    ([(0, 1, 6.0)], ((1, 8, 16),) * 2, 3.0),
    ([(0, 1, 6.0), (1, 0, 10.0)], ((1, 8, 16),) * 2, 8.0),
    # Room for both together: nothing is sent.
    ([(0, 1, 6.0)], ((2, 8, 8),) * 2, 0.0),
])
def test_relaxation_of_a_pair(flows, rooms, lower_s):
    inst = build(flows, rooms)
    found_s = solve(inst).lower_s
    assert found_s <= lower_s
    assert found_s == pytest.approx(
        lower_s, abs=2 * relaxation.TOLERANCE * relaxation._Model(inst).unit_s)


def test_small_numbers_are_relaxed_as_well_as_large_ones():
    """Parts of a slot, and billionths of a second."""
    inst = build([(0, 1, 6.0)], ((0.5, 8e9, 8e9),) * 2, demands=(0.5, 0.5))
    assert solve(inst).lower_s == pytest.approx(3e-9, rel=1e-3)


def test_a_forced_placement_is_its_relaxation():
    """Both ways, unlike bytes and unlike ports."""
    inst = build([(0, 1, 6.0), (1, 0, 10.0), (1, 2, 1.0)],
                 ((1, 8, 16), (1, 4, 2), (1, 1, 32)),
                 allowed=[(0, frozenset({'h0'})), (1, frozenset({'h1'})),
                          (2, frozenset({'h2'}))])
    solution = solve(inst)
    # VM 0: out 6, in 5; VM 1: out 11 at 0.5, in 6 at 0.25 bytes per second.
    assert solution.lower_s == pytest.approx(24.0, rel=1e-3)
    np.testing.assert_allclose(solution.share, np.eye(3), atol=1e-7)


def test_a_share_is_spread_over_alike_hosts():
    inst = build([(0, 1, 6.0)], ((1, 8, 8),) * 4)
    share = solve(inst).share
    assert share.shape == (2, 4)
    np.testing.assert_allclose(share, 0.25)
    np.testing.assert_allclose(share.sum(axis=1), 1.0)


def test_slots_bind_unlike_vms():
    """The large one and another never fit together."""
    inst = build([(0, 1, 6.0), (1, 2, 1.0)], ((3, 8, 8),) * 2,
                 demands=(3.0, 1.0, 2.0))
    solution = solve(inst)
    assert solution.lower_s == pytest.approx(3.0, rel=1e-3)


def test_no_traffic_takes_no_time():
    solution = solve(build([(0, 1, 0.0)]))
    assert solution.lower_s == 0
    np.testing.assert_allclose(solution.share.sum(axis=1), 1.0)


def test_work_is_counted_by_pairs_and_classes():
    inst = build([(0, 1, 6.0), (1, 0, 2.0), (1, 2, 3.0)],
                 ((1, 8, 8), (1, 8, 8), (2, 8, 8)))
    assert relaxation.products(inst) == 2 * 2
    assert relaxation.build_units(inst) == 4 * relaxation.PRODUCT_UNITS
    budget = budgets.unlimited()
    solve(inst, budget)
    # At least building it, and the setup of 3 x 2 + 2 x 2 + 1 variables.
    assert budget.clock.units >= relaxation.build_units(inst) + (
        11 * relaxation.STEP_UNITS * relaxation.SETUP_STEPS)
    none = budgets.Budget(budgets.Counter(), 1e-9)
    assert solve(inst, none) is None
    assert relaxation.place(inst, none) is None


def test_rounding_takes_the_largest_share_that_fits():
    inst = build([(0, 1, 6.0)], ((1, 8, 8),) * 2)
    assert relaxation.round_shares(inst, np.array(
        [[0.6, 0.4], [0.9, 0.1]])).tolist() == [1, 0]
    assert relaxation.round_shares(inst, np.array(
        [[0.6, 0.4], [0.1, 0.9]])).tolist() == [0, 1]
    assert relaxation.round_shares(inst, np.array(
        [[0.9, 0.1], [0.6, 0.4]])).tolist() == [0, 1]


def test_among_equal_shares_traffic_decides():
    inst = build([(0, 1, 6.0), (1, 2, 4.0), (2, 3, 5.0)],
                 ((2, 8, 8),) * 2)
    share = np.full((4, 2), 0.5)
    share[0] = 0.9, 0.1
    share[2] = 0.3, 0.7
    # 1 exchanges more with 0 than with 2; 3 talks to 2 alone.
    assert relaxation.round_shares(inst, share).tolist() == [0, 0, 1, 1]
    assert relaxation._pull(
        _filled(inst, {0: 0, 2: 1}), 1, _both(inst)).tolist() == [0.6, 0.4]


def _filled(inst, where):
    filler = relaxation.candidates.Filler(inst)
    for node, host in where.items():
        filler.put(node, host)
    return filler


def _both(inst):
    return inst.exchanged


def test_rounding_may_run_into_a_wall():
    inst = build([(0, 1, 1.0)], ((2, 8, 8), (1, 8, 8)), demands=(2.0, 1.0))
    assert relaxation.round_shares(
        inst, np.array([[0.1, 0.0], [0.9, 0.0]])) is None
    assert inst.fits(relaxation.place(inst, budgets.unlimited()))
    # They never fit together.
    assert solve(inst).lower_s == pytest.approx(1.0, rel=1e-3)


def test_fig_1_is_bounded_and_rounded():
    inst = instances.build(problems.fig_1_problem())
    assert inst.fits(relaxation.place(inst, budgets.unlimited()))
    lower_s = solve(inst).lower_s
    assert 0 < lower_s <= 4.0 < math.inf
