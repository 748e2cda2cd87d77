# SPDX-License-Identifier: Apache-2.0

"""Client of REST v1 over a keystoneauth adapter.

Light on purpose: keystoneauth, which OpenStack's clients share, msgspec, and
nothing of the controller but the description of its operations.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
import inspect
import os
import re
from typing import Any
from typing import TypeVar
import urllib.parse

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
import msgspec

from virtco import exception
from virtco.wire import error as error_wire
from virtco.wire import operation as wire

DEFAULT_URL = 'http://127.0.0.1:8791'
#: Type of the controller in the service catalogue.
SERVICE_TYPE = 'coflow'
DEFAULT_TIMEOUT_S = 10.0

_RAISED = {kind.code: kind.raised for kind in error_wire.KINDS}
_A = TypeVar('_A')


@functools.cache
def signature(operation: wire.Operation[Any]) -> inspect.Signature:
    """Return the signature of a call; parameters of the path are required."""
    return inspect.Signature([
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD,
                          default=inspect.Parameter.empty
                          if f'{{{name}}}' in operation.path else None)
        for name in operation.parameters])


def arrange(operation: wire.Operation[Any], args: Sequence[Any],
            given: Mapping[str, Any]
            ) -> tuple[str, dict[str, Any] | None, dict[str, Any]]:
    """Arrange arguments as path, body and query of a request.

    :param args: in the order of the operation's parameters.
    :param given: parameters by name; None is as not given.
    :raises TypeError: for arguments that the operation does not have.
    """
    try:
        signature(operation).bind(*args, **given)
    except TypeError as error:
        raise TypeError(f'{operation.name} takes '
                        f'({", ".join(operation.parameters)})') from error
    named = {**dict(zip(operation.parameters, args)), **given}
    query = {name: value for name, value in named.items()
             if value is not None}
    path = re.sub(r'{(\w+)}', lambda found: urllib.parse.quote(
        str(query.pop(found.group(1))), safe=''), operation.path)
    body = None
    if operation.body is not None:
        body = {name: msgspec.to_builtins(query.pop(name))
                for name in operation.body.__struct_fields__
                if name in query}
    return path, body, query


def url_in_catalogue(session: ks_session.Session, **wanted: Any) -> str:
    """Find the URL of the controller in the service catalogue.

    :param wanted: interface and region.
    :raises virtco.exception.NotFound: where the catalogue has none.
    """
    found = session.get_endpoint(service_type=SERVICE_TYPE, **wanted)
    if not found:
        raise exception.NotFound(
            what="The catalogue's endpoint of service type", id=SERVICE_TYPE)
    return str(found)


class Client:
    """Calls of one controller; every call is bounded in time.

    :meth:`call` asks for any operation of :mod:`virtco.wire`, such as
    ``client.call(coflow_bodies.SHOW, coflow_id)``.

    :param url: address of the controller; None reads ``VIRTCO_URL``.
    :param session: keystoneauth session that authenticates; None for a
        controller without authentication, whose certificate is checked by the
        authorities of ``OS_CACERT`` where that is set.
    :param timeout_s: longest time for the connection, and between two packets.
    """

    def __init__(self, url: str | None = None,
                 session: ks_session.Session | None = None,
                 timeout_s: float = DEFAULT_TIMEOUT_S):
        self.url = (url or os.environ.get('VIRTCO_URL')
                    or DEFAULT_URL).rstrip('/')
        self._timeout_s = timeout_s
        self._adapter = adapter.Adapter(
            session or ks_session.Session(
                auth=noauth.NoAuth(),
                verify=os.environ.get('OS_CACERT') or True),
            endpoint_override=self.url, user_agent='virtco-client',
            raise_exc=False)

    def _ask(self, operation: wire.Operation[Any], path: str, body: Any,
             query: Mapping[str, Any]) -> Any:
        """Send JSON; return the answer (None for an empty one)."""
        try:
            response = self._adapter.request(
                path, operation.method, json=body, params=query,
                timeout=self._timeout_s)
        except ks_exceptions.ClientException as error:
            raise exception.ControllerUnavailable(
                url=self.url, why=exception.reason(error)) from error
        if response.status_code == 204 or not response.content:
            return None
        try:
            found = response.json()
        except ValueError as error:
            raise exception.ControllerUnavailable(
                url=self.url, why=f'HTTP {response.status_code} without JSON'
            ) from error
        if response.status_code >= 400 and (
                response.status_code != operation.failed_status):
            self._raise(response.status_code, found)
        return found

    def _raise(self, status: int, body: Any) -> None:
        error = body.get('error') if isinstance(body, dict) else None
        if not isinstance(error, dict) or 'code' not in error:
            raise exception.ControllerUnavailable(
                url=self.url, why=f'HTTP {status}')
        raise _RAISED.get(error['code'], exception.VirtcoException)(
            error.get('detail') or error.get('title'),
            **{name: error[name] for name in ('field', 'value', 'limit')
               if name in error})

    def call(self, operation: wire.Operation[_A], /, *args: Any,
             **given: Any) -> _A:
        """Ask for an operation; return a value of its answer's type.

        Arguments are parameters of the path, fields of the body and
        parameters of the query, in this order; None is as not given.

        :raises virtco.exception.ControllerUnavailable: no answer, or not one
            of the controller's.
        :raises virtco.exception.VirtcoException: the error it reported.
        """
        found = self._ask(operation, *arrange(operation, args, given))
        try:
            return msgspec.convert(found, operation.answer)
        except msgspec.ValidationError as error:
            raise exception.ControllerUnavailable(
                url=self.url, why=f'its answer to {operation.name} is not of '
                f'this API: {error}') from error
