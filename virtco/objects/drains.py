# SPDX-License-Identifier: Apache-2.0

"""Hosts that operators empty and remove, and the history of operators'
changes.
"""

from collections.abc import Callable
import threading
import time

from sqlalchemy import orm

from virtco import exception
from virtco.db import models
from virtco.db import operators
from virtco.db import session as db_session
from virtco.state import state as states
from virtco.wire import host as host_wire
from virtco.wire import setting as wire


class Drains:
    """Drained hosts."""

    def __init__(self, state: states.State, clock: Callable[[], float]):
        self._state = state
        self._clock = clock
        self._drains: dict[str, models.Drain] = {}
        # An older read must not come after a newer one.
        self._lock = threading.Lock()

    def load(self) -> None:
        """Load the drained hosts from the database.

        :raises virtco.exception.DatabaseUnavailable:
        """
        with self._lock, self._state.database.reader() as session:
            self._drains = operators.drains(session)
            self._state.live.drained = frozenset(self._drains)

    def show(self, host: str) -> host_wire.Drained:
        """Show a host: ``draining`` while it has VMs of groups, or plans."""
        found = self._drains.get(host)
        if found is None:
            return host_wire.Drained(host=host, drain=None, drain_reason=None,
                                     drain_since=None)
        return host_wire.Drained(
            host=host, drain='draining' if self._state.live.count_members(host)
            else 'drained', drain_reason=found.reason,
            drain_since=found.drained_at)

    def drain(self, host: str, reason: str, who: str) -> None:
        """Plan no new group for the host.

        :raises virtco.exception.NotFound: for a host that is not known.
        """
        if not self._state.live.is_known(host):
            raise exception.NotFound(what='Host', id=host)
        now_s = self._clock()

        def save(session: orm.Session) -> None:
            before = session.get(models.Drain, host)
            if before is not None and before.reason == reason:
                return
            operators.add_change(
                session, who, f'host {host}',
                'in use' if before is None else f'drained: {before.reason}',
                f'drained: {reason}', now_s)
            session.merge(models.Drain(host=host, reason=reason,
                                       drained_at=now_s))

        self._save(save)

    def undrain(self, host: str, who: str) -> None:
        """Put a drained host back into use.

        :raises virtco.exception.NotFound: when it is not drained.
        """
        def save(session: orm.Session) -> None:
            before = session.get(models.Drain, host)
            if before is None:
                raise exception.NotFound(what='Drained host', id=host)
            operators.add_change(session, who, f'host {host}',
                                 f'drained: {before.reason}', 'in use',
                                 self._clock())
            session.delete(before)

        self._save(save)

    def forget(self, host: str, who: str) -> None:
        """Delete all that is known of a host; one that reports comes back.

        :raises virtco.exception.NotFound: for a host that is not known.
        :raises virtco.exception.Conflict: while VMs of groups are there or
            planned to be.
        """
        if not self._state.live.is_known(host):
            raise exception.NotFound(what='Host', id=host)
        n_vms = self._state.live.count_members(host)
        if n_vms:
            raise exception.Conflict(
                f'Host {host} has {n_vms} VMs of groups and is not forgotten.')
        self._state.forget_hosts({host})
        self._state.database.retried(lambda session: operators.add_change(
            session, who, f'host {host}', 'known', 'forgotten',
            self._clock()))

    def _save(self, save: Callable[[orm.Session], None]) -> None:
        self._state.database.retried(save)
        self.load()
        self._state.invalidate()


class History:
    """Changes of settings, hosts and topology by operators."""

    def __init__(self, database: db_session.Database,
                 clock: Callable[[], float] = time.time):
        self._database = database
        self._clock = clock

    def add(self, who: str, what: str, before: str, after: str) -> None:
        """Record a change that another transaction committed."""
        self._database.retried(lambda session: operators.add_change(
            session, who, what, before, after, self._clock()))

    def list(self, limit: int = operators.MOST_CHANGES
             ) -> list[wire.Changed]:
        """List the changes, the newest first."""
        with self._database.reader() as session:
            return [wire.Changed(
                at=change.changed_at, who=change.who, what=change.what,
                before=change.before, after=change.after)
                    for change in operators.changes(session, limit)]
