# SPDX-License-Identifier: Apache-2.0

"""Hosts that a group can do without."""

import math
import random

import numpy as np
import pytest

from virtco.solver import budget as budgets
from virtco.solver.model import loads
from virtco.solver.model import reduction


def test_loads_of_hosts_are_without_those_of_uplinks():
    """Ports of two hosts, then an uplink."""
    found = reduction.by_host(loads.of_dense(np.array([
        [1.0, 0.0, 2.0, 3.0, 4.0], [0.0, 5.0, 0.0, 0.0, 6.0]])), 2)
    # Of each host: coflow 0 out and in, coflow 1 out and in.
    assert found.dense().tolist() == [[1.0, 2.0, 0.0, 0.0],
                                      [0.0, 3.0, 5.0, 0.0]]


def plain(free, s_per_byte, active_bytes, allowed, fixed, above):
    """The rule of the module's docstring, host by host."""
    n_movable = int((fixed < 0).sum())
    pinned = set(fixed[fixed >= 0].tolist())
    n_hosts = len(free)
    good = np.vstack([free.T, -s_per_byte, -active_bytes.reshape(-1, n_hosts)])
    alike = np.vstack([allowed, above])
    kept = set(pinned)
    usable = set(np.flatnonzero(allowed.any(axis=0)).tolist()) - pinned
    for m in usable:
        before = 0
        for other in usable - {m}:
            if (alike[:, other] == alike[:, m]).all() and (
                    good[:, other] >= good[:, m]).all():
                # Of equal hosts the first ones are kept.
                before += (good[:, other] > good[:, m]).any() or other < m
        if before < n_movable:
            kept.add(m)
    return sorted(kept)


@pytest.mark.parametrize('seed', range(40))
@pytest.mark.parametrize('lead', [1, 5, 256])
def test_needed_hosts_are_the_plain_rules(seed, lead, monkeypatch):
    monkeypatch.setattr(reduction, 'LEAD', lead)
    if seed % 2:
        # Pieces of one host give the same.
        monkeypatch.setattr(reduction, 'CELLS', 1)
    rng = random.Random(seed)
    draw = np.random.default_rng(seed)
    n_hosts, n, levels = 30, rng.randint(1, 5), rng.choice((2, 4, 100))
    fixed = np.full(n, -1)
    if seed % 3 == 0:
        fixed[0] = rng.randrange(n_hosts)
    allowed = np.ones((n, n_hosts), dtype=bool)
    if seed % 4 == 0:
        allowed[0] = draw.random(n_hosts) < 0.7
    if seed % 7 == 0:
        allowed[:, draw.random(n_hosts) < 0.4] = False
    arguments = (
        draw.integers(1, 4, (n_hosts, 1)).astype(float),
        draw.integers(1, levels, (2, n_hosts)).astype(float),
        draw.integers(0, 3, (seed % 3, 2 * n_hosts)).astype(float), allowed,
        fixed, draw.integers(0, 2, (2, n_hosts)) if seed % 5 == 0 else
        np.zeros((0, n_hosts)))
    kept = reduction.needed_hosts(
        *arguments[:2], loads.of_dense(arguments[2]), *arguments[3:])
    assert kept.tolist() == plain(*arguments)


@pytest.mark.parametrize('seconds, hosts', [
    (1.0, 5000.0), (0.25, 2500.0), (0.0, 0.0), (math.inf, math.inf)])
def test_a_tenth_of_a_budget_compares_hosts(seconds, hosts):
    """Every two of so many, at 4 units each."""
    assert reduction.most_compared(budgets.Budget(
        budgets.Counter(), seconds)) == pytest.approx(hosts)


@pytest.mark.parametrize(('most', 'kept'), [(3, [0, 1]), (2, [0, 1, 2])])
def test_hosts_that_the_best_one_replaces_are_compared_with_no_other(
        most, kept, monkeypatch):
    """Three of five are left to compare, the third is worse than the second.
    """
    monkeypatch.setattr(reduction, 'LEAD', 1)
    rates = np.array([[5, 9], [9, 2], [8, 1], [4, 3], [3, 2.5]])
    assert reduction.needed_hosts(
        np.ones((5, 1)), 1 / rates.T, loads.of_dense(np.zeros((0, 10))),
        np.ones((1, 5), dtype=bool), np.array([-1]), np.zeros((0, 5)),
        most).tolist() == kept
