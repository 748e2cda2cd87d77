# SPDX-License-Identifier: Apache-2.0

"""Writes the results of hints to the metadata of tenants' servers.

The keys begin with ``virtco.``, which no hint does: what is written here is
never read as one.
"""

from collections.abc import Callable
import logging
import time

import sqlalchemy as sa

from virtco import exception
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco.db import session as db_session
from virtco.follow import nova
from virtco.model import states
from virtco.objects import reasons

LOG = logging.getLogger(__name__)

#: Servers that are written in one turn; the others wait for the next.
MOST_A_TURN = 100
#: Longest metadata value in Nova.
MOST_CHARS = 255
#: Time for which a launch without a plan is told: Nova refuses metadata while
#: a server is built, and for good when the build fails.
UNPLANNED_S = 3600.0


class Feedback:
    """Metadata written to servers, remembered until the process ends."""

    def __init__(self, database: db_session.Database, writer: nova.Nova,
                 clock: Callable[[], float] = time.time):
        self._database = database
        self._nova = writer
        self._clock = clock
        self._written: dict[str, dict[str, str]] = {}
        self._refused: set[str] = set()
        self._is_away = False

    def turn(self) -> int:
        """Write new results; return the number of servers.

        :raises virtco.exception.DatabaseUnavailable:
        """
        wanted = self.wanted()
        self._written = {uuid: values for uuid, values
                         in self._written.items() if uuid in wanted}
        self._refused &= wanted.keys()
        # Servers that are not ready keep no other waiting.
        new = sorted(((uuid, values) for uuid, values in wanted.items()
                      if self._written.get(uuid) != values),
                     key=lambda item: item[0] in self._refused)[:MOST_A_TURN]
        n_told = 0
        for uuid, values in new:
            try:
                is_told = self._nova.set_metadata(uuid, values)
            except exception.NovaUnavailable as error:
                if not self._is_away:
                    LOG.warning('Tenants are not told on their servers: %s',
                                error)
                self._is_away = True
                # Nova may fail for this one alone: then the others go first.
                self._refused.add(uuid)
                return n_told
            if is_told:
                self._written[uuid] = values
                self._refused.discard(uuid)
                n_told += 1
            else:
                self._refused.add(uuid)
        if new and self._is_away:
            self._is_away = False
            LOG.info('Tenants are told on their servers again.')
        return n_told

    def wanted(self) -> dict[str, dict[str, str]]:
        """Return the metadata per server of the living groups, and per server
        that was lately launched with a hint but without a plan.
        """
        with self._database.reader() as session:
            members = db_groups.living_members(session)
            groups = db_groups.living_by_id(session)
            coflows: dict[str | None, list[models.Coflow]] = {}
            for coflow in session.scalars(sa.select(models.Coflow).options(
                    *records.WITHOUT_MATRIX).join(
                        models.Group,
                        models.Group.id == models.Coflow.group_id).where(
                            models.Group.retired_at.is_(None)).order_by(
                                models.Coflow.position)):
                coflows.setdefault(coflow.group_id, []).append(coflow)
            unplanned = records.latest_events(
                session, (reasons.IGNORED, reasons.NEUTRAL),
                self._clock() - UNPLANNED_S)
        found = {uuid: {'virtco.why': _shortened(
            reasons.of_unplanned(event.kind, event.detail))}
            for uuid, event in unplanned.items()}
        # A later hint of the server may have been taken.
        return found | {member.instance_uuid: _values(
            groups[member.group_id], member,
            coflows.get(member.group_id, ()))
            for member in members if member.instance_uuid is not None
            and member.state == states.MemberState.RUNNING
            and member.group_id in groups}


def _values(group: models.Group, member: models.Member,
            coflows: 'list[models.Coflow] | tuple[()]') -> dict[str, str]:
    """Return the metadata that tell a server's owner of its group."""
    found = {'virtco.group': group.name, 'virtco.row': str(member.row_index)}
    for name, times in (
            ('virtco.planned_cct_s', [c.cct_s for c in coflows]),
            ('virtco.measured_cct_s', [c.measured_cct_s for c in coflows])):
        if any(time_s is not None for time_s in times):
            found[name] = ','.join('' if time_s is None else f'{time_s:.3f}'
                                   for time_s in times)
    if coflows:
        found['virtco.why'] = ', '.join(reasons.of_coflow(
            c.cct_s, c.measured_cct_s, c.why) for c in coflows)
    return {key: _shortened(value) for key, value in found.items()}


def _shortened(value: str) -> str:
    return (value if len(value) <= MOST_CHARS
            else value[:MOST_CHARS - 3] + '...')
