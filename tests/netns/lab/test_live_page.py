# SPDX-License-Identifier: Apache-2.0

"""The testbed's live page, seen from outside of its namespaces."""

import requests

from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import testbed as testbed_module

RATE_BPS = 40e6


def test_a_browser_on_this_machine_sees_the_testbed(tmp_path):
    bed = beds.Bed(dict.fromkeys(beds.host_names(3), RATE_BPS),
                   link_bps=RATE_BPS, slots=2, has_page=True,
                   logs=tmp_path / 'logs')
    with testbed_module.Testbed(bed) as testbed:
        url = testbed.open_page()
        with requests.Session() as browser:
            browser.trust_env = False
            page = browser.get(url, timeout=60)
            assert page.status_code == 200 and '<script' in page.text
            hosts = browser.get(url.replace('/ui/', '/v1/hosts'), timeout=60)
            assert {host['host'] for host in hosts.json()['hosts']} == {
                *bed.hosts}
        assert testbed.change_settings({'order': 'sebf'}) is None
