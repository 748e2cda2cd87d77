# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What operators did: drained hosts, and a history of changes."""

import sqlalchemy as sa
from sqlalchemy import orm

from virtco.db import models

#: Changes that are kept.
MOST_CHANGES = 1000


def drains(session: orm.Session) -> dict[str, models.Drain]:
    return {drain.host: drain
            for drain in session.scalars(sa.select(models.Drain))}


def add_change(session: orm.Session, who: str, what: str, before: str,
               after: str, now_s: float) -> None:
    """Note a change and drop the oldest beyond :data:`MOST_CHANGES`."""
    change = models.Change
    session.add(change(changed_at=now_s, who=who[:255], what=what[:320],
                       before=before[:4000], after=after[:4000]))
    session.flush()
    oldest = session.scalar(sa.select(change.id).order_by(
        change.id.desc()).offset(MOST_CHANGES).limit(1))
    if oldest is not None:
        session.execute(sa.delete(change).where(change.id <= oldest))


def changes(session: orm.Session, limit: int) -> list[models.Change]:
    """The newest first."""
    return list(session.scalars(sa.select(models.Change).order_by(
        models.Change.id.desc()).limit(limit)))
