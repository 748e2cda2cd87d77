# SPDX-License-Identifier: Apache-2.0

"""``/ui``: static files of a page that asks the API as any client does.

It sends the viewer's token, so it shows no more than the API.
"""

from importlib import resources
import mimetypes
from typing import Any

import falcon
from oslo_config import cfg

from virtco import exception
from virtco.api import listeners

ROOT = '/ui'
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


def add(app: 'falcon.App[Any, Any]', conf: cfg.ConfigOpts) -> None:
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
    page = Page()
    app.add_route(ROOT, page, suffix='root')
    app.add_route(f'{ROOT}/', page)
    app.add_route(f'{ROOT}/{{name}}', page)


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
