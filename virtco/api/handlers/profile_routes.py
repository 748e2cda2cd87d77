# SPDX-License-Identifier: Apache-2.0

"""Routes of profiles: bytes by pair and hour, of groups and applications."""

from virtco.api import policies
from virtco.api.call import Call
from virtco.wire import fields
from virtco.wire import profile as wire


def list_profiles(call: Call, query: fields.ProjectQuery) -> wire.Profiles:
    """List the groups whose bytes were counted."""
    return wire.Profiles(call.rooms.objects.profiles.groups(
        call.project(query, policies.PROFILES)))


def show_profile(call: Call, group: str, query: fields.ProjectQuery
                 ) -> wire.Profile:
    """Show the bytes that the pairs of a group sent."""
    return call.rooms.objects.profiles.show(
        call.project(query, policies.PROFILES), group)


def list_apps(call: Call, query: fields.ProjectQuery) -> wire.Apps:
    """List applications with the number and the last hour of launches."""
    return wire.Apps(call.rooms.objects.profiles.apps(
        call.project(query, policies.PROFILES)))


def show_app(call: Call, name: str, query: wire.LaunchQuery) -> wire.App:
    """Show the matrix that an application's next launch would get."""
    return call.rooms.objects.profiles.app(
        call.own_project(query.project_id, policies.PROFILES), name,
        query.n_vms)


def forget_app(call: Call, name: str, query: wire.AppQuery) -> None:
    """Forget the counted bytes of an application."""
    call.rooms.objects.profiles.forget_app(
        call.own_project(query.project_id, policies.FORGET_APP), name)
