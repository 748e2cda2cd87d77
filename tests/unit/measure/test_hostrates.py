# SPDX-License-Identifier: Apache-2.0


import dataclasses
import itertools

from hypothesis import given
from hypothesis import strategies as st
import pytest

from tests.unit import made
from virtco.measure import history
from virtco.measure import hostrates

RATE = st.floats(1e6, 1e10)


def _pairs(egress, ingress, *, now_s=0.0, hosts=None):
    """Noiseless readings of all pairs in the hose model."""
    hosts = hosts or sorted(egress)
    return [history.Reading(m, n, min(egress[m], ingress[n]), now_s)
            for m, n in itertools.permutations(hosts, 2)]


@st.composite
def hoses(draw):
    names = [f'h{i}' for i in range(draw(st.integers(2, 5)))]
    return ({name: draw(RATE) for name in names},
            {name: draw(RATE) for name in names})


@given(hoses())
def test_estimates_never_exceed_the_truth(hose):
    egress, ingress = hose
    rates = made.host_rates(_pairs(egress, ingress))
    assert set(rates) == set(egress)
    for host, rate in rates.items():
        assert rate.egress_bps <= egress[host]
        assert rate.ingress_bps <= ingress[host]


@given(hoses())
def test_estimates_come_near_the_truth_once_a_peer_is_fast(hose):
    egress, ingress = hose
    rates = made.host_rates(_pairs(egress, ingress))
    for host, rate in rates.items():
        peers = [name for name in egress if name != host]
        if max(ingress[name] for name in peers) >= egress[host]:
            assert rate.egress_bps >= egress[host] * 0.9
        if max(egress[name] for name in peers) >= ingress[host]:
            assert rate.ingress_bps >= ingress[host] * 0.9


@given(st.integers(6, 20), st.randoms())
def test_slow_peers_measured_last_hide_nothing(n_hosts, random):
    """However many of the newest readings are with hosts that are slower."""
    names = [f'h{i:02}' for i in range(n_hosts)]
    egress, ingress = ({name: random.uniform(2e7, 1e8) for name in names}
                       for _ in range(2))
    readings = _pairs(egress, ingress)
    random.shuffle(readings)
    readings = [dataclasses.replace(reading, measured_s=float(at_s))
                for at_s, reading in enumerate(readings)]
    for host, rate in made.host_rates(readings).items():
        for own, found_bps, is_bound, peers in (
                (egress, rate.egress_bps, rate.egress_lower_bound, ingress),
                (ingress, rate.ingress_bps, rate.ingress_lower_bound,
                 egress)):
            assert found_bps <= own[host]
            second = sorted(peers[name] for name in names if name != host)[-2]
            if second >= own[host]:
                assert found_bps >= own[host] * 0.9
            if second >= own[host] * 1.3:
                assert not is_bound


def test_one_reading_that_is_too_high_passes_with_a_few_new_ones():
    bps = dict.fromkeys('abcdefgh', 5e7)
    readings = [*_pairs(bps, bps), history.Reading('a', 'b', 9e7, 1.0)]
    assert made.host_rates(readings)['a'].egress_bps == 9e7
    readings += [history.Reading('a', peer, 5e7, 2.0) for peer in 'cdef']
    rate = made.host_rates(readings)['a']
    assert rate.egress_bps == 5e7
    assert not rate.egress_lower_bound


def test_one_slow_host_is_found_and_its_peers_are_not_blamed():
    bps = {'a': 1e8, 'b': 5e7, 'c': 1e8, 'd': 1e8}
    rates = made.host_rates(_pairs(bps, bps))
    assert rates['b'] == hostrates.HostRate(
        egress_bps=5e7, ingress_bps=5e7, measured_s=0.0)
    for host in 'acd':
        assert (rates[host].egress_bps, rates[host].ingress_bps) == (1e8, 1e8)
        assert not rates[host].egress_lower_bound


def test_slow_in_one_direction_only():
    egress = {'a': 1e8, 'b': 5e7, 'c': 1e8}
    ingress = {'a': 1e8, 'b': 1e8, 'c': 1e8}
    rate = made.host_rates(_pairs(egress, ingress))['b']
    assert (rate.egress_bps, rate.ingress_bps) == (5e7, 1e8)


def test_who_only_met_a_slow_peer_may_be_faster():
    readings = [history.Reading('a', 'slow', 5e7, 0.0),
                history.Reading('b', 'slow', 5e7, 0.0),
                history.Reading('b', 'c', 1e8, 0.0)]
    rates = made.host_rates(readings)
    assert rates['a'].egress_bps == 5e7
    assert rates['a'].egress_lower_bound
    assert rates['slow'].ingress_bps == 5e7
    assert not rates['slow'].ingress_lower_bound
    assert rates['slow'].egress_bps is None
    assert not rates['slow'].egress_lower_bound


def test_a_link_that_got_slower_is_believed_after_a_few_readings():
    bps = dict.fromkeys('abcdef', 1e8)
    readings = _pairs(bps, bps)
    for count, peer in enumerate('bcde', start=1):
        readings.append(history.Reading('a', peer, 4e7, float(count)))
        rate = made.host_rates(readings)['a']
        assert rate.egress_bps == (4e7 if count == 4 else 1e8)
    assert not rate.egress_lower_bound
    assert rate.ingress_bps == 1e8


def test_a_lower_bound_counts_only_where_it_is_higher():
    readings = [history.Reading('a', 'b', 1e8, 0.0),
                history.Reading('a', 'c', 2e7, 9.0, lower_bound=True)]
    rate = made.host_rates(readings)['a']
    assert (rate.egress_bps, rate.egress_lower_bound) == (1e8, False)
    readings[1] = history.Reading('a', 'c', 2e9, 9.0, lower_bound=True)
    rate = made.host_rates(readings)['a']
    assert (rate.egress_bps, rate.egress_lower_bound) == (2e9, True)


def test_of_bounds_the_highest_of_the_newest_counts():
    readings = [history.Reading('a', peer, bps, at_s, lower_bound=True)
                for at_s, (peer, bps) in enumerate(zip(
                    'bcdef', (9e9, 5e7, 9e7, 2e7, 4e7)))]
    rate = made.host_rates(readings)['a']
    assert (rate.egress_bps, rate.egress_lower_bound) == (9e7, True)


def test_four_readings_of_a_side_count():
    """The fastest is the fourth or the fifth newest."""
    for newest_s, rate_bps in (3.0, 9e9), (4.0, 5e7):
        readings = [history.Reading('a', peer, bps, at_s, lower_bound=True)
                    for at_s, (peer, bps) in enumerate(zip(
                        'bcdef', (9e9, 5e7, 5e7, 5e7, 5e7)))]
        readings = readings[:int(newest_s) + 1]
        assert made.host_rates(readings)['a'].egress_bps == rate_bps


def test_noise_averages_out_at_the_top():
    readings = [history.Reading('a', peer, bps, 0.0)
                for peer, bps in zip('bcde', (9.8e7, 1e8, 1.02e8, 2e7),
                                     strict=True)]
    assert made.host_rates(readings)['a'].egress_bps == 1e8


def test_the_time_is_that_of_the_older_direction():
    readings = [history.Reading('a', 'b', 1e8, 100.0),
                history.Reading('b', 'a', 1e8, 40.0)]
    assert made.host_rates(readings)['a'].measured_s == 40.0


def test_age_lowers_confidence():
    assert hostrates.confidence(hostrates.HALF_LIFE_S) == 0.5
    assert hostrates.confidence(-5.0) == 1.0


@given(hoses(), st.randoms())
def test_the_order_of_the_readings_does_not_matter(hose, random):
    readings = _pairs(*hose)
    wanted = made.host_rates(readings)
    random.shuffle(readings)
    assert made.host_rates(readings) == wanted


@given(st.lists(st.tuples(
    st.permutations('abcd').map(lambda names: names[:2]),
    st.sampled_from([1e8, 0.95e8, 8e7, 5e7, 2e7]), st.booleans(),
    st.sampled_from([1.0, 60.0, hostrates.STALE_S])), max_size=20))
def test_what_is_asked_in_between_changes_no_answer(steps):
    """Nor does what a newer reading of the same pair has replaced."""
    found, newest, now_s = hostrates.Readings(), {}, 0.0
    for (src, dst), rate_bps, is_bound, after_s in steps:
        now_s += after_s
        reading = history.Reading(src, dst, rate_bps, now_s, is_bound)
        newest.pop((src, dst), None)
        newest[src, dst] = reading
        found.add(reading)
        assert found.estimate() == made.host_rates(newest.values())


def test_nothing_measured_gives_nothing():
    assert made.host_rates([]) == {}


def _reading(src, dst, rate_bps, measured_s=0.0, **values):
    return history.Reading(src, dst, rate_bps, measured_s, **values)


def test_of_two_readings_of_one_time_the_last_holds():
    rates = made.host_rates([_reading('a', 'b', 4e7, 1.0),
                             _reading('a', 'b', 3e7, 1.0),
                             _reading('a', 'b', 9e7, 0.9)])
    assert rates['a'].egress_bps == rates['b'].ingress_bps == 3e7


@pytest.mark.parametrize(('late_s', 'rate_bps'), [
    (4 * 1800.0, 8e7), (4 * 1800.0 + 1, 2e7)])
def test_a_reading_that_is_much_older_says_nothing(late_s, rate_bps):
    rates = made.host_rates([_reading('a', 'b', 8e7),
                             _reading('a', 'c', 2e7, late_s)])
    assert rates['a'].egress_bps == rate_bps


@pytest.mark.parametrize(('other_bps', 'rate_bps'), [
    (9e7, 9.5e7), (8.9e7, 1e8)])
def test_rates_within_a_tenth_are_one_rate(other_bps, rate_bps):
    rates = made.host_rates([_reading('a', 'b', 1e8),
                             _reading('a', 'c', other_bps)])
    assert rates['a'].egress_bps == rate_bps


@pytest.mark.parametrize(('bound_bps', 'is_bound'), [
    (1e8 * 1.1, False), (1.2e8, True)])
def test_a_bound_holds_where_it_is_a_tenth_higher(bound_bps, is_bound):
    rate = made.host_rates([
        _reading('a', 'b', 1e8),
        _reading('a', 'c', bound_bps, lower_bound=True)])['a']
    assert rate.egress_lower_bound == is_bound
    assert rate.egress_bps == (bound_bps if is_bound else 1e8)


@pytest.mark.parametrize('blamed, blamed_peers, side, found', [
    (set(), set(), None, False),
    ({'a'}, {'b', 'c'}, None, False),
    (set(), set(), dict(lower_bound=True), True),
    ({'a'}, {'b', 'c'}, dict(lower_bound=True), True),
    ({'a'}, {'b', 'c'}, {}, False),
    (set(), {'b', 'c'}, {}, True),
    (set(), {'b'}, {}, False), (set(), set(), {}, False)])
def test_who_is_to_blame_for_a_rate(blamed, blamed_peers, side, found):
    told = None if side is None else hostrates._Side(**dict(
        rate_bps=1e9, newest_s=0.0, lower_bound=False,
        readings=(('b', 9e8), ('c', 1e9))) | side)
    assert hostrates._is_bound('a', told, blamed, blamed_peers) == found


@pytest.mark.parametrize('rate_bps, blamed', [
    (8.9e7, {'a'}), (9e7, set())])
def test_a_peer_clears_itself_by_more_than_a_tenth(rate_bps, blamed):
    side = hostrates._Side(rate_bps, 0.0, False, (('b', rate_bps),))
    peer = hostrates._Side(1e8, 0.0, False, ())
    assert hostrates._blamed({'a': side}, {'b': peer}) == blamed


def test_only_readings_near_the_widest_explain_it():
    def read(peer, rate_bps, at_s):
        return history.Reading('a', peer, rate_bps, at_s)

    newest = {f'n{i}': read(f'n{i}', 100.0 - i, 50.0 + i)
              for i in range(hostrates.RECENT)}
    older = {'high': read('high', 150.0, 10.0), 'low': read('low', 50.0, 9.0),
             'near': read('near', 95.0, 8.0)}
    side = hostrates._widest({**newest, **older}, {})
    assert {peer for peer, _rate in side.readings} == {*newest, 'near'}
    assert side.newest_s == 50.0 + hostrates.RECENT - 1
    assert not side.lower_bound
    assert side.rate_bps == 100.0 - (hostrates.RECENT - 1) / 2


@pytest.mark.parametrize('peer_bps, n_peers', [(9e7, 3), (8.9e7, 2)])
def test_a_peer_that_does_nine_tenths_of_the_second_best_counts(peer_bps,
                                                                n_peers):
    found = hostrates.Readings()
    for peer, rate_bps in ('b', 1e8), ('c', 1e8), ('d', peer_bps):
        found.add(_reading('a', peer, rate_bps))
    found.estimate()
    side = found._sides[True]['a']
    assert len(side.readings) == n_peers


def test_a_slow_peer_counts_once_it_did_better_with_another():
    """And no more once its newest readings are slow with all of them."""
    found = hostrates.Readings()

    def ingress_bps(at_s, senders, receiver, rate_bps):
        for sender in senders:
            found.add(_reading(sender, receiver, rate_bps, at_s))
        return found.estimate()['b'].ingress_bps

    assert ingress_bps(0.0, 'xy', 'b', 1e8) == 1e8
    assert ingress_bps(1.0, 'cdef', 'b', 5e7) == 1e8
    assert ingress_bps(2.0, 'cdef', 'v', 1e8) == 5e7
    assert ingress_bps(3.0, 'cdef', 'w', 1e8) == 5e7
    assert ingress_bps(4.0, 'cdef', 'v', 5e7) == 5e7
    assert ingress_bps(5.0, 'cdef', 'w', 5e7) == 1e8
