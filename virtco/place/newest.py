# SPDX-License-Identifier: Apache-2.0

"""The newest things of a storm of them, by key; older ones are dropped."""

import collections
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
import threading
from typing import Generic
from typing import TypeVar

from sqlalchemy import orm

from virtco import exception
from virtco.db import session as db_session

Key = TypeVar('Key', bound=Hashable)
Item = TypeVar('Item')


class Newest(Generic[Key, Item]):
    """Mapping of the keys that were put last; threads may share it.

    :param most: keys that are kept.
    """

    def __init__(self, most: int):
        self._most = most
        self._lock = threading.Lock()
        self._items: collections.OrderedDict[Key, Item] = (
            collections.OrderedDict())

    def put(self, key: Key, item: Item) -> None:
        """Add or replace an item; the oldest beyond the limit goes."""
        with self._lock:
            self._items.pop(key, None)
            self._items[key] = item
            if len(self._items) > self._most:
                self._items.popitem(last=False)

    def get(self, key: Key) -> Item | None:
        return self._items.get(key)

    def items(self) -> list[tuple[Key, Item]]:
        """List keys and items, the oldest first."""
        with self._lock:
            return list(self._items.items())

    def write(self, database: db_session.Database,
              items: Sequence[tuple[Key, Item]],
              save: Callable[[orm.Session, Item], None]) -> None:
        """Store items and drop them; they stay while the database is away."""
        if not items:
            return
        try:
            with database.writer(db_session.PATIENCE_S) as session:
                for _key, item in items:
                    save(session, item)
        except (exception.DatabaseUnavailable, exception.Conflict):
            return
        with self._lock:
            for key, item in items:
                if self._items.get(key) is item:
                    del self._items[key]
