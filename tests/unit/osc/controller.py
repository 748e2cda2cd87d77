# SPDX-License-Identifier: Apache-2.0

"""Runs a command against the client itself, without a network below it."""

import io
import json
import re
import types
from urllib import parse

from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
import msgspec
from msgspec import inspect
import requests

from virtco.client import v1
from virtco.wire import operations

URL = 'http://controller.test'
_EMPTY = {inspect.StrType: '', inspect.IntType: 0, inspect.FloatType: 0.0,
          inspect.BoolType: False}


def made(kind, /, **given):
    """Return a value of a type of the interface, from some of its fields."""
    return msgspec.convert(_whole(inspect.type_info(kind),
                                  msgspec.to_builtins(given)), kind)


def _whole(info, given):
    """Add to a JSON value the fields that its type requires."""
    if isinstance(info, inspect.UnionType):
        kinds = {dict: inspect.StructType, list: inspect.ListType}
        fitting = [one for one in info.types if isinstance(
            one, kinds.get(type(given), ()))]
        return _whole(fitting[0], given) if fitting else given
    if isinstance(info, inspect.ListType | inspect.VarTupleType):
        return [_whole(info.item_type, one) for one in given]
    if not isinstance(info, inspect.StructType):
        return given
    return given | {
        field.encode_name: _whole(field.type, given[field.encode_name])
        if field.encode_name in given else _empty(field.type)
        for field in info.fields
        if field.required or field.encode_name in given}


def _empty(info):
    if isinstance(info, inspect.UnionType):
        return None if info.includes_none else _empty(info.types[0])
    if isinstance(info, inspect.LiteralType):
        return info.values[0]
    if isinstance(info, inspect.ListType | inspect.VarTupleType):
        return []
    if isinstance(info, inspect.StructType):
        return _whole(info, {})
    return {} if isinstance(info, inspect.DictType) else _EMPTY[type(info)]


def _answer(method, path, body):
    """Return a whole body of the operation's answer."""
    for one in operations.OPERATIONS:
        if one.method == method and one.answer is not type(None) and (
                re.fullmatch(re.sub('{.*?}', '[^/]+', one.path), path)):
            return _whole(inspect.type_info(one.answer), body)
    return body


class Controller(requests.adapters.BaseAdapter):
    """Answers what it was given, by method and path.

    :param answers: "GET /v1/coflows" -> body, or status and body, or a list
        of those, one for each time. A path with its query comes first. A
        body gets the required fields that it does not have.
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
        if status < 400:
            body = _answer(request.method, path.partition('?')[0],
                           msgspec.to_builtins(body))
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
