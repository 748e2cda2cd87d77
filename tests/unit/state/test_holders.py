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


class Name(str):
    n_compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.n_compared += 1
        return super().__eq__(other)

    def __ne__(self, other):
        return not self == other


def test_who_leaves_is_not_compared_with_all_that_hold_the_address():
    """Each tenant has a 192.168.0.2."""
    found, names = holders.Holders(), [Name(f'vm{i}') for i in range(1000)]
    for name in names:
        found.update(name, (), ['192.168.0.2'])
    for name in names[:10]:
        found.update(name, ['192.168.0.2'], ())
    assert Name.n_compared < 100
    assert [*found.of('192.168.0.2')] == names[10:]


def test_a_host_that_is_forgotten_leaves_nothing():
    state = live_state.LiveState()
    for number in range(3):
        state.intake(f'h{number}', made.report(ports=[
            {'vm': f'vm{number}', 'mac': '02:00:00:00:00:01'}]), 1.0)
    assert [*state._reporters.of('02:00:00:00:00:01')] == ['h0', 'h1', 'h2']
    state.forget_hosts({'h0', 'h1', 'h2'})
    assert not state._reporters._of
