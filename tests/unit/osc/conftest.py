# SPDX-License-Identifier: Apache-2.0

import pytest


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    """Let texts beside an answer stay in one line."""
    monkeypatch.setenv('COLUMNS', '1000')
