# SPDX-License-Identifier: Apache-2.0

"""What happens to an instance happens to its row."""

from collections.abc import Callable
from collections.abc import Mapping
import logging
import time

from sqlalchemy import orm

from virtco.db import bookings
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco.db import session as db_session
from virtco.follow import notifications
from virtco.model import booking
from virtco.model import states

LOG = logging.getLogger(__name__)


class _Unchanged(Exception):
    """Takes back the generation of a transaction that changes nothing."""


class Transitions:
    """Commits, moves and releases; each is idempotent.

    Events may come in any order: one that Nova sent before another that was
    applied changes nothing. All return the id of the group in which something
    changed, or None, so that the caller knows to compute the policies anew.

    :param fence: is called in each transaction, and may raise.
    """

    def __init__(self, database: db_session.Database,
                 clock: Callable[[], float] = time.time,
                 fence: Callable[[orm.Session], None] = lambda _: None):
        self._database = database
        self._clock = clock
        self._fence = fence

    def apply(self, change: notifications.Change) -> str | None:
        match change:
            case notifications.Built():
                return self.built(change.instance_uuid, change.host,
                                  dict(change.flavor), change.at_s)
            case notifications.OffHost():
                return self.off_host(change.instance_uuid, change.at_s)
            case notifications.Gone():
                return self.gone(change.instance_uuid, change.why)

    def built(self, instance_uuid: str, host: str,
              flavor: Mapping[str, float] | None = None,
              at_s: float | None = None) -> str | None:
        """Note that an instance runs on ``host``, planned or not.

        :param at_s: when Nova sent it; None counts as the latest.
        """
        return self._changed(
            instance_uuid, lambda session, member: self._built(
                session, member, host, flavor or {}, at_s), host, flavor)

    def _changed(self, instance_uuid: str,
                 change: Callable[[orm.Session, models.Member], bool],
                 host: str | None = None,
                 flavor: Mapping[str, float] | None = None) -> str | None:
        """The member's group, if ``change`` says that it changed it.

        Most servers are no members; of them only the room is written down
        that they take. What is read after the generation is what other
        transactions have committed, and all lock in the same order.

        :param host: where it runs; None: nowhere.
        """
        with self._database.reader() as session:
            if db_groups.member_of(session, instance_uuid) is None and (
                    host and not flavor
                    or bookings.claimed_host(session, instance_uuid) == host):
                return None

        def work(session: orm.Session) -> str | None:
            self._fence(session)
            db_groups.advance(session)
            member = db_groups.member_of(session, instance_uuid)
            if member is None:
                self._change_other(session, instance_uuid, host, flavor)
                return None
            if change(session, member):
                return member.group_id
            if not session.is_modified(member):
                raise _Unchanged
            return None

        try:
            return self._database.retried(work)
        except _Unchanged:
            return None

    def _built(self, session: orm.Session, member: models.Member, host: str,
               flavor: Mapping[str, float], at_s: float | None) -> bool:
        if _is_overtaken(member, at_s):
            return False
        bookings.release(session, member.instance_uuid or '')
        if (member.state == states.MemberState.RUNNING
                and member.host == host
                and all(getattr(member, name) == value
                        for name, value in flavor.items())):
            return False
        if member.host != host:
            self._note_host(session, member, host)
        if (member.host != host
                or member.state == states.MemberState.RUNNING):
            # It moved or was resized: the room is that of long ago.
            self._leave_host(session, member)
        member.state = states.MemberState.RUNNING
        member.host = host
        member.expires_at = None
        member.placed_at = self._clock()
        for name, value in flavor.items():
            setattr(member, name, float(value))
        return True

    def _leave_host(self, session: orm.Session,
                    member: models.Member) -> None:
        if (member.host is not None
                and member.state == states.MemberState.RUNNING
                and (member.placed_at is None
                     or abs(self._clock() - member.placed_at)
                     >= booking.SETTLED_S)):
            bookings.lessen_room(session, member.host, {
                name: getattr(member, name) for name in bookings.DEMAND})
        for name in bookings.ROOM:
            setattr(member, name, None)

    def _change_other(self, session: orm.Session, instance_uuid: str,
                      host: str | None, flavor: Mapping[str, float] | None
                      ) -> None:
        """A VM without a group takes room that Nova's numbers may lack."""
        bookings.release(session, instance_uuid)
        if host is not None and flavor:
            bookings.claim(session, instance_uuid, host, flavor, False,
                           self._clock() + booking.OTHERS_S)
            bookings.lessen_room(session, host, flavor)

    def _note_host(self, session: orm.Session, member: models.Member,
                   host: str) -> None:
        if member.state == states.MemberState.RUNNING:
            kind, detail = 'moved', f'from {member.host} to {host}'
        else:
            kind = 'other_host'
            detail = f'planned for {member.host}, built on {host}'
        LOG.info('Instance %s: %s.', member.instance_uuid, detail)
        self._note(session, member, kind, detail)

    def gone(self, instance_uuid: str, why: str = '') -> str | None:
        """Free the row of a deleted instance; a group without VMs is over.

        :param why: recorded as an event when it is given.
        """
        return self._changed(
            instance_uuid,
            lambda session, member: self._gone(session, member, why))

    def _gone(self, session: orm.Session, member: models.Member,
              why: str) -> bool:
        if why:
            self._note(session, member, 'build_failed', why)
        self._leave_host(session, member)
        bookings.release(session, member.instance_uuid or '')
        db_groups.vacate(member)
        self._retire_if_empty(session, member.group_id)
        return True

    def off_host(self, instance_uuid: str,
                 at_s: float | None = None) -> str | None:
        """Note that an instance exists on no host (shelved) and keeps its row.

        :param at_s: as of :meth:`built`.
        """
        return self._changed(
            instance_uuid,
            lambda session, member: self._off_host(session, member, at_s))

    def _off_host(self, session: orm.Session, member: models.Member,
                  at_s: float | None) -> bool:
        if _is_overtaken(member, at_s) or member.host is None:
            return False
        self._leave_host(session, member)
        bookings.release(session, member.instance_uuid or '')
        member.state = states.MemberState.VACANT
        member.host = None
        member.expires_at = None
        return True

    def expire(self, fence: Callable[[orm.Session], None] = lambda _: None
               ) -> list[str]:
        """Drop reservations and claims whose time is over; the group of each
        reservation.

        :param fence: is called in the transaction, and may raise.

        A VM that was given a host keeps its row: it may only be slow, and
        Nova's notification will name its host.
        """
        with self._database.reader() as session:
            if not (db_groups.expired(session, self._clock())
                    or bookings.count_expired(session, self._claims_end_s())):
                return []
        return self._database.retried(
            lambda session: self._expire(session, fence))

    def _expire(self, session: orm.Session,
                fence: Callable[[orm.Session], None]) -> list[str]:
        fence(session)
        bookings.forget_expired(session, self._claims_end_s())
        members = db_groups.expired(session, self._clock())
        if not members:
            return []
        db_groups.advance(session)
        for member in members:
            if member.state == states.MemberState.RESERVED:
                self._note(session, member, 'expired',
                           f'not built on {member.host} in time')
            member.state = states.MemberState.VACANT
            member.host = None
            member.expires_at = None
        for group_id in {member.group_id for member in members}:
            self._retire_if_empty(session, group_id)
        return [member.group_id for member in members]

    def _claims_end_s(self) -> float:
        # Clocks of processes differ.
        return self._clock() - booking.SETTLED_S

    def _retire_if_empty(self, session: orm.Session, group_id: str) -> None:
        members = db_groups.members(session, group_id)
        if any(member.instance_uuid for member in members):
            return
        group = db_groups.get(session, group_id)
        if group is not None and group.retired_at is None:
            db_groups.retire(session, group, self._clock())
            LOG.info('Group %s of project %s is retired.', group.name,
                     group.project_id)

    def _note(self, session: orm.Session, member: models.Member, kind: str,
              detail: str) -> None:
        group = db_groups.get(session, member.group_id)
        records.add_event(
            session,
            project_id=group.project_id if group is not None else '',
            group_name=group.name if group is not None else '',
            group_id=member.group_id,
            instance_uuid=member.instance_uuid or '', kind=kind,
            detail=detail[:4000], created_at=self._clock())


def _is_overtaken(member: models.Member, at_s: float | None) -> bool:
    """Whether an event later than this one was applied; else it is noted."""
    if at_s is None:
        return False
    if member.event_at is not None and at_s < member.event_at:
        return True
    member.event_at = at_s
    return False


def purge(database: db_session.Database, before_s: float) -> dict[str, int]:
    """Delete what ended before that time."""
    return database.retried(lambda session: records.purge(session, before_s))
