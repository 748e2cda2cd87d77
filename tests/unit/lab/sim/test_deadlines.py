# SPDX-License-Identifier: Apache-2.0

import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from benchmarks import deadlines as benchmark
from tests import examples
from virtco.model import coflow as coflow_model
from virtco.scheduling import fabric
from virtco.state import schedule_input
from virtco_lab.sim import controlled
from virtco_lab.sim import deadlines
from virtco_lab.sim import simulation


def load(*coflows, n_hosts=2):
    """:param coflows: arrival, deadline, and (src, dst, bits) of each flow."""
    demands = []
    for _arrival_s, _due_s, *flows in coflows:
        src, dst, bits = (np.array(column) for column in zip(*flows))
        demands.append(fabric.Demand(src, dst, bits.astype(float),
                                     np.ones(len(bits))))
    return deadlines.Load(np.ones(2 * n_hosts), demands,
                          np.array([one[0] for one in coflows]),
                          np.array([one[1] for one in coflows]))


def test_a_promise_outlives_who_would_go_first():
    """By remaining time the second would make the first late."""
    both = load((0.0, 10.5, (0, 1, 10.0)), (1.0, math.inf, (0, 1, 3.0)))
    outcome = deadlines.run(both)
    assert outcome.at_launch.tolist() == [True, False]
    assert outcome.is_on_time.tolist() == [True, False]
    assert outcome.end_s == pytest.approx([10.5, 13.0])
    assert outcome.shares() == {'on_time': 1.0, 'at_launch': 1.0,
                                'admitted': 1.0, 'kept': 1.0}
    without = deadlines.Load(both.cap_bps, both.demands, both.arrivals_s,
                             np.full(2, math.inf))
    assert deadlines.run(without).end_s == pytest.approx([13.0, 4.0])


def test_who_asks_last_finds_no_room():
    both = load((0.0, 1.9, (0, 1, 1.0)), (0.0, 2.0, (0, 1, 1.1)))
    outcome = deadlines.run(both, withholds=False)
    assert outcome.at_launch.tolist() == [True, False]
    assert not outcome.later.any()
    assert outcome.is_on_time.tolist() == [True, False]


def test_dcoflow_drops_what_helps_most():
    """One that fills two ports makes room for one on each."""
    size_s = np.array([[1.0, 0.0], [0.0, 1.0], [1.5, 1.5]])
    accepted, rejected = deadlines.dcoflow(size_s, np.array([1.2, 1.2, 1.6]))
    assert sorted(accepted) == [0, 1]
    assert rejected == [2]
    # The third is late by 3 × 5.5 + 4 × 4.5, the second by 4 × 4.5 + 3 × 3.5,
    # the first by less.
    accepted, rejected = deadlines.dcoflow(
        np.array([[4.0, 3.0], [4.0, 3.0], [3.0, 4.0]]),
        np.array([7.5, 6.5, 5.5]))
    assert (accepted, rejected) == ([0], [1, 2])
    # Who ends at its deadline is on time.
    assert deadlines.dcoflow(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array(
        [2.0, 1.9])) == ([1, 0], [])
    # Also who does so only once others are rejected.
    assert deadlines.dcoflow(np.array([[0.0, 2.0], [2.0, 0.0], [2.0, 2.0]]),
                             np.array([1.0, 1.0, 2.0])) == ([2], [0, 1])
    # With time, the latest deadline goes last.
    accepted, rejected = deadlines.dcoflow(size_s, np.array([2.6, 1.2, 3.0]))
    assert accepted[-1] == 2
    assert rejected == []


def test_dcoflow_and_varys_on_a_fabric():
    three = load((0.0, 1.2, (0, 1, 1.0)), (0.0, 2.6, (0, 1, 1.5)),
                 (0.0, 2.3, (0, 1, 1.0)))
    outcome = deadlines.run_dcoflow(three)
    assert outcome.is_on_time.sum() == 2
    found = deadlines.run_varys(load(
        (0.0, 10.0, (0, 1, 6.0)), (1.0, 2.5, (0, 1, 1.0))))
    # 0.6 of the port is reserved, although the first has time.
    assert found.at_launch.tolist() == [True, False]
    assert found.end_s == pytest.approx([7.0, 3.5])
    assert deadlines.run(load(
        (0.0, 10.0, (0, 1, 8.0)), (1.0, 2.5, (0, 1, 1.0)))
    ).at_launch.tolist() == [True, True]


@pytest.mark.parametrize('due_s, fits', [(4.4, False), (4.6, True)])
def test_varys_reserves_until_the_end(due_s, fits):
    """0.6 of the port, whatever was sent; the whole of it again at 6."""
    found = deadlines.run_varys(load(
        (0.0, 10.0, (0, 1, 6.0)), (2.0, due_s, (0, 1, 1.0)),
        (9.0, 10.0, (0, 1, 1.0)), (9.0, math.inf, (1, 0, 1.0))))
    assert found.at_launch.tolist() == [True, fits, True, False]


def test_on_time_is_until_a_millionth_after_the_deadline():
    three = load(*[(4.0, 6.0, (0, 1, 1.0))] * 3, (4.0, math.inf, (0, 1, 1.0)))
    outcome = deadlines.Outcome(
        three, np.array([6.0 + 2e-6, 6.0 + 3e-6, 6.0, 5.0]),
        np.array([True, False, False, True]),
        np.array([False, True, False, False]))
    assert outcome.is_on_time.tolist() == [True, False, True, False]
    assert outcome.shares() == pytest.approx({
        'on_time': 2 / 3, 'at_launch': 1 / 3, 'admitted': 2 / 3,
        'kept': 1 / 2})
    none = np.zeros(4, bool)
    assert deadlines.Outcome(three, outcome.end_s, none, none
                             ).shares()['kept'] == 1.0


def test_who_is_late_even_alone_goes_last():
    some = load((0.0, 2.0, (0, 1, 2.0)), (0.0, 1.9, (0, 1, 2.0)),
                (0.0, math.inf, (0, 1, 2.0)))
    sim = simulation.Simulation(some.cap_bps, simulation.Config('mrtf'),
                                some.demands)
    deadlines._put_hopeless_last(sim, some, 3)
    assert sim.state.level.tolist() == [0, 1, 0]


@pytest.mark.parametrize('run, counts, ends_s', [
    (deadlines.run, (105, 39, 145), 16522.0997),
    (deadlines.run_dcoflow, (169, 0, 136), 17271.5930),
    (deadlines.run_varys, (80, 0, 88), 16394.4215)])
def test_each_says_yes_to_some(run, counts, ends_s):
    """At launch and later, of 200 at a load of 0.9; so many are on time."""
    found = run(benchmark.synthetic(0, 0.9, 1.0))
    assert (found.at_launch.sum(), found.later.sum(), found.is_on_time.sum()
            ) == counts
    assert found.end_s.sum() == pytest.approx(ends_s, rel=1e-6)


@hypothesis.settings(deadline=None, max_examples=examples.count(4))
@hypothesis.given(st.integers(0, 10 ** 6), st.sampled_from([0.5, 0.9]),
                  st.sampled_from([1.0, 3.0]), st.booleans())
def test_promises_are_kept(seed, at_load, slack, withholds):
    outcome = deadlines.run(benchmark.synthetic(seed, at_load, slack),
                            withholds=withholds)
    assert outcome.shares()['kept'] == 1.0


def test_as_many_are_on_time_as_under_dcoflow():
    """Means over seeds; with every promise kept, which DCoflow's are not."""
    loads = [benchmark.synthetic(seed, 0.9, 1.0) for seed in range(3)]
    outcomes = [deadlines.run(one) for one in loads]
    # Some wait for their yes until less of them is left.
    assert all(one.later.any() for one in outcomes)
    ours = [one.shares() for one in outcomes]
    theirs = [deadlines.run_dcoflow(one).shares() for one in loads]
    assert all(one['kept'] == 1.0 for one in ours)
    assert np.mean([one['kept'] for one in theirs]) < 0.9
    for share in ('on_time', 'admitted'):
        assert (np.mean([one[share] for one in ours])
                >= np.mean([one['on_time'] for one in theirs]))


@pytest.mark.parametrize('work_conserving', [False, True])
def test_the_controller_keeps_what_it_promises(work_conserving):
    """With its reports, its rules of endings and its delays: nine shorter
    coflows come that it would serve first.
    """
    hosts = tuple(f'h{i}' for i in range(3))
    long = coflow_model.Coflow.from_flows('long', 3, [
        (0, 1, 25e6), (1, 2, 25e6), (0, 2, 20e6)])
    short = coflow_model.Coflow.from_flows('short', 3, [
        (0, 1, 4e6), (1, 2, 3e6), (2, 0, 4e6)])

    def long_cct_s(promised_s):
        found = controlled.simulate(
            [controlled.Sent(long, long, hosts, promised_s=promised_s),
             *(controlled.Sent(short, short, hosts, 0.5 * n, 0.5 * n)
               for n in range(9))], dict.fromkeys(hosts, 1e8),
            schedule_input.Options(beta=0.0, work_conserving=work_conserving))
        return found[0]

    # Alone it takes 3.6 s; the others take 2.9 s of the same links.
    assert long_cct_s(math.inf) > 5.5
    assert long_cct_s(5.0) <= 5.0
