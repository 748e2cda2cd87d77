# SPDX-License-Identifier: Apache-2.0

"""Counters become progress: nothing is lost, nothing is counted twice."""

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import numpy as np
import pytest

from tests.unit import made
from virtco.state import byte_counters


def report(epoch='e', uplink=0, **sent):
    return made.report(
        epoch=epoch, uplink_sent_bytes=uplink, coflows=[
            {'coflow_id': name, 'sent_bytes': value}
            if not isinstance(value, dict) else
            {'coflow_id': name, 'sent_bytes': sum(value.values()),
             'destinations': [{'host': host, 'sent_bytes': count}
                              for host, count in value.items()]}
            for name, value in sent.items()])


def flat(found):
    return ({(d.coflow_id, d.dst_host): d.wire_bytes for d in found.deltas},
            found.others_bytes[0])


@given(st.lists(st.floats(1, 1e12), min_size=1, max_size=10),
       st.lists(st.floats(0, 1e12), max_size=10))
def test_credit_keeps_the_sum(sizes, credits):
    found = byte_counters.CoflowProgress(sizes)
    for credit in credits:
        found.credit(np.arange(len(sizes)), credit)
    assert sum(found.sent_bytes) + found.excess_bytes == pytest.approx(
        sum(credits), rel=1e-6, abs=1e-3)
    for sent, size in zip(found.sent_bytes, sizes, strict=True):
        assert sent <= size * (1 + 1e-9)
    assert (found.remaining_bytes() >= 0).all()


def test_credit_goes_by_what_is_left():
    found = byte_counters.CoflowProgress([25e6, 5e6, 7e6])
    found.credit(np.array([0, 1]), 3e6)
    assert found.sent_bytes.tolist() == pytest.approx([2.5e6, 0.5e6, 0])


def test_deltas_are_differences_of_cumulative_counters():
    counters = byte_counters.HostCounters()
    assert flat(counters.update(report(a=100, uplink=150))) == (
        {('a', None): 100}, 50)
    assert flat(counters.update(report(a=100, uplink=150))) == ({}, 0)
    assert flat(counters.update(report(a=130, b=5, uplink=200))) == (
        {('a', None): 30, ('b', None): 5}, 15)


def test_two_hosts_of_one_name_count_once():
    """Each takes the other's connection, again and again."""
    counters = byte_counters.HostCounters()
    for sent in (100, 130, 150):
        counters.update(report('one', uplink=sent, a=sent))
        assert flat(counters.update(report('other', uplink=7, a=7, b=2)))[
            0] == ({('a', None): 7, ('b', None): 2} if sent == 100 else {})
    assert flat(counters.update(report('one', uplink=190, a=160))) == (
        {('a', None): 10}, 30)
    counters.forget({'a'})
    assert flat(counters.update(report('other', a=9, b=3)))[0] == {
        ('a', None): 9, ('b', None): 1}
    # Of many, the last few are known.
    for number in range(byte_counters.EARLIER_EPOCHS + 1):
        counters.update(report(f'e{number}'))
    assert flat(counters.update(report('other', b=3)))[0] == {
        ('b', None): 3}


def test_destinations_say_more_than_their_sum():
    counters = byte_counters.HostCounters()
    assert flat(counters.update(report(a={'h1': 60, 'h2': 40},
                                       uplink=100))) == (
        {('a', 'h1'): 60, ('a', 'h2'): 40}, 0)
    assert flat(counters.update(report(a={'h1': 61, 'h2': 40},
                                       uplink=101))) == ({('a', 'h1'): 1}, 0)


def test_a_new_epoch_starts_from_zero():
    counters = byte_counters.HostCounters()
    counters.update(report(a=100, uplink=100))
    assert flat(counters.update(report('f', a=100, uplink=100))) == (
        {('a', None): 100}, 0)


def test_a_restart_goes_on_where_it_was():
    counters = byte_counters.HostCounters()
    counters.update(report(a=100, uplink=100))
    again = byte_counters.HostCounters(counters.epoch, counters.values)
    assert flat(again.update(report(a=130, uplink=130))) == (
        {('a', None): 30}, 0)


def test_a_class_that_went_and_came_is_not_counted_twice():
    counters = byte_counters.HostCounters()
    counters.update(report(a=100, uplink=100))
    counters.update(report(uplink=100))
    assert flat(counters.update(report(a=110, uplink=110))) == (
        {('a', None): 10}, 0)
    counters.forget({'a'})
    assert 'a' not in counters.values


def test_a_report_that_was_read_before_counts_unless_counters_changed():
    counters = byte_counters.HostCounters()
    counters.update(report(a=100, b=5, uplink=105))
    after = report(a=130, b=6, uplink=136)
    step = counters.read(after)
    assert flat(step) == ({('a', None): 30, ('b', None): 1}, 0)
    assert counters.values['a'] == 100
    assert counters.update(after, step) is step
    assert counters.values['a'] == 130
    step = counters.read(after)
    counters.forget({'a'})
    assert flat(counters.update(after, step)) == ({('a', None): 130}, 0)


def test_a_class_that_is_named_twice_counts_once():
    twice = report(a=100, uplink=100)
    twice = msgspec.structs.replace(twice, coflows=twice.coflows * 2)
    assert flat(byte_counters.HostCounters().update(twice)) == (
        {('a', None): 100}, 0)


def test_average_halves_in_its_half_life():
    average = byte_counters.Average(5.0)
    average.add(100, 0)
    assert average.add(0, 5) == pytest.approx(50)
    assert average.add(0, 10) == pytest.approx(25)
    assert average.add(125, 15) == pytest.approx(75)
    # A clock that was set back makes nothing of the past.
    assert average.add(999, 14) == pytest.approx(75)


@given(st.lists(st.tuples(
    st.floats(0, 5), st.floats(0.1, 3),
    st.lists(st.floats(5, 60), min_size=1, max_size=6)), min_size=1,
    max_size=4))
def test_the_measured_cct_is_as_near_as_it_says(hosts):
    """Hosts that report at times of their own, and when their bytes move."""
    reports = sorted(
        (now_s, now_s - interval_s)
        for start_s, interval_s, moves_s in hosts
        for now_s in {start_s + interval_s * np.ceil(
            (at_s - start_s) / interval_s) for at_s in moves_s})
    progress = byte_counters.CoflowProgress([1.0])
    for now_s, since_s in reports:
        progress.moved((since_s, now_s), is_first=False)
    span = progress.span
    moves_s = [at_s for _, _, moves_s in hosts for at_s in moves_s]
    true_s = max(moves_s) - min(moves_s)
    assert abs(span.cct_s - true_s) <= span.cct_error_s + 1e-9
    assert span.first_byte_s <= span.last_byte_s + 1e-9
    assert span.cct_error_s <= max(interval_s for _, interval_s, _ in hosts
                                   ) + 1e-9


@pytest.mark.parametrize(('first_s', 'last_s'), [
    ((1.0, 2.0), (7.0, 8.0)), ((1.0, 2.0), (1.0, 2.0)),
    ((3.0, 3.0), (3.0, 3.0))])
def test_a_span_is_read_as_it_was_written(first_s, last_s):
    span = byte_counters.Span(first_s, last_s)
    assert byte_counters.Span.load(span.first_byte_s, span.last_byte_s,
                                   span.cct_error_s) == span


def estimated(n_vms=4):
    """All pairs of VMs, in the order of the controller."""
    flows = [(src, dst) for src in range(n_vms) for dst in range(n_vms)
             if src != dst]
    return flows, byte_counters.Estimated(np.array([dst for _, dst in flows]))


def test_what_ended_tells_the_size_of_the_others():
    """Philae's idea: two of three senders of a gather are through."""
    flows, progress = estimated()
    gather = [flows.index((src, 3)) for src in range(3)]
    now_s = 0.0
    for step in range(60):
        now_s += 0.1
        for turn, flow in enumerate(gather):
            # The first two end after 50 MB, in 1 s; the third is slower.
            if turn == 2 or step < 10:
                progress.credit(np.array([flow]), 5e5 if turn == 2 else 5e6)
        progress.moved((now_s - 0.1, now_s), False)
    left = progress.remaining_bytes()
    assert left[gather[:2]].tolist() == [0, 0]
    # The third has sent 30 MB, and is believed to be about as large.
    assert left[gather[2]] == pytest.approx(2e7, rel=0.3)
    # Who never began is no flow.
    others = [i for i in range(len(flows)) if i not in gather]
    assert left[others].sum() == 0
    assert progress.all_bytes == pytest.approx(1.3e8)


def test_flows_that_all_ended_go_on_alike():
    """Nothing is left of them that could tell them apart."""
    _flows, progress = estimated(3)
    progress.credit(np.array([0, 1]), 1e6, np.array([0.75, 0.25]))
    progress.moved((0.0, 0.1), True)
    progress.credit(np.array([3]), 1e3)
    progress.moved((9.0, 9.1), False)
    assert progress.remaining_bytes()[[0, 1]].tolist() == [0, 0]
    progress.credit(np.array([0, 1]), 1e6)
    assert progress.sent_bytes[[0, 1]].tolist() == [1.25e6, 0.75e6]


def test_nothing_is_beyond_an_unknown_size_and_late_flows_count():
    flows, progress = estimated(3)
    # Any of them may send.
    assert (progress.remaining_bytes() > 0).all()
    progress.credit(np.array([0, 1]), 1e9, np.array([0.75, 0.25]))
    progress.moved((0.0, 0.1), True)
    assert progress.sent_bytes[:2].tolist() == [7.5e8, 2.5e8]
    assert progress.excess_bytes == 0
    assert progress.remaining_bytes()[0] > 0
    progress.credit(np.array([0]), 1e6)
    progress.moved((9.0, 9.1), False)
    assert progress.remaining_bytes()[5] == 0
    progress.credit(np.array([5]), 1e6)
    progress.moved((9.1, 9.2), False)
    assert progress.remaining_bytes()[5] > 0
    assert progress.next().all_bytes == 0


@pytest.mark.parametrize(('now_s', 'is_young'), [
    (100.25, True), (101.75, True), (102.0, False)])
def test_flows_may_begin_until_one_could_have_ended(now_s, is_young):
    _flows, progress = estimated(3)
    progress.credit(np.array([0, 4]), 1e6, np.array([1.0, 0.0]))
    progress.moved((100.0, 100.0), True)
    progress.credit(np.array([1]), 1e6)
    progress.moved((100.0, now_s), False)
    left = progress.remaining_bytes()
    # Flow 0 rests as long, and of flow 4 nothing was counted.
    assert [left[0] > 0, left[4] > 0, left[5] > 0] == [is_young] * 3
    assert progress.rested_s(now_s).tolist() == [
        now_s - 100, 0, 0, 0, 0, 0]


def test_flows_inside_of_a_host_hold_nothing():
    _flows, progress = estimated(3)
    progress.complete(np.array([0, 3]))
    left = progress.remaining_bytes()
    assert left[[0, 3]].sum() == 0 and (left[[1, 2, 4, 5]] > 0).all()
    progress.complete(np.arange(6))
    assert progress.remaining_bytes().sum() == 0


def test_bytes_beyond_the_hint_move_their_flows_too():
    progress = byte_counters.CoflowProgress([1e6, 1e6, 1e6])
    progress.credit(np.array([0, 1]), 2e6)
    progress.moved((9.0, 10.0), True)
    progress.credit(np.array([1]), 5e5)
    progress.moved((19.0, 20.0), False)
    assert progress.excess_bytes == 5e5
    assert progress.rested_s(30.0).tolist() == [20.0, 10.0, 0.0]
