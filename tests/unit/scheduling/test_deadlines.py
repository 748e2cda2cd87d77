# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math

import hypothesis
from hypothesis import strategies as st
import msgspec
import numpy as np
import pytest

from tests import examples
from virtco import scheduling
from virtco.model import live
from virtco.model import uplinks
from virtco.scheduling import deadlines
from virtco.scheduling import order_and_rates as scheduler

HOSTS = ('a', 'b', 'c', 'd')
INDEX = {host: i for i, host in enumerate(HOSTS)}
BELOW_A_RACK = uplinks.Uplinks(np.array([[0], [0], [-1], [-1]]),
                               np.array([1.5, 2.0]))


def ports(above=uplinks.NONE, egress_bps=(1.0, 1.0, 2.0, 1.0),
          ingress_bps=(1.0, 3.0, 1.0, 1.0)):
    return live.Ports(HOSTS, np.array(egress_bps), np.array(ingress_bps),
                      above)


def flows(**sizes_bits):
    return live.Flows(live.Pairs(tuple(pair) for pair in sizes_bits),
                      np.array(list(sizes_bits.values()), float) / 8)


def claims(*rows, n_ports=2):
    """:param rows: time to the deadline, and port seconds."""
    found = deadlines.claims_of(n_ports)
    for i, (left_s, *sizes_s) in enumerate(rows):
        found = found.joined(str(i), np.array(sizes_s, float), left_s)
    return found


def test_port_seconds_count_both_ends_and_the_uplinks_between():
    found = ports(BELOW_A_RACK).busy_s(
        flows(ac=3.0, ab=1.0, ca=2.0, aa=9.0), INDEX)
    assert found == pytest.approx([4, 0, 1, 0, 2, 1 / 3, 3, 0, 3 / 1.5, 1.0])
    found = ports(egress_bps=(0, 1, 1, 1)).busy_s(flows(ab=1.0), INDEX)
    assert found[0] == math.inf
    assert found[1] == 0


def test_who_has_time_steps_aside():
    """Constant rates (Varys) would refuse the second."""
    promised = claims((10.0, 6.0, 0.0))
    verdict = deadlines.judge(promised, np.array([1.0, 0.0]), 1.0)
    assert verdict.is_promised
    plan = deadlines.renew(promised.joined('new', np.array([1.0, 0.0]), 1.0),
                           5.0)
    assert plan.is_whole
    assert plan.times_s.tolist() == [5.0, 6.0, 15.0]
    assert plan.next_s == 6.0
    assert plan.floors() == {'new': pytest.approx(1.0)}
    assert plan.done == pytest.approx(np.array([[0, 0, 1], [0, 1, 1]]))


def test_no_comes_with_a_bound_and_the_earliest_time():
    promised = claims((4.0, 3.0, 0.0), (6.0, 2.0, 1.0))
    verdict = deadlines.judge(promised, np.array([2.0, 2.0]), 5.0)
    # By 6 the first port serves 5 for the others, so 7 with this one.
    assert verdict == deadlines.Verdict(False, 7.0, pytest.approx(7.0))
    assert deadlines.judge(promised, np.array([2.0, 2.0]), 7.0).is_promised
    # One that fits before the first deadline is judged by itself.
    assert deadlines.least_s(promised, np.array([1.0, 0.5])) == 1.0
    assert deadlines.least_s(promised, np.array([0.0, 0.0])) == 0.0
    # Claims that became too large at a port that it does not use.
    assert deadlines.least_s(claims((2.0, 5.0, 0.0)),
                             np.array([0.0, 1.0])) == 1.0
    # By 4 there is 1 left, and between 4 and 6 none of it is owed more.
    assert deadlines.least_s(claims((4.0, 3.0), n_ports=1),
                             np.array([1.5])) == 4.5


def test_the_earliest_time_may_lie_above_the_bound():
    """Two ports that are free at different times hold up who needs both."""
    promised = claims((1.0, 1.0, 0.0), (3.0, 0.0, 3.0), (2.0, 0.0, 0.0))
    verdict = deadlines.judge(promised, np.array([1.0, 0.1]), 2.9)
    assert not verdict.is_promised
    assert verdict.bound_s == pytest.approx(3.1)
    assert verdict.earliest_s == pytest.approx(4.0)
    assert deadlines.fits(promised, np.array([1.0, 0.1]),
                          verdict.earliest_s)
    # It is stored with the answer to Nova, as no number of numpy's.
    verdict = deadlines.judge(promised, np.array([1.0, 0.1]), 3.5)
    assert msgspec.json.encode(verdict) and not verdict.is_promised


@pytest.mark.parametrize('ends_s, next_s', [
    ((), math.inf), ((7.0,), 7.0), ((7.0, 9.0), 7.0), ((9.0, 8.0, 7.0), 7.0)])
def test_rates_change_at_the_first_deadline(ends_s, next_s):
    plan = deadlines.renew(claims(*((end_s, 1.0, 0.0) for end_s in ends_s)),
                           5.0)
    assert plan.next_s == 5.0 + next_s


def test_what_has_nothing_to_send_may_end_now():
    verdict = deadlines.judge(claims((10.0, 6.0, 0.0)), np.zeros(2), 0.0)
    assert verdict == deadlines.Verdict(True, 0.0, 0.0)


@hypothesis.given(st.integers(-40, 40))
def test_a_verdict_is_the_same_in_any_unit_of_time(power):
    unit_s = 2.0 ** power
    promised = claims((4.0, 2.0, 1.0), (6.0, 0.5, 3.0), (9.0, 4.0, 2.0))
    for size_s in ([1.0, 1.0], [0.5, 2.5], [3.0, 0.0], [2.0, 2.0]):
        asked = np.array(size_s)
        found = deadlines.judge(promised, asked, 5.0)
        scaled = deadlines.judge(dataclasses.replace(
            promised, port_s=promised.port_s * unit_s,
            left_s=promised.left_s * unit_s), asked * unit_s, 5.0 * unit_s)
        assert scaled == deadlines.Verdict(
            found.is_promised, found.bound_s * unit_s,
            found.earliest_s * unit_s)


def test_a_bound_that_fits_is_the_earliest_time():
    verdict = deadlines.judge(claims((10.0, 6.0, 0.0)),
                              np.array([1.0, 0.3]), 1.0)
    assert verdict.earliest_s == verdict.bound_s == 1.0


def test_a_port_without_a_rate_promises_nothing():
    verdict = deadlines.judge(claims((1.0, 0.5, 0.5)),
                              np.array([math.inf, 0.1]), 100.0)
    assert verdict == deadlines.Verdict(False, math.inf, math.inf)
    plan = deadlines.renew(claims((1.0, math.inf, 0.5), (2.0, 0.5, 0.5)), 0.0)
    assert not plan.is_whole
    assert plan.floors() == {'1': pytest.approx(0.5)}


def test_nothing_promised():
    plan = deadlines.renew(deadlines.claims_of(2), 3.0)
    assert plan.is_whole
    assert plan.floors() == {}
    assert plan.next_s == math.inf
    # A deadline that is over holds up nobody.
    late = deadlines.renew(claims((-1.0, 1.0, 1.0), (2.0, 2.0, 1.0)), 0.0)
    assert not late.is_whole
    assert late.floors() == {'1': pytest.approx(0.5)}


def test_a_claim_is_sent_no_faster_than_caps_let_it():
    alone, size_s = deadlines.claims_of(2), np.array([1.0, 0.5])
    verdict = deadlines.judge(alone, size_s, 5.0, 3.0)
    assert verdict == deadlines.Verdict(True, 3.0, 3.0)
    assert deadlines.judge(alone, size_s, 3.0, 3.0).is_promised
    verdict = deadlines.judge(alone, size_s, 2.9, 3.0)
    assert verdict == deadlines.Verdict(False, 3.0, 3.0)
    # Another takes the port of the first second.
    beside = claims((1.0, 1.0, 0.0))
    assert deadlines.judge(beside, size_s, 3.0, 2.0).is_promised
    verdict = deadlines.judge(beside, size_s, 3.0, 2.1)
    assert (verdict.is_promised, verdict.bound_s) == (False, 2.1)
    assert verdict.earliest_s == pytest.approx(3.1, rel=1e-5)
    # A cap may be slower than all that is promised.
    verdict = deadlines.judge(claims((9.0, 4.0, 0.0)), size_s, 1.0, 20.0)
    assert verdict == deadlines.Verdict(False, 20.0, 20.0)
    plan = deadlines.renew(beside.joined('new', size_s, 3.0, 2.0), 0.0)
    assert plan.done[1] == pytest.approx([0.0, 0.0, 1.0])
    late = deadlines.renew(alone.joined('new', size_s, 3.0, 4.0), 0.0)
    assert not late.is_whole and late.done[0, -1] == pytest.approx(0.75)


sizes = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5]), min_size=4,
                 max_size=4)


@st.composite
def questions(draw, most=6):
    return [(draw(st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 4.5])),
             np.array(draw(sizes)))
            for _ in range(draw(st.integers(1, most)))]


@hypothesis.settings(deadline=None, max_examples=examples.count(150))
@hypothesis.given(questions())
def test_admitted_together_fit_together(asked):
    """No port is busy for longer than time passes, and nobody is late."""
    promised = deadlines.claims_of(4)
    for i, (left_s, size_s) in enumerate(asked):
        verdict = deadlines.judge(promised, size_s, left_s)
        assert verdict.bound_s <= verdict.earliest_s * (1 + 1e-9)
        assert verdict.bound_s >= size_s.max() * (1 - 1e-9)
        # It is stored with the answer to Nova.
        assert msgspec.json.encode(verdict)
        if verdict.is_promised:
            assert verdict.bound_s <= left_s * (1 + 1e-9)
            promised = promised.joined(str(i), size_s, left_s)
        assert deadlines.fits(promised, np.zeros(4), 1.0)
    plan = deadlines.renew(promised, 0.0)
    assert plan.is_whole
    shares = np.diff(plan.done, axis=1)
    assert (shares >= 0).all()
    busy_s = shares.T @ promised.port_s
    assert (busy_s <= np.diff(plan.times_s)[:, None] + 1e-6).all()
    for left_s, done, size_s in zip(promised.left_s, plan.done,
                                    promised.port_s):
        if size_s.any():
            assert np.interp(left_s, plan.times_s, done) == pytest.approx(1)


@hypothesis.settings(deadline=None, max_examples=examples.count(150))
@hypothesis.given(questions(), st.lists(st.floats(0, 1), min_size=4,
                                        max_size=4))
def test_the_bound_holds_for_any_plan(asked, weights):
    """Whatever is admitted ends no earlier than its bound said."""
    *others, (left_s, size_s) = asked
    promised = deadlines.claims_of(4)
    for i, (other_s, other) in enumerate(others):
        if deadlines.fits(promised, other, other_s):
            promised = promised.joined(str(i), other, other_s)
    bound_s = deadlines.least_s(promised, size_s)
    assert not deadlines.fits(promised, size_s, bound_s * (1 - 1e-6)) or (
        not size_s.any())
    assert deadlines.fits(promised, size_s, deadlines.earliest_s(
        promised, size_s, bound_s))


@st.composite
def lives(draw):
    """Coflows with deadlines, and others that want the same ports."""
    pairs = [(src, dst) for src in HOSTS for dst in HOSTS if src != dst]
    found = []
    for i in range(draw(st.integers(1, 6))):
        chosen = draw(st.lists(st.sampled_from(pairs), min_size=1,
                               max_size=5, unique=True))
        found.append((draw(st.sampled_from([0.0, 0.0, 0.7, 1.9])),
                      draw(st.sampled_from([1.0, 1.1, 1.6, 3.0, math.inf])),
                      live.Flows(live.Pairs(chosen), np.array([
                          draw(st.sampled_from([125.0, 500.0, 1125.0]))
                          for _ in chosen]))))
    return sorted(found, key=lambda one: one[0])


@hypothesis.settings(deadline=None, max_examples=examples.count(120))
@hypothesis.given(lives(), st.sampled_from(['mrtf', 'fifo', 'sebf', 'fair']),
                  st.booleans())
def test_every_promise_is_kept(arriving, policy, below_a_rack):
    """A fluid run of schedule(): whoever comes later, and under any order,
    a coflow whose deadline was promised ends by it.
    """
    fabric = ports(BELOW_A_RACK._replace(cap_bps=BELOW_A_RACK.cap_bps * 1e3)
                   if below_a_rack else uplinks.NONE,
                   (1e3, 1e3, 2e3, 1e3), (1e3, 3e3, 1e3, 1e3))
    due_s, left, plan, now_s = {}, {}, None, 0.0
    waiting = list(enumerate(arriving))

    def claimed():
        found = deadlines.claims_of(len(fabric.cap_bps))
        for name in due_s.keys() & left.keys():
            found = found.joined(name, fabric.busy_s(
                left[name], INDEX), due_s[name] - now_s)
        return found

    for _ in range(400):
        while waiting and waiting[0][1][0] <= now_s + 1e-12:
            number, (_at_s, factor, its) = waiting.pop(0)
            size_s = fabric.busy_s(its, INDEX)
            left[str(number)] = its
            if factor < math.inf and deadlines.judge(
                    claimed(), size_s, factor * size_s.max()).is_promised:
                due_s[str(number)] = now_s + factor * size_s.max()
        plan = deadlines.renew(claimed(), now_s, plan)
        made = scheduling.schedule(
            [live.LiveCoflow(name, its) for name, its in left.items()],
            fabric, policy=policy, now_s=now_s, floors=plan.floors())
        rates = {one.coflow_id: one.flow_rates.rate_bps / 8
                 for one in made.coflows}
        ends_s = [size / rate for name, its in left.items()
                  for size, rate in zip(its.remaining_bytes, rates[name])
                  if size > 0 and rate > 0]
        if not ends_s and not waiting:
            break
        next_s = min([plan.next_s, *(now_s + end_s for end_s in ends_s),
                      *(at_s for _, (at_s, *_) in waiting)])
        for name, its in list(left.items()):
            after = np.maximum(
                0.0, its.remaining_bytes - rates[name] * (next_s - now_s))
            after[after < 2 * scheduler.NOTHING_BYTES] = 0.0
            left[name] = live.Flows(its.pairs, after)
            if not after.any():
                del left[name]
                assert next_s <= due_s.get(name, math.inf) + 1e-5
        now_s = next_s
    assert not left


def test_a_guarantee_comes_before_the_order():
    small = live.LiveCoflow('small', flows(ab=1.0))
    large = live.LiveCoflow('large', flows(ab=10.0, cd=10.0))

    def rates(**options):
        return {one.coflow_id: one.flow_rates.rate_bps.tolist()
                for one in scheduling.schedule(
                    [small, large], ports(), now_s=0.0, **options).coflows}

    assert rates()['small'] == [pytest.approx(1.0)]
    found = rates(floors={'large': 0.08})
    assert found['large'][0] == pytest.approx(0.8)
    assert found['small'] == [pytest.approx(0.2)]
    # A port that became slower gives what it has.
    found = rates(floors={'large': 0.5, 'gone': 1.0})
    assert found['large'][0] == pytest.approx(1.0)
    assert found['small'] == [pytest.approx(0.0)]


def test_the_plan_before_holds_where_the_greedy_one_fails():
    now = claims((3.0, 0.0, 1.0, 1.5), (3.0, 1.0, 1.0, 1.0),
                 (2.0, 0.0, 1.0, 0.5), n_ports=3)
    assert not deadlines.renew(now, 1.0).is_whole
    # A second ago each had a third more to send until the first deadline.
    before = deadlines.Plan(('0', '1', '2'), np.array([0.0, 1.0, 3.0, 4.0]),
                            np.array([[0.0, 0.25, 1.0, 1.0],
                                      [0.0, 0.0, 0.0, 1.0],
                                      [0.0, 0.25, 1.0, 1.0]]), True)
    plan = deadlines.renew(now, 1.0, before)
    assert plan.is_whole
    assert plan.times_s.tolist() == [1.0, 3.0, 4.0]
    assert plan.done == pytest.approx(np.array(
        [[0, 1, 1], [0, 0, 1], [0, 1, 1]]))
    assert plan.floors() == pytest.approx({'0': 0.5, '2': 0.5})
    # A new one gets what the plan leaves.
    more = now.joined('new', np.array([1.0, 0.0, 0.0]), 2.0)
    plan = deadlines.renew(more, 1.0, before)
    assert plan.is_whole
    assert plan.floors() == pytest.approx({'0': 0.5, '2': 0.5, 'new': 0.5})
    # Each deadline ends an interval.
    late = now.joined('late', np.array([0.0, 0.0, 0.5]), 5.0)
    plan = deadlines.renew(late, 1.0, before)
    assert plan.is_whole
    assert plan.times_s.tolist() == [1.0, 3.0, 4.0, 6.0]
    # The plan is void where more is left than it was made for.
    assert not deadlines.renew(dataclasses.replace(
        now, port_s=now.port_s * 1.5), 1.0, before).is_whole


def test_a_promise_that_cannot_be_kept_refuses_no_other():
    """A coflow that is sent too late, or a port that became slow."""
    late = claims((5.0, 10.0, 0.0))
    verdict = deadlines.judge(late, np.array([0.0, 2.0]), 2.0)
    assert verdict == deadlines.Verdict(True, 2.0, 2.0)
    plan = deadlines.renew(late.joined('new', np.array([0.0, 2.0]), 2.0), 0.0,
                           deadlines.renew(late, 0.0))
    assert plan.done[:, -1] == pytest.approx([0.5, 1.0])
    # What can still be sent of it is, though another would be earlier.
    assert not deadlines.fits(late, np.array([0.5, 0.0]), 2.0)
    assert deadlines.judge(late, np.array([0.5, 0.0]), 10.5).is_promised
    # Who does not fit is refused whoever else does not.
    assert not deadlines.fits(late, np.array([0.0, 2.0]), 1.9)
    assert deadlines.fits(late, np.zeros(2), 0.0)


def test_one_that_came_lately_fits_beside_one_that_is_late():
    """The plan before leaves it too little, as it knew nothing of it."""
    before = deadlines.renew(claims((6.0, 0.0, 3.0), (9.0, 30.0, 0.0)), 0.0)
    now = claims((6.0, 0.0, 3.0), (9.0, 30.0, 0.0), (4.0, 0.0, 3.0))
    assert deadlines.fits(claims((6.0, 0.0, 3.0), (9.0, 30.0, 0.0)),
                          np.array([0.0, 3.0]), 4.0)
    plan = deadlines.renew(now, 0.0, before)
    assert plan.done[:, -1] == pytest.approx([1.0, 0.3, 1.0])


@pytest.mark.parametrize('kept_s, given', [(6.0, 0.0), (5.5, 0.5)])
def test_new_coflows_get_what_the_plan_before_leaves(kept_s, given):
    old = claims((6.0, kept_s, 0.0))
    plan = deadlines.renew(old.joined('new', np.array([1.0, 0.0]), 6.0), 0.0,
                           deadlines.renew(old, 0.0))
    assert not plan.is_whole
    assert plan.done[:, -1] == pytest.approx([1.0, given])


def test_a_plan_before_holds_what_is_left_of_its_coflows():
    """After a third of the time, a third of the first one was sent."""
    before = deadlines.renew(claims((6.0, 6.0, 0.0)), 0.0)
    left = claims((4.0, 4.0, 0.0)).joined('new', np.array([1.0, 0.0]), 3.0)
    assert deadlines.renew(left, 2.0).done[:, -1] == pytest.approx([0.75, 1])
    plan = deadlines.renew(left, 2.0, before)
    assert plan.done[:, -1] == pytest.approx([1.0, 0.0])
    assert plan.done[0] == pytest.approx((plan.times_s - 2.0) / 4.0)


@pytest.mark.parametrize('unit_s', [1e-3, 1.0, 1e6])
def test_a_plan_before_may_be_over_by_rounding_in_any_unit_of_time(unit_s):
    sizes_s = (3.0, 0.0, 1.0, 1.5), (3.0, 1.0, 1.0, 1.0), (2.0, 0.0, 1.0, 0.5)
    before = deadlines.Plan(
        ('0', '1', '2'), np.array([0.0, 2.0, 3.0]) * unit_s,
        np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), True)
    for over, is_whole in ((1e-9, True), (2e-9, False)):
        now = claims(*(np.array([left_s, *((1 + over) * np.array(size_s))])
                       * unit_s for left_s, *size_s in sizes_s), n_ports=3)
        assert not deadlines.renew(now, 0.0).is_whole
        assert deadlines.renew(now, 0.0, before).is_whole is is_whole


@hypothesis.given(st.lists(st.tuples(
    st.sampled_from([0.0, 0.1, 0.3, 0.6]), st.sampled_from([0.5, 1.0, 4.0])),
    min_size=1, max_size=5), st.sampled_from([0.05, 0.2, 0.5, 1.0]))
def test_a_fraction_is_spread_at_one_pace(intervals, wanted):
    most, lengths_s = map(np.array, zip(*intervals))
    found = deadlines._evenly(most, lengths_s, wanted)
    assert found.sum() == pytest.approx(min(wanted, most.sum()))
    assert (found <= most + 1e-12).all()
    paces = found / lengths_s
    # An interval that takes less than the others takes what it can.
    assert all(found[i] == pytest.approx(most[i]) for i in range(len(most))
               if paces[i] < paces.max() - 1e-9)


def test_the_largest_wait_while_some_find_no_room():
    withheld = deadlines.Withheld(most=10)
    for alone_s in range(1, 10):
        withheld.note(float(alone_s), True)
    assert withheld.limit_s == math.inf
    assert not withheld.holds(100.0, 100.0)
    withheld.note(0.5, False)
    # Three times as many as found no room: the three largest of ten.
    assert withheld.limit_s == 6.0
    assert withheld.holds(6.5, 8.0)
    assert not withheld.holds(6.0, 8.0)
    assert withheld.holds(7.5, 29.9)
    assert not withheld.holds(7.5, 30.0)
    for _ in range(8):
        withheld.note(1.0, False)
    assert withheld.limit_s == 0.5
    for _ in range(10):
        withheld.note(1.0, True)
    assert withheld.limit_s == math.inf
