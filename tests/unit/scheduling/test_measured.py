# SPDX-License-Identifier: Apache-2.0

"""Jobs that overstate what they compute gain nothing by it."""

import math

from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from tests import examples
from tests.unit import rows
from virtco import scheduling
from virtco.model import live
from virtco.scheduling.periodic import measured

LINK_BPS = 8e6  # a megabyte per second


def sent_bytes(now_s, compute_s, send_s):
    """Of a job that is alone: an iteration is as many bytes as seconds."""
    n, into_s = divmod(now_s, compute_s + send_s)
    return n * send_s + max(0.0, into_s - compute_s)


@settings(max_examples=examples.count(200), deadline=None)
@given(compute_s=st.floats(0.01, 20), send_s=st.floats(0.01, 20),
       every_s=st.floats(0.2, 5), first_s=st.floats(0, 50))
@example(compute_s=1.0, send_s=0.01, every_s=0.2, first_s=0.995)
def test_an_honest_job_is_never_bounded(compute_s, send_s, every_s, first_s):
    period = measured.Period()
    assert period.most_compute_s(send_s) == math.inf
    last_s, last = first_s, sent_bytes(first_s, compute_s, send_s)
    for i in range(1, 2000):
        now_s = first_s + i * every_s
        now = sent_bytes(now_s, compute_s, send_s)
        if now > last:
            period.count(now - last, (last_s, now_s), send_s)
        last_s, last = now_s, now
    assert period.least_s >= (compute_s + send_s) * (1 - 1e-9)
    assert period.most_compute_s(send_s) >= compute_s * (1 - 1e-9)
    if period.least_s < math.inf:
        # Two more iterations than were counted, and two reports' time.
        assert period.least_s <= 1.25 * (
            compute_s + send_s) + 2 * every_s


def test_a_count_is_full_after_20_iterations_and_20_s():
    def counted(*rows):
        period = measured.Period()
        return [period.count(*row, 1.0) for row in rows], period

    # One iteration may have begun before.
    full, period = counted((21.0, (5.0, 25.0)))
    assert full == [True] and period.least_s == 1.0
    assert (period.most_compute_s(0.25), period.most_compute_s(2.0)) == (
        pytest.approx(0.8), 0.0)
    assert counted((20.9, (5.0, 25.0)))[0] == [False]
    assert counted((21.0, (5.0, 24.9)))[0] == [False]
    # A host that is late tells of bytes that are older.
    full, period = counted((10.0, (5.0, 6.0)), (11.0, (3.0, 25.0)))
    assert full == [False, True] and period.least_s == 1.1


def test_the_shortest_of_the_last_three_counts():
    period, found = measured.Period(), []
    for took_s in (20.0, 60.0, 40.0, 80.0, 60.0):
        assert period.count(21.0, (0.0, took_s), 1.0)
        found.append(period.least_s)
    assert found == [1.0, 1.0, 1.0, 2.0, 2.0]


def test_a_pause_is_no_longer_iteration():
    period = measured.Period()
    counted = []
    for i in range(1, 200):
        pause_s = 500.0 if i > 90 else 0.0
        if period.count(1.0, (i - 1 + pause_s * (i != 91), i + pause_s), 1.0):
            counted.append(period.least_s)
    assert len(counted) > 2
    assert max(counted) < 1.2


class Job:
    """Computes, then sends over one link."""

    def __init__(self, name, compute_s, size_bytes, claimed_s):
        self.name, self.compute_s, self.size_bytes = (
            name, compute_s, size_bytes)
        self.claimed_s = claimed_s
        self.period = measured.Period()
        self.left_bytes = 0.0
        self.ready_s = compute_s
        self.began_s, self.times_s = 0.0, []
        self.unreported = 0.0

    def live(self):
        return live.LiveCoflow(
            self.name, rows.columns([('a', 'b', self.left_bytes)]),
            whole=rows.columns([('a', 'b', self.size_bytes)]),
            compute_s=max(1e-6, min(self.claimed_s,
                                    self.period.most_compute_s(
                                        8 * self.size_bytes / LINK_BPS))))


def run(jobs, until_s, step_s=0.01):
    """Jobs on one link, in the scheduler's order; reports each second."""
    ports = rows.port_columns([('a', LINK_BPS, LINK_BPS),
                               ('b', LINK_BPS, LINK_BPS)])
    now_s, reported_s, rates = 0.0, 0.0, {}
    changed = True
    while now_s < until_s:
        for job in jobs:
            if not job.left_bytes and now_s >= job.ready_s:
                job.left_bytes, changed = job.size_bytes, True
        if changed:
            busy = [job.live() for job in jobs if job.left_bytes]
            rates = {one.coflow_id: one.flow_rates.rate_bps.sum()
                     for one in scheduling.schedule(
                         busy, ports, now_s=now_s).coflows}
            changed = False
        now_s += step_s
        for job in jobs:
            if job.left_bytes:
                moved = min(job.left_bytes,
                            rates[job.name] * step_s / 8)
                job.left_bytes -= moved
                job.unreported += moved
                if job.left_bytes < 1e-6:
                    job.left_bytes, changed = 0.0, True
                    job.times_s.append(now_s - job.began_s)
                    job.began_s, job.ready_s = now_s, now_s + job.compute_s
        if now_s - reported_s >= 1.0:
            for job in jobs:
                if job.unreported:
                    job.period.count(job.unreported, (reported_s, now_s),
                                     job.size_bytes)
                    job.unreported = 0.0
            reported_s = now_s


def later_s(job):
    """Mean iteration, the first half left out."""
    half = job.times_s[len(job.times_s) // 2:]
    return sum(half) / len(half)


@pytest.mark.parametrize('lie', [3, 30])
def test_a_liar_takes_nothing_from_an_honest_job(lie):
    found = {}
    for factor in (1, lie):
        honest = Job('honest', 1.0, 0.6e6, 1.0)
        other = Job('other', 0.5, 0.7e6, 0.5 * factor)
        run([honest, other], 150.0)
        found[factor] = later_s(honest), later_s(other)
    assert found[lie] == pytest.approx(found[1], rel=0.03)


def test_without_a_bound_the_liar_would_gain(monkeypatch):
    monkeypatch.setattr(measured, 'LEAST_ITERATIONS', math.inf)
    found = []
    for factor in (1, 30):
        honest = Job('honest', 1.0, 0.6e6, 1.0)
        run([honest, Job('other', 0.5, 0.7e6, 0.5 * factor)], 60.0)
        found.append(later_s(honest))
    assert found[1] > 1.1 * found[0]
