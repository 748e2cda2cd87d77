# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Fixtures of the controller's functional tests."""

import os

import pytest

from tests.functional.controller import harness


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

    def start(options=None, name='own', wrapper=(), wait=True):
        home = tmp_path / name
        home.mkdir(exist_ok=True)
        process = harness.ControllerProcess(home, options, wrapper)
        started.append(process)
        return process.start(wait)

    yield start
    for process in started:
        process.stop(9)
