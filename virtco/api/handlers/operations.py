# SPDX-License-Identifier: Apache-2.0

"""``/v1/settings``, ``/v1/notifications``, ``/health`` and ``/metrics``."""

from typing import Any

import falcon

from virtco import app
from virtco.api import context
from virtco.api import media
from virtco.api.policies import operator as operator_rules
from virtco.api.policies import service as service_rules
from virtco.api.schemas import coflow as schema


class Settings:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._settings = rooms.know.settings
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        self._authorizer.require(request, operator_rules.SETTINGS)
        response.media = self._settings.get()

    def on_patch(self, request: falcon.Request,
                 response: falcon.Response) -> None:
        self._authorizer.require(request, operator_rules.SETTINGS)
        response.media = self._settings.change(
            media.read(request, schema.SETTINGS),
            self._authorizer.who(request))


class History:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._history = rooms.know.history
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        self._authorizer.require(request, operator_rules.SETTINGS)
        response.media = {'changes': self._history.list()}


class Notifications:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._follow = rooms.follow
        self._authorizer = authorizer

    def on_post(self, request: falcon.Request,
                response: falcon.Response) -> None:
        self._authorizer.require(request, service_rules.NOTIFY)
        body = media.read(request, schema.NOTIFICATION)
        changed = self._follow.notified(body['event_type'],
                                        body['payload'],
                                        body.get('timestamp'),
                                        body.get('publisher_id'))
        response.status = falcon.HTTP_202
        response.media = {'changed': changed}


class Health:
    def __init__(self, found: Any):
        self._found = found

    def on_get(self, _request: falcon.Request,
               response: falcon.Response) -> None:
        healthy, response.media = self._found.health()
        if not healthy:
            response.status = falcon.HTTP_503


class Metrics:
    def __init__(self, found: Any):
        self._found = found

    def on_get(self, _request: falcon.Request,
               response: falcon.Response) -> None:
        response.content_type = 'text/plain; version=0.0.4; charset=utf-8'
        self._found.gauge()
        response.data = self._found.metrics.render()
