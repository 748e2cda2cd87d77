# SPDX-License-Identifier: Apache-2.0

"""Coflows that a tenant announces for VMs that run already.

They are coflows as those of the group's hint: ordered, shaped, policed and
shown like them. The name of one is that of one coflow of the group: who
announces it again replaces it. One whose bytes do not come is given up when
it expires.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg
from sqlalchemy import orm

from virtco import exception
from virtco import hint_matrix
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco.model import coflow as coflow_model
from virtco.objects import new_groups
from virtco.state import state as states

#: Coflows of a group, hinted and announced.
MAX_COFLOWS = hint_matrix.Limits().max_coflows


class Announcements:
    """Coflows of running VMs."""

    def __init__(self, conf: cfg.ConfigOpts, state: states.State,
                 clock: Callable[[], float]):
        self._conf = conf
        self._state = state
        self._clock = clock

    def announce(self, project_id: str | None, group: str, name: str,
                 matrix: Any, expires_s: float) -> list[str]:
        """Begin coflows over the VMs of a living group; return their ids.

        :param project_id: project of the group; None = any.
        :param group: id or name.
        :param name: name of the coflow, where the matrix has none.
        :param matrix: matrix as in ``virtco:tm``, as JSON text or decoded,
            over the rows of the group.
        :param expires_s: time from now after which an unfinished coflow is
            given up.
        :raises virtco.exception.NotFound: without such a group.
        :raises virtco.exception.HintInvalid: the matrix, or more than the
            project or the group may have.
        """
        limits = new_groups.limits_of(self._conf)
        hint_matrix.as_name('name', name, limits)
        matrices = hint_matrix.parse_matrix(matrix, name, limits)
        for one in matrices:
            if one.iterations != 1:
                raise exception.HintInvalid(
                    field='iterations', value=one.iterations,
                    limit='1 in an announced coflow')

        def save(session: orm.Session) -> tuple[str, list[str]]:
            # Two announcements at once would both take the last room, or the
            # same name. The new generation orders them: reads after it see the
            # other's commit.
            db_groups.advance(session.connection())
            found = db_groups.only_living(session, project_id, group)
            return found.id, self._save(session, found, matrices, expires_s)

        group_id, coflow_ids = self._state.database.retried(save)
        self._state.invalidate([group_id])
        return coflow_ids

    def _save(self, session: orm.Session, group: models.Group,
              matrices: Sequence[coflow_model.Coflow], expires_s: float
              ) -> list[str]:
        """Store announced coflows of a group; return their ids."""
        if matrices[0].n_vms != group.n_vms:
            raise exception.HintInvalid(
                field='tm', value=f'{matrices[0].n_vms} rows',
                limit=f'{group.n_vms} rows, as the group has')
        known = db_groups.coflows(session, group.id)
        self._make_room(session, known, {one.name for one in matrices})
        new_groups.check_project(session, self._conf, group.project_id,
                                 matrices, 0)
        now_s = self._clock()
        made = new_groups.new_coflows(session, group, matrices, now_s)
        last = max((one.position for one in known), default=-1)
        for coflow in made:
            coflow.position += last + 1
            coflow.expires_at = now_s + expires_s
        session.add_all(made)
        if ignored := hint_matrix.self_flows(matrices):
            records.add_event(
                session, project_id=group.project_id, group_name=group.name,
                group_id=group.id, kind='self_flows', detail=ignored,
                created_at=now_s)
        return [coflow.id for coflow in made]

    def _make_room(self, session: orm.Session,
                   known: Sequence[models.Coflow], names: set[str]) -> None:
        """Delete coflows of these names, and the oldest that ended."""
        kept = []
        for coflow in known:
            if coflow.expires_at is None:
                if coflow.name in names:
                    raise exception.HintInvalid(
                        field='name', value=repr(coflow.name),
                        limit="a name other than those of the group's hint")
            elif coflow.name in names:
                session.delete(coflow)
            else:
                kept.append(coflow)
        excess = len(kept) + len(names) - MAX_COFLOWS
        ended = sorted((coflow for coflow in kept if not coflow.is_live),
                       key=lambda coflow: coflow.ended_at or 0.0)
        if excess > len(ended):
            raise exception.QuotaExceeded(
                field='announced coflows of the group',
                value=len(kept) - len(ended) + len(names),
                limit=f'at most {MAX_COFLOWS}')
        for coflow in ended[:max(0, excess)]:
            session.delete(coflow)
        session.flush()
