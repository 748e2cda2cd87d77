# SPDX-License-Identifier: Apache-2.0

"""VMs in racks behind oversubscribed uplinks: hosts of a fabric."""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib

from virtco.topology import tree
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import fabric

_QUEUE_S = 0.05


def built(sizes: Sequence[int], rate_bps: float, oversubscription: float,
          slower_bps: Mapping[str, float] | None = None
          ) -> contextlib.AbstractContextManager[fabric.Fabric]:
    """Build racks of VMs, each on a cable of its own.

    :param sizes: VMs in each rack.
    :param slower_bps: rates of single VMs' links and, by the rack's name, of
        uplinks.
    """
    slower_bps = slower_bps or {}
    plane = tree.Plane(roots=tuple(tree.Node(
        f'rack{rack}', tuple(f'r{rack}v{vm}' for vm in range(size)),
        uplink=tree.Uplink(*[slower_bps.get(
            f'rack{rack}', size * rate_bps / oversubscription)] * 2))
        for rack, size in enumerate(sizes)))
    return fabric.built(beds.Bed({
        vm: slower_bps.get(vm, rate_bps) for vm in plane.hosts()}, plane,
        queue_s=_QUEUE_S))
