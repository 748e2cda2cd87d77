# SPDX-License-Identifier: Apache-2.0

"""Fixtures of the controller's functional tests."""

import logging
import os

import pytest

from tests.functional.controller import harness


@pytest.fixture(autouse=True)
def no_closed_log():
    """Commands that run in this process log to what the test captures, and
    what is logged after it would be an error in the output of another.
    """
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    for handler in set(root.handlers) - set(before):
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)


@pytest.fixture(scope='session')
def shared(tmp_path_factory):
    """One controller for all tests that do not harm it.

    VIRTCO_TEST_DATABASE may name another database than SQLite, whose schema
    is up to date.
    """
    options = {}
    connection = os.environ.get('VIRTCO_TEST_DATABASE')
    if connection:
        options['database'] = {'connection': connection}
    with harness.running(tmp_path_factory.mktemp('controller'),
                         options) as found:
        yield found


@pytest.fixture
def tenant(shared):
    return shared.tenant()


@pytest.fixture
def make(tmp_path):
    """Starts controllers of a test's own, which all end with it."""
    started = []

    def start(options=None, name='own', wait=True, **kwargs):
        home = tmp_path / name
        home.mkdir(exist_ok=True)
        process = harness.ControllerProcess(home, options, **kwargs)
        started.append(process)
        return process.start(wait)

    yield start
    for process in started:
        process.stop(9)
