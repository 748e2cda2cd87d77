# SPDX-License-Identifier: Apache-2.0

"""Typed answers as the JSON values that a client sees."""

import msgspec


class Plain:
    """The methods of an object, with answers as JSON values.

    :param of: the object; what it has but methods is its own.
    """

    def __init__(self, of):
        self._of = of

    def __getattr__(self, name):
        found = getattr(self._of, name)
        if not callable(found):
            return found
        return lambda *args, **kwargs: msgspec.json.decode(
            msgspec.json.encode(found(*args, **kwargs)))
