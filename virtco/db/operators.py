# SPDX-License-Identifier: Apache-2.0

"""Actions of operators: drained hosts, and a history of changes."""

import sqlalchemy as sa
from sqlalchemy import orm

from virtco.db import models
from virtco.db import records

#: Changes that are kept.
MOST_CHANGES = 1000


def drains(session: orm.Session) -> dict[str, models.Drain]:
    """Read the drained hosts, by name."""
    return {drain.host: drain
            for drain in session.scalars(sa.select(models.Drain))}


def add_change(session: orm.Session, who: str, what: str, before: str,
               after: str, now_s: float) -> None:
    """Note a change and drop the oldest beyond :data:`MOST_CHANGES`."""
    change = models.Change
    session.add(change(changed_at=now_s, who=who[:255], what=what[:320],
                       before=before[:4000], after=after[:4000]))
    records.drop_oldest(session, change.id, MOST_CHANGES)


def changes(session: orm.Session, limit: int) -> list[models.Change]:
    """List changes, the newest first."""
    return list(session.scalars(sa.select(models.Change).order_by(
        models.Change.id.desc()).limit(limit)))
