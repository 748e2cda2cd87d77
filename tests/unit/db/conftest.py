# SPDX-License-Identifier: Apache-2.0

"""A database of the newest schema, migrated once for all tests."""

import shutil

import pytest

from virtco.db import migration
from virtco.db import session as db_session


@pytest.fixture(scope='session')
def migrated(tmp_path_factory):
    path = tmp_path_factory.mktemp('db') / 'db.sqlite'
    found = db_session.Database(f'sqlite:///{path}')
    migration.upgrade(found)
    found.dispose()
    return path


@pytest.fixture
def database(migrated, tmp_path):
    shutil.copy(migrated, tmp_path / 'db.sqlite')
    found = db_session.Database(f'sqlite:///{tmp_path}/db.sqlite', 0.3)
    yield found
    found.dispose()
