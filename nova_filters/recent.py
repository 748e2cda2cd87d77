# SPDX-License-Identifier: Apache-2.0

"""A bounded memory of recent values."""

import collections
import threading
from typing import Any


class Recent:
    """Thread-safe mapping of the last ``size`` keys to values."""

    def __init__(self, size: int = 1024):
        self._size = size
        self._lock = threading.Lock()
        self._values: collections.OrderedDict[str, Any] = (
            collections.OrderedDict())

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def add(self, key: str) -> bool:
        """Remember a key; True when it is new."""
        with self._lock:
            is_new = key not in self._values
            self._values.setdefault(key)
            self._forget()
            return is_new

    def put(self, key: str, value: Any) -> None:
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = value
            self._forget()

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def pop(self, key: str) -> Any:
        """Remove the value and return it; None without one."""
        with self._lock:
            return self._values.pop(key, None)

    def _forget(self) -> None:
        if len(self._values) > self._size:
            self._values.popitem(last=False)
