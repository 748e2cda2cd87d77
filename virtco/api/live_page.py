# SPDX-License-Identifier: Apache-2.0

"""``/ui``: static files, and events that tell a browser to look again.

The page asks the API as any client does, with the viewer's token, so it shows
no more than the API. Events hold no data, only that something changed.
"""

import functools
from importlib import resources
import mimetypes
from typing import Any

import falcon
from oslo_config import cfg

from virtco import app
from virtco import exception
from virtco.api import call
from virtco.api import context
from virtco.api import listeners
from virtco.api import policies
from virtco.api import viewers
from virtco.wire import fields

ROOT = '/ui'
EVENTS = '/ui/events'
HEADERS = {
    'Content-Security-Policy':
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
    'Cache-Control': 'no-cache',
}


def files() -> dict[str, bytes]:
    """Read all static files, by name."""
    folder = resources.files('virtco.api') / 'page'
    return {one.name: one.read_bytes() for one in folder.iterdir()
            if one.is_file()}


def open_paths(conf: cfg.ConfigOpts) -> tuple[str, ...]:
    """List the paths that want no token: they say nothing of the cloud."""
    return (ROOT, f'{ROOT}/', *(f'{ROOT}/{name}' for name in files())
            ) if conf.api.ui else ()


def add(app: 'falcon.App[Any, Any]', conf: cfg.ConfigOpts, rooms: app.App,
        watchers: viewers.Viewers | None = None) -> None:
    """Serve the page where the configuration asks for it.

    :raises virtco.exception.ConfigInvalid: anybody could see it.
    """
    if not conf.api.ui:
        return
    if (conf.api.auth_strategy == 'noauth'
            and conf.api.host not in listeners.LOOPBACK):
        raise exception.ConfigInvalid(
            why=f'[api] ui: expected [api] auth_strategy = keystone or a '
            f'loopback address, got noauth on {conf.api.host}')
    if watchers is None:
        watchers = viewers.Viewers()
    rooms.state.on_report.append(watchers.changed)
    rooms.state.on_change.append(watchers.changed)
    page = Page()
    app.add_route(ROOT, page, suffix='root')
    app.add_route(f'{ROOT}/', page)
    app.add_route(f'{ROOT}/{{name}}', page)
    app.add_route(EVENTS, Events(rooms, conf, watchers))


class Page:
    """The static files."""

    def __init__(self) -> None:
        self._files = files()

    def on_get_root(self, _request: falcon.Request,
                    response: falcon.Response) -> None:
        """Redirect relatively: a proxy may have put a prefix in front."""
        response.status = falcon.HTTP_308
        response.set_header('Location', 'ui/')

    def on_get(self, request: falcon.Request, response: falcon.Response,
               name: str = 'index.html') -> None:
        """Answer with a file of the page.

        :raises virtco.exception.NotFound:
        """
        if name not in self._files:
            raise exception.NotFound(what='File', id=name)
        response.set_headers(HEADERS)
        kind = mimetypes.guess_type(name)[0] or 'text/plain'
        response.content_type = f'{kind}; charset=utf-8'
        response.data = self._files[name]


class Events:
    """Server-sent events that hold no thread."""

    def __init__(self, rooms: app.App, conf: cfg.ConfigOpts,
                 watchers: viewers.Viewers):
        self._rooms = rooms
        self._authorizer = context.Authorizer(conf)
        self._watchers = watchers

    def on_get(self, request: falcon.Request,
               response: falcon.Response) -> None:
        """Begin a stream of events; it holds no thread."""
        asked = call.Call(self._rooms, self._authorizer, request)
        asked.project(fields.ProjectQuery(), policies.LIST_COFLOWS)
        response.content_type = 'text/event-stream'
        response.set_headers({**HEADERS, 'X-Accel-Buffering': 'no'})
        response.stream = iter([viewers.CHANGED])
        request.env[viewers.KEEP] = functools.partial(
            self._watchers.add, asked.callers_project())
