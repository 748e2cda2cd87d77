# SPDX-License-Identifier: Apache-2.0

"""Changes of an instance's row that follow events of the instance."""

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
    """Raised to roll back a transaction that has changed nothing.

    Its new generation would be a conflict for plans under way.
    """


class Transitions:
    """Commits, moves and releases; each is idempotent.

    Events may come in any order: one that Nova sent before another that was
    applied changes nothing.
    """

    def __init__(self, database: db_session.Database,
                 clock: Callable[[], float] = time.time):
        self._database = database
        self._clock = clock

    def apply(self, change: notifications.Change,
              as_leader: bool = False) -> str | None:
        """Apply a change to the row of its instance.

        Most servers are no members; of them only the room is written down
        that they take. What is read after the generation is what other
        transactions have committed, and all lock in the same order.

        :param as_leader: whether it holds only if this process leads.
        :returns: the member's group; None if nothing of it changed.
        """
        uuid = change.instance_uuid
        with self._database.reader() as session:
            if _is_known(change, db_groups.member_of(session, uuid),
                         bookings.claim_of(session, uuid)):
                return None

        def work(session: orm.Session) -> str | None:
            db_groups.advance(session.connection())
            member = db_groups.member_of(session, uuid)
            claim = bookings.claim_of(session, uuid)
            if _is_known(change, member, claim):
                raise _Unchanged
            if isinstance(change, notifications.Begun) or (
                    member is None and isinstance(change,
                                                  notifications.Built)):
                self._claim(session, member is not None, change)
                return None
            if member is None:
                bookings.release(session, uuid)
                return None
            if self._apply(session, member, change):
                return member.group_id
            if not session.is_modified(member):
                raise _Unchanged
            return None

        run = (self._database.as_leader if as_leader
               else self._database.retried)
        try:
            return run(work)
        except _Unchanged:
            return None

    def _apply(self, session: orm.Session, member: models.Member,
               change: notifications.RowChange) -> bool:
        """Change the member; return whether that changed anything."""
        if isinstance(change, notifications.Gone):
            if change.why:
                self._note(session, member, 'build_failed', change.why)
            self._leave(session, member, change.at_s)
            db_groups.vacate(member)
            self._retire_if_empty(session, member.group_id)
            return True
        if isinstance(change, notifications.Seen):
            # Nova's word may have come since the host was heard.
            known = change.host if change.is_planned else None
            return (member.state != states.MemberState.RUNNING
                    and member.host == known
                    and self._built(session, member, change.host, {}, None))
        if _is_overtaken(member, change.at_s):
            return False
        if isinstance(change, notifications.Built):
            before = _told(member)
            member.addresses = ' '.join(change.addresses) or member.addresses
            if change.limits_bps:
                (member.egress_limit_bps,
                 member.ingress_limit_bps) = change.limits_bps
            is_new = _told(member) != before
            return self._built(session, member, change.host,
                               dict(change.flavor), change.at_s) or is_new
        if member.host is None:
            return False
        self._leave(session, member, change.at_s)
        db_groups.take_host(member)
        return True

    def _leave(self, session: orm.Session, member: models.Member,
               at_s: float | None) -> None:
        self._leave_host(session, member, at_s)
        bookings.release(session, member.instance_uuid or '')

    def _built(self, session: orm.Session, member: models.Member, host: str,
               flavor: Mapping[str, float], at_s: float | None) -> bool:
        """Let the member run on ``host``, planned or not."""
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
            # Moved or resized: the room that Nova showed is out of date.
            self._leave_host(session, member, at_s)
        member.state = states.MemberState.RUNNING
        member.host = host
        member.expires_at = None
        member.placed_at = self._clock()
        for name, value in flavor.items():
            setattr(member, name, float(value))
        return True

    def _leave_host(self, session: orm.Session, member: models.Member,
                    at_s: float | None) -> None:
        """Release a member's room on its host, also in others' bookings."""
        if (member.host is not None
                and member.state == states.MemberState.RUNNING
                and (member.placed_at is None
                     or abs(self._clock() - member.placed_at)
                     >= booking.SETTLED_S)):
            bookings.lessen_room(
                session, member.host, {
                    name: getattr(member, name) for name in booking.RESOURCES},
                0.0 if at_s is None else at_s - booking.NUMBERS_S)
        for name in bookings.ROOM:
            setattr(member, name, None)

    def _claim(self, session: orm.Session, is_member: bool,
               change: notifications.Begun | notifications.Built) -> None:
        """Book the room of a VM without a group, or of one whose build began
        where no row has its room.
        """
        until_s = self._clock() + (booking.MOVE_S if is_member
                                   else booking.NUMBERS_S)
        bookings.claim(session, change.instance_uuid, change.host,
                       dict(change.flavor), is_member, until_s)

    def _note_host(self, session: orm.Session, member: models.Member,
                   host: str) -> None:
        """Add an event about a VM on another host than before or planned."""
        if member.state == states.MemberState.RUNNING:
            kind, detail = 'moved', f'from {member.host} to {host}'
        else:
            kind = 'other_host'
            detail = f'planned for {member.host}, built on {host}'
        LOG.info('Instance %s: %s.', member.instance_uuid, detail)
        self._note(session, member, kind, detail)

    def expire(self) -> list[str]:
        """Drop reservations and claims whose time is over; the group of each
        reservation.

        A VM that was given a host keeps its row: it may only be slow, and
        Nova's notification will name its host.
        """
        with self._database.reader() as session:
            if not (db_groups.expired(session, self._clock())
                    or bookings.count_expired(session, self._clock())):
                return []
        return self._database.as_leader(self._expire)

    def _expire(self, session: orm.Session) -> list[str]:
        """Free the hosts of reservations that were not built in time.

        Returns the ids of their groups.
        """
        db_groups.advance(session.connection())
        bookings.settle_expired(session, self._clock())
        members = db_groups.expired(session, self._clock())
        for member in members:
            if member.state == states.MemberState.RESERVED:
                self._note(session, member, 'expired',
                           f'not built on {member.host} in time')
            db_groups.take_host(member)
        for group_id in {member.group_id for member in members}:
            self._retire_if_empty(session, group_id)
        return [member.group_id for member in members]

    def _retire_if_empty(self, session: orm.Session, group_id: str) -> None:
        members = db_groups.members(session, group_id)
        if any(member.instance_uuid for member in members):
            return
        group = session.get(models.Group, group_id)
        if group is not None and group.retired_at is None:
            db_groups.retire(session, group, self._clock())
            LOG.info('Group %s of project %s is retired.', group.name,
                     group.project_id)

    def _note(self, session: orm.Session, member: models.Member, kind: str,
              detail: str) -> None:
        """Add an event about a member."""
        group = session.get(models.Group, member.group_id)
        records.add_event(
            session,
            project_id=group.project_id if group is not None else '',
            group_name=group.name if group is not None else '',
            group_id=member.group_id,
            instance_uuid=member.instance_uuid or '', kind=kind,
            detail=detail[:4000], created_at=self._clock())


def _is_known(change: notifications.Change, member: models.Member | None,
              claim: models.Claim | None) -> bool:
    """Return whether the change is no news, by the rows of its instance."""
    if isinstance(change, notifications.Begun):
        if member is not None and (member.host == change.host or member.state
                                   == states.MemberState.RUNNING):
            return True
    elif member is not None:
        return False
    if isinstance(change, notifications.Begun | notifications.Built):
        return not change.flavor or (claim is not None
                                     and claim.host == change.host)
    return isinstance(change, notifications.Seen) or claim is None


def _told(member: models.Member) -> tuple[object, ...]:
    """Return the facts of Nova and Neutron on the member's ports."""
    return (member.addresses, member.egress_limit_bps,
            member.ingress_limit_bps)


def _is_overtaken(member: models.Member, at_s: float | None) -> bool:
    """Return whether a later event was applied; else note this one's time."""
    if at_s is None:
        return False
    if member.event_at is not None and at_s < member.event_at:
        return True
    member.event_at = at_s
    return False
