# SPDX-License-Identifier: Apache-2.0

"""Limits of VMs' ports, read from the kernel by the edge module."""

import errno
import socket

import pytest

from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import operations
from edge_module.qdisc import wire
from edge_module.tcplan import vf_rates
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process

pytestmark = pytest.mark.netns


def test_the_kernel_reads_the_rate_of_a_function(make_bed):
    """A device without functions does not support it, a part of the message
    is out of range.
    """
    netns = make_bed(1).ns('h1')

    def answers():
        kind, flags, body = operations.SetRate(vf_rates.Step(
            'set', vf_rates.Name('vf', str(socket.if_nametoindex('uplink0')),
                                 3), 40, 50)).message()
        short = wire.attr(22, wire.attr(1, wire.attr(6, bytes(8))))
        return kernel.tc_send([(kind, flags, body), (
            kind, flags, body[:wire.IFINFOMSG.size] + short)])

    assert beds.in_netns(netns, answers) == [errno.EOPNOTSUPP, errno.ERANGE]


def test_limits_of_devices_are_reported(make_bed, tmp_path):
    """As libvirt and Neutron's agents set them, and those that come later."""
    bed = make_bed(1)
    first, second = bed.add_vm('h1'), bed.add_vm('h1')
    netns = bed.ns('h1')

    def tc(*words):
        beds.run('tc', *words, netns=netns)

    def caps(report):
        return {port['dev']: port['ingress_cap_bps']
                for port in report['ports']}

    tc('qdisc', 'add', 'dev', first.dev, 'root', 'handle', '1:', 'htb',
       'default', '1')
    tc('class', 'add', 'dev', first.dev, 'parent', '1:', 'classid', '1:1',
       'htb', 'rate', '250000kbps', 'ceil', '500000kbps')
    controller = controllers.Controller(netns)
    edge = process.EdgeProcess(bed, 'h1', tmp_path)
    try:
        controller.set_policy(policies.PolicyBuilder('h1', 40e6).build(
            ).to_dict())
        edge.start()
        controller.wait_report(lambda r: caps(r) == {
            first.dev: 2e9, second.dev: None})
        tc('qdisc', 'add', 'dev', second.dev, 'root', 'tbf', 'rate', '20mbit',
           'burst', '32k', 'latency', '50ms')
        tc('class', 'change', 'dev', first.dev, 'parent', '1:', 'classid',
           '1:1', 'htb', 'rate', '80gbit')
        # By the look that is taken every five seconds.
        report = controller.wait_report(lambda r: caps(r) == {
            first.dev: 80e9, second.dev: 20e6}, 30)
        assert {port['egress_cap_bps'] for port in report['ports']} == {None}
    finally:
        edge.stop()
        controller.stop()
