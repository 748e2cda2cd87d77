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
        layout.Layout(host, ()),
        coflow_table.Link(host, rate_bps, 1e8, 1e6), 60.0, {},
        host_policy.Numbers(*[none] * 5))


def test_only_what_changed_gets_a_new_generation():
    found = publisher.Publisher()
    kept = a_policy()
    assert found.publish({'h0': kept, 'h1': a_policy('h1')}) == 2
    assert found.publish({'h0': kept, 'h1': a_policy('h1', 5e7)}) == 1
    assert (found.get('h0').generation, found.get('h1').generation) == (1, 2)


def test_each_epoch_has_numbers_of_its_own():
    found = publisher.Publisher()
    found.lead(3)
    found.publish({'h0': a_policy(), 'h1': a_policy('h1')})
    found.publish({'h0': a_policy(rate_bps=5e7)})
    assert found.generations() == {'h0': 3 * 10 ** 9 + 2,
                                   'h1': 3 * 10 ** 9 + 1}
    assert found.get('h0').generation == 3 * 10 ** 9 + 2
    assert found.get('h0').egress_bps == 5e7
    assert found.get('h9') is None
    # Nobody who reads JSON's numbers as doubles takes two for the same.
    most = 9_000_000 * publisher.PER_EPOCH
    assert float(most) != float(most + 1)


def test_a_forgotten_host_gets_no_number_twice():
    """Its edge module refuses policies older than the one it has."""
    found = publisher.Publisher()
    found.lead(3)
    for rate_bps in (1e8, 2e8):
        found.publish({'h0': a_policy(rate_bps=rate_bps)})
    found.forget({'h0', 'h9'})
    assert found.generations() == {} and found.get('h0') is None
    found.publish({'h0': a_policy(), 'h1': a_policy('h1')})
    assert found.generations() == dict.fromkeys(('h0', 'h1'),
                                                3 * 10 ** 9 + 3)
    found.lead(4)
    found.publish({'h2': a_policy('h2')})
    assert found.generations()['h2'] == 4 * 10 ** 9 + 1


def test_a_document_is_written_once_for_all_who_ask():
    found = publisher.Publisher()
    found.publish({'h0': a_policy()})
    assert found.get('h0') is found.get('h0')


@pytest.mark.parametrize(('published', 'applied', 'lag'), [
    (None, 7, 0), (None, None, 0), (3 * 10 ** 9 + 4, 3 * 10 ** 9 + 1, 3),
    (3 * 10 ** 9 + 4, 3 * 10 ** 9 + 4, 0), (3 * 10 ** 9 + 4, None, 4),
    (3 * 10 ** 9 + 4, 2 * 10 ** 9 + 500, 4), (2, 0, 2), (2, 1, 1)])
def test_how_far_a_host_is_behind(published, applied, lag):
    assert publisher.lag(published, applied) == lag


def test_who_listens_hears_of_the_hosts_that_changed():
    found, heard = publisher.Publisher(), []
    found.on_publish.append(lambda hosts: heard.append(list(hosts)))
    kept = a_policy()
    found.publish({'h0': kept, 'h1': a_policy('h1')})
    found.publish({'h0': kept, 'h1': a_policy('h1', 5e7)})
    found.publish({'h0': kept})
    assert heard == [['h0', 'h1'], ['h1']]
