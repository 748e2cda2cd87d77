# SPDX-License-Identifier: Apache-2.0

"""Connections without a network, and servers whose loops do not run."""

import asyncio

import pytest

from tests.unit.distribute import ends
from tests.unit.distribute import sites


@pytest.fixture
def run():
    """Connections take the running loop."""
    loop = asyncio.new_event_loop()

    def call(function, *args, **values):
        async def work():
            return function(*args, **values)
        return loop.run_until_complete(work())

    yield call
    loop.close()


@pytest.fixture
def edge(run):
    found = run(lambda: ends.End().hello())
    found.hub.take()
    return found


@pytest.fixture
def relay(run):
    found = run(lambda: ends.End().join())
    found.hub.take()
    return found


@pytest.fixture
def make():
    made = []

    def call(policies=None, n_hosts=0, **options):
        made.append(sites.Site(policies or sites.Policies(), n_hosts,
                               **options))
        return made[-1]

    yield call
    for one in made:
        one.server._listener.close()
        one.server.loop.close()
