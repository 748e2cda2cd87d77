# SPDX-License-Identifier: Apache-2.0

import itertools
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco import exception
from virtco.scheduling.periodic import bounds
from virtco.scheduling.periodic import guard
from virtco.scheduling.periodic import jobs as jobs_model
from virtco.scheduling.periodic import rehearsal
from virtco.scheduling.periodic import shifts

LINKS = ('a', 'b', 'c')


def job(name, compute_s, workers=1, **busy_s):
    return jobs_model.PeriodicJob(name, compute_s, busy_s, workers)


@st.composite
def jobs(draw, n_max=3):
    times = st.integers(1, 20).map(lambda tenths: tenths / 10)
    return [jobs_model.PeriodicJob(
        f'j{number}', draw(times),
        draw(st.dictionaries(st.sampled_from(LINKS), times, min_size=1)),
        draw(st.sampled_from([1, 2, 8])))
        for number in range(draw(st.integers(1, n_max)))]


def rehearsed(some, gates=None):
    """Mean iteration times; jobs are served as given."""
    horizon_s = 60 * max(job.period_s for job in some)
    return rehearsal.Rehearsal(some).run(gates or {}, horizon_s,
                                         horizon_s / 2)


def test_order_is_by_computation_over_the_slowest_link():
    some = [job('short', 1.0, a=0.5), job('long', 8.0, a=2.0, b=1.0),
            job('wide', 1.0, workers=16, a=3.0)]
    assert [one.job_id for one in jobs_model.by_intensity(some)] == [
        'wide', 'long', 'short']
    assert job('silent', 1.0).intensity == math.inf


@pytest.mark.parametrize('wrong', [
    {'compute_s': -1.0, 'busy_s': {}}, {'compute_s': math.nan, 'busy_s': {}},
    {'compute_s': 1.0, 'busy_s': {'a': math.inf}},
    {'compute_s': 0.0, 'busy_s': {}},
    {'compute_s': 1.0, 'busy_s': {}, 'workers': 0}])
def test_jobs_that_are_none_are_refused(wrong):
    with pytest.raises(exception.Invalid, match='of job x'):
        jobs_model.PeriodicJob('x', **wrong)


def test_two_jobs_that_fill_a_link_together_send_in_turn():
    pair = [job('one', 1.0, a=1.0), job('two', 1.0, a=1.0)]
    found = shifts.plan(pair)
    assert found.score == pytest.approx(1.0)
    assert shifts.compatibility(pair) == pytest.approx(1.0)
    assert rehearsed(pair, found.gates) == pytest.approx([2.0, 2.0])


def test_a_round_that_is_stretched_beats_the_order_alone():
    pair = jobs_model.by_intensity([job('one', 1.0, a=1.0),
                                    job('two', 1.0, a=1.3)])
    assert rehearsed(pair) == pytest.approx([2.0, 4.0], rel=0.02)
    gates = shifts.plan(pair).gates
    assert rehearsed(pair, gates) == pytest.approx([2.3, 2.3])


def test_jobs_apart_have_no_gates():
    found = shifts.plan([job('one', 1.0, a=1.0), job('two', 1.0, b=1.0)])
    assert found == shifts.Plan(('one', 'two'), {}, 1.0)


def test_compatibility_falls_with_what_is_asked_for():
    scores = [shifts.compatibility([job('one', 1.0, a=send_s),
                                    job('two', 1.0, a=send_s)])
              for send_s in (0.5, 1.0, 1.5, 3.0)]
    assert scores[:2] == pytest.approx([1.0, 1.0])
    assert scores == sorted(scores, reverse=True)
    assert scores[3] < 0.6


def test_one_shift_serves_a_chain_of_links():
    chain = [job('one', 1.0, a=1.0), job('two', 1.0, a=1.0, b=1.0),
             job('three', 1.0, b=1.0, c=1.0), job('four', 1.0, c=1.0)]
    found = shifts.plan(chain)
    assert found.score == pytest.approx(1.0)
    ordered = jobs_model.by_intensity(chain)
    assert rehearsed(ordered, found.gates) == pytest.approx([2.0] * 4)


def test_a_gate_waits_for_those_that_are_late_beyond_a_share():
    gate = rehearsal.Gate(2.0, 0.5)
    assert [gate.opens_s(ready_s) for ready_s in (
        0.0, 0.5, 0.58, 0.65, 2.4, 2.5)] == pytest.approx(
            [0.5, 0.5, 0.58, 2.5, 2.5, 2.5])


@hypothesis.given(jobs())
@hypothesis.settings(deadline=None, max_examples=15)
def test_no_rehearsal_beats_the_bounds(some):
    gates = shifts.plan(some).gates
    for chosen in ({}, gates):
        each_s = rehearsed(some, chosen)
        # Of an iteration cut off, sending may count before computing.
        edge = 1 + 1 / 30
        period_s = np.array([one.period_s for one in some])
        assert (each_s * edge >= period_s).all()
        assert jobs_model.utilisation(some, each_s.tolist()) <= (
            bounds.most_utilisation(some) * edge + 1e-9)
        assert each_s.mean() * edge >= bounds.least_mean_iteration_s(some)
        assert (each_s / period_s).max() * edge >= (
            bounds.least_worst_slowdown(some))


@hypothesis.given(jobs())
@hypothesis.settings(deadline=None, max_examples=10)
def test_a_plan_never_loses_against_cruxs_order(some):
    plan = shifts.plan(some)
    assert sorted(plan.order) == sorted(one.job_id for one in some)
    assert {*plan.gates} <= {*plan.order}
    for group in shifts.components(some):
        horizon_s = shifts.REHEARSED_PERIODS * max(
            one.period_s for one in group)
        reached = [jobs_model.utilisation(ordered, rehearsal.Rehearsal(
            ordered).run(gates, horizon_s, horizon_s / 2).tolist())
            for ordered, gates in (
                (jobs_model.by_intensity(group), {}),
                (sorted(group, key=lambda one: plan.order.index(one.job_id)),
                 plan.gates))]
        assert reached[1] >= reached[0] - 1e-9


def exact_excess(some, offsets_s, period_s, steps=600):
    """Mean of what is asked for above a link's rate, by looking often."""
    at_s = (np.arange(steps) + 0.5) * period_s / steps
    total = sum(((at_s - offset_s) % period_s < one.send_s).astype(float)
                for one, offset_s in zip(some, offsets_s))
    return np.maximum(total - 1, 0).mean()


@hypothesis.given(st.lists(st.integers(1, 9), min_size=2, max_size=3))
@hypothesis.settings(deadline=None, max_examples=15)
def test_shifts_of_one_link_are_as_good_as_any(tenths):
    # All of one period: every shift by a tenth is tried.
    some = [job(f'j{n}', 1.0 - ten / 10, a=ten / 10)
            for n, ten in enumerate(tenths)]
    circle = shifts._Circle(some, [1] * len(some), 1.0)
    circle.shift()
    best = min(exact_excess(some, [0.0, *rest], 1.0)
               for rest in itertools.product(
                   np.arange(10) / 10, repeat=len(some) - 1))
    assert 1 - circle.score() <= best + 0.01


@hypothesis.given(jobs())
@hypothesis.settings(deadline=None, max_examples=15)
def test_who_leaves_no_straggler_cannot_compute_more(some):
    least = bounds.least_worst_slowdown(some)
    most = bounds.most_utilisation(some)
    assert (bounds.most_utilisation(some, least * (1 + 1e-9))
            <= bounds.most_utilisation(some, 2 * least) + 1e-9)
    assert bounds.most_utilisation(some, 2 * least) <= most + 1e-9


def test_a_guard_lifts_a_job_before_its_deadline():
    some = [job('a', 1.0, link=1.0), job('b', 3.0, link=1.0)]
    found = guard.Guard(some, 1.5)
    found.began(0, 0.0)
    found.began(1, 10.0)
    # 1.5 periods of 2 s and 4 s, less the second that they send.
    assert (found.late_s(0), found.late_s(1)) == (2.0, 15.0)
    # Who is late keeps its deadlines, …
    found.ended(0, 4.0)
    assert found.late_s(0) == 5.0
    # … and who is early saves no more than two turns.
    for _ in range(4):
        found.ended(0, 4.0)
    assert found.late_s(0) == 4.0 + 3 * 3.0 - 1.0
    assert guard.Guard(some).limit == pytest.approx(
        guard.ALLOWED * bounds.least_worst_slowdown(some))


def test_a_link_is_idle_while_nobody_can_send():
    """Of two jobs that fill a link together one is slowed down."""
    some = [job('long', 10.0, a=10.0), job('short', 1.0, a=1.0)]
    # While the long one computes the short one sends for 5 s of the 10 s.
    assert bounds.least_worst_slowdown(some) == pytest.approx(1.25)
    assert bounds.most_utilisation(some) == pytest.approx(
        (10 / 30 + 1 / 2) / 2)
    found = rehearsed(list(reversed(some)))
    assert found == pytest.approx([2.0, 30.0], rel=0.05)
    # In step, nobody waits: no bound may say otherwise.
    equal = [job('one', 10.0, a=10.0), job('two', 10.0, a=10.0)]
    assert bounds.least_worst_slowdown(equal) == pytest.approx(1.0)


@hypothesis.given(
    st.tuples(*[st.integers(1, 40).map(lambda tenths: tenths / 10)] * 3),
    st.integers(1, 60).map(lambda tenths: tenths / 10))
def test_nobody_sends_more_in_a_window_than_counted(times, window_s):
    busy_s, compute_s, rest_s = times
    period_s = busy_s + rest_s + compute_s
    most_s = bounds._most_sent_s(*map(np.array, (
        busy_s, compute_s, period_s, window_s)))
    # At the end of one iteration, then at the beginning of each other one.
    begins_s = [0.0, *(busy_s + compute_s + k * period_s for k in range(30))]
    sent_s = sum(min(max(window_s - begin_s, 0.0), busy_s)
                 for begin_s in begins_s)
    assert most_s == pytest.approx(sent_s)


def test_a_rehearsal_begins_when_it_is_told():
    one = job('a', 1.0, link=1.0)
    other = job('b', 1.0, link=1.0)
    found = rehearsal.Rehearsal([one, other]).run(
        {}, 4.0, begins_s=[0.0, 1.0])
    # 'b' computes from 1 s, and sends while 'a' computes.
    assert found == pytest.approx([4.0 / 2.0, 4.0 / 1.5])
