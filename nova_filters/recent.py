# SPDX-License-Identifier: Apache-2.0

"""A bounded memory of recent values."""

import threading
from typing import Any


class Recent:
    """Thread-safe mapping of the last ``size`` keys to values."""

    def __init__(self, size: int = 1024):
        self._size = size
        self._lock = threading.Lock()
        self._values: dict[str, Any] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def put(self, key: str, value: Any = None) -> bool:
        """Remember a key as the latest; True when it is new."""
        with self._lock:
            is_new = key not in self._values
            self._values.pop(key, None)
            self._values[key] = value
            if len(self._values) > self._size:
                del self._values[next(iter(self._values))]
            return is_new

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def pop(self, key: str) -> Any:
        """Remove the value and return it; None without one."""
        with self._lock:
            return self._values.pop(key, None)
