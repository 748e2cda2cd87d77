# SPDX-License-Identifier: Apache-2.0

"""Several relays (``virtco-distributor``) of this process."""

import mmap
import pathlib
import socket
import subprocess
import sys
import time

import psutil

PATIENCE_S = 60.0


class Times:
    """When each edge last acknowledged, in a file that processes share.

    Seconds of the monotonic clock, 0 for an edge that did not since
    :meth:`clear`.
    """

    def __init__(self, path: pathlib.Path, n_hosts: int):
        if not path.exists():
            path.write_bytes(bytes(8 * n_hosts))
        with path.open('r+b') as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.by_number = memoryview(self._map).cast('d')

    def clear(self) -> None:
        self._map[:] = bytes(len(self._map))

    def came_s(self) -> list[float]:
        return [at_s for at_s in self.by_number if at_s]


class Relays:
    """Processes that connect to the leader that the database names.

    :param config: the configuration of all of them, but for the ports.
    :ivar ports: to which edges connect.
    """

    def __init__(self, home: pathlib.Path, config: str, n_processes: int):
        self.ports = [free_port() for _ in range(n_processes)]
        self._processes = []
        for port in self.ports:
            path = home / f'relay-{port}.conf'
            path.write_text(
                f'{config}[distributor]\nport = {port}\n'
                '[monitoring]\nport = 0\n')
            self._processes.append(subprocess.Popen(
                [sys.executable, '-m', 'virtco.cmd.distributor',
                 '--config-file', str(path)]))

        for port, process in zip(self.ports, self._processes):
            _wait_listening(port, process)

    def cpu_s(self) -> float:
        """Of all of them since their start."""
        return sum(sum(psutil.Process(one.pid).cpu_times()[:2])
                   for one in self._processes)

    def rss_bytes(self) -> list[int]:
        return [psutil.Process(one.pid).memory_info().rss
                for one in self._processes]

    def close(self) -> None:
        for one in self._processes:
            one.terminate()
        for one in self._processes:
            one.wait()


def _wait_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(('127.0.0.1', port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f'nobody listens on port {port}') from None
            time.sleep(0.1)


def free_port() -> int:
    with socket.create_server(('127.0.0.1', 0)) as taken:
        return int(taken.getsockname()[1])
