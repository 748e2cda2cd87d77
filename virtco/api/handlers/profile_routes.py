# SPDX-License-Identifier: Apache-2.0

"""Routes of profiles: bytes by pair and hour, of groups and applications."""

from virtco.api import policies
from virtco.api.call import Call
from virtco.wire import fields
from virtco.wire import profile as wire


def find(call: Call, query: fields.ProjectQuery) -> wire.Profiles:
    return wire.Profiles(call.rooms.objects.profiles.groups(
        call.project(query, policies.PROFILES)))


def show(call: Call, group: str, query: fields.ProjectQuery) -> wire.Profile:
    return call.rooms.objects.profiles.show(
        call.project(query, policies.PROFILES), group)


def find_apps(call: Call, query: fields.ProjectQuery) -> wire.Apps:
    """List applications with the number and the last hour of launches."""
    return wire.Apps(call.rooms.objects.profiles.apps(
        call.project(query, policies.PROFILES)))


def show_app(call: Call, name: str, query: wire.AppQuery) -> wire.App:
    """Show the matrix that an application's next launch would get."""
    return call.rooms.objects.profiles.app(
        call.own_project(query.project_id, policies.PROFILES), name,
        query.n_vms)


def forget_app(call: Call, name: str, query: fields.ProjectQuery) -> None:
    call.rooms.objects.profiles.forget_app(
        call.own_project(query.project_id, policies.FORGET_APP), name)
