# SPDX-License-Identifier: Apache-2.0

"""Looks for moves of running VMs that would pay, and has Nova make them."""

import collections
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import logging
import time
from typing import Protocol

import msgspec
from oslo_config import cfg
import sqlalchemy as sa
from sqlalchemy import orm

from virtco import exception
from virtco import hints
from virtco.db import codec
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.model import booking
from virtco.model import cluster
from virtco.model import states
from virtco.objects import group_rules
from virtco.objects import settings
from virtco.place import problem as problem_builder
from virtco.place import question as requests
from virtco.place import wishes
from virtco.solver import budget as budgets
from virtco.solver import reevaluation
from virtco.state import state as known
from virtco.wire import plan as wire

LOG = logging.getLogger(__name__)

#: Iterations to come that count, of a coflow that is sent again.
MOST_ITERATIONS = 100
#: A migration that is not seen to end counts as under way for so long.
MIGRATING_S = 600.0
#: Time of one look at all groups, unless the caller gives another.
BUDGET_S = 5.0
MIB = 2 ** 20
#: Rate at which a VM writes its memory: a migration copies the memory at the
#: rate of the link less this one, and none is proposed where that is not above
#: 0. Hypervisors tell nothing of it before a migration begins.
DIRTY_BPS = 1e8
_DECODER = msgspec.json.Decoder(wire.Move)


class Mover(Protocol):
    """Client of Nova that moves servers."""

    def live_migrate(self, uuid: str, host: str) -> None:
        """Ask for the live migration of a server to a host.

        :raises virtco.exception.NovaUnavailable:
        """


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    group: models.Group
    members: list[models.Member]
    coflows: list[models.Coflow]


class Adviser:
    """Finds moves of running VMs that pay, and has Nova make them.

    :param hosts: gives what is free on each host that takes VMs.
    """

    def __init__(self, conf: cfg.ConfigOpts, state: known.State,
                 settings: settings.Settings,
                 hosts: Callable[[], Mapping[str, booking.Vector]],
                 clock: Callable[[], float] = time.time):
        self._conf = conf.reevaluation
        self._database = state.database
        self._live = state.live
        self._settings = settings
        self._hosts = hosts
        self._clock = clock

    def look(self, budget_s: float | None = None) -> list[wire.Move]:
        """Find moves that would pay now, at most one per group.

        :raises virtco.exception.Invalid: nothing is known of any host.
        :raises virtco.exception.NovaUnavailable:
        :raises virtco.exception.DatabaseUnavailable:
        """
        free = dict(self._hosts())
        budget = budgets.Budget(
            budgets.clock_of(time.monotonic),
            BUDGET_S if budget_s is None else budget_s)
        found = []
        for group in self._groups():
            if not budget.in_time():
                LOG.info('There was no time to look at every group.')
                break
            move = self._move_of(group, free, budget)
            if move is not None:
                found.append(move)
        return sorted(found, key=_rank)

    def _groups(self) -> list[_Group]:
        """List groups with running VMs: drained hosts first, then by size."""
        members: dict[str, list[models.Member]] = collections.defaultdict(list)
        coflows: dict[str | None, list[models.Coflow]] = (
            collections.defaultdict(list))
        with self._database.reader() as session:
            for member in db_groups.living_members(session):
                if (member.state == states.MemberState.RUNNING
                        and member.host is not None):
                    members[member.group_id].append(member)
            for coflow in db_groups.living_coflows(session):
                coflows[coflow.group_id].append(coflow)
            groups = db_groups.living_by_id(session)
        drained = self._live.drained
        # PostgreSQL shows each query the changes before it.
        return sorted((
            _Group(groups[group_id], found, coflows[group_id])
            for group_id, found in members.items() if group_id in groups
        ), key=lambda group: (
            not any(m.host in drained for m in group.members),
            -sum(coflow.size_bytes for coflow in group.coflows)))

    def _move_of(self, group: _Group,
                 free: dict[str, booking.Vector],
                 budget: budgets.Budget) -> wire.Move | None:
        """Find the best move of one VM of a group; None if none pays.

        The next group does not see the target's room in ``free`` any more,
        nor the room that will be free: moves may begin in any order.
        """
        members = sorted(group.members, key=lambda member: member.row_index)
        coflows = sorted(group.coflows, key=lambda coflow: coflow.position)
        now_s = self._clock()
        room = problem_builder.sum_by_host([*free.items(), *(
            (m.host or '', requests.vector(m)) for m in members)])
        with self._live.held():  # others forget hosts
            self._live.meet(room.keys(), now_s)
            rates = self._live.payload_rates(room.keys(), now_s,
                                             self._settings.is_fair)
            tree = self._live.payload_tree(now_s)
            loads = self._live.loads(group.group.id)
        rows = [m.row_index for m in members]
        problem = problem_builder.build(
            tuple(cluster.Vm(m.instance_uuid or '', requests.vector(m),
                             allowed=frozenset(room)) for m in members),
            problem_builder.among((codec.decode_coflow(coflow).scaled(
                self._live.remaining_fraction(coflow.id))
                for coflow in coflows), rows), room, rates, tree, loads)
        rules = group_rules.of_record(group.group.rules)
        hosts = tuple(m.host or '' for m in members)
        problem = group_rules.constrained(problem, rows, rules.server_groups,
                                          hosts)

        def cost_s(vm: int, source: str, target: str) -> float:
            return reevaluation.migration_s(
                members[vm].memory_mb * MIB,
                min(rates[source][0], rates[target][1]),
                DIRTY_BPS)

        drained = self._live.drained

        def best_move(kept: hints.Wishes) -> reevaluation.Move | None:
            try:
                return reevaluation.best_move(
                    wishes.constrained(problem, kept), hosts, cost_s, budget,
                    _times(coflows), drained)
            except exception.PlacementInfeasible as error:
                # Operators may put VMs where rules do not let them be.
                LOG.info('No move of group %s: %s', group.group.id, error)
                return None

        move = best_move(rules.wishes)
        if not drained.isdisjoint(hosts) and (
                move is None or move.source not in drained):
            # A preferred wish does not keep a VM on a drained host.
            move = best_move(rules.wishes.required) or move
        if move is None:
            return None
        member = members[move.vm_index]
        if move.target in free:
            free[move.target] = tuple(
                have - need for have, need in zip(free[move.target],
                                                  requests.vector(member)))
        return wire.Move(
            instance_uuid=member.instance_uuid or '', row=member.row_index,
            group=group.group.id, group_name=group.group.name,
            project_id=group.group.project_id, host=move.source,
            to_host=move.target, saved_s=move.saved_s, cost_s=move.cost_s,
            cct_s=codec.finite(move.cct_s[0]),
            then_cct_s=codec.finite(move.cct_s[1]), at=now_s,
            reason='drain' if move.source in self._live.drained
            else 'saves')

    def turn(self, mover: Mover | None) -> None:
        """Find moves, store them, and have Nova begin those it may."""
        now_s = self._clock()
        under_way = {
            move.instance_uuid: move for move in self.known()
            if move.state == 'migrating'
            and now_s - move.at < MIGRATING_S
            and self._is_there(move)}
        found = [move for move in self.look()
                 if move.instance_uuid not in under_way]
        n_begun = 0 if mover is None else max(
            0, self._conf.max_migrations - len(under_way))
        begun = [msgspec.structs.replace(move, state='migrating')
                 for move in found[:n_begun]]
        rest = [*under_way.values(), *found[n_begun:]]
        # Saved before Nova is told: only the leader can save, and the next one
        # counts the moves that were begun.
        self._save([*begun, *rest])
        told = [move if self._migrate(mover, move)
                else msgspec.structs.replace(move, state='refused')
                for move in begun if mover is not None]
        if told != begun:
            self._save([*told, *rest])

    def _save(self, moves: list[wire.Move]) -> None:
        """Replace the stored moves; only the leader may."""
        def save(session: orm.Session) -> None:
            session.execute(sa.delete(models.Advice))
            session.add_all([models.Advice(
                instance_uuid=move.instance_uuid,
                document=msgspec.json.encode(move).decode())
                for move in moves])

        self._database.as_leader(save)

    def _is_there(self, move: wire.Move) -> bool:
        """Tell whether the VM still runs on the host it was to leave."""
        with self._database.reader() as session:
            member = db_groups.member_of(session, move.instance_uuid)
            return member is not None and member.host == move.host

    def _migrate(self, mover: Mover, move: wire.Move) -> bool:
        """Ask Nova to migrate; return whether it accepted."""
        what = f'{move.instance_uuid} from {move.host} to {move.to_host}'
        try:
            mover.live_migrate(move.instance_uuid, move.to_host)
        except exception.NovaUnavailable as error:
            LOG.warning('Nova does not migrate %s: %s', what, error)
            return False
        LOG.info('Nova migrates %s: %.1f s saved for %.1f s.', what,
                 move.saved_s, move.cost_s)
        return True

    def known(self) -> list[wire.Move]:
        """Return the stored moves of the last look, the best first."""
        with self._database.reader() as session:
            found = [_DECODER.decode(row.document) for row in
                     session.scalars(sa.select(models.Advice))]
        return sorted(found, key=_rank)


def _rank(move: wire.Move) -> tuple[bool, float]:
    return move.reason != 'drain', move.cost_s - move.saved_s


def _times(coflows: list[models.Coflow]) -> float:
    """Count the iterations left, between 1 and MOST_ITERATIONS."""
    left = [MOST_ITERATIONS if coflow.iterations == 0 else
            coflow.iterations - coflow.iteration for coflow in coflows]
    return float(max(1, min(MOST_ITERATIONS, max(left, default=1))))
