# SPDX-License-Identifier: Apache-2.0

"""The engine, and transactions that end within a bounded time."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import copy
import os
import threading
import types
from typing import Any
from typing import TypeVar

from oslo_config import cfg
from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import engines
from oslo_db.sqlalchemy import exc_filters
import sqlalchemy as sa
from sqlalchemy import exc as sa_exc
from sqlalchemy import orm
import tenacity

from virtco import exception
from virtco.db import bounds

T = TypeVar('T')
#: Packages to install for the modules that SQLAlchemy's URLs ask for.
DRIVERS = {'MySQLdb': 'mysqlclient', 'psycopg': "'psycopg[binary]'",
           'psycopg2': 'psycopg2-binary', 'pymysql': 'PyMySQL'}
#: Queries of the servers' clocks, by dialect.
NOW_S = {
    'mysql': 'SELECT UNIX_TIMESTAMP(NOW(6))',
    'mariadb': 'SELECT UNIX_TIMESTAMP(NOW(6))',
    'postgresql': 'SELECT EXTRACT(EPOCH FROM clock_timestamp())',
}
#: How long a write waits for its turn when no VM's boot waits for it.
PATIENCE_S = 5.0
#: Pages of 4 KB in the log of SQLite at which a commit writes them into the
#: database, which takes tens of milliseconds.
MOST_LOG_PAGES = 16_384


class Prepared:
    """A statement that runs often, compiled once for each dialect.

    SQLAlchemy otherwise looks it up and converts its values each time, which
    costs more than SQLite takes to run it. Values pass to the driver, and
    columns come from it, as they are.
    """

    def __init__(self, statement: sa.ClauseElement):
        self._statement = statement
        self._compiled: dict[tuple[str, str], Any] = {}

    def run(self, connection: sa.Connection,
            values: Mapping[str, Any] = types.MappingProxyType({})
            ) -> sa.CursorResult[Any]:
        """Run it with a value for each of its open parameters."""
        dialect = connection.dialect
        key = dialect.name, dialect.paramstyle
        if key not in self._compiled:
            found: Any = self._statement.compile(dialect=dialect)
            self._compiled[key] = (found.string, found.params,
                                   found.positiontup)
        text, own, order = self._compiled[key]
        given = own | values
        return connection.exec_driver_sql(text, given if order is None else
                                          tuple(map(given.get, order)))


def default_connection(conf: cfg.ConfigOpts) -> str:
    """Return ``[database] connection``, or the embedded database."""
    if conf.database.connection:
        return str(conf.database.connection)
    path = os.path.join(conf.controller.state_dir, 'virtco.sqlite')
    return f'sqlite:///{os.path.abspath(path)}'


def file_of(connection: str) -> str | None:
    """Return the path of a SQLite database on disk; None for any other.

    :raises virtco.exception.Invalid: without showing a password.
    """
    url = _url(connection)
    return url.database if url.get_backend_name() == 'sqlite' else None


class Database:
    """Sessions over one engine.

    :param timeout_s: how long a statement waits for a lock or a connection.
    :param answer_s: how long a server's answer is waited for.
    """

    def __init__(self, connection: str, timeout_s: float = 0.4,
                 answer_s: int = bounds.ANSWER_S, **engine_options: Any):
        self.timeout_s = timeout_s
        url = _url(connection)
        self.is_sqlite = url.get_backend_name() == 'sqlite'
        self._file = _File(url.database if self.is_sqlite else None)
        if self.is_sqlite:
            with translated():  # its directory may be out of reach
                self.engine = _sqlite_engine(url, timeout_s)
            sa.event.listen(self.engine, 'connect',
                            lambda *_args: self._file.remember())
        else:
            # No connection test at this point: a database that is away is
            # found out by the first statement, not by a loop of retries.
            engine_options.setdefault('pool_timeout', max(1, timeout_s))
            self.engine = engines.create_engine(
                bounds.limited(url, answer_s), max_retries=0,
                thread_checkin=False, **engine_options)
            bounds.put_on(self.engine, PATIENCE_S)
            bounds.leave_replicas(self.engine)
        self._readers = orm.sessionmaker(self.engine)
        self._writing = self.engine.execution_options()
        if self.is_sqlite:
            # A writer that began as a reader could not wait for its turn.
            self._writing.dialect = copy.copy(self.engine.dialect)
            _begin_by(self._writing, 'BEGIN IMMEDIATE')
            _begin_by(self.engine, 'BEGIN')
        self._writers = orm.sessionmaker(self._writing,
                                         expire_on_commit=False)
        # SQLite has one writer at a time. Waiting for the turn here is fair
        # and bounded; waiting inside SQLite is neither.
        self._sqlite_turn = threading.Lock()
        #: Raises in a transaction of one who does not lead any more.
        self.fence: Callable[[orm.Session], None] = lambda session: None

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts,
                  answer_s: int = bounds.ANSWER_S) -> 'Database':
        """Make the database of a configuration, not connected yet."""
        options = {
            name: getattr(conf.database, name)
            for name in ('connection_recycle_time', 'max_pool_size',
                         'max_overflow', 'pool_timeout', 'mysql_sql_mode',
                         'connection_debug')
            if getattr(conf.database, name, None) is not None}
        return cls(default_connection(conf), conf.controller.db_timeout_s,
                   answer_s, **options)

    @contextlib.contextmanager
    def reader(self) -> Iterator[orm.Session]:
        """Open a read-only session over one consistent snapshot."""
        self._file.check()
        with translated(), self._readers() as session:
            # Rows stay readable: the session, when it closes, lets go of its
            # objects before their transaction ends.
            yield session

    @contextlib.contextmanager
    def writer(self, patience_s: float = 0.0) -> Iterator[orm.Session]:
        """Open a session that commits at the end, or leaves nothing behind.

        :param patience_s: to wait for other writers of this process, if
            longer than ``timeout_s``.
        """
        self._file.check()
        with (translated(), self._turn(max(patience_s, self.timeout_s)),
              self._writers.begin() as session):
            yield session

    @contextlib.contextmanager
    def statements(self) -> Iterator[sa.Connection]:
        """Begin a transaction like :meth:`writer`'s, without mapped objects.

        A session takes a quarter of the time of a short transaction.
        """
        self._file.check()
        with (translated(), self._turn(self.timeout_s),
              self._writing.begin() as connection):
            yield connection

    @contextlib.contextmanager
    def _turn(self, limit_s: float) -> Iterator[None]:
        """Let one writer of this process use SQLite at a time."""
        if not self.is_sqlite:
            yield
            return
        if not self._sqlite_turn.acquire(timeout=limit_s):
            raise exception.DatabaseUnavailable(why='it is busy')
        try:
            yield
        finally:
            self._sqlite_turn.release()

    def retried(self, work: Callable[[orm.Session], T],
                attempts: int = 4) -> T:
        """Run ``work`` in a writer, again when someone else was faster.

        With patience: a notification that is refused would have to come
        again, while a placement has an answer without the database.
        """
        def attempt() -> T:
            with self.writer(PATIENCE_S) as session:
                return work(session)

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(exception.Conflict),
            stop=tenacity.stop_after_attempt(attempts),
            wait=tenacity.wait_random(0, 0.02), reraise=True)(attempt)

    def as_leader(self, work: Callable[[orm.Session], T]) -> T:
        """Run ``work`` as :meth:`retried` does, if this process leads.

        That is checked last: the check locks the row of the leader, whose beat
        would wait as long as the work waits for other locks.

        :raises virtco.exception.Deposed: where it does not lead any more.
        """
        def fenced(session: orm.Session) -> T:
            found = work(session)
            session.flush()
            self.fence(session)
            return found

        return self.retried(fenced)

    def now_s(self) -> float | None:
        """Return the time of the server's clock; None without a server."""
        query = NOW_S.get(self.engine.dialect.name)
        if query is None:
            return None
        with translated(), self.engine.connect() as connection:
            return float(connection.exec_driver_sql(query).scalar_one())

    def checkpoint(self) -> None:
        """Write SQLite's log into its database while others go on."""
        if self.is_sqlite:
            with translated(), self.engine.connect() as connection:
                connection.exec_driver_sql('PRAGMA wal_checkpoint(PASSIVE)')

    def dispose(self) -> None:
        """Close all pooled connections that are not in use."""
        self.engine.dispose()


def _url(connection: str) -> sa.URL:
    """Parse the URL of a database and import its driver.

    :raises virtco.exception.Invalid: without showing a password.
    """
    try:
        url = sa.make_url(connection)
        url.get_dialect().import_dbapi()
        # MySQL's utf8 has no room for every character.
        return (url.update_query_dict({'charset': 'utf8mb4'})
                if url.get_backend_name() in ('mysql', 'mariadb') else url)
    except ModuleNotFoundError as error:
        limit = ('a driver that is installed (pip install '
                 f'{DRIVERS.get(error.name or "", error.name or "")})')
    except sa_exc.ArgumentError:
        limit = 'dialect+driver://user:password@host/name, known to SQLAlchemy'
    raise exception.Invalid(field='[database] connection',
                            value=repr(connection.partition(':')[0]),
                            limit=limit)


class _File:
    """The file of a SQLite database.

    SQLite goes on writing to a file that was removed or replaced, and all of
    it is lost with the process.
    """

    def __init__(self, path: str | None):
        self._path = path
        self._identity: tuple[int, int] | None = None

    def _find(self) -> tuple[int, int] | None:
        """Return device and inode of SQLite's file; None without one."""
        try:
            found = os.stat(self._path or '')
        except OSError:  # also of a file in place of the directory
            return None
        return found.st_dev, found.st_ino

    def remember(self) -> None:
        """Remember the file's identity at the first connection."""
        if self._path and self._identity is None:
            self._identity = self._find()

    def check(self) -> None:
        """Check that the file of the first connection is still in its place.

        :raises virtco.exception.DatabaseUnavailable: when it is gone.
        """
        if self._identity is not None and self._find() != self._identity:
            raise exception.DatabaseUnavailable(
                why=f'{self._path} was removed or replaced, start the '
                    'controller again')


def _sqlite_engine(url: sa.URL, timeout_s: float) -> sa.Engine:
    """Make an engine of pooled connections in WAL mode.

    oslo.db opens the file anew for every transaction, which costs as much as
    the transaction; its translation of errors is used all the same.
    """
    if url.database:
        os.makedirs(os.path.dirname(url.database) or '.', exist_ok=True)
    engine = sa.create_engine(
        url, poolclass=sa.QueuePool, pool_size=16, max_overflow=48,
        # The last one used has its statements and pages at hand.
        pool_use_lifo=True,
        pool_timeout=max(1, timeout_s), paramstyle='named',
        connect_args={'check_same_thread': False, 'timeout': timeout_s})

    @sa.event.listens_for(engine, 'connect')
    def tune(connection: Any, _record: Any) -> None:
        # The module would begin transactions by its own rules.
        connection.isolation_level = None
        connection.execute('PRAGMA journal_mode = WAL')
        connection.execute('PRAGMA synchronous = NORMAL')
        # No commit waits for the disk, unless nobody calls checkpoint().
        connection.execute(f'PRAGMA wal_autocheckpoint = {MOST_LOG_PAGES}')
        connection.execute('PRAGMA foreign_keys = ON')

    # Not its listeners to savepoints: see _begin_by.
    sa.event.listen(engine, 'handle_error', exc_filters.handler, retval=True)
    return engine


def _begin_by(engine: sa.Engine, statement: str) -> None:
    """Begin an engine's transactions by this statement.

    A listener to their beginning could, too, but SQLAlchemy would then look
    for listeners at each statement, and run this one as it runs all others.
    """
    setattr(engine.dialect, 'do_begin',
            lambda connection: connection.cursor().execute(statement))


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Translate errors of the database into this project's exceptions."""
    try:
        yield
    except (db_exc.DBDeadlock, db_exc.DBDuplicateEntry) as error:
        raise exception.Conflict(what='record', id='in the database'
                                 ) from error
    except (db_exc.DBError, sa_exc.SQLAlchemyError, OSError) as error:
        raise exception.DatabaseUnavailable(
            why=str(error).splitlines()[0] if str(error) else
            type(error).__name__) from error
