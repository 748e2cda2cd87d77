# SPDX-License-Identifier: Apache-2.0

"""Each operation of the API with its handler, and the rule of who may.

A handler is called as its operation, in snake case. The rules are those of
:mod:`virtco.api.policies`.
"""

import collections
from collections.abc import Callable
import functools
import inspect
import re
import types
from typing import Any

import falcon
from oslo_config import cfg

from virtco import app
from virtco import decoding
from virtco.api import call
from virtco.api import context
from virtco.api import health_report as health
from virtco.api import media
from virtco.api import policies
from virtco.api.handlers import coflow_routes
from virtco.api.handlers import group_routes
from virtco.api.handlers import host_routes
from virtco.api.handlers import measure_routes
from virtco.api.handlers import operation_routes
from virtco.api.handlers import placement_routes
from virtco.api.handlers import profile_routes
from virtco.api.handlers import project_routes
from virtco.api.handlers import setting_routes
from virtco.api.handlers import topology_routes
from virtco.wire import fields as field_wire
from virtco.wire import health as health_wire
from virtco.wire import operation as wire
from virtco.wire import operations

_PATH: decoding.Decoder[field_wire.Path] = decoding.Decoder(
    field_wire.Path, 'path')


#: Handlers by name: that of showCoflow is show_coflow.
_HANDLERS: dict[str, Callable[..., Any]] = {
    name: handler for module in (
        coflow_routes, group_routes, host_routes, measure_routes,
        operation_routes, placement_routes, profile_routes, project_routes,
        setting_routes, topology_routes)
    for name, handler in inspect.getmembers(module, inspect.isfunction)}


def _responder(operation: wire.Operation[Any]) -> Callable[..., None]:
    """Make the function that answers requests to an operation.

    A handler is called with a :class:`virtco.api.call.Call` and, by name, the
    parameters of the path, the query and the body.
    """
    decoding.Decoder(operation.answer)  # for msgspec.convert, see there
    handler = _HANDLERS[re.sub('([A-Z])', r'_\1', operation.name).lower()]
    rule = policies.first_rule(operation)
    decoders: list[decoding.Decoder[Any] | None] = [
        None if kind is None else decoding.Decoder(kind, named)
        for kind, named in ((operation.body, 'body'),
                            (operation.query, 'query'))]
    body, query = decoders

    def respond(rooms: app.App, authorizer: context.Authorizer,
                request: falcon.Request, response: falcon.Response,
                **parameters: str) -> None:
        """Decode the request, have it handled, and encode the answer."""
        asked = call.Call(rooms, authorizer, request)
        if rule is not None:
            asked.require(rule)
        _PATH.convert(parameters)
        given: dict[str, Any] = dict(parameters)
        if query is not None:
            given['query'] = query.convert(
                {**request.params, **parameters}, strict=False)
        if body is not None:
            given['body'] = media.decode(request, body)
        media.answer(response, handler(asked, **given), operation.status)
    return respond


#: Monitoring is served by processes without these rooms as well.
_RESPONDERS = [(one, _responder(one)) for one in operations.OPERATIONS
               if one not in (health_wire.SHOW, health_wire.METRICS)]


def add(app: 'falcon.App[Any, Any]', conf: cfg.ConfigOpts,
        rooms: app.App) -> None:
    """Add all operations of the API, its versions and its health."""
    authorizer = context.Authorizer(conf)
    resources: dict[str, types.SimpleNamespace] = collections.defaultdict(
        types.SimpleNamespace)
    for operation, respond in _RESPONDERS:
        setattr(resources[operation.path], f'on_{operation.method.lower()}',
                functools.partial(respond, rooms, authorizer))
    for path, resource in resources.items():
        # Names of applications and groups may have slashes.
        app.add_route(re.sub(r'{(name|group)}$', r'{\1:path}', path), resource)
    operation_routes.add_monitoring(app, health.Document(rooms))
