# SPDX-License-Identifier: Apache-2.0

"""Runs a command against the client itself, without a network below it."""

import io
import json
import types
from urllib import parse

from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
import requests

from virtco.client import v1

URL = 'http://controller.test'


class Controller(requests.adapters.BaseAdapter):
    """Answers what it was given, by method and path.

    :param answers: "GET /v1/coflows" -> body, or status and body, or a list
        of those, one for each time. A path with its query comes first.
    :ivar asked: method, path with query, and body of each request.
    """

    def __init__(self, **answers):
        super().__init__()
        self.answers = answers
        self.asked = []
        http = requests.Session()
        http.mount(URL, self)
        self.client = v1.Client(URL, ks_session.Session(
            auth=noauth.NoAuth(), session=http))

    def send(self, request, **_options):
        path = parse.unquote(request.path_url)
        self.asked.append((request.method, path,
                           json.loads(request.body or 'null')))
        key = f'{request.method} {path}'
        answer = self.answers.get(key, self.answers.get(
            key.partition('?')[0],
            (404, {'error': {'code': 'virtco.not_found', 'detail': key}})))
        if isinstance(answer, list):
            answer = answer.pop(0)
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        response = requests.Response()
        response.status_code = status
        response.url = request.url
        response.request = request
        response.raw = io.BytesIO(
            b'' if body is None else json.dumps(body).encode())
        return response

    def close(self):
        pass


def run(command, controller, *argv, session=None, stdin=''):
    """Return the exit code, the output and the error stream of a command."""
    app = types.SimpleNamespace(
        stdin=io.StringIO(stdin), stdout=io.StringIO(), stderr=io.StringIO(),
        client_manager=types.SimpleNamespace(
            coflow=controller.client, session=session))
    made = command(app, None)
    code = made.run(made.get_parser('virtco').parse_args(list(argv)))
    return code, app.stdout.getvalue(), app.stderr.getvalue()


def rows(command, controller, *argv, **options):
    """Return what a command prints as JSON, and its error stream."""
    code, out, told = run(command, controller, '-f', 'json', *argv, **options)
    assert code == 0
    return json.loads(out), told
