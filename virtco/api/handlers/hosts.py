# SPDX-License-Identifier: Apache-2.0

"""``/v1/hosts``, ``/v1/measurements`` and ``/v1/rates``."""

from collections.abc import Iterator
import contextlib
import re
import threading

import falcon
from oslo_config import cfg

from virtco import app
from virtco import decoding
from virtco import exception
from virtco import fields
from virtco.api import context
from virtco.api import media
from virtco.api import views
from virtco.api.policies import operator as operator_rules
from virtco.api.policies import service as service_rules
from virtco.api.schemas import host as schema
from virtco.decide import asked
from virtco.know import reports

_WAIT = re.compile(r'(?:^|[,;\s])wait=([0-9]{1,6}(?:\.[0-9]{1,6})?)')
_HOST = re.compile(fields.HOST_PATTERN)
_REPORT: decoding.Decoder[reports.Report] = decoding.Decoder(reports.Report)
_MEASUREMENT: decoding.Decoder[reports.Measurement] = decoding.Decoder(
    reports.Measurement)
_PROBE: decoding.Decoder[asked.Request] = decoding.Decoder(asked.Request)


class Waiting:
    """Bounds how many requests wait at the same time.

    One too many does not wait: it is answered with what there is, and told
    to come back in a second.
    """

    def __init__(self, conf: cfg.ConfigOpts):
        self._max_wait_s = conf.api.max_wait_s
        self._seats = threading.BoundedSemaphore(
            max(1, conf.api.threads * 3 // 4))

    @contextlib.contextmanager
    def seat(self, request: falcon.Request,
             response: falcon.Response) -> Iterator[float]:
        """Seconds this request may wait, by its ``Prefer`` header."""
        found = _WAIT.search(request.get_header('Prefer') or '')
        wait_s = min(self._max_wait_s, float(found.group(1))) if found else 0
        if wait_s == 0:
            yield 0.0
        elif not self._seats.acquire(blocking=False):
            response.set_header('Retry-After', '1')
            yield 0.0
        else:
            try:
                yield wait_s
            finally:
                self._seats.release()


def _checked(host: str) -> str:
    if len(host) > 255 or not _HOST.match(host):
        raise exception.Invalid(field='host', value=host[:80],
                                limit='a host name of at most 255 letters, '
                                      'digits or . _ : @ -')
    return host


def _is_gone(request: falcon.Request) -> bool:
    """Whether the client hung up (waitress knows)."""
    check = request.env.get('waitress.client_disconnected')
    return bool(check and check())


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
    def __init__(self, rooms: app.App, authorizer: context.Authorizer,
                 waiting: Waiting):
        self._rooms = rooms
        self._decide = rooms.decide
        self._authorizer = authorizer
        self._waiting = waiting

    def on_get(self, request: falcon.Request, response: falcon.Response,
               host: str) -> None:
        self._authorizer.require_host(request, host)
        generation = _generation(request)
        with self._waiting.seat(request, response) as wait_s:
            policy = self._decide.wait_for_policy(
                _checked(host), generation, wait_s,
                lambda: _is_gone(request))
        if policy is None:
            raise exception.NotFound(what='Policy of host', id=host)
        response.set_header('ETag', f'"{policy.generation}"')
        response.set_header('Cache-Control', 'no-cache')
        response.set_header('Virtco-Epoch', str(self._rooms.epoch()))
        if policy.generation == generation:
            response.status = falcon.HTTP_304
        else:
            response.media = policy.to_dict()


def _generation(request: falcon.Request) -> int | None:
    text = (request.get_header('If-None-Match') or '').strip()
    found = re.fullmatch(r'(?:W/)?"?([0-9]{1,18})"?', text)
    return int(found.group(1)) if found else None


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
    def __init__(self, rooms: app.App, authorizer: context.Authorizer,
                 waiting: Waiting):
        self._prober = rooms.decide.prober
        self._authorizer = authorizer
        self._waiting = waiting

    def on_get(self, request: falcon.Request, response: falcon.Response,
               host: str) -> None:
        self._authorizer.require_host(request, host)
        with self._waiting.seat(request, response) as wait_s:
            train = self._prober.next_train(
                _checked(host), wait_s, lambda: _is_gone(request))
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
