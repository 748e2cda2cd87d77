# SPDX-License-Identifier: Apache-2.0

"""Bookings on hosts: rows of members, and claims apart from them."""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import orm

from virtco.db import models
from virtco.db import session as db_session
from virtco.model import booking
from virtco.model import states

_TABLES = models.Base.metadata.tables
_MEMBERS, _CLAIMS = _TABLES['members'].c, _TABLES['claims'].c
#: Columns of the room that Nova showed, in the order of a demand's resources.
ROOM = ('room_vcpus', 'room_memory_mb', 'room_disk_gb')

_IS_SETTLED = sa.and_(
    _MEMBERS.state == states.MemberState.RUNNING,
    # A clock that was set back makes nothing young for long.
    sa.or_(_MEMBERS.placed_at.is_(None),
           _MEMBERS.placed_at <= sa.bindparam('since_s'),
           _MEMBERS.placed_at >= sa.bindparam('until_s')))
_IS_PLANNED = _MEMBERS.state == states.MemberState.PLANNED
_COUNTS = ~sa.and_(
    _MEMBERS.group_id == sa.bindparam('group_id'), sa.or_(
        _MEMBERS.row_index == sa.bindparam('row_index', type_=sa.Integer),
        _MEMBERS.state == sa.bindparam('anew')))
_IS_YOUNG = sa.or_(_MEMBERS.expires_at > 0,  # not null, by the index
                   _MEMBERS.placed_at > sa.bindparam('since_s'))


def _sums(columns: Any, *conditions: sa.ColumnElement[bool]) -> list[Any]:
    return [sa.func.sum(sa.case((sa.and_(*conditions), columns[name]),
                                else_=0.0)) for name in booking.RESOURCES]


_NEVER = sa.false()
_OF_MEMBERS = sa.select(
    _MEMBERS.host, *_sums(_MEMBERS, _COUNTS, _IS_SETTLED),
    *_sums(_MEMBERS, _COUNTS, ~_IS_SETTLED, ~_IS_PLANNED),
    *_sums(_MEMBERS, _COUNTS, _IS_PLANNED),
    *(sa.func.max(sa.case((~_IS_SETTLED, _MEMBERS[name])))
      for name in ROOM)).group_by(_MEMBERS.host)
_OF_CLAIMS = sa.select(
    _CLAIMS.host, *_sums(_CLAIMS, _NEVER),
    *(sa.func.sum(_CLAIMS[name]) for name in booking.RESOURCES),
    *_sums(_CLAIMS, _NEVER),
    *(sa.func.max(sa.case((_NEVER, _CLAIMS[name])))
      for name in booking.RESOURCES)).where(
        _CLAIMS.instance_uuid != sa.bindparam('instance_uuid')).group_by(
            _CLAIMS.host)
_HOSTS: sa.BindParameter[Any] = sa.bindparam('hosts')
_OF_HOSTS = sa.union_all(_OF_MEMBERS.where(_MEMBERS.host.in_(_HOSTS)),
                         _OF_CLAIMS.where(_CLAIMS.host.in_(_HOSTS)))
#: The same for one host: a list is written into the statement each time.
_OF_HOST = db_session.Prepared(sa.union_all(
    _OF_MEMBERS.where(_MEMBERS.host == _HOSTS),
    _OF_CLAIMS.where(_CLAIMS.host == _HOSTS)))
_OF_ALL = sa.union_all(
    _OF_MEMBERS.where(_MEMBERS.host.in_(sa.select(_MEMBERS.host).where(
        _MEMBERS.host.is_not(None), _IS_YOUNG))), _OF_CLAIMS)
#: The same in one row: Python lets other threads run at each row of SQLite,
#: and waits for its turn again.
_OF_ALL_AT_ONCE = db_session.Prepared(sa.select(sa.func.json_group_array(
    sa.func.json_array(*_OF_ALL.subquery().c))))


@dataclasses.dataclass(frozen=True, slots=True)
class Beside:
    """Bookings to leave out, since the caller replaces them.

    :ivar row_index: row of the member in question.
    :ivar plans: likewise all members of its group without a VM.
    :ivar instance_uuid: id of the VM that may be on its way to a host.
    """

    group_id: str = ''
    row_index: int = -1
    plans: bool = False
    instance_uuid: str = ''


def ledger(connection: sa.Connection, now_s: float,
           shown: Mapping[str, booking.Vector],
           hosts: Collection[str] | None = None, beside: Beside = Beside()
           ) -> booking.Ledger:
    """Sum the bookings of each host.

    :param shown: free capacity per host, as Nova says.
    :param hosts: hosts to read; None: all but those on which Nova's numbers
        are right.
    """
    chosen = shown if hosts is None else {
        host: shown[host] for host in hosts if host in shown}
    accounts: dict[str, booking.Account] = {}
    if chosen:
        values = {
            'since_s': now_s - booking.SETTLED_S,
            'until_s': now_s + booking.SETTLED_S, 'group_id': beside.group_id,
            'row_index': beside.row_index,
            'anew': states.MemberState.PLANNED if beside.plans else '',
            'instance_uuid': beside.instance_uuid}
        rows: Any
        if hosts is not None:
            host, *more = chosen
            rows = (connection.execute(
                _OF_HOSTS, values | {'hosts': [host, *more]}) if more else
                _OF_HOST.run(connection, values | {'hosts': host}))
        elif connection.dialect.name == 'sqlite':
            rows = msgspec.json.decode(_OF_ALL_AT_ONCE.run(
                connection, values).scalar_one())
        else:
            rows = connection.execute(_OF_ALL, values)
        for row in rows:
            if row[0] in chosen:
                account = _account(row)
                accounts[row[0]] = (accounts[row[0]] + account
                                    if row[0] in accounts else account)
    return booking.Ledger(accounts, chosen)


def _account(row: Any) -> booking.Account:
    n = len(booking.RESOURCES)
    settled, claimed, planned, room = (
        tuple(row[1 + n * i:1 + n * (i + 1)]) for i in range(4))
    return booking.Account(settled, claimed, planned,
                           None if None in room else room)


def claim(session: orm.Session, instance_uuid: str, host: str,
          demand: Mapping[str, float | None], is_member: bool, until_s: float
          ) -> None:
    """Book a VM's resources on a host apart from the rows of members."""
    session.merge(models.Claim(
        instance_uuid=instance_uuid, host=host, is_member=is_member,
        expires_at=until_s,
        **{name: demand[name] for name in booking.RESOURCES}))


def claim_of(session: orm.Session, instance_uuid: str
             ) -> models.Claim | None:
    """Read the instance's claim; None without one."""
    return session.get(models.Claim, instance_uuid)


def release(session: orm.Session, instance_uuid: str) -> None:
    """End the VM's claim, if it has one; flushes nothing."""
    session.connection().execute(sa.delete(_TABLES['claims']).where(
        _CLAIMS.instance_uuid == instance_uuid))


def count_expired(session: orm.Session, before_s: float) -> int:
    """Count the claims that expired before that time."""
    return session.scalar(sa.select(sa.func.count()).where(
        models.Claim.expires_at < before_s)) or 0


def settle_expired(session: orm.Session, now_s: float) -> None:
    """End claims that expired.

    A VM without a group becomes Nova's own. Its claim is kept without demand,
    so that word of its build does not count it twice.
    """
    claims = session.scalars(sa.select(models.Claim).where(
        models.Claim.expires_at < now_s).order_by(models.Claim.instance_uuid))
    for found in claims:
        demand = {name: getattr(found, name) for name in booking.RESOURCES}
        if found.is_member or not any(demand.values()):
            session.delete(found)
            continue
        lessen_room(session, found.host, demand)
        found.expires_at = now_s + booking.MOVE_S
        for name in booking.RESOURCES:
            setattr(found, name, 0.0)


def lessen_room(session: orm.Session, host: str,
                demand: Mapping[str, float], since_s: float = 0.0) -> None:
    """Reduce the free room that young bookings on a host remember.

    A settled member left, which Nova's numbers may have shown as free before
    we knew; or a VM without a group came.

    :param since_s: bookings before that time keep theirs.
    """
    session.execute(sa.update(models.Member).where(
        models.Member.host == host,
        sa.or_(models.Member.placed_at.is_(None),
               models.Member.placed_at >= since_s),
        models.Member.room_vcpus.is_not(None)).values({
            room: _MEMBERS[room] - demand[name]
            for room, name in zip(ROOM, booking.RESOURCES)}))
