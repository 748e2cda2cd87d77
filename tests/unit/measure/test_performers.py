# SPDX-License-Identifier: Apache-2.0

"""Who is singled out by the pairs of a cloud whose truth is known."""

import itertools

import numpy as np
import pytest

from virtco.measure import constant
from virtco.measure import history
from virtco.measure import performers

RATE_BPS = 1e9
RTT_S = 2e-4
HOSTS = tuple(f'h{i}' for i in range(10))
RACKS = {host: i // 5 for i, host in enumerate(HOSTS)}
ALL = tuple(itertools.permutations(HOSTS, 2))


def _found(rate_of, rtt_of=lambda src, dst: RTT_S, *, pairs=ALL, readings=6,
           noise=0.0, seed=0):
    """Performers by host, of readings within the noise of what is said.

    rate_of and rtt_of may take the number of the reading as well.
    """
    rng = np.random.default_rng(seed)
    kept = history.History(max(readings, 1))
    for turn in range(readings):
        for src, dst in pairs:
            factor = 1 + noise * rng.uniform(-1, 1)
            rate_bps = rate_of(src, dst)
            rtt_s = rtt_of(src, dst)
            kept.add(history.Reading(
                src, dst, factor * (rate_bps[turn % len(rate_bps)]
                                    if isinstance(rate_bps, tuple)
                                    else rate_bps),
                float(turn + 1), rtt_s=rtt_s))
    table = kept.table()
    rates_bps = constant.estimate(table.rates_bps,
                                  constant.Estimator.MEDIAN)
    return {one.host: one for one in performers.performers(
        table, rates_bps)}


def _poor(found):
    return {host: one.reasons for host, one in found.items() if one.reasons}


def _slow(end, factor=0.5, hosts=('h3',)):
    """A cloud in which these hosts are slow at one end of a pair."""
    def rate(src, dst):
        is_slow = {'egress': src, 'ingress': dst}[end] in hosts
        return RATE_BPS * (factor if is_slow else 1.0)
    return rate


@pytest.mark.parametrize('noise', (0.0, 0.05, 0.15))
@pytest.mark.parametrize('end', ('egress', 'ingress'))
def test_a_bad_host_is_found_alone_with_its_direction(end, noise):
    (host, reasons), = _poor(_found(_slow(end), noise=noise)).items()
    assert host == 'h3'
    reason, = reasons
    assert reason.startswith(f'{end} ')
    said = float(reason.split()[1])
    assert said == pytest.approx(500, rel=max(noise, 1e-6))
    assert 'median is 1' in reason


@pytest.mark.parametrize('seed', range(10))
def test_noise_alone_makes_nobody_poor(seed):
    assert not _poor(_found(lambda src, dst: RATE_BPS, noise=0.2, seed=seed))


def test_a_bad_pair_is_no_fault_of_its_hosts():
    found = _found(lambda src, dst: RATE_BPS * (
        0.1 if (src, dst) == ('h1', 'h2') else 1.0))
    assert not _poor(found)
    assert found['h1'].egress_bps == RATE_BPS


def test_a_host_with_bad_pairs_to_half_of_its_peers_is_not_singled_out():
    """Four of nine: the median is still that of the good ones."""
    few = _found(lambda src, dst: RATE_BPS * (
        0.1 if src == 'h0' and dst in HOSTS[1:5] else 1.0))
    many = _found(lambda src, dst: RATE_BPS * (
        0.1 if src == 'h0' and dst in HOSTS[1:6] else 1.0))
    assert not _poor(few)
    assert set(_poor(many)) == {'h0'}


def test_behind_a_bad_uplink_all_of_a_small_rack_are_poor():
    """Three of ten hosts: most of their peers are outside."""
    rack = HOSTS[:3]
    found = _found(lambda src, dst: RATE_BPS * (
        0.4 if (src in rack) and (dst not in rack) else 1.0))
    assert set(_poor(found)) == set(rack)
    assert all(reason.startswith('egress') for reasons in _poor(
        found).values() for reason in reasons)


def test_a_bad_uplink_between_two_halves_singles_nobody_out():
    """Each host has as many slow peers as the others: no host's fault."""
    assert not _poor(_found(lambda src, dst: RATE_BPS * (
        0.4 if RACKS[src] != RACKS[dst] else 1.0)))


def test_equal_hosts_at_the_limit_are_not_poor():
    """A tie with the limit itself, and hosts that are all equally slow."""
    at = performers.POOR
    assert not _poor(_found(_slow('egress', at)))
    assert set(_poor(_found(_slow('egress', at - 0.001)))) == {'h3'}
    assert not _poor(_found(lambda src, dst: RATE_BPS / 100))


def test_two_bad_hosts_do_not_hide_each_other():
    found = _found(_slow('egress', 0.5, ('h3', 'h7')))
    assert set(_poor(found)) == {'h3', 'h7'}


def test_rates_that_vary_are_told():
    found = _found(lambda src, dst: (RATE_BPS, 0.4 * RATE_BPS)
                   if 'h5' in (src, dst) else RATE_BPS)
    (host, reasons), = _poor(found).items()
    assert host == 'h5'
    assert any('vary by' in reason for reason in reasons)
    assert found['h5'].range_share > performers.VARIES
    assert found['h0'].range_share < 0.1


def test_slow_round_trips_are_told_and_unknown_ones_are_not():
    def rtt(src, dst):
        if 'h2' in (src, dst):
            return None
        return 5 * RTT_S if 'h6' in (src, dst) else RTT_S
    found = _found(lambda src, dst: RATE_BPS, rtt)
    (host, reasons), = _poor(found).items()
    assert host == 'h6'
    assert reasons == ('round trip 1 ms, the hosts\' median is 0.2',)
    assert found['h2'].rtt_s is None


@pytest.mark.parametrize('share', (0.3, 0.6))
def test_with_missing_pairs_the_bad_host_is_still_found(share):
    rng = np.random.default_rng(1)
    pairs = [pair for pair in ALL if rng.random() > share]
    found = _found(_slow('egress'), pairs=pairs)
    assert set(_poor(found)) == {'h3'}


def test_too_few_peers_say_nothing():
    pairs = [pair for pair in ALL if 'h3' not in pair] + [
        ('h3', 'h0'), ('h0', 'h3')]
    found = _found(_slow('egress'), pairs=pairs)
    assert not _poor(found)
    assert found['h3'].n_peers == 1
    pairs += [('h3', 'h1'), ('h1', 'h3')]
    assert set(_poor(_found(_slow('egress'), pairs=pairs))) == {'h3'}


def test_a_host_that_only_sends_has_no_peers():
    pairs = [(src, dst) for src, dst in ALL if dst != 'h3']
    found = _found(_slow('egress'), pairs=pairs)
    assert found['h3'].n_peers == 0
    assert found['h3'].ingress_bps is None
    assert not found['h3'].reasons


def test_lower_bounds_alone_say_nothing():
    kept = history.History(3)
    for src, dst in ALL:
        kept.add(history.Reading(src, dst, 1e6 if src == 'h3' else RATE_BPS,
                                 1.0, lower_bound=src == 'h3'))
    table = kept.table()
    found = performers.performers(table, constant.estimate(
        table.rates_bps, constant.Estimator.MEDIAN))
    assert not any(one.reasons for one in found)
    assert found[3].egress_bps is None


def test_an_empty_history_has_no_hosts():
    table = history.History().table()
    assert performers.performers(table, np.zeros(0)) == []


def test_evidence_is_independent_of_the_order_of_the_readings():
    kept = {}
    for order in (ALL, ALL[::-1]):
        kept[order] = {
            host: (one.egress_bps, one.ingress_bps, one.reasons)
            for host, one in _found(_slow('ingress'), pairs=order).items()}
    assert kept[ALL] == kept[ALL[::-1]]


@pytest.mark.parametrize('change, words', [
    ({}, []), ({'egress_bps': 74.9}, ['egress']),
    ({'egress_bps': 75.0}, []), ({'ingress_bps': 149.0}, ['ingress']),
    ({'ingress_bps': 150.0}, []), ({'range_share': 0.5}, []),
    ({'range_share': 0.51}, ['rates']), ({'rtt_s': 3.0}, []),
    ({'rtt_s': 3.1}, ['round']),
    # With one peer nobody knows which of the two it is.
    ({'egress_bps': 1.0, 'ingress_bps': 1.0, 'range_share': 9.0,
      'rtt_s': 9.0, 'n_peers': 1}, ['round']),
    ({'egress_bps': 1.0, 'ingress_bps': 1.0, 'range_share': 9.0},
     ['egress', 'ingress', 'rates'])])
def test_why_a_host_is_poor(change, words):
    """The medians are 100 out and 200 in, and a second of round trip."""
    one = {'egress_bps': 100.0, 'ingress_bps': 200.0, 'range_share': 0.1,
           'rtt_s': 1.0, 'n_peers': 2} | change
    found = performers._reasons(one.pop('n_peers'), list(one.values()),
                                [100.0, 200.0, 1.0])
    assert [reason.split()[0] for reason in found] == words
