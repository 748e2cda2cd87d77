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

"""A private MariaDB."""

from collections.abc import Sequence

from virtco.lab.services import service


class MariaDB(service.SqlService):
    package = 'mariadb-server'
    command = '/usr/sbin/mariadbd'
    user = 'mysql'

    @property
    def url(self) -> str:
        return f'mysql+pymysql://root@{service.ADDRESS}:{self.port}/'

    def prepare(self) -> None:
        data = self.home / 'data'
        self.run('mariadb-install-db', '--no-defaults', f'--datadir={data}',
                 '--auth-root-authentication-method=normal',
                 '--skip-test-db', '--skip-name-resolve',
                 '--innodb-flush-log-at-trx-commit=0',
                 '--innodb-log-file-size=8M')

    def arguments(self) -> Sequence[str]:
        return ['--no-defaults', f'--datadir={self.home / "data"}',
                f'--socket={self._socket}', f'--port={self.port}',
                f'--bind-address={service.ADDRESS}',
                f'--pid-file={self.home / "pid"}', '--skip-name-resolve',
                # Logs are written at each commit, and no disk is waited for.
                '--innodb-flush-log-at-trx-commit=2',
                '--innodb-flush-method=nosync', '--innodb-log-file-size=8M',
                '--innodb-buffer-pool-size=64M', '--skip-log-bin',
                '--max-connections=500', '--character-set-server=utf8mb4']

    @property
    def _socket(self) -> str:
        return str(self.home / 'socket')

    def is_up(self) -> bool:
        # The server speaks first, with the version of its protocol.
        return service.exchange(self.port, b'', 5)[4:] == b'\x0a'

    def create_database(self, name: str) -> str:
        self.run('mariadb', '--no-defaults', f'--socket={self._socket}',
                 '--user=root', f'--execute=DROP DATABASE IF EXISTS {name}; '
                                f'CREATE DATABASE {name}')
        return self.url + name
