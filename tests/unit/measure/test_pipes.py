# SPDX-License-Identifier: Apache-2.0

import itertools

import numpy as np
import pytest

from tests.unit import made
from virtco.measure import constant
from virtco.measure import history
from virtco.measure import hostrates
from virtco.measure import pipes

HOSTS = tuple('abcd')
LINK = 1e9


def _known(slow=(), *, n=6, disturbed=(), only=None):
    kept, pairs = history.History(10), []
    rng = np.random.default_rng(0)
    for at, (src, dst) in itertools.product(
            range(n), itertools.permutations(HOSTS, 2)):
        if only is not None and (src, dst) not in only:
            continue
        rate = LINK * (0.4 if (src, dst) in slow else 1.0)
        if (src, dst, at) in disturbed:
            rate *= 0.2
        rate *= 1 + 0.01 * rng.standard_normal()
        kept.add(history.Reading(src, dst, rate, 100.0 + at))
        pairs.append(history.Reading(src, dst, rate, 100.0 + at))
    return pipes.known(kept.table(), made.host_rates(pairs))


def test_a_pair_that_its_hosts_do_not_explain():
    found = _known(slow={('a', 'b')})
    assert set(found.slow) == {('a', 'b')}
    one = found.slow['a', 'b']
    assert one.rate_bps == pytest.approx(0.4 * LINK, rel=0.05)
    assert one.expected_bps == pytest.approx(LINK, rel=0.05)
    assert one.confidence > 0.9
    chosen = pipes.choose(found, set(HOSTS), 110.0, 600.0)
    assert chosen.rates_bps == {('a', 'b'): one.rate_bps}
    assert '1 slow pairs are used (a to b 399' in chosen.text
    assert '5 s old, confidence 0.9' in chosen.text


def test_a_slow_host_needs_no_pipes():
    pairs = {(src, dst) for src, dst in itertools.permutations(HOSTS, 2)
             if 'a' in (src, dst)}
    assert _known(slow=pairs).slow == {}


def test_single_readings_make_no_pipe():
    found = _known(disturbed={('a', 'b', 2), ('a', 'b', 5), ('c', 'd', 3)})
    assert found.slow == {}
    assert _known(slow={('a', 'b')}, n=1).slow == {}


def test_what_is_old_or_missing_falls_back_and_says_so():
    found = _known(slow={('a', 'b')}, only={('a', 'b'), ('a', 'c'),
                                            ('c', 'b'), ('c', 'd')})
    late = pipes.choose(found, set(HOSTS), 2000.0, 600.0)
    assert late.rates_bps == {}
    assert late.text == (
        'pair rates: of 12 pairs 4 were measured more than 600 s ago and 8 '
        'never: hosts\' rates there')
    for now_s, names in itertools.product((110.0, 2000.0), ('ax', 'bx')):
        assert pipes.choose(found, set(names), now_s, 600.0).text == ''
    assert pipes.choose(pipes.NOTHING, set(HOSTS), 110.0, 600.0).text == ''
    assert pipes.NOTHING.newest_s.size == pipes.NOTHING.count.size == 0
    # All of them known, and none slow: nothing to say.
    assert pipes.choose(_known(), set(HOSTS), 110.0, 600.0).text == ''


def test_an_uplink_that_explains_a_pair():
    found = _known(slow={('a', 'b')})
    up = {('a', 'b'): 0.41 * LINK}
    assert pipes.choose(found, set(HOSTS), 110.0, 600.0, up).rates_bps == {}


@pytest.mark.parametrize(('n_hosts', 'is_planned'), [
    (200, True), (201, False)])
def test_too_many_hosts_are_not_planned_by_pairs(n_hosts, is_planned):
    found = _known(slow={('a', 'b')})
    hosts = set(HOSTS) | {f'x{i}' for i in range(n_hosts - len(HOSTS))}
    chosen = pipes.choose(found, hosts, 110.0, 600.0)
    assert bool(chosen.rates_bps) == is_planned
    assert ('left out' in chosen.text) == (not is_planned)
    missing = n_hosts * (n_hosts - 1) - 12
    assert f'0 were measured more than 600 s ago and {missing} never' in (
        chosen.text)


def made_known(*rows, now_s=110.0):
    """What is known of pairs: (src, dst, rates, confidence, age)."""
    kept = history.History()
    slow = {}
    for src, dst, rate_bps, expected_bps, age_s in rows:
        kept.add(history.Reading(src, dst, rate_bps, now_s - age_s))
        slow[src, dst] = pipes.Slow(rate_bps, expected_bps, 0.5,
                                    now_s - age_s)
    table = kept.table()
    return pipes.Known(table, newest_s=table.times_s[-1], slow=slow)


@pytest.mark.parametrize(('age_s', 'is_used'), [(60.0, True), (60.5, False)])
def test_a_pair_counts_until_it_is_so_old(age_s, is_used):
    found = made_known(('a', 'b', 4e8, 1e9, age_s), ('b', 'a', 4e8, 1e9, 1))
    chosen = pipes.choose(found, {'a', 'b'}, 110.0, 60.0)
    assert (('a', 'b') in chosen.rates_bps) == is_used
    assert ('1 were measured more than 60 s ago and 0 never' in chosen.text
            ) == (not is_used)


@pytest.mark.parametrize(('uplink_bps', 'is_used'), [
    (4.45e8, True), (4e8 / 0.9, False), (9e8, True), (1e8, False)])
def test_a_pair_is_a_tenth_slower_than_its_uplinks(uplink_bps, is_used):
    found = made_known(('a', 'b', 4e8, 1e9, 1))
    chosen = pipes.choose(found, {'a', 'b'}, 110.0, 60.0,
                          {('a', 'b'): uplink_bps})
    assert (('a', 'b') in chosen.rates_bps) == is_used


def test_pairs_count_that_have_both_ends_in_the_question():
    found = made_known(('a', 'b', 4e8, 1e9, 1), ('b', 'c', 3e8, 1e9, 1))
    assert pipes.choose(found, {'a', 'b'}, 110.0, 60.0).rates_bps == {
        ('a', 'b'): 4e8}
    assert pipes.choose(found, {'b', 'c'}, 110.0, 60.0).rates_bps == {
        ('b', 'c'): 3e8}


def test_the_three_slowest_are_shown():
    rows = [('a', to, bps * 1e6, 1e9, 10.0) for to, bps in (
        ('b', 400), ('c', 100), ('d', 300), ('e', 200))]
    found = made_known(*rows)
    chosen = pipes.choose(found, set('abcde'), 110.0, 60.0)
    assert len(chosen.rates_bps) == 4
    sure = 0.5 * hostrates.confidence(10.0)
    assert ', '.join(
        f'a to {to} {bps} of 1000 Mbit/s, 10 s old, confidence {sure:.2f}'
        for to, bps in (('c', 100), ('e', 200), ('d', 300))
    ) + ', …)' in chosen.text
    # A pair of a host that nobody asked for is not shown.
    few = pipes.choose(found, set('abc'), 110.0, 60.0)
    assert few.rates_bps.keys() == {('a', 'b'), ('a', 'c')}
    assert '…' not in few.text and 'a to c 100' in few.text


@pytest.mark.parametrize(('n', 'rate', 'is_slow'), [
    (1, 0.5, False), (2, 0.5, True), (2, 0.8, True), (2, 0.9, False)])
def test_two_readings_and_a_tenth_make_a_pipe(n, rate, is_slow):
    kept = history.History()
    for at in range(n):
        kept.add(history.Reading('a', 'b', rate * LINK, 100.0 + at))
    host = hostrates.HostRate(LINK, 2 * LINK, 0.0)
    found = pipes.known(kept.table(), {'a': host, 'b': host})
    assert found.slow == ({('a', 'b'): pipes.Slow(
        rate * LINK, LINK, 1 - 0.5 ** n, 99.0 + n)} if is_slow else {})
    assert found.count.tolist() == [n]
    # Nothing explains a pair of hosts of which nothing is known.
    assert pipes.known(kept.table(), {'a': host}).slow == {}
    back = hostrates.HostRate(2 * LINK, LINK, 0.0)
    assert pipes.known(kept.table(), {'a': back, 'b': back}
                       ).slow.keys() == found.slow.keys()


def test_a_pair_that_became_fast_is_no_pipe_any_more():
    kept, pairs = history.History(10), []
    for at in range(8):
        for src, dst in itertools.permutations(HOSTS, 2):
            slow = (src, dst) == ('a', 'b') and at < 5
            rate = LINK * (0.4 if slow else 1.0)
            kept.add(history.Reading(src, dst, rate, 100.0 + at))
            pairs.append(history.Reading(src, dst, rate, 100.0 + at))
    found = pipes.known(kept.table(), made.host_rates(pairs),
                        estimator=constant.Estimator.MEDIAN)
    assert found.slow == {}


@pytest.mark.parametrize(('before', 'count'), [(0.75, 3), (0.8, 8)])
def test_a_rate_that_moved_by_three_tenths_is_another(before, count):
    kept = history.History(10)
    for at in range(8):
        kept.add(history.Reading('a', 'b', LINK * (before if at < 5 else 1.0),
                                 100.0 + at))
    assert pipes.known(kept.table(), {}).count.tolist() == [count]


@pytest.mark.parametrize(('rates', 'is_used'), [
    ((0.4, 0.3, 0.4, 0.5), True), ((0.4, 0.3, 0.5, 0.2, 0.6), False)])
def test_a_pair_that_is_disturbed_more_than_half_of_the_time(rates, is_used):
    kept = history.History()
    for at, rate in enumerate(rates):
        kept.add(history.Reading('a', 'b', rate * LINK, 100.0 + at))
    host = hostrates.HostRate(LINK, LINK, 0.0)
    found = pipes.known(kept.table(), {'a': host, 'b': host},
                        estimator=constant.Estimator.MEDIAN)
    assert (('a', 'b') in found.slow) == is_used
    if is_used:
        assert found.slow['a', 'b'].confidence == (1 - 0.5 ** 4) * 0.5
