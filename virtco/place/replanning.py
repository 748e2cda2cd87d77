# SPDX-License-Identifier: Apache-2.0

"""Rows that are planned and not asked about, planned again with a new group.

Servers that are created one after another leave such rows. After a launch, and
outside of it, the groups that have some are planned together. Their rows move
where the sum of completion times falls. Nova's questions go first: a row that
is asked about meanwhile keeps its host, and the change is dropped as a whole.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import logging
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from virtco import exception
from virtco.db import bookings
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.model import booking
from virtco.model import cluster
from virtco.model import snapshot
from virtco.model import states
from virtco.objects import settings
from virtco.place import commit
from virtco.place import deadline as deadlines
from virtco.place import decisions
from virtco.place import membership
from virtco.place import newest
from virtco.place import problem as problem_builder
from virtco.place import question as requests
from virtco.solver import together
from virtco.state import state as known
from virtco.wire import placement as wire

LOG = logging.getLogger(__name__)

#: Groups planned together at most.
MOST_GROUPS = 8
#: Age of a group from which on its rows stay.
MOST_AGE_S = 120.0
#: Age of the newest request from which on the room that it tells is not used.
#: Claims end after :data:`virtco.model.booking.NUMBERS_S`.
MOST_SHOWN_S = 2.0
#: Time of one search.
BUDGET_S = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """Group of which Nova has not been told all hosts.

    :ivar problem: problem of its plan.
    :ivar rows: row of each of the problem's VMs.
    :ivar told: rows whose hosts an answer told: Nova may use them unasked.
    :ivar members: members by row, as they are now.
    """

    id: str
    coflow_ids: tuple[str, ...]
    problem: snapshot.PlacementProblem
    rows: tuple[int, ...]
    told: frozenset[int]
    at_s: float
    members: Mapping[int, models.Member] = dataclasses.field(
        default_factory=dict)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each VM."""
        return tuple(self.members[row].host or '' for row in self.rows)

    @property
    def movable(self) -> tuple[bool, ...]:
        """Whether each VM may move."""
        return tuple(
            row not in self.told
            and self.members[row].state == states.MemberState.PLANNED
            for row in self.rows)

    def vms(self, drained: frozenset[str]) -> tuple[cluster.Vm, ...]:
        """Pin the VMs that stay; the others may go to no drained host."""
        return tuple(
            dataclasses.replace(vm, allowed=(
                vm.allowed or frozenset()) - drained | {host})
            if may_move else dataclasses.replace(
                vm, pinned=host, counted=True, allowed=None)
            for host, vm, may_move in zip(self.hosts, self.problem.vms,
                                          self.movable))


@dataclasses.dataclass(frozen=True, slots=True)
class _Move:
    """Move of a row to another host."""

    group_id: str
    row: int
    demand: booking.Vector
    host: str
    to_host: str

    def update(self, host_now: str | None, **values: Any) -> sa.Update:
        """Build an update of the row, if it is unasked and on that host."""
        return sa.update(models.Member).where(
            models.Member.group_id == self.group_id,
            models.Member.row_index == self.row,
            models.Member.instance_uuid.is_(None),
            models.Member.state == states.MemberState.PLANNED,
            models.Member.host == host_now).values(**values)


class Replanning:
    """Planner of the newest groups' rows that Nova has not asked about."""

    def __init__(self, state: known.State, settings: settings.Settings,
                 pace: deadlines.Pace, decisions: decisions.Decisions,
                 clock: Callable[[], float] = time.time):
        self._database = state.database
        self._live = state.live
        self._settings = settings
        self._pace = pace
        self._decisions = decisions
        self._clock = clock
        self._groups: newest.Newest[str, _Group] = newest.Newest(
            MOST_GROUPS)
        self._request: tuple[wire.Placement, float] | None = None

    def keep(self, request: wire.Placement, view: membership.View,
             problem: snapshot.PlacementProblem, rows: tuple[int, ...]
             ) -> None:
        """Remember a group that was planned, for the next turn."""
        now_s = self._clock()
        told = membership.batch_rows(request, view.members, view.member)
        if not told.issuperset(rows) and not any(
                coflow.is_promised for coflow in view.coflows):
            self._groups.put(view.group.id, _Group(
                view.group.id, tuple(c.id for c in view.coflows if c.is_live),
                problem, rows, told, now_s))
        self._request = request, now_s

    def turn(self) -> Sequence[str]:
        """Plan again after a launch; return ids of groups that changed."""
        asked = self._request
        if asked is None or self._pace.n_under_way or (
                self._settings['objective'] == snapshot.Objective.ISOLATED):
            return ()
        self._request = None
        request, since_s = asked
        now_s = self._clock()
        if not 0 <= now_s - since_s <= MOST_SHOWN_S:
            return ()
        shown = requests.free(request)
        groups = self._movable(now_s)
        if not groups:
            return ()
        parts = together.again(
            self._problems(groups, shown, now_s),
            [group.hosts for group in groups],
            objective=snapshot.Objective(self._settings['objective']),
            budget_s=BUDGET_S,
            is_cancelled=lambda: self._pace.n_under_way > 0)
        moves = [] if parts is None else _moves(groups, parts)
        if parts is None or not moves:
            return ()
        try:
            with self._database.writer() as session:
                self._move(session, moves, shown)
                for group, part in zip(groups, parts):
                    commit.write_figures(session, group.id, group.coflow_ids,
                                         part.plan)
        except exception.Conflict as error:
            LOG.debug('Nothing is planned again: %s', error)
            return ()
        for group, part in zip(groups, parts):
            self._decisions.add(decisions.Decision(
                group.id, part.problem, group.rows, part.plan, {}))
        LOG.info('Planned %d rows of %d groups again.', len(moves),
                 len(groups))
        return [group.id for group in groups]

    def _movable(self, now_s: float) -> list[_Group]:
        """List groups that have rows without a question, the oldest first.

        Rows of a group that was deleted meanwhile are gone.
        """
        with self._database.reader() as session:
            found = [dataclasses.replace(group, members={
                member.row_index: member
                for member in db_groups.members(session, group_id)})
                for group_id, group in self._groups.items()
                if now_s - group.at_s < MOST_AGE_S]
        return [group for group in found
                if group.members.keys() >= set(group.rows)
                and all(group.hosts) and any(group.movable)]

    def _problems(self, groups: Sequence[_Group],
                  shown: Mapping[str, booking.Vector], now_s: float
                  ) -> list[snapshot.PlacementProblem]:
        """Build the groups' problems of now."""
        with self._database.reader() as session:
            left = bookings.ledger(session.connection(), now_s, shown).left()
        room = problem_builder.sum_by_host([*left.items(), *(
            (host, vm.demand) for group in groups
            for host, vm, may_move in zip(group.hosts, group.problem.vms,
                                          group.movable) if may_move)])
        own = {one for group in groups for one in group.coflow_ids}
        names = room.keys() | {host for group in groups
                               for host in group.hosts}
        with self._live.held():  # others forget hosts
            self._live.meet(names, now_s)
            rates = self._live.payload_rates(names, now_s,
                                             self._settings.is_fair)
            tree = self._live.payload_tree(now_s)
            loads = tuple(load for load in self._live.loads()
                          if load.coflow_id not in own)
        hosts = tuple(cluster.Host(name, room.get(name, booking.NOTHING),
                                   *rates[name]) for name in sorted(names))
        return [dataclasses.replace(
            group.problem, hosts=hosts, active=loads, tree=tree,
            vms=group.vms(self._live.drained)) for group in groups]

    def _move(self, session: orm.Session, moves: Sequence[_Move],
              shown: Mapping[str, booking.Vector]) -> None:
        """Book other hosts for rows.

        :raises virtco.exception.Conflict: when Nova asked about one, it has
            moved, or others took the room.
        """
        connection = session.connection()
        db_groups.advance(connection)
        for move in moves:
            done = connection.execute(move.update(move.host, host=None))
            if done.rowcount == 0:
                raise exception.Conflict(what='member', id=move.row)
        now_s = self._clock()
        wanted = problem_builder.sum_by_host(
            (move.to_host, move.demand) for move in moves)
        ledger = bookings.ledger(connection, now_s, shown, wanted)
        if not ledger.admits(wanted):
            raise exception.Conflict(what='room', id=min(wanted))
        for move in moves:
            connection.execute(move.update(
                None, host=move.to_host, planned_host=move.to_host,
                placed_at=now_s, **dict(zip(
                    bookings.ROOM, ledger.room(move.to_host)))))


def _moves(groups: Sequence[_Group], parts: Sequence[together.Part]
           ) -> list[_Move]:
    """List the rows whose host changes."""
    return [_Move(group.id, row, vm.demand, host, to_host)
            for group, part in zip(groups, parts)
            for row, vm, host, to_host in zip(
                group.rows, group.problem.vms, group.hosts, part.plan.hosts)
            if host != to_host]
