# SPDX-License-Identifier: Apache-2.0

import math

import hypothesis
from hypothesis import strategies as st
import pytest

from tests.unit.scheduling import test_periodic as periodic
from virtco.scheduling.periodic import job_bounds as bounds
from virtco_lab.sim import training_bounds


@hypothesis.given(periodic.jobs(), st.sampled_from(['fair', 'mrtf', 'order']))
@hypothesis.settings(deadline=None, max_examples=15)
def test_no_schedule_beats_the_bounds(some, scheme):
    found = periodic.ran(some, scheme)
    # Of an iteration cut off, sending may count before computing.
    edge = 1 + 1 / 30
    assert found.utilisation <= (
        training_bounds.most_utilisation(some) * edge + 1e-9)
    assert found.mean_s.mean() * edge >= (
        training_bounds.least_mean_iteration_s(some))


@hypothesis.given(periodic.jobs())
@hypothesis.settings(deadline=None, max_examples=15)
def test_who_leaves_no_straggler_cannot_compute_more(some):
    least = bounds.least_worst_slowdown(some)
    most = training_bounds.most_utilisation(some)
    assert (training_bounds.most_utilisation(some, least * (1 + 1e-9))
            <= training_bounds.most_utilisation(some, 2 * least) + 1e-9)
    assert training_bounds.most_utilisation(some, 2 * least) <= most + 1e-9


def test_a_link_is_idle_while_nobody_can_send():
    some = [periodic.job('long', 10.0, a=10.0),
            periodic.job('short', 1.0, a=1.0)]
    assert training_bounds.most_utilisation(some) == pytest.approx(
        (10 / 30 + 1 / 2) / 2)


def test_without_jobs_nothing_takes_time():
    assert training_bounds.least_mean_iteration_s([]) == 0.0
    assert training_bounds.most_utilisation([]) == 0.0


def test_the_mean_iteration_by_prices():
    """The least of mean 1 / x_j where sum_j b_j x_j <= 1."""
    some = [periodic.job(f'j{n}', 0.0, a=1.0 + n) for n in range(3)]
    assert training_bounds.least_mean_iteration_s(some) == pytest.approx(
        sum(math.sqrt(1.0 + n) for n in range(3)) ** 2 / 3, rel=1e-4)
