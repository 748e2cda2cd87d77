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

"""A private Redis."""

from collections.abc import Sequence

from virtco.lab.services import service


class Redis(service.Service):
    package = 'redis-server'
    command = '/usr/bin/redis-server'

    @property
    def url(self) -> str:
        return f'redis://{service.ADDRESS}:{self.port}'

    def arguments(self) -> Sequence[str]:
        return ['--bind', service.ADDRESS, '--port', str(self.port),
                '--dir', str(self.home), '--save', '', '--appendonly', 'yes',
                '--appendfsync', 'no']

    def is_up(self) -> bool:
        return service.exchange(self.port, b'PING\r\n', 5) == b'+PONG'
