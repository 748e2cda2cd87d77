# SPDX-License-Identifier: Apache-2.0

import pytest

from tests.cloud import clients
from virtco_lab.cloud import layout as layouts
from virtco_lab.emulation import namespaces


@pytest.fixture(scope='session', params=['bridge', 'ovn'])
def cloud(request):
    assert layouts.load() is None, 'a cloud is up; tools/cloud down ends it'
    layout = None
    try:
        clients.run('up', '--computes', '6', '--backend', request.param)
        layout = layouts.load()
        yield layout
    finally:
        clients.run('down')
        assert not layouts.HOME.exists()
        # Others' emulations may run beside it.
        assert layout is None or not namespaces.list_names(layout.run)
