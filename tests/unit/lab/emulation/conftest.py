# SPDX-License-Identifier: Apache-2.0

import socket

import pytest


@pytest.fixture
def waits_s(monkeypatch):
    """Timeouts with which sockets accept and connect, one after the other."""
    found = []
    for name in ('accept', 'connect'):
        do = getattr(socket.socket, name)
        monkeypatch.setattr(
            socket.socket, name, lambda self, *args, do=do: (
                found.append(self.gettimeout()), do(self, *args))[1])
    return found
