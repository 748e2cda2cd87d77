# SPDX-License-Identifier: Apache-2.0

"""A cast between racks on real links: who knows them crosses them less."""

import pytest

pytest.importorskip('libtorrent')

from tests.netns import gear
from virtco_lab.emulation import casts
from virtco_lab.emulation import racks as racks_module

_SIZE_BYTES = 1_000_000


def test_each_rack_takes_each_block_about_once():
    with racks_module.built([4, 4], 20e6, 2) as racks:
        known = casts.run(racks, _SIZE_BYTES,
                          casts.SCHEMES['virtco, topology'], 1)
        unknown = casts.run(racks, _SIZE_BYTES, casts.SCHEMES['Cornet'], 1)
    assert set(known.ends_s) == set(racks.bed.hosts) - {'r0v0'}
    # Half of the blocks go to the other rack and back: 1.6 copies at best,
    # and headers. Help among gates may double some.
    assert known.uplink_copies < 2.6
    assert known.uplink_copies < unknown.uplink_copies


@gear.full(
    'functional/test_cast_swarm.py::'
    'test_a_slow_cluster_does_not_hold_up_another')
@pytest.mark.real_time(reason='compares the ends of transfers')
def test_a_slow_gate_is_helped():
    """Half of the blocks would come at a tenth of the others' rate."""
    with racks_module.built([4], 20e6, 1, {'r0v1': 2e6}) as racks:
        found = casts.run(racks, _SIZE_BYTES, casts.SCHEMES['virtco'], 1)
    fast = [end_s for vm, end_s in found.ends_s.items() if vm != 'r0v1']
    # Alone, its third of the blocks would keep the others for long.
    assert max(fast) < found.ends_s['r0v1']


def test_schemes_give_everybody_everything():
    with racks_module.built([3], 50e6, 1) as racks:
        for name in ('star', 'chain', 'tree', 'BitTorrent'):
            found = casts.run(racks, 200_000, casts.SCHEMES[name], 1)
            assert len(found.ends_s) == 2, name
