# SPDX-License-Identifier: Apache-2.0

"""Connections to the leader by a wire, in a process that imports this.

``tests.constants`` imports it where :data:`PORT` is among its constants.
"""

import asyncio

#: Of the wire.
PORT = 0

_open = asyncio.open_connection


async def _open_wire(host, port, **kwargs):
    return await _open(host, PORT or port, **kwargs)


asyncio.open_connection = _open_wire
