# SPDX-License-Identifier: Apache-2.0

"""Takes over when nobody leads, and notices when somebody else does.

The leader counts up a number in the database. Who sees that number stand still
for as long as the lease may take over, and for half as long who also holds
the lock: taking over counts up the epoch if nothing changed meanwhile, so that
exactly one of many succeeds. No clocks are compared.

A leader that could not count for a lease may be deposed without knowing it. It
publishes nothing more, unless all its peers say that they have no database
either: then nobody can have taken over.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import logging
import threading
import time

from sqlalchemy import orm

from virtco import exception
from virtco.db import leader
from virtco.db import session as db_session
from virtco.leadership import lock as locks

LOG = logging.getLogger(__name__)

#: A takeover hangs whose thread uses less than MOVES_S of processor time in
#: HANGS_S: a connection and its first statement fail within 15 s.
HANGS_S = 20.0
MOVES_S = 0.01
#: A peer's word reaches the leader within this time.
SAID_S = 0.75


class Elector:
    """Thread that takes over when no process leads, and beats while it leads.

    :param lock: None for a process that never leads, and only looks who does.
    :param address: address at which other processes find the peers of this
        one.
    :param on_lead: is called with the epoch when this process leads.
    :param on_deposed: is called when it does not lead any more.
    :ivar epoch: None until this process leads.
    :ivar seen: leader that the database named last.
    :ivar peers: peers of this process while it leads.
    :ivar may_lead: whether it takes over when nobody leads.
    """

    def __init__(self, database: db_session.Database,
                 lock: locks.Lock | None, lease_s: float,
                 address: Callable[[], str] = lambda: '',
                 on_lead: Callable[[int], None] = lambda epoch: None,
                 on_deposed: Callable[[], None] = lambda: None,
                 clock: Callable[[], float] = time.monotonic):
        self.epoch: int | None = None
        self.seen: leader.Seen | None = None
        self.peers = Agreement(lease_s)
        self.may_lead = lock is not None
        self._database = database
        self._lock = lock
        self._lease_s = lease_s
        self._address = address
        self._on_lead = on_lead
        self._on_deposed = on_deposed
        self._clock = clock
        self._still_since_s: float | None = None
        self._asked_s = clock()
        self._had_s = self._asked_s - lease_s
        self._is_away = self._was_halted = False
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
        if self._lock is not None:
            self._lock.start()
            self._look()
        else:
            self.turn()
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
        if self._lock is not None:
            self._lock.close()

    def has_database(self) -> bool:
        """Return whether the database answered within the last lease."""
        return self._clock() - self._had_s <= self._lease_s

    def is_in_touch(self) -> bool:
        """Return whether the database answered lately. Peers tell so that it
        does not before the leader's lease ends, which began a turn earlier.
        """
        least_s = self._lease_s / 2
        return self._clock() - self._had_s <= max(least_s, self._lease_s * (
            1 - 1 / locks.TURNS_PER_LEASE) - SAID_S)

    def sees_leader(self) -> bool:
        """Return whether the last look saw another process lead: half a lease
        before it at most, in which a leader writes its beat three times.
        """
        return self.seen is not None and bool(self.seen.name) and (
            self._still_since_s is not None
            and self._had_s - self._still_since_s <= self._lease_s / 2)

    def may_be_led(self) -> bool:
        """Return whether another process was seen to lead, or may lead since
        the database does not tell.
        """
        return (self.sees_leader() or self._is_away
                or not self.is_in_touch())

    def is_answered(self) -> bool:
        """Return whether the database answered the last question, not long
        ago.
        """
        return not self._is_away and self.has_database()

    def is_current(self) -> bool:
        """Return whether this process leads, as far as it can know: a process
        that stood still for a lease looks first.
        """
        if self.epoch is None or self._is_over:
            return False
        now_s = self._clock()
        # Callers ask several times a second: a longer gap means that the
        # process was halted.
        if now_s - self._asked_s > self._lease_s:
            self._was_halted = True
        self._asked_s = now_s
        return now_s - self._had_s <= self._lease_s or (
            not self._was_halted and self.peers.have_no_database(now_s))

    def elsewhere(self) -> str | None:
        """Return the address of the process that leads, empty if it is
        unknown; None while this one does.
        """
        if self.is_current():
            return None
        seen = self.seen
        return ('' if seen is None or seen.epoch == self.epoch
                else seen.address)

    def check(self, session: orm.Session) -> None:
        """Check in a transaction that this process still leads.

        :raises virtco.exception.Deposed:
        """
        if self.epoch is None or self._is_over:
            raise exception.Deposed(epoch=self.epoch)
        leader.check(session, self.epoch)

    def _run(self) -> None:
        while not self._stop.wait(self.pause_s()):
            self.turn()
            if self._is_over:
                return

    def pause_s(self) -> float:
        """Return the time until the next turn, earlier where this process may
        take over earlier: hosts wait for their policies.
        """
        turn_s = self._lease_s / locks.TURNS_PER_LEASE
        if (self._lock is None or self.epoch is not None
                or self.seen is None or self._still_since_s is None):
            return turn_s
        left_s = (self._still_since_s - self._clock()
                  + self._patience_s(self.seen, self._lock))
        return left_s if 0 < left_s < turn_s else turn_s

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
            # A beat that cannot be read is not seen to stand still.
            self._still_since_s = None
            self._is_away = True
            LOG.debug('Who leads is unknown: %s', error)
        except Exception:
            self._is_away = True
            LOG.exception('Who leads is unknown.')
        else:
            self._is_away = False
        finally:
            self._was_halted = False

    def _beat(self, epoch: int) -> None:
        """Write the leader's beat, which fails when another process leads."""
        began_s = self._clock()
        with self._database.writer() as session:
            leader.beat(session, epoch)
        self._had_s = began_s
        self.peers.written()

    def _look(self) -> None:
        """Read who leads; take over when its beat has stood still for long."""
        began_s = self._clock()
        with self._database.reader() as session:
            seen = leader.current(session)
        self._had_s = began_s
        now_s = self._clock()
        if seen != self.seen or self._still_since_s is None:
            if self.seen is None or seen.epoch != self.seen.epoch:
                LOG.info('Epoch %d: %s leads.', seen.epoch,
                         seen.name or 'nobody')
            self.seen, self._still_since_s = seen, now_s
        if self._lock is not None and (
                now_s - self._still_since_s
                >= self._patience_s(seen, self._lock)):
            self._take_over(seen)

    def _patience_s(self, seen: leader.Seen, lock: locks.Lock) -> float:
        """Return how long a beat must stand still before a takeover."""
        if not lock.is_held():
            return self._lease_s
        # A leader that stopped in order has left no name, and a lock on a file
        # is held as long as its holder lives.
        at_once = not seen.name or lock.is_file
        return 0.0 if at_once else self._lease_s / 2

    def _take_over(self, seen: leader.Seen) -> None:
        """Become leader in a new epoch unless another process was faster."""
        began_s = self._clock()
        with self._database.writer() as session:
            epoch = leader.take_over(session, seen, locks.name_of_process(),
                                     self._address())
        if epoch is None:
            return
        LOG.info('This process leads, epoch %d.', epoch)
        self.seen = dataclasses.replace(seen, epoch=epoch)
        self._had_s = began_s
        self.epoch = epoch
        try:
            with self._beating(epoch):
                self._on_lead(epoch)
        except Exception:
            if self._is_starting:
                raise
            LOG.exception('This process cannot lead.')
            raise exception.Deposed(epoch=epoch) from None

    @contextlib.contextmanager
    def _beating(self, epoch: int) -> Iterator[None]:
        """Write the beat meanwhile: reading all may take longer than a lease,
        and the next one that took over would need as long. A takeover that
        hangs beats no more, so that its lease ends.
        """
        is_over = threading.Event()
        cpu_clock = time.pthread_getcpuclockid(threading.get_ident())

        def beat() -> None:
            moved_s, spent_s = self._clock(), 0.0
            while not is_over.wait(self._lease_s / locks.TURNS_PER_LEASE):
                now_s, used_s = self._clock(), time.clock_gettime(cpu_clock)
                if used_s - spent_s >= MOVES_S:
                    moved_s, spent_s = now_s, used_s
                elif now_s - moved_s >= HANGS_S:
                    LOG.error('This process hangs while it begins to lead, '
                              'and leaves it to another one.')
                    return
                # An error comes again in the next turn, which tells it.
                with contextlib.suppress(Exception):
                    self._beat(epoch)

        thread = threading.Thread(target=beat, name='first beats',
                                  daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


class Agreement:
    """Answers of the peers that a leader without its database asks.

    :param lease_s: an answer holds for this time.
    """

    def __init__(self, lease_s: float):
        self._lease_s = lease_s
        # Name -> when it said so, and whether it has a database.
        self._here: dict[str, tuple[float, bool]] = {}
        # Peers that may lead: those that are here, and those that were here
        # since the last write.
        self._may_lead = self._expected = frozenset[str]()

    def arrived(self, may_lead: Mapping[str, bool], now_s: float) -> None:
        """Set the names of the peers that are here, and whether each may lead.
        """
        before = self._here
        self._here = {name: before.get(name) or (now_s, True)
                      for name in may_lead}
        self._may_lead = frozenset(filter(may_lead.get, may_lead))
        self._expected |= self._may_lead

    def said(self, name: str, has_database: bool, now_s: float) -> None:
        self._here[name] = now_s, has_database

    def written(self) -> None:
        """Expect no answer of peers that left before now: the database is
        there.
        """
        self._expected = self._may_lead

    def have_no_database(self, now_s: float) -> bool:
        """Return whether every peer says that it has no database: those that
        are here, and those that may lead and were here since this process
        could last write. Such a peer that is gone may be the next leader.
        """
        answers = [self._here.get(name, (now_s, True))
                   for name in self._expected | self._here.keys()]
        return all(said_s >= now_s - self._lease_s and not has_database
                   for said_s, has_database in answers)
