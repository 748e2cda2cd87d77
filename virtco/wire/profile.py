# SPDX-License-Identifier: Apache-2.0

"""Bytes per pair of VMs and hour: of groups, and of applications."""

from typing import Annotated
from typing import Any

import msgspec

from virtco.wire import fields
from virtco.wire import operation


class Group(operation.Response, frozen=True, kw_only=True):
    """A group whose bytes were counted.

    :ivar group_id: id of the group.
    :ivar project_id: project of the group.
    :ivar group_name: name of the group.
    :ivar app: application that the hint names.
    :ivar n_vms: members of the group.
    :ivar n_hours: hours in which something was counted.
    """

    group_id: str
    project_id: str
    group_name: str
    app: str | None
    n_vms: int
    n_hours: int


class Counted(Group, frozen=True, kw_only=True):
    """A group whose bytes were counted, and when.

    :ivar first_hour: start of the first hour, in seconds since the epoch.
    :ivar last_hour: start of the last hour, in seconds since the epoch.
    """

    first_hour: float
    last_hour: float


class Profiles(operation.Response, frozen=True):
    """A list of traffic profiles.

    :ivar profiles: one for each group that was counted.
    """

    profiles: list[Counted]


class Predicted(operation.Response, frozen=True, kw_only=True):
    """Bytes of the next hour.

    :ivar size_bytes: expected bytes.
    :ivar method: method that predicted past hours best.
    :ivar error_fraction: error of the method over past hours; null: not known.
    :ivar last_hour_weight: weight of the last hour; the hour of the day has
        the rest.
    """

    size_bytes: float
    method: str
    error_fraction: float | None
    last_hour_weight: float


class Hour(operation.Response, frozen=True):
    """Traffic of one hour.

    :ivar hour: its start, in seconds since the epoch.
    :ivar size_bytes: bytes that were sent in it.
    """

    hour: float
    size_bytes: float


class ProfiledPair(operation.Response, frozen=True, kw_only=True):
    """Bytes from one VM of a group to another.

    :ivar src: row of the sender.
    :ivar dst: row of the receiver.
    :ivar size_bytes: sum over the hours.
    :ivar is_seen: whether the bytes of the pair could be counted.
    :ivar hours: hours in which something was sent.
    :ivar next_hour: expected bytes; null for all but the largest pairs.
    """

    src: int
    dst: int
    size_bytes: float
    is_seen: bool
    hours: list[Hour]
    next_hour: Predicted | None


class Profile(Group, frozen=True, kw_only=True):
    """Bytes that the pairs of a group sent, and a prediction of the next hour.

    :ivar size_bytes: sum over pairs and hours.
    :ivar tm: matrix as for ``virtco:tm``; null: no pattern is recognised.
    :ivar pattern: recognised pattern.
    :ivar next_hour: expected bytes of all pairs together.
    :ivar pairs: in the order of their rows.
    """

    size_bytes: float
    tm: list[Any] | dict[str, Any] | None
    pattern: str | None
    next_hour: Predicted
    pairs: list[ProfiledPair]


class Launched(operation.Response, frozen=True, kw_only=True):
    """An application that was launched.

    :ivar project_id: project of the application.
    :ivar app: name of the application.
    :ivar n_launches: launches whose bytes were counted.
    :ivar last_hour: start of the last hour, in seconds since the epoch.
    """

    project_id: str
    app: str
    n_launches: int
    last_hour: float


class Apps(operation.Response, frozen=True):
    """A list of applications.

    :ivar apps: each application of the projects that are meant.
    """

    apps: list[Launched]


class Launch(operation.Response, frozen=True):
    """Traffic of one launch of an application.

    :ivar n_vms: VMs of the launch.
    :ivar size_bytes: bytes that they sent each other.
    """

    n_vms: int
    size_bytes: float


class App(operation.Response, frozen=True, kw_only=True):
    """The matrix that the next launch of an application would get.

    :ivar project_id: project of the application.
    :ivar app: name of the application.
    :ivar n_vms: VMs of the next launch.
    :ivar launches: past launches, the newest first.
    :ivar tm: matrix as for ``virtco:tm``; null: none would be used.
    :ivar size_bytes: bytes of the matrix.
    :ivar how: the pattern, or why there is none.
    """

    project_id: str
    app: str
    n_vms: int
    launches: list[Launch]
    tm: fields.Matrix | None
    size_bytes: float | None
    how: str


class AppQuery(fields.ProjectQuery, frozen=True, kw_only=True):
    """Selection of an application by its project.

    :ivar project_id: project of the application; the caller's own where it
        is not given.
    """


class LaunchQuery(AppQuery, frozen=True, kw_only=True):
    """Launch for which an application's matrix is wanted.

    :ivar n_vms: VMs of the next launch; as many as the last one had where it
        is not given.
    """

    n_vms: Annotated[int, msgspec.Meta(ge=2, le=100_000)] | None = None


LIST = operation.Operation(
    'listProfiles', 'GET', '/v1/profiles', Profiles,
    'List the groups whose bytes were counted.', query=fields.ProjectQuery)
SHOW = operation.Operation(
    'showProfile', 'GET', '/v1/profiles/{group}', Profile,
    'Show what the pairs of a group sent; of several of a name the latest.',
    query=fields.ProjectQuery)
LIST_APPS = operation.Operation(
    'listApps', 'GET', '/v1/apps', Apps,
    'List the applications that were launched.', query=fields.ProjectQuery)
SHOW_APP = operation.Operation(
    'showApp', 'GET', '/v1/apps/{name}', App,
    'Show what the next launch of an application would get.',
    query=LaunchQuery)
FORGET_APP = operation.Operation(
    'forgetApp', 'DELETE', '/v1/apps/{name}', operation.NOTHING,
    'Forget what was counted of an application.', query=AppQuery, status=204,
    conflict=operation.OVERTAKEN)
