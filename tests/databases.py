# SPDX-License-Identifier: Apache-2.0

"""Real databases for tests: one server per kind and process of tests."""

import contextlib
import itertools
import os

import pytest

from virtco_lab import services

SERVERS = {'mariadb': services.MariaDB, 'postgresql': services.PostgreSQL}
KINDS = ('sqlite', *SERVERS)

_numbers = itertools.count()


def make_initial(database):
    """Give an empty database the schema of the first release."""
    # Nova's test modules want to be imported before SQLAlchemy.
    from virtco.db import migration
    migration.upgrade(database)
    with database.engine.begin() as connection:
        for column in ('addresses', 'egress_limit_bps', 'ingress_limit_bps'):
            connection.exec_driver_sql(
                f'ALTER TABLE members DROP COLUMN {column}')
        for table, column, after in (
                ('coflows', 'created_at', 'ix_coflows_age'),
                ('coflows', 'project_id', 'ix_coflows_project_age'),
                ('events', 'project_id', 'ix_events_project_age')):
            connection.exec_driver_sql(
                f'CREATE INDEX ix_{table}_{column} ON {table} ({column})')
            connection.exec_driver_sql(f'DROP INDEX {after}' + (
                f' ON {table}' if connection.dialect.name == 'mysql' else ''))
        connection.exec_driver_sql(
            "UPDATE alembic_version SET version_num = 'initial'")


def of(default, kinds, still):
    """Parameters: one kind in each run, the others in the full gear.

    :param still: what the default gear catches the others' faults with.
    """
    return [kind if kind == default else pytest.param(
        kind, marks=pytest.mark.full(
            reason=f'as on {default}', still=still)) for kind in kinds]


class Databases:
    """Fresh databases of any kind; a server starts when it is needed."""

    def __init__(self):
        self._stack = contextlib.ExitStack()
        self._servers = {}

    def server(self, kind):
        if kind not in self._servers:
            made = SERVERS[kind]()
            if made.is_missing():
                assert not os.environ.get('CI'), f'{made.package} is missing'
                pytest.skip(f'Debian package {made.package} is missing')
            self._servers[kind] = self._stack.enter_context(made)
        return self._servers[kind]

    def make(self, kind, home):
        """URL of an empty database.

        :param home: directory, for SQLite.
        """
        name = f'virtco{next(_numbers)}'
        if kind == 'sqlite':
            return f'sqlite:///{home}/{name}.sqlite'
        return self.server(kind).create_database(name)

    def make_current(self, kind, home):
        """URL of a database with today's schema."""
        # Nova's test modules want to be imported before SQLAlchemy.
        from virtco.db import migration
        from virtco.db import session as db_session
        connection = self.make(kind, home)
        database = db_session.Database(connection, 5)
        migration.upgrade(database)
        database.dispose()
        return connection

    def stop(self):
        self._stack.close()
