# SPDX-License-Identifier: Apache-2.0

"""Who holds an address."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit import made
from virtco.state import holders
from virtco.state import live_state

NAMES, ADDRESSES = 'abc', 'wxyz'


@given(st.lists(st.tuples(st.sampled_from(NAMES),
                          st.frozensets(st.sampled_from(ADDRESSES))),
                max_size=20))
def test_holders_are_those_of_the_last_update(updates):
    found, now = holders.Holders(), dict.fromkeys(NAMES, frozenset())
    for name, addresses in updates:
        # A port may tell an address twice.
        found.update(name, [*now[name]] * 2, [*addresses] * 2)
        now[name] = addresses
    for address in ADDRESSES:
        assert sorted(found.of(address)) == [
            name for name in NAMES if address in now[name]]
    assert found._of.keys() == frozenset().union(*now.values())


def test_a_host_that_is_forgotten_leaves_nothing():
    state = live_state.LiveState()
    for number in range(3):
        state.intake(f'h{number}', made.report(ports=[
            {'vm': f'vm{number}', 'mac': '02:00:00:00:00:01'}]), 1.0)
    assert state._reporters.of('02:00:00:00:00:01') == ('h0', 'h1', 'h2')
    state.forget_hosts({'h0', 'h1', 'h2'})
    assert not state._reporters._of
