# SPDX-License-Identifier: Apache-2.0

"""Operators' settings for all coflows of a project."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from sqlalchemy import orm

from virtco.db import models
from virtco.db import records
from virtco.db import session as db_session
from virtco.state import live_state
from virtco.wire import project as wire


class Projects:
    """:param state: knows what they owe.
    :param changed: is called after a change.
    :param forgiven: is told the id of a project whose debt is gone.
    """

    def __init__(self, database: db_session.Database,
                 state: live_state.LiveState, changed: Callable[[], None],
                 forgiven: Callable[[str], None] = lambda _: None):
        self._database = database
        self._state = state
        self._changed = changed
        self._forgiven = forgiven

    def find(self) -> list[wire.Project]:
        """List the projects with settings or debt."""
        with self._database.reader() as session:
            return [self._shown(found)
                    for found in records.list_projects(session)]

    def show(self, project_id: str) -> wire.Project:
        with self._database.reader() as session:
            return self._shown(records.project(session, project_id))

    def change(self, project_id: str,
               values: Mapping[str, Any]) -> wire.Project:
        """Set class or weight, of the coflows in flight too, or forgive.

        A coflow for which the operator says something else later keeps that:
        the last word counts.
        """
        if 'debt_bytes' in values:
            self._state.forgive(project_id)
            self._forgiven(project_id)

        def save(session: orm.Session) -> wire.Project:
            found = records.project(session, project_id)
            for name, value in values.items():
                setattr(found, name, value)
            shown = self._shown(session.merge(found))
            inherited = {name: value for name, value in values.items()
                         if name != 'debt_bytes'}
            if inherited:
                records.change_coflows_of(session, project_id, inherited)
            return shown

        found = self._database.retried(save)
        self._changed()
        return found

    def _shown(self, project: models.Project) -> wire.Project:
        return wire.Project(
            project_id=project.project_id,
            priority_class=project.priority_class, weight=project.weight,
            debt_bytes=self._state.debts().get(project.project_id, 0.0))
