# SPDX-License-Identifier: Apache-2.0

"""Puts the WSGI application together."""

from collections.abc import Collection
from collections.abc import Iterable
from typing import Any
from typing import Protocol

import falcon
from oslo_config import cfg
from oslo_middleware import http_proxy_to_wsgi

from virtco import app
from virtco import metrics
from virtco.api import errors
from virtco.api import listeners
from virtco.api import live_page
from virtco.api import pace
from virtco.api import request_ids
from virtco.api import routes
from virtco.api import versions
from virtco.api.handlers import operation_routes as operations


def application(conf: cfg.ConfigOpts,
                rooms: app.App) -> listeners.Wsgi:
    """Build the API inside out: falcon, the token check, request ids and
    proxies.
    """
    # A refused version is paid for, too.
    middleware: list[Any] = [
        pace.Limiter(conf.api.auth_strategy == 'keystone',
                     max(1, conf.api.threads // 8)),
        versions.Negotiation()]
    app = falcon.App(middleware=middleware)
    errors.add_handlers(app)
    routes.add(app, conf, rooms)
    live_page.add(app, conf)
    wsgi: listeners.Wsgi = app
    if conf.api.auth_strategy == 'keystone':
        # Embedded controllers start without it.
        from keystonemiddleware import auth_token
        wsgi = _except_open(wsgi, pace.Strangers(auth_token.AuthProtocol(
            wsgi, {'oslo_config_config': conf}), conf.api.threads // 2),
            (*pace.OPEN_PATHS, *live_page.open_paths(conf)))
    wsgi = request_ids.identified(wsgi)
    proxy = http_proxy_to_wsgi.HTTPProxyToWSGI(wsgi, conf)
    is_behind = conf.oslo_middleware.enable_proxy_headers_parsing
    return proxy if is_behind else wsgi


class Monitored(Protocol):
    """A process that serves nothing else by HTTP."""

    metrics: metrics.Metrics

    def health(self) -> tuple[bool, Any]:
        """Return whether it serves, and the state of its parts."""

    def gauge(self) -> None:
        """Set the metrics that are read at a request instead of counted."""


def monitoring(found: Monitored) -> listeners.Wsgi:
    """Build an application of ``/health`` and ``/metrics`` alone."""
    app = falcon.App()
    errors.add_handlers(app)
    operations.add_monitoring(app, found)
    return app


def _except_open(app: listeners.Wsgi, guarded: listeners.Wsgi,
                 open_paths: Collection[str]) -> listeners.Wsgi:
    def choose(environ: dict[str, Any], start_response: Any
               ) -> Iterable[bytes]:
        is_open = environ['PATH_INFO'] in open_paths
        return (app if is_open else guarded)(environ, start_response)
    return choose
