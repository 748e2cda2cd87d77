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

"""Tells tenants on their servers what became of their hints.

The keys begin with ``virtco.``, which no hint does: what is written here is
never read as one.
"""

from collections.abc import Mapping
import logging
from typing import Protocol

import sqlalchemy as sa

from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import session as db_session
from virtco import exception
from virtco.model import states

LOG = logging.getLogger(__name__)

#: Servers that are written in one turn; the others wait for the next.
MOST_A_TURN = 100
#: Of a value in Nova.
MOST_CHARS = 255


class Writer(Protocol):
    def set_metadata(self, uuid: str, values: Mapping[str, str]) -> None:
        """:raises virtco.exception.NovaUnavailable:"""
        raise NotImplementedError


class Feedback:
    """What was written is remembered until the process ends."""

    def __init__(self, database: db_session.Database, nova: Writer):
        self._database = database
        self._nova = nova
        self._written: dict[str, dict[str, str]] = {}
        self._is_away = False

    def turn(self) -> int:
        """Write what is new; to how many servers.

        :raises virtco.exception.DatabaseUnavailable:
        """
        wanted = self.wanted()
        self._written = {uuid: values for uuid, values
                         in self._written.items() if uuid in wanted}
        new = [(uuid, values) for uuid, values in wanted.items()
               if self._written.get(uuid) != values][:MOST_A_TURN]
        for uuid, values in new:
            try:
                self._nova.set_metadata(uuid, values)
            except exception.NovaUnavailable as error:
                if not self._is_away:
                    LOG.warning('Tenants are not told on their servers: %s',
                                error)
                self._is_away = True
                return 0
            self._written[uuid] = values
        if new and self._is_away:
            self._is_away = False
            LOG.info('Tenants are told on their servers again.')
        return len(new)

    def wanted(self) -> dict[str, dict[str, str]]:
        """Metadata per server of the living groups."""
        with self._database.reader() as session:
            members = db_groups.living_members(session)
            groups = {group.id: group for group in session.scalars(
                sa.select(models.Group).where(models.Group.live_key == ''))}
            coflows: dict[str | None, list[models.Coflow]] = {}
            for coflow in session.scalars(sa.select(models.Coflow).where(
                    models.Coflow.group_id.in_(list(groups))).order_by(
                        models.Coflow.position)):
                coflows.setdefault(coflow.group_id, []).append(coflow)
        return {member.instance_uuid: _values(
            groups[member.group_id], member,
            coflows.get(member.group_id, ()))
            for member in members if member.instance_uuid is not None
            and member.state == states.MemberState.RUNNING
            and member.group_id in groups}


def _values(group: models.Group, member: models.Member,
            coflows: 'list[models.Coflow] | tuple[()]') -> dict[str, str]:
    found = {'virtco.group': group.name, 'virtco.row': str(member.row_index)}
    for name, times in (
            ('virtco.planned_cct_s', [c.cct_s for c in coflows]),
            ('virtco.measured_cct_s', [c.measured_cct_s for c in coflows])):
        if any(time_s is not None for time_s in times):
            found[name] = ','.join('' if time_s is None else f'{time_s:.3f}'
                                   for time_s in times)
    return {key: value[:MOST_CHARS] for key, value in found.items()}
