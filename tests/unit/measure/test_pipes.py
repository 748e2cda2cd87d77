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
        pairs.append(hostrates.PairRate(src, dst, rate, 100.0 + at))
    return pipes.known(kept.table(), made.host_rates(pairs, 110.0))


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
    assert pipes.choose(found, {'a', 'x'}, 110.0, 600.0).text == ''
    assert pipes.choose(pipes.NOTHING, set(HOSTS), 110.0, 600.0).text == ''
    # All of them known, and none slow: nothing to say.
    assert pipes.choose(_known(), set(HOSTS), 110.0, 600.0).text == ''


def test_an_uplink_that_explains_a_pair():
    found = _known(slow={('a', 'b')})
    up = {('a', 'b'): 0.41 * LINK}
    assert pipes.choose(found, set(HOSTS), 110.0, 600.0, up).rates_bps == {}


def test_too_many_hosts_are_not_planned_by_pairs():
    found = _known(slow={('a', 'b')})
    hosts = set(HOSTS) | {f'x{i}' for i in range(pipes.MOST_HOSTS)}
    chosen = pipes.choose(found, hosts, 110.0, 600.0)
    assert chosen.rates_bps == {} and 'left out' in chosen.text


def test_a_pair_that_became_fast_is_no_pipe_any_more():
    kept, pairs = history.History(10), []
    for at in range(8):
        for src, dst in itertools.permutations(HOSTS, 2):
            slow = (src, dst) == ('a', 'b') and at < 5
            rate = LINK * (0.4 if slow else 1.0)
            kept.add(history.Reading(src, dst, rate, 100.0 + at))
            pairs.append(hostrates.PairRate(src, dst, rate, 100.0 + at))
    found = pipes.known(kept.table(), made.host_rates(pairs, 110.0),
                        estimator=constant.Estimator.MEDIAN)
    assert found.slow == {}
