# SPDX-License-Identifier: Apache-2.0

"""The row of the leading scheduler, and writes that only the leader may make.

Functions over a session; the caller owns the transaction.
"""

import dataclasses

import sqlalchemy as sa
from sqlalchemy import orm

from virtco import exception
from virtco.db import models

_ROW = models.Leader.id == 1
#: Each change of the leader is one; a typing error must not exhaust them.
MOST_RAISED = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """Leader as the database names it.

    :ivar epoch: 0 when nobody led yet.
    :ivar secret: secret of the cloud.
    """

    epoch: int
    beat: int
    name: str
    address: str
    secret: str

    @property
    def ticket_key(self) -> str:
        """See :mod:`virtco.distribute.tickets`."""
        return f'{self.epoch} {self.secret}'


def current(session: orm.Session) -> Seen:
    """Read the leader, its epoch and its beat."""
    return Seen(*session.execute(sa.select(
        models.Leader.epoch, models.Leader.beat, models.Leader.name,
        models.Leader.address, models.Cluster.secret).where(
            _ROW, models.Cluster.id == models.Leader.id)).one())


def take_over(session: orm.Session, seen: Seen, name: str,
              address: str) -> int | None:
    """Begin a new epoch; None when another process was faster or the leader
    lives.
    """
    done = session.execute(sa.update(models.Leader).where(
        _ROW, models.Leader.epoch == seen.epoch,
        models.Leader.beat == seen.beat).values(
            epoch=seen.epoch + 1, beat=0, name=name, address=address))
    return seen.epoch + 1 if done.rowcount else None  # type: ignore


def beat(session: orm.Session, epoch: int) -> None:
    """Advance the leader's heartbeat by one.

    :raises virtco.exception.Deposed: when another one leads by now.
    """
    done = session.execute(sa.update(models.Leader).where(
        _ROW, models.Leader.epoch == epoch).values(
            beat=models.Leader.beat + 1))
    if not done.rowcount:  # type: ignore[attr-defined]
        raise exception.Deposed(epoch=epoch)


def resign(session: orm.Session, epoch: int) -> None:
    """Say that nobody leads any more, if this epoch still lasts."""
    session.execute(sa.update(models.Leader).where(
        _ROW, models.Leader.epoch == epoch).values(name='', address=''))


def raise_epoch(session: orm.Session, epoch: int) -> None:
    """Depose the leader; the next epoch is above this one.

    :raises virtco.exception.Invalid: when it is not above today's.
    """
    now = current(session).epoch
    if not now < epoch <= now + MOST_RAISED:
        raise exception.Invalid(
            field='epoch', value=epoch,
            limit=f'an epoch above {now}, at most {now + MOST_RAISED}')
    session.execute(sa.update(models.Leader).where(_ROW).values(
        epoch=epoch, beat=0, name='', address=''))


def check(session: orm.Session, epoch: int) -> None:
    """Lock the leader's row until this transaction ends.

    :raises virtco.exception.Deposed: when another one leads by now.
    """
    found = session.scalar(sa.select(models.Leader.epoch).where(
        _ROW).with_for_update(read=True))
    if found != epoch:
        raise exception.Deposed(epoch=epoch)
