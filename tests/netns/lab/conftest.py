# SPDX-License-Identifier: Apache-2.0

import pytest

from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import janitor
from virtco_lab.emulation import namespaces


@pytest.fixture
def run():
    """A run id; whatever the test made in it is gone afterwards."""
    with janitor.run() as run:
        yield run
    assert namespaces.list_names(run) == []


@pytest.fixture
def make_fabric(run):
    def make(rates_bps):
        fabric = fabric_module.Fabric(run)
        fabric.build(beds.Bed({f'h{i}': rate_bps
                               for i, rate_bps in enumerate(rates_bps)}))
        return fabric

    return make
