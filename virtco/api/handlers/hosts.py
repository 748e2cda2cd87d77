# SPDX-License-Identifier: Apache-2.0

"""``/v1/hosts``, ``/v1/measurements`` and ``/v1/rates``."""

import re

import falcon

from virtco import app
from virtco import decoding
from virtco import exception
from virtco.api import context
from virtco.api import media
from virtco.api import views
from virtco.api.policies import operator as operator_rules
from virtco.api.policies import service as service_rules
from virtco.api.schemas import host as schema
from virtco.decide import asked
from virtco.wire import fields
from virtco.wire import reports

_HOST = re.compile(fields.HOST_PATTERN)
_REPORT: decoding.Decoder[reports.Report] = decoding.Decoder(reports.Report)
_MEASUREMENT: decoding.Decoder[reports.Measurement] = decoding.Decoder(
    reports.Measurement)
_PROBE: decoding.Decoder[asked.Request] = decoding.Decoder(asked.Request)


def _checked(host: str) -> str:
    if len(host) > 255 or not _HOST.match(host):
        raise exception.Invalid(field='host', value=host[:80],
                                limit='a host name of at most 255 letters, '
                                      'digits or . _ : @ -')
    return host


class Hosts:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._live = rooms.know.live
        self._drains = rooms.know.drains
        self._decide = rooms.decide
        self._clock = rooms.clock
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response,
               host: str | None = None) -> None:
        self._authorizer.require(request, operator_rules.HOSTS)
        now_s = self._clock()
        if host is None:
            response.media = {'hosts': [
                views.host(seen, self._decide.policy_of(seen.host), now_s)
                | self._drains.show(seen.host)
                for seen in self._live.views(now_s)]}
            return
        found = self._live.view(host, now_s)
        if found is None:
            raise exception.NotFound(what='Host', id=host)
        policy = self._decide.policy_of(host)
        response.media = (views.host(found, policy, now_s)
                          | self._drains.show(host)
                          | {'classes': views.classes(found, policy)})


class Drain:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._drains = rooms.know.drains
        self._authorizer = authorizer

    def on_put(self, request: falcon.Request, response: falcon.Response,
               host: str) -> None:
        self._authorizer.require(request, operator_rules.DRAIN)
        body = media.read(request, schema.DRAIN)
        self._drains.drain(_checked(host), body.get('reason', ''),
                           self._authorizer.who(request))
        response.media = {'host': host} | self._drains.show(host)

    def on_delete(self, request: falcon.Request, response: falcon.Response,
                  host: str) -> None:
        self._authorizer.require(request, operator_rules.DRAIN)
        self._drains.undrain(_checked(host), self._authorizer.who(request))
        response.status = falcon.HTTP_204


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
        response.media = policy.to_dict()


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
        if train is None:
            response.status = falcon.HTTP_204
        else:
            response.media = train


class Distributor:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._distribute = rooms.distribute
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        self._authorizer.require(request, service_rules.EDGE)
        found = self._distribute.document()
        if found is None:
            raise exception.NotFound(what='Service', id='distributor')
        host = request.get_param('host')
        if host is not None and (
                ticket := self._distribute.ticket_of(_checked(host))):
            self._authorizer.require_host(request, host)
            found |= {'ticket': ticket}
        response.media = found


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


class Rates:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._rates = rooms.know.rates
        self._clock = rooms.clock
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        self._authorizer.require(request, operator_rules.RATES)
        response.media = {'pairs': self._rates.pairs(self._clock())}


class Probing:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._rooms = rooms
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        self._authorizer.require(request, operator_rules.PROBES)
        found = self._rooms.decide.orders.schedule()
        if found is None:
            raise exception.Starting(
                why='no scheduler that leads told what it measures')
        response.media = found

    def on_post(self, request: falcon.Request,
                response: falcon.Response) -> None:
        self._authorizer.require(request, operator_rules.PROBE)
        response.media = {'id': self._rooms.decide.orders.probe(
            media.decode(request, _PROBE))}
        response.status = falcon.HTTP_202


class Probe:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._rooms = rooms
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response,
               probe_id: str) -> None:
        self._authorizer.require(request, operator_rules.PROBES)
        response.media = self._rooms.decide.orders.find_probe(probe_id)
