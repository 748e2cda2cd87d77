# SPDX-License-Identifier: Apache-2.0

"""A check with real trains finds the host at half of its speed."""

import pytest

from tests.netns import gear
from tests.netns.probe import test_measured_hosts as measured
from virtco.client import v1
from virtco.wire import check as check_wire
from virtco.wire import host as host_wire
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import process
from virtco_lab.emulation import services

run = measured.run
children = measured.children
fabric = measured.fabric


@gear.full(
    'functional/controller/test_checks.py::'
    'test_a_slow_host_reaches_placements_and_the_alert with trains that are '
    'made up; netns/probe/test_trains.py::'
    'test_trains_go_past_the_classes_of_the_uplink')
@pytest.mark.real_time(reason='times the packets of trains')
def test_the_host_at_half_speed_is_found(fabric, children, tmp_path):
    fabric.set_uplink_rate('h2', measured.LINK_BPS / 2)
    measured.start(fabric, children, tmp_path, enabled=False)
    measured.wait(fabric, children, lambda hosts: len(hosts) == len(
        measured.HOSTS), 'all edge modules')
    client = v1.Client(services.controller_url(fabric))

    def ask(function):
        return namespaces.call(fabric.control, function)

    check_id = ask(lambda: client.call(
        check_wire.ORDER, measured.HOSTS)).check_id
    process.wait_until(
        lambda: ask(lambda: client.call(
            check_wire.SHOW, check_id)).state not in ('waiting', 'running'),
        'the end of the check', children, interval_s=0.3)
    found = ask(lambda: client.call(check_wire.SHOW, check_id))
    shown = ask(lambda: client.call(host_wire.SHOW, 'h2'))
    assert found.state == 'done'
    assert {(one.kind, one.subject) for one in found.findings} == {
        ('host-egress', 'h2'), ('host-ingress', 'h2')}
    assert shown.egress_bps == pytest.approx(measured.LINK_BPS / 2,
                                                rel=0.05)
