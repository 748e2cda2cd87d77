# SPDX-License-Identifier: Apache-2.0

"""The answer to a request that fails, and the exceptions that it tells."""

from typing import Any
from typing import NamedTuple

import msgspec

from virtco import exception
from virtco.wire import operation


class Error(operation.Response, frozen=True, kw_only=True):
    """Description of an error.

    :ivar code: stays the same over releases, such as ``virtco.invalid``.
    :ivar title: name of the kind of error.
    :ivar detail: explanation of this error, as a sentence.
    :ivar field: wrong field, where it is one.
    :ivar value: value of the field, or the beginning of its JSON text; null:
        it has none.
    :ivar limit: expected value, as a noun phrase.
    """

    code: str
    title: str
    detail: str
    field: str | msgspec.UnsetType = msgspec.UNSET
    value: Any = msgspec.UNSET
    limit: Any = msgspec.UNSET


class Failure(operation.Response, frozen=True):
    """The body of each answer with a status of 400 or above.

    :ivar error: description of the error.
    """

    error: Error


class Kind(NamedTuple):
    """Answer that stands for an exception.

    The server answers with its status, code and title where ``raised`` is
    raised; the client raises that again.
    """

    raised: type[exception.VirtcoException]
    status: int
    code: str
    title: str


#: Subclasses of exceptions come before their bases.
KINDS = (
    Kind(exception.QuotaExceeded, 403, 'virtco.quota_exceeded',
         'Quota exceeded'),
    Kind(exception.HintInvalid, 400, 'virtco.hint_invalid', 'Invalid hint'),
    Kind(exception.Invalid, 400, 'virtco.invalid', 'Invalid input'),
    Kind(exception.PlacementInfeasible, 409, 'virtco.infeasible',
         'No valid placement'),
    Kind(exception.NotFound, 404, 'virtco.not_found', 'Not found'),
    Kind(exception.Conflict, 409, 'virtco.conflict', 'Conflict'),
    Kind(exception.Forbidden, 403, 'virtco.forbidden', 'Not allowed'),
    Kind(exception.Deposed, 503, 'virtco.deposed', 'Another scheduler leads'),
    Kind(exception.DatabaseUnavailable, 503, 'virtco.database_unavailable',
         'Database unavailable'),
    Kind(exception.Starting, 503, 'virtco.starting', 'Starting'),
    Kind(exception.VirtcoException, 500, 'virtco.error', 'Error'),
)
