# SPDX-License-Identifier: Apache-2.0

"""Who else reports the MAC addresses of a host."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit import made
from virtco.state import live_state
from virtco.state import mac_addresses

HOSTS, MACS = 'abc', 'wxyz'


@given(st.lists(st.tuples(st.sampled_from(HOSTS),
                          st.frozensets(st.sampled_from(MACS))), max_size=20))
def test_shared_addresses_are_those_of_two_sets(updates):
    found, now = mac_addresses.Reporters(), dict.fromkeys(HOSTS, frozenset())
    for host, macs in updates:
        found.update(host, macs)
        now[host] = macs
    for host in HOSTS:
        assert sorted(found.shared(host)) == sorted(
            (mac, other) for other in HOSTS if other != host
            for mac in now[host] & now[other])
    assert found._hosts.keys() == frozenset().union(*now.values())
    assert found._macs.keys() == {host for host in HOSTS if now[host]}


def test_a_host_that_is_forgotten_leaves_nothing():
    state = live_state.LiveState()
    for number in range(3):
        state.intake(f'h{number}', made.report(ports=[
            {'vm': f'vm{number}', 'mac': '02:00:00:00:00:01'}]), 1.0)
    assert sorted(name for _, name in state._reporters.shared('h0')) == [
        'h1', 'h2']
    state.forget_hosts({'h0', 'h1', 'h2'})
    assert not state._reporters._hosts and not state._reporters._macs
