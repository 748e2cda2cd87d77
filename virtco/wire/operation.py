# SPDX-License-Identifier: Apache-2.0

"""Description of one operation of the REST API, by the types of its bodies.

The server finds its handlers by these values, the client its requests, and
OpenAPI is derived from them.
"""

import dataclasses
import re
from typing import Any
from typing import Generic
from typing import TypeVar

import msgspec

_A = TypeVar('_A')


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the bodies of requests: a field that is not known is refused."""


class Query(msgspec.Struct, frozen=True):
    """Base of parameters: others are ignored."""


class Response(msgspec.Struct, frozen=True):
    """Base of the bodies of answers: others may come with later releases."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation(Generic[_A]):
    """A method of a path.

    :ivar name: unique, the ``operationId`` of OpenAPI.
    :ivar path: path with its parameters in braces.
    :ivar answer: type of the body of a successful answer.
    :ivar summary: one sentence for those who call it.
    :ivar body: type of the body of a request; None: it has none.
    :ivar query: Struct of the parameters in the query, and of those in the
        path that only this operation has.
    :ivar status: status of a successful answer.
    :ivar failed_status: status of an answer of the same type that is no
        success.
    :ivar conflict: sentence on the state that does not allow the operation,
        with status 409; empty: no state forbids it.
    """

    name: str
    method: str
    path: str
    answer: type[_A]
    summary: str
    body: Any = None
    query: type[Query] | None = None
    status: int = 200
    failed_status: int | None = None
    conflict: str = ''

    @property
    def parameters(self) -> list[str]:
        """Names in the path, the body and the query, in this order."""
        in_path = re.findall(r'{(\w+)}', self.path)
        return list(dict.fromkeys([*in_path, *(
            name for kind in (self.body, self.query) if kind is not None
            for name in kind.__struct_fields__)]))


NOTHING = type(None)
#: Conflict of an operation that writes.
OVERTAKEN = 'Another request changed the same meanwhile.'
