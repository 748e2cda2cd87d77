# SPDX-License-Identifier: Apache-2.0

"""Routes of hypervisors: list, drain and forget; policies for edge modules."""

import msgspec

from virtco import exception
from virtco.api import views
from virtco.api.call import Call
from virtco.wire import edge_policy
from virtco.wire import frames
from virtco.wire import host as wire
from virtco.wire import stream_address as distributor_wire


def list_hosts(call: Call) -> wire.Hosts:
    """List the hosts that report or were measured."""
    rooms, now_s = call.rooms, call.rooms.clock()
    return wire.Hosts([
        views.host(seen, rooms.decide.publisher.get(seen.host),
                   rooms.objects.drains.show(seen.host), now_s)
        for seen in rooms.state.live.views(now_s)])


def show_host(call: Call, host: str) -> wire.Host:
    """Show a host with the classes of its newest policy.

    :raises virtco.exception.NotFound:
    """
    rooms, now_s = call.rooms, call.rooms.clock()
    found = rooms.state.live.view(host, now_s)
    if found is None:
        raise exception.NotFound(what='Host', id=host)
    told = rooms.decide.publisher.get(host)
    return msgspec.structs.replace(
        views.host(found, told, rooms.objects.drains.show(host), now_s),
        classes=views.classes(found, told))


def forget_host(call: Call, host: str) -> None:
    """Delete all that is known of a host without VMs of groups."""
    call.rooms.objects.drains.forget(host, call.who())


def drain_host(call: Call, host: str, body: wire.Drain) -> wire.Drained:
    """Plan no new group for a host."""
    drains = call.rooms.objects.drains
    drains.drain(host, body.reason, call.who())
    return drains.show(host)


def undrain_host(call: Call, host: str) -> None:
    """Use a drained host again."""
    call.rooms.objects.drains.undrain(host, call.who())


def show_distributor(call: Call, query: distributor_wire.DistributorQuery
                     ) -> distributor_wire.Distributor:
    """Return addresses of stream servers, and the ticket of a host.

    :raises virtco.exception.NotFound: without such a server.
    """
    distribute = call.rooms.distribute
    servers = distribute.servers()
    if not servers:
        raise exception.NotFound(what='Service', id='distributor')
    found = distributor_wire.Distributor(version=frames.VERSION,
                                         servers=servers)
    if query.host is not None and (
            ticket := distribute.ticket_of(query.host)):
        call.require_host(query.host)
        found = msgspec.structs.replace(found, ticket=ticket)
    return found


def show_policy(call: Call, host: str) -> edge_policy.EdgePolicy:
    """Return the newest policy of a host.

    :raises virtco.exception.NotFound:
    """
    call.require_host(host)
    found = call.rooms.policy(host)
    if found is None:
        raise exception.NotFound(what='Policy of host', id=host)
    return found
