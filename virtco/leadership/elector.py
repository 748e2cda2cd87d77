# SPDX-License-Identifier: Apache-2.0

"""Takes over when nobody leads, and notices when somebody else does.

The leader counts up a number in the database. Who sees that number stand still
for as long as the lease may take over, and for half as long who also holds
the lock: taking over counts up the epoch if nothing changed meanwhile, so that
exactly one of many succeeds. No clocks are compared.
"""

from collections.abc import Callable
import contextlib
import logging
import threading
import time

from sqlalchemy import orm

from virtco import exception
from virtco.db import leader
from virtco.db import session as db_session
from virtco.leadership import lock as locks

LOG = logging.getLogger(__name__)


class Elector:
    """
    :param address: where the peers of this process find it.
    :param on_lead: is called with the epoch when this process leads.
    :param on_deposed: is called when it does not lead any more.
    :ivar epoch: None until this process leads.
    """

    def __init__(self, database: db_session.Database, lock: locks.Lock,
                 lease_s: float, address: Callable[[], str],
                 on_lead: Callable[[int], None],
                 on_deposed: Callable[[], None],
                 clock: Callable[[], float] = time.monotonic):
        self.epoch: int | None = None
        self._database = database
        self._lock = lock
        self._lease_s = lease_s
        self._address = address
        self._on_lead = on_lead
        self._on_deposed = on_deposed
        self._clock = clock
        self._seen: leader.Seen | None = None
        self._still_since_s = 0.0
        self._tried_s = clock()
        self._is_over = self._is_starting = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name='elector',
                                        daemon=True)

    def start(self) -> None:
        """Take over at once if nobody else is there.

        :raises virtco.exception.Invalid: for a lock service that is none.
        :raises Exception: whatever keeps this process from leading.
        """
        self._is_starting = True
        self._lock.start()
        self._look()
        self._is_starting = False
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
        if self.is_current() and self.epoch is not None:
            with contextlib.suppress(exception.VirtcoException), (
                    self._database.writer()) as session:
                leader.resign(session, self.epoch)
        self._lock.close()

    def is_current(self) -> bool:
        """Whether this process leads, as far as it can know: one that stood
        still for a lease has to look first.
        """
        return (self.epoch is not None and not self._is_over
                and self._clock() - self._tried_s <= self._lease_s)

    def check(self, session: orm.Session) -> None:
        """In the transaction of what only the leader writes.

        :raises virtco.exception.Deposed:
        """
        if self.epoch is None or self._is_over:
            raise exception.Deposed(epoch=self.epoch)
        leader.check(session, self.epoch)

    def _run(self) -> None:
        while not self._stop.wait(self._lease_s / locks.TURNS_PER_LEASE):
            self.turn()
            if self._is_over:
                return

    def turn(self) -> None:
        try:
            if self.epoch is None:
                self._look()
            else:
                self._beat(self.epoch)
        except exception.Deposed as error:
            LOG.warning('%s', error)
            self._is_over = True
            self._on_deposed()
        except exception.VirtcoException as error:
            # Whoever cannot read it does not see it stand still.
            self._seen = None
            LOG.debug('Who leads is unknown: %s', error)
        except Exception:
            LOG.exception('Who leads is unknown.')
        finally:
            self._tried_s = self._clock()

    def _beat(self, epoch: int) -> None:
        with self._database.writer() as session:
            leader.beat(session, epoch)

    def _look(self) -> None:
        with self._database.reader() as session:
            seen = leader.current(session)
        now_s = self._clock()
        if seen != self._seen:
            if self._seen is None or seen.epoch != self._seen.epoch:
                LOG.info('Epoch %d: %s leads.', seen.epoch,
                         seen.name or 'nobody')
            self._seen, self._still_since_s = seen, now_s
        if now_s - self._still_since_s >= self._patience_s(seen):
            self._take_over(seen)

    def _patience_s(self, seen: leader.Seen) -> float:
        if not self._lock.is_held():
            return self._lease_s
        # Who stopped in order has left no name, and a lock on a file is held
        # as long as its holder lives.
        at_once = not seen.name or self._lock.is_file
        return 0.0 if at_once else self._lease_s / 2

    def _take_over(self, seen: leader.Seen) -> None:
        with self._database.writer() as session:
            epoch = leader.take_over(session, seen, locks.name_of_process(),
                                     self._address())
        if epoch is None:
            return
        LOG.info('This process leads, epoch %d.', epoch)
        self._tried_s = self._clock()
        self.epoch = epoch
        try:
            self._on_lead(epoch)
        except Exception:
            if self._is_starting:
                raise
            LOG.exception('This process cannot lead.')
            raise exception.Deposed(epoch=epoch) from None
