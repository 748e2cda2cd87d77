# SPDX-License-Identifier: Apache-2.0

"""Routes of projects: operators' settings for all coflows of a project."""

from virtco.api import media
from virtco.api.call import Call
from virtco.wire import project as wire


def list_projects(call: Call) -> wire.Projects:
    """List the projects for which something was set, or that owe."""
    return wire.Projects(call.rooms.objects.projects.find())


def show_project(call: Call, project_id: str) -> wire.Project:
    """Show class, weight and debt of a project."""
    return call.rooms.objects.projects.show(project_id)


def change_project(call: Call, project_id: str, body: wire.ProjectChange
                   ) -> wire.Project:
    """Set class or weight of a project, or forgive its debt."""
    return call.rooms.objects.projects.change(project_id, media.some(body))
