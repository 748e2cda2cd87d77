# SPDX-License-Identifier: Apache-2.0

"""``/v1/coflows``, ``/v1/groups/{group}/coflows`` and ``/v1/events``."""

from typing import Any

import falcon

from virtco import app
from virtco import exception
from virtco.api import context
from virtco.api import media
from virtco.api import views
from virtco.api.policies import coflow as rules
from virtco.api.policies import operator as operator_rules
from virtco.api.schemas import coflow as schema
from virtco.model import states

HINT_EVENTS = ('hint_ignored', 'index_taken', 'matrix_differs', 'rows_left',
               'app_learned', 'app_unknown', 'wish_refused')


class Coflows:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._coflows = rooms.know.coflows
        self._decide = rooms.decide
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        project_id = project(request, self._authorizer, rules.LIST)
        state = request.get_param('state')
        if state is not None and state not in list(states.CoflowState):
            raise exception.Invalid(
                field='state', value=state,
                limit='one of ' + ', '.join(states.CoflowState))
        waiting = self._decide.waiting()
        response.media = {'coflows': [
            _seen(self._authorizer, request,
                  coflow | views.waiting(waiting.get(coflow['id'])))
            for coflow in self._coflows.find(
                self._decide.schedule, project_id, state)]}

    def on_post(self, request: falcon.Request,
                response: falcon.Response) -> None:
        body = media.read(request, schema.REGISTER)
        project_id = (body.get('project_id')
                      or self._authorizer.project(request) or '')
        self._authorizer.require(request, rules.REGISTER,
                                 {'project_id': project_id})
        if not project_id:
            raise exception.Invalid(field='project_id', value=None,
                                    limit='it is required')
        response.status = falcon.HTTP_201
        response.media = self._coflows.register(
            project_id, body['name'], body['tm'])


class Coflow:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._coflows = rooms.know.coflows
        self._decide = rooms.decide
        self._authorizer = authorizer

    def _require(self, request: falcon.Request, rule: str,
                 coflow_id: str) -> None:
        self._authorizer.require(request, rule, {
            'project_id': self._coflows.project_of(coflow_id)})

    def _shown(self, request: falcon.Request, coflow_id: str
               ) -> dict[str, Any]:
        shown = self._coflows.show(coflow_id, self._decide.schedule)
        found = self._decide.waiting().get(coflow_id)
        shown |= views.waiting(found)
        shown['waits_for'] = found.waits_for if found is not None else ()
        return _seen(self._authorizer, request, shown)

    def on_get(self, request: falcon.Request, response: falcon.Response,
               coflow_id: str) -> None:
        self._require(request, rules.SHOW, coflow_id)
        response.media = self._shown(request, coflow_id)

    def on_patch(self, request: falcon.Request, response: falcon.Response,
                 coflow_id: str) -> None:
        body = media.read(request, schema.CHANGE)
        if 'state' in body:
            self._require(request, rules.END, coflow_id)
        if body.keys() & {'priority_class', 'weight'}:
            self._require(request, rules.PRIORITIZE, coflow_id)
        self._coflows.change(coflow_id, body)
        response.media = self._shown(request, coflow_id)

    def on_delete(self, request: falcon.Request, response: falcon.Response,
                  coflow_id: str) -> None:
        self._require(request, rules.DELETE, coflow_id)
        self._coflows.delete(coflow_id)
        response.status = falcon.HTTP_204


class Announcements:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._announcements = rooms.know.announcements
        self._coflows = rooms.know.coflows
        self._decide = rooms.decide
        self._authorizer = authorizer

    def on_post(self, request: falcon.Request, response: falcon.Response,
                group: str) -> None:
        """Coflows over the VMs of a group that runs."""
        body = media.read(request, schema.ANNOUNCE)
        made = self._announcements.announce(
            project(request, self._authorizer, rules.ANNOUNCE), group,
            body['name'], body['tm'],
            body.get('expires_s', schema.EXPIRES_S))
        try:
            shown = [self._coflows.show(coflow_id, self._decide.schedule)
                     for coflow_id in made]
        except exception.NotFound as error:
            # Of the same names: the later one holds.
            raise exception.Conflict(
                what='The announced coflow', id=repr(body['name'])) from error
        response.status = falcon.HTTP_201
        response.media = {'coflows': [
            _seen(self._authorizer, request, one) for one in shown]}


class Events:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._coflows = rooms.know.coflows
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        events = self._coflows.events(project(
            request, self._authorizer, rules.LIST))
        if not self._authorizer.may(request, operator_rules.HOSTS):
            events = _about_hints(events)
        response.media = {'events': events}


def project(request: falcon.Request, authorizer: context.Authorizer,
            rule: str) -> str | None:
    """The project asked about; all of them only for operators.

    :raises virtco.exception.Forbidden: by the rule.
    """
    project_id = request.get_param('project_id')
    if project_id is None and not authorizer.may(
            request, rule, {'project_id': ''}):
        project_id = authorizer.project(request)
    authorizer.require(request, rule, {'project_id': project_id or ''})
    return project_id


def _seen(authorizer: context.Authorizer, request: falcon.Request,
          coflow: dict[str, Any]) -> dict[str, Any]:
    """What the caller may know: hypervisors are the operators' business."""
    if authorizer.may(request, operator_rules.HOSTS):
        return coflow
    seen = coflow | {'hosts': [], 'why': '', 'bottleneck': None,
                     'planned_bottleneck': None}
    if 'waits_for' in coflow:
        # Coflows of others have no names.
        seen['waits_for'] = []
    if 'members' in coflow:
        seen['members'] = [member | {'host': None, 'planned_host': None}
                           for member in coflow['members']]
    if 'events' in coflow:
        seen['events'] = _about_hints(coflow['events'])
    return seen


def _about_hints(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The others name hypervisors."""
    return [event for event in events if event['kind'] in HINT_EVENTS]
