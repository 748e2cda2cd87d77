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
    """Takes back the generation of a transaction that changes nothing."""


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
        host = getattr(change, 'host', None)
        flavor = dict(getattr(change, 'flavor', ()))
        with self._database.reader() as session:
            if db_groups.member_of(session, uuid) is None and (
                    host and not flavor
                    or bookings.claimed_host(session, uuid) == host):
                return None

        def work(session: orm.Session) -> str | None:
            db_groups.advance(session.connection())
            member = db_groups.member_of(session, uuid)
            if member is None:
                self._change_other(session, uuid, host, flavor)
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
               change: notifications.Change) -> bool:
        """Change the member; return whether that changed anything."""
        if isinstance(change, notifications.Gone):
            if change.why:
                self._note(session, member, 'build_failed', change.why)
            self._leave(session, member)
            db_groups.vacate(member)
            self._retire_if_empty(session, member.group_id)
            return True
        if isinstance(change, notifications.Seen):
            # Nova's word may have come since the host was heard.
            known = change.host if change.is_planned else None
            return (member.state != states.MemberState.RUNNING
                    and member.host == known
                    and self._built(session, member, change.host, {}))
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
                               dict(change.flavor)) or is_new
        if member.host is None:
            return False
        self._leave(session, member)
        db_groups.take_host(member)
        return True

    def _leave(self, session: orm.Session, member: models.Member) -> None:
        self._leave_host(session, member)
        bookings.release(session, member.instance_uuid or '')

    def _built(self, session: orm.Session, member: models.Member, host: str,
               flavor: Mapping[str, float]) -> bool:
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
                      host: str | None, flavor: Mapping[str, float]) -> None:
        """Claim the room of a VM without a group, which Nova's numbers may
        lack.
        """
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

    def expire(self) -> list[str]:
        """Drop reservations and claims whose time is over; the group of each
        reservation.

        A VM that was given a host keeps its row: it may only be slow, and
        Nova's notification will name its host.
        """
        with self._database.reader() as session:
            if not (db_groups.expired(session, self._clock())
                    or bookings.count_expired(session, self._claims_end_s())):
                return []
        return self._database.as_leader(self._expire)

    def _expire(self, session: orm.Session) -> list[str]:
        bookings.forget_expired(session, self._claims_end_s())
        members = db_groups.expired(session, self._clock())
        if not members:
            return []
        db_groups.advance(session.connection())
        for member in members:
            if member.state == states.MemberState.RESERVED:
                self._note(session, member, 'expired',
                           f'not built on {member.host} in time')
            db_groups.take_host(member)
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
        group = session.get(models.Group, group_id)
        if group is not None and group.retired_at is None:
            db_groups.retire(session, group, self._clock())
            LOG.info('Group %s of project %s is retired.', group.name,
                     group.project_id)

    def _note(self, session: orm.Session, member: models.Member, kind: str,
              detail: str) -> None:
        group = session.get(models.Group, member.group_id)
        records.add_event(
            session,
            project_id=group.project_id if group is not None else '',
            group_name=group.name if group is not None else '',
            group_id=member.group_id,
            instance_uuid=member.instance_uuid or '', kind=kind,
            detail=detail[:4000], created_at=self._clock())


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


def purge(database: db_session.Database, before_s: float) -> dict[str, int]:
    """Delete groups and coflows that ended before that time."""
    return database.retried(lambda session: records.purge(session, before_s))
