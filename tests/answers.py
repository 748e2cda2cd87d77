# SPDX-License-Identifier: Apache-2.0

"""Answers of the API against the types that they are declared to have."""

import functools
import re

import msgspec

from virtco.wire import error
from virtco.wire import operation
from virtco.wire import operations


@functools.cache
def _operations():
    return [(one, re.compile(re.sub(r'{\w+}', '[^/]+', one.path)))
            for one in operations.OPERATIONS]


def find(method, path):
    """Find the operation that a request is for; None: it is none."""
    path = path.partition('?')[0]
    return next((one for one, pattern in _operations()
                 if one.method == method and pattern.fullmatch(path)), None)


def check(method, path, status, content):
    """Decode an answer strictly: what its type does not have is an error."""
    found = find(method, path)
    if status >= 400 and (found is None or status != found.failed_status):
        kind = error.Failure
    elif found is None or found.answer is str:
        return
    elif found.answer is operation.NOTHING or status == 204:
        assert not content, content
        return
    else:
        kind = found.answer
        assert status in (found.status, found.failed_status), (
            method, path, status)
    plain = msgspec.json.decode(content)
    again = msgspec.to_builtins(msgspec.convert(plain, kind))
    assert complete(plain, again) == plain, (method, path, again)


def complete(told, again):
    """Leave out defaults that were not told: those of later releases."""
    if isinstance(told, dict) and isinstance(again, dict):
        return {name: complete(told[name], value)
                for name, value in again.items() if name in told}
    if isinstance(told, list) and isinstance(again, list | tuple):
        return [complete(a, b) for a, b in zip(told, again, strict=True)]
    return again
