# SPDX-License-Identifier: Apache-2.0

"""The topology as the database has it, and changes of it."""

from collections.abc import Callable
import threading
import time

import msgspec
from sqlalchemy import orm

from virtco import exception
from virtco.db import groups as db_groups
from virtco.db import session as db_session
from virtco.db import topology_rows as db_topology
from virtco.topology import changes as comparison
from virtco.topology import tree
from virtco.topology.formats import plain
from virtco.wire import topology as wire

_DECODER = msgspec.json.Decoder(wire.Plane)


class Topology:
    """Stored topology, read again when its generation changes.

    :param changed: is called when the topology is another one.
    """

    def __init__(self, database: db_session.Database,
                 changed: Callable[[], None] = lambda: None,
                 clock: Callable[[], float] = time.time):
        self._database = database
        self._changed = changed
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: tuple[db_topology.Signature | None, tree.Topology] = (
            None, tree.Topology())

    def get(self) -> tree.Topology:
        return self._seen[1]

    def generation(self) -> int:
        """Return the generation of the last change; 0 without any."""
        return self.numbered()[1]

    def numbered(self) -> tuple[tree.Topology, int]:
        """Return the topology with its own generation."""
        signature, topology = self._seen
        return topology, signature[1] if signature else 0

    def refresh(self) -> None:
        """Read the topology if somebody changed it.

        :raises virtco.exception.DatabaseUnavailable:
        """
        with self._lock, self._database.reader() as session:
            found = db_topology.signature(session)
            before = self._seen[0]
            if found == before:
                return
            planes = [plain.load_plane(_DECODER.decode(row.document))
                      for row in db_topology.list_planes(session)]
            self._seen = found, tree.Topology(tuple(planes))
        if planes or before is not None:
            self._changed()

    def would_change(self, planes: tuple[tree.Plane, ...]
                     ) -> list[wire.TopologyChange]:
        """Compare these planes with those of the same names; change nothing.

        :returns: changes that :meth:`replace` would make.
        """
        return comparison.changes(self.get(), tree.Topology(planes))

    def replace(self, planes: tuple[tree.Plane, ...],
                generation: int | None = None) -> None:
        """Keep these planes; those of other names stay.

        :param generation: generation that the caller saw; None = any.
        :raises virtco.exception.Conflict: somebody changed it meanwhile.
        """
        documents = {plane.name: msgspec.json.encode(
            plain.dump_plane(plane)).decode()
                     for plane in planes}

        def save(session: orm.Session) -> None:
            # The turn of two changes at once: the second reads the first.
            db_groups.advance(session.connection())
            if generation not in (None, db_topology.signature(session)[1]):
                raise _Overtaken()
            db_topology.save_planes(session, documents, self._clock())

        try:
            self._database.retried(save)
        except _Overtaken:
            raise exception.Conflict(
                'The topology was changed by someone else.') from None
        self.refresh()

    def delete(self, name: str) -> None:
        """Delete a plane.

        :raises virtco.exception.NotFound:
        """
        def remove(session: orm.Session) -> bool:
            db_groups.advance(session.connection())
            return db_topology.delete_plane(session, name)

        if not self._database.retried(remove):
            raise exception.NotFound(what='Plane', id=name)
        self.refresh()


class _Overtaken(exception.VirtcoException):
    """Unlike a conflict in the database, trying again does not help."""
