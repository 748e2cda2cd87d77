# SPDX-License-Identifier: Apache-2.0

"""What virtco adds to one request in Nova's scheduler.

``python -m benchmarks.nova_overhead [--servers 1 4 18] [--json]`` boots
servers through real Nova in this process and times CoflowWeigher's passes:
without a hint, with one (a real virtco-controller process answers) and with
one while no controller is there.
"""

import os

os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', '1')

# Before all of Nova.
from virtco_lab.emulation import nova_cloud

# isort: split
import argparse
import json
import logging
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any
import unittest

import requests

from nova_filters import coflow_weigher
from virtco_lab.emulation import nova_client

START_S = 60.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        return free.getsockname()[1]


def start_controller(home: pathlib.Path) -> tuple[str, subprocess.Popen[Any]]:
    port = free_port()
    config = home / 'virtco.conf'
    config.write_text(
        f'[api]\nport = {port}\n'
        f'[database]\nconnection = sqlite:///{home}/virtco.sqlite\n')
    process = subprocess.Popen(
        [sys.executable, '-m', 'virtco.cmd.controller', '--config-file',
         str(config)], stderr=(home / 'log').open('w'))
    url = f'http://127.0.0.1:{port}'
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            if requests.get(f'{url}/health', timeout=1).ok:
                return url, process
        except requests.RequestException:
            time.sleep(0.1)
    raise RuntimeError((home / 'log').read_text())


class Bench(nova_cloud.Cloud):
    """Runs as a "test" of Nova's; fills ``results``."""

    hypervisors = {f'h{number}': 4 for number in range(6)}

    def __init__(self, url: str, sizes: list[int], repeat: int):
        super().__init__('measure')
        self._url, self._sizes, self._repeat = url, sizes, repeat
        self.virtco_options = {'controller_url': url}
        self.results: list[dict[str, Any]] = []

    def measure(self) -> None:
        logging.disable(logging.ERROR)  # also what is torn down afterwards
        passes: list[float] = []
        original = coflow_weigher.CoflowWeigher.weigh_objects

        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*args)
            finally:
                passes.append(1e3 * (time.perf_counter() - start))

        self.stub_out(
            'nova_filters.coflow_weigher.CoflowWeigher.weigh_objects', timed)
        self.create_flavor('slot1')
        nova = nova_client.NovaClient(self.serve_api())
        for case in ('no hint', 'hint', 'no controller'):
            if case == 'no controller':
                self.flags(controller_url=f'http://127.0.0.1:{free_port()}',
                           group='virtco')
            for n_vms in self._sizes:
                found = [self._one(nova, case, f'{case[:4]}{n_vms}-{turn}',
                                   n_vms, passes)
                         for turn in range(self._repeat)]
                self.results.append({
                    'case': case, 'servers': n_vms,
                    'first_pass_ms': statistics.median(
                        run[0] for run in found),
                    'later_pass_ms': statistics.median(
                        [value for run in found for value in run[1:]]
                        or [0.0]),  # one server is one pass
                    'best_request_ms': min(map(sum, found)),
                    'request_ms': statistics.median(map(sum, found)),
                    'worst_request_ms': max(map(sum, found))})

    def _one(self, nova: nova_client.NovaClient, case: str, name: str,
             n_vms: int, passes: list[float]) -> list[float]:
        hints = {} if case == 'no hint' else {
            'virtco:coflow': name,
            'virtco:tm': '{"pattern": "all-to-all", "n": %d, "size": "9GB"}'
                         % max(2, n_vms)}
        passes.clear()
        servers = nova.wait_active(nova.create_group(name, n_vms, hints))
        found = list(passes)
        nova.delete(servers)
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--servers', type=int, nargs='+', default=[1, 4, 18])
    parser.add_argument('--repeat', type=int, default=5)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        url, process = start_controller(pathlib.Path(home))
        try:
            bench = Bench(url, args.servers, args.repeat)
            result = unittest.TestResult()
            bench.run(result)
        finally:
            logging.disable(logging.NOTSET)
            process.kill()
            process.wait()
    for _case, text in result.errors + result.failures:
        print(text, file=sys.stderr)
    if args.json:
        print(json.dumps({'results': bench.results}))
    else:
        print(f'{"case":14} {"servers":>7} {"first ms":>9} {"later ms":>9} '
              f'{"request: best":>13} {"median":>8} {"worst ms":>9}')
        for row in bench.results:
            print(f'{row["case"]:14} {row["servers"]:7} '
                  f'{row["first_pass_ms"]:9.2f} {row["later_pass_ms"]:9.3f} '
                  f'{row["best_request_ms"]:13.2f} {row["request_ms"]:8.2f} '
                  f'{row["worst_request_ms"]:9.2f}')
    sys.stdout.flush()
    os._exit(0 if result.wasSuccessful() else 1)  # Nova's threads linger


if __name__ == '__main__':
    main()
