# SPDX-License-Identifier: Apache-2.0

"""Base classes of private services: processes, directories and ports."""

import abc
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import pathlib
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Self

import psutil

from virtco import exception
from virtco_lab.emulation import patience

ADDRESS = '127.0.0.1'
#: Idle seconds of the service's processes after which a start has failed.
START_S = 60.0
#: Seconds of silence after which a service does not answer.
ANSWER_S = 2.0
_STOP_S = 20.0
_POLL_S = 0.05
_TAIL_LINES = 20
# Below the ports that a kernel gives to clients by default.
_SERVER_PORTS = (15000, 32000)


class ServiceFailed(exception.VirtcoException):
    """A service ended or was not up in time, or its preparation failed."""

    msg_fmt = '%(what)s %(why)s; %(log)s ends with:\n%(said)s'


class Service(abc.ABC):
    """A server process with its children, its directory and its ports.

    Start it from the main thread: the kernel ends it with the thread that
    started it.

    :cvar package: name of the package of Debian.
    :cvar command: path or name of the server's program.
    :cvar user: account that runs it when we are root, None = ourselves.
    """

    package: str
    command: str
    #: URL with places for the address and the port.
    url_format: str
    user: str | None = None
    #: Ports of 127.0.0.1 beside the one of the clients.
    n_more_ports = 0
    #: The signal that ends it without waiting for its clients.
    stop_signal = signal.SIGTERM

    def __init__(self, home: str | os.PathLike[str] | None = None,
                 port: int | None = None):
        """Choose a directory and a port.

        :param home: its directory, None = a new one in the directory for
            temporary files, which :meth:`stop` removes.
        :param port: None = a free one.
        """
        self._own_home = home is None
        self.home = pathlib.Path(
            tempfile.mkdtemp(prefix='virtco-') if home is None else home)
        self.home.mkdir(parents=True, exist_ok=True)
        first, *self.more_ports = free_ports(1 + self.n_more_ports)
        self.port = port or first
        self.name = type(self).__name__
        self.log = self.home / 'output'
        self.process: subprocess.Popen[bytes] | None = None
        self._hand_over(self.home)

    @property
    def url(self) -> str:
        """URL at which clients reach the service."""
        return self.url_format.format(ADDRESS, self.port)

    @abc.abstractmethod
    def arguments(self) -> Sequence[str]:
        """Return the arguments of the server's command line."""

    @abc.abstractmethod
    def is_up(self) -> bool:
        """Return whether the service answers its protocol."""

    def prepare(self) -> None:
        """Create the files that the service needs before its first start."""

    def environment(self) -> Mapping[str, str]:
        return {'PATH': os.environ['PATH'], 'HOME': str(self.home),
                'TMPDIR': str(self.home), 'LC_ALL': 'C.UTF-8'}

    @classmethod
    def is_missing(cls) -> bool:
        """Return whether the service's package is not installed."""
        return shutil.which(cls.command) is None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start it, for the first time or again, and wait until it answers.

        :raises ServiceFailed: with the end of its log.
        """
        return self.launch().wait_up()

    def launch(self) -> Self:
        """Start it without waiting for it."""
        if not (self.home / 'prepared').exists():
            self.prepare()
            (self.home / 'prepared').touch()
        with self.log.open('ab') as log:
            self.process = subprocess.Popen(
                self.as_user([self.command, *self.arguments()]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.home, env=dict(self.environment()),
                start_new_session=True)
        return self

    def wait_up(self) -> Self:
        """Wait until the service is up; return it.

        :raises ServiceFailed: with the end of its log.
        """
        process = self.process
        assert process is not None
        clock = patience.IdleClock(
            lambda: [one.pid for one in self._family()], is_work_idle=True)
        while not self.is_up():
            if process.poll() is not None:
                raise self._error(f'ended with status {process.returncode}')
            if clock.read_s() > START_S:
                self.kill()
                raise self._error(f'was not up within {START_S:g} s')
            time.sleep(_POLL_S)
        return self

    def stop(self) -> None:
        """End it, gently where its data stay; none of its processes does."""
        family = self._family()
        if family and not self._own_home:
            assert self.process is not None
            self.process.send_signal(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_S)
        self._kill(family)
        if self._own_home:
            shutil.rmtree(self.home, ignore_errors=True)

    def kill(self) -> None:
        """Kill it and all its children by SIGKILL; :meth:`start` works again.
        """
        self._kill(self._family())

    def _kill(self, family: Sequence[psutil.Process]) -> None:
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        if self.process is not None:
            self.process.wait()
        psutil.wait_procs(family, _STOP_S)

    def run(self, *argv: str) -> str:
        """Run a program of the same package as its user; return its output.

        :raises ServiceFailed: when it fails.
        """
        done = subprocess.run(self.as_user(argv), cwd=self.home,
                              env=dict(self.environment()),
                              stdin=subprocess.DEVNULL, text=True,
                              capture_output=True)
        if done.returncode:
            self.log.write_text(done.stdout + done.stderr)
            raise self._error(f'needs {argv[0]}, which ended with status '
                              f'{done.returncode}')
        return done.stdout

    def as_user(self, argv: Sequence[str]) -> list[str]:
        """Return a command that runs as the service's user."""
        command = ['setpriv', '--pdeathsig', self.stop_signal.name[3:]]
        if self.user is not None and os.geteuid() == 0:
            command += ['--reuid', self.user, '--regid', self.user,
                        '--init-groups']
        return [*command, '--', *argv]

    def _hand_over(self, path: pathlib.Path) -> None:
        if self.user is not None and os.geteuid() == 0:
            entry = pwd.getpwnam(self.user)
            os.chown(path, entry.pw_uid, entry.pw_gid)

    def _family(self) -> list[psutil.Process]:
        """Return the process and its children; none once it has ended, since
        another process may have its number then.
        """
        if self.process is None or self.process.poll() is not None:
            return []
        one = psutil.Process(self.process.pid)
        return [*one.children(recursive=True), one]

    def _error(self, why: str) -> ServiceFailed:
        log = next((log for log in self.logs()
                    if log.exists() and log.stat().st_size), self.log)
        lines = log.read_text(errors='replace').splitlines()
        return ServiceFailed(
            what=f'{self.name} of package {self.package}', why=why,
            log=log, said='\n'.join(lines[-_TAIL_LINES:]))

    def logs(self) -> Sequence[pathlib.Path]:
        """List the files that tell why it failed, the most telling first."""
        return [self.log]


class SqlService(Service):
    """A database server: each test may have a database of its own."""

    @abc.abstractmethod
    def create_database(self, name: str) -> str:
        """Create a database in place of one of that name; return its URL."""


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 on which nothing listens now.

    They are none that the kernel gives to clients: a server may take seconds
    until it listens.
    """
    found: set[int] = set()
    while len(found) < count:
        port = random.SystemRandom().randrange(*_SERVER_PORTS)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind((ADDRESS, port))
            found.add(port)
    return sorted(found)


def exchange(port: int, question: bytes, n_bytes: int = 1) -> bytes:
    """Send a question; return the first bytes of the answer, or none."""
    try:
        with socket.create_connection((ADDRESS, port), ANSWER_S) as one:
            one.sendall(question)
            return one.recv(n_bytes)
    except OSError:
        return b''
