# SPDX-License-Identifier: Apache-2.0

"""OpenStack's and virtco's processes as private services."""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import http.client
import os
import pathlib

from virtco_lab.cloud import layout as layouts
from virtco_lab.emulation import process
from virtco_lab.services import service


class Daemon(service.Service):
    """Any command; up at once, and seen to be later by its clients."""

    package = 'virtco'

    def __init__(self, layout: layouts.Layout, name: str,
                 command: Sequence[str],
                 environment: Mapping[str, str] | None = None,
                 port: int = 1):
        super().__init__(layout.home / 'process' / name, port)
        self.name = name
        self.command, *self._arguments = command
        self._environment = environment or {}

    def arguments(self) -> Sequence[str]:
        return self._arguments

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, 'NO_PROXY': '*', 'no_proxy': '*',
                # Nova's processes run on native threads.
                'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1',
                'PYTHONWARNINGS': 'ignore', **self._environment}

    def logs(self) -> Sequence[pathlib.Path]:
        return [self.log.parents[2] / f'{self.name}.log', self.log]

    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Http(Daemon):
    """Up once it answers a request without an error of its own."""

    def __init__(self, layout: layouts.Layout, name: str,
                 command: Sequence[str], port: int, path: str = '/',
                 environment: Mapping[str, str] | None = None):
        super().__init__(layout, name, command, environment, port)
        self._address = layout.address
        self._path = path

    def is_up(self) -> bool:
        with contextlib.closing(http.client.HTTPConnection(
                self._address, self.port, timeout=5)) as one:
            try:
                one.request('GET', self._path)
                return one.getresponse().status < 500
            except (OSError, http.client.HTTPException):
                return False


def wsgi(layout: layouts.Layout, name: str, module: str,
         environment: Mapping[str, str]) -> Http:
    """Build the service that runs a WSGI application under uWSGI."""
    port = layouts.PORTS[name]
    return Http(
        layout, name, [
            process.script('uwsgi'), '--master', '--die-on-term',
            '--enable-threads', '--lazy-apps', '--need-app',
            '--buffer-size', '65535', '--disable-logging',
            # Clients see resets if connections stay open.
            '--add-header', 'Connection:close',
            '--processes', '1', '--threads', '4',
            '--http-socket', f'{layout.address}:{port}',
            '--module', f'{module}:application'],
        port, environment=environment)
