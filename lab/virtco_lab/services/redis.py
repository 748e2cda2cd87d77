# SPDX-License-Identifier: Apache-2.0

"""A private Redis."""

from collections.abc import Sequence

from virtco_lab.services import service


class Redis(service.Service):
    """A Redis server in a directory of its own, without persistence."""

    package = 'redis-server'
    command = '/usr/bin/redis-server'
    url_format = 'redis://{}:{}'

    def arguments(self) -> Sequence[str]:
        return ['--bind', service.ADDRESS, '--port', str(self.port),
                '--dir', str(self.home), '--save', '', '--appendonly', 'yes',
                '--appendfsync', 'no']

    def is_up(self) -> bool:
        return service.exchange(self.port, b'PING\r\n', 5) == b'+PONG'
