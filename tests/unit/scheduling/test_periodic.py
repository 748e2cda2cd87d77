# SPDX-License-Identifier: Apache-2.0

import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco.scheduling import fabric
from virtco.scheduling.periodic import guard
from virtco.scheduling.periodic import job_bounds as bounds
from virtco.scheduling.periodic import jobs as jobs_model
from virtco_lab.sim import training

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


def ran(some, scheme='order'):
    """What the simulator makes of jobs: each sends through its links to
    receivers of its own.
    """
    links = sorted({link for one in some for link in one.busy_s})
    n_hosts = len(links) * (1 + len(some))
    sims = [training.Job(one.job_id, one.compute_s, fabric.Demand(
        np.array([links.index(link) for link in one.busy_s]),
        np.array([len(links) * (1 + j) + links.index(link)
                  for link in one.busy_s]),
        np.array(list(one.busy_s.values())), np.ones(len(one.busy_s))),
        one.workers) for j, one in enumerate(some)]
    horizon_s = 60 * max(one.period_s for one in some)
    return training.Cluster(np.ones(2 * n_hosts)).run(
        sims, scheme, horizon_s, horizon_s / 2)


def test_order_is_by_computation_over_the_slowest_link():
    some = [job('short', 1.0, a=0.5), job('long', 8.0, a=2.0, b=1.0),
            job('wide', 1.0, workers=16, a=3.0)]
    assert [one.job_id for one in jobs_model.by_intensity(some)] == [
        'wide', 'long', 'short']
    assert job('silent', 1.0).intensity == math.inf
    assert jobs_model.PeriodicJob('alone', 1.0, {}).workers == 1


@hypothesis.given(jobs(), st.sampled_from(['fair', 'mrtf', 'order']))
@hypothesis.settings(deadline=None, max_examples=15)
def test_no_schedule_beats_the_bound(some, scheme):
    found = ran(some, scheme)
    # Of an iteration cut off, sending may count before computing.
    edge = 1 + 1 / 30
    period_s = np.array([one.period_s for one in some])
    assert (found.mean_s * edge >= period_s).all()
    assert (found.mean_s / period_s).max() * edge >= (
        bounds.least_worst_slowdown(some))


def test_jobs_that_meet_at_links_are_found():
    chain = [job('one', 1.0, a=1.0), job('two', 1.0, a=1.0, b=1.0),
             job('three', 1.0, b=1.0)]
    apart = [job('four', 1.0, c=1.0), job('five', 1.0, d=1.0, e=2.0)]
    # A link that both together leave idle is nobody's meeting place.
    thin = job('six', 1.0, d=0.5, f=1.0)
    assert jobs_model.meeting([*apart, *chain]) == [chain]
    assert jobs_model.meeting([*apart, thin, *chain]) == [chain]
    assert jobs_model.meeting(apart) == jobs_model.meeting([]) == []


def test_of_equals_the_shorter_one_goes_first():
    some = [job('b', 2.0, a=1.0), job('long', 4.0, a=2.0),
            job('a', 2.0, a=1.0), job('more', 2.1, a=1.0)]
    assert [one.job_id for one in jobs_model.by_intensity(some)] == [
        'more', 'a', 'b', 'long']


def test_seconds_by_job_and_link_where_jobs_can_clash():
    some = [job('one', 1.0, a=1.0, b=2.0, c=0.0), job('two', 1.0, a=3.0),
            job('three', 1.0, b=0.5, c=1.0, d=4.0)]
    # Half of the link for a, all for two; all for b, an eighth for three.
    assert jobs_model.busy_matrix(some).tolist() == [
        [1.0, 2.0], [3.0, 0.0], [0.0, 0.5]]
    assert jobs_model.busy_matrix([]).shape == (0, 0)


def plain_slowdown(some):
    """The worst of all limits where each job runs as if alone."""
    def sent_s(one, link, window_s):
        begins_s = [0.0] + [one.busy_s[link] + one.compute_s
                            + k * one.period_s for k in range(300)]
        return sum(min(max(window_s - begin_s, 0.0), one.busy_s[link])
                   for begin_s in begins_s)

    worst = 1.0
    for link in LINKS:
        users = [one for one in some if link in one.busy_s]
        if sum(one.busy_s[link] / one.send_s for one in users) <= 1 + 1e-9:
            continue
        share = {id(one): one.busy_s[link] / one.period_s for one in users}
        worst = max(worst, sum(share.values()))
        for one in users:
            others = [other for other in users if other is not one
                      and share[id(other)] > sent_s(
                          other, link, one.compute_s) / one.period_s]
            idle_s = one.compute_s - sum(sent_s(other, link, one.compute_s)
                                         for other in others)
            if others and idle_s > 0:
                worst = max(worst, share[id(one)] + idle_s / one.period_s
                            + sum(share[id(other)] for other in others))
    return worst


@hypothesis.given(jobs(4))
@hypothesis.settings(deadline=None)
def test_the_slowdown_is_the_worst_of_all_limits(some):
    assert bounds.least_worst_slowdown(some) == pytest.approx(
        plain_slowdown(some))


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
        1.02 * bounds.least_worst_slowdown(some))


def test_a_link_is_idle_while_nobody_can_send():
    """Of two jobs that fill a link together one is slowed down."""
    some = [job('long', 10.0, a=10.0), job('short', 1.0, a=1.0)]
    # While the long one computes the short one sends for 5 s of the 10 s.
    assert bounds.least_worst_slowdown(some) == pytest.approx(1.25)
    assert guard.Guard(some).limit == pytest.approx(1.02 * 1.25)
    assert ran(some, 'mrtf').mean_s == pytest.approx([30.0, 2.0], rel=0.05)
    # In step, nobody waits: no bound may say otherwise.
    equal = [job('one', 10.0, a=10.0), job('two', 10.0, a=10.0)]
    assert bounds.least_worst_slowdown(equal) == pytest.approx(1.0)


def test_a_link_carries_one_job_at_a_time():
    """Also of jobs that compute for no time, so that no link is idle."""
    some = [job(f'j{n}', 0.0, a=1.0 + n) for n in range(3)]
    assert bounds.least_worst_slowdown(some) == pytest.approx(3.0)
    assert bounds.least_worst_slowdown(some[:1]) == 1.0


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
