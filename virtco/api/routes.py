# SPDX-License-Identifier: Apache-2.0

"""Each operation of the API with its handler, and the rule of who may."""

from collections.abc import Callable
import dataclasses
import types
from typing import Any
from typing import TypeVar

import falcon
from oslo_config import cfg

from virtco import app
from virtco import decoding
from virtco.api import call
from virtco.api import context
from virtco.api import health_report as health
from virtco.api import media
from virtco.api import policies
from virtco.api import versions
from virtco.api.handlers import coflow_routes as coflows
from virtco.api.handlers import group_routes as groups
from virtco.api.handlers import host_routes as hosts
from virtco.api.handlers import measure_routes as measure
from virtco.api.handlers import operation_routes as operations
from virtco.api.handlers import placement_routes as placements
from virtco.api.handlers import profile_routes as profiles
from virtco.api.handlers import project_routes as projects
from virtco.api.handlers import setting_routes as settings
from virtco.api.handlers import topology_routes as topology
from virtco.wire import api_versions as version_wire
from virtco.wire import check as check_wire
from virtco.wire import coflow_bodies as coflow_wire
from virtco.wire import fields as field_wire
from virtco.wire import group as group_wire
from virtco.wire import health as health_wire
from virtco.wire import host as host_wire
from virtco.wire import notification as notification_wire
from virtco.wire import operation as wire
from virtco.wire import placement as placement_wire
from virtco.wire import plan as plan_wire
from virtco.wire import probe as probe_wire
from virtco.wire import profile as profile_wire
from virtco.wire import project as project_wire
from virtco.wire import rate as rate_wire
from virtco.wire import setting as setting_wire
from virtco.wire import stream_address as distributor_wire
from virtco.wire import topology as topology_wire

_A = TypeVar('_A')
_PATH: decoding.Decoder[field_wire.Path] = decoding.Decoder(
    field_wire.Path, 'path')


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """An operation with the function that answers it.

    :ivar handler: is called with a :class:`virtco.api.call.Call` and, by
        name, the parameters of the path, the query and the body.
    :ivar rule: rule that the caller has to keep; None: the handler asks.
    """

    operation: wire.Operation[Any]
    handler: Callable[..., Any]
    rule: policies.Rule | None
    body: decoding.Decoder[Any] | None
    query: decoding.Decoder[wire.Query] | None


def _route(operation: wire.Operation[_A], handler: Callable[..., _A],
           rule: policies.Rule | None = None) -> Route:
    decoding.Decoder(operation.answer)  # for msgspec.convert, see there
    return Route(
        operation, handler, rule,
        None if operation.body is None else decoding.Decoder(operation.body),
        None if operation.query is None else decoding.Decoder(
            operation.query, 'query'))


ROUTES = [
    _route(placement_wire.PLACE, placements.place, policies.PLACE),
    _route(placement_wire.SHOW, placements.show),
    _route(placement_wire.RELEASE, placements.release, policies.PLACE),
    _route(placement_wire.EXPLAIN, placements.explain, policies.PLANS),
    _route(plan_wire.PLAN, placements.plan, policies.PLANS),
    _route(plan_wire.MOVES, placements.moves, policies.PLANS),
    _route(plan_wire.LOOK, placements.find_moves, policies.PLANS),
    _route(coflow_wire.LIST, coflows.find),
    _route(coflow_wire.REGISTER, coflows.register),
    _route(coflow_wire.SHOW, coflows.show),
    _route(coflow_wire.CHANGE, coflows.change),
    _route(coflow_wire.DELETE, coflows.delete),
    _route(coflow_wire.ANNOUNCE, coflows.announce),
    _route(coflow_wire.EVENTS, coflows.events),
    _route(group_wire.TREE, groups.tree),
    _route(group_wire.MAPPING, groups.mapping),
    _route(group_wire.CLUSTERS, groups.clusters),
    _route(project_wire.LIST, projects.find, policies.PRIORITIZE),
    _route(project_wire.SHOW, projects.show, policies.PRIORITIZE),
    _route(project_wire.CHANGE, projects.change, policies.PRIORITIZE),
    _route(profile_wire.LIST, profiles.find),
    _route(profile_wire.SHOW, profiles.show),
    _route(profile_wire.LIST_APPS, profiles.find_apps),
    _route(profile_wire.SHOW_APP, profiles.show_app),
    _route(profile_wire.FORGET_APP, profiles.forget_app),
    _route(host_wire.LIST, hosts.find, policies.HOSTS),
    _route(host_wire.SHOW, hosts.show, policies.HOSTS),
    _route(host_wire.POLICY, hosts.policy),
    _route(host_wire.FORGET, hosts.forget, policies.FORGET_HOST),
    _route(host_wire.DRAIN, hosts.drain, policies.DRAIN),
    _route(host_wire.UNDRAIN, hosts.undrain, policies.DRAIN),
    _route(distributor_wire.SHOW, hosts.distributor, policies.EDGE),
    _route(rate_wire.LIST, measure.rates, policies.RATES),
    _route(rate_wire.MATRIX, measure.matrix, policies.RATES),
    _route(rate_wire.PERFORMERS, measure.performers, policies.RATES),
    _route(probe_wire.SCHEDULE, measure.schedule, policies.PROBES),
    _route(probe_wire.ORDER, measure.probe, policies.PROBE),
    _route(probe_wire.SHOW, measure.find_probe, policies.PROBES),
    _route(check_wire.LIST, measure.find_checks, policies.CHECKS),
    _route(check_wire.ORDER, measure.check, policies.CHECKS),
    _route(check_wire.SHOW, measure.find_check, policies.CHECKS),
    _route(topology_wire.SHOW, topology.show, policies.TOPOLOGY),
    _route(topology_wire.IMPORT, topology.replace, policies.TOPOLOGY),
    _route(topology_wire.DELETE, topology.delete, policies.TOPOLOGY),
    _route(topology_wire.CAPACITY, topology.capacity,
           policies.TOPOLOGY),
    _route(setting_wire.SHOW, settings.show, policies.SETTINGS),
    _route(setting_wire.CHANGE, settings.change, policies.SETTINGS),
    _route(setting_wire.HISTORY, settings.history, policies.SETTINGS),
    _route(notification_wire.POST, operations.notify, policies.NOTIFY),
]

OPERATIONS: list[wire.Operation[Any]] = [
    *(route.operation for route in ROUTES),
    version_wire.LIST, version_wire.SHOW, health_wire.SHOW,
    health_wire.METRICS,
]


def add(app: 'falcon.App[Any, Any]', conf: cfg.ConfigOpts,
        rooms: app.App) -> None:
    """Add all operations of the API, its versions and its health."""
    authorizer = context.Authorizer(conf)
    resources: dict[str, types.SimpleNamespace] = {}
    for route in ROUTES:
        setattr(resources.setdefault(route.operation.path,
                                     types.SimpleNamespace()),
                f'on_{route.operation.method.lower()}',
                _responder(route, rooms, authorizer))
    for path, resource in resources.items():
        app.add_route(path, resource)
    app.add_route('/', versions.Versions(True))
    app.add_route('/v1', versions.Versions(False))
    operations.add_monitoring(app, health.Document(rooms))


def _responder(route: Route, rooms: app.App, authorizer: context.Authorizer
               ) -> Callable[..., None]:
    def respond(request: falcon.Request, response: falcon.Response,
                **parameters: str) -> None:
        """Decode the request, have it handled, and encode the answer."""
        asked = call.Call(rooms, authorizer, request)
        if route.rule is not None:
            asked.require(route.rule)
        _PATH.convert(parameters)
        given: dict[str, Any] = dict(parameters)
        if route.query is not None:
            given['query'] = route.query.convert(
                {**request.params, **parameters}, strict=False)
        if route.body is not None:
            given['body'] = media.decode(request, route.body)
        media.answer(response, route.handler(asked, **given),
                     route.operation.status)
    return respond
