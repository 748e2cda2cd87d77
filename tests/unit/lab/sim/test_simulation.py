# SPDX-License-Identifier: Apache-2.0

import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests import examples
from virtco import exception
from virtco.scheduling import fabric
from virtco_lab.sim import simulation

POLICIES = tuple(simulation.POLICIES)


def demand(*flows):
    src, dst, bits = zip(*flows) if flows else ((), (), ())
    return fabric.Demand(np.array(src, np.int64), np.array(dst, np.int64),
                         np.array(bits, float), np.ones(len(bits)))


def run(demands, policy='mrtf', arrivals=None, n_hosts=4, rate_bps=1.0,
        **kwargs):
    """CCTs of coflows that start at given (or no) times."""
    sim = simulation.Simulation(
        np.full(2 * n_hosts, rate_bps),
        simulation.Config(policy, **kwargs), demands)
    arrivals = [0.0] * len(demands) if arrivals is None else arrivals
    for index in np.argsort(arrivals, kind='stable'):
        sim.run(arrivals[index])
        sim.start(int(index))
    sim.run()
    return sim.completion_s()


FIG1 = [demand((0, 1, 5.0), (1, 2, 1.0), (2, 0, 2.0)),
        demand((1, 2, 1.0), (2, 1, 2.0))]


@pytest.mark.parametrize('policy, ends', [
    # C2 first: 2 s; C1's five units then have port b in to themselves.
    ('mrtf', [7.0, 2.0]), ('sebf', [7.0, 2.0]),
    # C1 first: 5 s; C2's flow into b waits for it.
    ('fifo', [5.0, 7.0]),
    # b in is shared 1:1 until C2's flow ends at 4; C1 has 3 left then.
    ('fair', [7.0, 4.0]),
])
def test_figure_1_without_co_residence(policy, ends):
    assert run(FIG1, policy) == pytest.approx(ends)


@pytest.mark.parametrize('n', [1, 2, 5, 8])
def test_fifo_against_fair_sharing(n):
    """n equal transfers: fair sharing is 2n/(n+1) slower on average."""
    shuffle = [(i, 2 + j, 1.0) for i in range(2) for j in range(2)]
    demands = [demand(*shuffle)] * n
    fifo, fair = (run(demands, policy).mean() for policy in ('fifo', 'fair'))
    assert fair / fifo == pytest.approx(2 * n / (n + 1))


def test_swaps_let_a_coflow_pass_that_has_to_wait_anyway():
    """A gets half of host 0, so B, though larger, goes first at host 1."""
    demands = [demand((0, 0, 5.0), (4, 4, 10.0)),
               demand((0, 1, 12.0), (1, 2, 9.0)), demand((1, 3, 13.0))]
    # Until 10 A has 9/24 of host 1; B is the smaller then.
    assert run(demands, 'mrtf', n_hosts=5) == pytest.approx(
        [10.0, 22.0, 16.75])
    assert run(demands, 'mrtf+swap', n_hosts=5) == pytest.approx(
        [10.0, 22.0, 13.0])


def test_preemption_and_work_conservation():
    """A small newcomer interrupts; what it leaves idle is used meanwhile."""
    demands = [demand((0, 1, 10.0), (2, 3, 10.0)), demand((0, 1, 1.0))]
    assert run(demands, arrivals=[0.0, 4.0]) == pytest.approx([11.0, 1.0])
    assert run(demands, 'fifo', arrivals=[0.0, 4.0]) == pytest.approx(
        [10.0, 7.0])


def test_rerating_at_each_flow_end():
    """The back-filled flow ends at 2; its port is used again, or not."""
    demands = [demand((0, 1, 4.0)), demand((2, 1, 8.0), (2, 3, 2.0)),
               demand((2, 3, 12.0), (4, 1, 1.0))]
    assert run(demands, n_hosts=5) == pytest.approx([4.0, 12.0, 22.0])
    assert run(demands, n_hosts=5, each_flow=False) == pytest.approx(
        [4.0, 12.0, 24.0])


def test_weighted_fair_shares_the_bottleneck():
    sim = simulation.Simulation(
        np.ones(8), simulation.Config('weighted-fair'),
        [demand((0, 1, 10.0)), demand((0, 2, 30.0))])
    sim.start(0, weight=1.0)
    sim.start(1, weight=3.0)
    sim.run()
    assert sim.completion_s() == pytest.approx([40.0, 40.0])


@pytest.mark.parametrize('policy, ends', [
    ('priority', [18.0, 3.0, 8.0]), ('dark', [10.0, 13.0, 18.0])])
def test_priority_class_goes_first_where_a_policy_knows_it(policy, ends):
    sim = simulation.Simulation(
        np.ones(4), simulation.Config(policy),
        [demand((0, 1, 10.0)), demand((0, 1, 3.0)), demand((0, 1, 5.0))])
    for index, priority in enumerate((1, 0, 0)):
        sim.start(index, priority_class=priority)
    sim.run()
    assert sim.completion_s() == pytest.approx(ends)


@pytest.mark.parametrize('weight, ends', [
    (1.0, [18.0, 8.0]), (2.0, [10.0, 18.0])])
def test_a_weight_divides_the_remaining_time(weight, ends):
    sim = simulation.Simulation(
        np.ones(4), simulation.Config('mrtf'),
        [demand((0, 1, 10.0)), demand((0, 1, 8.0))])
    sim.start(0, weight=weight)
    sim.start(1)
    sim.run()
    assert sim.completion_s() == pytest.approx(ends)


def test_a_coflow_that_others_leave_something_does_not_starve():
    """Its second flow is served meanwhile, so it is not lifted."""
    demands = [demand((0, 1, 10.0)), demand((0, 1, 5.0), (2, 3, 20.0))]
    assert run(demands, theta_s=4.0)[0] == pytest.approx(10.0)
    assert run([demands[0], demand((0, 1, 20.0))], theta_s=4.0)[0] > 10.1


def test_dark_demotes_by_what_was_sent():
    """Aalo: 10 MB at the top queue, then the newcomer goes first."""
    megabyte = 8e6
    demands = [demand((0, 1, 100 * megabyte)), demand((0, 1, 5 * megabyte))]
    ccts = run(demands, 'dark', arrivals=[0.0, 50.0], rate_bps=megabyte)
    assert ccts == pytest.approx([105.0, 5.0])
    ccts = run(demands, 'dark', arrivals=[0.0, 4.0], rate_bps=megabyte)
    assert ccts == pytest.approx([105.0, 11.0], rel=1e-9)


def test_dark_is_as_fair_at_any_speed():
    """Rates below a bit a second, too, move a coflow to its next queue."""
    demands = [demand((0, 1, 8e8)), demand((0, 1, 4e7))]
    fast, slow = (run(demands, 'dark', arrivals=[0.0, 32e6 / rate_bps],
                      rate_bps=rate_bps) * rate_bps
                  for rate_bps in (8e6, 0.5))
    assert slow == pytest.approx(fast)


def test_dark_demotes_at_the_very_end_of_a_flow():
    """10 MB are sent when its small flow ends; its large one steps back."""
    megabyte = 8e6
    demands = [demand((0, 1, 5 * megabyte), (2, 3, 15 * megabyte)),
               demand((2, 3, 2 * megabyte))]
    ccts = run(demands, 'dark', arrivals=[0.0, 2.0], rate_bps=megabyte,
               each_flow=False)
    assert ccts == pytest.approx([17.0, 5.0])


def test_theta_bounds_the_wait():
    """Small coflows keep coming; the big one makes progress all the same."""
    demands = [demand((0, 1, 8.0))] + [demand((0, 1, 1.0))] * 100
    arrivals = [0.0] + [float(i) for i in range(100)]
    starved = run(demands, arrivals=arrivals)
    lifted = run(demands, arrivals=arrivals, theta_s=10.0)
    assert starved[0] > 100
    # Every 10 s without progress earn it 1 s.
    assert lifted[0] <= 8 * 11
    sim = simulation.Simulation(
        np.ones(4), simulation.Config(theta_s=10.0), demands)
    assert 9.5 <= longest_wait_s(sim, arrivals, 0.25) <= 10.0


@pytest.mark.parametrize('size, late', [(6.0, 1.0), (7.0, 1.0), (7.0, 2.0)])
def test_the_first_to_arrive_wins_a_tie_that_rounding_hides(size, late):
    """The first coflow has as much left as the second when that arrives."""
    demands = [demand((0, 1, size)), demand((0, 1, late))]
    assert run(demands, arrivals=[0.0, size - late]) == pytest.approx(
        [size, 2 * late])


def test_the_first_to_start_wins_a_tie_against_a_lower_number():
    sim = simulation.Simulation(np.ones(4), simulation.Config(), [
        demand((0, 1, 1.0)), demand((0, 1, 2.0))])
    sim.start(1)
    sim.run(1.0)
    sim.start(0)
    sim.run()
    assert sim.completion_s() == pytest.approx([2.0, 2.0])


def test_a_turn_of_a_starving_coflow_is_one_quantum():
    """Coflows that begin in its turn do not make the turn longer."""
    sim = simulation.Simulation(
        np.ones(4), simulation.Config(theta_s=10.0),
        [demand((0, 1, 8.0))] + [demand((0, 1, 0.5))] * 24)
    sim.start(0)
    for index in range(1, 25):
        sim.start(index)
        sim.run(index / 2)
    assert sim.remaining_flows(0)[2] == pytest.approx([7.0 / 8])



def longest_wait_s(sim, arrivals, step_s):
    """Longest time, in steps, in which some live coflow sent nothing."""
    order = list(np.argsort(arrivals, kind='stable'))
    sent_at, left, longest_s = {}, {}, 0.0
    while order or sim.n_live:
        until_s = sim.now_s + step_s
        while order and arrivals[order[0]] <= until_s:
            sim.run(arrivals[order[0]])
            sim.start(int(order.pop(0)))
        sim.run(until_s)
        for c in sim.live[:sim.n_live]:
            now_left = sim.remaining_flows(c)[2].sum()
            if now_left != left.get(c):
                left[c], sent_at[c] = now_left, sim.now_s
            longest_s = max(longest_s, sim.now_s - sent_at[c])
    return longest_s


@st.composite
def situations(draw):
    demands = []
    for _ in range(draw(st.integers(1, 6))):
        pairs = draw(st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=0,
            max_size=6, unique=True))
        demands.append(demand(*((src, dst, draw(st.floats(0.1, 50)))
                                for src, dst in pairs)))
    arrivals = [draw(st.floats(0, 20)) for _ in demands]
    return demands, arrivals


@hypothesis.settings(deadline=None, max_examples=examples.count(80))
@hypothesis.given(situations(), st.sampled_from(POLICIES),
                  st.sampled_from(sorted(simulation.BACKFILLS)),
                  st.sampled_from([math.inf, 3.0]), st.booleans())
def test_everything_ends_between_its_bounds(situation, policy, backfill,
                                            theta_s, each_flow):
    """No coflow beats its bottleneck; the last end is not too late."""
    demands, arrivals = situation
    sim = simulation.Simulation(
        np.ones(8), simulation.Config(policy, backfill, each_flow,
                                      theta_s=theta_s), demands)
    lower_s = simulation.alone_s(sim.fabric)
    ccts = run(demands, policy, arrivals, backfill=backfill,
               theta_s=theta_s, each_flow=each_flow)
    assert (ccts >= lower_s * (1 - 1e-6) - 1e-9).all()
    total = sum(item.bits.sum() for item in demands)
    assert np.isfinite(ccts).all()
    if each_flow:
        # At least one port is busy at any time after the last arrival.
        assert (np.array(arrivals) + ccts).max() <= 20 + total + 1e-6


@hypothesis.settings(deadline=None, max_examples=examples.count(60))
@hypothesis.given(situations(), st.sampled_from(POLICIES),
                  st.sampled_from(sorted(simulation.BACKFILLS)))
def test_flow_ends_between_two_coflow_ends_make_one_event(
        situation, policy, backfill):
    """A threshold that is never reached has each flow's end for an event."""
    demands, arrivals = situation
    one, each = (run(demands, policy, arrivals, backfill=backfill,
                     each_flow=False, theta_s=theta_s)
                 for theta_s in (math.inf, 1e9))
    assert one == pytest.approx(each, rel=1e-6, abs=1e-6)


def test_a_coflow_that_ends_within_a_second_leaves_its_share_at_once():
    """Three flows leave host 0 until 4 bits of each are sent."""
    demands = [demand((0, 1, 3.0), (0, 2, 5.0)),
               demand((0, 1, 4.0), (2, 3, 1.0))]
    assert run(demands, 'fair', rate_bps=64.0, each_flow=False
               ) == pytest.approx([13 / 64, 12 / 64])


@hypothesis.settings(deadline=None, max_examples=30)
@hypothesis.given(situations(), st.floats(1.0, 15.0))
def test_no_coflow_waits_longer_than_theta(situation, theta_s):
    demands, arrivals = situation
    sim = simulation.Simulation(
        np.ones(8), simulation.Config(theta_s=theta_s), demands)
    assert longest_wait_s(sim, arrivals, 0.5) <= theta_s + 0.5


def test_each_end_of_a_flow_is_an_event():
    sim = simulation.Simulation(np.ones(8), simulation.Config(), FIG1[:1])
    sim.start(0)
    sim.run(0.5)
    assert sim.events == 1
    sim.run()
    assert sim.events == 4


def test_added_later_is_the_same():
    arrivals = [0.0, 2.0]
    sim = simulation.Simulation(np.ones(8), simulation.Config(), FIG1[:1])
    sim.start(0)
    sim.run(2.0)
    assert list(sim.add(FIG1[1:])) == [1]
    sim.start(1)
    sim.run()
    assert sim.completion_s() == pytest.approx(run(FIG1, arrivals=arrivals))


def test_flows_are_left_with_the_bytes_that_they_did_not_send():
    sim = simulation.Simulation(np.ones(8), simulation.Config(),
                                [demand((0, 1, 8.0), (0, 2, 8.0))])
    sim.start(0)
    sim.run(4.0)
    assert [part.tolist() for part in sim.remaining_flows(0)] == [
        [0, 0], [1, 2], pytest.approx([0.75, 0.75])]


def test_a_flow_that_has_ended_is_not_left():
    sim = simulation.Simulation(np.ones(8), simulation.Config(),
                                [demand((0, 1, 8.0), (2, 3, 80.0))])
    sim.start(0)
    sim.run(40.0)
    assert [part.tolist() for part in sim.remaining_flows(0)] == [
        [2], [3], [pytest.approx(5.0)]]


def test_progress_is_told():
    told = []
    sim = simulation.Simulation(np.ones(4), simulation.Config(),
                                [demand((0, 1, 8.0))])
    sim.start(0)
    sim.run(progress=lambda now_s, events: told.append((now_s, events)))
    assert told == [(8.0, sim.events)] and sim.events > 0


def test_dead_port_is_an_error():
    sim = simulation.Simulation(np.array([1.0, 1.0, 1.0, 0.0]),
                                simulation.Config(), [demand((0, 1, 1.0))])
    sim.start(0)
    with pytest.raises(exception.Invalid, match='rate above 0'):
        sim.run()


def test_an_unknown_back_fill_is_refused():
    with pytest.raises(exception.Invalid, match='backfill'):
        simulation.Simulation(np.ones(2), simulation.Config(backfill='some'))


def test_processes_go_on_in_time_and_at_the_ends_of_coflows():
    """Two coflows of a second each on one pair of ports."""
    sim = simulation.Simulation(np.ones(4), simulation.Config('fifo'),
                                [demand((0, 1, 1.0))] * 2)
    seen = []

    def sends():
        sim.start(0)
        yield math.inf, 0
        seen.append(('first ended', sim.now_s))
        sim.start(1)
        for until_s in (1.5, math.inf):
            yield until_s, 1
            seen.append((sim.ended(1), sim.now_s))

    def waits():
        yield 1.0, None
        seen.append(('at 1', sim.now_s))
        # An end that is over lets it go on at once.
        yield math.inf, 0
        seen.append(('at once', sim.now_s))

    sim.drive([sends(), waits()], 1.25)
    assert sim.now_s == 1.25
    assert seen == [('first ended', 1.0), ('at 1', 1.0), ('at once', 1.0)]
    sim = simulation.Simulation(np.ones(4), simulation.Config('fifo'),
                                [demand((0, 1, 1.0))] * 2)
    seen.clear()
    sim.drive([sends()])
    assert seen[1:] == [(False, 1.5), (True, 2.0)]
