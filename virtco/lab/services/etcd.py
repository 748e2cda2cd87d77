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

"""A private etcd."""

from collections.abc import Sequence
import os
import urllib.request

from virtco.lab.services import service


class Etcd(service.Service):
    package = 'etcd-server'
    command = '/usr/bin/etcd'

    def __init__(self, home: str | os.PathLike[str] | None = None,
                 port: int | None = None):
        super().__init__(home, port)
        self._peer_port, = service.free_ports(1)

    @property
    def url(self) -> str:
        """For tooz; etcd itself is at its ``http`` part."""
        return f'etcd3+http://{service.ADDRESS}:{self.port}'

    def arguments(self) -> Sequence[str]:
        clients = f'http://{service.ADDRESS}:{self.port}'
        peers = f'http://{service.ADDRESS}:{self._peer_port}'
        return [f'--data-dir={self.home / "data"}', '--name=virtco',
                f'--listen-client-urls={clients}',
                f'--advertise-client-urls={clients}',
                f'--listen-peer-urls={peers}',
                f'--initial-advertise-peer-urls={peers}',
                f'--initial-cluster=virtco={peers}',
                # A leader of one is elected at once.
                '--heartbeat-interval=20', '--election-timeout=200',
                '--log-level=warn']

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(
                    f'http://{service.ADDRESS}:{self.port}/health',
                    timeout=2) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False
