# SPDX-License-Identifier: Apache-2.0

"""The leader's lock, in any service for which tooz has a driver."""

from collections.abc import Callable
import contextlib
import logging
import os
import pathlib
import socket
import sys
import threading
import time
from typing import Any
import urllib.parse
import uuid

from oslo_config import cfg
import sqlalchemy as sa

from virtco import exception
from virtco.db import session as db_session

LOG = logging.getLogger(__name__)

#: How often the lock is renewed and the leader's beat looked at.
TURNS_PER_LEASE = 6
#: Drivers of tooz by SQLAlchemy's name of a database.
_OF_DATABASE = {'mysql': 'mysql', 'mariadb': 'mysql',
                'postgresql': 'postgresql'}
#: Backends whose locks expire; see virtco.conf.leadership_options.
_EXPIRING = ('etcd3', 'redis')


def url_of(conf: cfg.ConfigOpts) -> str:
    """Return ``[leadership] backend_url``, or the URL of the database's locks.
    """
    if conf.leadership.backend_url:
        return str(conf.leadership.backend_url)
    return of_database(db_session.default_connection(conf))


def of_database(connection: str) -> str:
    """Return the URL of a lock at the database.

    :param connection: connection in SQLAlchemy's form.
    """
    url = sa.make_url(connection)
    backend = url.get_backend_name()
    if backend in _OF_DATABASE:
        return url.set(drivername=_OF_DATABASE[backend], query={}
                       ).render_as_string(hide_password=False)
    path = pathlib.Path(url.database or '').absolute()
    path = path.with_name(f'leader-of-{path.name}')
    return f'file://{urllib.parse.quote(str(path))}'


def name_of(conf: cfg.ConfigOpts) -> bytes:
    """Return the lock's name, which differs per database: MySQL's locks are
    known in all of its server, and etcd may serve several clouds. MySQL takes
    64 characters.
    """
    url = sa.make_url(db_session.default_connection(conf))
    database = pathlib.PurePath(url.database or '').name
    return f'virtco-{database}'.encode()[:64]


class Lock:
    """Leader's lock in a lock service, held by its own thread. Only a wrong
    URL raises: without the service the leader goes on, and its successor takes
    longer.

    A thread of its own speaks to the service, so that a service that does not
    answer keeps nobody waiting.
    """

    def __init__(self, url: str, lease_s: float, name: bytes,
                 clock: Callable[[], float] = time.monotonic):
        self._url = _with_lease(url, lease_s)
        self._name = name
        self._lease_s = lease_s
        self._clock = clock
        self._shown = urllib.parse.urlsplit(url).scheme
        self.is_file = self._shown == 'file'
        self._coordinator: Any | None = None
        self._lock: Any | None = None
        self._is_away = False
        self._held_since_s: float | None = None
        self._has_tried = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name='lock',
                                        daemon=True)

    def start(self) -> None:
        """Try to get the lock, and keep it; waits at most for a lease.

        :raises virtco.exception.Invalid: for a URL that no driver takes.
        """
        self._coordinator = self._make()
        self._thread.start()
        self._has_tried.wait(self._lease_s)

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(self._lease_s)
        if not self._thread.is_alive():
            self._forget()

    def is_held(self) -> bool:
        """Return whether the service confirmed the lock within the last lease.
        """
        held_s = self._held_since_s
        return (held_s is not None
                and (self.is_file or self._clock() - held_s <= self._lease_s))

    def _run(self) -> None:
        while True:
            self.hold()
            self._has_tried.set()
            if self._stop.wait(self._lease_s / TURNS_PER_LEASE):
                return

    def hold(self) -> bool:
        """Get the lock or keep it, without waiting; whether it is held."""
        asked_s = self._clock()
        try:
            self._connect()
            assert self._lock is not None
            is_held = (self._keep() if self._lock.acquired
                       else self._lock.acquire(blocking=False))
            self._held_since_s = asked_s if is_held else None
            self._is_away = False
        except exception.Invalid:
            raise
        except Exception as error:
            # Each driver has exceptions of its own, besides tooz's.
            if not self._is_away:
                LOG.warning('The lock service %s does not work: %s',
                            self._shown, _first_line(error))
            self._is_away = True
            self._held_since_s = None
            self._forget()
        return self.is_held()

    def _make(self) -> Any:
        """Create tooz's coordinator for the configured URL."""
        # Nothing here uses it, and tooz's libraries load it if it is there.
        sys.modules.setdefault('eventlet', None)  # type: ignore[arg-type]
        import tooz
        from tooz import coordination
        try:
            found = coordination.get_coordinator(
                self._url, f'{socket.gethostname()}-{uuid.uuid4()}'.encode())
            if self._shown.startswith('redis'):
                _try_once(found)
            return found
        except (tooz.ToozError, RuntimeError, ImportError) as error:
            raise exception.Invalid(
                field='[leadership] backend_url', value=self._shown,
                limit='a driver of tooz that is installed') from error

    def _connect(self) -> None:
        """Connect to the lock service unless that was done."""
        if self._lock is not None:
            return
        if self._coordinator is None:
            self._coordinator = self._make()
        self._coordinator.start()
        self._lock = self._coordinator.get_lock(self._name)

    def _keep(self) -> bool:
        """Tell the service that we are there; whether the lock is still ours.
        """
        assert self._coordinator is not None
        lock: Any = self._lock
        is_ours = True
        if self._shown.startswith('etcd3'):
            # tooz does not tell that a lease ended meanwhile.
            is_ours = lock._lease.refresh() > 0
        elif self._shown.startswith('redis'):
            # Its heartbeat does not raise for a lock that ended.
            self._coordinator.heartbeat()
            is_ours = lock.is_still_owner()
        elif hasattr(lock, '_conn'):
            # Databases end connections, and with them locks, that are silent;
            # PostgreSQL those whose transaction lasts, too.
            with lock._conn.cursor() as cursor:
                cursor.execute('SELECT 1')
            lock._conn.rollback()
        if not is_ours:
            raise TimeoutError('it ended the lock of a process that was '
                               'silent')
        return True

    def _forget(self) -> None:
        """Give up lock and connection, whatever their state is."""
        lock: Any = self._lock
        self._lock = None
        coordinator, self._coordinator = self._coordinator, None
        self._held_since_s = None
        for end in (getattr(lock, 'release', None),
                    getattr(coordinator, 'stop', None)):
            try:
                if end is not None:
                    end()
            except Exception as error:
                LOG.debug('Of the lock service: %s', error)
        with contextlib.suppress(AttributeError):
            # Its connection is gone, and the lock with it. Or tooz warns of
            # each lock that was given up this way.
            lock.acquired = False


def _try_once(coordinator: Any) -> None:
    """Leave trying again to our turns: its library would do so for two
    minutes, and tooz has no option for it.
    """
    from redis import backoff
    from redis import retry
    make = coordinator._make_client

    def made(*args: Any) -> Any:
        client = make(*args)
        client.set_retry(retry.Retry(backoff.NoBackoff(), 0))
        return client
    coordinator._make_client = made


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _with_lease(url: str, lease_s: float) -> str:
    """Add the lease to the URL of a lock service whose locks expire."""
    if not url.startswith(_EXPIRING):
        return url
    parts = urllib.parse.urlsplit(url)
    given = dict(urllib.parse.parse_qsl(parts.query))
    lease = str(max(1, round(lease_s)))
    options = {'lock_timeout': lease, 'membership_timeout': lease,
               'timeout': lease} | given
    return parts._replace(query=urllib.parse.urlencode(options)).geturl()


def name_of_process() -> str:
    """Return ``hostname:pid``, by which other processes know this one."""
    return f'{socket.gethostname()}:{os.getpid()}'
