# SPDX-License-Identifier: Apache-2.0

"""``/v1/profiles`` and ``/v1/apps``: what tenants sent, by pair and hour."""

import falcon

from virtco import app
from virtco import exception
from virtco.api import context
from virtco.api.handlers import coflows
from virtco.api.policies import profile as rules

MOST_VMS = 100_000


class Profiles:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._profiles = rooms.know.profiles
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response
               ) -> None:
        response.media = {'profiles': self._profiles.groups(
            coflows.project(request, self._authorizer, rules.SHOW))}


class Profile(Profiles):
    def on_get(self, request: falcon.Request, response: falcon.Response,
               group: str = '') -> None:
        """By id or name; of several groups of a name the latest."""
        response.media = self._profiles.show(
            coflows.project(request, self._authorizer, rules.SHOW), group)


class Apps(Profiles):
    def on_get(self, request: falcon.Request, response: falcon.Response
               ) -> None:
        response.media = {'apps': self._profiles.apps(
            coflows.project(request, self._authorizer, rules.SHOW))}


class App(Profiles):
    def on_get(self, request: falcon.Request, response: falcon.Response,
               name: str = '') -> None:
        """What its next launch with ``n_vms`` servers would get."""
        n_vms = request.get_param_as_int('n_vms', min_value=2,
                                         max_value=MOST_VMS)
        response.media = self._profiles.app(
            self._own(request, rules.SHOW), name, n_vms)

    def on_delete(self, request: falcon.Request, response: falcon.Response,
                  name: str) -> None:
        self._profiles.forget_app(self._own(request, rules.FORGET), name)
        response.status = falcon.HTTP_204

    def _own(self, request: falcon.Request, rule: str) -> str:
        """The project that is meant, the caller's where none is named."""
        project_id = (request.get_param('project_id')
                      or self._authorizer.project(request) or '')
        self._authorizer.require(request, rule, {'project_id': project_id})
        if not project_id:
            raise exception.Invalid(field='project_id', value=None,
                                    limit='it is required')
        return project_id
