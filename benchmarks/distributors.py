# SPDX-License-Identifier: Apache-2.0

"""Several ``virtco-distributor`` processes that follow this one's policies."""

import mmap
import pathlib
import socket
import subprocess
import sys
import time

import msgspec
import psutil

from virtco import app
from virtco.db import leader
from virtco.decide import publisher as publishers
from virtco.distribute import source as sources

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


class Distributors:
    """
    :param config: the configuration of all of them, but for the ports.
    :ivar ports: to which edges connect.
    """

    def __init__(self, home: pathlib.Path, config: str, n_processes: int,
                 rooms: app.App, publisher: publishers.Publisher):
        know = rooms.know

        def document(host: str) -> tuple[int, bytes] | None:
            found = publisher.get(host)
            return None if found is None else (
                found.generation, msgspec.json.encode(found))

        self._source = sources.Source('127.0.0.1', 0, sources.Doors(
            policy=document, overtake=publisher.overtake,
            n_hosts=lambda: len(publisher.generations()), report=know.report,
            heard=know.heard, measured=know.measured,
            trains=lambda hosts: {}, changed=lambda groups: None,
            forgiven=lambda project_id: None), rooms.metrics)
        with rooms.database.writer() as session:
            epoch = leader.take_over(
                session, leader.current(session), 'benchmark',
                f'127.0.0.1:{self._source.port}')
        self._source.start()
        self._source.lead(epoch)
        publisher.on_publish.append(self._source.published)
        self.ports = [free_port() for _ in range(n_processes)]
        self._processes = []
        for port in self.ports:
            path = home / f'distributor-{port}.conf'
            path.write_text(
                f'{config}[distributor]\nport = {port}\n'
                '[monitoring]\ndistributor_port = 0\n')
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
        self._source.stop()


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
