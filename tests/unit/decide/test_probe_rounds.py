# SPDX-License-Identifier: Apache-2.0

"""Rounds that a check orders: who is in them, their times and their cost."""

import pytest

from tests.unit import made as plain
from tests.unit.decide import test_probes
from virtco import exception
from virtco.measure import rounds
from virtco.wire import probe_order

made = test_probes.made


def test_rounds_that_the_budget_does_not_allow_are_refused(made):
    transfer = rounds.Transfer(10 ** 6, 0.0, 1.0)
    made.prober.afford('ab', transfer, 1000)
    made.conf.probe.max_link_share = 0.01  # 4.5 GB an hour
    made.prober = made.again()
    made.prober.afford('ab', transfer, 4000)
    with pytest.raises(exception.Invalid, match='max_link_share.*a to send '
                                                '5 GB .*, got 0.01'):
        made.prober.afford('ab', transfer, 5000)
    made.conf.probe.max_bytes_per_hour = 10 ** 9
    made.prober = made.again()
    made.prober.afford('ab', transfer, 400)
    with pytest.raises(exception.Invalid, match='max_bytes_per_hour'):
        made.prober.afford('ab', transfer, 600)


def test_the_connections_of_a_round_begin_at_a_common_time(made):
    told = []
    made.prober.hold(True)
    made.prober.on_ordered.append(lambda: told.append(True))
    transfer = rounds.Transfer(10 ** 6, 0.02, 0.5)
    pairs = [('a', 'b'), ('c', 'd')]
    begun = made.prober.order(pairs, transfer)
    assert begun == dict.fromkeys(pairs) and told == [True]
    starts, ids = {}, {}
    for host in 'abcd':
        order = made.prober.next_train(host)
        starts[host] = made.clock.now + order.start_in_s
        ids[host] = order.probe_id
        made.clock.now += 0.2
        if isinstance(order, probe_order.Send):
            assert order.traffic == probe_order.Bulk(0.5, 2_500_000,
                                                     rounds.WINDOW_S)
    # Who is told too late begins at once.
    assert starts == pytest.approx(dict.fromkeys('abc', 1000.5)
                                   | {'d': 1000.6})
    assert made.prober.state().last_hour_bytes == 2 * 2_500_000
    first = plain.measurement('a', 'b', 1e9, probe_id=ids['a'], method='bulk',
                              sent_bytes=2_000_000)
    # It tells of a link that others load: it is no reading of the pair.
    assert not made.prober.done(first)
    assert begun == {('a', 'b'): first, ('c', 'd'): None}
    assert made.prober.state().last_hour_bytes == 4_500_000
    assert not made.prober.is_idle() and told == [True]
    # After the last one the next round is handed out at once.
    made.prober.done(plain.measurement(
        'c', 'd', 1e9, probe_id=ids['c'], method='bulk',
        sent_bytes=2_500_000))
    assert begun['c', 'd'].sent_bytes == 2_500_000
    assert made.prober.is_idle() and told == [True, True]


def test_a_round_that_is_not_answered_ends(made):
    made.prober.hold(True)
    begun = made.prober.order([('a', 'b')],
                              rounds.Transfer(10 ** 6, 0.02, 0.5))
    made.prober.next_train('a')
    made.prober.next_train('b')
    assert not made.prober.is_idle()
    made.clock.now += 5.99
    assert not made.prober.is_idle()
    made.clock.now += 0.01
    assert made.prober.is_idle() and begun == {('a', 'b'): None}


def test_a_train_of_a_check_is_repeated_if_need_be(made):
    made.prober.hold(True)
    begun = made.prober.order([('a', 'b')])
    assert begun == {('a', 'b'): None}
    train = made.prober.next_train('a')
    assert train.traffic == probe_order.Train(10, 200, 1472)
    assert train.repeats and train.start_in_s is None
    assert made.prober.state().last_hour_bytes == 10 * 200 * 1472
    # As a reading of the pair it is kept, too.
    found = plain.measurement('a', 'b', 1e9, probe_id=train.probe_id)
    assert made.prober.done(found) and begun == {('a', 'b'): found}


@pytest.mark.parametrize(('later_s', 'is_over'), [(4.99, False), (5, True)])
def test_when_a_train_is_given_up(made, later_s, is_over):
    made.prober.order([('a', 'b')])
    made.prober.hold(True)
    made.clock.now += later_s
    assert made.prober.is_idle() is is_over
    assert made.prober.called() == (set() if is_over else {'a', 'b'})


def test_hosts_that_are_busy_or_gone_get_no_order(made):
    made.prober.hold(True)
    assert made.prober.order([('a', 'b')]).keys() == {('a', 'b')}
    assert made.prober.order([
        ('a', 'c'),      # a sends,
        ('c', 'b'),      # b receives,
        ('c', 'gone'), ('gone', 'c'),
        ('b', 'a'),      # the other way is free.
        ('c', 'd')]).keys() == {('b', 'a'), ('c', 'd')}
    assert made.prober.called() == set('abcd')


def test_the_only_two_hosts_get_an_order(made):
    del made.targets['c'], made.targets['d']
    assert made.prober.order([('a', 'b')]).keys() == {('a', 'b')}


def test_a_busy_host_is_not_measured_but_may_be_checked_later(made):
    asked = []
    measurable = made.prober._measurable
    made.prober._measurable = lambda *args: asked.append(
        args) or measurable(*args)
    made.prober.afford('ab', rounds.DISCOVER, 1)
    made.prober.order([('a', 'b')])
    made.prober.called()
    stale_s = 30.0
    assert asked == [(1000.0, stale_s, False), (1000.0, stale_s, True),
                     (1000.0, stale_s, True)]


def test_an_order_is_handed_out_once_to_either_side(made):
    made.prober.hold(True)
    made.prober.order([('a', 'b')])
    assert made.prober.next_train('c') is None
    assert made.prober.next_train('a').peer == 'b'
    assert made.prober.called() == {'b'}
    assert isinstance(made.prober.next_train('b'), probe_order.Receive)
    assert made.prober.called() == set()
    assert made.prober.next_train('a') is None
    assert made.prober.next_train('b') is None


def test_what_a_round_of_connections_may_cost(made):
    """A host that is not known takes nothing; others at their own speed."""
    transfer = rounds.Transfer(10 ** 6, 0.0, 1.0)
    made.conf.probe.max_bytes_per_hour = 2 * 10 ** 6
    made.prober = made.again()
    made.prober.afford(['a', 'b', 'gone'], transfer, 1)
    with pytest.raises(exception.Invalid, match='0.003 GB more'):
        made.prober.afford('abc', transfer, 1)
