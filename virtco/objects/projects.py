# SPDX-License-Identifier: Apache-2.0

"""Operators' settings for all coflows of a project."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import orm

from virtco.db import models
from virtco.db import records
from virtco.state import state as states
from virtco.wire import project as wire


class Projects:
    """Priorities and debts of projects.

    :param state: room that knows their debts.
    """

    def __init__(self, state: states.State):
        self._state = state

    def find(self) -> list[wire.Project]:
        """List the projects with settings or debt."""
        with self._state.database.reader() as session:
            return [self._shown(found)
                    for found in records.list_projects(session)]

    def show(self, project_id: str) -> wire.Project:
        with self._state.database.reader() as session:
            return self._shown(records.project(session, project_id))

    def change(self, project_id: str,
               values: Mapping[str, Any]) -> wire.Project:
        """Set class or weight, of the coflows in flight too, or forgive.

        A coflow for which the operator says something else later keeps that:
        the last word counts.
        """
        def save(session: orm.Session) -> models.Project:
            found = records.project(session, project_id)
            for name, value in values.items():
                setattr(found, name, value)
            stored = session.merge(found)
            inherited = {name: value for name, value in values.items()
                         if name != 'debt_bytes'}
            if inherited:
                records.change_coflows_of(session, project_id, inherited)
            return stored

        found = self._state.database.retried(save)
        if 'debt_bytes' in values:
            self._state.live.forgive(project_id)
            self._state.forgiven(project_id)
        self._state.invalidate()
        return self._shown(found)

    def _shown(self, project: models.Project) -> wire.Project:
        return wire.Project(
            project_id=project.project_id,
            priority_class=project.priority_class, weight=project.weight,
            debt_bytes=self._state.live.debts().get(
                project.project_id, 0.0))
