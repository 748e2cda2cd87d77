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

import pytest

from tests.cloud import clients
from virtco.lab.cloud import layout as layouts
from virtco.lab.emulation import namespaces


@pytest.fixture(scope='session')
def cloud():
    assert layouts.load() is None, 'a cloud is up; tools/cloud down ends it'
    try:
        clients.run('up', '--computes', '6')
        layout = layouts.load()
        yield layout
    finally:
        clients.run('down')
        assert not layouts.HOME.exists()
        # Others' emulations may run beside it.
        assert not namespaces.list_names(layout.run)
