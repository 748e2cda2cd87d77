# SPDX-License-Identifier: Apache-2.0

"""``/v1/projects``: what operators set for all coflows of a project."""

import falcon

from virtco import app
from virtco.api import context
from virtco.api import media
from virtco.api.policies import coflow as rules
from virtco.api.schemas import coflow as schema
from virtco.api.schemas import common


class Projects:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._projects = rooms.know.projects
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        self._authorizer.require(request, rules.PRIORITIZE)
        response.media = {'projects': self._projects.find()}


class Project:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._projects = rooms.know.projects
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response,
               project_id: str) -> None:
        self._authorizer.require(request, rules.PRIORITIZE)
        response.media = self._projects.show(project_id)

    def on_patch(self, request: falcon.Request, response: falcon.Response,
                 project_id: str) -> None:
        self._authorizer.require(request, rules.PRIORITIZE)
        media.check('project_id', project_id, common.PROJECT)
        response.media = self._projects.change(
            project_id, media.read(request, schema.CHANGE_PROJECT))
