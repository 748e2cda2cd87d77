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
