# SPDX-License-Identifier: Apache-2.0

"""Planes of the topology in the database."""

import sqlalchemy as sa
from sqlalchemy import orm

from virtco.db import models

#: Value that differs whenever a plane was added, replaced or removed.
Signature = tuple[int, int, float]
#: Setting with the generation of the last removal.
_REMOVED = 'topology_removed'


def signature(session: orm.Session) -> Signature:
    """Return a value that changes with each change of the topology."""
    plane = models.TopologyPlane
    count, generation, changed_at = session.execute(sa.select(
        sa.func.count(), sa.func.max(plane.generation),
        sa.func.max(plane.changed_at))).one()
    removed = session.get(models.Setting, _REMOVED)
    return (count, max(generation or 0, int(removed.value) if removed else 0),
            changed_at or 0.0)


def list_planes(session: orm.Session) -> list[models.TopologyPlane]:
    """List the planes of the topology in the order of their names."""
    return list(session.scalars(sa.select(models.TopologyPlane).order_by(
        models.TopologyPlane.name)))


def save_planes(session: orm.Session, documents: dict[str, str],
                now_s: float) -> None:
    """Store planes under a new generation.

    :param documents: documents by the name of the plane.
    """
    generation = signature(session)[1] + 1
    for name, document in documents.items():
        session.merge(models.TopologyPlane(
            name=name, document=document, generation=generation,
            changed_at=now_s))


def delete_plane(session: orm.Session, name: str) -> bool:
    """Delete a plane, which is a generation; return False when there was none.
    """
    found = session.get(models.TopologyPlane, name)
    if found is not None:
        session.merge(models.Setting(
            name=_REMOVED, value=str(signature(session)[1] + 1)))
        session.delete(found)
    return found is not None
