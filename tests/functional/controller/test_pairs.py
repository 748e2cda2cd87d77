# SPDX-License-Identifier: Apache-2.0

"""Pairs of hosts that are slower than their hosts."""

import itertools
import signal

import pytest

from tests.functional.controller import harness

PAIR = '{"n": 2, "flows": [[0, 1, "100MB"], [1, 0, "100MB"]]}'
HOSTS = ('h0', 'h1', 'h2')
LINK_BPS = 1e8


@pytest.fixture
def controller(tmp_path):
    with harness.running(tmp_path, {'probe': {'enabled': 'false'}}, constants={
            'virtco.state.measured_rates.DEPTH': 4}) as found:
        yield found


def measure(tenant, rates_bps, n=3):
    for _ in range(n):
        for (src, dst), rate_bps in rates_bps.items():
            tenant.controller.streams.measure(
                tenant.host(src), tenant.host(dst), rate_bps, loss=0.0,
                rtt_s=0.001, method='train')


def ask(tenant, number):
    """On two different hosts."""
    return tenant.place(
        number, f'ask-{number}', PAIR, num_instances=2,
        hosts=dict.fromkeys(HOSTS, 50), server_group={
            'policy': 'anti-affinity', 'members': [number], 'hosts': []})


def test_a_slow_pair_is_avoided_and_told_of(controller):
    tenant = controller.tenant()
    tenant.edges(HOSTS, link_bps=LINK_BPS)
    pairs = list(itertools.permutations(HOSTS, 2))
    measure(tenant, {pair: LINK_BPS * (0.2 if set(pair) == {'h0', 'h1'}
                                       else 1.0) for pair in pairs})
    numbers = itertools.count(10, 10)

    def used():
        answer = ask(tenant, next(numbers))
        return answer if 'slow pairs are used' in answer['why'] else None

    answer = harness.wait_for(used)
    assert set(map(tenant.name, answer['rows'].values())) != {'h0', 'h1'}
    assert answer['cct_s'] == pytest.approx(
        100e6 * 8 * 1.05 / (0.98 * LINK_BPS), rel=0.1)
    assert 'confidence' in answer['why']
    # A new process reads what was measured before.
    controller.stop(signal.SIGKILL)
    controller.start()
    tenant.edges(HOSTS, link_bps=LINK_BPS)
    harness.wait_for(used)


def test_what_was_never_measured_is_told_of(controller):
    tenant = controller.tenant()
    tenant.edges(HOSTS, link_bps=LINK_BPS)
    assert 'pair rates' not in ask(tenant, 1)['why']
    measure(tenant, {('h0', 'h1'): LINK_BPS})
    numbers = itertools.count(10, 10)
    harness.wait_for(lambda: 'of 6 pairs 0 were measured more than' in ask(
        tenant, next(numbers))['why'])
