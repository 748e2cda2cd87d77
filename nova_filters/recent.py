# SPDX-License-Identifier: Apache-2.0

"""A bounded memory of what was seen lately."""

import collections
import threading
from typing import Any


class Recent:
    """Thread-safe set of the last ``size`` keys."""

    def __init__(self, size: int = 1024):
        self._size = size
        self._lock = threading.Lock()
        self._keys: collections.OrderedDict[str, None] = (
            collections.OrderedDict())

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> bool:
        """True when the key is new."""
        with self._lock:
            if key in self._keys:
                return False
            self._keys[key] = None
            if len(self._keys) > self._size:
                self._keys.popitem(last=False)
            return True


class Kept:
    """Thread-safe: the last ``size`` values, each for one taker."""

    def __init__(self, size: int = 64):
        self._size = size
        self._lock = threading.Lock()
        self._values: collections.OrderedDict[str, Any] = (
            collections.OrderedDict())

    def put(self, key: str, value: Any) -> None:
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = value
            if len(self._values) > self._size:
                self._values.popitem(last=False)

    def pop(self, key: str) -> Any:
        """The value, which nobody gets again, or None."""
        with self._lock:
            return self._values.pop(key, None)
