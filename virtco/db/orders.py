# SPDX-License-Identifier: Apache-2.0

"""Ordered measurements and their findings in the database."""

from collections.abc import Collection
from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import orm

from virtco import exception
from virtco.db import models

#: Orders that are over, kept of each kind.
MOST_KEPT = 50
WAITING, RUNNING, DONE, FAILED = 'waiting', 'running', 'done', 'failed'
#: Expiry of an order that was taken up: it may wait for others before it.
NEVER_S = 1e15

_ORDER = models.Order
#: Value that differs whenever a finding was added, replaced or removed.
Signature = tuple[int, float]


def add(session: orm.Session, order: models.Order, most_live: int) -> None:
    """Add an order; delete those beyond the newest that are over.

    :raises virtco.exception.Invalid: when too many of its kind are under way.
    """
    is_live = sa.or_(_ORDER.state == RUNNING, sa.and_(
        _ORDER.state == WAITING, _ORDER.expires_at > order.ordered_at))
    live = session.scalar(sa.select(sa.func.count()).where(
        _ORDER.kind == order.kind, is_live)) or 0
    if live >= most_live:
        raise exception.Invalid(field=order.kind, value=f'{live} under way',
                                limit=f'fewer than {most_live}')
    session.add(order)
    old = session.scalars(sa.select(_ORDER.id).where(
        _ORDER.kind == order.kind, ~is_live).order_by(
            _ORDER.ordered_at.desc()).offset(MOST_KEPT)).all()
    if old:
        session.execute(sa.delete(_ORDER).where(_ORDER.id.in_(old)))


def get(session: orm.Session, order_id: str, kind: str
        ) -> models.Order | None:
    """Return an order of a kind; None without one."""
    found = session.get(_ORDER, order_id)
    return found if found is not None and found.kind == kind else None


def find(session: orm.Session, which: sa.ColumnElement[bool]
         ) -> list[models.Order]:
    """List orders, the newest last."""
    return list(session.scalars(sa.select(_ORDER).where(which).order_by(
        _ORDER.ordered_at, _ORDER.id)))


def save(session: orm.Session, order_id: str, state: str, document: str
         ) -> None:
    """Store the progress of an order that a leader took up."""
    session.execute(sa.update(_ORDER).where(_ORDER.id == order_id).values(
        state=state, document=document, expires_at=NEVER_S))


def restart(session: orm.Session) -> None:
    """Reset running orders to waiting after a change of the leader."""
    session.execute(sa.update(_ORDER).where(
        _ORDER.state == RUNNING).values(state=WAITING, expires_at=NEVER_S))


def signature(session: orm.Session) -> Signature:
    """Return a value that changes with each change of the findings."""
    count, found_at = session.execute(sa.select(
        sa.func.count(), sa.func.max(models.Finding.found_at))).one()
    return count, found_at or 0.0


def findings(session: orm.Session) -> list[models.Finding]:
    """List all findings, by host or switch and then by kind."""
    return list(session.scalars(sa.select(models.Finding).order_by(
        models.Finding.subject, models.Finding.kind)))


def replace_findings(session: orm.Session, subjects: Collection[str],
                     found: Iterable[models.Finding]) -> None:
    """Replace all findings about the subjects."""
    for name in subjects:
        session.execute(sa.delete(models.Finding).where(
            models.Finding.subject == name))
    session.add_all(found)
