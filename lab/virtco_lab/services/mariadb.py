# SPDX-License-Identifier: Apache-2.0

"""A private MariaDB."""

from collections.abc import Sequence

from virtco_lab.services import service


class MariaDB(service.SqlService):
    """A MariaDB server in a directory of its own."""

    package = 'mariadb-server'
    command = '/usr/sbin/mariadbd'
    url_format = 'mysql+pymysql://root@{}:{}/'
    user = 'mysql'

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
