# SPDX-License-Identifier: Apache-2.0

"""What each kind of database is asked to compare names by.

``tests/functional/services`` has the answers of real ones.
"""

import types

import pytest
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite

from virtco import exception
from virtco.db import collation
from virtco.db import models
from virtco.db import session as db_session


def _mariadb(name):
    made = mysql.dialect(is_mariadb=True)
    made.name = name
    return made


@pytest.mark.parametrize(('dialect', 'options'), [
    (sqlite.dialect(), {}), (postgresql.dialect(), {}),
    (mysql.dialect(), {'mysql_charset': 'utf8mb4',
                       'mysql_collate': 'utf8mb4_0900_bin'}),
    (_mariadb('mysql'), {'mysql_charset': 'utf8mb4',
                         'mysql_collate': 'utf8mb4_nopad_bin'}),
    (_mariadb('mariadb'), {'mariadb_charset': 'utf8mb4',
                           'mariadb_collate': 'utf8mb4_nopad_bin'})])
def test_options_of_tables(dialect, options):
    assert collation.of_tables(dialect) == options


@pytest.mark.parametrize(('dialect', 'text'), [
    (sqlite.dialect(), 'VARCHAR(36)'), (mysql.dialect(), 'VARCHAR(36)'),
    (postgresql.dialect(), 'VARCHAR(36) COLLATE "C"')])
def test_types_of_columns(dialect, text):
    assert models.short_text(36).compile(dialect=dialect) == text


class _Server:
    def __init__(self, dialect, found):
        self.dialect = dialect
        self.found = found

    def exec_driver_sql(self, _statement):
        return types.SimpleNamespace(scalar=lambda: self.found)

    def execute(self, _statement, values):
        return [row for row in self.found if row[1] != values['wanted']]


@pytest.mark.parametrize(('dialect', 'good', 'bad', 'words'), [
    (postgresql.dialect(), 'UTF8', 'SQL_ASCII',
     'encoding of the database: expected UTF8'),
    (_mariadb('mysql'), [('a', 'utf8mb4_nopad_bin')],
     [('a', 'utf8mb4_nopad_bin'), ('b', 'utf8mb4_bin'), ('c', 'x')],
     'collation of table b: expected utf8mb4_nopad_bin (')])
def test_what_a_server_has(dialect, good, bad, words):
    collation.check(_Server(dialect, good))
    with pytest.raises(exception.Invalid) as error:
        collation.check(_Server(dialect, bad))
    assert str(error.value).startswith(words)
    collation.check(_Server(sqlite.dialect(), bad))


@pytest.mark.parametrize('connection', [
    'mysql+pymysql://u:p@h/n', 'mysql+pymysql://u:p@h/n?charset=utf8',
    'mariadb+pymysql://u:p@h/n?charset=utf8'])
def test_connections_carry_every_character(connection):
    url = db_session.Database(connection).engine.url
    assert url.query['charset'] == 'utf8mb4'
    assert url.password == 'p'
