# SPDX-License-Identifier: Apache-2.0


import pytest

from tests.netns.probe import harness


@pytest.fixture
def net():
    net = harness.Net()
    try:
        net.build()
        yield net
    finally:
        net.close()
