# SPDX-License-Identifier: Apache-2.0

"""Routes of projects: operators' settings for all coflows of a project."""

from virtco.api import media
from virtco.api.call import Call
from virtco.wire import project as wire


def find(call: Call) -> wire.Projects:
    return wire.Projects(call.rooms.objects.projects.find())


def show(call: Call, project_id: str) -> wire.Project:
    return call.rooms.objects.projects.show(project_id)


def change(call: Call, project_id: str, body: wire.ProjectChange
           ) -> wire.Project:
    return call.rooms.objects.projects.change(project_id, media.some(body))
