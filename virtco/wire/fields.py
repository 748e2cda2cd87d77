# SPDX-License-Identifier: Apache-2.0

"""Types of single fields, which several documents share."""

from typing import Annotated
from typing import Any

import msgspec

from virtco.wire import operation

HOST_PATTERN = r'^[A-Za-z0-9._:@-]+\Z'

Text = Annotated[str, msgspec.Meta(max_length=255)]
LongText = Annotated[str, msgspec.Meta(max_length=4096)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Id = Annotated[str, msgspec.Meta(
    min_length=1, max_length=36, pattern=r'^[A-Za-z0-9._:-]+\Z')]
Host = Annotated[str, msgspec.Meta(
    min_length=1, max_length=255, pattern=HOST_PATTERN)]
Address = Annotated[str, msgspec.Meta(
    min_length=2, max_length=45, pattern=r'^[0-9A-Fa-f.:]+\Z')]
Mac = Annotated[str, msgspec.Meta(pattern=r'^[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z')]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Bytes = Annotated[float, msgspec.Meta(ge=0, le=1e21)]
#: Rate from a byte per second on, the least that a policy may tell.
LinkRate = Annotated[float, msgspec.Meta(ge=8, le=1e15)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2 ** 31 - 1)]
Generation = Annotated[int, msgspec.Meta(ge=0, le=2 ** 62)]

#: A matrix in any form of the hint; virtco.hint_matrix reads it.
Matrix = str | list[Any] | dict[str, Any]
Budget = Annotated[float, msgspec.Meta(ge=0.001, le=60)]
Project = Annotated[str, msgspec.Meta(
    min_length=1, max_length=255, pattern=HOST_PATTERN)]
#: Databases take no NUL.
Asked = Annotated[str, msgspec.Meta(
    min_length=1, max_length=255, pattern=r'^[^\x00]+\Z')]
PriorityClass = Annotated[int, msgspec.Meta(ge=-1000, le=1000)]
Weight = Annotated[float, msgspec.Meta(ge=1e-6, le=1e6)]


# Untracked by the garbage collector: none of thousands of offers is ever part
# of a cycle.
class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True,
                gc=False):
    """Resources that a VM takes, or that a host has left.

    :ivar vcpus: virtual processors, as a number.
    :ivar memory_mb: memory in MiB.
    :ivar disk_gb: disk in GiB.
    """

    vcpus: Amount
    memory_mb: Amount
    disk_gb: Amount


class Pair(operation.Response, frozen=True):
    """An ordered pair of hosts.

    :ivar src: host that sends.
    :ivar dst: host that receives.
    """

    src: str
    dst: str


class ProjectQuery(operation.Query, frozen=True, kw_only=True):
    """Selection by project.

    :ivar project_id: project of the objects; where it is not given, the
        caller's own, or for an operator all projects.
    """

    project_id: Asked | None = None


class Path(operation.Query, frozen=True, kw_only=True):
    """Parameters in the paths of all operations.

    :ivar check_id: id of the check.
    :ivar coflow_id: id of the coflow or registered matrix.
    :ivar group: id or name of the group.
    :ivar host: name of the host.
    :ivar instance_uuid: id of the instance.
    :ivar name: name of the application, as in the hint ``virtco:app``.
    :ivar plane: name of the plane.
    :ivar probe_id: id of the ordered measurements.
    :ivar project_id: id of the project.
    """

    check_id: Asked | None = None
    coflow_id: Asked | None = None
    group: Asked | None = None
    host: Host | None = None
    instance_uuid: Id | None = None
    name: Asked | None = None
    plane: Host | None = None
    probe_id: Asked | None = None
    project_id: Project | None = None
