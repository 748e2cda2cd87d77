# SPDX-License-Identifier: Apache-2.0

"""What the first start of a controller costs.

``python -m benchmarks.startup`` starts ``virtco-controller`` with its
embedded database in a new directory, waits for its port and for its health,
lets it place a first VM and reports for one host. Times are the process's
own processor time, so that other work on the machine counts little; each is
read a moment after the event, which makes it an upper bound.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import requests

_TICKS_PER_S = os.sysconf('SC_CLK_TCK')
_POLL_S = 0.02
_TIMEOUT_S = 10
_READY_S = 300
_MATRIX = {'pattern': 'shuffle', 'senders': 2, 'receivers': 2,
           'size': '1GB'}


@dataclasses.dataclass
class Start:
    """CPU seconds and resident MB (10⁶ bytes) of one start."""

    port_cpu_s: float
    ready_cpu_s: float
    ready_rss_mb: float
    placed_cpu_s: float
    in_use_rss_mb: float
    neutral_before_ready: bool


class Controller:
    """A process that never ran before."""

    def __init__(self, home: pathlib.Path):
        config = home / 'virtco.conf'
        config.write_text(
            '[api]\nport = 0\n[distributor]\nport = 0\n'
            f'[controller]\nstate_dir = {home}\n'
            # Its processor time is what counts, on a busy machine, too.
            '[placement]\ndeadline_s = 10\n')
        self._log = home / 'log'
        with self._log.open('ab') as log:
            self.process = subprocess.Popen(
                [sys.executable, '-m', 'virtco.cmd.controller',
                 '--config-file', str(config)], stdout=log, stderr=log)
        self._proc = pathlib.Path(f'/proc/{self.process.pid}')

    def port(self) -> int | None:
        if self.process.poll() is not None:
            raise SystemExit('It ended:\n' + self._log.read_text())
        found = re.search(r'Listening on .* port (\d+)', self._log.read_text())
        return int(found.group(1)) if found else None

    def cpu_s(self) -> float:
        fields = (self._proc / 'stat').read_text().rpartition(')')[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def rss_mb(self) -> float:
        found = re.search(r'VmRSS:\s+(\d+) kB',
                          (self._proc / 'status').read_text())
        assert found
        return int(found.group(1)) * 1024 / 1e6

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def measure(home: pathlib.Path) -> Start:
    controller = Controller(home)
    try:
        while (port := controller.port()) is None:
            time.sleep(_POLL_S)
        port_cpu_s = controller.cpu_s()
        url = f'http://127.0.0.1:{port}'
        session = requests.Session()
        first = _place(session, url)
        until_s = time.monotonic() + _READY_S
        while (health := session.get(url + '/health', timeout=_TIMEOUT_S)
               ).status_code != 200:
            controller.port()
            if time.monotonic() > until_s:
                raise SystemExit(f'It is not ready: {health.text}')
            time.sleep(_POLL_S)
        ready_cpu_s, ready_rss_mb = controller.cpu_s(), controller.rss_mb()
        answer = _place(session, url)
        placed_cpu_s = controller.cpu_s() - ready_cpu_s
        if answer['status'] != 'planned':
            raise SystemExit(f'The first plan is {answer}')
        _settle(controller)
        return Start(port_cpu_s, ready_cpu_s, ready_rss_mb, placed_cpu_s,
                     controller.rss_mb(), first['status'] == 'neutral')
    finally:
        controller.stop()


def _settle(controller: Controller) -> None:
    """Wait until it does nothing any more."""
    before = -1.0
    while controller.cpu_s() > before + 0.01:
        before = controller.cpu_s()
        time.sleep(0.5)


def _place(session: requests.Session, url: str) -> dict[str, object]:
    body = {'user_id': 'u', 'project_id': 'p', 'display_name': 'vm',
            'reservation_id': 'r', 'launch_index': 0, 'num_instances': 1,
            'hints': {'virtco:coflow': 'a',
                      'virtco:tm': json.dumps(_MATRIX)}, 'metadata': {},
            'flavor': {'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1},
            'server_group': None,
            'hosts': [{'host': f'h{i}', 'node': f'h{i}',
                       'free': {'vcpus': 2, 'memory_mb': 65536,
                                'disk_gb': 900}} for i in range(18)]}
    answer = session.put(
        url + '/v1/placements/00000000-0000-0000-0000-000000000001',
        json=body, timeout=_TIMEOUT_S)
    answer.raise_for_status()
    found: dict[str, object] = answer.json()
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.startup', description=__doc__)
    parser.add_argument('--starts', type=int, default=5)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args(argv)
    starts = []
    for _ in range(args.starts):
        with tempfile.TemporaryDirectory() as home:
            starts.append(measure(pathlib.Path(home)))
    rows = {name: [getattr(start, name) for start in starts]
            for name in Start.__dataclass_fields__}
    if args.json:
        print(json.dumps(rows))
        return 0
    for name, values in rows.items():
        print(f'{name:22} median {statistics.median(values):8.2f}   '
              f'from {min(values):.2f} to {max(values):.2f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
