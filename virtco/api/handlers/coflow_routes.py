# SPDX-License-Identifier: Apache-2.0

"""Coflows as tenants and operators see and change them, and their events."""

import msgspec

from virtco import exception
from virtco.api import media
from virtco.api import policies
from virtco.api import views
from virtco.api.call import Call
from virtco.objects import reasons
from virtco.wire import coflow_bodies as wire
from virtco.wire import fields
from virtco.wire import host as host_wire

HINT_EVENTS = ('hint_ignored', 'index_taken', 'matrix_differs', 'rows_left',
               'self_flows', 'app_learned', 'app_unknown', 'wish_refused')


def list_coflows(call: Call, query: wire.CoflowQuery) -> wire.Coflows:
    """List the coflows that the caller may see."""
    project_id = call.project(query, policies.LIST_COFLOWS)
    decide = call.rooms.decide
    waiting = decide.waiting()
    sees_all = call.may(policies.HOSTS)
    return wire.Coflows([
        _seen(sees_all, views.waiting(coflow, waiting.get(coflow.id)))
        for coflow in call.rooms.objects.coflows.find(
            decide.schedule, project_id, query.state, query.server,
            query.limit, query.marker, query.retired)])


def register_coflow(call: Call, body: wire.Registration) -> wire.Coflow:
    """Register a matrix; its id is the hint virtco:tm_ref."""
    project_id = call.own_project(body.project_id, policies.REGISTER)
    return call.rooms.objects.coflows.register(project_id, body.name, body.tm)


def show_coflow(call: Call, coflow_id: str) -> wire.Coflow:
    """Show a coflow, the VMs of its group and its events."""
    _require(call, policies.SHOW_COFLOW, coflow_id)
    return _shown(call, coflow_id)


def change_coflow(call: Call, coflow_id: str, body: wire.CoflowChange
                  ) -> wire.Coflow:
    """Change a coflow; its class and weight are up to operators."""
    values = media.some(body)
    if 'state' in values:
        _require(call, policies.END_COFLOW, coflow_id)
    if values.keys() & {'priority_class', 'weight'}:
        _require(call, policies.PRIORITIZE, coflow_id)
    call.rooms.objects.coflows.change(coflow_id, values)
    return _shown(call, coflow_id)


def delete_coflow(call: Call, coflow_id: str) -> None:
    """Forget a registered matrix, or give up a coflow."""
    _require(call, policies.DELETE_COFLOW, coflow_id)
    call.rooms.objects.coflows.delete(coflow_id)


def announce_coflow(call: Call, group: str, query: fields.ProjectQuery,
                    body: wire.Announcement) -> wire.Coflows:
    """Announce coflows over a group, and show them.

    :raises virtco.exception.Conflict: for another announcement of the same
        name at the same time.
    """
    objects = call.rooms.objects
    made = objects.announcements.announce(
        call.project(query, policies.ANNOUNCE), group, body.name, body.tm,
        body.expires_s)
    try:
        shown = [objects.coflows.show(coflow_id, call.rooms.decide.schedule)
                 for coflow_id in made]
    except exception.NotFound as error:
        # A later announcement of the same names replaced this one.
        raise exception.Conflict(
            what='The announced coflow', id=repr(body.name)) from error
    sees_all = call.may(policies.HOSTS)
    return wire.Coflows([_seen(sees_all, one) for one in shown])


def list_events(call: Call, query: fields.ProjectQuery) -> wire.Events:
    """List events; tenants see those about their hints."""
    found = call.rooms.objects.coflows.events(
        call.project(query, policies.LIST_COFLOWS))
    return wire.Events(found if call.may(policies.HOSTS)
                       else _about_hints(found))


def _require(call: Call, rule: policies.Rule, coflow_id: str) -> None:
    call.require(rule, project_id=call.rooms.objects.coflows.project_of(
        coflow_id))


def _shown(call: Call, coflow_id: str) -> wire.Coflow:
    decide = call.rooms.decide
    found = decide.waiting().get(coflow_id)
    shown = call.rooms.objects.coflows.show(coflow_id, decide.schedule)
    return _seen(call.may(policies.HOSTS), msgspec.structs.replace(
        views.waiting(shown, found), classes=_classes(call, shown),
        waits_for=found.waits_for if found is not None else ()))


def _classes(call: Call, coflow: wire.Coflow) -> list[wire.HostClass]:
    """List the coflow's class on each of its hosts that has one."""
    rooms, now_s = call.rooms, call.rooms.clock()
    seen = (rooms.state.live.view(host, now_s)
            for host in dict.fromkeys(coflow.hosts) if host is not None)
    return [wire.HostClass(host=one.host, **{
        name: getattr(found, name)
        for name in host_wire.ClassRates.__struct_fields__})
        for one in seen if one is not None
        for found in views.classes(
            one, rooms.decide.publisher.get(one.host))
        if found.coflow_id == coflow.id]


def _seen(sees_all: bool, coflow: wire.Coflow) -> wire.Coflow:
    """Hide hypervisors, and names of coflows of others, from tenants."""
    if sees_all:
        return coflow
    return msgspec.structs.replace(
        coflow, hosts=[], plan_notes='', bottleneck=None,
        planned_bottleneck=None, classes=coflow.classes and [],
        waits_for=coflow.waits_for and (),
        members=coflow.members and [
            msgspec.structs.replace(member, host=None, planned_host=None)
            for member in coflow.members],
        events=coflow.events and _about_hints(coflow.events))


def _about_hints(events: list[wire.Event]) -> list[wire.Event]:
    """Leave out the others, which name hypervisors.

    Why there was no plan may name a database or its host.
    """
    return [event if event.kind in HINT_EVENTS
            else msgspec.structs.replace(event, detail=reasons.NO_PLAN)
            for event in events
            if event.kind in HINT_EVENTS or event.kind == reasons.NEUTRAL]
