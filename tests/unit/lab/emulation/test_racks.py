# SPDX-License-Identifier: Apache-2.0

"""Racks of VMs: which bed is built of them."""

import pytest

from virtco.topology import tree
from virtco_lab.emulation import racks


@pytest.fixture(name='beds')
def _beds(monkeypatch):
    made = []
    monkeypatch.setattr(racks.fabric, 'built', made.append)
    return made


def test_vms_are_in_racks_with_links_of_their_own(beds):
    racks.built([150, 60], 8e6, 2)
    bed, = beds
    assert (bed.racks['r0v149'], bed.racks['r1v0']) == ('rack0', 'rack1')
    assert len(bed.hosts) == len(bed.racks) == 210
    assert set(bed.rates_bps.values()) == {8e6}
    assert bed.queue_s == 0.05


def test_links_have_the_rates_that_are_asked_for(beds):
    racks.built([2, 1], 8e6, 4, {'r0v1': 4e6, 'rack1': 1e6})
    bed, = beds
    assert bed.rates_bps == {'r0v0': 8e6, 'r0v1': 4e6, 'r1v0': 8e6}
    # Two VMs of 8 Mbit/s, a quarter of that; and what is asked for.
    assert [root.uplink for root in bed.plane.roots] == [
        tree.Uplink(4e6, 4e6), tree.Uplink(1e6, 1e6)]
