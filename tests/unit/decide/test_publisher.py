# SPDX-License-Identifier: Apache-2.0

"""Generations: only for what changed, and never twice the same."""

import numpy as np
import pytest

from virtco.decide import publisher
from virtco.table import coflow_table
from virtco.table import host_policy
from virtco.table import layout


def a_policy(host='h0', rate_bps=1e8):
    none = np.zeros(0)
    return host_policy.HostPolicy(
        layout.Layout.of(host, ()),
        coflow_table.Link(host, rate_bps, 1e8, 1e6), 60.0, {}, none, none,
        none, none, none)


def test_only_what_changed_gets_a_new_generation():
    found = publisher.Publisher()
    kept = a_policy()
    assert found.publish({'h0': kept, 'h1': a_policy('h1')}) == 2
    assert found.publish({'h0': kept, 'h1': a_policy('h1', 5e7)}) == 1
    assert (found.get('h0').generation, found.get('h1').generation) == (1, 2)


@pytest.mark.parametrize('reads_first', [True, False])
def test_a_host_without_a_lease_is_numbered_above_the_leader_before(
        reads_first):
    """It reported, and the leader before could write no more."""
    before, after = publisher.Publisher(), publisher.Publisher()
    before.lead(1)
    before.publish({'h0': a_policy()})
    if reads_first:
        after.load_leases({'h0': 0})
    after.lead(2)
    after.load_leases({'h0': 0})
    after.publish({'h0': a_policy()})
    assert after.get('h0').generation > before.get('h0').generation


def test_a_restart_goes_on_above_the_lease():
    found = publisher.Publisher()
    found.publish({'h0': a_policy()})
    leases = found.leases_to_renew()
    found.renewed(leases)
    assert found.leases_to_renew() == {}
    for i in range(publisher.LEASE // 2 + 1):
        found.publish({'h0': a_policy(rate_bps=1e8 + i + 1)})
    assert found.get('h0').generation <= leases['h0']
    assert found.leases_to_renew()['h0'] > leases['h0']
    again = publisher.Publisher()
    again.load_leases(leases)
    again.publish({'h0': a_policy()})
    assert again.get('h0').generation == leases['h0'] + 1


def test_a_number_is_not_given_again_when_the_leases_are_read_once_more():
    """Or nobody would be told of the second policy of that number."""
    found = publisher.Publisher()
    found.load_leases({'h0': 1000})
    found.publish({'h0': a_policy()})
    given = found.get('h0').generation
    found.lead(1)
    found.load_leases({'h0': 1000})
    found.publish({'h0': a_policy(rate_bps=5e7)})
    assert found.get('h0').generation > given


def test_an_edge_that_is_ahead_is_overtaken():
    found = publisher.Publisher()
    found.publish({'h0': a_policy()})
    found.overtake('h0', 1)
    assert found.get('h0').generation == 1
    found.overtake('h0', 41)
    assert found.get('h0').generation == 42
    found.publish({'h0': a_policy(rate_bps=2e8)})
    assert found.get('h0').generation == 43


def test_a_first_policy_is_another_than_the_one_an_edge_has():
    found = publisher.Publisher()
    found.overtake('h0', 7)
    found.publish({'h0': a_policy()})
    assert found.get('h0').generation == 8


def test_who_listens_hears_of_the_hosts_that_changed():
    found, heard = publisher.Publisher(), []
    found.on_publish.append(lambda hosts: heard.append(list(hosts)))
    kept = a_policy()
    found.publish({'h0': kept, 'h1': a_policy('h1')})
    found.publish({'h0': kept, 'h1': a_policy('h1', 5e7)})
    found.publish({'h0': kept})
    found.overtake('h0', 7)
    assert heard == [['h0', 'h1'], ['h1'], ['h0']]
