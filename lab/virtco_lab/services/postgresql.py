# SPDX-License-Identifier: Apache-2.0

"""A private PostgreSQL."""

from collections.abc import Sequence
import pathlib
import signal

from virtco_lab.services import service

_VERSIONS = pathlib.Path('/usr/lib/postgresql')


def _programs() -> pathlib.Path:
    """Return the directory of programs of the newest installed version."""
    found = sorted(_VERSIONS.glob('*/bin/postgres'),
                   key=lambda path: float(path.parts[-3]))
    return found[-1].parent if found else _VERSIONS


class PostgreSQL(service.SqlService):
    """A PostgreSQL server in a directory of its own."""

    package = 'postgresql'
    command = str(_programs() / 'postgres')
    url_format = 'postgresql+psycopg2://postgres@{}:{}/'
    user = 'postgres'  # The server refuses to run as root.
    stop_signal = signal.SIGINT  # SIGTERM waits for its clients.

    def prepare(self) -> None:
        self.run(str(_programs() / 'initdb'), '-D', str(self.home / 'data'),
                 '-A', 'trust', '-U', str(self.user), '--no-sync',
                 '--no-locale', '-E', 'UTF8')

    def arguments(self) -> Sequence[str]:
        settings = {
            'listen_addresses': service.ADDRESS, 'port': self.port,
            'unix_socket_directories': self.home, 'max_connections': 500,
            # Logs are written at each commit, and no disk is waited for.
            'fsync': 'off', 'full_page_writes': 'off',
            # Nothing of a server that is killed stays in /dev/shm.
            'dynamic_shared_memory_type': 'mmap'}
        return ['-D', str(self.home / 'data'), *(
            word for name, value in settings.items()
            for word in ('-c', f'{name}={value}'))]

    def is_up(self) -> bool:
        # 'Will you speak TLS?' is answered by N or S once it serves; while it
        # recovers, only a session is refused.
        return (service.exchange(
            self.port, b'\x00\x00\x00\x08\x04\xd2\x16\x2f') in (b'N', b'S')
            and self._serves())

    def _serves(self) -> bool:
        try:
            self.run(str(_programs() / 'pg_isready'), '-h', service.ADDRESS,
                     '-p', str(self.port), '-q')
        except service.ServiceFailed:
            return False
        return True

    def create_database(self, name: str) -> str:
        for statement in (f'DROP DATABASE IF EXISTS {name} WITH (FORCE)',
                          f'CREATE DATABASE {name}'):
            self.run(str(_programs() / 'psql'), '-h', service.ADDRESS, '-p',
                     str(self.port), '-U', str(self.user), '-d', 'postgres',
                     '-q', '-c', statement)
        return self.url + name
