# SPDX-License-Identifier: Apache-2.0

"""Routes of the topology, its imports, and the room below its switches."""

import msgspec

from virtco import exception
from virtco.api import views
from virtco.api.call import Call
from virtco.topology import capacity as capacities
from virtco.topology import tree
from virtco.topology.formats import plain
from virtco.wire import fields
from virtco.wire import topology as wire

#: Sizes of groups where the query names none.
SIZES = (2, 4, 8, 16, 32)


def show_topology(call: Call) -> wire.Topology:
    """Show the topology with the loads of its uplinks, in bit/s."""
    rooms = call.rooms
    known, generation = rooms.objects.topology.numbered()
    live, now_s = rooms.state.live, rooms.clock()
    return wire.Topology(
        planes=plain.dump(known), generation=generation,
        hosts_without_leaf=_hosts_without_leaf(call, known),
        uplinks=views.uplinks(
            live.wire_tree(now_s), live.wire_tree(now_s, nominal=True),
            [(seen, rooms.decide.publisher.get(seen.host))
             for seen in live.views(now_s)]))


def import_topology(call: Call, body: wire.Import) -> wire.Imported:
    """Replace planes and record who did it, or only list the changes."""
    known = call.rooms.objects.topology
    known.refresh()
    planes = plain.load(body.planes).planes
    changes = known.would_change(planes)
    if not body.dry_run:
        before = known.generation()
        known.replace(planes, body.generation)
        if changes:
            call.rooms.objects.history.add(
                call.who(),
                'topology ' + ', '.join(plane.name for plane in planes),
                f'generation {before}',
                f'generation {known.generation()}, {len(changes)} changes')
    return wire.Imported(
        changes=changes, applied=not body.dry_run,
        generation=known.generation(),
        hosts_without_leaf=_hosts_without_leaf(
            call, known.get().replaced(planes)))


def _hosts_without_leaf(call: Call, topology: tree.Topology
                        ) -> dict[str, list[str]]:
    """List, by plane, hosts with an edge module that are not in it."""
    hosts = [seen.host
             for seen in call.rooms.state.live.views(call.rooms.clock())]
    found = {}
    for plane in topology.planes:
        known = set(plane.hosts())
        found[plane.name] = [host for host in hosts if host not in known]
    return found


def delete_plane(call: Call, plane: str) -> None:
    """Delete a plane, and record who did it."""
    known = call.rooms.objects.topology
    before = known.generation()
    known.delete(plane)
    call.rooms.objects.history.add(
        call.who(), f'topology {plane}', f'generation {before}', 'deleted')


def count_capacity(call: Call, body: wire.CapacityRequest) -> wire.Capacity:
    """Count groups by each host's room without the bookings."""
    plane = call.rooms.objects.topology.get().plane(body.plane)
    if plane is None:
        raise exception.NotFound(what='Plane', id=body.plane)
    free = call.rooms.place.free_after_bookings({
        one.host: msgspec.structs.astuple(one.free) for one in body.hosts})
    return capacities.count(
        plane, body.level, msgspec.structs.asdict(body.flavor),
        {host: msgspec.structs.asdict(fields.Resources(*left))
         for host, left in free.items()},
        body.vms or SIZES)
