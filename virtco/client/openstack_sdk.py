# SPDX-License-Identifier: Apache-2.0

"""``connection.coflow`` of openstacksdk, made from :mod:`virtco.wire`.

``vendor_hook: virtco.client.openstack_sdk:add`` in ``clouds.yaml`` adds it.
"""

from collections.abc import Callable
import functools
import inspect
import re
import typing
from typing import Any

from openstack import connection as sdk_connection
from openstack import exceptions
from openstack import proxy
from openstack import resource
from openstack import service_description

from virtco.client import v1
from virtco.wire import operation as operation_wire
from virtco.wire import operations

#: Verbs of operations, as openstacksdk begins the names of methods.
_VERBS = {'list': '', 'show': 'get_', 'change': 'update_'}


def name_method(operation: operation_wire.Operation[Any]) -> str:
    """Name the method of an operation, such as ``get_coflow``."""
    verb, *nouns = re.findall('[A-Z]?[a-z]+', operation.name)
    return (_VERBS.get(verb, f'{verb}_') + '_'.join(nouns).lower()).strip('_')


@functools.cache
def make_resource(kind: Any) -> type[resource.Resource]:
    """Make the class of resources that have the fields of an answer.

    A field that is called as a method of dictionaries gets an underscore. The
    id is the field that the path names, where no field is called so.
    """
    in_path = {name for one in operations.OPERATIONS if one.answer is kind
               for name in re.findall(r'{(\w+)}', one.path)}
    return type(kind.__name__, (resource.Resource,), {
        '__doc__': kind.__doc__, **{
            f'{name}_' if hasattr(dict, name) else name: resource.Body(
                name, alternate_id=name in in_path)
            for name in kind.__struct_fields__}})


def _item(kind: Any) -> Any:
    """Find the type of the entries of an answer that is one list of Structs.
    """
    hints = [] if kind in (str, operation_wire.NOTHING) else list(
        typing.get_type_hints(kind).values())
    found = typing.get_args(hints[0]) if len(hints) == 1 else ()
    return found[0] if found and hasattr(
        found[0], '__struct_fields__') else None


def _method(operation: operation_wire.Operation[Any]) -> Callable[..., Any]:
    """Build the proxy's method that sends an operation."""
    answer: Any = operation.answer
    item = _item(answer)

    def method(self: 'Proxy', /, *args: Any, **given: Any) -> Any:
        path, body, query = v1.arrange(operation, args, given)
        response = self.request(path, operation.method, json=body,
                                params=query)
        if response.status_code != operation.failed_status:
            _check(response)
        if answer is operation_wire.NOTHING:
            return None
        if answer is str:
            return response.text
        found = response.json()
        if item is None:
            return make_resource(answer).existing(**found)
        (entries,) = found.values()
        return (make_resource(item).existing(**one) for one in entries)

    method.__doc__ = operation.summary
    own = inspect.Parameter('self', inspect.Parameter.POSITIONAL_OR_KEYWORD)
    setattr(method, '__signature__', inspect.Signature(
        [own, *v1.signature(operation).parameters.values()]))
    return method


def _check(response: Any) -> None:
    """Raise openstacksdk's exception of an answer that is an error.

    :raises openstack.exceptions.HttpException:
    """
    try:
        detail = response.json()['error']['detail']
    except (ValueError, LookupError, TypeError):
        detail = None
    exceptions.raise_from_response(response, detail)


class Proxy(proxy.Proxy):
    """Operations of one controller as methods.

    Arguments are as of :class:`virtco.client.v1.Client`. Methods return
    resources with the fields of the answer, an iterator of them for a list.
    """

    #: The catalogue names the root, of which operations have the whole path.
    skip_discovery = True


for _one in operations.OPERATIONS:
    setattr(Proxy, name_method(_one), _method(_one))


def add(connection: sdk_connection.Connection) -> None:
    """Add ``coflow`` to a connection."""
    connection.add_service(service_description.ServiceDescription(
        'coflow', {'1': Proxy}))
