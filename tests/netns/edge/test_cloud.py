# SPDX-License-Identifier: Apache-2.0

"""Coflows where they arrive, with a real controller."""

import contextlib
import shutil
import time

import pytest

from tests.netns import gear
from tests.netns.edge import bed as beds
from tests.netns.edge import cloud as clouds
from tests.netns.edge import floods

LINK_BPS = 40e6
GOODPUT = 1448 / 1538

pytestmark = [
    pytest.mark.netns,
    pytest.mark.real_time(reason='measures rates under a flood'),
    pytest.mark.skipif(shutil.which('ethtool') is None,
                       reason='ethtool is not installed')]


@pytest.fixture
def cloud(tmp_path):
    made = clouds.Cloud(tmp_path, LINK_BPS, 4)
    yield made
    made.close()


@gear.full(
    'unit/table/test_unmanaged.py::'
    'test_only_destinations_of_coflows_and_of_the_sender_are_limited; that '
    'limits are kept: netns/edge/test_senders.py::'
    'test_a_coflow_has_its_rate_where_others_flood[3-True]')
def test_senders_of_datagrams_leave_a_coflow_what_it_is_promised(cloud):
    """Also those that send to the hypervisor where it arrives."""
    with contextlib.ExitStack() as stack:
        for number, vm in enumerate(cloud.hostile):
            cloud.route_to_hosts(vm)
            stack.enter_context(floods.udp(
                vm, cloud.sink.ip if number < 2 else clouds.HOST_IP, 1442,
                LINK_BPS))
        cloud.start_coflow()
        flow = beds.Flow(cloud.member, cloud.sink).start()
        stack.callback(flow.close)
        time.sleep(2)
        from_s = flow.now_s()
        time.sleep(3)
        rate_bps = flow.rate_bps(from_s, from_s + 3)
        promised_bps = cloud.promised_bps()
        limits = {host: cloud.policy(host)['unmanaged']['limits']
                  for host in cloud.bed.hosts}
    assert promised_bps > 0.9 * LINK_BPS
    assert rate_bps >= 0.95 * promised_bps * GOODPUT, limits
    assert [len(limits[host]) for host in cloud.bed.hosts] == [0, 0, 1, 1]
    # What coflows do not use, others have.
    beds.wait_for(lambda: sum(
        limit['rate_bps'] for host in ('h3', 'h4')
        for limit in cloud.policy(host)['unmanaged']['limits'])
        > 0.9 * LINK_BPS, 15, 'an end of the limits')
