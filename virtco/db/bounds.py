# SPDX-License-Identifier: Apache-2.0

"""Limits on the waits of connections to a database server.

A process whose machine lost its network leaves a transaction behind. The
server would keep its locks for hours, and no other scheduler could lead.
"""

from collections.abc import Iterator
import contextlib
import functools
import os
import select
import socket
import time
from typing import Any

import sqlalchemy as sa

#: How long a server keeps the transaction of a client that says nothing.
SILENT_S = 5
#: How long it keeps that of a migration, whose Python loads between two
#: statements while the machine may be busy; and how long an operator's command
#: waits for an answer: an index of many rows takes longer than Nova waits.
MIGRATING_S = 600
#: A server that acknowledges nothing for this time is gone.
UNREACHABLE_S = 10
#: A server that acknowledges queries but answers none for this time hangs.
ANSWER_S = 10
#: Time to connect and to log in.
CONNECT_S = 5
#: Errors of a server that takes no writes: PostgreSQL's and MariaDB's.
_READ_ONLY = frozenset(('25006', 1290, 1792, 1836))


def limited(url: sa.URL, answer_s: int = ANSWER_S) -> sa.URL:
    """Add time limits to the URL of a database.

    :param answer_s: limit of each answer; PostgreSQL has one for the process.
    """
    options = {'connect_timeout': str(CONNECT_S)}
    if url.get_backend_name() in ('mysql', 'mariadb'):
        options |= {'read_timeout': str(answer_s),
                    'write_timeout': str(answer_s)}
    elif url.get_driver_name() == 'psycopg2':
        from psycopg2 import extensions
        extensions.set_wait_callback(functools.partial(
            _wait, answer_s=answer_s))
    # Whatever the operator wrote there holds.
    return url.update_query_dict(options | dict(url.query))


def _wait(connection: Any, answer_s: float) -> None:
    """Wait for an answer of PostgreSQL; libpq itself has no limit.

    :raises psycopg2.OperationalError: and the connection is closed.
    """
    from psycopg2 import extensions
    from psycopg2 import OperationalError
    until_s = time.monotonic() + answer_s
    while (state := connection.poll()) != extensions.POLL_OK:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN if (
            state == extensions.POLL_READ) else select.POLLOUT)
        if not waiting.poll(max(0.0, 1000 * (until_s - time.monotonic()))):
            raise OperationalError(
                f'the server did not answer within {answer_s} s')


def put_on(engine: sa.Engine, lock_s: float) -> None:
    """Set limits of waiting on each new connection to a database server.

    :param lock_s: how long a statement waits for a lock.
    """
    dialect = engine.dialect.name
    statements = (
        f"SET lock_timeout = '{lock_s:.0f}s'" if dialect == 'postgresql' else
        f'SET SESSION innodb_lock_wait_timeout = {lock_s:.0f}',
        _silence(dialect, SILENT_S))

    def connected(connection: Any, _record: Any) -> None:
        with contextlib.closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.commit()
        _watch_server(connection)

    sa.event.listen(engine, 'connect', connected)


def leave_replicas(engine: sa.Engine) -> None:
    """Close all connections to a server that takes no writes any more: the
    same address may lead to the one that does.
    """
    # oslo.db ends the round of handle_error before ours could have its turn.
    known = engine.dialect.is_disconnect

    def is_disconnect(error: Any, *where: Any) -> bool:
        return known(error, *where) or not _READ_ONLY.isdisjoint((
            getattr(error, 'sqlstate', None), getattr(error, 'pgcode', None),
            *error.args[:1]))

    setattr(engine.dialect, 'is_disconnect', is_disconnect)


@contextlib.contextmanager
def time_to_migrate(connection: sa.Connection) -> Iterator[None]:
    """Let the transaction that has begun be silent for longer."""
    dialect = connection.dialect.name
    if dialect == 'sqlite':
        yield
        return
    connection.exec_driver_sql(_silence(dialect, MIGRATING_S, 'SET LOCAL'))
    try:
        yield
    finally:
        # PostgreSQL's limit ends with the transaction. The pool keeps the
        # connection after a refused migration, too.
        if dialect != 'postgresql':
            connection.exec_driver_sql(_silence(dialect, SILENT_S))


def _silence(dialect: str, silent_s: int, scope: str = 'SET') -> str:
    """Build the statement that limits the time of an idle transaction."""
    if dialect == 'postgresql':
        return (f'{scope} idle_in_transaction_session_timeout = '
                f"'{silent_s}s'")
    # MySQL reads a comment where MariaDB reads a statement.
    return ('SET SESSION autocommit = @@SESSION.autocommit '
            f'/*M!, SESSION idle_transaction_timeout = {silent_s} */')


def _watch_server(connection: Any) -> None:
    """Let the kernel end a connection whose other end vanished."""
    options = {socket.TCP_USER_TIMEOUT: 1000 * UNREACHABLE_S,
               socket.TCP_KEEPIDLE: UNREACHABLE_S // 2,
               socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: UNREACHABLE_S // 2}
    # psycopg2 has the number of the socket, PyMySQL the socket.
    of_socket = getattr(connection, 'fileno', None) or getattr(
        getattr(connection, '_sock', None), 'fileno', None)
    if of_socket is None:
        return
    # Nothing of this is there for a Unix socket.
    with contextlib.suppress(OSError), socket.socket(
            fileno=os.dup(of_socket())) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
        for name, value in options.items():
            found.setsockopt(socket.IPPROTO_TCP, name, value)
