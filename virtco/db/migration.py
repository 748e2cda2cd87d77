# SPDX-License-Identifier: Apache-2.0

"""Brings the schema up to date, and says where it stands."""

import pathlib
import secrets

from alembic import command
from alembic import config as alembic_config
from alembic import migration
from alembic import script
import sqlalchemy as sa

from virtco import exception
from virtco.db import bounds
from virtco.db import collation
from virtco.db import models
from virtco.db import session as db_session


def _config() -> alembic_config.Config:
    config = alembic_config.Config()
    config.set_main_option('script_location', str(
        pathlib.Path(__file__).parent / 'alembic'))
    return config


def _scripts() -> script.ScriptDirectory:
    return script.ScriptDirectory.from_config(_config())


def head() -> str:
    """Return the revision that this code needs."""
    found = _scripts().get_current_head()
    assert found is not None
    return found


def current(database: db_session.Database) -> str | None:
    """Read the database's revision, None for an empty one."""
    with db_session.translated(), database.engine.connect() as connection:
        return _revision(connection)


def _revision(connection: sa.Connection) -> str | None:
    return migration.MigrationContext.configure(
        connection).get_current_revision()


def check(database: db_session.Database) -> None:
    """Test that this code can use the database, or could after an upgrade.

    :raises virtco.exception.DatabaseUnavailable:
    :raises virtco.exception.Invalid: when another version made its tables,
        or when it compares names otherwise than as bytes.
    """
    with db_session.translated(), database.engine.connect() as connection:
        _check_revision(connection)
        collation.check(connection)


def is_known(revision: str | None) -> bool:
    """Tell whether this code can upgrade from a revision, None: from nothing.
    """
    return revision is None or revision in _known()


def _known() -> list[str]:
    return [one.revision for one in _scripts().walk_revisions()]


def _check_revision(connection: sa.Connection) -> None:
    found = _revision(connection)
    if not is_known(found):
        raise exception.Invalid(
            field='schema of the database', value=f'revision {found}',
            limit=f'one that this version knows ({", ".join(_known())}; run '
            'the version that made it, or begin with an empty database, '
            'into which virtco-manage rebuild reads the hints from Nova)')


def upgrade(database: db_session.Database) -> None:
    """Bring the schema up to date, and check the result.

    :raises virtco.exception.DatabaseUnavailable:
    :raises virtco.exception.Invalid: as :func:`check` does.
    """
    config = _config()
    with db_session.translated(), database.engine.begin() as connection:
        config.attributes['connection'] = connection
        with bounds.time_to_migrate(connection):
            _check_revision(connection)
            if _revision(connection) is None:
                _create(connection)
                command.stamp(config, 'head')
            else:
                command.upgrade(config, 'head')
    check(database)


def _create(connection: sa.Connection) -> None:
    """Create the tables that are missing, and the rows that always exist."""
    tables = models.Base.metadata.tables
    for table in tables.values():
        table.dialect_kwargs.update(collation.of_tables(connection.dialect))
    models.Base.metadata.create_all(connection)
    cluster, leader = tables['cluster'], tables['leader']
    # MariaDB keeps the rows of an installation that was cut off.
    connection.execute(cluster.delete().where(cluster.c.generation == 1))
    connection.execute(leader.delete().where(leader.c.epoch == 0))
    connection.execute(cluster.insert(), {
        'id': 1, 'generation': 1, 'secret': secrets.token_hex(32)})
    connection.execute(leader.insert(), {
        'id': 1, 'epoch': 0, 'beat': 0, 'name': '', 'address': ''})
