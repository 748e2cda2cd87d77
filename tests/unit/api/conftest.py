# SPDX-License-Identifier: Apache-2.0

"""The API over all rooms, for one test or for all of a module."""

import pytest

from tests.unit.api import service


@pytest.fixture(scope='module')
def api():
    found = service.Service()
    yield found
    found.rooms.database.dispose()


@pytest.fixture
def own():
    """For tests that change what others look at."""
    found = service.Service()
    yield found
    found.rooms.database.dispose()
