# SPDX-License-Identifier: Apache-2.0

"""Brings the schema up to date, and says where it stands."""

import pathlib

from alembic import command
from alembic import config as alembic_config
from alembic import migration
from alembic import script
from alembic import util

from virtco import exception
from virtco.db import bounds
from virtco.db import session as db_session


def _config() -> alembic_config.Config:
    config = alembic_config.Config()
    config.set_main_option('script_location', str(
        pathlib.Path(__file__).parent / 'alembic'))
    return config


def head() -> str:
    """The revision this code needs."""
    found = script.ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None
    return found


def current(database: db_session.Database) -> str | None:
    """The revision the database has, None for an empty one."""
    with db_session.translated(), database.engine.connect() as connection:
        return migration.MigrationContext.configure(
            connection).get_current_revision()


def upgrade(database: db_session.Database, revision: str = 'head') -> None:
    """:raises virtco.exception.DatabaseUnavailable:
    :raises virtco.exception.Invalid: for a revision that is unknown.
    """
    config = _config()
    with db_session.translated(), database.engine.begin() as connection:
        config.attributes['connection'] = connection
        try:
            with bounds.time_to_migrate(connection):
                command.upgrade(config, revision)
        except util.CommandError as error:
            raise exception.Invalid(field='revision', value=revision,
                                    limit=str(error)) from error
