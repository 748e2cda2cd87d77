# SPDX-License-Identifier: Apache-2.0

"""Agent and helper are killed under traffic, and nothing is lost to it."""

import dataclasses
import os
import pathlib
import socket
import time

import pytest

from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import pinned
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from tests.netns.edge import bed as beds
from tests.netns.edge import datagrams
from tests.netns.edge import policies
from tests.netns.edge import restarts

pytestmark = pytest.mark.netns


@pytest.mark.real_time(reason='a paced sender probes when it is not heard')
def test_kills_of_agent_and_helper_lose_nothing(open_path):
    """Five times; benchmarks.restart does it fifty times."""
    site = restarts.Site(open_path)
    try:
        found = site.run(5)
    finally:
        site.close()
    assert found['datagrams'] > 500
    assert found['datagrams_lost'] == found['drops'] == 0
    # A busy machine lets a probe or two go out late.
    assert found['segments_sent_again'] <= 3


def test_another_shape_of_the_tree_loses_nothing(pair):
    """What a version left behind that had the ports' classes elsewhere."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    c, d = bed.add_vm('h1'), bed.add_vm('h2')
    policy = policies.PolicyBuilder('h1', 40e6).coflow(
        'C1', 20e6, [(a, b, 1)], ceil_bps=20e6).build()
    edge.enforcer.grace_s = 0.3
    edge.enforcer.policy = policy
    edge.set_ports()
    wanted = edge.call('desired_tree')
    beds.in_netns(edge.netns, edge.enforcer.uplink.delete_root)

    def older():
        """A class above all but the coflows' data."""
        above = dataclasses.replace(wanted[minors.UNMANAGED], minor=5)
        tree = {minors.LINK: wanted[minors.LINK], 5: above} | {
            minor: dataclasses.replace(
                item, quantum_bytes=200_000, parent=5 if minor in (
                    minors.UNMANAGED, minors.CONTROL) else item.parent)
            for minor, item in wanted.items()}
        ifindex = socket.if_nametoindex('uplink0')
        assert kernel.tc_send([wire.root_qdisc(ifindex)]) == []
        edge.enforcer.uplink.set_classes(tree.values(), {})
        return tree

    left = beds.in_netns(edge.netns, older)
    assert left[minors.UNMANAGED].parent == 5
    edge.call('forget')
    managed = datagrams.Stream(a, b, 4e6)
    unmanaged = datagrams.Stream(c, d, 4e6)
    with managed, unmanaged:
        beds.wait_for(lambda: managed.sent > 300 and unmanaged.sent > 300)
        edge.call('reconcile', time.monotonic())

        def is_done():
            edge.call('collect', time.monotonic())
            return not edge.call('drift')

        beds.wait_for(is_done, 20, 'the new shape')
        sent = managed.sent
        beds.wait_for(lambda: managed.sent > sent + 200)
    assert (managed.lost, unmanaged.lost) == (0, 0)
    stands = beds.in_netns(edge.netns, edge.enforcer.uplink.snapshot).tree
    assert stands.keys() == wanted.keys()
    assert all(wanted[minor].stands_as(item)
               for minor, item in stands.items())


def test_other_programs_come_before_the_old_ones_go(pair, tmp_path,
                                                    monkeypatch):
    """Upgrades under a stream of datagrams, each of which has its class."""
    bed, edge = pair
    a, b = bed.add_vm('h1'), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', 40e6).coflow(
        'C1', 30e6, [(a, b, 1)]).build())
    program = pinned.PROGRAM.read_bytes()

    def pins():
        return {path.name for path in pathlib.Path(pinned.DIRECTORY).glob(
            f'{os.stat("/proc/thread-self/ns/net").st_ino}-*')}

    seen, before = beds.in_netns(edge.netns, pins), edge.stats()
    try:
        with datagrams.Stream(a, b, 5e6) as stream:
            for version in range(1, 6):
                sent = stream.sent
                beds.wait_for(lambda: stream.sent > sent + 100)
                # Behind its end nobody reads it: but it is another file.
                path = tmp_path / f'{version}.o'
                path.write_bytes(program + bytes(version))
                monkeypatch.setattr(pinned, 'PROGRAM', path)
                pinned._version.cache_clear()
                edge.call('reconcile', time.monotonic())
                found = beds.in_netns(edge.netns, pins)
                assert len(found) == 1 and not found & seen
                seen |= found
    finally:
        pinned._version.cache_clear()
    grown = edge.stats()[0x11].sent_packets - before[0x11].sent_packets
    assert stream.lost == 0 and grown == stream.sent > 500
