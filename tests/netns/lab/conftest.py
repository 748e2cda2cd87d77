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

from virtco.lab.emulation import fabric as fabric_module
from virtco.lab.emulation import janitor
from virtco.lab.emulation import namespaces


@pytest.fixture
def run():
    """A run id; whatever the test made in it is gone afterwards."""
    run = namespaces.new_run()
    watcher = janitor.Janitor(run)
    yield run
    watcher.dismiss()
    assert namespaces.list_names(run) == []


@pytest.fixture
def make_fabric(run):
    made = []

    def make(rates_bps):
        fabric = fabric_module.Fabric(run)
        made.append(fabric)
        fabric.build(fabric_module.Uplink(f'h{i}', rate_bps)
                     for i, rate_bps in enumerate(rates_bps))
        return fabric

    yield make
    for fabric in made:
        fabric.close()
