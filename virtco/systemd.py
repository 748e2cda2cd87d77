# SPDX-License-Identifier: Apache-2.0

"""The notification protocol of systemd's ``Type=notify`` services.

Written out as sd_notify(3) advises: of the libraries one needs systemd's
headers and another swallows every error.
"""

import logging
import os
import socket

LOG = logging.getLogger(__name__)


def notify(**fields: str | int) -> None:
    """Tell the service manager, if there is one, such as ``READY=1``.

    What it cannot be told is no reason to stop serving.
    """
    address = os.environ.get('NOTIFY_SOCKET')
    if not address:
        return
    if address.startswith('@'):
        address = '\0' + address[1:]
    text = '\n'.join(f'{name}={value}' for name, value in fields.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect(address)
            manager.sendall(text.encode())
    except OSError as error:
        LOG.warning('systemd cannot be told %s: %s', text, error)
