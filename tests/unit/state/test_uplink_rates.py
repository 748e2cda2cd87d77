# SPDX-License-Identifier: Apache-2.0

"""Measured, else nominal, else configured."""

import pytest

from virtco.measure import hostrates
from virtco.state import uplink_rates
from virtco.wire import reports

RULES = uplink_rates.Rules(default_bps=1e9, max_age_s=100)
LINK = reports.Link(1e8, 1e8)
UNKNOWN = reports.Link(None, None)


def rate(egress_bps, ingress_bps=None, age_s=1.0, **kwargs):
    return hostrates.HostRate(egress_bps, ingress_bps, -age_s, **kwargs)


@pytest.mark.parametrize(('link', 'measured', 'egress_bps', 'source'), [
    (UNKNOWN, None, 1e9, 'unknown'),
    (LINK, None, 1e8, 'link'),
    (LINK, rate(5e7, 5e7), 5e7, 'measured'),
    (LINK, rate(9.6e7, 9.6e7), 1e8, 'measured'),
    (LINK, rate(9e7, 9e7), 1e8, 'measured'),
    (LINK, rate(8.9e7, 8.9e7), 8.9e7, 'measured'),
    (LINK, rate(5e7, 5e7, age_s=100), 5e7, 'measured'),
    (LINK, rate(2e8, 2e8), 1e8, 'measured'),
    (LINK, rate(5e7, 5e7, age_s=101), 1e8, 'link'),
    (LINK, rate(5e7, 5e7, egress_lower_bound=True,
                ingress_lower_bound=True), 1e8, 'link'),
    (UNKNOWN, rate(5e7, 4e7), 5e7, 'measured'),
])
def test_what_counts(link, measured, egress_bps, source):
    found = uplink_rates.of_host(link, measured, RULES)
    assert (found.egress_bps, found.source) == (egress_bps, source)


@pytest.mark.parametrize('link', [reports.Link(1e8, None),
                                  reports.Link(None, 1e8)])
def test_a_speed_that_is_told_one_way_is_the_links(link):
    found = uplink_rates.of_host(link, None, RULES)
    assert (found.egress_bps, found.ingress_bps, found.source) == (
        link.egress_bps or 1e9, link.ingress_bps or 1e9, 'link')


def test_directions_are_apart():
    found = uplink_rates.of_host(LINK, rate(5e7, None), RULES)
    assert (found.egress_bps, found.ingress_bps) == (5e7, 1e8)
    assert found.source == 'measured'
    # Only what was measured has an age.
    assert found.measured_s == -1.0
    assert uplink_rates.of_host(LINK, rate(None, 5e7), RULES
                                ).measured_s == -1.0
    assert uplink_rates.of_host(LINK, rate(None), RULES).measured_s is None
    assert uplink_rates.of_host(LINK, None, RULES).measured_s is None
