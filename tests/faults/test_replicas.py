# SPDX-License-Identifier: Apache-2.0

"""A database server that becomes a read-only replica of another one."""

import contextlib

import pytest
import sqlalchemy as sa

from tests import databases as real_databases
from tests import patience
from virtco import exception
from virtco.db import leader
from virtco.db import session as db_session

WHO = {'mariadb': 'SELECT CONNECTION_ID()',
       'postgresql': 'SELECT pg_backend_pid()'}


def set_read_only(root, kind, value):
    if kind == 'mariadb':
        root.exec_driver_sql(f'SET GLOBAL read_only = {value}')
    else:
        root.exec_driver_sql(
            f'ALTER SYSTEM SET default_transaction_read_only = {value}')
        root.exec_driver_sql('SELECT pg_reload_conf()')


@contextlib.contextmanager
def operator(connection, kind):
    engine = sa.create_engine(connection, isolation_level='AUTOCOMMIT')
    with engine.connect() as root:
        if kind == 'mariadb':
            root.exec_driver_sql("CREATE USER virtco IDENTIFIED BY ''")
            root.exec_driver_sql('GRANT ALL ON *.* TO virtco')
            root.exec_driver_sql(
                'REVOKE READ ONLY ADMIN, SUPER ON *.* FROM virtco')
        yield root
        set_read_only(root, kind, 0)
        if kind == 'mariadb':
            root.exec_driver_sql('DROP USER virtco')
    engine.dispose()


@pytest.mark.parametrize('kind', real_databases.of(
    'postgresql', real_databases.SERVERS, still='the error of PostgreSQL'))
def test_nobody_stays_with_a_server_that_takes_no_writes(
        kind, databases, tmp_path):
    """An address that is moved to another server cuts no connection."""
    connection = databases.make_current(kind, tmp_path)
    found = db_session.Database(connection.replace('root@', 'virtco@'), 5)

    def who():
        with found.reader() as session:
            return session.scalar(sa.text(WHO[kind]))

    def writes():
        try:
            with found.writer() as session:
                leader.raise_epoch(session, leader.current(session).epoch + 1)
        except exception.DatabaseUnavailable:
            return False
        return True

    with operator(connection, kind) as root:
        assert writes()
        before = who()
        assert who() == before
        set_read_only(root, kind, 1)
        patience.wait_for(lambda: not writes(), 'an error')
        after = who()
        assert after != before
        set_read_only(root, kind, 0)
        patience.wait_for(writes, 'a write')
    found.dispose()
