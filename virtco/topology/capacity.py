# SPDX-License-Identifier: Apache-2.0

"""How many groups of VMs of one flavor fit below each switch of a level. Pure.

Each VM takes the flavor's resources on one host; the VMs of a group share a
switch and no more. Constraints of server groups do not count here.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from virtco import exception
from virtco.topology import tree
from virtco.wire import topology as wire

#: VMs of a host at most, as no demand is too small to be asked for: JSON has
#: no larger sums.
MOST_PER_HOST = 2 ** 31


def count(plane: tree.Plane, level: str, demand: Mapping[str, float],
          free: Mapping[str, Mapping[str, float]], sizes: Iterable[int]
          ) -> wire.Capacity:
    """Count the VMs and groups of each size that fit below a level's nodes.

    :param demand: demand of one VM, by resource; 0 = it takes none of it.
    :param free: room that is left on each offered host, by resource.
    :raises virtco.exception.TopologyInvalid: no such level.
    """
    sizes = sorted(set(sizes))
    needed = {name: amount for name, amount in demand.items() if amount > 0}
    if not needed:
        raise exception.Invalid(field='flavor', value='none',
                                limit='an amount above 0 of some resource')
    nodes = [node for node in plane.walk()
             if plane.level(node.height()).name == level]
    if not nodes:
        raise exception.TopologyInvalid(
            field=f'plane {plane.name}: level', value=repr(level),
            limit='one of ' + (', '.join(plane.level_names()) or 'none'))
    known = set(plane.hosts())
    return wire.Capacity(
        plane=plane.name, level=level,
        domains=[_domain(node, needed, free, sizes) for node in nodes],
        hosts_without_leaf=sorted(
            host for host in free if host not in known))


def _domain(node: tree.Node, needed: Mapping[str, float],
            free: Mapping[str, Mapping[str, float]], sizes: Sequence[int]
            ) -> wire.Domain:
    """Count the VMs and groups that fit below a switch."""
    offered = [free[host] for host in node.all_hosts() if host in free]
    per_resource = {
        name: [int(min(max(0.0, left.get(name, 0.0)) // amount,
                       MOST_PER_HOST)) for left in offered]
        for name, amount in needed.items()}
    per_host = [min(found) for found in zip(*per_resource.values())]
    slots = sum(per_host)
    return wire.Domain(
        name=node.name, n_hosts=len(offered), slots=slots,
        most_per_host=max(per_host, default=0),
        limiting=min(per_resource, key=lambda name: sum(per_resource[name]))
        if offered else '',
        groups={str(size): slots // size for size in sizes})
