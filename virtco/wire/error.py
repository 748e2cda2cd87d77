# SPDX-License-Identifier: Apache-2.0

"""The answer to a request that fails."""

from typing import Any

import msgspec

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
