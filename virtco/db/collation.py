# SPDX-License-Identifier: Apache-2.0

"""How databases compare names: as bytes, the same on each of them.

SQLite does so by itself. MariaDB's default takes ``sort``, ``SORT`` and
``sört`` for one name and has no room for some characters in it, PostgreSQL's
sorts by the language of the server.
"""

from typing import Any

import sqlalchemy as sa

from virtco import exception


def of_tables(dialect: sa.Dialect) -> dict[str, Any]:
    """Return the options of tables that hold any text in MariaDB and MySQL."""
    if dialect.name not in ('mysql', 'mariadb'):
        return {}
    return {f'{dialect.name}_charset': 'utf8mb4',
            f'{dialect.name}_collate': _binary(dialect)}


def _binary(dialect: sa.Dialect) -> str:
    # Neither fills names up with spaces before it compares them.
    return ('utf8mb4_nopad_bin' if getattr(dialect, 'is_mariadb', False)
            else 'utf8mb4_0900_bin')


def check(connection: sa.Connection) -> None:
    """Look for tables that were made or converted by another hand.

    :raises virtco.exception.Invalid: where names are not compared as bytes,
        or not every character can be stored.
    """
    dialect = connection.dialect
    if dialect.name == 'postgresql':
        found = connection.exec_driver_sql('SHOW server_encoding').scalar()
        if found != 'UTF8':
            raise exception.Invalid(
                field='encoding of the database', value=found,
                limit="UTF8 (create it with ENCODING 'UTF8' TEMPLATE "
                      'template0)')
    elif dialect.name in ('mysql', 'mariadb'):
        wanted = _binary(dialect)
        for table, found in connection.execute(_COLLATIONS,
                                               {'wanted': wanted}):
            raise exception.Invalid(
                field=f'collation of table {table}', value=found,
                limit=f'{wanted} (save the rows with mariadb-dump '
                      '--no-create-info --complete-insert --replace, drop the '
                      'tables, run virtco-manage db sync and load the rows)')


_COLLATIONS = sa.text(
    'SELECT table_name, MIN(collation_name) FROM information_schema.columns '
    'WHERE table_schema = DATABASE() AND collation_name <> :wanted '
    "AND table_name <> 'alembic_version' GROUP BY table_name "
    'ORDER BY table_name')
