# SPDX-License-Identifier: Apache-2.0

"""Hypervisors as operators see and empty them, and what edges ask for."""

import re

import falcon
import msgspec

from virtco import app
from virtco import decoding
from virtco import exception
from virtco.api import context
from virtco.api import media
from virtco.api import views
from virtco.api.call import Call
from virtco.api.policies import service as service_rules
from virtco.wire import distributor as distributor_wire
from virtco.wire import fields
from virtco.wire import host as wire
from virtco.wire import reports

_HOST = re.compile(fields.HOST_PATTERN)
_REPORT: decoding.Decoder[reports.Report] = decoding.Decoder(reports.Report)
_MEASUREMENT: decoding.Decoder[reports.Measurement] = decoding.Decoder(
    reports.Measurement)


def find(call: Call) -> wire.Hosts:
    rooms, now_s = call.rooms, call.rooms.clock()
    return wire.Hosts([
        views.host(seen, rooms.decide.policy_of(seen.host),
                   rooms.know.drains.show(seen.host), now_s)
        for seen in rooms.know.live.views(now_s)])


def show(call: Call, host: str) -> wire.Host:
    rooms, now_s = call.rooms, call.rooms.clock()
    found = rooms.know.live.view(host, now_s)
    if found is None:
        raise exception.NotFound(what='Host', id=host)
    policy = rooms.decide.policy_of(host)
    return msgspec.structs.replace(
        views.host(found, policy, rooms.know.drains.show(host), now_s),
        classes=views.classes(found, policy))


def drain(call: Call, host: str, query: wire.One, body: wire.Drain
          ) -> wire.Drained:
    drains = call.rooms.know.drains
    drains.drain(host, body.reason, call.who())
    return drains.show(host)


def undrain(call: Call, host: str, query: wire.One) -> None:
    call.rooms.know.drains.undrain(host, call.who())


def distributor(call: Call, query: distributor_wire.DistributorQuery
                ) -> distributor_wire.Distributor:
    distribute = call.rooms.distribute
    found = distribute.document()
    if found is None:
        raise exception.NotFound(what='Service', id='distributor')
    if query.host is not None and (
            ticket := distribute.ticket_of(query.host)):
        call.require_host(query.host)
        found |= {'ticket': ticket}
    return distributor_wire.Distributor(**found)


def _checked(host: str) -> str:
    if len(host) > 255 or not _HOST.match(host):
        raise exception.Invalid(field='host', value=host[:80],
                                limit='a host name of at most 255 letters, '
                                      'digits or . _ : @ -')
    return host


class Policy:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._decide = rooms.decide
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response,
               host: str) -> None:
        self._authorizer.require_host(request, host)
        policy = self._decide.policy_of(_checked(host))
        if policy is None:
            raise exception.NotFound(what='Policy of host', id=host)
        media.answer(response, policy.to_dict())


class Report:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._know = rooms.know
        self._authorizer = authorizer

    def on_put(self, request: falcon.Request, response: falcon.Response,
               host: str) -> None:
        self._authorizer.require_host(request, host)
        self._know.report(_checked(host),
                          media.decode(request, _REPORT))
        response.status = falcon.HTTP_204


class Probes:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._prober = rooms.decide.prober
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response,
               host: str) -> None:
        self._authorizer.require_host(request, host)
        train = self._prober.next_train(_checked(host))
        media.answer(response, train, 204 if train is None else 200)


class Measurements:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._distribute = rooms.distribute
        self._authorizer = authorizer

    def on_post(self, request: falcon.Request,
                response: falcon.Response) -> None:
        self._authorizer.require(request, service_rules.EDGE)
        measurement = media.decode(request, _MEASUREMENT)
        self._authorizer.require_host(request, measurement.src)
        self._distribute.measured(measurement)
        response.status = falcon.HTTP_204
