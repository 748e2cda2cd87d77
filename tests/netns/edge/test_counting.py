# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Without classes: pairs are counted, and share the default class."""

import dataclasses

import pytest

from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process
from virtco.table import edge_policy

LINK_BPS = 40e6

pytestmark = pytest.mark.netns
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


@real_time
def test_pairs_are_counted_in_the_default_class(make_bed, tmp_path):
    bed = make_bed(2)
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    policy = dataclasses.replace(
        policies.PolicyBuilder('h1', LINK_BPS).build(), flows=(
            edge_policy.FlowEntry('C1', a.uuid, a.ip, b.ip,
                                  edge_policy.DEFAULT_MINOR),))
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(bed, 'h1', tmp_path)
    try:
        controller.set_policy(policy.to_dict())
        edge.start()
        controller.wait_report(lambda r: r['applied_generation'] == 1
                               and r['ports'])
        rate_bps, = beds.measure([beds.Flow(a, b)])
        # The default class borrows the whole link.
        assert rate_bps > 0.8 * LINK_BPS
        report = controller.wait_report(
            lambda r: r['pairs'] and r['pairs'][0]['sent_bytes'] > 4e6)
        assert report['coflows'] == []
        pair, = report['pairs']
        assert (pair['dev'], pair['dst_port']) == (a.dev, None)
        assert pair['sent_bytes'] <= report['default_sent_bytes'] * 1.01
        assert edge.once('--check').stdout.startswith('The kernel holds')
    finally:
        edge.stop()
        controller.stop()
